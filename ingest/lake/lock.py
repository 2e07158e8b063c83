"""The lake's lock: a courtesy that tells two runs of each other; the fence is Delta's identifier.

The lock is one small file in the lake.  A holder that is dead on this host is replaced at once, one
from another host after a minute without heartbeat; a live one means exit 2.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
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
import psutil  # type: ignore[import-untyped]

from ingest.errors import LockedError, SetupError

HEARTBEAT = 10.0  # seconds between signs of life
STALE = 60.0  # seconds without one after which a holder on another host counts as dead
ORPHAN = 20.0  # seconds that a killed run's JVM is given to end
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)  # file systems without hard links


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


def check(lake: str) -> None:
    """Tell at once, before Spark is started, what `held` would tell later.

    Raises:
        LockedError: a live run holds the lake.
        SetupError: the lake cannot be written.
    """
    lock = _File(lake)
    lock.prepare()
    _refuse_live(lock, lock.read())


def _take(lock: _File, mine: dict[str, Any]) -> None:
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


def _refuse_live(lock: _File, holder: dict[str, Any]) -> None:
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

    def prepare(self) -> None:
        """Make sure that the lake can be written."""
        if not self.local:
            return
        probe = Path(f"{self.path}.{secrets.token_hex(8)}")
        try:
            Path(self.lake).mkdir(parents=True, exist_ok=True)
            probe.write_text("{}", encoding="utf-8")
            probe.unlink()
        except OSError as error:
            with contextlib.suppress(OSError):
                probe.unlink()
            raise self._unwritable(error) from None

    def create(self, holder: dict[str, Any]) -> bool:
        """Take the lock if nobody has it."""
        try:
            if self.local:
                self._link(holder)
            elif self.read():
                return False
            else:
                self.replace(holder)
        except FileExistsError:
            return False
        except OSError as error:
            raise self._unwritable(error) from None
        return True

    def _unwritable(self, error: OSError) -> SetupError:
        reason = "it is a file" if isinstance(error, FileExistsError | NotADirectoryError) else error.strerror
        return SetupError(
            f"The lake {self.lake} cannot be written ({reason or error}): "
            "mend its permissions or its disk, or name another `lake:`."
        )

    def _link(self, holder: dict[str, Any]) -> None:
        """Exclusive and whole: a reader never sees a lock without its holder."""
        temporary = Path(f"{self.path}.{holder['token']}")
        temporary.write_text(json.dumps(holder), encoding="utf-8")
        try:
            os.link(temporary, self.path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            with open(self.path, "x", encoding="utf-8") as file:
                file.write(json.dumps(holder))
        finally:
            temporary.unlink()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lake's folder itself, which the system lets go of when the process ends.

        Raises:
            LockedError: another run is taking over at this moment.
        """
        if not self.local:
            yield
            return
        folder = os.open(self.lake, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise LockedError(f"Another run is just taking over the lake {self.lake}: run again.") from None
        finally:
            os.close(folder)

    def read(self) -> dict[str, Any]:
        """The holder; empty if there is none."""
        try:
            with fsspec.open(self.path, "rb") as file:
                found = json.loads(file.read() or b"{}")
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def replace(self, holder: dict[str, Any]) -> None:
        """Write the holder over whoever was there."""
        if self.local:
            temporary = f"{self.path}.{holder['token']}"
            Path(temporary).write_text(json.dumps(holder), encoding="utf-8")
            Path(temporary).replace(self.path)
            return
        with fsspec.open(self.path, "wb") as file:
            file.write(json.dumps(holder).encode())

    def remove(self) -> None:
        """Let go."""
        with contextlib.suppress(OSError):
            if self.local:
                Path(self.path).unlink()
            else:
                filesystem, path = fsspec.core.url_to_fs(self.path)
                filesystem.rm(path)
