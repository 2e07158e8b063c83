"""Where stages were done: counted from Spark's own books, told in words, and kept."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from ingest.inspect.status import status
from ingest.run import run
from ingest.spark import deferred
from ingest.spark.deferred import Deferred
from ingest.spark.jobs import NOWHERE, Ran, recorded, said, unused_cluster
from ingest.tables.lake import Lake
from tests.lakes import Depot
from tests.timing import PATIENCE
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_places_are_told_in_words() -> None:
    """`the driver` alone, or a number without its noun, leaves open whether the cluster was used."""
    assert "Spark, 1 job, 8 tasks on 2 executors" == str(Ran(1, 8, 2))
    assert "Spark, 3 jobs, 1 task on this machine" == str(Ran(3, 1))
    assert "gold: Spark, 1 job, 1 task on 1 executor; quality: the driver" == said(
        {"gold": Ran(1, 1, 1), "quality": NOWHERE}
    )


def test_rows_of_older_versions_say_nothing() -> None:
    """A run whose place was not recorded would be shown as one of the driver's."""
    nothing = dict.fromkeys(("ran", "jobs", "tasks", "executors"))
    assert recorded(nothing) is None
    assert Ran(1, 2, 3) == recorded({"ran": "spark", "jobs": 1, "tasks": 2, "executors": 3})


@pytest.mark.parametrize(
    ("master", "stages", "named"),
    [
        ("spark://far:7077", {"gold": NOWHERE}, "spark://far:7077"),
        ("spark://far:7077", {"gold": Ran(1, 2, 2), "quality": NOWHERE}, ""),
        ("spark://far:7077", {}, ""),  # nothing was to be done
        ("local[4]", {"gold": NOWHERE}, ""),
        ("", {"gold": Ran(1, 2)}, ""),
    ],
)
def test_a_cluster_that_was_not_used_is_named(master: str, stages: dict[str, Ran], named: str) -> None:
    """Every quarter of an hour somebody pays for a session and executors that do nothing."""
    assert named == unused_cluster(unstarted(), master, stages)
    session = SimpleNamespace(sparkContext=SimpleNamespace(master=master))
    assert named == unused_cluster(cast("SparkSession", session), "local", stages)


@pytest.mark.parametrize("engine", ["spark", "auto"])
def test_a_run_says_where_each_stage_was_done(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    """Whoever cannot see it has to believe it: in the result, in `runs`, and in the status."""
    depot = Depot(tmp_path, f"engine: {engine}\n")
    depot.grow()
    result = run(spark, depot.pipeline)
    by_spark = {stage: place.jobs for stage, place in result.ran.items() if place.where == "spark"}
    stages = ("bronze", "silver", "gold", "quality")
    assert (dict.fromkeys(stages, 1) if engine == "spark" else {}) == by_spark
    assert {"bronze", "silver", "gold", "quality"} == set(result.ran)
    lake = Lake(spark, depot.pipeline)
    rows = lake.ask("SELECT stage, ran, jobs, tasks, executors FROM {runs} WHERE subject IS NULL")
    assert result.ran == {row["stage"]: recorded(row) for row in rows}
    last = status(lake)["last_run"]
    assert {stage: place.document() for stage, place in result.ran.items()} == last["ran"]
    assert said(result.ran) == last["where"]
    again = run(spark, depot.pipeline)
    assert {} == again.ran  # nothing was to be done
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None  # the caller's jobs are not ours


def test_jobs_have_names_that_say_what_they_do(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Spark's pages every job would be called `collect at`, and nobody could tell which pipeline it belongs to."""
    monkeypatch.undo()  # else the test's name might have Spark SQL fold the mirrors, by jobs without a number of mirrors
    depot, names = Depot(tmp_path, "engine: spark\n"), list[str]()
    depot.grow()
    naming = Deferred._name

    def name(self: Deferred, session: Any) -> None:
        naming(self, session)
        names.append(str(spark.sparkContext.getLocalProperty("spark.job.description")))

    monkeypatch.setattr(Deferred, "_name", name)
    run(spark, depot.pipeline)
    assert "ingest depot batch 1 bronze: 1 file range" in names
    assert "ingest depot batch 1 silver: about 6 messages" in names
    assert "ingest depot batch 1 gold: 2 mirrors" in names


# --- a session that starts meanwhile ----------------------------------------------------------------


class Context:
    """A context that keeps what each thread's jobs are called."""

    def __init__(self) -> None:
        self.named: dict[str, dict[str, str | None]] = {}

    def setLocalProperty(self, key: str, value: str | None) -> None:  # noqa: N802 - Spark's name
        """Of the jobs of this thread."""
        self.named.setdefault(threading.current_thread().name, {})[key] = value


def test_jobs_are_named_in_whatever_thread() -> None:
    """Threads of a pool start jobs, too; unnamed they would not be counted."""
    context = Context()
    session = deferred.deferred(cast("SparkSession", SimpleNamespace(sparkContext=context, range=None)))
    with session.named("ingest shop gold", "run/gold"):
        thread = threading.Thread(target=lambda: session.range, name="other")
        thread.start()
        thread.join()
        with session.named("ingest shop gold batch 1: 2 mirrors"):
            inner = dict(context.named["MainThread"])
    group, text = "spark.jobGroup.id", "spark.job.description"
    assert {group: "run/gold", text: "ingest shop gold batch 1: 2 mirrors"} == inner
    assert {group: "run/gold", text: "ingest shop gold"} == context.named["other"]
    assert {group: None, text: None} == context.named["MainThread"]


def test_a_session_starts_while_others_go_on() -> None:
    """Its seconds would be added to those of the plan."""
    begun, go_on, started = threading.Event(), threading.Event(), []

    def start() -> SparkSession:
        begun.set()
        assert go_on.wait(PATIENCE)
        started.append(threading.current_thread().name)
        return cast("SparkSession", SimpleNamespace(sparkContext=None, version="4"))

    session = Deferred(start, "local[1]")
    session.begin()
    session.begin()
    assert begun.wait(PATIENCE)
    assert session.started is None
    go_on.set()
    assert "4" == session.version
    assert ["spark"] == started
    session.settle()


def test_a_start_that_fails_is_told_to_who_needs_the_session() -> None:
    """An error of a thread that nobody waits for is seen by nobody."""

    def start() -> SparkSession:
        raise ValueError("no Java")

    session = Deferred(start, "local[1]")
    session.begin()
    session.settle()
    with pytest.raises(ValueError, match="no Java"):
        session.now()
