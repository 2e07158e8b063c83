"""Work that Spark's tasks or this process do, and how it is divided among tasks."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.spark.tasks import LIMITS, InArrow, Load, Runner, Work, _each, dealt
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Part = tuple[int, int]


def shares(weights: list[int], count: int) -> list[int]:
    """The weight of each task."""
    parts: list[Part] = list(enumerate(weights))
    tasks = dealt(parts, itemgetter(1), count)
    assert parts == [one for task in tasks for one in task]
    return [sum(weight for _, weight in task) for task in tasks]


@pytest.mark.parametrize("first", [49_990, 50_000, 50_010])
def test_equal_parts_are_dealt_equally_whatever_rounding_does(first: int) -> None:
    """Four row groups, of which two hold a few rows less than half: one task got three of them, and took half as long again."""
    halves = shares([50_000, first, 50_000, 100_000 - first], 2)
    assert 2 == len(halves)
    assert max(halves) <= 100_020


@given(st.lists(st.integers(1, 100), min_size=1, max_size=40), st.integers(1, 8))
def test_no_task_is_heavier_than_its_share_and_one_item(weights: list[int], count: int) -> None:
    """The job would wait for one task while the other cores are idle."""
    found = shares(weights, count)
    assert len(found) <= count
    assert max(found) <= sum(weights) / count + max(weights)


def test_a_task_lets_many_objects_live_before_it_looks_for_cycles() -> None:
    """The collector's usual looks at each page's messages cost some of decoding; other code keeps its own threshold."""
    usual, seen = gc.get_threshold(), []

    def run(task: Sequence[int]) -> Iterator[pa.RecordBatch]:
        seen.append((list(task), gc.get_threshold()[0]))
        yield pa.RecordBatch.from_pydict({"n": list(task)})

    found = list(_each([[1, 2], [3]], run)(iter([pa.RecordBatch.from_pydict({"id": [1, 0]})])))
    assert [[3], [1, 2]] == [page["n"].to_pylist() for page in found]
    assert [([3], 100_000), ([1, 2], 100_000)] == seen
    assert usual == gc.get_threshold()


class Session:
    """A session that only counts its jobs."""

    def __init__(self) -> None:
        self.jobs: list[int] = []

    def range(self, _start: int, count: int, _step: int, _parts: int) -> SimpleNamespace:
        """The numbers of so many tasks."""
        self.jobs.append(count)
        numbers = iter([pa.RecordBatch.from_pydict({"id": list(range(count))})])

        def in_arrow(run: InArrow, _columns: str) -> SimpleNamespace:
            rows = [
                SimpleNamespace(asDict=partial(dict, row))
                for page in run(numbers)
                for row in page.to_pylist()
            ]
            return SimpleNamespace(collect=lambda: rows)

        return SimpleNamespace(mapInArrow=in_arrow)


def report(some: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """A row for each item."""
    yield pa.RecordBatch.from_pydict({"n": list(some)})


def work(stage: str, load: Load) -> Work[int]:
    """Five items for two tasks."""
    return Work(stage, [1, 2, 3, 4, 5], report, "n LONG", lambda items: [items[:2], items[2:]], load)


@pytest.mark.parametrize("stage", LIMITS)
@pytest.mark.parametrize(
    ("engine", "over", "by_tasks"), [("spark", 0, True), ("auto", 0, False), ("auto", 1, True)]
)
def test_the_engine_alone_says_where_work_is_done(stage: str, engine: str, over: int, by_tasks: bool) -> None:
    """Who asked for Spark looks for the jobs in its pages; who did not would wait for a job that costs more than its work."""
    session, limit = Session(), LIMITS[stage]
    load = Load(limit.rows + over, limit.size + over)
    runner = Runner(cast("SparkSession", session), "shop", engine, lambda run: run)
    assert [1, 2, 3, 4, 5] == [row["n"] for row in runner.rows(work(stage, load))]
    assert ([2] if by_tasks else []) == session.jobs


def test_nothing_to_do_is_no_job() -> None:
    """A run without news would start Java to do nothing."""
    runner = Runner(unstarted(), "shop", "spark", lambda run: run)
    assert [] == list(runner.rows(replace(work("gold", Load()), items=[])))


def test_before_a_session_has_started_more_is_little() -> None:
    """The start takes longer than eight times the work that a job is worth."""
    rows = LIMITS["silver"].rows
    waiting = Runner(unstarted(), "shop", "auto", lambda run: run)
    running = Runner(cast("SparkSession", Session()), "shop", "auto", lambda run: run)
    assert (False, True) == tuple(one.in_tasks("silver", Load(8 * rows)) for one in (waiting, running))
    assert waiting.in_tasks("silver", Load(8 * rows + 1))
