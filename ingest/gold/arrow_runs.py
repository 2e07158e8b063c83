"""Run the folds of a batch's mirrors: together, in parts of their changes, or in shares of their keys; by tasks or here."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from ingest.errors import StoreError, counted
from ingest.gold import arrow_parts, arrow_pass, arrow_shares, era_shares, planner, targets
from ingest.gold.arrow_files import Written, make, read
from ingest.gold.arrow_parts import Dealt, RowGroup
from ingest.gold.arrow_pass import FilesPart, NewRowsPart
from ingest.gold.arrow_shares import Links
from ingest.gold.arrow_values import HistoryNeeded, PartsNeeded
from ingest.gold.arrow_work import MirrorWork, Rows, lanes_of
from ingest.gold.change_files import ChangeFiles
from ingest.gold.completed import STAGE
from ingest.gold.key_shares import KeysOfChanges, Shares
from ingest.gold.past_keys import Ending
from ingest.lake import faults, stores
from ingest.lake.schemas import CPU
from ingest.spark.deferred import cores
from ingest.spark.tasks import Load, Work, dealt, one_each

Given = TypeVar("Given")
Report = TypeVar("Report")
Across = Callable[..., Iterable[Any]]
"""`map`, or that of a pool of threads."""
_ROWS = "rows of large mirrors"
_LEAST = 1_000  # changes of a part: fewer are not the reason why it is large


def each_made(
    files: ChangeFiles, works: Sequence[MirrorWork], pool: ThreadPoolExecutor
) -> Iterator[tuple[str, list[Written]]]:
    """What the folds of mirrors have written, or why they have not; all have failed if ``changes`` cannot be read."""
    done: set[str] = set()
    try:
        for path, made in _made(files, works, pool):
            done.add(path)
            yield path, made
    except Exception as error:  # the stage goes on
        why = faults.said(error)
        yield from ((work.path, [Written(work.path, why)]) for work in works if work.path not in done)


def _made(
    files: ChangeFiles, works: Sequence[MirrorWork], pool: ThreadPoolExecutor
) -> Iterator[tuple[str, list[Written]]]:
    """The results of each mirror; one of which now is known that its whole history is needed is folded again from it."""
    waiting = {work.path: work for work in works}
    passing = [work for work in works if work.passed and not work.shared]
    news = [work for work in works if not work.shared and not work.passed]
    for path, made in chain(_by_news(files, news, pool), _in_passes(files, passing)):
        if any(part.needs == HistoryNeeded.needs for part in made):
            waiting[path] = targets.whole(files, waiting[path])
        else:
            del waiting[path]
            yield path, made
    if waiting:
        yield from _in_shares(files, list(waiting.values()))


def _by_news(
    files: ChangeFiles, works: Sequence[MirrorWork], pool: ThreadPoolExecutor
) -> Iterator[tuple[str, list[Written]]]:
    """The results of mirrors that are folded from their new changes, or from short histories."""
    if not works:
        return
    changes = files.of(lanes_of(works))
    load = Load(sum(work.changes for work in works))
    small = [work for work in works if work.changes <= planner.CHANGES_AT_MOST]
    groups = partial(_groups, cores=cores(files.lake.spark))
    folding = partial(_fold_some, changes, fold=make)
    for report in _reports(files, folding, small, Written, groups, load, pool):
        yield report.path, [report]
    if many := [work for work in works if work.changes > planner.CHANGES_AT_MOST]:
        pieces = arrow_parts.pieces(changes, lanes_of(many))
        yield from _in_parts(files, many, pieces, planner.CHANGES_AT_MOST)


def _in_passes(files: ChangeFiles, works: Sequence[MirrorWork]) -> Iterator[tuple[str, list[Written]]]:
    """The results of large mirrors all of whose rows are written again, file by file."""
    if not works:
        return
    changes = files.of(lanes_of(works))
    load = Load(sum(work.changes + work.passed // arrow_pass.CHANGE_ROWS for work in works))
    with _folder(works) as folder:
        folding = partial(_fold_some, changes, fold=partial(arrow_pass.outcomes, folder=folder))
        folded = {part.path: part for part in _reports(files, folding, works, Written, one_each, load)}
        ready = [work for work in works if folded[work.path].is_made]
        made = {work.path: [folded[work.path]] for work in works}
        parts = [
            FilesPart(group, folded[work.path].file)
            for work in ready
            for group in _of_files(work, cores(files.lake.spark))
        ]
        for part in _reports(
            files, partial(map, arrow_pass.passed), parts, Written, one_each, load, what=_ROWS
        ):
            made[part.path].append(part)
        new = [
            NewRowsPart(work, folded[work.path].file, [part.gone[arrow_pass.MATCHED] for part in parts_made])
            for work, parts_made in ((work, made[work.path][1:]) for work in ready)
            if all(part.is_made for part in parts_made)
        ]
        for part in _reports(
            files, partial(map, arrow_pass.inserted), new, Written, one_each, load, what=_ROWS
        ):
            made[part.path].append(part)
        # the file of outcomes is none of the mirror's
        yield from ((path, [replace(first, file=""), *rest]) for path, (first, *rest) in made.items())


@contextmanager
def _folder(works: Sequence[MirrorWork]) -> Iterator[str]:
    """The name of a folder in each mirror's folder for what tasks leave to others; it is removed afterwards."""
    folder = f"parts-{uuid.uuid4()}"
    try:
        yield folder
    finally:
        for work in works:
            with suppress(StoreError):  # `ingest maintain` deletes what is left
                stores.at(work.folder).remove_folder(f"{work.folder}/{folder}")


def _of_files(work: MirrorWork, cores: int) -> list[MirrorWork]:
    """A mirror's part of a batch for some of its files each, of about equal size."""
    sizes = {file: stores.at(work.folder).size(f"{work.folder}/{file}") for file, _ in work.files}
    count = max(cores, sum(sizes.values()) // arrow_pass.FILE_BYTES)
    shares = dealt(work.files, lambda file: sizes[file[0]], count)
    return [replace(work, files=tuple(share)) for share in shares if share]


def _in_parts(
    files: ChangeFiles, works: Sequence[MirrorWork], pieces: Sequence[RowGroup], most: int
) -> Iterator[tuple[str, list[Written]]]:
    """The results of mirrors with many changes, each of which carries its whole row, in parts of so many changes; in smaller
    parts where the rows are large.
    """
    counts = {work.path: arrow_parts.parts_of(work, most) for work in works}
    load = Load(sum(work.changes for work in works))
    deal, merge = partial(arrow_parts.deal, works, most=most), partial(_merge_parts, most=most)
    large = []
    for path, made in _dealt_and_merged(files, works, pieces, deal, merge, counts, load):
        if most > _LEAST and any(part.needs == PartsNeeded.needs for part in made):
            large += [work for work in works if work.path == path]
        else:
            yield path, made
    if large:
        yield from _in_parts(files, large, pieces, most // 4)


def _in_shares(files: ChangeFiles, works: Sequence[MirrorWork]) -> Iterator[tuple[str, list[Written]]]:
    """The results of mirrors with many changes that belong together, or of which only now is known that all do."""
    rekeyed = [work for work in works if any(lane.eras and lane.whole for lane in work.lanes)]
    works = [work for work in works if work not in rekeyed]
    if works:
        yield from _of_shares(files, works, _pieces(files, works))
    for work in rekeyed:
        yield from _after_earlier_keys(files, work)


def _pieces(files: ChangeFiles, works: Sequence[MirrorWork]) -> list[RowGroup]:
    lanes = lanes_of(works)
    return arrow_parts.pieces(files.of(lanes), lanes)


def _of_shares(
    files: ChangeFiles, works: Sequence[MirrorWork], pieces: Sequence[RowGroup]
) -> Iterator[tuple[str, list[Written]]]:
    """The results of mirrors whose changes are dealt to shares by their last key."""
    shares, failed = _linked(files, works, pieces)
    yield from ((path, [Written(path, why)]) for path, why in failed.items())
    works = [work for work in works if work.path not in failed]
    counts = {path: share.count for path, share in shares.items()}
    load = Load(sum(work.shared for work in works))
    deal, merge = partial(arrow_shares.deal, works, shares=shares), partial(_merge_shares, shares=shares)
    yield from _dealt_and_merged(files, works, pieces, deal, merge, counts, load)


def _linked(
    files: ChangeFiles, works: Sequence[MirrorWork], pieces: Sequence[RowGroup]
) -> tuple[dict[str, Shares], dict[str, str]]:
    """The shares of mirrors, with keys that changes link in one; and why they are not known of some."""
    load = Load(sum(work.shared for work in works))
    keys = {work.path: KeysOfChanges(set(), set()) for work in works}
    failed = dict[str, str]()
    asked = [
        looked for work in works if work.keys and (looked := arrow_shares.looked_through(work)) is not None
    ]
    if asked:
        links = partial(arrow_shares.links, asked)
        for linked in _reports(files, links, pieces, Links, partial(_by_tasks, files), load):
            if linked.refused:
                failed[linked.path] = linked.refused
            keys[linked.path].links.update(linked.pairs)
            keys[linked.path].touched.update(linked.touched)
    most = planner.HISTORY_AT_MOST
    return {work.path: arrow_shares.shares_of(work, keys[work.path], most) for work in works}, failed


def _after_earlier_keys(files: ChangeFiles, work: MirrorWork) -> Iterator[tuple[str, list[Written]]]:
    """The result of a mirror of which some tables had other keys: these are folded first, one after the other."""
    with _folder([work]) as kept:
        lanes, pieces = [], _pieces(files, [work])
        for lane in work.lanes:
            left, existing, why = None, list[RowGroup](), None
            earlier = era_shares.endings(files.of([lane]), lane, work) if lane.eras and lane.whole else []
            for ending in earlier:
                era = era_shares.under(ending, lane, work, left)
                made = _settled(files, era, ending, [*pieces, *existing], kept)
                why = next((part for part in made if not part.is_made), None)
                if why is not None:
                    yield work.path, [why]
                    return
                existing = arrow_parts.pieces([part.file for part in made if part.file], era.lanes)
                left = ending
            lanes.append(era_shares.after(lane, left) if lane.eras and lane.whole else lane)
            pieces = [*pieces, *existing]
        yield from _of_shares(files, [replace(work, lanes=tuple(lanes))], pieces)


def _settled(
    files: ChangeFiles, era: MirrorWork, ending: Ending, pieces: Sequence[RowGroup], kept: str
) -> list[Written]:
    """What the changes under an earlier key leave to the next one, in files of the folder ``kept``."""
    shares, failed = _linked(files, [era], pieces)
    if why := failed.get(era.path):
        return [Written(era.path, why)]
    its_shares = shares[era.path] if era.keys else Shares(1)
    [lane] = era.lanes
    deal = partial(era_shares.deal, era, its_shares)
    settle = partial(era_shares.settled, ending, lane.first if lane.begins else 0, kept)
    counts, load = {era.path: its_shares.count}, Load(era.shared)
    dealing = _dealt_and_merged(files, [era], pieces, deal, settle, counts, load)
    return [part for _, made in dealing for part in made]


def _by_tasks(files: ChangeFiles, pieces: Sequence[RowGroup]) -> list[Sequence[RowGroup]]:
    """Pieces of ``changes`` as the shares of tasks."""
    rows = sum(piece.rows for piece in pieces)
    count = max(2 * cores(files.lake.spark), rows // planner.CHANGES_AT_MOST)
    return [pieces[start::count] for start in range(min(count, len(pieces)))]


def _dealt_and_merged(
    files: ChangeFiles,
    works: Sequence[MirrorWork],
    pieces: Sequence[RowGroup],
    deal: Callable[..., Iterable[Dealt]],
    merge: Callable[..., Iterable[Written]],
    counts: Mapping[str, int],
    load: Load,
) -> Iterator[tuple[str, list[Written]]]:
    """The results of each mirror, of two rounds of work: pieces of ``changes`` are dealt to parts, and each part becomes a file.

    ``deal`` takes pieces and a folder, ``merge`` takes parts, each with what was dealt; ``counts`` are those of the parts.
    """
    with _folder(works) as folder:
        dealt: dict[str, list[Dealt]] = {work.path: [] for work in works}
        into_folder = partial(deal, folder=folder)
        for report in _reports(files, into_folder, pieces, Dealt, partial(_by_tasks, files), load):
            dealt[report.path].append(report)
        refused = {
            report.path: Written(report.path, report.refused, report.needs, report.held)
            for reports in dealt.values()
            for report in reports
            if not report.is_made
        }
        yield from ((path, [written]) for path, written in refused.items())
        todo = [
            arrow_parts.DealtPart(work, dealt[work.path], number)
            for work in works
            for number in range(counts[work.path])
            if work.path not in refused
        ]
        made: dict[str, list[Written]] = {}
        for each in _reports(files, merge, todo, Written, one_each, load):
            made.setdefault(each.path, []).append(each)
        for work in (work for work in works if work.path in made):
            parts, reports = made[work.path], dealt[work.path]
            if all(part.is_made for part in parts):
                try:
                    parts[0] = replace(parts[0], vectors=arrow_parts.vectors_of(work, parts))
                except StoreError as error:
                    parts[0] = replace(parts[0], refused=str(error))
            parts[0].rejects.extend(each for report in reports for each in report.rejected)
            parts[0].counts[CPU] = parts[0].counts.get(CPU, 0) + sum(report.cpu for report in reports)
            yield work.path, parts


def _groups(works: Sequence[MirrorWork], cores: int) -> list[list[MirrorWork]]:
    """Mirrors in groups of about equal numbers of changes and bytes."""
    return dealt(sorted(works, key=_weight), _weight, cores)


def _weight(work: MirrorWork) -> int:
    return 50_000 + work.size + 1_000 * work.changes


def _fold_some(
    files: Sequence[str],
    works: Sequence[MirrorWork],
    across: Across = map,
    *,
    fold: Callable[[MirrorWork, Rows], Written],
) -> Iterator[Written]:
    """Fold some mirrors."""
    try:
        rows = read(files, lanes_of(works))
    except StoreError as error:
        stopped = [Written.stopped(work.path, error) for work in works]
        return iter(stopped)
    return iter(across(lambda work: fold(work, rows), works))


def _merge_parts(parts: Sequence[arrow_parts.DealtPart], most: int) -> Iterator[Written]:
    return (arrow_parts.merged(*part, most) for part in parts)


def _merge_shares(parts: Sequence[arrow_parts.DealtPart], shares: Mapping[str, Shares]) -> Iterator[Written]:
    return (arrow_shares.merged(work, dealt, share, shares[work.path]) for work, dealt, share in parts)


def _reports(
    files: ChangeFiles,
    do: Callable[..., Iterable[Report]],
    items: Sequence[Given],
    kind: type[Report],
    deal: Callable[[Sequence[Given]], Sequence[Sequence[Given]]],
    load: Load,
    pool: ThreadPoolExecutor | None = None,
    what: str = "changes of large mirrors",
) -> Iterator[Report]:
    """What the work on some items has found; ``what`` is read if these are not mirrors."""

    def run(share: Sequence[Given], **how: Any) -> Iterator[pa.RecordBatch]:
        for report in do(share, **how):
            text = msgspec.json.encode(report).decode()
            yield pa.RecordBatch.from_arrays([pa.array([text], pa.string())], names=["written"])

    mirrors = [item for item in items if isinstance(item, MirrorWork)]
    last = max((lane.last for lane in lanes_of(mirrors)), default=0)
    about = (f"batch {last}", counted(len(mirrors), "mirror")) if mirrors else ("", what)
    work = Work(STAGE, items, run, "written STRING", deal, load, *about, pool)
    return (msgspec.json.decode(row["written"], type=kind) for row in files.rows(work))
