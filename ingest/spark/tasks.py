"""Divide work among Spark tasks that yield Arrow batches."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

Item = TypeVar("Item")
_OBJECTS = 100_000  # before the collector looks for cycles: usually it would, several times for each page of messages


def dealt(items: Sequence[Item], weight: Callable[[Item], int], count: int) -> list[list[Item]]:
    """Assign neighbouring items to at most so many tasks of about equal weight."""
    share = sum(map(weight, items)) / count
    tasks: list[list[Item]] = [[]]
    filled = 0
    for one in items:
        own = weight(one)
        if tasks[-1] and filled + own / 2 >= share * len(tasks) and len(tasks) < count:
            tasks.append([])  # an item belongs where its middle lies
        tasks[-1].append(one)
        filled += own
    return tasks


def each(
    tasks: Sequence[Sequence[Item]], run: Callable[[Sequence[Item]], Iterator[pa.RecordBatch]]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that ``mapInArrow`` runs over the numbers of tasks."""

    def run_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        usual = gc.get_threshold()
        gc.set_threshold(_OBJECTS, *usual[1:])
        try:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from run(tasks[number])
        finally:
            gc.set_threshold(*usual)

    return run_all
