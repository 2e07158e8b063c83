"""A run killed at every named point, and run again: nothing lost, nothing doubled."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.errors import IngestError
from ingest.lake.lake import Lake
from ingest.run import run
from tests.lakes import Depot, counted, doubled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

GUARDED = ("bronze", "changes", "ddl", "rejects", "books")
HISTORY = ("decisions", "runs")
STAGES = ("bronze", "silver", "gold")
POINTS = [
    *(("append", table, when) for table in GUARDED for when in ("before", "after")),
    *(("append_unguarded", table, when) for table in HISTORY for when in ("before", "after")),
    *(("merge", "mirrors", when) for when in ("before", "after")),
    *(("load", "mirrors", when) for when in ("before", "after")),
    ("remove", "lock", "before"),
]


class KilledError(BaseException):
    """Ends a run as a kill does: nothing that catches errors catches it."""


def breaking(
    monkeypatch: pytest.MonkeyPatch, what: str, table: str, when: str, error: type[BaseException]
) -> list[str]:
    """Make the first call of one function fail; gives the list in which the failure is noted."""
    from ingest.gold import merge as merging
    from ingest.gold import tables
    from ingest.lake.lockfile import LocalFile

    owner: Any = {"merge": merging, "load": tables, "remove": LocalFile}.get(what, Lake)
    done: list[str] = []
    original: Callable[..., Any] = getattr(owner, what)

    def wrapped(*given: Any, **named: Any) -> Any:
        hit = not done and (table in ("mirrors", "lock") or given[2].name == table)
        if hit and what == "append_unguarded" and not given[1]:
            hit = False  # no rows, no commit
        if hit:
            done.append(table)
            if when == "before":
                raise error
        result = original(*given, **named)
        if hit:
            raise error
        return result

    monkeypatch.setattr(owner, what, wrapped)
    return done


def needs_messages(point: tuple[str, str, str]) -> bool:
    """True for points that a run passes only if it has landed something."""
    return point[1] not in ("books", "runs", "lock")


def crash(spark: SparkSession, depot: Depot, point: tuple[str, str, str]) -> None:
    """One run that ends at the point."""
    what, table, when = point
    in_thread = what in ("merge", "load")
    with pytest.MonkeyPatch.context() as patch:
        done = breaking(patch, what, table, when, RuntimeError if in_thread else KilledError)
        if in_thread:  # one mirror's failure is its own
            result = run(spark, depot.pipeline, STAGES)
            assert 1 == result.exit_code
            assert 1 == sum("failed" in text for text in result.failures)
        else:
            with pytest.raises(KilledError):
                run(spark, depot.pipeline, STAGES)
    assert [table] == done
    if table == "lock":  # which a killed process leaves behind; this one lives
        left = Path(depot.pipeline.lake, "_ingest.lock")
        left.write_text(json.dumps(json.loads(left.read_text()) | {"started": 1.0, "jvm": None}))


def check(spark: SparkSession, depot: Depot) -> None:
    """The lake holds every message once, and the mirrors are what they must be."""
    lake = Lake(spark, depot.pipeline)
    assert {} == {name: count for name, count in doubled(lake).items() if count}
    found = counted(lake)
    assert (depot.lines, depot.lines) == (found["bronze"], found["messages"])
    assert (depot.slices, depot.slices) == (found["rejects"], found["rejected"])
    assert (depot.slices, depot.slices) == (found["statements"], found["ddl"])
    assert depot.expected() == depot.found(spark)


def test_a_run_killed_anywhere_is_finished_by_the_next(spark: SparkSession, tmp_path: Path) -> None:
    """What a killed run left would be lost, or written again together with the next batch.

    Every run but the last is killed; half of them find new messages, half only what was left.
    """
    depot = Depot(tmp_path)
    for point in POINTS:
        if needs_messages(point) or depot.slices % 2:
            depot.grow()
        crash(spark, depot, point)
    result = run(spark, depot.pipeline, STAGES)
    assert [] == result.failures
    check(spark, depot)


def test_after_each_kill_the_rerun_ends_with_the_same_lake(spark: SparkSession, tmp_path: Path) -> None:
    """Without new messages the rerun has only the killed run's rest to do, and must find all of it."""
    depot = Depot(tmp_path)
    for point in (
        ("append", "changes", "after"),
        ("append", "rejects", "after"),
        ("merge", "mirrors", "after"),
    ):
        depot.grow()
        crash(spark, depot, point)
        assert [] == run(spark, depot.pipeline, STAGES).failures
        check(spark, depot)


def test_of_two_runs_one_commits_a_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs without a lock between them would land the same messages twice."""
    from ingest.bronze import land as bronze
    from ingest.bronze.land import Positions, land

    depot = Depot(tmp_path)
    depot.grow()
    lake, other = Lake(spark, depot.pipeline), Lake(spark, depot.pipeline)
    original = bronze._frame

    def slow(*given: Any) -> Any:
        monkeypatch.setattr(bronze, "_frame", original)
        land(other, Positions(), 2)  # the other run is quicker
        return original(*given)

    monkeypatch.setattr(bronze, "_frame", slow)
    with pytest.raises(IngestError, match="run again"):
        land(lake, Positions(), 2)
    found = lake.read("bronze").where("kind = 'message'").count()
    assert depot.lines == found


def test_a_batch_is_committed_once_even_at_the_same_moment(spark: SparkSession, tmp_path: Path) -> None:
    """Delta skips the second commit of an identifier without a word: the run would think it had written."""
    from ingest.lake.schemas import DDL

    depot = Depot(tmp_path)
    lake, other = Lake(spark, depot.pipeline), Lake(spark, depot.pipeline)
    lake.ensure(DDL)
    frame = spark.createDataFrame([], DDL.ddl)
    row = spark.range(1).selectExpr("1L AS batch").join(frame.drop("batch"), how="left")
    seen = lake.snapshot(DDL.name)
    other.append(row, DDL, "silver", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lake, "snapshot", lambda self, name: seen)
        with pytest.raises(IngestError, match="committed by another run"):
            lake.append(row, DDL, "silver", 1)
    assert 1 == lake.read(DDL.name).count()
