"""Run a stage's work by Spark's tasks or in this process: the one place that decides which.

Work is a function over some items that yields pages of Arrow. With ``engine: spark`` Spark's tasks always run it, each
over its share of the items; with ``engine: auto`` this process does if there is less of it than a Spark job costs.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ingest.config.model import SPARK
from ingest.spark.deferred import has_started, named
from ingest.spark.pace import paced

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Item = TypeVar("Item")
Pages = Iterator["pa.RecordBatch"]
InArrow = Callable[[Pages], Pages]
"""What ``mapInArrow`` takes."""
ANY = 1 << 62  # bytes or rows: more than any limit
_OBJECTS = 100_000  # before the collector looks for cycles: usually it would, several times for each page of messages


@dataclass(frozen=True, slots=True)
class Load:
    """How much a piece of work is: messages or changes, and bytes to read."""

    rows: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Limit:
    """The most work of a stage that this process does itself, and how many times as much before a session has started,
    because that takes longer than the work.
    """

    rows: int
    size: int
    unstarted: int = 1

    def covers(self, load: Load, *, started: bool) -> bool:
        """True if a Spark job would cost more than the work."""
        times = 1 if started else self.unstarted
        return load.rows <= self.rows * times and load.size <= self.size * times


LIMITS = {
    "bronze": Limit(ANY, 4 << 20, unstarted=8),
    "silver": Limit(4_000, 8 << 20, unstarted=8),
    "gold": Limit(50_000, ANY),
    "quality": Limit(1_000_000, ANY),
    "maintain": Limit(ANY, 64 << 20, unstarted=8),
}
"""With ``engine: auto``, by stage. Nothing else decides between tasks and this process."""


@dataclass(frozen=True, slots=True)
class Work(Generic[Item]):
    """A stage's work on some items.

    Attributes:
        stage: whose work it is.
        items: what is worked on.
        run: does some of the items; yields what it reports, in the columns of ``columns``.
        columns: of the report, as Spark's DDL.
        deal: the items as shares, one for each task.
        load: how much all of it is.
        batches: whose work it is, in words, and
        about: how many of what, for who reads Spark's pages.
        pool: threads of this process that ``run`` may deal its items to, by its argument ``across``.
    """

    stage: str
    items: Sequence[Item]
    run: Callable[..., Pages]
    columns: str
    deal: Callable[[Sequence[Item]], Sequence[Sequence[Item]]]
    load: Load
    batches: str = ""
    about: str = ""
    pool: ThreadPoolExecutor | None = None

    def description(self, pipeline: str) -> str:
        """What its Spark job is called: ``ingest shop batch 17 gold: 12 mirrors``."""
        whose = " ".join(filter(None, ("ingest", pipeline, self.batches, self.stage)))
        return f"{whose}: {self.about}" if self.about else whose


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs the work of a pipeline where its ``engine:`` says.

    ``carried`` makes a function reach the lake from wherever Spark runs it.
    """

    spark: SparkSession
    pipeline: str
    engine: str
    carried: Callable[[InArrow], InArrow]

    def rows(self, work: Work[Any], same_job: Sequence[DataFrame] = ()) -> Iterator[dict[str, Any]]:
        """What the work reports, row by row; ``same_job`` are frames of the same columns, read in the same Spark job."""
        if not same_job and not work.items:
            return
        if same_job or self.in_tasks(work.stage, work.load):
            yield from self._by_tasks(work, same_job)
        else:
            run = work.run if work.pool is None else partial(work.run, across=work.pool.map)
            yield from (row for page in run(work.items) for row in page.to_pylist())

    def _by_tasks(self, work: Work[Any], same_job: Sequence[DataFrame]) -> list[dict[str, Any]]:
        with named(self.spark, work.description(self.pipeline)):
            frames = [*same_job, *([self.frame(work)] if work.items else [])]
            with paced(self.spark, work.load.rows) if same_job else nullcontext():
                return [row.asDict() for row in reduce(_union, frames).collect()]

    def in_tasks(self, stage: str, load: Load) -> bool:
        """True if Spark's tasks do this much work of a stage."""
        return in_tasks(self.engine, stage, load, started=has_started(self.spark))

    def frame(self, work: Work[Any]) -> DataFrame:
        """What Spark's tasks report of the work."""
        shares = work.deal(work.items)
        numbers = self.spark.range(0, len(shares), 1, len(shares))
        return numbers.mapInArrow(self.carried(_each(shares, work.run)), work.columns)


def in_tasks(engine: str, stage: str, load: Load, *, started: bool) -> bool:
    """True if Spark's tasks do this much work of a stage, where a session has started or not."""
    return engine == SPARK or not LIMITS[stage].covers(load, started=started)


def dealt(items: Sequence[Item], weight: Callable[[Item], int], count: int) -> list[list[Item]]:
    """Assign neighbouring items to at most so many tasks of about equal weight."""
    share = sum(map(weight, items)) / count
    tasks: list[list[Item]] = [[]]
    filled = 0
    for item in items:
        size = weight(item)
        if tasks[-1] and filled + size / 2 >= share * len(tasks) and len(tasks) < count:
            tasks.append([])  # an item belongs where its middle lies
        tasks[-1].append(item)
        filled += size
    return tasks


def one_each(items: Sequence[Item]) -> list[list[Item]]:
    """Each item is a task of its own."""
    return [[item] for item in items]


def _each(shares: Sequence[Sequence[Any]], run: Callable[[Sequence[Any]], Pages]) -> InArrow:
    """The function that ``mapInArrow`` runs over the numbers of the shares."""

    def run_all(batches: Pages) -> Pages:
        usual = gc.get_threshold()
        gc.set_threshold(_OBJECTS, *usual[1:])
        try:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from run(shares[number])
        finally:
            gc.set_threshold(*usual)

    return run_all


def _union(frame: DataFrame, other: DataFrame) -> DataFrame:
    return frame.unionByName(other)
