"""A database whose stream has changes that no SELECT sees yet: commits that wait for a replica, open transactions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from ingest.errors import IngestError
from ingest.source import reconcile as comparing
from ingest.source import sides, snapshot
from tests.e2e.databases import USER, Database, MariaDB, PostgreSQL
from tests.e2e.services import Missing
from tests.e2e.test_reconcile import compare, lake, table_of
from tests.e2e.test_source import Garden
from tests.source import made

Unseen = Callable[[Garden], AbstractContextManager[threading.Event]]


@pytest.fixture(scope="module")
def server() -> Iterator[Callable[[type[Database]], Database]]:
    """One database of a kind, whose settings the tests change."""
    with ExitStack() as ends:

        @cache
        def started(kind: type[Database]) -> Database:
            try:
                return ends.enter_context(kind())
            except Missing as error:
                pytest.skip(str(error))

        yield started


def planted(node: Database, folder: Path) -> Garden:
    """A table with one row."""
    garden = Garden(node, folder)
    garden.execute(
        "DROP TABLE IF EXISTS slow",
        "CREATE TABLE slow (id int primary key, v varchar(9))",
        "INSERT INTO slow VALUES (1, 'old')",
    )
    return garden


@pytest.fixture
def garden(server: Callable[[type[Database]], Database], tmp_path: Path) -> Garden:
    """A table of MariaDB."""
    return planted(server(MariaDB), tmp_path)


@contextmanager
def released_by(act: Callable[[], object]) -> Iterator[threading.Event]:
    """An event; once it is set, and at the end, ``act`` is called."""
    released = threading.Event()

    def release() -> None:
        released.wait(60)
        act()

    thread = threading.Thread(target=release)
    thread.start()
    try:
        yield released
    finally:
        released.set()
        thread.join(60)


@contextmanager
def waiting_commit(garden: Garden, is_there: str, act: Callable[[], object]) -> Iterator[threading.Event]:
    """The row's change is committed and no SELECT sees it until ``act``; ``is_there`` is a query that shows the waiting."""
    writer = threading.Thread(target=garden.execute, args=("UPDATE slow SET v = 'new'",))
    writer.start()
    try:
        with released_by(act) as released:
            until = time.monotonic() + 30
            while not garden.rows(is_there):
                assert time.monotonic() < until
                time.sleep(0.25)  # asked more often, MariaDB shows what it showed before
            yield released
    finally:
        writer.join(60)


@contextmanager
def semi_synchronous(garden: Garden) -> Iterator[threading.Event]:
    """No replica of MariaDB has acknowledged the change, which is in the log."""
    garden.execute(
        "SET GLOBAL rpl_semi_sync_master_timeout = 240000", "SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC'",
        "SET GLOBAL rpl_semi_sync_master_wait_no_slave = ON", "SET GLOBAL rpl_semi_sync_master_enabled = ON",
    )  # fmt: skip
    is_there = "SELECT 1 FROM information_schema.innodb_trx WHERE trx_rows_modified > 0"
    with waiting_commit(
        garden, is_there, lambda: garden.execute("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
    ) as released:
        yield released


@contextmanager
def synchronous(garden: Garden) -> Iterator[threading.Event]:
    """No standby of PostgreSQL has the change, which logical decoding delivers."""

    def standby(name: str) -> None:
        with garden.node.connect() as connection:
            connection.autocommit = True
            connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
            connection.execute("SELECT pg_reload_conf()")

    garden.rows("SELECT pg_create_logical_replication_slot('slow', 'test_decoding')")
    standby("nobody")
    is_there = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    try:
        with waiting_commit(garden, is_there, lambda: standby("")) as released:
            decoded = garden.rows("SELECT data FROM pg_logical_slot_peek_changes('slow', NULL, NULL)")
            assert any("new" in data for (data,) in decoded)
            yield released
    finally:
        garden.rows("SELECT pg_drop_replication_slot('slow')")


@contextmanager
def opened(garden: Garden) -> Iterator[threading.Event]:
    """A transaction has the newest number of all, and its changes are in the log before its commit."""
    with garden.node.connect() as connection:
        connection.execute("UPDATE slow SET v = 'new'")
        with released_by(connection.commit) as released:
            yield released


@contextmanager
def prepared(garden: Garden) -> Iterator[threading.Event]:
    """A transaction of two phases is in the log, and no session has it any more."""
    with garden.node.connect() as connection:
        connection.autocommit = True
        connection.execute("BEGIN")
        connection.execute("UPDATE slow SET v = 'new'")
        connection.execute("PREPARE TRANSACTION 'two'")
    with garden.node.connect() as another:
        another.autocommit = True
        with released_by(lambda: another.execute("COMMIT PREPARED 'two'")) as released:
            yield released


UNSEEN: dict[Unseen, type[Database]] = {
    semi_synchronous: MariaDB, synchronous: PostgreSQL, opened: PostgreSQL, prepared: PostgreSQL,
}  # fmt: skip


@pytest.fixture(params=UNSEEN, ids=lambda way: way.__name__)
def unseen(
    request: pytest.FixtureRequest, server: Callable[[type[Database]], Database], tmp_path: Path
) -> tuple[Garden, Unseen]:
    """A table, and a way in which a change of its row may be in the log while no SELECT sees it."""
    return planted(server(UNSEEN[request.param]), tmp_path), request.param


def test_rows_are_read_when_the_commits_before_them_are_seen(unseen: tuple[Garden, Unseen]) -> None:
    """The old row would stand over the change that the stream had delivered before, for ever.

    And looks that follow each other too fast are answered from the server's cache, so the end was not seen for minutes.
    """
    garden, way = unseen
    with way(garden) as released:
        assert [("old",)] == garden.rows("SELECT v FROM slow")
        threading.Timer(1.0, released.set).start()
        began = time.monotonic()
        garden.read("slow")
        assert time.monotonic() - began < 20
    assert ["new"] == [row["v"] for row in garden.images("slow")]


def test_a_row_that_only_the_stream_shows_is_not_judged(
    unseen: tuple[Garden, Unseen], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repair of a right row would write the old one over it."""
    garden, way = unseen
    rows = pa.table({"id": [1], "v": ["new"]}, pa.schema([("id", pa.int32()), ("v", pa.string())]))
    made.mirror(lake(garden), table_of(garden, "slow"), {"id": "int32", "v": "string"}, ["id"], rows)
    monkeypatch.setattr(comparing, "_OPEN_SECONDS", 0.5)
    with way(garden) as released:
        done = compare(garden, "slow")
        assert (False, 1, True) == (done.differs, done.waiting, done.open_long)
        monkeypatch.setattr(comparing, "_OPEN_SECONDS", 30.0)

        def acknowledged(*given: Any) -> bool:
            released.set()  # between the two looks
            return snapshot.is_settled(*given)

        monkeypatch.setattr(sides, "is_settled", acknowledged)
        done = compare(garden, "slow")
        assert (False, 0, 1) == (done.differs, done.waiting, done.on_the_way)
    assert not compare(garden, "slow").differs


def test_transactions_of_another_database_are_not_waited_for(
    server: Callable[[type[Database]], Database], tmp_path: Path
) -> None:
    """They cannot be of the table, and one that is open for an hour would let no table be read."""
    garden = planted(server(PostgreSQL), tmp_path)
    with garden.node.connect() as connection:
        connection.autocommit = True
        connection.execute("DROP DATABASE IF EXISTS far")
        connection.execute("CREATE DATABASE far")
    with psycopg.connect(f"host=127.0.0.1 port={garden.node.port} user={USER} dbname=far") as far:
        far.execute("CREATE TABLE far (id int)")
        began = time.monotonic()
        garden.read("slow")
        assert time.monotonic() - began < 20


def test_a_user_who_may_not_see_open_transactions_is_told_what_to_grant(garden: Garden) -> None:
    """Without the right nothing says when a row may be read, and guessing loses changes."""
    garden.execute(
        "CREATE OR REPLACE USER plain@'127.0.0.1'", "GRANT SELECT ON garden.* TO plain@'127.0.0.1'"
    )
    garden.file.write_text(
        garden.file.read_text("utf-8").replace("user: capture, password: capture", "user: plain"), "utf-8"
    )
    assert 1 == garden.read("slow").rows
    garden.execute(
        "SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC'",
        "SET GLOBAL rpl_semi_sync_master_enabled = ON",
    )
    try:
        with pytest.raises(IngestError, match="GRANT PROCESS"):
            garden.read("slow")
    finally:
        garden.execute("SET GLOBAL rpl_semi_sync_master_enabled = OFF")


def test_a_server_that_takes_no_writes_is_a_replica(garden: Garden) -> None:
    """Its rows may be older than the changes of the stream."""
    garden.execute("SET GLOBAL read_only = ON")
    try:
        done = garden.read("slow")
    finally:
        garden.execute("SET GLOBAL read_only = OFF")
    assert [True] == ["is a replica" in one for one in done.warnings]
    assert [] == garden.read("slow").warnings
