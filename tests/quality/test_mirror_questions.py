"""Keys and cells are compared by tasks or in the driver's process: what is found must be the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from ingest.change import TableId
from ingest.gold.plan.steps import steps_of
from ingest.ledgers import mirrors
from ingest.quality import key_checks, mirror_questions, stage
from ingest.quality.catalogue import CheckResult
from ingest.quality.mirror_questions import Answer
from ingest.quality.subjects import CheckedMirror
from ingest.run import run
from ingest.spark.deferred import NoSession
from ingest.tables import delta, duck
from ingest.tables.lake import Lake
from tests.lakes import Depot, change, touch
from tests.model import lakes
from tests.model.checks import CAPTURES
from tests.model.histories import SURE
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ingest.config import Pipeline
    from ingest.spark.tasks import InArrow

HISTORIES = 6


@dataclass
class Tasks:
    """A session whose tasks get what they do as bytes, as another process does; it reads no tables."""

    sparkContext: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(defaultParallelism=3))  # noqa: N815
    tasks: int = 0

    def range(self, _start: int, count: int, _step: int, _parts: int) -> SimpleNamespace:
        """The numbers of so many tasks."""
        self.tasks += count

        def rows(run: InArrow) -> Iterator[SimpleNamespace]:
            sent = cloudpickle.dumps(run)
            for number in range(count):
                task = cloudpickle.loads(sent)
                for page in task(iter([pa.RecordBatch.from_pydict({"id": [number]})])):
                    yield from (SimpleNamespace(asDict=lambda row=row: row) for row in page.to_pylist())

        return SimpleNamespace(
            mapInArrow=lambda run, _columns: SimpleNamespace(collect=lambda: list(rows(run)))
        )


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pipeline, Path]:
    """A lake with the mirrors of random histories of many dialects, some of which lack rows."""
    folder = tmp_path_factory.mktemp("histories")
    feeds = lakes.feeds(CAPTURES, range(HISTORIES), SURE, "questions")
    assert [] == lakes.played(unstarted(), feeds, folder)
    pipeline = lakes.pipeline_of(feeds, folder, "auto", None)
    for mirror in list(mirrors.known(Lake(unstarted(), pipeline)).values())[::3]:
        remove_a_file(f"{pipeline.lake}/{mirror.path}")
    return pipeline, folder


def remove_a_file(table: str) -> None:
    """Remove the rows of one file that has no deletion vector by a commit of another program."""
    state = delta.snapshot(table)
    if whole := [file for file in state.files if not file.deleted]:
        remove = {"path": whole[0].place, "deletionTimestamp": 1, "dataChange": True}
        log = Path(table, "_delta_log", f"{state.version + 1:020d}.json")
        log.write_text(json.dumps({"remove": remove}))


def verdicts(
    given: tuple[Pipeline, Path], folder: Path, engine: str, since: int
) -> tuple[list[CheckResult], int]:
    """What the checks find in a copy of the lake, and how many tasks they had."""
    pipeline = replace(given[0], lake=str(folder / "copy"), engine=engine)
    shutil.rmtree(pipeline.lake, ignore_errors=True)
    shutil.copytree(given[0].lake, pipeline.lake)
    session = Tasks()
    lake = Lake(cast("SparkSession", session), pipeline)
    found = stage.check(lake, since, steps=steps_of(lake)).verdicts
    return [one for one in found if one.metric.check != "freshness"], session.tasks


@pytest.mark.parametrize("since", [0, lakes.BATCHES - 1])
def test_tasks_find_what_the_driver_finds(filled: tuple[Pipeline, Path], tmp_path: Path, since: int) -> None:
    """A fault that only one of the two sees is seen or not by the size of the machine."""
    expected, none = verdicts(filled, tmp_path, "auto", since)
    found, tasks = verdicts(filled, tmp_path, "spark", since)
    assert expected == found
    assert (0, True) == (none, tasks > 0)
    if not since:
        assert 3 == tasks
        assert {"missing_rows", "wrong_cells"} <= {one.metric.check for one in found if one.state == "fail"}


def test_a_damaged_mirror_is_the_same_fault_in_a_task(filled: tuple[Pipeline, Path], tmp_path: Path) -> None:
    """The stage would stop for all mirrors, or the operator would read of the task instead of the file."""
    broken = tmp_path / "broken"
    shutil.copytree(filled[0].lake, broken)
    pipeline = replace(filled[0], lake=str(broken))
    known = mirrors.known(Lake(unstarted(), pipeline)).values()
    mirror = next(each for each in known if delta.snapshot(str(broken / each.path)).files)
    for file in (broken / mirror.path).glob("*.parquet"):
        file.write_bytes(b"nothing")
    expected, _ = verdicts((pipeline, broken), tmp_path, "auto", 0)
    found, _ = verdicts((pipeline, broken), tmp_path, "spark", 0)
    assert expected == found
    damaged = [one.metric for one in found if one.metric.check == "readable" and one.state == "fail"]
    assert [mirror.name] == [metric.mirror for metric in damaged]


def test_checks_that_need_no_cells_go_on_where_cells_are_damaged() -> None:
    """Their batch would never be checked again, and what they had found would never be said."""
    mirrors = [
        CheckedMirror(TableId(None, None, path), path, damage=damage)
        for path, damage in (("a", ""), ("b", "torn"), ("c", "torn"))
    ]
    answers = {
        "a": Answer("a"),
        "b": Answer("b", damage="torn"),
        "c": Answer("c", damage="torn", key_damage="torn"),
    }
    assert ["a", "b"] == [subject.path for subject in mirror_questions.sound(mirrors, answers)]
    assert ["a"] == [subject.path for subject in mirror_questions.sound(mirrors, {})], (
        "not asked: gone before"
    )


def test_what_no_task_can_read_is_left_to_the_driver(
    filled: tuple[Pipeline, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task has no session to read it with: a sound mirror would count as damaged, or not as checked."""
    expected, _ = verdicts(filled, tmp_path, "auto", 0)
    count = key_checks.count

    def by_session(lake: Lake, *given: Any) -> dict[str, key_checks.Counted]:
        if isinstance(lake.spark, NoSession):
            with key_checks.damage_noted(lake, given[0][0]):
                lake.spark.sql("SELECT 1")
        return count(lake, *given)

    monkeypatch.setattr(key_checks, "count", by_session)
    found, tasks = verdicts(filled, tmp_path, "spark", 0)
    assert (expected, 3) == (found, tasks)


def test_more_mirrors_take_no_more_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question for each mirror was half the time of a small batch that touched thirty."""
    asked: list[str] = []
    rows = duck.rows
    monkeypatch.setattr(duck, "rows", lambda query, *base: asked.append(query) or rows(query, *base))
    numbers = []
    for count in (2, 6):
        depot = Depot(tmp_path / str(count))
        for batch in range(2):
            with depot.feed.open("a") as feed:
                for n in range(count):
                    row = {"id": str(batch), "word": f"w{batch}"}
                    feed.write(change("INSERT", f"bins{n}", 100 * batch + n, row))
            touch(depot.feed, 3600 - batch)
            asked.clear()
            result = run(unstarted(), depot.pipeline)
            assert (count, []) == (len(result.mirrors), result.failures)
        numbers.append(len(asked))
    assert numbers[0] == numbers[1] > 0
