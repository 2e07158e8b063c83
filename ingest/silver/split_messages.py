"""Messages that are parts of one: put together again, and read as one with the last of them.

A service that may send no larger messages cuts one into parts, which it sends one after the other (a format's ``part`` and
``joined``). What they hold is read at the place of the last part; the others are marks. Parts are put together within a batch, so
that every rebuild says the same; the parts of a message that batches have separated are rejects, which a replay puts together.

This half runs in Python workers and imports no Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ingest import formats
from ingest.decoding.split import MessagePart
from ingest.tables.datafiles import listed
from ingest.tables.schemas import BRONZE

LARGEST = 256 << 20  # bytes of a whole message; the parts of a larger one are refused
LENGTH = 4  # bytes before each record of a file
READ_WITH_LAST = b""
"""In place of a whole message: this part is read with the last one."""
ROWS = "source STRING, topic STRING, `partition` INT, batch BIGINT, `offset` BIGINT, number INT, total INT, data BINARY, size INT"


class Splitting(Protocol):
    """A format whose messages may be parts."""

    @staticmethod
    def part(value: bytes) -> MessagePart | None:
        """The part that a message is; None if it is whole."""

    @staticmethod
    def joined(parts: Sequence[bytes]) -> bytes:
        """A whole message of the data of its parts."""


class Spot(NamedTuple):
    """Where a message lies in bronze; those of one source, topic and partition arrive in the order of batch and offset."""

    source: str
    topic: str
    partition: int
    batch: int
    offset: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Spot:
        """The place of a row with columns of these names."""
        return cls(*(row[name] for name in cls._fields))


_ROW = pa.schema(
    [
        *BRONZE.part(*Spot._fields),
        ("number", pa.int32()),
        ("total", pa.int32()),
        ("data", pa.binary()),
        ("size", pa.int32()),
    ]
)


class Wholes(NamedTuple):
    """What parts became: by the place of the last one the whole message, by that of another `READ_WITH_LAST`.

    ``others`` has the places of a message's other parts by that of its last one.
    """

    read: Mapping[Spot, bytes] = {}
    others: Mapping[Spot, tuple[Spot, ...]] = {}


def splitting(name: str) -> Splitting | None:
    """The module of a format whose messages may be parts; None for any other."""
    module: Any = formats.load(name)
    return module if hasattr(module, "part") else None


def put_together(
    parts: Mapping[Spot, MessagePart],
    joined: Callable[[Sequence[bytes]], bytes],
    *,
    over_batches: bool = False,
) -> Wholes:
    """What the parts of one format become, of which each follows the one before; the next offset is one more, or a file's next record.

    A part that comes twice, and parts that are broken off, become nothing.
    """
    read: dict[Spot, bytes] = {}
    others: dict[Spot, tuple[Spot, ...]] = {}
    stream: tuple[object, ...] = ()
    waiting: list[tuple[Spot, MessagePart]] = []
    size, following = 0, (0, 0)
    for spot, part in sorted(parts.items(), key=lambda placed: placed[0]):
        of_stream = spot[:3] if over_batches else spot[:4]
        if part.number == 0 or of_stream != stream or spot.offset not in following:
            stream, waiting, size = of_stream, [], 0
        following = (spot.offset + 1, spot.offset + LENGTH + part.size)
        if waiting and part == waiting[-1][1]:
            continue
        if part.number != len(waiting) or (waiting and part.total != waiting[0][1].total):
            waiting = []
            continue
        waiting.append((spot, part))
        size += len(part.data)
        if size > LARGEST:
            waiting = []
        elif len(waiting) == part.total:
            others[spot] = tuple(place for place, _ in waiting[:-1])
            read |= dict.fromkeys(others[spot], READ_WITH_LAST)
            read[spot] = joined([each.data for _, each in waiting])
            waiting = []
    return Wholes(read, others)


def parts_in(
    batch: pa.RecordBatch, part: Callable[[bytes], MessagePart | None]
) -> dict[int, tuple[Spot, MessagePart]]:
    """The parts among messages, by their rows."""
    parts = {
        number: read
        for number, value in enumerate(listed(batch.column("value")))
        if value and (read := part(value))
    }
    if not parts:
        return {}
    places = zip(
        *(batch.column(name).take(pa.array(parts)).to_pylist() for name in Spot._fields), strict=True
    )
    return {number: (Spot(*place), read) for (number, read), place in zip(parts.items(), places, strict=True)}


def part_rows(
    opened: Callable[[pa.RecordBatch], pa.RecordBatch], sources: Mapping[str, str], *, every: bool = False
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow``: the parts among messages as rows of `ROWS`, but for those that are put together where they are read.

    ``sources`` has the format of each source that may send parts; ``every`` leaves none out.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in map(opened, batches):
            rows: list[tuple[object, ...]] = []
            for name, format_name in sources.items():
                module = splitting(format_name)
                assert module is not None
                of_source = batch.filter(pc.equal(batch.column("source"), name))
                parts = dict(parts_in(of_source, module.part).values())
                read = {} if every else put_together(parts, module.joined).read
                rows += [(*spot, *part) for spot, part in parts.items() if spot not in read]
            yield pa.RecordBatch.from_pylist([dict(zip(_ROW.names, row, strict=True)) for row in rows], _ROW)

    return run
