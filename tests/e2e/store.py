"""An S3-compatible store for tests: moto's server on loopback, and the jars that Spark needs for it, by PySpark's Ivy."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ingest.errors import SetupError
from ingest.lake import cache, jars, java
from tests.e2e.broker import Missing, _free_port
from tests.lakes import ROOT

ACCESS = {"key": "a-key", "secret": "a-secret"}
_LIST = ROOT / "docs" / "s3-jars.xml"
_NEEDED = "hadoop-aws-3.5.0.jar"


def fetched() -> Path:
    """The folder of S3's jars, by the list that the documentation gives, filled on first use.

    Raises:
        Missing: no repository answers, or there is no Java.
    """
    folder = cache.folder() / "s3-jars"
    if (folder / _NEEDED).is_file():
        return folder
    settings = os.environ.get(jars.SETTINGS_VARIABLE, "")
    try:
        command = [
            *(str(java.find().executable), *jars._proxy_options()),
            *("-cp", f"{jars._spark_jars()}{os.sep}*", "org.apache.ivy.Main"),
            *(("-settings", settings) if settings else ()),
            *("-ivy", str(_LIST), "-cache", str(folder / "ivy"), "-types", "jar", "bundle"),
            *("-retrieve", f"{folder}{os.sep}[artifact]-[revision].[ext]"),
        ]
    except SetupError as error:
        raise Missing(str(error)) from error
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if not (folder / _NEEDED).is_file():
        raise Missing(f"the jars for S3 cannot be fetched: {done.stdout[-300:]}")
    return folder


class Store:
    """A store without buckets; ``with Store(folder) as store: store.bucket("lake")``."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its endpoint."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def storage(self) -> dict[str, str]:
        """What a source's ``storage:`` says."""
        return {**ACCESS, "endpoint_url": self.url}

    @property
    def hadoop(self) -> dict[str, str]:
        """What a pipeline's ``spark:`` says."""
        head = "spark.hadoop.fs.s3a."
        return {
            "spark.driver.extraClassPath": f"{fetched()}{os.sep}*",
            f"{head}endpoint": self.url,
            f"{head}endpoint.region": "us-east-1",
            f"{head}access.key": ACCESS["key"],
            f"{head}secret.key": ACCESS["secret"],
            f"{head}path.style.access": "true",
            f"{head}connection.ssl.enabled": "false",
        }

    def __enter__(self) -> Self:
        if importlib.util.find_spec("moto") is None or importlib.util.find_spec("s3fs") is None:
            raise Missing("pip install -e '.[e2e]' brings the store")
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "output.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._wait()
        return self

    def _wait(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/moto-api/data.json", timeout=2).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    raise RuntimeError((self.home / "output.log").read_text("utf-8")[-2000:]) from None
            time.sleep(0.1)

    def files(self) -> Any:
        """The store as fsspec sees it, without its memory of earlier listings."""
        import s3fs

        return s3fs.S3FileSystem(**self.storage, use_listings_cache=False, skip_instance_cache=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop this server and no other process."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
        self.process = None
