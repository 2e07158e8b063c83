"""The lake's lock: a courtesy that tells two runs of each other; the fence is Delta's identifier.

The lock is one small file in the lake.  A holder that is dead on this host is replaced at once, one
from another host after a minute without heartbeat; a live one means exit 2.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import psutil

from ingest.errors import LockedError, SetupError

HEARTBEAT = 10.0  # seconds between signs of life
STALE = 60.0  # seconds without one after which a holder on another host counts as dead


@contextlib.contextmanager
def held(lake: str, what: str) -> Iterator[None]:
    """Hold the lake's lock while the body runs.

    Raises:
        LockedError: a live run holds it.
        SetupError: the lake cannot be written.
    """
    lock = _File(lake)
    mine = _holder(what)
    _take(lock, mine)
    stop = threading.Event()
    beat = threading.Thread(target=_beat, args=(lock, mine, stop), daemon=True)
    beat.start()
    try:
        yield
    finally:
        stop.set()
        beat.join(timeout=HEARTBEAT)
        if lock.read().get("token") == mine["token"]:
            lock.remove()


def _take(lock: _File, mine: dict[str, Any]) -> None:
    if lock.create(mine):
        return
    holder = lock.read()
    if holder and _alive(holder):
        raise LockedError(
            f"The lake {lock.lake} is in use by {holder.get('what')} (process {holder.get('pid')} on "
            f"{holder.get('host')}); wait for it, or stop it."
        )
    _wait_for_orphan(holder)
    lock.replace(mine)
    if lock.read().get("token") != mine["token"]:
        raise LockedError(f"Another run took over the lake {lock.lake} at the same moment; run again.")


def _holder(what: str) -> dict[str, Any]:
    return {
        "token": secrets.token_hex(8),
        "what": what,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": _started(os.getpid()),
        "jvm": _jvm(),
        "beat": time.time(),
    }


def _started(pid: int) -> float | None:
    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return None


def _jvm() -> dict[str, Any] | None:
    """The JVM of this process' Spark session, if one is up: it may outlive a killed Python."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if child.name() == "java":
                return {"pid": child.pid, "started": child.create_time()}
    return None


def _running(pid: int | None, started: float | None) -> bool:
    if pid is None or started is None:
        return False
    found = _started(pid)
    return found is not None and abs(found - started) < 1.0


def _alive(holder: dict[str, Any]) -> bool:
    if holder.get("host") == socket.gethostname():
        return _running(holder.get("pid"), holder.get("started"))
    return time.time() - float(holder.get("beat") or 0) < STALE


def _wait_for_orphan(holder: dict[str, Any]) -> None:
    """A killed run's JVM dies with its pipe; do not write beside it while it still breathes."""
    jvm = holder.get("jvm") or {}
    if holder.get("host") != socket.gethostname():
        return
    deadline = time.time() + 20
    while _running(jvm.get("pid"), jvm.get("started")):
        if time.time() > deadline:
            raise LockedError(
                f"Spark of a killed run (process {jvm['pid']}) is still alive: stop it and run again."
            )
        time.sleep(0.2)


def _beat(lock: _File, mine: dict[str, Any], stop: threading.Event) -> None:
    while not stop.wait(HEARTBEAT):
        with contextlib.suppress(OSError):
            if lock.read().get("token") != mine["token"]:
                return
            lock.replace({**mine, "beat": time.time(), "jvm": _jvm()})


class _File:
    """The lock's file: exclusive creation on a local lake, plain replacement elsewhere."""

    def __init__(self, lake: str) -> None:
        self.lake = lake
        self.local = "://" not in lake
        self.path = f"{lake.rstrip('/')}/_ingest.lock"

    def create(self, holder: dict[str, Any]) -> bool:
        try:
            if self.local:
                Path(self.lake).mkdir(parents=True, exist_ok=True)
                return self._link(holder)
            if self.read():
                return False
            self.replace(holder)
        except FileExistsError:
            return False
        except OSError as error:
            raise SetupError(
                f"The lake {self.lake} cannot be written ({error.strerror or error}); "
                "mend its permissions, or name another `lake:`."
            ) from None
        return True

    def _link(self, holder: dict[str, Any]) -> bool:
        """Exclusive and whole: a reader never sees a lock without its holder."""
        temporary = Path(f"{self.path}.{holder['token']}")
        temporary.write_text(json.dumps(holder), encoding="utf-8")
        try:
            os.link(temporary, self.path)
        finally:
            temporary.unlink()
        return True

    def read(self) -> dict[str, Any]:
        try:
            with fsspec.open(self.path, "rb") as file:
                found = json.loads(file.read() or b"{}")
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def replace(self, holder: dict[str, Any]) -> None:
        if self.local:
            temporary = f"{self.path}.{holder['token']}"
            Path(temporary).write_text(json.dumps(holder), encoding="utf-8")
            os.replace(temporary, self.path)
            return
        with fsspec.open(self.path, "wb") as file:
            file.write(json.dumps(holder).encode())

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            if self.local:
                os.unlink(self.path)
            else:
                filesystem, path = fsspec.core.url_to_fs(self.path)
                filesystem.rm(path)
