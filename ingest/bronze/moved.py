"""Files that have been read in another place: a folder that was moved, mounted elsewhere or restored, and renamed files.

A file is known by its path below the source's folder, the part of ``path:`` without wildcards, together with its content:
the hashes that its receipts hold. Its absolute path is for display, and for the place of its messages in history.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

from ingest.bronze.receipts import FileState
from ingest.config import Source
from ingest.ledgers import decisions
from ingest.ledgers.decisions import MOVED_FOLDER, Decision
from ingest.tables.tables import Tables

if TYPE_CHECKING:
    from ingest.tables.lake import Lake

Move = tuple[str, str]
"""The folder below which files were read, and the one below which they are now."""
Recorded = Callable[[], Collection[Move]]
"""Reads the moves that earlier runs have recognised, newest first; asked only where files are gone and others are new."""
Same = Callable[[str, FileState], bool]
"""Whether the file at a path has the content that a state describes, and maybe more after it."""


@dataclass(slots=True)
class Recognised:
    """The files of a source as they are known, wherever they were read.

    Args:
        known: the states of the files by their present paths.
        moved: the files that are below another folder now: the former path by the present one.
        renamed: the files that have another path below the source's folder.
        copies: the files that hold what another file that is still there holds.
        doubtful: the files with the path, but not the content, of one that was read in the folder of moved files: more
            than were moved.
        moves: the folders that were moved, where no earlier run has recognised it.
    """

    known: dict[str, FileState] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)
    doubtful: dict[str, str] = field(default_factory=dict)
    moves: list[Move] = field(default_factory=list)


def recognised(
    source: Source,
    sizes: Mapping[str, tuple[int, float]],
    states: Mapping[str, FileState],
    same: Same,
    recorded: Recorded = tuple,
) -> Recognised:
    """Find each listed file among those that were read.

    Args:
        source: the source of the files.
        sizes: size and modification time of the listed files, by path.
        states: what was read of each file, by the path that it had then.
        same: compares content; asked only where paths or sizes agree.
        recorded: the moves of this source's folder that are known.
    """
    seen = Recognised(dict(states))
    missing = {path: state for path, state in states.items() if path not in sizes and state.position > 0}
    unknown = [path for path in sizes if _is_unknown(states.get(path))]
    if not unknown or not states:
        return seen
    end_of = below(source.path)
    by_end = _by_end(missing, {end_of(path).count("/") for path in unknown})
    for path in unknown:
        # a file that grew between two moves was read in parts, at two places
        for former in by_end.get(end_of(path), ()):
            if former in missing and _is_it(path, sizes[path], missing[former], same):
                seen.moved.setdefault(path, former)
                seen.known[path] = _joined(missing.pop(former), seen.known.get(path))
                del seen.known[former]
    _find_renamed(source, seen, [path for path in unknown if path not in seen.moved], sizes, missing, same)
    if missing or seen.moved:
        known = recorded()
        _find_moves(seen, sizes, known, missing, end_of)
        _find_rewritten(seen, unknown, [*seen.moves, *known], missing, end_of)
    return seen


def _by_end(paths: Iterable[str], depths: Collection[int]) -> dict[str, list[str]]:
    """Paths by their ends, which hold as many slashes as the ends that are looked for."""
    by_end: dict[str, list[str]] = {}
    for path in paths:
        for depth in depths:
            root, *names = path.rsplit("/", depth + 1)
            if len(names) > depth:
                by_end.setdefault(path[len(root) + 1 :], []).append(path)
    return by_end


def _find_moves(
    seen: Recognised,
    sizes: Iterable[str],
    recorded: Collection[Move],
    missing: Collection[str],
    end_of: Callable[[str], str],
) -> None:
    """Find the folders that were moved: at least as many files have the content that was read as have another one.

    Where more have another one, it may be another folder with files of the same names: they are doubtful, and are read.
    """
    for move, count in folders(seen.moved, end_of).items():
        if move in recorded:
            continue
        others = {
            path: f"{move[0]}/{end}"
            for path, end in ((path, end_of(path)) for path in sizes)
            if _root(path, end) == move[1] and f"{move[0]}/{end}" in missing
            if path not in seen.renamed and path not in seen.copies
        }
        if len(others) <= count:
            seen.moves.append(move)
        else:
            seen.doubtful.update({path: former for path, former in others.items() if path not in seen.known})


def _find_rewritten(
    seen: Recognised,
    unknown: Iterable[str],
    moves: Collection[Move],
    missing: dict[str, FileState],
    end_of: Callable[[str], str],
) -> None:
    """Take files of other content in a folder that was moved for those that were read there under their names."""
    origins = cache(lambda folder: _origins(moves, folder))
    # of two that may be one file, the one that keeps its subfolder is it
    for path in sorted(unknown, key=len, reverse=True):
        if path in seen.known or path in seen.renamed or path in seen.copies:
            continue
        end = end_of(path)
        formers = (f"{folder}/{end}" for folder in origins(_root(path, end)))
        former = next((former for former in formers if former in missing), None)
        if former is not None:
            seen.known[path] = missing.pop(former)
            del seen.known[former]


def _origins(moves: Collection[Move], folder: str) -> list[str]:
    """The folders from which files came into one, also by way of others; the nearest first."""
    reached = [folder]
    for present in reached:  # which grows
        reached += [former for former, now in moves if now == present and former not in reached]
    return reached[1:]


def _root(path: str, end: str) -> str:
    """The folder below which a path has an end."""
    return path[: -len(end) - 1]


def _find_renamed(
    source: Source,
    seen: Recognised,
    unknown: Iterable[str],
    sizes: Mapping[str, tuple[int, float]],
    missing: dict[str, FileState],
    same: Same,
) -> None:
    """Find the files that hold exactly what a file of another name held."""
    by_size: dict[int, list[str]] = {}
    for path, state in seen.known.items():
        if state.position > 0 and not state.holes():
            by_size.setdefault(state.size, []).append(path)
    for path in unknown:
        for former in by_size.get(sizes[path][0], ()):
            if former == path or not same(path, seen.known.get(former) or missing[former]):
                continue
            if former not in missing:
                seen.copies[path] = former
                continue
            seen.renamed[path] = former
            state = missing.pop(former)
            if source.renamed == "same":
                seen.known[path] = _joined(state, seen.known.get(path))
                del seen.known[former]
            by_size[sizes[path][0]].remove(former)
            break


def folders(
    moved: Mapping[str, str], end_of: Callable[[str], str], read: Iterable[str] = ()
) -> dict[Move, int]:
    """How many files came from which folder into which, by the former and the present one.

    Without folders of which something was ``read`` where they are now: that is known.
    """
    settled = {_root(path, end_of(path)) for path in read} if moved else set[str]()
    counts: dict[Move, int] = {}
    for path, former in moved.items():
        end = end_of(path)
        pair = _root(former, end), _root(path, end)
        if pair[1] not in settled:
            counts[pair] = counts.get(pair, 0) + 1
    return counts


def known_moves(lake: Tables, source: str) -> list[Move]:
    """The moves of a source's folder that its runs have recognised, newest first."""
    made = decisions.read(lake).of(MOVED_FOLDER, subject=source)
    return [(decision.value["from"], decision.value["to"]) for decision in made][::-1]


def record(lake: Lake, source: str, moves: Iterable[Move]) -> None:
    """Keep the moves of a source's folder: the files by which they are recognised will be deleted some day."""
    decisions.append(lake, [Decision(MOVED_FOLDER, source, {"from": old, "to": new}) for old, new in moves])


def below(pattern: str) -> Callable[[str], str]:
    """A path below the source's folder, the part of the pattern without wildcards."""
    start = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    root = start.rpartition("/")[0]
    return lambda path: path[len(root) + 1 :] if path.startswith(f"{root}/") else _name(path)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _is_unknown(state: FileState | None) -> bool:
    """True if nothing was read at a path, or only what came after the part that was read at another one."""
    return state is None or (bool(state.ranges) and min(state.ranges) > 0)


def _is_it(path: str, present: tuple[int, float], state: FileState, same: Same) -> bool:
    size, mtime = present
    if (size, mtime) == (state.size, state.mtime):
        return True
    if size < state.size or not same(path, state):
        return False
    if size == state.size:
        state.mtime = mtime  # this session does not compare it again
    return True


def _joined(former: FileState, moved: FileState | None) -> FileState:
    """What was read of one file at both of its paths."""
    if moved is None:
        return former
    later = moved if moved.position >= former.position else former
    newest = max(former, moved, key=lambda state: (state.mtime, state.size))
    return replace(
        newest,
        position=later.position,
        tail=later.tail,
        head=former.head or moved.head,
        ranges=former.ranges | moved.ranges,
    )
