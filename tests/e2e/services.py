"""What every real service of these tests is made of: a port, a process that is stopped by its id, jars by Ivy."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ingest.errors import SetupError
from ingest.spark import jars, java


class Missing(Exception):
    """A service cannot be had on this machine; the text is the reason for skipping."""


def free_port() -> int:
    """A free port on loopback."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def fetch(folder: Path, needed: str, *asked: str) -> Path:
    """The folder, with jars by PySpark's own Ivy in it unless ``needed``, a jar's name, is there already.

    Raises:
        Missing: no repository answers, or there is no Java.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in two processes: another may be half through it
        return _fetch(folder, needed, *asked)


def _fetch(folder: Path, needed: str, *asked: str) -> Path:
    if (folder / needed).is_file():
        return folder
    settings = os.environ.get(jars.SETTINGS_VARIABLE, "")
    try:
        command = [
            *(str(java.find().executable), *jars._proxy_options()),
            *("-cp", f"{jars._spark_jars()}{os.sep}*", "org.apache.ivy.Main"),
            *(("-settings", settings) if settings else ()),
            *("-cache", str(folder / "ivy"), *asked, "-types", "jar", "bundle"),
            *("-retrieve", f"{folder}{os.sep}[artifact]-[revision].[ext]"),
        ]
    except SetupError as error:
        raise Missing(str(error)) from error
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if not (folder / needed).is_file():
        raise Missing(f"{needed} cannot be fetched: {done.stdout[-300:]}")
    return folder


def end(process: subprocess.Popen[bytes], sign: int = signal.SIGTERM, patience: float = 20) -> None:
    """Ask this process and no other to end, then make it; it has ended when this returns."""
    process.send_signal(sign)
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)


class Service:
    """A server on loopback, in a folder of its own, whose output is ``output.log`` there."""

    stopping = signal.SIGTERM

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def launch(
        self,
        command: list[str],
        ready: Callable[[], object],
        env: Mapping[str, str] | None = None,
        **user: Any,
    ) -> None:
        """Start the server, and return when ``ready`` neither raises nor returns False.

        Raises:
            RuntimeError: it ended, or was not ready within a minute; the text is the end of what it wrote.
        """
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "output.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.home, env=env,
                start_new_session=True, **user,
            )  # fmt: skip
        deadline = time.monotonic() + 60
        while not _is(ready):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError((self.home / "output.log").read_text("utf-8", "replace")[-2000:])
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop this server and no other process."""
        if self.process is not None:
            end(self.process, self.stopping)
        self.process = None


def _is(ready: Callable[[], object]) -> bool:
    try:
        return ready() is not False
    except ImportError:
        raise
    except Exception:  # each client has errors of its own for a server that is not there yet
        return False
