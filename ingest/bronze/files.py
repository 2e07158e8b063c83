"""Plan what to read from a file source: new files, growth, and everything that must not happen.

A file is known by its receipts. It may grow; a file that was rewritten or shrank, or that vanished before it was read
to its end, is an alarm: nothing of it is read until the operator decides.
"""

from __future__ import annotations

import glob
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import BinaryIO, cast

from ingest import formats
from ingest.bronze import moved, opening
from ingest.bronze.opening import Identity
from ingest.bronze.reading import OPEN_END, Range, fingerprint, skip
from ingest.bronze.receipts import FINGERPRINT, FileState
from ingest.config import Pipeline, Source, is_stored
from ingest.errors import counted, first_line
from ingest.formats import ingest_snapshot
from ingest.framing import DAMAGE, decompressed
from ingest.order import natural
from ingest.tables import snapshots

COMPRESSED = (".gz", ".bz2", ".zst", ".zstd")
MIN_SPLIT = 4 * 1024 * 1024
MAX_SPLIT = 128 * 1024 * 1024
_SMALL = 64 * 1024  # an unfinished piece up to this size is checked before it becomes a task


@dataclass(frozen=True, slots=True)
class Found:
    """One file as listed."""

    path: str
    size: int
    mtime: float
    identity: Identity | None = None  # None in a store


@dataclass(frozen=True, slots=True)
class NotRead:
    """Why nothing of a file is read now."""

    text: str
    # files after it wait where arrival orders the source: it will be read, unlike a changed one
    holds: bool = False


@dataclass(frozen=True, slots=True)
class FilePlan:
    """What would be read from one source now, and its alarms."""

    ranges: tuple[Range, ...] = ()
    alarms: tuple[str, ...] = ()  # files that have changed unexpectedly; each says what to do
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # for a plan, which says what would be read
    moves: tuple[moved.Move, ...] = ()  # that a run records
    # what to say of the source's path, if its folder is not there; None if that is not known
    missing: Mapping[str, str] | None = None


def listing(source: Source) -> tuple[list[Found], list[str], list[str]]:
    """What a source's glob matches now: regular files; broken links, pipes and devices; links that lead out."""
    if is_stored(source.path):
        return _remote(source), [], []
    files, others, away = [], [], []
    leads_away = _leads_away(source.path)
    for path in glob.iglob(source.path, recursive=True):  # noqa: PTH207 - names as they are given
        if leads_away(path):
            away.append(path)
            continue
        try:
            status = os.stat(path)  # noqa: PTH116
        except OSError:  # a broken link; else it vanished between the two calls
            others += [path] if os.path.islink(path) else []  # noqa: PTH114
            continue
        if stat.S_ISREG(status.st_mode):
            files.append(Found(path, status.st_size, status.st_mtime, Identity.of(status)))
        elif not stat.S_ISDIR(status.st_mode):
            others.append(path)
    return files, others, away


def _leads_away(pattern: str) -> Callable[[str], bool]:
    """A test whether a link leads a path out of the source's folder, the part of the pattern without wildcards.

    Links within that part are the operator's own. All others may belong to anyone who can write there, and could bring
    any file that this user can read into the lake.
    """
    root = opening.root_of(pattern)

    @cache
    def inside(folder: str) -> bool:
        real = os.path.realpath(folder)
        return real == root or real.startswith(root.rstrip(os.sep) + os.sep)

    def leads_away(path: str) -> bool:
        if not root:  # names one file: a link there is intended
            return False
        if os.path.islink(path) and os.path.exists(path):  # noqa: PTH114, PTH110
            return not inside(os.path.dirname(os.path.realpath(path)))  # noqa: PTH120
        return not inside(os.path.dirname(path))  # noqa: PTH120

    return leads_away


def _place_of(path: str) -> str:
    """Where a path leads, in words; it may be exchanged for something else while that is looked up."""
    try:
        return shown(os.path.realpath(path))
    except OSError:
        return "another place"


def _remote(source: Source) -> list[Found]:
    import fsspec  # takes as long as all else that a plan of local files needs

    filesystem, pattern = fsspec.core.url_to_fs(source.path, **source.storage)
    filesystem.invalidate_cache()  # a client's cache of an earlier listing would hide new files
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


def parts(pipeline: Pipeline, source: Source) -> list[Source]:
    """The parts of a source that are read from files: its own files, and those of its snapshots."""
    of_files = [source] if source.kind == "files" else []
    read = snapshots.source_of(pipeline, source)
    return [*of_files, read] if read is not None else of_files


def known_of(part: Source, files: Mapping[str, FileState]) -> dict[str, FileState]:
    """The files that one part of a source has read; files of a snapshot belong to the snapshot part only."""
    of_snapshots = part.format == ingest_snapshot.MARK
    return {path: state for path, state in files.items() if ingest_snapshot.holds(path) == of_snapshots}


def plan(
    source: Source, rank: int, file_states: dict[str, FileState], cores: int, recorded: moved.Recorded = tuple
) -> FilePlan:
    """Plan what to read from one file source, in ranges.

    Args:
        source: the source.
        rank: its place in the pipeline file.
        file_states: what was read of its files.
        cores: among how many a large file is divided.
        recorded: how its folder was moved, as the lake knows.
    """
    try:
        files, others, away = listing(source)
    except Exception as error:  # each store's client has its own errors, also for a store that is down
        text = f"cannot be listed ({type(error).__name__}: {first_line(error)[:300]}): none of it was read; repair that."
        return FilePlan(alarms=(f"{shown(source.path)} {text}",))
    missing = {} if files else _missing_folder(source)
    warnings = [*missing.values()] if files or missing else [f"{source.path} matches no file yet."]
    warnings += [f"{shown(path)} is not a file that can be read again: passed over." for path in others]
    alarms = [
        f"{shown(path)} leads to {_place_of(path)}, out of the source's folder: "
        "none of it was read; move the file here, or name its own folder in `path:`."
        for path in sorted(away)
    ]
    sizes = {file.path: (file.size, file.mtime) for file in files}
    seen = moved.recognised(source, sizes, file_states, _content_of(source, files), recorded)
    notes, refused = _said_of_moved(source, seen, (path for path in file_states if path in sizes))
    file_states = seen.known
    warnings += [*_said_of_copies(source, seen), *_said_of_doubtful(source, seen)]
    alarms += _vanished(files, file_states)
    work: list[Range] = []
    for part in _unread(source, rank, files, file_states, refused):
        if isinstance(part, Range):
            work.append(part)
        else:
            alarms.append(part)
    ranges = list(_cut(source, work, cores))
    if source.by_arrival:
        ranges[:-1] = [replace(span, followed=True) for span in ranges[:-1]]
    return FilePlan(tuple(ranges), tuple(alarms), tuple(warnings), tuple(notes), tuple(seen.moves), missing)


def _missing_folder(source: Source) -> dict[str, str]:
    """What to say of a source's path if the folder of the part without wildcards is not there; a store has no folders."""
    folder = opening.folder_of(source.path)
    if is_stored(source.path) or os.path.isdir(folder):  # noqa: PTH112 - names as they are given
        return {}
    return {source.path: f"the folder {shown(folder)} is not there: put it back, or correct `path:`."}


def _unread(
    source: Source,
    rank: int,
    files: Iterable[Found],
    file_states: Mapping[str, FileState],
    refused: Mapping[str, NotRead],
) -> Iterator[Range | str]:
    """What is left to read of some files, in their order, and an alarm for each that cannot be read."""
    by_time = source.order_files_by == "mtime"
    waiting = ""  # the file that could not be read, if arrival orders the source
    for file in sorted(files, key=lambda file: (file.mtime if by_time else 0, natural(file.path))):
        state = file_states.get(file.path)
        try:
            end = refused.get(file.path) or _look(source, rank, file, state)
        except OSError as error:
            text = f"cannot be read ({error.strerror or error}): none of it was read; repair that"
            end = NotRead(text, holds=True)
        if isinstance(end, NotRead):
            yield f"{shown(file.path)} {end.text}."
            if source.by_arrival and end.holds:
                waiting = waiting or file.path
            continue
        holes = [] if state is None else [*state.holes()]
        if waiting and (end is not None or holes):
            text = f"later files wait for {shown(waiting)}, because arrival orders {source.format}"
            yield f"source {source.name}: {text}."
            return
        yield from (_range(source, rank, file, first, last) for first, last in holes)
        if end is not None:
            yield end


def _content_of(source: Source, files: list[Found]) -> moved.Same:
    """Compare the content of a listed file with what was read, at another path."""
    by_path = {file.path: file for file in files}

    def same(path: str, state: FileState) -> bool:
        try:
            return not _difference(source, by_path[path], state)
        except OSError:  # who reads it says why it cannot be read
            return False

    return same


def _said_of_moved(
    source: Source, seen: moved.Recognised, read: Iterable[str]
) -> tuple[list[str], dict[str, NotRead]]:
    """What is said of files that are in another place than when they were read, and which of them are not read.

    ``read`` are the files that were read where they are.
    """
    notes = [
        f"{counted(count, 'file that was', 'files that were')} read in {shown(former)} {'is' if count == 1 else 'are'} now in "
        f"{shown(folder)}: nothing of {'it' if count == 1 else 'them'} is read again"
        for (former, folder), count in moved.folders(seen.moved, moved.below(source.path), read).items()
    ]
    refused: dict[str, NotRead] = {}
    for path, former in seen.renamed.items():
        text = f"holds what was read as {shown(former)}, which is not there any more"
        if source.renamed == "refuse":
            refused[path] = NotRead(
                f"{text}: none of it was read; write `renamed_files: same` for source {source.name} if it is that file "
                "under another name, or `renamed_files: new` to read it as another one"
            )
        else:
            notes.append(
                f"{shown(path)} {text}: it is {'not read again' if source.renamed == 'same' else 'read as another file'}"
            )
    return notes, refused


def _said_of_copies(source: Source, seen: moved.Recognised) -> list[str]:
    """A warning of each copy that is read where arrival orders the changes: it takes its rows back in time."""
    if not source.by_arrival:
        return []
    return [
        f"{shown(path)} holds the same bytes as {shown(former)}, and is read as messages that were sent again."
        for path, former in seen.copies.items()
    ]


def _said_of_doubtful(source: Source, seen: moved.Recognised) -> list[str]:
    """A warning of files that are read as new ones, though their folder may be one that was moved and written again."""
    return [
        f"{counted(count, 'file')} in {shown(folder)} {'has' if count == 1 else 'have'} the name of one that was read in "
        f"{shown(former)} and is gone, with other content, though other files have been moved from there: "
        f"{'it is' if count == 1 else 'they are'} read as new."
        for (former, folder), count in moved.folders(seen.doubtful, moved.below(source.path)).items()
    ]


def shown(path: str) -> str:
    """A path for display; undecodable bytes and line breaks are escaped."""
    return path.encode("utf-8", "backslashreplace").decode().replace("\n", "\\n").replace("\r", "\\r")


def _vanished(files: list[Found], known: dict[str, FileState]) -> Iterator[str]:
    present = {file.path for file in files}
    for path, state in known.items():
        if path in present or state.damage:  # removing a damaged file is one way to fix it
            continue
        if state.holes() or state.unread(_compressed(path)):
            what = f"vanished when {counted(state.position, 'byte')} had been read, and more were there: put it back"
            yield f"{shown(path)} {what}."


def _look(source: Source, rank: int, file: Found, state: FileState | None) -> Range | NotRead | None:
    """The unread end of a file; None if there is nothing to read."""
    try:
        file.path.encode()
    except UnicodeEncodeError:
        return NotRead("has a name that is not UTF-8: rename it")
    packed = _compressed(file.path)
    if state is None or (state.position == 0 and (file.size, file.mtime) != (state.size, state.mtime)):
        return _rest(source, rank, file, 0)
    if (file.size, file.mtime) == (state.size, state.mtime):
        if state.damage:
            text = f"is still damaged ({state.damage.rstrip('.')}): repair it, or take it away"
            return NotRead(text, holds=True)
        is_due = state.unread(packed) and _finished(source, file)
        return _rest(source, rank, file, state.position) if is_due else None
    if text := _difference(source, file, state):
        return NotRead(text)
    if (file.size > state.size or state.rest) if packed else file.size > state.position:
        return _rest(source, rank, file, state.position)
    state.mtime = file.mtime  # only touched: this session does not compare it again
    return None


def _finished(source: Source, file: Found) -> bool:
    return time.time() - file.mtime > source.settle


def _rest(source: Source, rank: int, file: Found, start: int) -> Range | None:
    """The bytes after ``start``; None if they hold no whole record yet, which would be an empty batch."""
    packed, finished = _compressed(file.path), _finished(source, file)
    if not file.size:
        return None
    rest = _range(source, rank, file, start, OPEN_END if packed else file.size, finished=finished)
    if packed or finished or rest.framing != "lines" or file.size - start > _SMALL:
        return rest
    with _open(source, file) as stream:
        stream.seek(start)
        return rest if b"\n" in stream.read(_SMALL) else None


def _range(source: Source, rank: int, file: Found, start: int, end: int, *, finished: bool = False) -> Range:
    return Range(
        source=rank,
        file=file.path,
        rank=0,  # known when the batch is cut
        start=start,
        end=end,
        size=file.size,
        mtime=file.mtime,
        framing=framing_of(source),
        compressed=_compressed(file.path),
        finished=finished,
        max_record_bytes=source.max_record_bytes,
        storage=dict(source.storage),
        root="" if is_stored(source.path) else opening.root_of(source.path),
        listed=file.identity,
    )


def _compressed(path: str) -> bool:
    return path.lower().endswith(COMPRESSED)


def framing_of(source: Source) -> str:
    """The framing of the source's files: as the pipeline file says, else the usual one of its format."""
    return source.framing or formats.load(source.format).ABOUT.framing


# --- is it still the file that was read? ----------------------------------------------------------


_OTHER_CONTENT = (
    "none of it was read, and each run fails until what was read is put back, or the file is taken away; new content is "
    "read from a file of another name"
)


def _difference(source: Source, file: Found, state: FileState) -> str:
    """Why a changed file is not the one that was read; empty if it only grew or was touched."""
    rewritten = f"was rewritten after it was read: {_OTHER_CONTENT}"
    if file.size < state.size:
        return f"shrank from {counted(state.size, 'byte')} to {counted(file.size, 'byte')}: {_OTHER_CONTENT}"
    framing = framing_of(source)
    with _open(source, file) as stream:
        try:
            same, ends = _compare(stream, file, state)
        except (ValueError, *DAMAGE) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            return rewritten
    if not same:
        return rewritten
    if framing in ("document", "raw") and file.size > state.size:
        return f"grew, which one document cannot: {_OTHER_CONTENT}"
    if framing == "lines" and len(ends) == 2 and ends[:1] != b"\n" and ends[1:] not in (b"\n", b"\r"):
        return (
            f"grew inside its last line, which had already been read: {_OTHER_CONTENT}; to prevent it, write whole "
            "lines, or raise `settle:`"
        )
    return ""


def _compare(stream: BinaryIO, file: Found, state: FileState) -> tuple[bool, bytes]:
    """Compare what was read, and the bytes on both sides of the position.

    For a plain file that grew both ends are compared, for every other one all that was read.
    """
    if _compressed(file.path):
        return _compare_ranges(decompressed(stream), state)
    if state.head and not _matches(stream, 0, state.head):
        return False, b""
    if state.tail and not _matches(stream, state.position - int(state.tail.partition(":")[0]), state.tail):
        return False, b""
    if file.size == state.size:
        stream.seek(0)
        if not _compare_ranges(stream, state)[0]:
            return False, b""
    stream.seek(max(0, state.position - 1))
    return True, stream.read(2)


def _compare_ranges(stream: BinaryIO, state: FileState) -> tuple[bool, bytes]:
    """Hash again the ranges that the receipts say were read, in order."""
    reached, last = 0, b""
    for start, (end, digest) in sorted(state.ranges.items()):
        if start < reached:
            continue  # a hole that was read again together with its neighbour
        skip(stream, start - reached)
        digest_now, last = _hash(stream, end - start)
        if digest_now != digest:
            return False, b""
        reached = end
    return True, last + stream.read(1)


def _open(source: Source, file: Found) -> BinaryIO:
    if not is_stored(file.path):
        return opening.opened(file.path, opening.root_of(source.path), file.identity)
    import fsspec

    return cast("BinaryIO", fsspec.open(file.path, "rb", **source.storage).open())


def _matches(stream: BinaryIO, start: int, print_: str) -> bool:
    stream.seek(start)
    return fingerprint(stream.read(min(int(print_.partition(":")[0]), FINGERPRINT))) == print_


def _hash(stream: BinaryIO, count: int) -> tuple[str, bytes]:
    """The hash of the next bytes, and the last bytes themselves."""
    digest = hashlib.sha256()
    last = b""
    while count > 0 and (block := stream.read(min(count, 1 << 20))):
        digest.update(block)
        count -= len(block)
        last = block[-1:]
    return digest.hexdigest(), last


# --- ranges ---------------------------------------------------------------------------------------


def _cut(source: Source, work: list[Range], cores: int) -> Iterator[Range]:
    """Divide the work so that one large file uses all cores; take at most ``max_bytes``."""
    total = sum(span.weight for span in work)
    step = min(MAX_SPLIT, max(MIN_SPLIT, total // (cores * 2) + 1))
    left = source.max_bytes if source.max_bytes is not None else total + 1
    for number, span in enumerate(work):
        if left <= 0:
            return
        whole = span.compressed or span.framing != "lines"
        stop = span.end if whole else min(span.end, span.start + left)
        left -= span.weight if whole else stop - span.start
        # the unread rest counts as growth
        taken = replace(span, rank=number, end=stop, size=span.size if stop == span.end else stop)
        if whole:
            yield taken
            continue
        for start in range(taken.start, stop, step):
            yield replace(taken, start=start, end=min(start + step, stop), exact=start == taken.start)
