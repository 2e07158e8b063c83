"""Kills and repeated tasks where Spark's tasks fold and Delta's MERGE applies: nothing lost, nothing doubled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ingest.gold.apply import apply_merge, merge
from ingest.gold.fold import arrow_files
from ingest.run import run
from ingest.spark import tasks
from ingest.tables.lake import Lake
from tests.lakes import Depot as Feed
from tests.lakes import change, touch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

STAGES = ("bronze", "silver", "gold")
BINS, LIDS = "mirrors/depot/bins", "mirrors/depot/lids"
Rows = list[tuple[int, str]]


class KilledError(BaseException):
    """Ends a run as a kill does: nothing that catches errors catches it."""


class Yard(Feed):
    """Two tables, whose mirrors Spark's tasks fold and a MERGE writes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "engine: spark\napply: merge\n")
        self.serial = 0

    def say(self, kind: str, *rows: tuple[int, str]) -> None:
        """The same changes of both tables."""
        lines = []
        for table in ("bins", "lids"):
            for number, word in rows:
                self.serial += 1
                old = [{"word": "?"}] if kind == "UPDATE" else None
                lines.append(change(kind, table, self.serial, {"id": str(number), "word": word}, old=old))
        with self.feed.open("a", encoding="utf-8") as file:
            file.writelines(lines)
        touch(self.feed, 3600 - self.serial)

    def batch(self, spark: SparkSession) -> None:
        """Run what was said."""
        assert [] == run(spark, self.pipeline, STAGES).failures

    def rows(self, spark: SparkSession) -> dict[str, Rows]:
        """The rows of both mirrors, each with its copies."""
        lake = Lake(spark, self.pipeline)
        return {
            path: sorted((row["id"], row["word"]) for row in lake.read(path).collect())
            for path in (BINS, LIDS)
        }


@pytest.fixture
def yard(spark: SparkSession, tmp_path: Path) -> Yard:
    """Both tables with three rows."""
    made = Yard(tmp_path)
    made.say("INSERT", (1, "a"), (2, "a"), (3, "a"))
    made.batch(spark)
    return made


def next_batch(yard: Yard) -> Rows:
    """A batch with a row of each kind; the rows that each mirror has after it."""
    yard.say("UPDATE", (1, "b"))
    yard.say("DELETE", (2, "a"))
    yard.say("INSERT", (4, "c"))
    return [(1, "b"), (3, "a"), (4, "c")]


def test_a_driver_killed_between_two_mirrors_merges_the_other_one_next(
    spark: SparkSession, yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first mirror's batch would be merged again, or the second's never."""
    wanted, commit, merged = next_batch(yard), apply_merge.commit, list[str]()
    monkeypatch.setattr("ingest.gold.apply.apply_arrow.MERGES", 1)

    def dies(*given: Any) -> Any:
        if merged:
            raise KilledError
        merged.append(given[2].path)
        return commit(*given)

    monkeypatch.setattr(apply_merge, "commit", dies)
    with pytest.raises(KilledError):
        run(spark, yard.pipeline, STAGES)
    monkeypatch.undo()
    [first] = merged
    lake = Lake(spark, yard.pipeline)
    versions = {path: lake.snapshot(path).version for path in (BINS, LIDS)}
    assert (wanted, 3) == (yard.rows(spark)[first], len(yard.rows(spark)[({BINS, LIDS} - {first}).pop()]))
    yard.batch(spark)
    assert {BINS: wanted, LIDS: wanted} == yard.rows(spark)
    lake = Lake(spark, yard.pipeline)
    assert versions[first] == lake.snapshot(first).version


def test_a_driver_killed_in_the_middle_of_a_merge_merges_again(
    spark: SparkSession, yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files that the MERGE has written are in the mirror's folder, and no version names them."""
    wanted, execute = next_batch(yard), merge.merge
    left: list[Path] = []

    def uncommitted(lake: Lake, mirror: Any, *given: Any, **named: Any) -> None:
        """Let a copy of the mirror take the MERGE, and keep only the data that it has written."""
        folder = Path(lake.path(mirror.path))
        before = lake.snapshot(mirror.path).version
        execute(lake, mirror, *given, **named)
        for entry in (folder / "_delta_log").glob(f"*{before + 1:020}.*"):
            entry.unlink()
        lake.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
        left.extend(folder.glob("*.parquet"))
        raise KilledError

    monkeypatch.setattr(merge, "merge", uncommitted)
    with pytest.raises(KilledError):
        run(spark, yard.pipeline, STAGES)
    monkeypatch.undo()
    assert left
    before = [(1, "a"), (2, "a"), (3, "a")]
    assert {BINS: before, LIDS: before} == yard.rows(spark)
    yard.batch(spark)
    assert {BINS: wanted, LIDS: wanted} == yard.rows(spark)


def test_tasks_that_run_twice_are_merged_once(
    spark: SparkSession, yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark starts a slow task again while the first still runs: the outcomes of both files would be merged."""
    wanted, each = next_batch(yard), tasks._each

    def twice(shares: Sequence[Sequence[Any]], work: Any) -> tasks.InArrow:
        once = each(shares, work)

        def run_twice(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            numbers = list(batches)
            list(once(iter(numbers)))  # the attempt whose report nobody takes
            yield from once(iter(numbers))

        return run_twice

    commit = apply_merge.commit
    found: dict[str, int] = {}

    def counted(lake: Lake, fold: Any, work: Any, made: Sequence[arrow_files.Written], counts: Any) -> Any:
        found[work.path] = len(list(Path(work.folder, work.staging).glob("*.parquet")))
        return commit(lake, fold, work, made, counts)

    monkeypatch.setattr(tasks, "_each", twice)
    monkeypatch.setattr(apply_merge, "commit", counted)
    yard.batch(spark)
    assert {BINS: 2, LIDS: 2} == found
    assert {BINS: wanted, LIDS: wanted} == yard.rows(spark)
    for path in (BINS, LIDS):
        folder = Path(Lake(spark, yard.pipeline).path(path))
        assert [] == [file.name for file in folder.iterdir() if file.name.startswith("parts-")]
