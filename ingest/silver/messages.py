"""Some of bronze's messages, to be decoded or searched where they are: in data files, or as Spark reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.lake import stores
from ingest.lake.datafiles import FilePart
from ingest.lake.lake import BatchSpan, Lake
from ingest.lake.schemas import BRONZE
from ingest.silver.lift import INPUT, Batches
from ingest.spark.deferred import patience
from ingest.spark.tasks import dealt, each

FEW, _LITTLE = 4_000, 8 << 20  # messages, and bytes of their files, that this process handles itself
_TASK = 128 << 20  # bytes of bronze's files for one task
_AT_ONCE = 2_000  # messages: they become Python objects for a while
WANTED = BRONZE.part(*INPUT)


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages; ``pieces`` is None where Spark must read them."""

    lake: Lake
    frame: Callable[[], DataFrame]
    pieces: Sequence[FilePart] | None = None
    cores: int = 1  # tasks that run at once

    def through(self, look: Callable[[Batches], Batches], ddl: str) -> list[dict[str, Any]]:
        """Apply a function to the messages, given in batches of their columns `INPUT`."""
        if self.pieces is None:
            rows = self.frame().select(*INPUT).mapInArrow(look, ddl).collect()
        elif self._are_few(self.pieces):
            return [row for page in look(_read(self.pieces)) for row in page.to_pylist()]
        else:
            size = sum(piece.size for piece in self.pieces)
            parts = [part for piece in self.pieces for part in piece.parts()]
            tasks = dealt(parts, lambda part: part.rows, max(self.cores, size // _TASK))
            numbers = self.lake.spark.range(0, len(tasks), 1, len(tasks))
            task = stores.carried(each(tasks, lambda task: look(_read(task))), self.lake.pipeline.lake)
            rows = numbers.mapInArrow(task, ddl).collect()
        return [row.asDict() for row in rows]

    def _are_few(self, pieces: Sequence[FilePart]) -> bool:
        times = patience(self.lake.spark)
        few = sum(one.rows for one in pieces) <= FEW * times
        return few and sum(one.size for one in pieces) <= _LITTLE * times


def of_batches(lake: Lake, span: BatchSpan, cores: int) -> Messages:
    """The messages of some batches."""

    def frame() -> DataFrame:
        return lake.read(BRONZE.name).where((F.col("kind") == "message") & F.col("batch").between(*span))

    return Messages(lake, frame, lake.pieces(BRONZE, WANTED, {"message"}, span), cores)


def _read(pieces: Sequence[FilePart]) -> Batches:
    for piece in pieces:
        for rows in piece.read():
            yield from rows.combine_chunks().to_batches(max_chunksize=_AT_ONCE)
