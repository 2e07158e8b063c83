"""A run or a verb killed at every named point, and run again: nothing lost, nothing doubled."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ingest.errors import IngestError
from ingest.result import STAGES as ALL_STAGES
from ingest.run import run
from ingest.tables.lake import Lake
from tests.lakes import FORMAT, Depot, change, counted, doubled, touch, write_by_spark
from tests.scenarios.crashing import AFTER, BEFORE, WRITTEN, Point, Stores, killed_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

STAGES = ("bronze", "silver", "gold")
BOTH, ALL = (BEFORE, AFTER), (BEFORE, WRITTEN, AFTER)


def points(layer: str, call: str, subject: str, moments: tuple[str, ...]) -> list[Point]:
    """One call's points."""
    return [Point(layer, call, subject, when) for when in moments]


RUN_POINTS = [
    *points("bronze", "append", "bronze", ALL),
    *points("bronze", "remove", "lock", (BEFORE,)),
    *points("bronze", "take over", "lock", BOTH),
    *points("bronze", "create", "lock", (AFTER,)),
    *points("silver", "append", "changes", ALL),
    *points("silver", "append", "ddl", BOTH),
    *points("silver", "append", "rejects", BOTH),
    *points("silver", "append", "books", ALL),
    *points("gold", "note", "decisions", BOTH),
    *points("gold", "load", "mirror", ALL),
    *points("gold", "append", "rejects", BOTH),  # cells that do not fit
    *points("gold", "alter", "depot.crates", BOTH),
    *points("gold", "rewrite", "reshape", BOTH),
    *points("gold", "merge", "mirror", BOTH),
    *points("gold", "rewrite", "drop_columns", BOTH),
    *points("gold", "fold", "history", BOTH),
    *points("gold", "note", "runs", BOTH),
    *points("quality", "note", "checks", BOTH),
]

RERUN_POINTS = [
    Point("bronze", "append", "bronze", WRITTEN),  # the very first commit
    Point("silver", "append", "changes", WRITTEN),
    Point("silver", "append", "changes", AFTER),
    Point("silver", "append", "rejects", AFTER),
    Point("gold", "load", "mirror", WRITTEN),
    Point("gold", "merge", "mirror", AFTER),
    Point("gold", "rewrite", "drop_columns", BEFORE),
    Point("gold", "fold", "history", BEFORE),
]
SILVER_POINTS = [
    *points("silver", "publish", "changes", (WRITTEN, AFTER)),
    *points("silver", "publish", "ddl", (AFTER,)),
    *points("silver", "publish", "rejects", (AFTER,)),
    *points("silver", "publish", "books", (AFTER,)),
]
MIRROR_POINTS = [
    *points("gold", "publish", "histories/depot/bins", (AFTER,)),
    *points("gold", "publish", "mirrors/depot/bins", (WRITTEN, AFTER)),
    *points("gold", "note", "decisions", (AFTER,)),
]
EPOCH_POINTS = [
    *points("silver", "note", "decisions", (AFTER,)),
    *points("silver", "publish", "changes", (AFTER,)),
    *points("gold", "publish", "mirrors/depot/bins", (AFTER,)),
]
REPLAY_POINTS = points("bronze", "append", "bronze", BOTH)
UPKEEP_POINTS = [
    *points("bronze", "drop", "messages", (AFTER,)),
    *points("silver", "join", "changes", (AFTER,)),
    *points("gold", "delete", "bins", (AFTER,)),
]
LEAVES_WORK = ("books", "runs", "lock")  # points that a run also comes to if it lands nothing


def crash(spark: SparkSession, depot: Stores, point: Point) -> None:
    """One run that ends at the point."""
    if point.call == "rewrite":  # only a column that a finished run has made is widened, or dropped
        assert [] == run(spark, depot.pipeline, STAGES).failures
        depot.grow()
    with killed_at(point, depot.pipeline.lake):
        run(spark, depot.pipeline, ALL_STAGES if point.layer == "quality" else STAGES)


def finish(spark: SparkSession, depot: Stores) -> None:
    """A whole run, after which the lake holds every message once, and the mirrors are what they must be."""
    assert [] == run(spark, depot.pipeline, STAGES).failures
    lake = Lake(spark, depot.pipeline)
    assert {} == {name: count for name, count in doubled(lake).items() if count}
    found = counted(lake)
    assert (depot.lines, depot.lines) == (found["bronze"], found["messages"])
    assert (depot.slices, depot.slices) == (found["rejects"], found["rejected"])
    assert (depot.statements, depot.statements) == (found["statements"], found["ddl"])
    assert depot.slices == lake.read("rejects").where("kind = 'cell'").count()
    check_mirrors(lake, depot)


def check_mirrors(lake: Lake, depot: Stores) -> None:
    """Every mirror's rows, and the old states of the bins."""
    assert depot.expected() == depot.found(lake.spark)
    assert depot.crates() == [row.asDict() for row in lake.read("mirrors/depot/crates").sort("id").collect()]
    casks = lake.read("mirrors/depot/casks").collect()
    assert [(n, None) for n in range(depot.slices)] == sorted((row["id"], row["litres"]) for row in casks)
    states = lake.read("histories/depot/bins").select("id", "word", "is_current").collect()
    assert depot.states() == sorted((row["id"], row["word"], row["is_current"]) for row in states)


def test_a_run_killed_anywhere_is_finished_by_the_next(spark: SparkSession, tmp_path: Path) -> None:
    """What a killed run left would be lost, or written again together with the next batch.

    Every run but the last is killed; most of them find new messages, some only what was left.
    """
    depot = Stores(tmp_path)
    for point in RUN_POINTS:
        if point.subject not in LEAVES_WORK or depot.slices % 2:
            depot.grow()
        crash(spark, depot, point)
    finish(spark, depot)


@pytest.mark.parametrize("budget", ["4MiB", "1B"], ids=["files", "vectors"])
def test_a_run_killed_at_a_commit_by_arrow_is_finished_by_the_next(
    spark: SparkSession, tmp_path: Path, budget: str
) -> None:
    """A new file that no commit names yet would be read, or its rows would be written twice."""
    depot = Stores(tmp_path, more=f"rewrite_budget: {budget}\n")
    for point in points("gold", "commit", "mirror", BOTH):
        depot.grow()
        crash(spark, depot, point)
        depot.grow()
    finish(spark, depot)


def test_after_each_kill_the_rerun_ends_with_the_same_lake(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without new messages the rerun has only the killed run's rest to do, and must find all of it."""
    write_by_spark(monkeypatch)
    depot = Stores(tmp_path)
    for point in RERUN_POINTS:
        depot.grow()
        crash(spark, depot, point)
        if depot.slices > 1:  # the newest two columns of the crates
            finish(spark, depot)


@pytest.mark.parametrize("verb", ["silver", "mirrors", "epoch"])
def test_a_verb_killed_anywhere_is_given_again(spark: SparkSession, tmp_path: Path, verb: str) -> None:
    """After half a rebuild the next run must go on, and the command given again must complete it."""
    depot = Stores(tmp_path)
    for _ in range(2):
        depot.grow()
        assert [] == run(spark, depot.pipeline, STAGES).failures
    carried_out, where = VERBS[verb]
    for point in where:
        lake = Lake(spark, depot.pipeline)
        newest = lake.decoded()
        with killed_at(point, lake.pipeline.lake):
            carried_out(lake, newest)
        depot.grow()
        left = run(spark, depot.pipeline, STAGES).failures
        assert [] == [text for text in left if verb != "epoch" or "decoded again" not in text]
        carried_out(Lake(spark, depot.pipeline), newest)
    finish(spark, depot)


def test_a_killed_backfill_is_finished(spark: SparkSession, tmp_path: Path) -> None:
    """Silver is right already, so that nothing differs any more: the mirror would keep the wrong instant."""
    from ingest.cli.repair_verbs import decode_again

    depot = Depot(tmp_path)
    row: dict[str, str | None] = {"id": "1", "at": "2024-05-01 10:00:00"}
    depot.feed.write_text(change("INSERT", "bins", 1, row, mysqlType={"id": "bigint", "at": "timestamp"}))
    touch(depot.feed)
    assert [] == run(spark, depot.pipeline, STAGES).failures
    text = depot.file.read_text("utf-8")
    depot.file.write_text(text.replace("settle: 1s", "settle: 1s, options: {timezone: Asia/Shanghai}"))
    with killed_at(Point("silver", "publish", "books", AFTER), depot.pipeline.lake):
        decode_again(Lake(spark, depot.pipeline), 1, dry_run=False)
    [failure] = run(spark, depot.pipeline, STAGES).failures
    assert "depot.bins was folded from changes that have been decoded again since" in failure

    states = [one["state"] for one in decode_again(Lake(spark, depot.pipeline), 1, dry_run=False)]
    assert "rebuilt" == states[-1]
    lake = Lake(spark, depot.pipeline)
    [found] = lake.read("mirrors/depot/bins").selectExpr("CAST(at AS STRING) AS at").collect()
    assert "2024-05-01 02:00:00" == found["at"]
    assert [] == run(spark, depot.pipeline, STAGES).failures


def silver(lake: Lake, _newest: int) -> None:
    """Silver from bronze."""
    from ingest.silver.rebuild import rebuild

    found = rebuild(lake, 2, dry_run=False)
    assert {} == {name: one for name, one in found.differences.items() if not one.none}


def mirrors(lake: Lake, _newest: int) -> None:
    """One mirror and its old states from silver."""
    from ingest.gold.rebuild import rebuild

    [found] = rebuild(lake, ["depot.bins"], dry_run=False)
    assert ("rebuilt", True) == (found.state, found.difference is not None and found.difference.none)


def epoch(lake: Lake, newest: int) -> None:
    """An epoch that begins with a batch: what it holds is newer than all before it anyway."""
    from ingest.cli.epoch_verb import carry_out, decide
    from ingest.ledgers import epochs

    start = epochs.with_batch(newest, newest)
    decide(lake, "bins", start, [], "failover", complete=False, withdraw=False)
    assert [] == [one for one in carry_out(lake, "bins", start) if one["state"] != "rebuilt"]


VERBS: dict[str, tuple[Callable[[Lake, int], None], list[Point]]] = {
    "silver": (silver, SILVER_POINTS),
    "mirrors": (mirrors, MIRROR_POINTS),
    "epoch": (epoch, EPOCH_POINTS),
}


def test_a_killed_replay_is_not_replayed_twice(spark: SparkSession, tmp_path: Path) -> None:
    """The mark and the replay are one commit: given again, the verb finds what is left, and only that."""
    from ingest.ledgers.rejects import still_open
    from ingest.silver import replay
    from ingest.silver.decode import lifted, lifting

    depot = Stores(tmp_path)
    right = depot.file.read_text("utf-8")
    for point in REPLAY_POINTS:
        depot.file.write_text(right.replace(FORMAT, "oms-shareplex"), "utf-8")  # reads none of the messages
        depot.grow()
        run(spark, depot.pipeline, STAGES)
        depot.file.write_text(right, "utf-8")
        with killed_at(point, depot.pipeline.lake):
            replay.appoint(Lake(spark, depot.pipeline), lifting, lifted)
        replay.appoint(Lake(spark, depot.pipeline), lifting, lifted)
        assert [] == run(spark, depot.pipeline, STAGES).failures
    lake = Lake(spark, depot.pipeline)
    waiting = still_open(lake)
    assert waiting is not None
    assert depot.slices == waiting.where("kind = 'message'").count()
    assert depot.lines - depot.slices == lake.read("bronze").where("kind = 'replay'").count()
    assert {} == {name: count for name, count in doubled(lake).items() if count}
    check_mirrors(lake, depot)


def test_killed_upkeep_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Messages half dropped, or files half joined, would be read as a table that says something else."""
    from ingest.ledgers.maintenance import maintain

    depot = Stores(tmp_path)
    tomorrow = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=1)
    names = ["bronze", "changes", "mirrors/depot/bins"]

    def upkeep() -> None:
        maintain(Lake(spark, depot.pipeline), names, bronze_before=tomorrow)

    for point in UPKEEP_POINTS:
        depot.grow(broken=False)
        assert [] == run(spark, depot.pipeline, STAGES).failures
        with killed_at(point, depot.pipeline.lake):
            upkeep()
        assert run(spark, depot.pipeline, STAGES).batch is None
        upkeep()
    lake = Lake(spark, depot.pipeline)
    assert 0 == lake.read("bronze").where("kind = 'message'").count()
    assert depot.lines == counted(lake)["messages"]
    check_mirrors(lake, depot)


@pytest.mark.parametrize(("writer", "way"), [("spark", "_by_spark"), ("arrow", "_by_files")])
def test_of_two_runs_one_commits_a_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: str, way: str
) -> None:
    """Two runs without a lock between them would land the same messages twice."""
    from ingest.bronze import land as bronze
    from ingest.bronze.land import land
    from ingest.bronze.positions import Positions

    depot = Depot(tmp_path, "engine: auto\n")
    if writer == "spark":
        write_by_spark(monkeypatch)
    depot.grow()
    lake, other = Lake(spark, depot.pipeline), Lake(spark, depot.pipeline)
    original = getattr(bronze, way)

    def slow(*given: Any) -> Any:
        monkeypatch.setattr(bronze, way, original)
        land(other, Positions(), 2)  # the other run is quicker
        return original(*given)

    monkeypatch.setattr(bronze, way, slow)
    with pytest.raises(IngestError, match="run again"):
        land(lake, Positions(), 2)
    found = lake.read("bronze").where("kind = 'message'").count()
    assert depot.lines == found


@pytest.mark.parametrize("writer", ["spark", "arrow"])
def test_a_batch_is_committed_once_even_at_the_same_moment(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    """Delta silently skips a second commit of an identifier; the run would take it for its own."""
    from ingest.tables.schemas import DDL

    depot = Depot(tmp_path, "engine: auto\n")
    if writer == "spark":
        write_by_spark(monkeypatch)
    lake, other = Lake(spark, depot.pipeline), Lake(spark, depot.pipeline)
    lake.ensure(DDL)
    row = pa.table({"batch": [1]})
    seen = lake.snapshot(DDL.name)
    other.append(row, DDL, "silver", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lake, "snapshot", lambda self, name: seen)
        with pytest.raises(IngestError, match="committed by another run"):
            lake.append(row, DDL, "silver", 1)
    assert 1 == lake.read(DDL.name).count()
