"""A table that is loaded again without a mark: the command of the message, typed as it is, ends with the source's rows."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ingest.cli.app import app
from ingest.config import load
from ingest.run import Warm, run
from ingest.tables.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ingest.config import Pipeline

Rows = dict[int, str]


def canal(op: str, key: int, text: str, at: int) -> str:
    """A row of Canal, of which only the order of arrival is known."""
    row = {"id": str(key), "text": text}
    message = {
        "data": [row],
        "database": "shop",
        "table": "item",
        "es": at,
        "ts": at,
        "id": at,
        "isDdl": False,
    }
    message |= {
        "mysqlType": {"id": "bigint", "text": "varchar(9)"},
        "pkNames": ["id"],
        "old": None,
        "sql": "",
    }
    return json.dumps(message | {"type": op})


def shareplex(op: str, key: int, text: str, at: int) -> str:
    """A row of SharePlex, with its place in the log."""
    meta = {"time": "2024-06-10T06:14:02", "op": op, "table": "shop.item", "scn": str(at), "seq": 1}
    return json.dumps({"meta": meta, "data": {"id": str(key), "text": text}})


def maxwell(op: str, key: int, text: str, at: int) -> str:
    """A row of Maxwell, without its place in the log."""
    message = {
        "database": "shop",
        "table": "item",
        "type": op.lower(),
        "ts": at,
        "primary_key_columns": ["id"],
    }
    return json.dumps(message | {"data": {"id": key, "text": text}})


def debezium(op: str, key: int, text: str, at: int) -> str:
    """A row of Debezium's own snapshot, by PostgreSQL: all are of one place in the log."""
    source = {
        "connector": "postgresql",
        "db": "shop",
        "schema": "p",
        "table": "item",
        "lsn": at,
        "snapshot": "true",
    }
    return json.dumps({"before": None, "after": {"id": key, "text": text}, "source": source, "op": "r"})


DIALECTS = {"canal": canal, "dts-shareplex": shareplex, "maxwell": maxwell, "debezium": debezium}


@dataclass(slots=True)
class Loads:
    """A pipeline whose table comes in full, more than once."""

    folder: Path
    dialect: str
    warm: Warm = field(default_factory=Warm)
    files: int = 0
    at: int = 100

    @property
    def pipeline(self) -> Pipeline:
        """As its file has it."""
        file = self.folder / "my shop.yaml"
        file.write_text(
            f"pipeline: shop\nlake: ./lake\nengine: auto\nrewrite_budget: 4 MiB\nsources:\n  - {{name: s, kind: files, format: {self.dialect}, "
            "path: './in-*.jsonl', settle: 0s}\ntables:\n  - {match: '*', keys: [id], columns: {id: int64, text: string}}\n",
            "utf-8",
        )
        return load(file)

    def land(self, rows: Rows, op: str = "INSERT") -> None:
        """One more file."""
        self.files, self.at = self.files + 1, self.at + 100
        line = DIALECTS[self.dialect]
        place = self.at if self.dialect == "debezium" else 0
        lines = [line(op, key, text, place or self.at + n) for n, (key, text) in enumerate(rows.items())]
        with (self.folder / f"in-{self.files}.jsonl").open("w") as file:
            file.writelines(f"{one}\n" for one in lines)

    def run(self, spark: SparkSession) -> tuple[list[str], list[str]]:
        """Failures and warnings of the next batch."""
        found = run(spark, self.pipeline, warm=self.warm)
        assert ["done"] == [one.state for one in found.mirrors]
        return found.failures, found.warnings

    def type(self, sentence: str) -> None:
        """The command in a sentence."""
        [line] = re.findall("`(ingest epoch [^`]*)`", sentence)
        done = CliRunner().invoke(app, shlex.split(line)[1:])
        assert 0 == done.exit_code, done.output
        self.warm = Warm()

    def rows(self, spark: SparkSession) -> Rows:
        """The mirror."""
        from ingest.ledgers import mirrors

        lake = Lake(spark, self.pipeline)
        [mirror] = mirrors.known(lake).values()
        found = lake.ask_mirror(mirror.path, "SELECT id, text FROM {mirror}")
        assert len(found) == len({row["id"] for row in found})
        return {row["id"]: row["text"] for row in found}

    def settles(self, spark: SparkSession, rows: Rows) -> None:
        """The mirror has these rows, and neither the next batch nor a check of everything complains."""
        assert rows == self.rows(spark)
        self.land({90: "new"})
        said = self.run(spark)
        assert [] == [one for some in said for one in some if "again" in one or "set back" in one]
        assert rows | {90: "new"} == self.rows(spark)
        done = CliRunner().invoke(app, ["quality", str(self.pipeline.file), "--output", "json"])
        assert 0 == done.exit_code, done.output


FIRST, SECOND = {1: "a", 2: "b", 3: "c"}, {1: "a", 2: "B", 4: "d"}


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_second_load_in_a_batch_of_its_own(spark: SparkSession, tmp_path: Path, dialect: str) -> None:
    """The advice to name another key led to no right mirror: row 3, which the source lacks, stayed."""
    mine = Loads(tmp_path, dialect)
    mine.land(FIRST)
    assert ([], []) == mine.run(spark)
    mine.land(SECOND)
    failures, warnings = mine.run(spark)
    [message] = [one for one in (*failures, *warnings) if "again with other values" in one]
    assert "which began in batch 2," in message
    mine.type(message)
    mine.settles(spark, SECOND)


@pytest.mark.e2e
@pytest.mark.spark
def test_a_second_load_in_several_batches(spark: SparkSession, tmp_path: Path) -> None:
    """Its first batches may bring nothing but what was there: an epoch that begins after them would remove their rows."""
    mine = Loads(tmp_path, "canal")
    mine.land(FIRST)
    mine.run(spark)
    mine.land({9: "x"})
    mine.run(spark)
    for some in ({1: "a"}, {2: "B"}, {4: "d"}):
        mine.land(some)
        failures, warnings = mine.run(spark)
        assert [] == failures or some == {2: "B"}
        message = [*failures, *warnings] or [""]
    assert "which began in batch 3," in message[0]
    mine.type(message[0])
    mine.settles(spark, SECOND)


@pytest.mark.one_of(2)
@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.parametrize("apart", [True, False])
def test_a_second_load_in_the_batch_of_the_first(spark: SparkSession, tmp_path: Path, *, apart: bool) -> None:
    """No batch has the second one alone; in a file of its own it begins with the file, whichever row comes first."""
    mine = Loads(tmp_path, "canal")
    mine.land(FIRST)
    second = {0: "z", **SECOND} if apart else SECOND
    mine.land(second)
    if not apart:
        both = "".join((tmp_path / f"in-{n}.jsonl").read_text() for n in (1, 2))
        (tmp_path / "in-2.jsonl").unlink()
        (tmp_path / "in-1.jsonl").write_text(both)
    failures, _ = mine.run(spark)
    [failure] = [one for one in failures if "again with other values" in one]
    assert "which began with message " in failure
    mine.type(failure)
    mine.settles(spark, second)


@pytest.mark.spark
def test_one_command_for_all_tables_that_a_connector_loads_again(spark: SparkSession, tmp_path: Path) -> None:
    """Typed one by one, each command decodes all later batches again; a table of which one row came again must not be emptied."""
    mine = Loads(tmp_path, "canal")

    def land(**tables: Rows) -> list[str]:
        """A batch with rows of several tables."""
        lines = []
        for table, rows in tables.items():
            mine.land(rows)
            file = tmp_path / f"in-{mine.files}.jsonl"
            lines.append(file.read_text().replace('"item"', f'"{table}"'))
            file.unlink()
        file.write_text("".join(lines))
        result = run(spark, mine.pipeline, warm=mine.warm)
        assert {"done"} == {one.state for one in result.mirrors}
        return [*result.failures, *result.warnings]

    def rows(table: str) -> Rows:
        mirror = Lake(spark, mine.pipeline).ask_mirror(
            f"mirrors/shop/{table}", "SELECT id, text FROM {mirror}"
        )
        return {row["id"]: row["text"] for row in mirror}

    assert [] == land(item=FIRST, box=FIRST, shelf=FIRST, bin=FIRST)
    said = land(item=SECOND, box={1: "a", 3: "c"}, shelf={2: "B"})
    [message] = [text for text in said if "item" in text and "again with other values" in text]
    assert "--resnapshot shop.box --resnapshot shop.item --complete" in message
    assert "and of 1 other table that began with it" in message
    mine.type(message)
    assert SECOND == rows("item")
    assert {1: "a", 3: "c"} == rows("box")
    assert FIRST | {2: "B"} == rows("shelf")
    assert FIRST == rows("bin")
