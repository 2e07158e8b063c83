"""What a database says when it fails, as a user sees it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest

from ingest.config import load
from ingest.config.entries import Database
from ingest.errors import IngestError
from ingest.source import database, mysql, postgres, sqlserver
from ingest.source.snapshot import snapshot, source_of
from tests.source.bins import Bins
from tests.timing import PATIENCE


@pytest.mark.parametrize("password", ["hunter2-x", "two  blanks", "a\nline"])
@pytest.mark.parametrize("before", [0, 281])
def test_a_password_is_hidden_wherever_it_occurs(password: str, before: int) -> None:
    """The beginning of a password at the end of a long message, or one with its blanks joined, would be shown."""
    said = database._said(OSError(f"{'x' * before}no entry for {password} here"), password)
    assert 1 == len(said.splitlines())
    for part in (password[:5], *password.split()):
        assert part not in said


def test_a_fault_without_words_is_a_sentence() -> None:
    """A message that ends with nothing after its colon says nothing."""
    assert "it did not answer" == database._said(OSError(), "")


@pytest.mark.parametrize("scheme", ["mysql", "postgresql"])
def test_a_host_that_accepts_and_never_answers(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port of something else, or a router that answers for a host that is gone, would hold the verb for ten minutes."""
    monkeypatch.setattr(mysql if scheme == "mysql" else postgres, "CONNECT_SECONDS", 2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"{scheme}://127.0.0.1:{server.getsockname()[1]}/shop"
        began, shop = time.monotonic(), Database(url=url, user="reader", password="hunter2-x")
        with (
            pytest.raises(IngestError, match=r"does not let user 'reader' in: .*time") as caught,
            database.connected(shop),
        ):
            pass
    assert time.monotonic() - began < PATIENCE
    assert "hunter2-x" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (1142, pymysql.err.OperationalError, r"may not read shop\.bins: grant SELECT on it"),
        (1044, pymysql.err.OperationalError, r"may not read shop\.bins: grant SELECT on it"),
        (1146, pymysql.err.ProgrammingError, r"has no table shop\.bins: look at its name"),
        (1049, pymysql.err.OperationalError, r"has no table shop\.bins: look at its name"),
        (2013, pymysql.err.OperationalError, "failed: Lost"),
    ],
)
def test_mysql_says_whether_a_table_is_missing_or_a_right(
    code: int, kind: type[Exception], said: str, bins: Bins, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its dictionary shows a user no tables without rights, so that both look alike."""

    def values(_connection: Any, query: str) -> list[tuple[Any, ...]]:
        if query.startswith("SELECT * FROM"):
            raise kind(code, "Lost")
        return []

    monkeypatch.setattr(mysql, "values", values)
    monkeypatch.setattr(mysql, "connect", lambda *_: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(database, "dialect_of", lambda _database: mysql)
    pipeline = load(bins.file)
    with pytest.raises(IngestError, match=said):
        snapshot(pipeline, source_of(pipeline), "shop.bins", alone=True)


_LETS_IN = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I"


class MutePostgres:
    """A server that answers nothing after its ``greeting``, or to each statement the ``first`` part of an answer."""

    def __init__(self, first: bytes = b"", greeting: bytes = _LETS_IN) -> None:
        self.first, self.greeting = first, greeting
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        kept = []
        with contextlib.suppress(OSError):
            while True:
                one = self.listener.accept()[0]
                kept.append(one)
                while int.from_bytes(one.recv(8)[4:8], "big") in (80877103, 80877104):  # TLS, GSS
                    one.sendall(b"N")
                one.recv(4096)
                one.sendall(self.greeting)
                threading.Thread(target=self._answer, args=(one,), daemon=True).start()

    def _answer(self, one: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while one.recv(4096):
                one.sendall(self.first)


def test_a_password_that_postgres_refuses_is_not_shown() -> None:
    """A server may quote what it was sent."""
    fields = b"SFATAL\0C28P01\0Mpassword authentication failed for user reader, hunter2-x\0\0"
    server = MutePostgres(greeting=b"E" + (len(fields) + 4).to_bytes(4, "big") + fields)
    shop = Database(url=f"postgresql://127.0.0.1:{server.port}/shop", user="reader", password="hunter2-x")
    said = r"does not let user 'reader' in: .*authentication failed for user reader, \*\*\*\. Look at url, user and password"
    with pytest.raises(IngestError, match=said) as caught, database.connected(shop):
        pass
    assert "\n" not in str(caught.value)


_ONE_ROW = (
    b"T\0\0\0\x1a\0\x01a\0"
    + bytes(6)
    + b"\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0"
    + b"D\0\0\0\x0b\0\x01\0\0\0\x01x"
)


@pytest.mark.parametrize("first", [b"", _ONE_ROW], ids=["nothing", "half an answer"])
def test_a_postgres_that_acknowledges_and_never_answers(
    first: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stalled server or a proxy that has lost its other half keeps the connection alive: the verb would hang for ever."""
    monkeypatch.setattr(postgres, "ANSWER_SECONDS", 1)
    server = MutePostgres(first)
    shop = Database(url=f"postgresql://127.0.0.1:{server.port}/shop", user="reader", password="hunter2-x")
    with (
        pytest.raises(IngestError, match=r"failed: no answer came for 1 seconds\.") as caught,
        database.connected(shop) as (dialect, connection),
    ):
        dialect.values(connection, "SELECT 1")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["mysql", "postgresql", "oracle", "sqlserver"])
@pytest.mark.parametrize("host", ["127.0.0.1:1", "no-such-host.invalid:3306"])
def test_a_host_that_is_not_there_is_not_called_a_refusal(
    scheme: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who is told to check rights would not look at the address."""
    monkeypatch.setattr(
        sqlserver, "CONNECT_SECONDS", 2
    )  # which it waits for, whatever the system says at once
    shop = Database(url=f"{scheme}://{host}/shop", user="reader", password="hunter2-x")
    with (
        pytest.raises(IngestError, match=f"at {host} cannot be reached: .* Look at url") as caught,
        database.connected(shop),
    ):
        pass
    assert "hunter2-x" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("reached", "judged"),
    [("2024-04-30T23:59:59", False), ("2024-05-01T00:00:30", True), ("2024-05-01T01:00:00", False)],
    ids=["behind", "as the source", "an hour ahead"],
)
def test_a_clock_that_is_wrong_judges_no_row(bins: Bins, reached: str, judged: bool) -> None:
    """By times of a clock that is ahead, the stream has passed what it has not delivered yet: each row would be lost."""
    bins.rows[5] = ("old", 5 / 8)
    bins.mirror(reached=reached)  # the source's clock says midnight, whatever it is here
    done = bins.type("--output", "json")
    assert (1 if judged else 3) == done.exit_code
    text = bins.type().stderr
    assert ("3,600 seconds later than its database's clock" in " ".join(text.split())) is ("01:00" in reached)
