"""A history's tables in the mirrors of several pipelines: written, caught up with, run, compared cell by cell."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Printed

from ingest.config import load
from ingest.run import Warm, run
from ingest.tables.lake import Lake
from tests.e2e import cells
from tests.e2e.histories import History, alter
from tests.e2e.typed_tables import Column, Table

FOLD = ("bronze", "silver", "gold")
TABLES = """\
tables:
  - {match: '*notes', no_key: full_row, on_schema_change: evolve}
  - {match: '*', on_schema_change: evolve}
"""
say = Console(width=100, highlight=False).print


class Feed(ABC):
    """One database's history, and the pipelines that read what is sent of it; ``marks`` say how far that is."""

    def __init__(self, folder: Path, history: History) -> None:
        self.folder = folder
        self.history = history
        self.warm: dict[str, Warm] = {}
        self.marks = Table("marks", {"mark": Column("VARCHAR(40)", str, null=False)}, ("mark",))

    def add(self, name: str, address: str, source: str) -> None:
        """A pipeline of one Kafka source, whose other lines are given."""
        self.warm[name] = Warm()
        head = (
            f"pipeline: {name}\nlake: ./{name}\nengine: auto\nsources:\n  - name: {name}\n    kind: kafka\n"
        )
        text = f"{head}    bootstrap_servers: {address}\n{source}{TABLES}"
        (self.folder / f"{name}.yaml").write_text(text)

    def catch_up(self) -> None:
        """Commit a row, and wait until it has come everywhere: everything before it has been sent then."""
        mark = f"mark-{time.monotonic_ns()}"
        self.history.execute("INSERT INTO marks VALUES (%s)", [mark])
        self.history.connection.commit()
        deadline = time.monotonic() + 120
        for place in self.places():
            while not self.has_come(place, mark.encode()):
                self.check()
                assert time.monotonic() < deadline, f"{place} has not come to {mark}"

    @abstractmethod
    def places(self) -> Iterable[str]:
        """Topics that get all marks, one for each way that the history takes."""

    @abstractmethod
    def has_come(self, place: str, mark: bytes) -> bool:
        """True once a mark is in a topic."""

    @abstractmethod
    def check(self) -> None:
        """Fail if what sends has ended by itself."""

    def run(self, spark: Any, name: str) -> None:
        """One run of a pipeline, which must have nothing to complain of."""
        pipeline = load(self.folder / f"{name}.yaml")
        result = run(spark, pipeline, FOLD, self.warm[name])
        say(f"{name}: batch {result.batch}, {result.read} messages, {result.ddl} DDL, {result.seconds:.0f} s")
        assert not result.failures, result.failures
        assert not result.rejected, f"{result.rejected} rejected"

    def compare(
        self,
        spark: Any,
        name: str,
        root: str,
        *,
        surplus: Collection[str] = (),
        declared: Collection[str] = (),
        nulls: bool = True,
    ) -> None:
        """Every cell of every table; prints the sums and fails if a cell differs.

        Args:
            spark: the session.
            name: the pipeline's.
            root: what the tables' names begin with in ``mirrors``.
            surplus: columns that a mirror may have beyond the source's.
            declared: tables whose differences are known of and only counted.
            nulls: False where the capture is known to send a default in the place of NULL.
        """
        lake = Lake(spark, load(self.folder / f"{name}.yaml"))
        found = []
        for table in (*self.history.tables, self.marks):
            path = f"mirrors/{root}{table.name}"
            source = cells.source_rows(self.history.connection, table, self.history.quote)
            mirror = cells.mirror_rows(lake, path, table)
            one = cells.compare(table, source, mirror, nulls=nulls)
            if table.name in declared:
                one.differing, one.declared = 0, one.differing
            found.append(one)
            more = {*cells.surplus(lake, path, table)} - {*surplus}
            assert not more, (table.name, more, shown(lake, table.name))
        show(name, found)
        differing = {one.table: one.examples for one in found if one.differing}
        assert not differing, differing


def shown(lake: Lake, table: str) -> list[object]:
    """Which columns a table's rows have had, batch by batch, and where its statements are among them."""
    mine = f"\"table\" = '{table}' ORDER BY batch, order_"
    rows = lake.ask(f"SELECT batch, order_low, order_high, columns FROM {{books}} WHERE {mine}low")
    return [rows, lake.ask(f"SELECT batch, order_key, statement FROM {{ddl}} WHERE {mine}key")]


def show(title: str, found: list[cells.Compared]) -> None:
    """The sums of a comparison as a table."""
    printed = Printed("table", "source rows", "mirror rows", "differing cells", "declared ones", title=title)
    for one in found:
        sums = (one.source_rows, one.mirror_rows, one.differing, one.declared)
        printed.add_row(one.table, *map(str, sums))
    say(printed)


def write(history: History, transactions: int, alters: int) -> None:
    """Transactions, with a TRUNCATE in every thousand and DDL at random places; prints the DDL."""
    orders = next(table for table in history.tables if table.name == "orders")
    places = set(history.random.sample(range(transactions), alters))
    for n in range(transactions):
        if n in places:
            say(alter(history, orders))
        if history.random.random() < 0.001:
            history.truncate(history.random.choice(history.tables))
        history.transaction()
