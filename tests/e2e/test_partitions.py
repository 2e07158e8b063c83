"""Partitioned tables of PostgreSQL, published under the name of their root or of each partition, read while rows move.

The stream is what pgoutput gives of a real slot, written as Debezium writes it, two events for a changed key.
"""

from __future__ import annotations

import json
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import pytest
from typer.testing import CliRunner

from ingest.change import TableId
from ingest.cli.app import app
from ingest.config import load
from ingest.tables.tables import LakeReader
from tests.beside import beside
from tests.e2e.databases import NewestStandby, Nodes, PostgreSQL
from tests.e2e.test_source import Garden

COLUMNS = {"id": "int32", "part": "int32", "v": "string", "price": "decimal(10,2)"}
ROOTS = {
    "by_list": ("LIST (part)", ("FOR VALUES IN (0, 1)", "FOR VALUES IN (2)", "DEFAULT")),
    "by_range": ("RANGE (part)", ("FOR VALUES FROM (0) TO (2)", "FOR VALUES FROM (2) TO (9)")),
    "by_hash": ("HASH (part)", ("FOR VALUES WITH (MODULUS 2, REMAINDER 0)", "FOR VALUES WITH (MODULUS 2, REMAINDER 1)")),
}  # fmt: skip
PARTS, IDS = 4, 30


class Stream:
    """What a slot gives, as Debezium's messages."""

    def __init__(self, garden: Garden, publication: str) -> None:
        self.garden, self.publication = garden, publication
        self.relations: dict[int, tuple[str, list[str]]] = {}
        self.committed = self.files = 0
        created = Thread(
            target=garden.rows,
            args=(f"SELECT pg_create_logical_replication_slot('{publication}', 'pgoutput')",),
        )
        created.start()
        while created.is_alive():
            if (
                garden.node is not garden.written
            ):  # a standby's slot begins at what its primary logs of open transactions
                garden.rows("SELECT pg_log_standby_snapshot()", written=True)
            created.join(1)

    def deliver(self) -> None:
        """A file of all that is committed and was not sent."""
        got = self.garden.rows(
            f"SELECT (lsn - '0/0'::pg_lsn)::text, data FROM pg_logical_slot_get_binary_changes('{self.publication}', NULL, NULL, "
            f"'proto_version', '1', 'publication_names', '{self.publication}')"
        )
        lines = [line for lsn, data in got for line in self._messages(int(lsn), bytes(data))]
        self.files += 1
        self.garden.land(self.files, lines)

    def _messages(self, lsn: int, data: bytes) -> Iterator[dict[str, Any]]:
        kind, rest = data[:1], data[1:]
        if kind == b"B":
            self.moment = struct.unpack(">q", rest[8:16])[0] // 1000 + 946_684_800_000
        elif kind == b"C":
            self.committed = struct.unpack(">Q", rest[1:9])[0]
        elif kind == b"R":
            number, (schema, name, tail) = struct.unpack(">I", rest[:4])[0], rest[4:].split(b"\0", 2)
            assert schema == b"public"
            columns, at = [], 3
            for _ in range(struct.unpack(">H", tail[1:3])[0]):
                end = tail.index(b"\0", at + 1)
                columns.append(tail[at + 1 : end].decode())
                at = end + 9
            self.relations[number] = name.decode(), columns
        elif kind in b"IUD":
            table, columns = self.relations[struct.unpack(">I", rest[:4])[0]]
            images, at = dict[str, dict[str, str | None]](), 4
            while at < len(rest):
                which, at = chr(rest[at]), at + 1
                images[which], at = self._image(columns, rest, at)
            before, after = images.get("O") or images.get("K"), images.get("N")
            if before and after and any(before[key] != after[key] for key in ("id", "part")):
                yield self._event("d", table, lsn, before, None)
                yield self._event("c", table, lsn, None, after)
            else:
                op = {b"I": "c", b"U": "u", b"D": "d"}[kind]
                yield self._event(op, table, lsn, before, after)

    @staticmethod
    def _image(columns: list[str], rest: bytes, at: int) -> tuple[dict[str, str | None], int]:
        """A tuple's cells as texts, and where it ends."""
        image, at = dict[str, str | None](), at + 2
        for name in columns:
            kind, at = rest[at : at + 1], at + 1
            assert kind in (b"n", b"t")
            if kind == b"t":
                size = struct.unpack(">I", rest[at : at + 4])[0]
                image[name], at = rest[at + 4 : at + 4 + size].decode(), at + 4 + size
            else:
                image[name] = None
        return image, at

    def _event(self, op: str, table: str, lsn: int, before: Any, after: Any) -> dict[str, Any]:
        place = {"lsn": lsn, "sequence": json.dumps([str(self.committed), str(lsn)]), "ts_ms": self.moment}
        source = {
            "connector": "postgresql",
            "db": "postgres",
            "schema": "public",
            "table": table,
            "snapshot": "false",
        }
        return {"before": before, "after": after, "op": op, "ts_ms": self.moment, "source": source | place}


@pytest.fixture(scope="module")
def node() -> Iterator[PostgreSQL]:
    """One database."""
    with Nodes() as nodes:
        yield nodes.of(PostgreSQL)


class Partitioned(Garden):
    """Partitioned tables, their publication and their pipeline."""

    def __init__(self, node: PostgreSQL, folder: Path, *, by_root: bool) -> None:
        super().__init__(node, folder)
        self.database = "postgres.public"
        self.leaves: dict[str, list[str]] = {}
        self.execute(
            "DROP DOMAIN IF EXISTS price CASCADE", "CREATE DOMAIN price AS numeric(10,2) CHECK (VALUE > 0)"
        )
        for root, (how, bounds) in ROOTS.items():
            self.leaves[root] = [f"{root}_{number}" for number in range(len(bounds))]
            self.execute(
                f"DROP TABLE IF EXISTS {root}",
                f"CREATE TABLE {root} (id int, part int, v text, price price, PRIMARY KEY (id, part)) PARTITION BY {how}",
                *(f"CREATE TABLE {leaf} PARTITION OF {root} {bound}" for leaf, bound in zip(self.leaves[root], bounds, strict=True)),
                *(f"ALTER TABLE {leaf} REPLICA IDENTITY FULL" for leaf in (root, *self.leaves[root])),
                *(f"INSERT INTO {root} VALUES ({n}, {n % PARTS}, 'old', 1.50)" for n in range(0, IDS, 2)),
            )  # fmt: skip
        publication = "roots" if by_root else "leaves"
        self.execute(
            f"CREATE PUBLICATION {publication} FOR TABLE {', '.join(ROOTS)} WITH (publish_via_partition_root = {str(by_root).lower()})"
        )
        self.wait_for_standby()
        self.streamed = [*ROOTS] if by_root else [leaf for leaves in self.leaves.values() for leaf in leaves]
        entry = {"match": "postgres.public.*", "keys": ["id", "part"], "columns": COLUMNS}
        text = self.file.read_text("utf-8").replace("dts-canal", "debezium")
        self.file.write_text(f"{text}tables: {json.dumps([entry])}\n", "utf-8")
        self.stream = Stream(self, publication)

    def names(self) -> list[str]:
        """The tables as their stream names them."""
        return [f"{self.database}.{table}" for table in self.streamed]

    def type(self, *words: str, codes: tuple[int, ...] = (0,)) -> None:
        """A command, which must end with one of some codes."""
        done = CliRunner().invoke(app, [words[0], str(self.file), *words[1:]])
        assert done.exit_code in codes, done.output

    def change(self, connection: Any, random: Random) -> None:
        """One change, one in three of which moves a row to another partition or key."""
        root, key = random.choice([*ROOTS]), random.randrange(IDS)
        there = connection.execute(f"SELECT part FROM {root} WHERE id = {key} FOR UPDATE").fetchall()
        what = random.random()
        if not there:
            connection.execute(
                f"INSERT INTO {root} VALUES ({key}, {random.randrange(PARTS)}, '{what}', 2.25)"
            )
        elif what < 0.2:
            connection.execute(f"DELETE FROM {root} WHERE id = {key}")
        elif what < 0.55:
            connection.execute(
                f"UPDATE {root} SET part = {random.randrange(PARTS)}, v = '{what}' WHERE id = {key}"
            )
        else:
            connection.execute(f"UPDATE {root} SET v = '{what}', price = price + 0.01 WHERE id = {key}")

    def write(self, stop: threading.Event) -> None:
        """Transactions until ``stop``."""
        random = Random(1)
        with closing(self.written.connect()) as connection:
            while not stop.is_set():
                for _ in range(random.randint(1, 3)):
                    self.change(connection, random)
                if random.random() < 0.1:
                    connection.rollback()
                else:
                    connection.commit()
                time.sleep(0.005)

    def wait_for_standby(self) -> None:
        """Wait until the database that is read has all that was committed."""
        if self.node is self.written:
            return
        [(end,)] = self.rows("SELECT pg_current_wal_insert_lsn()::text", written=True)
        until = time.monotonic() + 60
        while self.rows(f"SELECT pg_last_wal_replay_lsn() < '{end}'") == [(True,)]:
            assert time.monotonic() < until
            self.rows("SELECT pg_log_standby_snapshot()", written=True)  # no page's header is the end then
            time.sleep(0.1)

    def wrong(self) -> list[str]:
        """Tables whose mirror has not the same rows."""
        lake, wrong = LakeReader(load(self.file)), []
        for table in self.streamed:
            of = TableId("postgres", "public", table)
            there = self.rows(f"SELECT id, part, v, price FROM {table} ORDER BY 1, 2", written=True)
            here = lake.ask_mirror(
                f"mirrors/{of.database}/{of.schema}.{table}",
                "SELECT id, part, v, price FROM {mirror} ORDER BY 1, 2",
            )
            if there != [tuple(row.values()) for row in here]:
                wrong.append(table)
        return wrong


@pytest.mark.parametrize("by_root", [True, False], ids=["root", "partitions"])
def test_rows_that_move_between_partitions(node: PostgreSQL, tmp_path: Path, by_root: bool) -> None:
    """A row that moves is a delete and an insert, of two tables or of one: it may be lost between, or stay twice."""
    read_beside_writers(Partitioned(node, tmp_path, by_root=by_root))


def test_rows_of_a_standby_whose_own_slot_feeds_the_stream(tmp_path: Path) -> None:
    """Its snapshots do not show the transactions that are open; the stream orders changes by places before their commits."""
    with Nodes() as nodes:
        read_beside_writers(Partitioned(nodes.of(NewestStandby), tmp_path, by_root=True))


def _end_prepared(connection: Any) -> None:
    """Let a test that has failed leave no transaction: its locks would make the next test wait for ever."""
    for (name,) in connection.execute("SELECT gid FROM pg_prepared_xacts").fetchall():
        connection.execute(f"ROLLBACK PREPARED '{name}'")


def read_beside_writers(garden: Partitioned) -> None:
    """Run, read, run and compare while rows move.

    Transactions are open while the place is chosen: one writes before and commits after, one is prepared.
    """
    with ExitStack() as ends:
        late, prepared = (ends.enter_context(closing(garden.written.connect())) for _ in range(2))
        for number, connection in enumerate((late, prepared)):  # rows that no writer has
            for root in ROOTS:
                connection.execute(f"INSERT INTO {root} VALUES ({IDS + number}, 1, 'late', 3)")
        prepared.execute("PREPARE TRANSACTION 'moved'")
        prepared.autocommit = True
        ends.callback(_end_prepared, prepared)
        ends.enter_context(beside(garden.write))
        time.sleep(0.3)
        garden.stream.deliver()
        garden.type("run")
        timers = [
            threading.Timer(1.0, late.commit),
            threading.Timer(1.5, prepared.execute, ("COMMIT PREPARED 'moved'",)),
        ]
        for timer in timers:
            timer.start()
            ends.callback(timer.join)
        garden.type("snapshot", *garden.names(), "--chunk-rows", "5")
        garden.stream.deliver()
        garden.type("run")
        garden.type("reconcile", *garden.names(), codes=(0, 3))
    garden.wait_for_standby()
    garden.stream.deliver()
    garden.type("run")
    assert [] == garden.wrong()
    garden.type("reconcile", *garden.names(), "--settled")
