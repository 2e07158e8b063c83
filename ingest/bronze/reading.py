"""Reading byte ranges of files inside Spark tasks: records with their exact offsets, then a receipt.

Runs in Python workers; imports no Spark.  A range owns the lines that *start* in it, so that any cut
of a file gives the same records.  What a range cannot read becomes a receipt with a fault.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import fsspec

from ingest import framing
from ingest.bronze.receipts import FINGERPRINT, Receipt
from ingest.errors import Undecodable

BLOCK = 8 * 1024 * 1024
OVERSIZE = "ingest.oversize"  # header of a record that was too large to land: its length


@dataclass(frozen=True, slots=True)
class Range:
    """One piece of work: bytes ``[start, end)`` of one file."""

    source: int  # place in the pipeline file
    file: str
    rank: int  # of the file among those of its batch
    start: int
    end: int
    size: int
    mtime: float
    framing: str
    compressed: bool
    finished: bool  # an unended last record belongs to the file
    max_record_bytes: int
    storage: dict[str, str] = field(default_factory=dict)


Record = tuple[int, bytes | None, int]
"""Offset, bytes (None if too large to keep) and length."""


def read(work: Range, emit: Callable[[list[Record]], Any]) -> Iterator[Any]:
    """Yield ``emit(records)`` for groups of records of a bounded size, then return the receipt.

    Use as ``receipt = yield from read(...)``.
    """
    hashed = _Hashed()
    begin = end = work.start
    count = 0
    fault = ""
    try:
        with _opened(work) as stream:
            groups = _groups(work, stream, hashed)
            _, begin = next(groups)
            end = begin
            for group, end in groups:
                count += len(group)
                if group:
                    yield emit(group)
    except Exception as error:  # whatever a damaged file raises, the run goes on without its rest
        fault = _sentence(work, error)
    return _receipt(work, hashed, (begin, end), count, fault)


def _sentence(work: Range, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{work.file} vanished before it was read."
    if isinstance(error, Undecodable):
        return f"{work.file}: {error.detail}."
    return f"{work.file} cannot be read as {work.framing}: {type(error).__name__}: {str(error)[:200]}."


class _Hashed:
    """The hash of the consumed bytes, with the fingerprints of their two ends."""

    def __init__(self) -> None:
        self.whole = hashlib.sha256()
        self.head = b""
        self.tail = b""

    def update(self, data: bytes) -> None:
        self.whole.update(data)
        if len(self.head) < FINGERPRINT:
            self.head += data[: FINGERPRINT - len(self.head)]
        self.tail = (self.tail + data[-FINGERPRINT:])[-FINGERPRINT:]


def fingerprint(data: bytes) -> str:
    """The short hash that tells one file's end from another's."""
    return f"{len(data)}:{hashlib.sha256(data).hexdigest()[:32]}"


def _receipt(work: Range, hashed: _Hashed, read: tuple[int, int], count: int, fault: str) -> Receipt:
    return Receipt(
        work.file,
        read[0],
        read[1],
        count,
        hashed.whole.hexdigest(),
        work.size,
        work.mtime,
        head=fingerprint(hashed.head) if read[0] == 0 else "",
        tail=fingerprint(hashed.tail),
        fault=fault,
    )


def _opened(work: Range) -> BinaryIO:
    if "://" in work.file:
        raw = fsspec.open(work.file, "rb", **work.storage).open()
    else:
        raw = open(work.file, "rb", buffering=0)
    return framing.decompressed(raw) if work.compressed else raw


def _groups(work: Range, stream: BinaryIO, hashed: _Hashed) -> Iterator[tuple[list[Record], int]]:
    """Records with the offset reached; the first group is empty and tells where the range begins."""
    if work.framing == "lines":
        return _lines(work, stream, hashed)
    return _framed(work, stream, hashed)


# --- lines --------------------------------------------------------------------------------------


def _lines(work: Range, stream: BinaryIO, hashed: _Hashed) -> Iterator[tuple[list[Record], int]]:
    """Lines that start in the range; groups are as large as a block."""
    offset = _seek_line(work, stream)
    yield [], offset
    rest = b""
    skipped = 0  # length so far of a line that is too large to keep
    while offset < work.end or rest or skipped:
        block = stream.read(BLOCK)
        if not block:
            break
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        group: list[Record] = []
        consumed: list[bytes] = []
        for line in lines:
            if offset >= work.end:
                break
            length = len(line) + skipped
            if skipped or length > work.max_record_bytes:
                group.append((offset, None, length))
                skipped = 0
            elif line and not line.isspace():
                group.append((offset, line, length))
            consumed.append(line)
            offset += length + 1
        else:
            if len(rest) > work.max_record_bytes:
                hashed.update(b"\n".join([*consumed, rest]) if consumed else rest)
                skipped, rest = skipped + len(rest), b""
                consumed = []
        if consumed:
            hashed.update(b"\n".join(consumed) + b"\n")
        yield group, offset
        if offset >= work.end:
            return
    yield from _last_line(work, hashed, rest, skipped, offset)


def _last_line(
    work: Range, hashed: _Hashed, rest: bytes, skipped: int, offset: int
) -> Iterator[tuple[list[Record], int]]:
    """The bytes behind the last newline: a record if the file is finished, else left for the next run."""
    if not work.finished or not (rest or skipped) or offset >= work.end:
        return
    hashed.update(rest)
    length = len(rest) + skipped
    kept = [] if rest.isspace() else [(offset, None if skipped else rest, length)]
    yield kept, offset + length


def _seek_line(work: Range, stream: BinaryIO) -> int:
    """Go to the first line that starts at or after the range's start; give its offset."""
    if work.start == 0:
        return 0
    if work.compressed:  # never cut: the start is the end of a line already read
        _skip(stream, work.start)
        return work.start
    offset = work.start - 1
    stream.seek(offset)
    while block := stream.read(65536):
        cut = block.find(b"\n")
        if cut >= 0:
            stream.seek(offset + cut + 1)
            return offset + cut + 1
        offset += len(block)
    return offset


def _skip(stream: BinaryIO, count: int) -> None:
    while count > 0:
        block = stream.read(min(count, BLOCK))
        if not block:
            return
        count -= len(block)


# --- documents, lengths, containers -------------------------------------------------------------


def _framed(work: Range, stream: BinaryIO, hashed: _Hashed) -> Iterator[tuple[list[Record], int]]:
    """Whole-file framings: records behind ``start``, in groups of about a block."""
    data = stream.read()
    if len(data) < work.start:
        raise ValueError(f"the file is shorter than the {work.start} bytes already read")
    group: list[Record] = []
    held, end = 0, work.start
    yield [], end
    for record in framing.records(data, work.framing, start=work.start, finished=work.finished):
        end = record.end
        kept = None if len(record.value) > work.max_record_bytes else record.value
        group.append((record.offset, kept, len(record.value)))
        held += len(record.value)
        if held > BLOCK:
            yield group, end
            group, held = [], 0
    hashed.update(data[work.start : end])
    yield group, end
