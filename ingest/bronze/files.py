"""Planning what to read of a file source: new files, growth, and everything that must not happen.

A file is known by its receipts.  It may grow; a file that was rewritten or shrank, or that vanished
before it was read to its end, is an alarm: nothing of it is read until a person decides.
"""

from __future__ import annotations

import glob
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import fsspec

from ingest import formats
from ingest.bronze.reading import Range, fingerprint
from ingest.bronze.receipts import FINGERPRINT, FileState
from ingest.config import Source

COMPRESSED = (".gz", ".bz2", ".zst", ".zstd")
MIN_SPLIT = 4 * 1024 * 1024
MAX_SPLIT = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Found:
    """One file as listed."""

    path: str
    size: int
    mtime: float


@dataclass(frozen=True, slots=True)
class Alarm:
    """A file that is not what it was; the text says what to do."""

    source: str
    file: str
    text: str


@dataclass(frozen=True, slots=True)
class Piece:
    """Unread bytes ``[start, end)`` of one file."""

    file: Found
    start: int
    end: int
    finished: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """What one source would read now, and what is wrong with it."""

    ranges: tuple[Range, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    warnings: tuple[str, ...] = ()


def natural(path: str) -> tuple[object, ...]:
    """Sort key that puts ``part-2`` before ``part-10``."""
    return tuple(
        (0, int(piece), piece) if piece.isdigit() else (1, 0, piece) for piece in re.split(r"([0-9]+)", path)
    )


def listing(source: Source) -> list[Found]:
    """The files that a source's glob matches now; folders and hidden lock files left out."""
    if "://" in source.path:
        return _remote(source)
    found = []
    for path in glob.iglob(source.path, recursive=True):
        try:
            stat = os.stat(path)
        except FileNotFoundError:
            continue  # vanished between the two looks; it was never ours
        if not os.path.isdir(path):
            found.append(Found(path, stat.st_size, stat.st_mtime))
    return found


def _remote(source: Source) -> list[Found]:
    filesystem, pattern = fsspec.core.url_to_fs(source.path, **source.storage)
    scheme = source.path.partition("://")[0]
    return [
        Found(f"{scheme}://{name}", info["size"], _mtime(info))
        for name, info in filesystem.glob(pattern, detail=True).items()
        if info["type"] == "file"
    ]


def _mtime(info: dict[str, object]) -> float:
    for name in ("mtime", "LastModified", "last_modified", "updated", "created"):
        value = info.get(name)
        if isinstance(value, (int, float)):
            return float(value)
        if value is not None and hasattr(value, "timestamp"):
            return float(value.timestamp())
    return 0.0


def plan(source: Source, rank: int, known: dict[str, FileState], cores: int) -> Plan:
    """What to read of one file source, in ranges; ``rank`` is its place in the pipeline file."""
    files = listing(source)
    warnings = () if files else (f"{source.path} matches no file yet.",)
    work: list[Piece] = []
    alarms = list(_vanished(source, files, known))
    for file in _ordered(source, files):
        state = known.get(file.path)
        found = _look(source, file, state)
        if isinstance(found, Alarm):
            alarms.append(found)
            continue
        if state is not None:
            work.extend(Piece(file, start, end, False) for start, end in state.holes())
        if found is not None:
            work.append(found)
    return Plan(tuple(_ranges(source, rank, work, cores)), tuple(alarms), warnings)


def _ordered(source: Source, files: list[Found]) -> list[Found]:
    if source.order_files_by == "mtime":
        return sorted(files, key=lambda file: (file.mtime, natural(file.path)))
    return sorted(files, key=lambda file: natural(file.path))


def _vanished(source: Source, files: list[Found], known: dict[str, FileState]) -> Iterable[Alarm]:
    present = {file.path for file in files}
    for path, state in known.items():
        if path not in present and not _compressed(path) and state.position < state.size:
            yield Alarm(
                source.name,
                path,
                f"{path} vanished after {state.position} of its {state.size} bytes were read: put it back.",
            )


def _look(source: Source, file: Found, state: FileState | None) -> Piece | Alarm | None:
    """The unread end of a file; None if there is nothing to read, an alarm if it is not what it was."""
    finished = time.time() - file.mtime > source.settle
    if state is None:
        return Piece(file, 0, file.size, finished) if file.size else None
    rest = Piece(file, state.position, file.size, finished)
    if (file.size, file.mtime) == (state.size, state.mtime):
        unread = not _compressed(file.path) and state.position < file.size
        return rest if unread and finished else None
    if file.size < state.size:
        return _alarm(source, file, f"shrank from {state.size} to {file.size} bytes")
    if not _same_beginning(source, file, state):
        return _alarm(source, file, "was rewritten after it was read")
    if _compressed(file.path):
        return rest if file.size > state.size else None
    return rest if file.size > state.position else None


def _alarm(source: Source, file: Found, what: str) -> Alarm:
    return Alarm(
        source.name,
        file.path,
        f"{file.path} {what}: nothing of it was read now; give new content a new name.",
    )


def _compressed(path: str) -> bool:
    return path.lower().endswith(COMPRESSED)


def _same_beginning(source: Source, file: Found, state: FileState) -> bool:
    """Compare what was read with what stands there now: both ends, and all of it if it did not grow."""
    if _compressed(file.path):
        return True  # compared by the reader, which must unpack from the start anyway
    with _open(source, file.path) as stream:
        if state.head and not _matches(stream, 0, state.head):
            return False
        if state.tail:
            length = int(state.tail.partition(":")[0])
            if not _matches(stream, state.position - length, state.tail):
                return False
        return file.size > state.size or all(
            _hash(stream, start, end) == digest for start, (end, digest) in state.ranges.items()
        )


def _open(source: Source, path: str):  # type: ignore[no-untyped-def]
    return fsspec.open(path, "rb", **source.storage).open() if "://" in path else open(path, "rb")


def _matches(stream, start: int, print_: str) -> bool:  # type: ignore[no-untyped-def]
    stream.seek(start)
    return fingerprint(stream.read(min(int(print_.partition(":")[0]), FINGERPRINT))) == print_


def _hash(stream, start: int, end: int) -> str:  # type: ignore[no-untyped-def]
    import hashlib

    digest = hashlib.sha256()
    stream.seek(start)
    left = end - start
    while left > 0 and (block := stream.read(min(left, 1 << 20))):
        digest.update(block)
        left -= len(block)
    return digest.hexdigest()


def _ranges(source: Source, rank: int, work: list[Piece], cores: int) -> Iterator[Range]:
    """Cut the work so that one large file uses all cores; take at most ``max_bytes``."""
    framing = source.framing or formats.load(source.format).ABOUT.framing
    total = sum(piece.end - piece.start for piece in work)
    step = min(MAX_SPLIT, max(MIN_SPLIT, total // (cores * 2) + 1))
    left = source.max_bytes if source.max_bytes is not None else total + 1
    for number, piece in enumerate(work):
        if left <= 0:
            return
        whole = _compressed(piece.file.path) or framing != "lines"
        stop = piece.end if whole else min(piece.end, piece.start + left)
        left -= stop - piece.start
        one = _range(source, rank, number, framing, piece, stop)
        if whole:
            yield one
            continue
        for cut in range(piece.start, stop, step):
            end = min(cut + step, stop)
            yield replace(one, start=cut, end=end, finished=piece.finished and end == piece.file.size)


def _range(source: Source, rank: int, number: int, framing: str, piece: Piece, stop: int) -> Range:
    file = piece.file
    return Range(
        source=rank,
        file=file.path,
        rank=number,
        start=piece.start,
        end=stop,
        size=file.size if stop == piece.end else stop,  # what stays unread counts as growth
        mtime=file.mtime,
        framing=framing,
        compressed=_compressed(file.path),
        finished=piece.finished,
        max_record_bytes=source.max_record_bytes,
        storage=dict(source.storage),
    )
