"""Random tables of MariaDB and PostgreSQL, read, landed, compared, damaged in the source alone, repaired and compared again.

`RANDOM_TABLES=100 python -m pytest -m '' tests/e2e/test_random_tables.py` is the whole: so many tables of each database.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ingest.cli.app import app
from ingest.config import load
from ingest.tables.tables import LakeReader
from tests.e2e.databases import Database
from tests.e2e.feed import say
from tests.e2e.random_tables import PREPARED, Said, Table, differing, drawn, mirrored
from tests.e2e.test_source import Garden, node  # noqa: F401 - a fixture

TABLES = int(os.environ.get("RANDOM_TABLES", "20"))
TOGETHER = 20  # tables in one lake
ROWS, DIFFERENCES = 40, 12
LAKES = [range(first, min(first + TOGETHER, TABLES)) for first in range(0, TABLES, TOGETHER)]


class Tables:
    """Random tables in one lake."""

    def __init__(self, node: Database, folder: Path, numbers: Sequence[int]) -> None:  # noqa: F811
        self.garden = Garden(node, folder)
        self.tables = [drawn(number, mysql=self.garden.mysql, rows=ROWS) for number in numbers]
        if not self.garden.mysql:
            self.garden.execute(*(f'DROP TABLE IF EXISTS "{table.name}"' for table in self.tables), *PREPARED)
        with self.cursor() as cursor:
            for table in self.tables:
                cursor.execute(f"DROP TABLE IF EXISTS {table.quoted(table.name)}")
                cursor.execute(table.create())
                table.fill(cursor, ROWS)

    @contextmanager
    def cursor(self) -> Iterator[Any]:
        """A cursor whose statements are committed one by one."""
        connection = self.garden.written.connect()
        if self.garden.mysql:
            connection.autocommit(True)
        else:
            connection.autocommit = True
        with connection.cursor() as cursor:
            yield cursor
        connection.close()

    def name(self, table: Table) -> str:
        """A table's name in the stream."""
        return f"{self.garden.database}.{table.name}"

    def type(self, verb: str, *words: str) -> tuple[int, Any]:
        """A command; its exit code, and its JSON."""
        done = CliRunner().invoke(app, [verb, str(self.garden.file), *words, "--output", "json"])
        if done.exit_code not in (0, 1):
            runs = "SELECT subject, state, message FROM {runs} WHERE message IS NOT NULL"
            pytest.fail(f"{done.output}\n{LakeReader(load(self.garden.file)).ask(runs)}")
        return done.exit_code, json.loads(done.stdout)

    def compare(self, *words: str) -> dict[str, Counter[Said]]:
        """What a comparison says of each table."""
        names = {self.name(table): table for table in self.tables}
        _, answer = self.type("reconcile", *names, "--settled", "--most", "1000", *words)
        said: dict[str, Counter[Said]] = {name: Counter() for name in names}
        for row in answer["rows"]:
            said[row["table"]][row["kind"], tuple(sorted(row["cells"]))] += 1
        assert [*names] == [one["table"] for one in answer["tables"]]
        assert all(one["rows"] for one in answer["tables"])
        return said

    def wrong(self) -> list[str]:
        """Cells of mirrors that are not the source's, by another reader than the comparison's."""
        lake, wrong = LakeReader(load(self.garden.file)), []
        with self.cursor() as cursor:
            for table in self.tables:
                mirror = lake.ask_mirror(
                    f"mirrors/{self.garden.database}/{table.name}", "SELECT * FROM {mirror}"
                )
                wrong += [
                    f"{table.name} {one}" for one in differing(table.read(cursor), mirrored(table, mirror))
                ]
        return wrong

    def complaints(self, since: int = 0) -> list[Any]:
        """What the checks of the lake have said of the batches after one."""
        failed = "SELECT \"check\", mirror, detail FROM {checks} WHERE state IN ('fail', 'warn') AND \"check\" <> 'reconcile'"
        return LakeReader(load(self.garden.file)).ask(f"{failed} AND batch > {since}")

    def run(self, *, may_fail: bool = False) -> None:
        """A run."""
        done = CliRunner().invoke(app, ["run", str(self.garden.file)])
        assert may_fail or done.exit_code == 0, done.output


@pytest.mark.parametrize("numbers", LAKES, ids=lambda numbers: f"{numbers[0]}-{numbers[-1]}")
def test_planted_differences_of_random_tables_are_named_and_repaired(
    node: Database,  # noqa: F811
    tmp_path: Path,
    numbers: Sequence[int],
) -> None:
    """A difference that is none, or one that is not named, makes every comparison worthless; a repair may do harm."""
    tables = Tables(node, tmp_path, numbers)
    tables.type("snapshot", *map(tables.name, tables.tables), "--alone")
    tables.run()
    assert [] == tables.wrong()
    assert [] == tables.complaints()
    nothing: Counter[Said] = Counter()
    wanted = {tables.name(table): nothing for table in tables.tables}
    assert wanted == tables.compare()
    planted = Counter[str]()
    with tables.cursor() as cursor:
        for table in tables.tables:
            said = wanted[tables.name(table)] = Counter()
            for _ in range(DIFFERENCES):
                said.update(table.plant(cursor, planted))
    say(f"planted: {sum(planted.values())} in {len(tables.tables)} tables: {dict(planted)}")
    assert wanted == tables.compare()
    assert dict.fromkeys(wanted, nothing) == tables.compare("--repair", "--run")
    assert [] == tables.wrong()
    assert [] == tables.complaints()
