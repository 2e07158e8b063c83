"""Random tables of real databases whose rows change while they are read, landed and compared; a stream says each change.

The stream is GoldenGate's JSON: a writer's transaction keeps, beside each change, the row as the database prints it.
`RANDOM_WRITERS=20 python -m pytest -m '' tests/e2e/test_random_writers.py` is the whole: so many seeds of each database.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ingest import types
from ingest.change import TableId
from ingest.config import load
from ingest.inspect.status import complete
from ingest.source.database import SourceTable, connected, primary_of
from ingest.source.reconcile import reconcile
from ingest.source.reconciled import ReconcileOptions, RowDifference
from ingest.source.snapshot import source_of
from ingest.tables.tables import LakeReader
from tests.e2e.databases import Database, Nodes, Replica, Standby
from tests.e2e.feed import say
from tests.e2e.random_tables import Table
from tests.e2e.test_random_tables import Tables
from tests.e2e.test_source import node  # noqa: F401 - a fixture
from tests.e2e.writing import Writing

SEEDS = int(os.environ.get("RANDOM_WRITERS", "2"))
TOGETHER = 5  # tables in one lake
WRITERS = 2
DELIVERED = ("before", "after")


class Cursor:
    """A cursor of a transaction, which goes on after a statement that the database refuses."""

    def __init__(self, cursor: Any, *, mysql: bool) -> None:
        self._cursor, self._mysql = cursor, mysql

    def execute(self, statement: str, values: Sequence[Any] = ()) -> None:
        """A statement; the error of one that is refused, which then has done nothing."""
        if self._mysql:
            self._cursor.execute(statement, values)
            return
        self._cursor.execute("SAVEPOINT before")
        try:
            self._cursor.execute(statement, values)
        except Exception:
            self._cursor.execute("ROLLBACK TO SAVEPOINT before")
            raise


class WrittenTables(Writing, Tables):
    """Random tables in one lake, written to by several at once; each table by one of them."""

    def __init__(self, node: Database, folder: Path, seed: int) -> None:  # noqa: F811
        Writing.__init__(self, WRITERS)
        Tables.__init__(self, node, folder, range(TOGETHER * seed, TOGETHER * (seed + 1)))
        self.seed, self.sent = seed, set[int]()
        self.failed: list[BaseException] = []
        mysql = self.garden.mysql
        serial, text = (
            ("bigint auto_increment primary key", "longtext") if mysql else ("bigserial primary key", "text")
        )
        clock = "utc_timestamp(6)" if mysql else "clock_timestamp() AT TIME ZONE 'UTC'"
        self.garden.execute(
            "DROP TABLE IF EXISTS log",
            f"CREATE TABLE log (n {serial}, moment varchar(40), name varchar(40), old {text}, new {text})",
        )  # fmt: skip
        self._moment = f"CAST({clock} AS CHAR(26))"
        database = source_of(load(self.garden.file)).database
        assert database
        with connected(primary_of(database) if database.primary else database) as (dialect, connection):
            described = [
                dialect.table(connection, TableId(self.garden.database, None, table.name))
                for table in self.tables
            ]
        self.described: dict[str, SourceTable] = {
            table.id.table: table for table in described if table and table.id.table
        }
        entries = [
            {"match": self.name(table), "keys": [*table.keys], "columns": self._types(table)}
            for table in self.tables
        ]
        text = self.garden.file.read_text("utf-8").replace("dts-canal", "ogg")
        self.garden.file.write_text(f"{text}tables: {json.dumps(entries)}\n", "utf-8")  # JSON is YAML

    def _types(self, table: Table) -> dict[str, str]:
        return {column.name: column.type for column in self.described[table.name].columns}

    def __exit__(self, *given: object) -> None:
        super().__exit__(*given)
        assert [] == self.failed

    # --- the writers ---

    def _write(self, number: int) -> None:
        try:
            random = Random(f"{self.seed}/{number}")
            with closing(self.garden.written.connect()) as connection:
                while not self.stop.is_set():
                    self._transaction(connection, random, self.tables[number::WRITERS])
                    self.turns[number] += 1
                    time.sleep(random.random() * 0.02)
        except BaseException as error:
            self.failed.append(error)
            raise

    def _transaction(self, connection: Any, random: Random, tables: Sequence[Table]) -> None:
        """Some changes of some tables, of which one in eight is taken back; some stay open for a while."""
        kept = [(table, dict(table.rows)) for table in tables]
        with connection.cursor() as plain:
            cursor = Cursor(plain, mysql=self.garden.mysql)
            for _ in range(random.randint(1, 4)):
                table = random.choice(tables)
                table.former.clear()  # a key may come again: the stream says so
                self._change(plain, cursor, random, table)
                if random.random() < 0.1:
                    time.sleep(0.1)
        if random.random() < 0.12:
            connection.rollback()
            for table, rows in kept:
                table.rows = rows
        else:
            connection.commit()

    def _change(self, plain: Any, cursor: Cursor, random: Random, table: Table) -> None:
        what = random.random()
        if what < 0.3 or not table.rows:
            if table.insert(cursor):
                self._record(plain, table, None, self._row(plain, table, table.last))
            return
        number = random.choice([*table.rows])
        old = self._row(plain, table, number)
        if what < 0.45:
            table.rows = dict(table.rows)
            table.delete(cursor, number)
            self._record(plain, table, old, None)
            return
        name, kind = random.choice([*(table.keys if what < 0.55 else table.others).items()])
        table.rows[number] = dict(table.rows[number])
        if table.update(cursor, number, name, kind.value(random)):
            self._record(plain, table, old, self._row(plain, table, number))

    def _row(self, cursor: Any, table: Table, number: int) -> str:
        """A row as the database prints its cells."""
        texts = ", ".join(column.text for column in self.described[table.name].columns)
        listed = f"JSON_ARRAY({texts})" if self.garden.mysql else f"to_json(ARRAY[{texts}]::text[])::text"
        cursor.execute(f"SELECT {listed} FROM {table.quoted(table.name)} WHERE number = {number}")
        return str(cursor.fetchone()[0])

    def _record(self, cursor: Any, table: Table, old: str | None, new: str | None) -> None:
        if old != new:
            cursor.execute(
                f"INSERT INTO log (moment, name, old, new) VALUES ({self._moment}, %s, %s, %s)",
                [table.name, old, new],
            )

    # --- the stream ---

    def deliver(self) -> int:
        """Send what is committed and was not sent; of MySQL's, whose log has the order of commits, what nothing open precedes."""
        [(last,)] = self.garden.rows("SELECT coalesce(max(n), 0) FROM log", written=True)
        if self.garden.mysql:
            self.end_a_turn(60)
        sent = f"SELECT n, moment, name, old, new FROM log WHERE n <= {last} ORDER BY n"
        rows = self.garden.rows(sent, written=True)
        lines = [self._message(*row) for row in rows if row[0] not in self.sent]
        self.sent.update(row[0] for row in rows)
        if lines:
            self.garden.land(len(self.sent), lines)
        return len(lines)

    def _message(self, n: int, moment: str, name: str, old: str | None, new: str | None) -> dict[str, Any]:
        columns = self.described[name].columns
        bits = {
            column.name for column in columns if types.base(column.type) == "bit"
        }  # a text would be its bytes
        images = {
            image: {
                column.name: int(cell) if column.name in bits and cell else cell
                for column, cell in zip(columns, json.loads(row), strict=True)
            }
            for image, row in zip(DELIVERED, (old, new), strict=True)
            if row is not None
        }
        op = "D" if new is None else "U" if old is not None else "I"
        keys = next(table for table in self.tables if table.name == name).keys
        return {
            "table": f"{self.garden.database}.{name}", "op_type": op, "op_ts": moment, "pos": f"{n:020d}",
            "primary_keys": [*keys], **images,
        }  # fmt: skip

    def compare_running(self) -> list[RowDifference]:
        """What comparisons find wrong while writers write: between the two looks their changes land."""
        pipeline = load(self.garden.file)
        lake, source = LakeReader(pipeline), source_of(pipeline)

        def passed(mirror: str) -> dt.datetime | None:
            self.deliver()
            self.run()
            known = complete(lake).get(mirror)
            return known.until if known else None

        wrong = []
        for table in self.tables[:2]:  # each takes a run
            name = TableId(self.garden.database, None, table.name)
            done = reconcile(lake, source, name, ReconcileOptions(range_rows=9, wait=120.0), passed=passed)
            assert not done.waiting, name
            wrong += done.differences
        return wrong


def read_beside_writers(tables: WrittenTables, lag: Callable[[], AbstractContextManager[object]]) -> None:
    """Run, read, run and compare random tables while their writers work; ``lag`` lets a replica fall back meanwhile."""
    with tables:
        while not tables.deliver():
            time.sleep(0.3)
        tables.run(may_fail=True)  # rows whose first change is an update are incomplete until they are read
        with lag():
            tables.type("snapshot", *map(tables.name, tables.tables), "--chunk-rows", "9", "--parallel", "2")
        tables.deliver()
        tables.run()
        with lag():
            assert [] == tables.compare_running()
        time.sleep(0.3)
    tables.deliver()
    tables.run()
    say(f"seed {tables.seed}: {len(tables.sent)} changes")
    assert [] == tables.wrong()
    assert [] == tables.complaints(since=1)
    assert not any(tables.compare().values())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_with_writers_at_work_random_tables_end_as_the_source(
    node: Database,  # noqa: F811
    tmp_path: Path,
    seed: int,
) -> None:
    """A change in flight that is lost is wrong for ever; a difference that is none is repaired into one."""
    read_beside_writers(WrittenTables(node, tmp_path, seed), nullcontext)


@pytest.fixture(params=[Replica, Standby], ids=["mariadb", "postgresql"])
def replica(request: pytest.FixtureRequest) -> Iterator[Replica | Standby]:
    """A replica of a database."""
    with Nodes() as nodes:
        yield nodes.of(request.param)


def test_random_tables_are_read_from_a_replica_that_lags(replica: Replica | Standby, tmp_path: Path) -> None:
    """The stream is ahead of the rows that are read: an old row would stand over its change, for ever."""

    @contextmanager
    def lag() -> Iterator[None]:
        replica.pause()
        timer = threading.Timer(2.0, replica.resume)
        timer.start()
        yield
        timer.join()

    read_beside_writers(WrittenTables(replica, tmp_path, 0), lag)
