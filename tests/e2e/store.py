"""An S3-compatible store for tests: moto's server on loopback, and the jars that Spark needs for it, by PySpark's Ivy."""

from __future__ import annotations

import importlib.util
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any, Self

from ingest.spark import cache
from tests.e2e.services import Missing, Service, fetch
from tests.lakes import ROOT

ACCESS = {"key": "a-key", "secret": "a-secret"}
_LIST = ROOT / "docs" / "s3-jars.xml"


def fetched() -> Path:
    """The folder of S3's jars, by the list that the documentation gives, filled on first use.

    Raises:
        Missing: no repository answers, or there is no Java.
    """
    return fetch(cache.folder() / "s3-jars", "hadoop-aws-3.5.0.jar", "-ivy", str(_LIST))


class Store(Service):
    """A store without buckets; ``with Store(folder) as store: store.bucket("lake")``."""

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
        server = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self.launch(
            server, lambda: urllib.request.urlopen(f"{self.url}/moto-api/data.json", timeout=2).close()
        )
        return self

    def files(self) -> Any:
        """The store as fsspec sees it, without its memory of earlier listings."""
        import s3fs

        return s3fs.S3FileSystem(**self.storage, use_listings_cache=False, skip_instance_cache=True)
