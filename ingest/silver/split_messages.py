"""Messages that are parts of one: put together again, and read as one with the last of them.

A service that may send no larger messages cuts one into parts, which it sends one after the other (a format's ``part`` and
``joined``). What they hold is read at the place of the last part; the others of its batch are marks. A part whose rest has not
come in its batch is a reject, whatever came later, so that every rebuild says the same; the run that reads its rest closes it
(`ingest.silver.split_lookup`). Parts are put together where they are decoded, but for those that tasks or batches have separated.

This half runs in Python workers and imports no Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ingest import formats
from ingest.decoding.split import MessagePart
from ingest.lake.datafiles import listed
from ingest.lake.schemas import BRONZE

LARGEST = 256 << 20  # bytes of a whole message; the parts of a larger one are refused
READ_WITH_LAST = b""
"""In place of a whole message: this part is read with the last one."""
ROWS = "source STRING, topic STRING, `partition` INT, batch BIGINT, `offset` BIGINT, number INT, total INT, data BINARY"
_PLACE = ("source", "topic", "partition", "batch", "offset")
_ROW = pa.schema(
    [*BRONZE.part(*_PLACE), ("number", pa.int32()), ("total", pa.int32()), ("data", pa.binary())]
)


class Splitting(Protocol):
    """A format whose messages may be parts."""

    @staticmethod
    def part(value: bytes) -> MessagePart | None:
        """The part that a message is; None if it is whole."""

    @staticmethod
    def joined(parts: Sequence[bytes]) -> bytes:
        """A whole message of the data of its parts."""


class PartSpot(NamedTuple):
    """Where a part lies in bronze; parts of one source, topic and partition arrive in the order of batch and offset."""

    source: str
    topic: str
    partition: int
    batch: int
    offset: int


class Wholes(NamedTuple):
    """What parts became: by the place of the last one the whole message, by that of another `READ_WITH_LAST`.

    ``closed`` are parts of earlier batches that were rejects until the last one came, ``others`` those that each last one
    completes.
    """

    read: Mapping[PartSpot, bytes] = {}
    closed: tuple[PartSpot, ...] = ()
    others: Mapping[PartSpot, tuple[PartSpot, ...]] = {}


def splitting(name: str) -> Splitting | None:
    """The module of a format whose messages may be parts; None for any other."""
    module: Any = formats.load(name)
    return module if hasattr(module, "part") else None


@dataclass(slots=True)
class _Stream:
    """The parts of one stream, as they arrive."""

    waiting: list[tuple[PartSpot, MessagePart]] = field(default_factory=list)
    broken_off: list[tuple[PartSpot, MessagePart]] = field(default_factory=list)  # maybe they are sent again

    def take(self, spot: PartSpot, part: MessagePart) -> list[tuple[PartSpot, MessagePart]]:
        """Take the next part; all parts of its message if it is the last one, after those of it that had come before."""
        if part.number == 0:
            self.broken_off += self.waiting
            self.waiting = []
        elif len(self.waiting) != part.number or self.waiting[0][1].total != part.total:
            self.waiting = []
            return []
        self.waiting.append((spot, part))
        if sum(len(each.data) for _, each in self.waiting) > LARGEST:
            self.waiting = []
        if len(self.waiting) < part.total:
            return []
        whole = self.waiting
        again = [
            (place, each)
            for place, each in self.broken_off
            if whole[each.number : each.number + 1] and whole[each.number][1] == each
        ]
        self.waiting, self.broken_off = [], []
        return again + whole


Placed = tuple[PartSpot, MessagePart | None]
"""A part and its place; None for a message that was put together elsewhere, over which no other goes on."""


def put_together(parts: Iterable[Placed], joined: Callable[[Sequence[bytes]], bytes]) -> Wholes:
    """What the parts of one format become."""
    read: dict[PartSpot, bytes] = {}
    closed: list[PartSpot] = []
    others: dict[PartSpot, tuple[PartSpot, ...]] = {}
    ordered = sorted(parts, key=lambda placed: placed[0])
    for _, of_stream in groupby(ordered, key=lambda placed: placed[0][:3]):
        stream = _Stream()
        for spot, part in of_stream:
            if part is None:
                stream = _Stream()
                continue
            taken = stream.take(spot, part)
            for place, _ in taken[:-1]:
                if place.batch == spot.batch:
                    read[place] = READ_WITH_LAST
                else:
                    closed.append(place)
            if taken:
                others[spot] = tuple(place for place, _ in taken[:-1])
                read[spot] = joined([each.data for _, each in taken[-part.total :]])
    return Wholes(read, tuple(closed), others)


def of_batches(
    parts: Sequence[Placed], joined: Callable[[Sequence[bytes]], bytes]
) -> Mapping[PartSpot, bytes]:
    """What the parts become of which each batch has the whole message; others may need what another task reads."""
    read: dict[PartSpot, bytes] = {}
    for _, of_batch in groupby(
        sorted(parts, key=lambda placed: placed[0][3]), key=lambda placed: placed[0][3]
    ):
        read |= put_together(of_batch, joined).read
    return read


def parts_in(
    batch: pa.RecordBatch, part: Callable[[bytes], MessagePart | None]
) -> dict[int, tuple[PartSpot, MessagePart]]:
    """The parts among messages, by their rows."""
    parts = {
        at: read for at, value in enumerate(listed(batch.column("value"))) if value and (read := part(value))
    }
    if not parts:
        return {}
    places = zip(*(batch.column(name).take(pa.array(parts)).to_pylist() for name in _PLACE), strict=True)
    return {at: (PartSpot(*place), read) for (at, read), place in zip(parts.items(), places, strict=True)}


def part_rows(
    opened: Callable[[pa.RecordBatch], pa.RecordBatch],
    sources: Mapping[str, str],
    topics: Collection[str] | None = None,
    *,
    every: bool = False,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow``: the parts among messages as rows of `ROWS`, but for those that are put together where they are read.

    ``sources`` has the format of each source that may send parts, ``topics`` those that are asked about; ``every`` leaves none
    out. A message that is put together elsewhere has one row, at its last part, without data.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in map(opened, batches):
            rows: list[tuple[object, ...]] = []
            for name, format_name in sources.items():
                wanted = pc.equal(batch.column("source"), name)
                if topics is not None:
                    asked = pa.array(sorted(topics), pa.string())
                    wanted = pc.and_(wanted, pc.is_in(batch.column("topic"), asked))
                module = splitting(format_name)
                assert module is not None
                parts = list(parts_in(batch.filter(wanted), module.part).values())
                read = {} if every else of_batches(parts, module.joined)
                rows += [
                    (*spot, part.number, part.total, None if spot in read else part.data)
                    for spot, part in parts
                    if read.get(spot) != READ_WITH_LAST
                ]
            yield pa.RecordBatch.from_pylist([dict(zip(_ROW.names, row, strict=True)) for row in rows], _ROW)

    return run
