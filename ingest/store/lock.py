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
import shlex
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil  # type: ignore[import-untyped]

from ingest.config import is_stored
from ingest.errors import IngestError, LockedError, SetupError, StoreError
from ingest.store import faults, hadoop, stores
from ingest.store.hadoop import SmallFiles

NAME, REWRITING = "_ingest.lock", "_rewriting.lock"
HEARTBEAT = 10.0  # seconds between two heartbeats in a store
STALE = 60.0  # seconds without a heartbeat after which the holder counts as dead
ORPHAN = 20.0  # seconds to wait for the JVM of a killed run to end
_MOMENT = 1.0  # seconds to wait for a lock without a holder's name, or one that is held for moments
UPKEEP = "maintenance"  # holds the lock for moments
_SETTLED = 1.0  # seconds after which a lock that another run wrote over ours at the same moment is seen
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)  # file systems without `flock`


class _Lock(NamedTuple):
    """One of the locks of a lake."""

    lake: str
    name: str = NAME

    @property
    def path(self) -> str:
        return f"{self.lake.rstrip('/')}/{self.name}"


class _Signed(NamedTuple):
    holder: dict[str, Any]
    lock: _Lock


_signed: dict[int, _Signed] = {}  # this process' locks of folders, by their open files


def held(lake: str, what: str, patience: float = 0) -> contextlib.AbstractContextManager[None]:
    """Hold the lake's lock while the body runs; wait at most so many seconds for a live run that holds it.

    Raises:
        LockedError: a live run holds it.
        SetupError: the lake cannot be written.
    """
    return _held(_Lock(lake), what, patience)


def rewriting(lake: str, what: str) -> contextlib.AbstractContextManager[None]:
    """Hold the lock of those who write a lake's rows again without changing them: they hold the lake's own only to commit,
    so that runs go on meanwhile. Who deletes rows for good takes it, too, for they may be in a file that is not committed yet.

    Raises: as `held`.
    """
    return _held(_Lock(lake, REWRITING), what, 0)


def _held(lock: _Lock, what: str, patience: float) -> contextlib.AbstractContextManager[None]:
    return (_held_object if is_stored(lock.lake) else _held_file)(lock, what, patience)


def name_jvm() -> None:
    """Write the JVM, which has just started, to the locks that this process holds: it may outlive the process."""
    for file, signed in list(_signed.items()):
        _sign(file, {**signed.holder, "jvm": _jvm()}, signed.lock)


def check(lake: str) -> None:
    """Raise before Spark starts what `held` would raise later; a lake in a store is checked if its lock can be read.

    Raises:
        LockedError: a live run holds the lake.
        SetupError: the lake cannot be written.
    """
    if is_stored(lake):
        with contextlib.suppress(StoreError):
            if not stores.why_no_commits(lake, writes=False):
                _wait_for_holder(hadoop.small_files(lake), _Lock(lake), 0)
    else:
        lock = _Lock(lake)
        file, left = _locked(lock)
        if not left:  # else `held` waits for the rest of the dead run
            _forget(lock)
        os.close(file)


def is_held(lake: str) -> bool:
    """True if a live run holds the lake, or if that cannot be known; nothing is written."""
    if is_stored(lake):
        try:
            check(lake)
        except LockedError:
            return True
        return False
    try:
        file = os.open(_Lock(lake).path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def _holder(what: str) -> dict[str, Any]:
    return {"token": secrets.token_hex(8), "what": what, "host": socket.gethostname(), "pid": os.getpid(), "jvm": _jvm()}  # fmt: skip


def _parsed(data: bytes) -> dict[str, Any]:
    """The holder that a lock names; empty for a damaged lock."""
    with contextlib.suppress(ValueError, RecursionError):
        holder = json.loads(data)
        return holder if isinstance(holder, dict) else {}
    return {}


def _patience(holder: dict[str, Any], asked: float) -> float:
    """Seconds to wait for a lock: upkeep holds it for moments, as does who has not written its name yet."""
    return max(asked, _MOMENT if not holder or holder.get("what") == UPKEEP else 0)


def _in_use(lock: _Lock, holder: dict[str, Any], otherwise: str) -> LockedError:
    who = (
        f"{holder.get('what')} (process {holder.get('pid')} on {holder.get('host')})"
        if holder.get("what")
        else otherwise
    )
    return LockedError(f"The lake {lock.lake} is in use by {who}: wait for it, or stop it.")


# --- a lake on this machine's file systems ------------------------------------------------------


@contextlib.contextmanager
def _held_file(lock: _Lock, what: str, patience: float) -> Iterator[None]:
    file, left = _locked(lock, patience)
    try:
        _wait_for_orphan(left)
        _sign(file, _holder(what), lock)
    except BaseException:
        _signed.pop(file, None)
        os.close(file)
        raise
    try:
        yield
    finally:
        try:
            _forget(lock)  # before it is released
        finally:
            del _signed[file]
            os.close(file)


def _sign(file: int, holder: dict[str, Any], lock: _Lock) -> None:
    try:
        os.ftruncate(file, 0)
        os.pwrite(file, _text(holder), 0)
    except OSError as error:
        raise _unwritable(lock, error) from None
    _signed[file] = _Signed(holder, lock)


def _forget(lock: _Lock) -> None:
    with contextlib.suppress(OSError):  # a lake that was deleted meanwhile has no lock
        Path(lock.path).unlink()


def _locked(lock: _Lock, patience: float = 0) -> tuple[int, dict[str, Any]]:
    """The lock's file, open and locked, and the holder that died without releasing it, if any."""
    began = time.monotonic()
    while True:
        file = _opened(lock)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _parsed(os.pread(file, 1 << 16, 0))
            if error.errno in _NO_LOCKS:  # then only Delta's identifiers keep two runs apart
                return file, holder
            os.close(file)
            if time.monotonic() - began > _patience(holder, patience):
                raise _in_use(lock, holder, "another process") from None
            time.sleep(0.05)  # another process is only checking, or has not written its name yet
            continue
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(file), os.stat(lock.path)):  # noqa: PTH116
                return file, _parsed(os.pread(file, 1 << 16, 0))
        os.close(file)  # the last holder has just deleted it


def _opened(lock: _Lock) -> int:
    """The lock's file: no link, through which whoever may write to the lake would have this user write to another file."""
    try:
        Path(lock.lake).mkdir(parents=True, exist_ok=True)
        file = os.open(lock.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR):
            raise _no_file(lock) from None
        raise _unwritable(lock, error) from None
    if not stat.S_ISREG(os.fstat(file).st_mode):  # a pipe, a device
        os.close(file)
        raise _no_file(lock)
    return file


def _no_file(lock: _Lock) -> SetupError:
    return SetupError(
        f"The lake {lock.lake} cannot be locked: {lock.path} is a link, a folder or something else that is no file. See who has made "
        f"it, and move it away with `{shlex.join(['mv', lock.path, f'{lock.path}.away'])}`."
    )


def _unwritable(lock: _Lock, error: OSError) -> SetupError:
    if faults.is_full(error):
        error.filename = error.filename or lock.path
        return SetupError(f"The lake {lock.lake} cannot be locked: {faults.said(error)}.")
    reason = "it is a file" if isinstance(error, FileExistsError | NotADirectoryError) else error.strerror
    return SetupError(
        f"The lake {lock.lake} cannot be written ({reason or error}): "
        "correct its permissions or its disk, or name another `lake:`."
    )


def _jvm() -> dict[str, Any] | None:
    """The JVM of this process' Spark session, if any: it may outlive a killed Python process."""
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process().children(recursive=True) if _has_children() else ():
            with contextlib.suppress(psutil.Error):
                if child.name() == "java":
                    return {"pid": child.pid, "started": child.create_time()}
    return None


def _has_children() -> bool:
    """False if this process certainly has none: looking for them reads a file of each process of the machine."""
    if not hasattr(os, "waitid"):
        return True
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return True
    return False


def _wait_for_orphan(left: dict[str, Any]) -> None:
    """Wait for the JVM of a killed run, which ends with its pipe: it may still finish a commit."""
    jvm = left.get("jvm")
    if not isinstance(jvm, dict) or left.get("host") != socket.gethostname():
        return
    deadline = time.monotonic() + ORPHAN
    while _runs(jvm):
        if time.monotonic() > deadline:
            raise LockedError(
                f"Spark of a killed run (Java, process {jvm['pid']}) is still alive: "
                f"`kill {jvm['pid']}` ends it, then run again."
            )
        time.sleep(0.2)


def _runs(jvm: dict[str, Any]) -> bool:
    """True for a JVM of this user that is alive: whoever can write to the lake can name any process in its lock."""
    with contextlib.suppress(psutil.Error, ValueError, TypeError, KeyError, OverflowError):
        process = psutil.Process(jvm.get("pid"))
        return bool(
            process.status() != psutil.STATUS_ZOMBIE
            and abs(process.create_time() - jvm["started"]) < 1.0
            and process.name() == "java"
            and process.uids().real == os.getuid()
        )
    return False


# --- a lake in a store ----------------------------------------------------------------------------


@contextlib.contextmanager
def _held_object(lock: _Lock, what: str, patience: float) -> Iterator[None]:
    store, path, holder = hadoop.small_files(lock.lake), lock.path, _holder(what)
    is_new = store.put_new(path, _text(holder))
    if not is_new:
        _wait_for_holder(store, lock, patience)
        store.write(path, _text(holder))
    if not (
        is_new and store.admits_one(path, _text(holder))
    ):  # then of two runs at once the last one to write has the lake
        time.sleep(_SETTLED)
        if _read(store, path).get("token") != holder["token"]:
            raise LockedError(f"Another run took over the lake {lock.lake} at the same moment: run again.")
    stop = threading.Event()
    beat = threading.Thread(target=_beat, args=(store, path, holder, stop), daemon=True)
    beat.start()
    try:
        yield
    finally:
        stop.set()
        beat.join(timeout=HEARTBEAT)
        if _read(store, path).get("token") == holder["token"]:
            with contextlib.suppress(StoreError, SetupError):
                store.remove(path)


def _wait_for_holder(store: SmallFiles, lock: _Lock, patience: float) -> None:
    """Refuse a lake whose holder is alive, or has died too recently to be sure, and stays longer than it may."""
    path, began = lock.path, time.monotonic()
    while (age := store.age(path)) is not None and age < STALE:
        holder = _read(store, path)
        if time.monotonic() - began > _patience(holder, patience):
            raise _in_use(lock, holder, f"another run, whose lock {path} is damaged")
        time.sleep(_MOMENT)


def _beat(store: SmallFiles, path: str, holder: dict[str, Any], stop: threading.Event) -> None:
    while not stop.wait(HEARTBEAT):
        with contextlib.suppress(OSError, IngestError):  # the next heartbeat may succeed
            if _read(store, path).get("token") != holder["token"]:
                return
            store.write(path, _text(holder))


def _text(holder: dict[str, Any]) -> bytes:
    return json.dumps(holder).encode()


def _read(store: SmallFiles, path: str) -> dict[str, Any]:
    """The holder that a lock in a store names; empty if there is none."""
    with contextlib.suppress(FileNotFoundError, SetupError):
        return _parsed(store.read(path))
    return {}
