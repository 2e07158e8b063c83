"""Changes that have no usable key: the mirror lacks their rows, which must not look like a success."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from ingest.cli.app import app
from ingest.config import load
from ingest.result import Result
from ingest.run import Warm, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
FILE = """pipeline: yard
lake: ./lake
engine: auto
sources:
  - {name: s, kind: files, format: dts-canal, path: './in-*.jsonl', settle: 0s}
tables:
  - {match: yard.box, keys: [KEY]}
"""


@dataclass(slots=True)
class Yard:
    """A table whose key the pipeline file names."""

    spark: SparkSession
    folder: Path
    key: str = "no"
    warm: Warm = field(default_factory=Warm)
    files: int = 0

    def run(self, *rows: dict[str, str | None] | str) -> Result:
        """The next batch, of these rows and statements."""
        file = self.folder / "x.yaml"
        if not file.exists() or self.key not in file.read_text():
            file.write_text(FILE.replace("KEY", self.key))
            self.warm = Warm()
        self.files += 1
        lines = [self._message(row, 100 * self.files + n) for n, row in enumerate(rows)]
        (self.folder / f"in-{self.files}.jsonl").write_text("".join(f"{one}\n" for one in lines))
        return run(self.spark, load(file), warm=self.warm)

    def _message(self, row: dict[str, str | None] | str, at: int) -> str:
        moment = 1714521600000 + at
        place = {"database": "yard", "table": "box", "es": moment, "ts": moment, "id": at}
        if isinstance(row, str):
            return json.dumps({**place, "isDdl": True, "type": "DDL", "sql": row})
        members = {"data": [row], "mysqlType": dict.fromkeys(row, "int"), "old": None, "pkNames": ["id"]}
        return json.dumps({**place, **members, "isDdl": False, "type": "INSERT", "sql": ""})

    def type(self, *words: str) -> tuple[int, Any]:
        """The exit code and the answer of a command about the pipeline."""
        verb, rest = (words[:2], words[2:]) if words[:2] == ("rejects", "dismiss") else (words[:1], words[1:])
        done = CliRunner().invoke(app, [*verb, str(self.folder / "x.yaml"), *rest, "--output", "json"])
        return done.exit_code, json.loads(done.stdout)

    def ids(self) -> list[int]:
        """The rows of the mirror."""
        _, found = self.type("sql", "SELECT id FROM yard.box ORDER BY id")
        return [row["id"] for row in found]


def said(sentences: list[str]) -> list[str]:
    """What is said of changes that were not applied."""
    return [one for one in sentences if "not applied" in one]


@pytest.fixture
def yard(spark: SparkSession, tmp_path: Path) -> Yard:
    """A batch with a row that has no key: its run fails, and names it."""
    found = Yard(spark, tmp_path)
    [failure] = said(found.run({"id": "1", "no": "7"}, {"id": "2", "no": None}).failures)
    assert "yard.box: 1 change was not applied: a cell of the key no (int32) is missing, NULL" in failure
    assert [1] == found.ids()
    again = found.run({"id": "3", "no": "8"})  # the mirror still lacks the row
    assert ([], 1) == (said(again.failures), len(said(again.warnings)))
    return found


def test_another_key_that_every_row_has(yard: Yard) -> None:
    """Its batch used to end with one warning, and with all checks green."""
    yard.key = "id"
    after = yard.run({"id": "4", "no": None})
    assert ([], []) == (said(after.failures), said(after.warnings))
    assert [1, 2, 3, 4] == yard.ids()
    assert 0 == yard.type("quality")[0]
    assert (0, []) == yard.type("rejects")


def test_a_reject_that_is_dismissed(yard: Yard) -> None:
    """A user who has corrected the row at its source must be able to say so."""
    yard.run({"id": "2", "no": "9"})
    assert 1 == yard.type("quality")[0]
    assert 0 == yard.type("rejects", "dismiss", "1", "--reason", "corrected")[0]
    assert 0 == yard.type("quality")[0]
    after = yard.run({"id": "5", "no": "10"})
    assert ([], []) == (said(after.failures), said(after.warnings))
    assert [1, 2, 3, 5] == yard.ids()


AGAIN = ["DROP TABLE box", "CREATE TABLE box (id INT, no INT PRIMARY KEY)"]


@pytest.mark.parametrize("statements", [AGAIN, pytest.param(["TRUNCATE TABLE box"], marks=pytest.mark.slow)])
def test_a_table_that_is_empty_since_lacks_nothing(yard: Yard, statements: list[str]) -> None:
    """Whatever was refused before: the source has none of these rows any more."""
    after = yard.run(*statements, {"id": "5", "no": "10"})
    assert ([], []) == (said(after.failures), said(after.warnings))
    assert [5] == yard.ids()
    assert (0, []) == yard.type("rejects")
    within = yard.run({"id": "6", "no": None}, *statements, {"id": "7", "no": "11"})
    assert ([], []) == (within.failures, within.warnings)
    assert [7] == yard.ids()
    assert 0 == yard.type("quality")[0]
