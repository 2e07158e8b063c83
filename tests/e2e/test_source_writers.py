"""Tables read from real databases while writers work: transactions, changed keys, a column that is added."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ingest.change import Change, Image, Op
from ingest.fold import Placed, fold
from ingest.order import Order, order_key
from ingest.source import snapshot as reading
from ingest.source.place import KnownTable
from tests.e2e.databases import Database
from tests.e2e.test_source import Garden, node  # noqa: F401 - a fixture
from tests.e2e.writing import Writing

SEEDS = int(os.environ.get("SOURCE_SEEDS", "2"))
DRAWN = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, SEEDS))]


@pytest.fixture
def garden(node: Database, tmp_path: Path) -> Garden:  # noqa: F811
    """A pipeline of its own for each test."""
    return Garden(node, tmp_path)


IDS = 60


class Writers(Writing):
    """Transactions at full speed, each statement with its own line in a log table, as a stream would send it."""

    def __init__(self, garden: Garden, seed: int) -> None:
        super().__init__(3)
        self.garden, self.seed = garden, seed
        self.widened = False
        serial = "bigint auto_increment primary key" if garden.mysql else "bigserial primary key"
        garden.execute(
            "DROP TABLE IF EXISTS bed", "DROP TABLE IF EXISTS log",
            "CREATE TABLE bed (id int primary key, a varchar(20), b varchar(20))",
            f"CREATE TABLE log (n {serial}, op varchar(9), id int, a varchar(20), b varchar(20), c varchar(20))",
        )  # fmt: skip
        garden.execute(*(f"INSERT INTO bed VALUES ({n}, 'old', 'row')" for n in range(0, IDS, 2)))

    def _write(self, number: int) -> None:
        random = Random(f"{self.seed}/{number}")
        connection = self.garden.node.connect()
        serial = 0
        while not self.stop.is_set():
            try:
                with connection.cursor() as cursor:
                    for key in sorted(random.sample(range(IDS), random.randint(1, 3))):
                        serial += 1
                        self._step(cursor, random, key, f"{number}.{serial}")
                        if random.random() < 0.1:
                            time.sleep(0.02)
                connection.commit()
            except Exception:
                connection.rollback()
            self.turns[number] += 1
        connection.close()

    def _step(self, cursor: Any, random: Random, key: int, value: str) -> None:
        row = self._row(cursor, key)
        if row is None:
            self._insert(cursor, key, value, value, value if self.widened else None)
        elif random.random() < 0.25:
            self._delete(cursor, key)
        elif random.random() < 0.25 and self._row(cursor, other := random.randrange(IDS)) is None:
            cursor.execute(f"UPDATE bed SET id = {other} WHERE id = {key}")
            self._record(cursor, "delete", key)
            self._record(cursor, "insert", other, *row)
        elif self.widened:
            cursor.execute(f"UPDATE bed SET a = '{value}', c = '{value}' WHERE id = {key}")
            self._record(cursor, "update", key, value, None, value)
        else:
            cursor.execute(f"UPDATE bed SET a = '{value}' WHERE id = {key}")
            self._record(cursor, "update", key, value)

    @staticmethod
    def _row(cursor: Any, key: int) -> Any:
        """The values of a row, locked against other writers."""
        cursor.execute(f"SELECT * FROM bed WHERE id = {key} FOR UPDATE")
        found = cursor.fetchone()
        return found and found[1:]

    def _insert(self, cursor: Any, key: int, a: str, b: str, c: str | None) -> None:
        more = (", c", f", '{c}'") if c else ("", "")
        cursor.execute(f"INSERT INTO bed (id, a, b{more[0]}) VALUES ({key}, '{a}', '{b}'{more[1]})")
        self._record(cursor, "insert", key, a, b, c)

    def _delete(self, cursor: Any, key: int) -> None:
        cursor.execute(f"DELETE FROM bed WHERE id = {key}")
        self._record(cursor, "delete", key)

    @staticmethod
    def _record(cursor: Any, op: str, key: int, *values: str | None) -> None:
        cells = dict(zip("abc", values, strict=False))
        names = ["op", "id", *cells]
        texts = [f"'{op}'", str(key), *("NULL" if one is None else f"'{one}'" for one in cells.values())]
        cursor.execute(f"INSERT INTO log ({', '.join(names)}) VALUES ({', '.join(texts)})")

    def widen(self) -> None:
        """A statement on the table, while all write."""
        self.garden.execute("ALTER TABLE bed ADD COLUMN c varchar(20) DEFAULT 'new'")
        self.widened = True

    def log(self) -> list[Change]:
        """What is committed by now, in the order of the log; of MySQL's only what no open transaction precedes."""
        [(last,)] = self.garden.rows("SELECT coalesce(max(n), 0) FROM log")
        if self.garden.mysql:  # its log has the order of commits
            self.end_a_turn(20)
        found = []
        for n, op, key, *values in self.garden.rows(
            f"SELECT n, op, id, a, b, c FROM log WHERE n <= {last} ORDER BY n"
        ):
            image: Image = {"id": str(key)} | {
                name: one for name, one in zip("abc", values, strict=True) if one
            }
            deleted = op == "delete"
            found.append(
                Change(
                    op=Op(op), keys=("id",), before=image if deleted else None, after=None if deleted else image,
                    partial=op == "update", sequence=(int(n),),
                )
            )  # fmt: skip
        return found


@pytest.mark.parametrize("seed", DRAWN)
@pytest.mark.parametrize("lost", [False, True], ids=["whole", "with a gap"])
def test_with_writers_at_work_the_mirror_ends_as_the_source(
    garden: Garden, seed: int, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change in flight that is lost, or a row that hides a later one, is wrong for ever."""
    random = Random(seed)
    placed: list[Placed] = []
    delivered: set[int] = set()

    def land(batch: int, changes: list[Change], keep: float = 1.0) -> None:
        random.shuffle(changes)
        for offset, one in enumerate(changes):
            if one.sequence[0] not in delivered:
                delivered.add(one.sequence[0])
                if random.random() <= keep:
                    placed.append(Placed(Order(0, 1, one.sequence, 0, (batch, 0, 0, offset), 0), one))

    real, calls, widened_at = reading.TableReading._chunk, itertools.count(1), random.randint(1, 9)

    def chunk(self: Any, number: int, span: Any) -> int:
        if next(calls) == widened_at:
            writers.widen()
        return real(self, number, span)

    with Writers(garden, seed) as writers:
        time.sleep(0.5)
        land(1, writers.log(), 0.5 if lost else 1.0)
        high = max((order_key(one.order) for one in placed), default=None)
        monkeypatch.setattr(reading, "known", lambda *_: KnownTable(1, high, 0, streamed=True))
        monkeypatch.setattr(reading.TableReading, "_chunk", chunk)
        done = garden.read("bed", size=5, parallel=2, alone=False)
        assert done.chunks > 3
        time.sleep(0.2)
    if lost:  # what was open when the gap ended is delivered, like everything later
        assert len(delivered) > len(placed)
    rest = writers.log()
    land(2, [one for one in rest if random.random() < 0.5])
    land(3, rest)
    for one in garden.changes("bed"):
        placed.append(Placed(Order(0, one.phase, one.sequence, one.half, one.arrival, one.row), one))
    random.shuffle(placed)
    given = {"c": "new"} if writers.widened else {}  # which the stream's own statement would fill in
    mirror = {row.values["id"]: given | row.values for row in fold(placed, ("id",)).values()}
    names = ("id", "a", "b", *given)
    wanted = {
        str(row[0]): dict(zip(names, map(str, row), strict=True)) for row in garden.rows("SELECT * FROM bed")
    }
    assert wanted == mirror
