"""Read byte ranges of files in Spark tasks: records with their exact offsets, then a receipt.

Runs in Python workers; imports no Spark.  A range owns the lines that *start* in it, so that any cut
of a file gives the same records.  What a range cannot read becomes a receipt with a fault.  Lines and
length-prefixed records are streamed; the other framings hold one file at a time, up to `WHOLE`.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from ingest import framing
from ingest.bronze import opening
from ingest.bronze.opening import Identity
from ingest.bronze.receipts import FINGERPRINT, Receipt
from ingest.config import is_stored
from ingest.errors import FaultError, Undecodable, counted, fault_of

BLOCK = 8 * 1024 * 1024
TOGETHER = (
    50_000  # records of one group: of one character each, a block of them has 80 times its bytes in memory
)
WHOLE = 1 << 30  # the largest file that is held in memory: a document, a container, a raw datum
FEW = 1_000_000  # messages that a packed file of any size may have
OPEN_END = 1 << 62  # end of a range whose file is compressed: its plain length is not known before
_TOO_MANY = (
    "its {size:,} bytes unpack to {count:,} messages or more, which no changes of rows do: what was read stays; if they are "
    "messages, put the file there unpacked"
)
OVERSIZE = "ingest.oversize"  # header of a record that was too large to land: its length


@dataclass(frozen=True, slots=True)
class Range:
    """One piece of work: bytes ``[start, end)`` of one file, after decompression."""

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
    exact: bool = True  # a record starts at ``start``; otherwise its first line belongs to the range before
    storage: dict[str, str] = field(default_factory=dict)
    followed: bool = False  # arrival orders its source, and a later range is read in the same batch
    root: str = ""  # the folder out of which no link may lead
    listed: Identity | None = None

    @property
    def weight(self) -> int:
        """The approximate number of bytes to read."""
        return self.size if self.compressed else self.end - self.start


class BrokenRange(FaultError):
    """A range that could not be read, though the batch holds what comes after it."""

    def __init__(self, work: Range, fault: str) -> None:
        super().__init__(fault, {"source": work.source, "rank": work.rank, "start": work.start})


@dataclass(frozen=True, slots=True)
class Hole:
    """A range that could not be read: the work that may land before it, the range, and the fault."""

    before: list[Range]
    broken: Range
    fault: str


def hole(work: Sequence[Range], error: BaseException | str) -> Hole | None:
    """The hole that an error of a task leaves in the work; None if it leaves none.

    If arrival orders changes, nothing after a hole may land before it.
    """
    fault = fault_of(error, BrokenRange)
    if fault is None:
        return None
    source, place = fault.facts["source"], (fault.facts["rank"], fault.facts["start"])
    before = [piece for piece in work if piece.source != source or (piece.rank, piece.start) <= place]
    broken = next(piece for piece in before if piece.source == source and (piece.rank, piece.start) == place)
    before = [replace(piece, followed=False) if piece is broken else piece for piece in before]
    return Hole(before, broken, fault.text)


Record = tuple[int, bytes | None, int]
"""Offset, bytes (None if too large to keep) and length."""
Headers = list[dict[str, object]]
Groups = Iterator[tuple[list[Record], int]]
"""Records with the offset reached; the first group is empty and carries the range's beginning."""


def read(work: Range) -> Generator[list[Record], None, Receipt]:
    """Yield groups of records of a bounded size, then return the receipt.

    Use as ``receipt = yield from read(...)``.
    """
    hashed = _Hashed()
    begin = end = work.start
    count = 0
    fault, damage = "", False
    try:
        with _opened(work) as stream:
            groups = _GROUPS.get(work.framing, _whole)(work, stream, hashed)
            _, begin = next(groups)
            end = begin
            for group, end in groups:  # noqa: B007 - the last one counts
                count += len(group)
                if group:
                    yield group
                _refuse_bomb(work, count)
    except Exception as error:
        hashed.left = True
        # a compressed file that ends inside its data may still be growing
        if work.finished or not isinstance(error, EOFError):
            fault = _sentence(work, error)
            # the content is at fault, not the access: reading it again does not help
            damage = not isinstance(error, MemoryError) and getattr(error, "errno", None) is None
    return Receipt(
        work.file,
        begin,
        end,
        count,
        hashed.whole.hexdigest(),
        work.size,
        work.mtime,
        head=fingerprint(hashed.head) if begin == 0 else "",
        tail=fingerprint(hashed.tail),
        fault=fault,
        damage=damage,
        rest=work.compressed and hashed.left,
    )


def _refuse_bomb(work: Range, count: int) -> None:
    """Refuse a packed file that has given more messages than it has bytes: each would take time and space in all stages."""
    if work.compressed and count > max(FEW, work.size):
        raise Undecodable("too-many", _TOO_MANY.format(count=count, size=work.size))


def headers(record: Record) -> Headers | None:
    """The headers of a record from a file: the length of one that was too large to keep."""
    _, value, length = record
    return [{"key": OVERSIZE, "value": str(length).encode()}] if value is None else None


def _sentence(work: Range, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{work.file} vanished before it was read: put it back."
    if isinstance(error, Undecodable):
        return f"{work.file}: {error.detail}."
    if isinstance(error, EOFError):
        return f"{work.file} breaks off inside its compressed data: put the whole file there."
    return f"{work.file} cannot be read as {work.framing}: {type(error).__name__}: {str(error)[:200]}."


class _Hashed:
    """The hash of the consumed bytes, with the fingerprints of their two ends."""

    def __init__(self) -> None:
        self.whole = hashlib.sha256()
        self.head = b""
        self.tail = b""
        self.left = False  # later bytes wait for another run

    def update(self, data: bytes | memoryview) -> None:
        self.whole.update(data)
        if len(self.head) < FINGERPRINT:
            self.head += data[: FINGERPRINT - len(self.head)]
        self.tail = (self.tail + data[-FINGERPRINT:])[-FINGERPRINT:]

    def mark(self) -> _Hashed:
        """Remember the hash so far, in case the next record turns out to be incomplete."""
        kept = copy.copy(self)
        kept.whole = self.whole.copy()
        return kept

    def back(self, kept: _Hashed) -> None:
        """Discard what was hashed since `mark`."""
        self.whole, self.head, self.tail = kept.whole, kept.head, kept.tail


def fingerprint(data: bytes) -> str:
    """The short hash that distinguishes one file's end from another's."""
    return f"{len(data)}:{hashlib.sha256(data).hexdigest()[:32]}"


@contextlib.contextmanager
def _opened(work: Range) -> Iterator[BinaryIO]:
    """The file's plain bytes, decompressed if necessary."""
    if is_stored(work.file):
        import fsspec

        raw = fsspec.open(work.file, "rb", **work.storage).open()
    else:
        raw = opening.opened(work.file, work.root, work.listed)
    with raw:
        yield framing.decompressed(raw) if work.compressed else raw


def _go_to(work: Range, stream: BinaryIO) -> int:
    """Go to the range's start; streams that cannot seek are read up to it."""
    if not work.compressed:
        stream.seek(work.start)
    elif work.start:
        skip(stream, work.start)
    return work.start


def skip(stream: BinaryIO, count: int) -> None:
    """Skip so many bytes; a `ValueError` if there are fewer."""
    while count > 0:
        block = stream.read(min(count, BLOCK))
        if not block:
            raise ValueError(
                f"the file ends {counted(count, 'byte')} before the place up to which it was read"
            )
        count -= len(block)


# --- lines --------------------------------------------------------------------------------------


def _lines(work: Range, stream: BinaryIO, hashed: _Hashed) -> Groups:
    """Lines that start in the range; a group has at most a block of them."""
    offset = _go_to(work, stream) if work.exact else _seek_line(work, stream)
    yield [], offset
    rest = b""
    skipped = 0  # length so far of a line that is too large to keep
    mark = hashed
    while offset < work.end or rest or skipped:
        block = stream.read(BLOCK)
        if not block:
            break
        data = rest + block
        if not skipped and len(data) < min(work.end - offset, work.max_record_bytes) and data.isspace():
            blank, rest = _cut_after_line(
                data
            )  # a gigabyte of newlines in a small archive: no line is looked at
            hashed.update(blank)
            offset += len(blank)
            yield [], offset
            continue
        lines, rest = [b""] * TOGETHER, data
        while len(lines) == TOGETHER:
            *lines, rest = rest.split(b"\n", TOGETHER)
            group, consumed, offset = _records(work, lines, offset, skipped)
            skipped = 0 if lines else skipped
            hashed.update(memoryview(data)[:consumed])
            data = rest
            yield group, offset
            if offset >= work.end:
                return
        if len(rest) > work.max_record_bytes:
            mark = mark if skipped else hashed.mark()
            hashed.update(rest)
            skipped, rest = skipped + len(rest), b""
    yield from _last_line(work, hashed, mark, rest, skipped, offset)


def _records(work: Range, lines: Sequence[bytes], offset: int, skipped: int) -> tuple[list[Record], int, int]:
    """The records of the lines that start in the range, the size of these lines, and the offset reached.

    Of the first line so many bytes as ``skipped`` says came before, because it is too large to keep.
    """
    group: list[Record] = []
    consumed = 0
    for line in lines:
        if offset >= work.end:
            break
        length = len(line) + skipped
        if skipped or length > work.max_record_bytes:
            group.append((offset, None, length))
            skipped = 0
        elif line and not line.isspace():
            group.append((offset, _plain(line, offset), length))
        consumed += len(line) + 1
        offset += length + 1
    return group, consumed, offset


def _cut_after_line(data: bytes) -> tuple[bytes, bytes]:
    """The whole lines of some bytes, and what comes after the last of them."""
    end = data.rfind(b"\n") + 1
    return data[:end], data[end:]


def _plain(line: bytes, offset: int) -> bytes:
    """The line without a byte order mark and a carriage return, which belong to the file."""
    if line[-1:] == b"\r":
        line = line.rstrip(b"\r")
    return line if offset else line.removeprefix(framing.BOM)


def _last_line(work: Range, hashed: _Hashed, mark: _Hashed, rest: bytes, skipped: int, offset: int) -> Groups:
    """The bytes after the last newline: a record if the file is finished, else left for the next run."""
    if not (rest or skipped) or offset >= work.end:
        return
    if not work.finished:
        hashed.left = True
        if skipped:
            hashed.back(mark)
        return
    hashed.update(rest)
    length = len(rest) + skipped
    if skipped or length > work.max_record_bytes:
        yield [(offset, None, length)], offset + length
    else:
        yield ([] if rest.isspace() else [(offset, _plain(rest, offset), length)]), offset + length


def _seek_line(work: Range, stream: BinaryIO) -> int:
    """Go to the first line that starts at or after the range's start; give its offset."""
    offset = work.start - 1
    stream.seek(offset)
    while block := stream.read(65536):
        cut = block.find(b"\n")
        if cut >= 0:
            stream.seek(offset + cut + 1)
            return offset + cut + 1
        offset += len(block)
    return offset


# --- lengths ------------------------------------------------------------------------------------


def _lengths(work: Range, stream: BinaryIO, hashed: _Hashed) -> Groups:
    """Length-prefixed records, in groups of about a block; one that is too large is skipped."""
    offset = _go_to(work, stream)
    yield [], offset
    group: list[Record] = []
    held = 0
    while head := _exactly(stream, 4):
        length = int.from_bytes(head, "big")
        mark = hashed.mark()
        hashed.update(head)
        value = _record(work, stream, hashed, length) if len(head) == 4 else b""
        if len(head) < 4 or (value is not None and len(value) < length):
            hashed.back(mark)
            hashed.left = True
            yield group, offset
            if work.finished:
                raise Undecodable("cut-record", f"the record at byte {offset} is longer than the file")
            return
        group.append((offset, value, length))
        offset, held = offset + 4 + length, held + length
        if held > BLOCK or len(group) >= TOGETHER:
            yield group, offset
            group, held = [], 0
    yield group, offset


def _record(work: Range, stream: BinaryIO, hashed: _Hashed, length: int) -> bytes | None:
    """The record's bytes; None if it is complete but too large to keep, fewer bytes if it is cut off."""
    left = length
    kept = b""
    while left > 0 and (block := _exactly(stream, min(left, BLOCK))):
        hashed.update(block)
        left -= len(block)
        if length <= work.max_record_bytes:
            kept += block
    if left:
        return b""
    return kept if length <= work.max_record_bytes else None


def _exactly(stream: BinaryIO, count: int) -> bytes:
    """So many bytes, or all that is left: an unbuffered file may give fewer at a time."""
    data = stream.read(count)
    while data and len(data) < count and (more := stream.read(count - len(data))):
        data += more
    return data


# --- documents, containers, raw -----------------------------------------------------------------


def _whole(work: Range, stream: BinaryIO, hashed: _Hashed) -> Groups:
    """Framings that need the whole file: records after ``start``, in groups of about a block."""
    data = _exactly(stream, WHOLE + 1)
    if len(data) > WHOLE:
        raise Undecodable(
            "too-large",
            f"it has more than {WHOLE} bytes, which only files with `framing: lines` or `length` may have: put its messages "
            f"there one a line, or as smaller files",
        )
    if len(data) < work.start:
        raise ValueError(f"the file is shorter than the {counted(work.start, 'byte')} already read")
    end = done = work.start
    yield [], end
    group: list[Record] = []
    held = 0
    try:
        for record in framing.records(data, work.framing, start=work.start, finished=work.finished):
            end = record.end
            kept = None if len(record.value) > work.max_record_bytes else record.value
            group.append((record.offset, kept, len(record.value)))
            held += len(record.value)
            if held > BLOCK or len(group) >= TOGETHER:
                hashed.update(data[done:end])
                done = end
                yield group, end
                group, held = [], 0
    except Undecodable:  # land what precedes the damage
        hashed.update(data[done:end])
        yield group, end
        raise
    if work.finished:
        end = len(data)  # white space after the last record is read, too
    hashed.left = end < len(data)
    hashed.update(data[done:end])
    yield group, end


_GROUPS = {"lines": _lines, "length": _lengths}
