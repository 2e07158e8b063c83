"""Truncates, statements and rows that all come late, in every mixture, against the plain fold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from ingest.change import Change, Image, Op, TableId
from ingest.fold import Placed, SchemaStep, fold
from ingest.order import Order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.properties.lakes import Feed

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TABLES, KEYS, PLACES, BATCHES = 8, 12, 90, 3
TYPES = {"id": "int64", "n": "int32", "m": "int32", "c": "int32"}
ADD, RENAME = "ALTER TABLE {} ADD COLUMN c INT NOT NULL DEFAULT 7", "ALTER TABLE {} RENAME COLUMN n TO m"
CREATE = "CREATE TABLE {} (id BIGINT PRIMARY KEY, {} INT{})"


class Table:
    """One table's events by place, and the batch in which each comes."""

    def __init__(self, number: int) -> None:
        self.random = Random(f"late/{number}")
        self.id = TableId("shop", None, f"late_{number}")
        self.events: dict[int, Change] = {}
        self.steps: list[SchemaStep] = []
        self.added = self.renamed = PLACES + 9
        places = self.random.sample(range(10, PLACES), 5)
        self.added, self.renamed = places[0], places[1] if number % 2 else self.renamed
        for place in places[2 : 3 + number % 2]:
            self.events[place] = self.change(Op.TRUNCATE, place)
        self.statement(self.added, ADD, SchemaStep(at(self.added), "add_column", "c", default="7"))
        if number % 2:
            self.statement(self.renamed, RENAME, SchemaStep(at(self.renamed), "rename_column", "n", "m"))
        if number % 4 >= 2:
            self.create(places[4])
        for place in range(1, PLACES):
            if place not in self.events:
                self.row(place)

    def change(self, op: Op, place: int, **given: object) -> Change:
        return Change(op=op, table=self.id, keys=("id",), types=TYPES, sequence=(place,), **given)  # type: ignore[arg-type]

    def statement(self, place: int, text: str, step: SchemaStep | None) -> None:
        self.events[place] = self.change(Op.DDL, place, ddl=text.format(self.id.table))
        self.steps += [step] if step else []

    def create(self, place: int) -> None:
        """The table dropped and created again: a new incarnation."""
        if {place - 1, place} & self.events.keys():
            return
        more = ", c INT" if place > self.added else ""
        self.statement(place - 1, "DROP TABLE {}", None)
        self.statement(
            place, CREATE.format("{}", self.column(place), more), SchemaStep(at(place), "new_incarnation")
        )

    def column(self, place: int) -> str:
        return "m" if place > self.renamed else "n"

    def row(self, place: int) -> None:
        random = self.random
        key = {"id": str(random.randrange(KEYS))}
        values: Image = {self.column(place): str(place)}
        if place > self.added:
            values["c"] = random.choice((None, str(1000 + place)))
        kind = random.random()
        if kind < 0.15:
            self.events[place] = self.change(Op.DELETE, place, before=key)
        elif kind < 0.45:
            self.events[place] = self.change(
                Op.UPDATE, place, after=key | dict([random.choice([*values.items()])]), partial=True
            )
        else:
            op = random.choice((Op.INSERT, Op.UPDATE))
            self.events[place] = self.change(op, place, after={**key, **values})

    def rows(self) -> dict[object, dict[str, str | None]]:
        """What the plain fold makes of it."""
        events = [
            Placed(at(place), change) for place, change in self.events.items() if change.op is not Op.DDL
        ]
        names = [name for name in TYPES if name != "m" or self.renamed < PLACES]
        rows = fold([*events, *self.steps], ("id",), TYPES)
        return {key[0]: {name: row.values.get(name) for name in names[1:]} for key, row in rows.items()}

    def feed(self) -> Feed:
        """Rows about in order, some late; truncates and statements mostly late, each alone or together."""
        from tests.properties.histories import Sent
        from tests.properties.lakes import Feed

        random, batches = self.random, [[] for _ in range(BATCHES)]  # type: ignore[var-annotated]
        together = random.choice((0, BATCHES - 1, BATCHES - 1))
        for place, change in self.events.items():
            own = place * BATCHES // PLACES
            if change.op in (Op.DDL, Op.TRUNCATE):
                batch = max(own, together if random.random() < 0.7 else 0)
            else:
                batch = random.randrange(own, BATCHES) if random.random() < 0.2 else own
            batches[batch].append(Sent(0, (change,)))
        return Feed(self.id, ("id",), [], batches)


def at(place: int) -> Order:
    """A place in the one epoch."""
    return Order(0, 1, (place,), 0, (0, 0, 0, 0), 0)


def differing(lake, tables: list[Table]) -> Iterator[str]:  # type: ignore[no-untyped-def]
    """The rows that a mirror has otherwise than the plain fold."""
    from ingest.store.names import mirror_path

    for one in tables:
        found = {
            row["id"]: {name: None if row[name] is None else str(row[name]) for name in row if name != "id"}
            for row in (row.asDict() for row in lake.read(mirror_path(one.id)).collect())
        }
        for key in sorted(found.keys() | one.rows().keys(), key=str):
            if found.get(key) != one.rows().get(key):
                yield f"{one.id} {key}: expected {one.rows().get(key)}, found {found.get(key)}"


def test_late_truncates_statements_and_rows_together(spark: SparkSession, tmp_path: Path) -> None:
    """Rows between a late truncate and a late statement would go, or keep what the truncate took."""
    from tests.properties import lakes

    tables = [Table(number) for number in range(TABLES)]
    lake = lakes.lake_of(spark, tmp_path)
    feeds = [one.feed() for one in tables]
    for batch in range(1, BATCHES + 1):
        lakes.write(lake, feeds, batch)
        lakes.fold_up_to(lake, batch - 1, batch)
    assert [] == list(differing(lake, tables))
