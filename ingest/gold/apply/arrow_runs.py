"""Run the folds of a batch's mirrors: together, or each in shares of its keys; by tasks or here."""

from __future__ import annotations

import uuid
from collections import defaultdict
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
from ingest.gold.apply import arrow_pass, planner, targets
from ingest.gold.apply.arrow_pass import FilesPart, NewRowsPart
from ingest.gold.fold import arrow_parts, arrow_shares, era_shares
from ingest.gold.fold.arrow_files import Written, make, read
from ingest.gold.fold.arrow_parts import Dealt, DealtPart, RowGroup
from ingest.gold.fold.arrow_shares import Links
from ingest.gold.fold.arrow_values import HistoryNeeded, PartsNeeded
from ingest.gold.fold.arrow_work import MirrorWork, Rows, lanes_of
from ingest.gold.fold.change_files import ChangeFiles
from ingest.gold.fold.key_shares import KeysOfChanges, Shares
from ingest.gold.plan.completed import STAGE
from ingest.spark.deferred import cores
from ingest.spark.tasks import Load, Work, dealt, one_each
from ingest.store import faults, stores
from ingest.tables.schemas import CPU

Given = TypeVar("Given")
Report = TypeVar("Report")
Across = Callable[..., Iterable[Any]]
"""`map`, or that of a pool of threads."""
_ROWS = "rows of large mirrors"
_LEAST = 1_000  # changes of a share: fewer are not the reason why it is large


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
    by_path, again = {work.path: work for work in works}, list[MirrorWork]()
    passing, dealt = [work for work in works if work.passed], list(filter(_is_dealt, works))
    few = [work for work in works if not (work.passed or _is_dealt(work))]
    runs = (_together(files, few, pool), _in_passes(files, passing), _in_shares(files, dealt))
    for path, made in chain.from_iterable(runs):
        if any(part.needs == HistoryNeeded.needs for part in made):
            again.append(targets.whole(files, by_path[path]))
        else:
            yield path, made
    yield from _in_shares(files, again)


def _is_dealt(work: MirrorWork) -> bool:
    """True if one process does not hold a mirror's changes."""
    return bool(work.shared) or work.changes > planner.CHANGES_AT_MOST


def _together(
    files: ChangeFiles, works: Sequence[MirrorWork], pool: ThreadPoolExecutor
) -> Iterator[tuple[str, list[Written]]]:
    """The results of mirrors that are folded from their new changes, or from short histories."""
    if not works:
        return
    load = Load(sum(work.changes for work in works))
    groups = partial(_groups, cores=cores(files.lake.spark))
    folding = partial(_fold_some, files.of(lanes_of(works)), fold=make)
    for report in _reports(files, folding, works, Written, groups, load, pool):
        yield report.path, [report]


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


def _in_shares(files: ChangeFiles, works: Sequence[MirrorWork]) -> Iterator[tuple[str, list[Written]]]:
    """The results of mirrors with more changes than one process holds, or of which only now is known that all count."""
    rekeyed = [work for work in works if any(lane.rekeyed for lane in work.lanes)]
    if others := [work for work in works if work not in rekeyed]:
        yield from _of_shares(files, others, _pieces(files, others))
    for work in rekeyed:
        yield from _after_earlier_keys(files, work)


def _pieces(files: ChangeFiles, works: Sequence[MirrorWork]) -> list[RowGroup]:
    lanes = lanes_of(works)
    return arrow_parts.pieces(files.of(lanes), lanes)


def _of_shares(
    files: ChangeFiles, works: Sequence[MirrorWork], pieces: Sequence[RowGroup], finer: int = 1
) -> Iterator[tuple[str, list[Written]]]:
    """The results of mirrors whose changes are dealt to shares by their last key; to more where the rows of one are too large.

    ``finer`` says how many times as many shares there are as the numbers of changes ask for.
    """
    shares, failed = _linked(files, works, pieces, finer)
    yield from ((path, [Written(path, why)]) for path, why in failed.items())
    large = []
    works = [work for work in works if work.path not in failed]
    for work, made in _dealt_and_merged(files, works, pieces, shares):
        if _most(work, finer) > _LEAST and any(part.needs == PartsNeeded.needs for part in made):
            large.append(work)
        else:
            yield work.path, made
    if large:
        yield from _of_shares(files, large, pieces, 4 * finer)


def _most(work: MirrorWork, finer: int) -> int:
    """The changes of a share: fewer where each is looked at."""
    by_images = bool(work.keys) and all(lane.images and not lane.whole for lane in work.lanes)
    return (planner.CHANGES_AT_MOST if by_images else planner.HISTORY_AT_MOST) // finer


def _linked(
    files: ChangeFiles, works: Sequence[MirrorWork], pieces: Sequence[RowGroup], finer: int
) -> tuple[dict[str, Shares], dict[str, str]]:
    """The shares of mirrors, with keys that changes link in one; and why they are not known of some."""
    keys = {work.path: KeysOfChanges(set(), set()) for work in works}
    failed = dict[str, str]()
    asked = [
        looked
        for work in works
        if work.keys and work.shared and (looked := arrow_shares.looked_through(work)) is not None
    ]
    if asked:
        links, load = partial(arrow_shares.links, asked), Load(sum(work.dealt for work in works))
        for linked in _reports(files, links, pieces, Links, partial(_by_tasks, files), load):
            if linked.refused:
                failed[linked.path] = linked.refused
            keys[linked.path].links.update(linked.pairs)
            keys[linked.path].touched.update(linked.touched)
    return {
        work.path: arrow_shares.shares_of(work, keys[work.path], _most(work, finer)) for work in works
    }, failed


def _after_earlier_keys(files: ChangeFiles, work: MirrorWork) -> Iterator[tuple[str, list[Written]]]:
    """The result of a mirror of which some tables had other keys: these are folded first, one after the other."""
    with _folder([work]) as kept:
        lanes, pieces = [], _pieces(files, [work])
        for lane in work.lanes:
            left, existing = None, list[RowGroup]()
            for ending in era_shares.endings(files.of([lane]), lane, work):
                era = era_shares.under(ending, lane, work, left, kept)
                results = _of_shares(files, [era], [*pieces, *existing])
                made = [part for _, parts in results for part in parts]
                if stopped := [part for part in made if not part.is_made]:
                    yield work.path, stopped[:1]
                    return
                existing = arrow_parts.pieces([part.file for part in made if part.file], era.lanes)
                left = ending
            lanes.append(era_shares.after(lane, left))
            pieces = [*pieces, *existing]
        yield from _of_shares(files, [replace(work, lanes=tuple(lanes))], pieces)


def _by_tasks(files: ChangeFiles, pieces: Sequence[RowGroup]) -> list[Sequence[RowGroup]]:
    """Pieces of ``changes`` as the shares of tasks."""
    rows = sum(piece.rows for piece in pieces)
    count = max(2 * cores(files.lake.spark), rows // planner.CHANGES_AT_MOST)
    return [pieces[start::count] for start in range(min(count, len(pieces)))]


def _dealt_and_merged(
    files: ChangeFiles,
    works: Sequence[MirrorWork],
    pieces: Sequence[RowGroup],
    shares: Mapping[str, Shares],
) -> Iterator[tuple[MirrorWork, list[Written]]]:
    """The results of each mirror, of two rounds of work: pieces of ``changes`` are dealt to shares, and each becomes a file."""
    load = Load(sum(work.dealt for work in works))
    with _folder(works) as folder:
        deal = partial(arrow_shares.deal, works, shares=shares, folder=folder)
        dealt = defaultdict[str, list[Dealt]](list)
        for report in _reports(files, deal, pieces, Dealt, partial(_by_tasks, files), load):
            dealt[report.path].append(report)
        todo = [
            DealtPart(work, dealt[work.path], number)
            for work in works
            if all(report.is_made for report in dealt[work.path])
            for number in range(shares[work.path].count)
        ]
        made, merge = defaultdict[str, list[Written]](list), partial(_merge_shares, shares=shares)
        for part in _reports(files, merge, todo, Written, one_each, load):
            made[part.path].append(part)
        for work in works:
            yield work, _as_result(work, dealt[work.path], made[work.path])


def _as_result(work: MirrorWork, dealt: Sequence[Dealt], made: list[Written]) -> list[Written]:
    """What the shares of a mirror have become, with what was found when they were dealt."""
    if refused := [report for report in dealt if not report.is_made]:
        return [Written(work.path, report.refused, report.needs, report.held) for report in refused[:1]]
    if all(part.is_made for part in made):
        try:
            made[0] = replace(made[0], vectors=arrow_parts.vectors_of(work, made))
        except StoreError as error:
            made[0] = replace(made[0], refused=str(error))
    made[0].rejects.extend(each for report in dealt for each in report.rejected)
    made[0].counts[CPU] = made[0].counts.get(CPU, 0) + sum(report.cpu for report in dealt)
    return made


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


def _merge_shares(parts: Sequence[DealtPart], shares: Mapping[str, Shares]) -> Iterator[Written]:
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
