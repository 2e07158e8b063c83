"""A database whose stream has changes that no SELECT sees yet: commits that wait for a replica, open transactions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pymysql
import pytest

from ingest.errors import IngestError
from ingest.source import postgres, sides, snapshot
from ingest.source import reconcile as comparing
from tests.beside import beside
from tests.e2e.databases import (
    USER,
    Database,
    MariaDB,
    MySQL,
    MySQLReplica,
    NewestPostgreSQL,
    NewestStandby,
    Nodes,
    PostgreSQL,
    Replica,
    Standby,
)
from tests.e2e.test_reconcile import compare, lake, table_of
from tests.e2e.test_source import Garden
from tests.source import made


class Shed(Garden):
    """A pipeline over a table with one row."""

    def __init__(self, node: Database, folder: Path) -> None:
        super().__init__(node, folder)
        self.execute(
            "DROP TABLE IF EXISTS slow",
            "CREATE TABLE slow (id int primary key, v varchar(9))",
            "INSERT INTO slow VALUES (1, 'old')",
        )
        until = time.monotonic() + 30
        while self.shown() != ["old"]:
            assert time.monotonic() < until
            time.sleep(0.1)

    def shown(self) -> list[str]:
        """The rows that a SELECT shows; none where the table is not there yet."""
        try:
            return [v for (v,) in self.rows("SELECT v FROM slow")]
        except (pymysql.Error, psycopg.Error):
            return []


Unseen = Callable[[Shed], AbstractContextManager[threading.Event]]


@pytest.fixture(scope="module")
def server() -> Iterator[Callable[[type[Database]], Database]]:
    """One database of a kind, whose settings the tests change."""
    with Nodes() as nodes:
        yield nodes.of


@pytest.fixture
def garden(server: Callable[[type[Database]], Database], tmp_path: Path) -> Shed:
    """A table of MariaDB."""
    return Shed(server(MariaDB), tmp_path)


@contextmanager
def released_by(act: Callable[[], object]) -> Iterator[threading.Event]:
    """An event; once it is set, and at the end, ``act`` is called."""

    def release(released: threading.Event) -> None:
        released.wait(60)
        act()

    with beside(release, 60) as released:
        yield released


@contextmanager
def waiting_commit(garden: Shed, is_there: str, act: Callable[[], object]) -> Iterator[threading.Event]:
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
def semi_synchronous(garden: Shed) -> Iterator[threading.Event]:
    """No replica of MariaDB or MySQL has acknowledged the change, which is in the log."""
    assert isinstance(garden.node, MariaDB)
    primary, replica = (f"rpl_semi_sync_{garden.node.primary_role}", garden.node.replica_role)
    garden.execute(
        f"SET GLOBAL {primary}_timeout = 240000", f"SET GLOBAL {primary}_wait_point = 'AFTER_SYNC'",
        f"SET GLOBAL {primary}_wait_no_{replica} = ON", f"SET GLOBAL {primary}_enabled = ON",
    )  # fmt: skip
    is_there = "SELECT 1 FROM information_schema.innodb_trx WHERE trx_rows_modified > 0"
    with waiting_commit(
        garden, is_there, lambda: garden.execute(f"SET GLOBAL {primary}_enabled = OFF")
    ) as released:
        yield released


@contextmanager
def prepared_by_xa(garden: Shed) -> Iterator[threading.Event]:
    """A transaction of two phases is in the log of MariaDB and MySQL when it is prepared."""
    with closing(garden.node.connect()) as connection, connection.cursor() as cursor:
        for statement in ("XA START 'two'", "UPDATE slow SET v = 'new'", "XA END 'two'", "XA PREPARE 'two'"):
            cursor.execute(statement)
        with released_by(lambda: cursor.execute("XA COMMIT 'two'")) as released:
            yield released


@contextmanager
def synchronous(garden: Shed) -> Iterator[threading.Event]:
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
def opened(garden: Shed) -> Iterator[threading.Event]:
    """A transaction has the newest number of all, and its changes are in the log before its commit."""
    with garden.node.connect() as connection:
        connection.execute("UPDATE slow SET v = 'new'")
        with released_by(connection.commit) as released:
            yield released


@contextmanager
def prepared(garden: Shed) -> Iterator[threading.Event]:
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


@contextmanager
def lagging(garden: Shed) -> Iterator[threading.Event]:
    """The database that is read is a replica, which has received the change and not applied it."""
    assert isinstance(garden.node, Replica | Standby)
    garden.node.pause()
    garden.execute("UPDATE slow SET v = 'new'")
    with released_by(garden.node.resume) as released:
        yield released


@contextmanager
def acknowledged(garden: Shed) -> Iterator[threading.Event]:
    """Likewise, and the commit has waited for the replica: what waits for none any more may still be unseen there."""
    assert isinstance(garden.node, Replica)
    with closing(garden.node.primary.connect()) as primary, primary.cursor() as cursor:
        variables = f"rpl_semi_sync_{garden.node.primary_role}"
        cursor.execute(f"SET GLOBAL {variables}_wait_point = 'AFTER_SYNC'")
        cursor.execute(f"SET GLOBAL {variables}_enabled = ON")
        garden.node.acknowledge("ON")
        with lagging(garden) as released:
            cursor.execute(f"SHOW GLOBAL STATUS LIKE '{variables}_yes_tx'")
            assert "0" != cursor.fetchone()[1]
            yield released
        cursor.execute(f"SET GLOBAL {variables}_enabled = OFF")
        garden.node.acknowledge("OFF")


UNSEEN: list[tuple[type[Database], Unseen]] = [
    (MariaDB, semi_synchronous), (MariaDB, prepared_by_xa), (Replica, lagging), (Replica, acknowledged),
    (MySQL, semi_synchronous), (MySQL, prepared_by_xa), (MySQLReplica, lagging), (MySQLReplica, acknowledged),
    (PostgreSQL, synchronous), (PostgreSQL, opened), (PostgreSQL, prepared), (Standby, lagging),
    (NewestPostgreSQL, synchronous), (NewestPostgreSQL, opened), (NewestPostgreSQL, prepared), (NewestStandby, lagging),
]  # fmt: skip


@pytest.fixture(params=UNSEEN, ids=lambda way: f"{way[0].__name__}-{way[1].__name__}")
def unseen(
    request: pytest.FixtureRequest, server: Callable[[type[Database]], Database], tmp_path: Path
) -> tuple[Shed, Unseen]:
    """A table, and a way in which a change of its row may be in the log while no SELECT sees it."""
    kind, way = request.param
    return Shed(server(kind), tmp_path), way


def test_rows_are_read_when_the_commits_before_them_are_seen(unseen: tuple[Shed, Unseen]) -> None:
    """The old row would stand over the change that the stream had delivered before, for ever.

    And looks that follow each other too fast are answered from the server's cache, so the end was not seen for minutes.
    """
    garden, way = unseen
    with way(garden) as released:
        assert ["old"] == garden.shown()
        threading.Timer(1.0, released.set).start()
        began = time.monotonic()
        done = garden.read("slow")
        assert time.monotonic() - began < 20
    assert ["new"] == [row["v"] for row in garden.images("slow")]
    assert [] == done.warnings


def test_a_row_that_only_the_stream_shows_is_not_judged(
    unseen: tuple[Shed, Unseen], monkeypatch: pytest.MonkeyPatch
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

        def looked(*given: Any) -> bool:
            released.set()  # between the two looks
            return snapshot.is_settled(*given)

        monkeypatch.setattr(sides, "is_settled", looked)
        done = compare(garden, "slow")
        assert (False, 0, 1) == (done.differs, done.waiting, done.on_the_way)
    assert not compare(garden, "slow").differs


def test_transactions_of_another_database_are_not_waited_for(
    server: Callable[[type[Database]], Database], tmp_path: Path
) -> None:
    """They cannot be of the table, and one that is open for an hour would let no table be read."""
    garden = Shed(server(PostgreSQL), tmp_path)
    with garden.node.connect() as connection:
        connection.autocommit = True
        connection.execute("DROP DATABASE IF EXISTS far")
        connection.execute("CREATE DATABASE far")
    with psycopg.connect(f"host=127.0.0.1 port={garden.node.port} user={USER} dbname=far") as far:
        far.execute("CREATE TABLE far (id int)")
        began = time.monotonic()
        garden.read("slow")
        assert time.monotonic() - began < 20


def test_a_primary_in_the_place_of_its_standby_is_refused(
    server: Callable[[type[Database]], Database], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It replays nothing, so nothing would ever be said to have come."""
    monkeypatch.setattr(snapshot, "_WAIT_SECONDS", 2.0)
    garden = Shed(server(PostgreSQL), tmp_path)
    garden.name_primary(garden.node)
    with pytest.raises(IngestError, match="url: under `database:` is no standby of primary:"):
        garden.read("slow")


def test_a_standby_without_its_primary_waits_for_what_its_snapshot_knows(
    server: Callable[[type[Database]], Database], tmp_path: Path
) -> None:
    """A snapshot of a standby lists no open transaction, and says only the number of the oldest."""
    garden = Shed(server(Standby), tmp_path)
    assert isinstance(garden.node, Standby)
    with closing(garden.node.connect()) as standby, garden.node.primary.connect() as writer:
        standby.autocommit = True
        writer.execute("UPDATE slow SET v = 'new'")
        garden.execute("INSERT INTO slow VALUES (2, 'over')")  # which has a later number
        until = time.monotonic() + 30
        while len(garden.shown()) < 2:
            assert time.monotonic() < until
            time.sleep(0.1)
        mark = postgres.settled(standby, "")
        assert mark == postgres.settled(standby, mark) != ""
        writer.commit()
        while postgres.settled(standby, mark):
            assert time.monotonic() < until
            time.sleep(0.1)
        assert "new" in garden.shown()


def test_a_user_who_may_not_see_open_transactions_is_told_what_to_grant(garden: Shed) -> None:
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


def test_a_server_that_takes_no_writes_is_a_replica(garden: Shed) -> None:
    """Its rows may be older than the changes of the stream."""
    garden.execute("SET GLOBAL read_only = ON")
    try:
        done = garden.read("slow")
    finally:
        garden.execute("SET GLOBAL read_only = OFF")
    assert [True] == ["is a replica" in one for one in done.warnings]
    assert [] == garden.read("slow").warnings


def test_a_mysql_without_md5_names_the_component(
    server: Callable[[type[Database]], Database], tmp_path: Path
) -> None:
    """It says that no database is selected, which helps nobody; MySQL has the function in a component since 9.6."""
    garden = Shed(server(MySQL), tmp_path)
    rows = pa.table({"id": [1], "v": ["old"]}, pa.schema([("id", pa.int32()), ("v", pa.string())]))
    made.mirror(lake(garden), table_of(garden, "slow"), {"id": "int32", "v": "string"}, ["id"], rows)
    garden.execute("UNINSTALL COMPONENT 'file://component_classic_hashing'")
    with pytest.raises(IngestError, match="types INSTALL COMPONENT 'file://component_classic_hashing' there"):
        compare(garden, "slow")
    garden.execute("INSTALL COMPONENT 'file://component_classic_hashing'")
    assert not compare(garden, "slow").differs
