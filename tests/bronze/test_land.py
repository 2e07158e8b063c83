"""Landing through a whole run: growth, alarms, huge and broken files, all in one lake, run by run."""

from __future__ import annotations

import gzip
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from ingest.bronze.land import land, last_batch
from ingest.bronze.positions import Positions
from ingest.config import load
from ingest.ledgers.maintenance import maintain
from ingest.result import Result
from ingest.run import Warm, run
from ingest.silver.decode import decode
from ingest.tables import commits, delta, log
from ingest.tables.lake import Lake
from tests.lakes import FORMAT, Depot, change, counted, doubled, rows, touch, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.e2e]
STAGES = ("bronze", "silver")


class Yard:
    """A pipeline over a folder, read run by run in one session."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        file = folder / "yard.yaml"
        file.write_text(
            "pipeline: yard\nlake: ./lake\nengine: auto\nsources:\n"
            f"  - {{name: rows, kind: files, path: './in/**/*.jsonl*', format: {FORMAT}, max_record_bytes: 2000}}\n",
            "utf-8",
        )
        (folder / "in").mkdir()
        self.pipeline = load(file)
        self.warm = Warm()
        self.serial = 0

    def lines(self, count: int) -> bytes:
        """Lines never written before."""
        first = self.serial
        self.serial += count
        return "".join(
            change("INSERT", "bins", n, {"id": str(n), "word": "w"}) for n in range(first, self.serial)
        ).encode()

    def write(self, name: str, data: bytes, mode: str = "wb") -> Path:
        """Write a file of the folder, settled."""
        path = self.folder / "in" / name
        path.parent.mkdir(exist_ok=True)
        with path.open(mode) as file:
            file.write(data)
        touch(path, 3600 - self.serial)
        return path

    def run(self, warm: Warm | None = None) -> Result:
        """The next run; a `Warm` of its own is another process'."""
        return run(self.spark, self.pipeline, STAGES, warm or self.warm)

    @property
    def lake(self) -> Lake:
        """The lake."""
        return Lake(self.spark, self.pipeline)


def test_a_folder_is_read_run_by_run(spark: SparkSession, tmp_path: Path) -> None:
    """Whatever happens to files between runs, each message is landed once, or an alarm names what is missing."""
    yard = Yard(spark, tmp_path)
    result = yard.run()
    assert (None, 0, []) == (result.batch, result.read, result.failures)
    assert "matches no file yet" in result.warnings[0]

    first = yard.write("a b#1%20ä.jsonl", yard.lines(3) + b"\r\n\n" + b"x" * 5000 + b"\n")
    yard.write("deep/z.jsonl.gz", gzip.compress(yard.lines(500)))
    for number in range(40):
        yard.write(f"many/{number}.jsonl", yard.lines(1))
    result = yard.run()
    assert (1, 544, 1, []) == (result.batch, result.read, result.rejected, result.failures)
    found = versions(yard.lake)
    idle = yard.run(Warm())
    assert (None, 0) == (idle.batch, idle.read)
    assert found == versions(yard.lake)

    yard.write(first.name, yard.lines(2), "ab")
    half = yard.lines(1)
    young = yard.write("young.jsonl", yard.lines(1) + half[:20])
    os.utime(young)
    result = yard.run(Warm())
    assert (2, 3, []) == (result.batch, result.read, result.failures)

    young.write_bytes(young.read_bytes() + half[20:])
    first.write_bytes(first.read_bytes().replace(b'"w"', b'"v"', 1))
    (tmp_path / "in/many/7.jsonl").write_bytes(b"")
    result = yard.run()
    assert (3, 1) == (result.batch, result.read)
    assert 1 == result.exit_code
    assert ["was rewritten" in result.failures[0], "shrank" in result.failures[1]] == [True, True]
    repeated = yard.run()
    assert result.failures == repeated.failures
    assert found["runs"] < versions(yard.lake)["runs"]
    written = versions(yard.lake)
    assert 1 == yard.run().exit_code
    assert written == versions(yard.lake)  # an alarm that lasts is reported again, not written again

    lake = yard.lake
    alarms = rows(lake, "SELECT DISTINCT message FROM runs WHERE state = 'alarm'")
    assert set(result.failures) == {alarm["message"] for alarm in alarms}
    assert {} == {name: count for name, count in doubled(lake).items() if count}
    ids = rows(
        lake, "SELECT count(DISTINCT get_json_object(after, '$.id')) AS n FROM changes WHERE kind = 'change'"
    )
    assert yard.serial == ids[0]["n"]


def test_messages_and_receipts_are_one_commit(spark: SparkSession, tmp_path: Path) -> None:
    """Receipts without their messages would be positions past messages that were never stored."""
    yard = Yard(spark, tmp_path)
    yard.write("a.jsonl", yard.lines(5))
    before = yard.lake.snapshot("bronze").version
    yard.run()
    yard.write("a.jsonl", yard.lines(5), "ab")
    yard.run()
    assert (-1, 2) == (before, yard.lake.snapshot("bronze").version)  # an empty table, batch 1 and batch 2
    kinds = rows(yard.lake, "SELECT batch, kind, count(*) AS n FROM bronze GROUP BY 1, 2 ORDER BY 1, 2")
    assert [(1, "message", 5), (1, "receipt", 1), (2, "message", 5), (2, "receipt", 1)] == [
        (row["batch"], row["kind"], row["n"]) for row in kinds
    ]


def test_thousands_of_small_files_are_one_quick_batch(spark: SparkSession, tmp_path: Path) -> None:
    """One Arrow batch per file would take minutes instead of seconds."""
    yard = Yard(spark, tmp_path)
    (tmp_path / "in/small").mkdir()
    for number in range(5000):
        (tmp_path / f"in/small/{number}.jsonl").write_bytes(yard.lines(1))
    started = time.monotonic()
    result = run(spark, yard.pipeline, ("bronze",))
    assert (1, 5000) == (result.batch, result.read)
    assert time.monotonic() - started < 240  # ten seconds on a machine with nothing else to do
    assert (
        5000
        == rows(yard.lake, "SELECT count(DISTINCT topic) AS n FROM bronze WHERE kind = 'message'")[0]["n"]
    )


def test_nothing_is_landed_after_a_broken_file_where_arrival_orders(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its rest, repaired later, would come after newer changes: the history would be reversed, silently."""
    yard = Yard(spark, tmp_path)
    (source,) = yard.pipeline.sources
    yard.pipeline = replace(yard.pipeline, sources=(replace(source, format="canal"),))
    whole = gzip.compress(yard.lines(2000), 1)
    yard.write("part-1.jsonl.gz", whole[:-400])
    yard.write("part-2.jsonl.gz", gzip.compress(yard.lines(1)))
    first = yard.run()
    assert any("What comes after it in source rows was not read" in text for text in first.failures)
    landed = Lake(spark, yard.pipeline).read("bronze").where("kind = 'message'")
    assert [] == [row for row in landed.select("topic").distinct().collect() if "part-2" in row["topic"]]
    yard.write("part-1.jsonl.gz", whole)
    yard.run()
    found = Lake(spark, yard.pipeline).read("changes").where("kind = 'change'").orderBy("order_key")
    ids = [int(row["id"]) for row in found.selectExpr("get_json_object(after, '$.id') AS id").collect()]
    assert list(range(2001)) == ids


def test_batches_may_be_written_in_either_way(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rows by Arrow, by Spark's tasks, and by Spark alone; a lake may change between these at any time."""
    depot = Depot(tmp_path, "engine: auto\n")
    auto = depot.file.read_text("utf-8")
    for engine, reach, links in (
        ("auto", True, True),
        ("spark", True, True),
        ("auto", False, True),
        ("spark", True, False),
        ("auto", True, True),
    ):
        monkeypatch.setattr(commits, "within_reach", lambda _path, reach=reach: reach)
        monkeypatch.setattr(commits, "takes_commits", lambda _path, links=links: links)
        depot.file.write_text(auto.replace("engine: auto", f"engine: {engine}"), "utf-8")
        depot.grow()
        result = run(spark, depot.pipeline, STAGES)
        warned = [text for text in result.warnings if "Arrow does not reach" in text]
        assert ([], engine == "auto" and not (reach and links)) == (result.failures, bool(warned))
    lake = Lake(spark, depot.pipeline)
    found = counted(lake)
    assert (depot.lines, depot.lines) == (found["bronze"], found["messages"])
    assert (5, 5, 5) == (found["rejects"], found["rejected"], found["statements"])
    assert {} == {name: count for name, count in doubled(lake).items() if count}


def test_spark_goes_on_with_what_was_committed_without_it(spark: SparkSession, tmp_path: Path) -> None:
    """A checkpoint that Spark understood in another way would lose rows, or who wrote which batch."""
    depot = Depot(tmp_path, "engine: auto\n")
    tables = ("bronze", "changes", "ddl", "rejects", "books")

    def work() -> None:
        depot.grow()
        lake = Lake(None, depot.pipeline)  # type: ignore[arg-type]
        land(lake, Positions(), 2)
        assert [] == decode(lake, last_batch(lake), 2).unbalanced

    def check(path: str) -> None:
        seen = spark.read.format("delta").load(path).toArrow().to_pylist()
        assert sorted(map(repr, seen)) == sorted(map(repr, pl.read_delta(path).to_arrow().to_pylist()))

    for _ in range(12):
        work()
    lake = Lake(spark, depot.pipeline)
    for name in tables:
        path = lake.path(name)
        assert [*Path(path, "_delta_log").glob("*.checkpoint.parquet")]
        assert delta.snapshot(path).transactions == log.snapshot(spark, path).transactions
        check(path)
    for version in (8, 10, 11):
        then = spark.read.format("delta").option("versionAsOf", version).load(lake.path("changes"))
        assert pl.read_delta(lake.path("changes"), version=version).height == then.count()
    maintain(lake, tables, vacuum=False)
    for _ in range(10):  # and a checkpoint of what Spark has joined
        work()
    for name in tables:
        check(lake.path(name))
    found = counted(lake)
    assert (depot.lines, depot.lines) == (found["bronze"], found["messages"])
    assert (22, 22, 22) == (found["rejects"], found["rejected"], found["statements"])
    assert {} == {name: count for name, count in doubled(lake).items() if count}
