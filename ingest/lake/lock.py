"""The lake's lock: a courtesy that tells two runs of each other; the fence is Delta's identifier.

The lock is one small file in the lake.  A holder that is dead on this host is replaced at once, one
from another host after a minute without heartbeat; a live one means exit 2.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil  # type: ignore[import-untyped]

from ingest.errors import IngestError, LockedError
from ingest.lake import lockfile
from ingest.lake.lockfile import LockFile

HEARTBEAT = 10.0  # seconds between signs of life
STALE = 60.0  # seconds without one after which a holder on another host counts as dead
ORPHAN = 20.0  # seconds that a killed run's JVM is given to end


@contextlib.contextmanager
def held(lake: str, what: str) -> Iterator[None]:
    """Hold the lake's lock while the body runs.

    Raises:
        LockedError: a live run holds it.
        SetupError: the lake cannot be written.
    """
    lock = lockfile.of(lake)
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


def check(lake: str) -> None:
    """Tell at once, before Spark is started, what `held` would tell later; of a lake that only Spark reaches, nothing.

    Raises:
        LockedError: a live run holds the lake.
        SetupError: the lake cannot be written.
    """
    if not lockfile.is_local(lake):
        return
    lock = lockfile.of(lake)
    lock.prepare()
    _refuse_live(lock, lock.read())


def _take(lock: LockFile, mine: dict[str, Any]) -> None:
    lock.prepare()
    if lock.create(mine):
        return
    _refuse_live(lock, lock.read())
    with lock.alone():  # of two that find a dead holder, one at a time
        holder = lock.read()
        _refuse_live(lock, holder)
        _wait_for_orphan(holder)
        lock.replace(mine)
    if lock.read().get("token") != mine["token"]:
        raise LockedError(f"Another run took over the lake {lock.lake} at the same moment: run again.")


def _refuse_live(lock: LockFile, holder: dict[str, Any]) -> None:
    if holder and _alive(holder):
        raise LockedError(
            f"The lake {lock.lake} is in use by {holder.get('what')} (process {holder.get('pid')} on "
            f"{holder.get('host')}): wait for it, or stop it."
        )


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
    """When the process began; None if there is none, or only its remains."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None


def _jvm() -> dict[str, Any] | None:
    """The JVM of this process' Spark session, if one is up: it may outlive a killed Python."""
    with contextlib.suppress(psutil.Error):
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
    deadline = time.monotonic() + ORPHAN
    while _running(jvm.get("pid"), jvm.get("started")):
        if time.monotonic() > deadline:
            raise LockedError(
                f"Spark of a killed run (process {jvm['pid']}) is still alive: stop it and run again."
            )
        time.sleep(0.2)


def _beat(lock: LockFile, mine: dict[str, Any], stop: threading.Event) -> None:
    while not stop.wait(HEARTBEAT):
        with contextlib.suppress(OSError, IngestError):  # the next sign of life may get through
            if lock.read().get("token") != mine["token"]:
                return
            lock.replace({**mine, "beat": time.time(), "jvm": _jvm()})
