"""The changes of bronze's data files as data files of their own, written where they are decoded.

Runs in Python workers, and for few messages in the driver; imports no Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from ingest.lake.datafiles import Added, Files, Layout, Piece
from ingest.lake.schemas import BRONZE
from ingest.silver.lift import INPUT, Lifting, lift

WANTED = pa.schema([BRONZE.arrow.field(name) for name in INPUT])
REPORT = "file BINARY"
_AT_ONCE = 2_000  # messages: their changes are Python objects for a while
Batches = Iterator[pa.RecordBatch]


def decoded(pieces: Sequence[Piece], how: Lifting, layout: Layout) -> list[Added]:
    """Decode the messages of some pieces into new files."""
    with Files(layout) as files:
        for page in lift(how)(_messages(pieces)):
            files.add(page)
        return files.finish()


def decoding(tasks: Sequence[Sequence[Piece]], how: Lifting, layout: Layout) -> Callable[[Batches], Batches]:
    """The function that ``mapInArrow`` runs over the numbers of tasks; it reports the files."""

    def run(batches: Batches) -> Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                told = [one.to_json() for one in decoded(tasks[number], how, layout)]
                yield pa.RecordBatch.from_arrays([pa.array(told, pa.binary())], ["file"])

    return run


def dealt(pieces: Sequence[Piece], tasks: int) -> list[list[Piece]]:
    """Neighbouring row groups to so many tasks of about equal size, or fewer."""
    parts = [part for piece in pieces for part in piece.parts()]
    share = sum(part.rows for part in parts) / tasks
    found: list[list[Piece]] = [[]]
    filled = 0
    for part in parts:
        if filled >= share * len(found) and len(found) < tasks:
            found.append([])
        found[-1].append(part)
        filled += part.rows
    return found


def _messages(pieces: Sequence[Piece]) -> Batches:
    for piece in pieces:
        for rows in piece.read():
            yield from rows.combine_chunks().to_batches(max_chunksize=_AT_ONCE)
