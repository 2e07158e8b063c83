"""A process of its own for each query of a service's users.

A query that crashes DuckDB, or takes too much memory or time, ends that process alone. A *nursery* makes them: it has
loaded what they need, never sees a query, and forks one for each (``python -m ingest.inspect.query_process SOCKET``). Both
sides exchange JSON documents, each after its length: the question; the views that it uses; how these are read; the result.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ingest.errors import IngestError, unexpected
from ingest.inspect import confinement, duck_query
from ingest.inspect.duck_query import QueryResult, Question, Scans
from ingest.inspect.exact_json import encoded
from ingest.store import stores
from ingest.tables import query

GRACE = 1.0  # seconds after the time limit in which the process is ended by the system
_EXPANDED = 8  # bytes of JSON for one of a result, at most
_PASSED_ON = ("PATH", "PYTHONPATH", "PYTHONHOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "HOME", "TMPDIR")
_FOR_STORES = ("AWS_", "SSL_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


@dataclass(frozen=True, slots=True)
class _Reply:
    """What the process says: which views it needs, or the end of it."""

    used: list[str] | None = None
    columns: list[str] = field(default_factory=list)
    rows: list[list[msgspec.Raw]] = field(default_factory=list)
    error: str = ""


class Nursery:
    """The process that makes a process for each query; started when it is needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def start(self) -> socket.socket:
        """Start it unless it runs; the socket that takes requests."""
        with self._lock:
            if self._control is not None and not _has_hung_up(self._control):
                return self._control
            self._end()
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._running = subprocess.Popen(
                    [sys.executable, "-m", __name__, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env=_environment(),
                )  # fmt: skip
            self._control = ours
            return ours

    def close(self) -> None:
        """End it, and with it all queries."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._running is not None:
            self._running.kill()
            self._running.wait()
        self._control = self._running = None

    def child(self) -> _Child:
        """A new process."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            control = self.start()
            try:
                socket.send_fds(control, [b"."], [theirs.fileno()])
            except OSError:  # it was ended meanwhile
                control = self.start()
                socket.send_fds(control, [b"."], [theirs.fileno()])
        return _Child(ours, control)


@dataclass(frozen=True, slots=True)
class _Child:
    """A process for one query, by the socket to it, and by its nursery's."""

    channel: socket.socket
    control: socket.socket

    def may_be_unborn(self) -> bool:
        """Whether its nursery has ended, perhaps before it made the process."""
        return _has_hung_up(self.control, wait=0.1)


def _has_hung_up(control: socket.socket, wait: float = 0) -> bool:
    """Whether no process holds the other end, or ``wait`` seconds later; the system closes it before the process is gone."""
    try:
        poll = select.poll()
        poll.register(control, 0)
        return bool(poll.poll(wait * 1000))
    except ValueError:  # it is closed: another query has noticed
        return True


def _environment() -> dict[str, str]:
    """The environment without secrets, except what a lake in a store needs."""
    names = _PASSED_ON if not stores.are_used() else (*_PASSED_ON, *_FOR_STORES)
    return {name: value for name, value in os.environ.items() if name.upper().startswith(names)}


NURSERY = Nursery()


def answer(question: Question, scans_of: Callable[[list[str]], Scans]) -> QueryResult:
    """As `duck_query.answer`, in a process of its own, for a question with bounds.

    Raises:
        IngestError: as there; it took too long, or ended its process.
    """
    assert question.bounds is not None
    ends = time.monotonic() + question.bounds.seconds + GRACE
    reply = _reply(question, scans_of, ends) or _reply(question, scans_of, ends)
    if reply is None:
        raise IngestError("The process that makes one for each query has ended twice: ask again.")
    if reply.error:
        raise IngestError(reply.error)
    return QueryResult(reply.columns, [[_cell(cell) for cell in row] for row in reply.rows])


def _reply(question: Question, scans_of: Callable[[list[str]], Scans], ends: float) -> _Reply | None:
    """What a new process says; None if it may never have lived, as its nursery has ended."""
    assert question.bounds is not None
    bounds = question.bounds
    child = NURSERY.child()
    with child.channel as channel:
        most = _EXPANDED * bounds.size
        try:
            _send(channel, question)
            reply: _Reply = _received(channel, _Reply, most, ends)
            if reply.used is not None:
                _send(channel, scans_of(reply.used))
                reply = _received(channel, _Reply, most, ends)
        except (OSError, EOFError, msgspec.MsgspecError):
            if time.monotonic() > ends - GRACE - 0.1:
                raise IngestError(
                    f"The query was stopped after {bounds.seconds:.0f} seconds: ask for less, or with `ingest sql`."
                ) from None
            if child.may_be_unborn():
                return None
            raise IngestError(
                f"The query ended its process: DuckDB failed on it, or it needs more than {bounds.memory >> 20} MB of memory. "
                "Ask in another way, or with `ingest sql`."
            ) from None
    return reply


def _cell(cell: msgspec.Raw) -> Any:
    """A cell as `duck_query` gives it; numbers and nested values stay JSON, to their last digit."""
    text = bytes(cell)
    if text == b"null":
        return None
    return msgspec.json.decode(text) if text.startswith(b'"') else cell


def _send(channel: socket.socket, document: Any) -> None:
    data = encoded(document)
    channel.sendall(len(data).to_bytes(8, "big") + data)


def _received(channel: socket.socket, kind: type[Any], most: int, ends: float = float("inf")) -> Any:
    """The next document; an `EOFError` if there is none, and a `TimeoutError` if it does not come in time."""
    size = int.from_bytes(_read(channel, 8, ends), "big")
    if size > most:
        raise EOFError
    return msgspec.json.decode(_read(channel, size, ends), type=kind)


def _read(channel: socket.socket, size: int, ends: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        if ends != float("inf"):
            channel.settimeout(max(0.001, ends - time.monotonic()))
        part = channel.recv(min(size - len(data), 1 << 20))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


# --- the other side ---


def _serve(control: socket.socket) -> None:
    """Fork a process for each socket that comes, until the service ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for them
    _load()
    gc.freeze()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what DuckDB prints when it ends a process
    while True:
        asked, sockets, _, _ = socket.recv_fds(control, 1, 1)
        if not asked:
            return
        if os.fork() == 0:
            try:
                control.close()
                _run(socket.socket(fileno=sockets[0]))
            finally:
                os._exit(0)
        os.close(sockets[0])


def _load() -> None:
    """Import what a query may need, which its process could no longer read."""
    for name in ("uuid", "zoneinfo", "pytz", "duckdb", "sqlglot"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    query.rewrite("SELECT 1 FROM changes", {}, {"changes": "changes"}, engine="duckdb")


def _run(channel: socket.socket) -> None:
    """Answer one question, within limits and walls."""
    question = _received(channel, Question, 1 << 30)
    bounds = question.bounds
    confinement.limit(bounds.seconds, bounds.memory)

    def scans_of(used: list[str]) -> Scans:
        _send(channel, {"used": used})
        scans: Scans = _received(channel, Scans, 1 << 30)
        for root, options in scans.stores.items():
            stores.know(root, options)
        if not scans.stores:
            confinement.shut_in()
            confinement.may_read_only(scans.folders)
        return scans

    try:
        result = duck_query.answer(question, scans_of)
        reply: dict[str, Any] = {"columns": result.columns, "rows": result.rows}
    except IngestError as error:
        reply = {"error": str(error)}
    except Exception as error:
        reply = {"error": unexpected(error)}
    _send(channel, reply)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
