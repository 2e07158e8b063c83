"""Dividing work among tasks."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from operator import itemgetter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.spark.tasks import dealt, each

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

    found = list(each([[1, 2], [3]], run)(iter([pa.RecordBatch.from_pydict({"id": [1, 0]})])))
    assert [[3], [1, 2]] == [page["n"].to_pylist() for page in found]
    assert [([3], 100_000), ([1, 2], 100_000)] == seen
    assert usual == gc.get_threshold()
