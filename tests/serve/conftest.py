"""A service over lakes that are written without Spark, asked without a port where none is needed."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ingest.inspect.duck_query import Bounds
from ingest.serve import pages, server
from ingest.serve.app import Service, application
from ingest.serve.fleet import Fleet
from ingest.serve.guard import AccessGuard, Address
from tests.lakes import change, statement
from tests.timing import PATIENCE
from tests.written_lake import WrittenLake

HOST = "127.0.0.1:8765"
KEYLESS = "depot.box has no key: write `keys: [...]` or `no_key: full_row` into its tables: entry."


def slice_of(n: int, *, broken: bool = True) -> list[str]:
    """A batch's messages: inserts, an update, a delete, statements, and a broken one."""
    at = 100 * n
    lines = [
        change("INSERT", "bins", at + 1, {"id": str(n), "word": f"new {n}"}),
        change("INSERT", "bins", at + 2, {"id": str(-n - 1), "word": "soon gone"}),
        change("DELETE", "bins", at + 3, {"id": str(-n - 1), "word": "soon gone"}),
        change("INSERT", f"shelf{n % 5}", at + 4, {"id": str(n), "word": f"of {n}"}),
        change("INSERT", "box", at + 4, {"id": str(n), "word": f"of {n}"}),
        statement("bins", at + 5, "ALTER TABLE bins COMMENT 'counted'"),
    ]
    if n:
        row, was = {"id": str(n - 1), "word": f"old {n}"}, {"word": f"new {n - 1}"}
        lines.append(change("UPDATE", "bins", at + 7, row, old=[was]))
    return [*lines, *(['{"broken": \n'] if broken else [])]


def depot(folder: Path, *, batches: int = 4, name: str = "depot") -> WrittenLake:
    """A lake with a held table, rejects, a statement that waits and a failing check."""
    made = WrittenLake(folder, name, "tables:\n  - {match: depot.bins, on_schema_change: freeze}\n")
    for n in range(batches):
        held = {"depot.box": KEYLESS} if n == batches - 1 else None
        made.take(slice_of(n, broken=n % 2 == 0), held=held)
    made.take([statement("bins", 9000, "ALTER TABLE bins ADD COLUMN more INT")], fold=False)
    made.product("checks", [made.check("depot.bins", "missing_rows", 2.0, "fail", "2 rows are missing")])
    return made


@dataclass(frozen=True)
class Answer:
    """What came back."""

    code: int
    headers: dict[str, str]
    data: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.data.decode()

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.data)


class Client:
    """Asks an application without a network."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.app = application(service)

    def get(self, address: str, headers: Mapping[str, str] | None = None, host: str = HOST) -> Answer:
        """A page, a document or a file."""
        return self.ask("GET", address, headers, b"", host)

    def post(
        self, address: str, data: bytes, headers: Mapping[str, str] | None = None, host: str = HOST
    ) -> Answer:
        """What is answered to a form or a document."""
        return self.ask("POST", address, headers, data, host)

    def ask(
        self, method: str, address: str, headers: Mapping[str, str] | None, data: bytes, host: str
    ) -> Answer:
        """Any request."""
        path, _, query = address.partition("?")
        given = {"host": host, "content-length": str(len(data)), **(headers or {})}
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
            "raw_path": path.encode(), "query_string": query.encode(), "root_path": "", "scheme": "http",
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in given.items()],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8765),
        }  # fmt: skip
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(self.app(scope, receive, send))
        names = {name.decode(): value.decode("latin-1") for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], names, b"".join(one.get("body", b"") for one in sent[1:]))


def client_of(
    *files: Path, tokens: Mapping[str, str] | None = None, soon: float | None = None, **given: Any
) -> Client:
    """A client of a service over pipeline files, which shows all of them however long that takes."""
    guard = AccessGuard(Address("127.0.0.1", 8765), "ada", tokens or {}, **given)
    return Client(Service(Fleet(files, soon), guard))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that is answered, or ended by its memory or a signal, is not ended before that because the machine is busy."""
    monkeypatch.setattr(pages, "BOUNDS", Bounds(PATIENCE, pages.BOUNDS.memory))


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> WrittenLake:
    """The depot's lake, which no test writes to."""
    return depot(tmp_path_factory.mktemp("depot"))


@pytest.fixture(scope="session")
def client(lake: WrittenLake) -> Client:
    """A client of a service over it."""
    return client_of(lake.file)


@pytest.fixture
def own(lake: WrittenLake, tmp_path: Path) -> Path:
    """A copy of the depot, which the test may damage; gives its pipeline file."""
    shutil.copytree(lake.file.parent, tmp_path / "own")
    return tmp_path / "own" / lake.file.name


@pytest.fixture
def listening() -> Iterator[Callable[..., int]]:
    """Serve on a port of this machine, as the verb does; gives the port. Clients may come `before` the first answer."""
    import uvicorn

    started: list[tuple[uvicorn.Server, threading.Thread]] = []

    def serve(service: Service, before: Callable[[int], None] = lambda _port: None) -> int:
        bound = server._bound(Address("127.0.0.1", 0))
        before(int(bound.getsockname()[1]))
        config = server.config(service)
        running = server._Server(config)
        thread = threading.Thread(target=running.run, args=([bound],))
        thread.start()
        started.append((running, thread))
        while not running.started:
            time.sleep(0.01)
        return int(bound.getsockname()[1])

    yield serve
    for running, thread in started:
        running.should_exit = True
        thread.join(PATIENCE)
