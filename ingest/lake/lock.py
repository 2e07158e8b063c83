"""The lake's lock: it gives a second run a clear error; correctness comes from Delta's transaction identifiers.

On this machine it is the file system's own (`flock`): held while the run lives, released by the system when the process
ends, seen by every process that shares the file system. A lake that only Spark's clients reach has a file that its
holder rewrites every few seconds; its age is measured by the store's clock.
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

import psutil  # type: ignore[import-untyped]

from ingest.errors import IngestError, LockedError, SetupError, first_line
from ingest.lake import stores

NAME = "_ingest.lock"
HEARTBEAT = 10.0  # seconds between two heartbeats in a store
STALE = 60.0  # seconds without a heartbeat after which the holder counts as dead
ORPHAN = 20.0  # seconds to wait for the JVM of a killed run to end
_MOMENT = 1.0  # seconds to retry reading a lock without a holder's name
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)  # file systems without `flock`
_signed: dict[int, dict[str, Any]] = {}  # this process' locks of folders: their open files and holders
_ONLY_IF_NEW = "fs.option.create.conditional.overwrite"  # S3A: the store itself refuses a second writer


@contextlib.contextmanager
def held(lake: str, what: str) -> Iterator[None]:
    """Hold the lake's lock while the body runs.

    Raises:
        LockedError: a live run holds it.
        SetupError: the lake cannot be written.
    """
    if "://" not in lake:
        with _held_file(lake, what):
            yield
        return
    with _held_object(StoredFile(lake) if stores.why_no_commits(lake) else StoredObject(lake), what):
        yield


def name_jvm() -> None:
    """Write the JVM, which has just started, to the locks that this process holds: it may outlive the process."""
    for file, holder in list(_signed.items()):
        _sign(file, {**holder, "jvm": _jvm()})


def check(lake: str) -> None:
    """Raise before Spark starts what `held` would raise later; a lake in a store is checked if its lock can be read.

    Raises:
        LockedError: a live run holds the lake.
        SetupError: the lake cannot be written.
    """
    if "://" in lake:
        with contextlib.suppress(stores.StoreError):
            if not stores.why_no_commits(lake, writes=False):
                _refuse_held(StoredObject(lake))
    else:
        file, left = _locked(lake)
        if not left:  # else `held` waits for the rest of the dead run
            _forget(lake)
        os.close(file)


def _holder(what: str) -> dict[str, Any]:
    return {"token": secrets.token_hex(8), "what": what, "host": socket.gethostname(), "pid": os.getpid(), "jvm": _jvm()}  # fmt: skip


def _parsed(data: bytes) -> dict[str, Any]:
    """The holder that a lock names; empty for a damaged lock."""
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(data)
        return found if isinstance(found, dict) else {}
    return {}


def _in_use(lake: str, holder: dict[str, Any], otherwise: str) -> LockedError:
    who = (
        f"{holder.get('what')} (process {holder.get('pid')} on {holder.get('host')})"
        if holder.get("what")
        else otherwise
    )
    return LockedError(f"The lake {lake} is in use by {who}: wait for it, or stop it.")


# --- a lake on this machine's file systems ------------------------------------------------------


@contextlib.contextmanager
def _held_file(lake: str, what: str) -> Iterator[None]:
    file, left = _locked(lake)
    try:
        _wait_for_orphan(left)
        _sign(file, _holder(what))
    except BaseException:
        _signed.pop(file, None)
        os.close(file)
        raise
    try:
        yield
    finally:
        try:
            _forget(lake)  # before it is released
        finally:
            del _signed[file]
            os.close(file)


def _sign(file: int, holder: dict[str, Any]) -> None:
    os.ftruncate(file, 0)
    os.pwrite(file, json.dumps(holder).encode(), 0)
    _signed[file] = holder


def _forget(lake: str) -> None:
    with contextlib.suppress(OSError):  # a lake that was deleted meanwhile has no lock
        Path(_path(lake)).unlink()


def _path(lake: str) -> str:
    return f"{lake.rstrip('/')}/{NAME}"


def _locked(lake: str) -> tuple[int, dict[str, Any]]:
    """The lock's file, open and locked, and the holder that died without releasing it, if any."""
    deadline = time.monotonic() + _MOMENT
    while True:
        file = _opened(lake)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _parsed(os.pread(file, 1 << 16, 0))
            if error.errno in _NO_LOCKS:  # then only Delta's identifiers keep two runs apart
                return file, holder
            os.close(file)
            if holder or time.monotonic() > deadline:
                raise _in_use(lake, holder, "another process") from None
            time.sleep(0.05)  # another process is only checking, or has not written its name yet
            continue
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(file), os.stat(_path(lake))):  # noqa: PTH116
                return file, _parsed(os.pread(file, 1 << 16, 0))
        os.close(file)  # the last holder has just deleted it


def _opened(lake: str) -> int:
    try:
        Path(lake).mkdir(parents=True, exist_ok=True)
        return os.open(_path(lake), os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        reason = "it is a file" if isinstance(error, FileExistsError | NotADirectoryError) else error.strerror
        raise SetupError(
            f"The lake {lake} cannot be written ({reason or error}): "
            "correct its permissions or its disk, or name another `lake:`."
        ) from None


def _jvm() -> dict[str, Any] | None:
    """The JVM of this process' Spark session, if any: it may outlive a killed Python process."""
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if child.name() == "java":
                    return {"pid": child.pid, "started": child.create_time()}
    return None


def _wait_for_orphan(left: dict[str, Any]) -> None:
    """Wait for the JVM of a killed run, which ends with its pipe: it may still finish a commit."""
    jvm = left.get("jvm")
    if not isinstance(jvm, dict) or left.get("host") != socket.gethostname():
        return
    deadline = time.monotonic() + ORPHAN
    while _runs(jvm):
        if time.monotonic() > deadline:
            raise LockedError(
                f"Spark of a killed run (process {jvm['pid']}) is still alive: stop it and run again."
            )
        time.sleep(0.2)


def _runs(jvm: dict[str, Any]) -> bool:
    with contextlib.suppress(psutil.Error, ValueError, TypeError):
        found = psutil.Process(jvm.get("pid"))
        return bool(
            found.status() != psutil.STATUS_ZOMBIE and abs(found.create_time() - jvm["started"]) < 1.0
        )
    return False


# --- a lake that only Spark's clients reach -----------------------------------------------------


@contextlib.contextmanager
def _held_object(lock: StoredFile | StoredObject, what: str) -> Iterator[None]:
    mine = _holder(what)
    if not lock.create(mine):
        _refuse_held(lock, mine["token"])
        lock.replace(mine)
        if _parsed(lock.read()).get("token") != mine["token"]:
            raise LockedError(f"Another run took over the lake {lock.lake} at the same moment: run again.")
    stop = threading.Event()
    beat = threading.Thread(target=_beat, args=(lock, mine, stop), daemon=True)
    beat.start()
    try:
        yield
    finally:
        stop.set()
        beat.join(timeout=HEARTBEAT)
        if _parsed(lock.read()).get("token") == mine["token"]:
            lock.remove(lock.path)


def _refuse_held(lock: StoredFile | StoredObject, token: str = "") -> None:
    """Refuse a lake whose holder is alive, or has died too recently to be sure."""
    age, holder = lock.age(token), _parsed(lock.read())
    if age is not None and age < STALE:
        raise _in_use(lock.lake, holder, f"another run, whose lock {lock.path} is damaged")


def _beat(lock: StoredFile | StoredObject, mine: dict[str, Any], stop: threading.Event) -> None:
    while not stop.wait(HEARTBEAT):
        with contextlib.suppress(OSError, IngestError):  # the next heartbeat may succeed
            if _parsed(lock.read()).get("token") != mine["token"]:
                return
            lock.replace(mine)


class StoredObject:
    """The lock's file in a store that admits one of two writers, without Spark."""

    def __init__(self, lake: str) -> None:
        self.lake = lake.rstrip("/")
        self.path = _path(lake)

    def create(self, holder: dict[str, Any]) -> bool:
        """Take the lock if it is free; of two runs at once the store admits one."""
        stores.unsettle(self.lake)  # another run may have written until now
        return stores.put_new(self.path, json.dumps(holder).encode())

    def age(self, _token: str) -> float | None:
        """Seconds since the lock was written, by the clock of the store; None if it is gone."""
        return stores.age(self.path)

    def read(self) -> bytes:
        """The lock's content; empty if there is none."""
        with contextlib.suppress(FileNotFoundError):
            return stores.contents(self.path)
        return b""

    def replace(self, holder: dict[str, Any]) -> None:
        """Overwrite the holder."""
        stores.write(self.path, json.dumps(holder).encode())

    def remove(self, path: str) -> None:
        """Delete the lock, if it can be."""
        with contextlib.suppress(stores.StoreError):
            stores.remove(path)


class StoredFile:
    """The lock's file, through Hadoop's client of the running session: no credentials or jars of its own.

    HDFS refuses a second lock, and so does a store that supports ``If-None-Match``; elsewhere two runs that start at
    the same moment may both begin, and Delta's identifiers keep them apart.
    """

    def __init__(self, lake: str) -> None:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.sql import SparkSession

        spark = SparkSession.builder.getOrCreate()
        self._jvm: Any = spark._jvm
        self._error = Py4JError
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()
        self.lake = lake
        self.path = _path(lake)

    def create(self, holder: dict[str, Any]) -> bool:
        """Take the lock if it is free; of two runs at once the store admits one, if it can."""
        with self._reached():
            if self._at(self.path)[0].exists(self._at(self.path)[1]):
                return False
        try:
            self.write(self.path, json.dumps(holder).encode(), over=False)
        except SetupError:
            if self.read():
                return False
            raise
        return True

    def age(self, token: str) -> float | None:
        """Seconds since the lock was written, by the clock of the store; None if it is gone."""
        probe = f"{self.path}.{token}"
        self.write(probe, b"{}")
        try:
            now, written = self._written(probe), self._written(self.path)
        finally:
            self.remove(probe)
        return None if now is None or written is None else (now - written) / 1000

    def _written(self, path: str) -> int | None:
        with contextlib.suppress(OSError, self._error):
            files, where = self._at(path)
            return int(files.getFileStatus(where).getModificationTime())
        return None

    def read(self) -> bytes:
        """The lock's content; empty if there is none."""
        with contextlib.suppress(SetupError):
            return self.content(self.path)
        return b""

    def replace(self, holder: dict[str, Any]) -> None:
        """Overwrite the holder."""
        self.write(self.path, json.dumps(holder).encode())

    def remove(self, path: str) -> None:
        """Delete a file, if it can be."""
        with contextlib.suppress(SetupError):
            self.delete(path)

    def _at(self, path: str) -> tuple[Any, Any]:
        where = self._jvm.org.apache.hadoop.fs.Path(path)
        return where.getFileSystem(self._conf), where

    # Other small files of a lake, by their paths.

    def listed(self, folder: str) -> list[str]:
        """The names of the files in a folder; none if it does not exist."""
        with self._reached():
            files, where = self._at(folder)
            if not files.exists(where):
                return []
            return [str(one.getPath().getName()) for one in files.listStatus(where)]

    def content(self, path: str) -> bytes:
        """The content of a file."""
        with self._reached():
            files, where = self._at(path)
            with contextlib.closing(files.open(where)) as stream:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))

    def write(self, path: str, data: bytes, *, over: bool = True) -> None:
        """Write a file, or replace it; without ``over``, only if there is none."""
        with self._reached():
            files, where = self._at(path)
            creation = files.createFile(where).overwrite(over)
            stream = (creation if over else creation.opt(_ONLY_IF_NEW, True)).recursive().build()
            with contextlib.closing(stream):
                stream.write(bytearray(data))

    def delete(self, path: str) -> None:
        with self._reached():
            files, where = self._at(path)
            files.delete(where, False)
            if files.exists(where):
                raise OSError(f"{path} could not be deleted")

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except (OSError, self._error) as error:
            found = getattr(error, "java_exception", None)
            text = first_line(found.getMessage() if found is not None else error) or "without a reason"
            raise SetupError(
                f"The lake {self.lake} cannot be reached ({text[:300]}): docs/cluster.md says "
                "which jars and settings a store needs, and which permissions."
            ) from None
