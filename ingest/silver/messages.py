"""Some of bronze's messages, to be decoded or searched where they are: in data files, or as Spark reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.errors import counted
from ingest.silver.lift import INPUT, Batches
from ingest.spark.tasks import Load, Work, dealt
from ingest.tables.datafiles import FilePart
from ingest.tables.lake import BatchSpan, Lake
from ingest.tables.schemas import BRONZE

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
    batches: str = ""  # theirs, in words
    about: str = ""  # what is looked for, in words

    def through(self, look: Callable[[Batches], Batches], ddl: str) -> list[dict[str, Any]]:
        """Apply a function to the messages, given in batches of their columns `INPUT`."""
        if self.pieces is None:
            return [row.asDict() for row in self.frame().select(*INPUT).mapInArrow(look, ddl).collect()]
        load = Load(sum(piece.rows for piece in self.pieces), sum(piece.size for piece in self.pieces))
        count = max(self.cores, load.size // _TASK)

        def deal(pieces: Sequence[FilePart]) -> list[list[FilePart]]:
            parts = [part for piece in pieces for part in piece.parts()]
            return dealt(parts, lambda part: part.rows, count)

        about = self.about or f"about {counted(load.rows, 'message')}"
        work = Work(
            "silver", self.pieces, lambda pieces: look(_read(pieces)), ddl, deal, load, self.batches, about
        )
        return list(self.lake.runner.rows(work))


def of_batches(lake: Lake, span: BatchSpan, cores: int) -> Messages:
    """The messages of some batches."""

    def frame() -> DataFrame:
        return lake.read(BRONZE.name).where((F.col("kind") == "message") & F.col("batch").between(*span))

    first, last = span
    batches = f"batch {last}" if first == last else f"batches {first} to {last}"
    return Messages(lake, frame, lake.pieces(BRONZE, WANTED, {"message"}, span), cores, batches)


def _read(pieces: Sequence[FilePart]) -> Batches:
    for piece in pieces:
        for rows in piece.read():
            yield from rows.combine_chunks().to_batches(max_chunksize=_AT_ONCE)
