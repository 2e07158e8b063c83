"""Merge mirrors by Arrow: this process or Spark's tasks write each mirror's new file, and this process commits it."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake.exceptions import DeltaError
from pyspark.errors import PySparkException

from ingest import types
from ingest.change import LaneId
from ingest.errors import IngestError, StoreError, counted
from ingest.gold import (
    arrow_parts,
    arrow_shares,
    history,
    merge_entry,
    mirror_table,
    outgrown,
    planner,
    retyped,
    unfit,
    ways,
)
from ingest.gold.arrow_files import FILES, SMALL, Written, changes_files, make, read
from ingest.gold.arrow_parts import Dealt, Fragments, RowGroup
from ingest.gold.arrow_shares import Links
from ingest.gold.arrow_work import ColumnWork, LaneWork, MirrorWork
from ingest.gold.completed import STAGE
from ingest.gold.key_shares import KeysOfChanges, Shares
from ingest.gold.lane import Lane, Steps, lane_name
from ingest.gold.planner import FoldPlan, refolds
from ingest.gold.results import MirrorCommit
from ingest.gold.unfit import COUNTED
from ingest.lake import commits, delta, histories, stores
from ingest.lake.commits import NewRows
from ingest.lake.datafiles import Added
from ingest.lake.delta import Snapshot, type_in_log, type_of_log
from ingest.lake.lake import Lake, Tell
from ingest.lake.mirrors import Column, Mirror
from ingest.lake.schemas import CHANGES, CPU
from ingest.spark.deferred import cores
from ingest.spark.tasks import Load, Work, one_each

Given = TypeVar("Given")
Report = TypeVar("Report")
Across = Callable[..., Iterable[Any]]
"""`map`, or that of a pool of threads."""
MERGES = 3  # at the same time: a MERGE's cost is planning and commits (see benchmarks)


def fold(lake: Lake, plans: Sequence[FoldPlan], tell: Tell) -> dict[str, MirrorCommit]:
    """Fold mirrors, and apply the outcomes of each, by files or by a MERGE; returns the result of each by its path.

    A refused mirror has no commit: Spark folds it. One of a lake that only Spark reads is folded in this process.
    """
    began = time.monotonic()
    found: dict[str, MirrorCommit] = {}
    merges: dict[str, Future[MirrorCommit]] = {}
    opened: dict[str, _Target] = {}
    by_path = {one.plan.mirror.path: one for one in plans}
    opens = partial(_open, lake, opened=_kept_fragments())
    with (
        ThreadPoolExecutor(max(2, min(8, cores(lake.spark))), thread_name_prefix="arrow") as pool,
        ThreadPoolExecutor(MERGES, thread_name_prefix="merge") as merging,
    ):
        for path, target in zip(by_path, pool.map(opens, plans), strict=True):
            if isinstance(target, str):
                found[path] = MirrorCommit(target)
            else:
                opened[path] = target
        works = [target.work for path, target in opened.items() if not by_path[path].why_spark]
        for path, target in opened.items():
            if by_path[path].why_spark:
                from ingest.gold import apply_merge

                merges[path] = merging.submit(apply_merge.fold_far, lake, by_path[path], target.work)
        by_spark = lake.runner.in_tasks(STAGE, Load(sum(one.changes for one in works)))
        engine = merge_entry.engine(by_spark=by_spark)
        for path, made in _each_made(lake, works, pool):
            fold_plan, target, counts = by_path[path], opened[path], Counter[str]()
            tell(fold_plan.plan.mirror.name, "load" if fold_plan.fresh else "merge")
            stopped = _stopped(lake, fold_plan, target.work, made, counts)
            if stopped is not None:
                found[path] = stopped
            elif fold_plan.why_merge:
                from ingest.gold import apply_merge  # Spark's, which a batch of files does without

                merges[path] = merging.submit(apply_merge.commit, lake, fold_plan, target.work, made, counts)
            else:
                found[path] = _committed(lake, fold_plan, target, made, counts, engine)
        found |= {path: merge.result() for path, merge in merges.items()}
    each = (time.monotonic() - began) / len(plans)
    return {path: replace(one, seconds=each) for path, one in found.items()}


# --- before ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Target:
    work: MirrorWork
    schema: str = ""  # the JSON of its columns as they are with the batch; empty if they stay


def _kept_fragments() -> Fragments:
    """Opens files of ``changes`` for the mirrors of one batch, each once, whichever thread asks."""
    lock, kept = Lock(), cache(arrow_parts.fragment)

    def opened(file: str) -> ds.ParquetFileFragment:
        with lock:
            found = kept(file)
            found.ensure_complete_metadata()
            return found

    return opened


def _open(lake: Lake, fold: FoldPlan, opened: Fragments) -> _Target | str:
    """A mirror's files, or a text that says why Spark must fold it."""
    mirror, before, rule = fold.plan.mirror, fold.before, fold.plan.job.rule
    folder = lake.path(mirror.path)
    lanes = tuple(_lane(mirror, *one, fold.plan.job.lanes) for one in fold.work)
    shared, is_history = planner.shared(mirror, fold.work), histories.is_history(mirror)
    if is_history:
        lanes, ever = (
            history.with_history(lake, lanes, fold.work),
            sum(one.changes_ever for one, _ in fold.work),
        )
        shared = ever if ever > planner.HISTORY_AT_MOST else 0
    columns = tuple(ColumnWork(one.name, one.column, one.type, one.expression) for one in mirror.columns)
    work = MirrorWork(
        mirror.path, folder, mirror.keys, columns, lanes,
        changes=fold.changes, shared=shared, where=mirror.where, again=fold.again, appends=rule.no_key == "append", states=is_history,
    )  # fmt: skip
    if fold.why_merge:
        work = replace(work, staging=f"parts-{uuid.uuid4()}")
    if not before.exists or fold.why_spark:
        return _Target(work, _json(map(_field, mirror.columns)))
    size = before.size or 0
    try:
        reads = not fold.why_merge and any(one.vector for one in before.files)
        kept = delta.kept_rows(folder, before.version) if reads else {}
        if why := _many_later(lake, [one for one in lanes if one.late_from], opened):
            return why
    except Exception as error:  # whatever one mirror meets, the others go on
        return f"{type(error).__name__}: {error}"
    files = tuple((one.place, kept.get(Path(one.place).name)) for one in before.files)
    schema = _schema(before, mirror)
    work = replace(
        work, files=files, size=size, reshaped=bool(schema) or fold.again, old=_old(before, mirror),
        marked=_marked(fold, lake.pipeline.rewrite_budget) if fold.marks else frozenset(),
    )  # fmt: skip
    return _Target(work, schema)


def _lane(mirror: Mirror, one: Lane, steps: Steps, lanes: Collection[LaneId]) -> LaneWork:
    whole = not mirror.keys or refolds(one, steps)
    new = steps.after(one.eras[-1].place).new if one.eras else steps.new
    return LaneWork(
        one.source,
        one.table,
        one.first,
        one.last,
        images=not (one.new.partials or one.new.key_changes),
        floor=max((str(step.order) for step in steps.incarnations), default=None),
        shard=one.shard,
        stamps=one.stamps,
        whole=whole,
        steps=steps.ever,
        since=min((str(step.order) for step in new), default="") if whole else "",
        eras=one.eras,
        begins=one.folded_high is None,
        moves=one.new.key_changes or one.ever.key_changes,
        merged=lane_name(lanes, (one.source, one.table)) if one.merged else "",
        shared_reads=one.shared_reads,
        late_from="" if whole else planner.late_from(one, steps),
    )


def _many_later(lake: Lake, late: Sequence[LaneWork], opened: Fragments) -> str:
    """Why the folded changes after the late ones cannot be looked through; empty if they can."""
    if not late or (lake.snapshot(CHANGES.name).size or 0) <= planner.SILVER_AT_MOST:
        return ""
    rows = sum(one.rows for one in arrow_parts.pieces(changes_files(lake, late), late, opened))
    return f"{rows} changes may be later than its late ones" if rows > planner.CHANGES_AT_MOST else ""


def _marked(fold: FoldPlan, budget: int | None) -> frozenset[str]:
    """The files of a large mirror that stay: all, until there are enough small ones to write these again as one.

    Parts of a batch write several, so that they leave them all to the next one.
    """
    files, most = fold.before.files, (SMALL if budget is None else min(SMALL, budget)) // FILES
    small = [one.place for one in files if one.size <= most][:FILES]
    joins = len(small) == FILES and fold.changes <= planner.CHANGES_AT_MOST
    return frozenset(one.place for one in files) - set(small if joins else ())


def _old(before: Snapshot, mirror: Mirror) -> tuple[tuple[str, str], ...]:
    """The columns that get another type, with theirs, or with none if their values are not kept."""
    there = {name: type_of_log(kind) for name, kind in before.types.items()}
    changed = ((one, there.get(one.column, one.delta)) for one in mirror.columns)
    return tuple(
        (one.column, old if types.widens(old, one.delta) else "") for one, old in changed if old != one.delta
    )


def _schema(before: Snapshot, mirror: Mirror) -> str:
    """The table's columns after the batch, if they change: those of the mirror; existing ones of the same type keep
    their metadata.
    """
    there = {one["name"]: one for one in ways.fields(before)}
    fields = {}
    for one in mirror.columns:
        new = _field(one)
        field = there.get(one.column, new)
        if field["type"] != new["type"]:
            field = new
        elif one.comment:
            field = {**field, "metadata": {**field["metadata"], "comment": mirror_table.comment_of(one)}}
        fields[one.column] = field
    return "" if fields == there else _json(fields.values())  # in whatever order


def _json(fields: Iterable[Mapping[str, Any]]) -> str:
    return json.dumps({"type": "struct", "fields": list(fields)})


def _field(one: Column) -> dict[str, Any]:
    """A column as the log describes it."""
    comment = mirror_table.comment_of(one)
    return {
        "name": one.column,
        "type": type_in_log(one.delta),
        "nullable": True,
        "metadata": {"comment": comment} if comment else {},
    }


# --- the folds ------------------------------------------------------------------------------------


def _each_made(
    lake: Lake, works: Sequence[MirrorWork], pool: ThreadPoolExecutor
) -> Iterator[tuple[str, list[Written]]]:
    """The results of each mirror; if ``changes`` cannot be read this way, Spark folds all of them."""
    done: set[str] = set()
    try:
        for path, made in _made(lake, works, pool):
            done.add(path)
            yield path, made
    except (DeltaError, OSError, pa.ArrowException, PySparkException) as error:
        why = f"{type(error).__name__}: {error}"
        yield from ((work.path, [Written(work.path, why)]) for work in works if work.path not in done)


def _made(
    lake: Lake, works: Sequence[MirrorWork], pool: ThreadPoolExecutor
) -> Iterator[tuple[str, list[Written]]]:
    """The results of each mirror."""
    waiting = {work.path: work for work in works}
    for path, made in _by_news(lake, [work for work in works if not work.shared], pool):
        # rows under earlier keys are not dealt by the last one
        dealt = not any(lane.eras for lane in waiting[path].lanes)
        if not (dealt and any(one.needs_history for one in made)):
            del waiting[path]
            yield path, made
    if waiting:
        yield from _in_shares(lake, list(waiting.values()))


def _by_news(
    lake: Lake, works: Sequence[MirrorWork], pool: ThreadPoolExecutor
) -> Iterator[tuple[str, list[Written]]]:
    """The results of mirrors that are folded from their new changes, or from short histories."""
    if not works:
        return
    files = changes_files(lake, [lane for work in works for lane in work.lanes])
    load = Load(sum(work.changes for work in works))
    some = [work for work in works if work.changes <= planner.CHANGES_AT_MOST]
    groups = partial(_groups, cores=cores(lake.spark))
    for one in _reports(lake, partial(_fold_some, files), some, Written, groups, load, pool):
        yield one.path, [one]
    if many := [work for work in works if work.changes > planner.CHANGES_AT_MOST]:
        yield from _in_parts(lake, many, files, load)


def _in_parts(
    lake: Lake, works: Sequence[MirrorWork], files: Sequence[str], load: Load
) -> Iterator[tuple[str, list[Written]]]:
    """The results of mirrors with many changes, each of which carries its whole row."""
    most = planner.CHANGES_AT_MOST
    pieces = arrow_parts.pieces(files, [lane for work in works for lane in work.lanes])
    counts = {work.path: arrow_parts.parts_of(work, most) for work in works}
    dealing = _Dealing(
        partial(arrow_parts.deal, works, most=most), partial(_merge_parts, most=most), counts, load
    )
    yield from dealing.made(lake, works, pieces)


def _in_shares(lake: Lake, works: Sequence[MirrorWork]) -> Iterator[tuple[str, list[Written]]]:
    """The results of mirrors with many changes that belong together, or of which only now is known that all do."""
    works = [work if work.shared else work.whole(_history(lake, work)) for work in works]
    load = Load(sum(work.shared for work in works))
    keys = {work.path: KeysOfChanges(set(), set()) for work in works}
    failed = dict[str, str]()
    if asked := [one for one in map(arrow_shares.looked_through, works) if one is not None]:
        links = partial(arrow_shares.links, asked)
        for one in _reports(lake, links, _pieces(lake, asked), Links, partial(_by_tasks, lake), load):
            if one.failed:
                failed[one.path] = one.failed
            keys[one.path].links.update(one.pairs)
            keys[one.path].touched.update(one.touched)
    yield from ((path, [Written(path, failed=why)]) for path, why in failed.items())
    works = [work for work in works if work.path not in failed]
    shares = {
        work.path: arrow_shares.shares_of(work, keys[work.path], planner.HISTORY_AT_MOST) for work in works
    }
    counts = {path: one.count for path, one in shares.items()}
    pieces = _pieces(lake, works)
    dealing = _Dealing(
        partial(arrow_shares.deal, works, shares=shares), partial(_merge_shares, shares=shares), counts, load
    )
    yield from dealing.made(lake, works, pieces)


def _pieces(lake: Lake, works: Sequence[MirrorWork]) -> list[RowGroup]:
    """The pieces of ``changes`` that the folds of some mirrors read."""
    lanes = [lane for work in works for lane in work.lanes]
    return arrow_parts.pieces(changes_files(lake, lanes), lanes)


def _history(lake: Lake, work: MirrorWork) -> int:
    """The number of all changes of a mirror, at most."""
    lanes = work.whole(0).lanes
    return sum(one.rows for one in arrow_parts.pieces(changes_files(lake, lanes), lanes))


def _by_tasks(lake: Lake, pieces: Sequence[RowGroup]) -> list[Sequence[RowGroup]]:
    """Pieces of ``changes`` as the shares of tasks."""
    rows = sum(one.rows for one in pieces)
    return _spread(pieces, max(2 * cores(lake.spark), rows // planner.CHANGES_AT_MOST))


@dataclass(frozen=True, slots=True)
class _Dealing:
    """Two rounds of work on mirrors: pieces of ``changes`` are dealt to parts, and each part becomes a file.

    ``deal`` takes pieces and a folder, ``merge`` takes parts, each with what was dealt; ``counts`` are those of the parts.
    """

    deal: Callable[..., Iterable[Dealt]]
    merge: Callable[..., Iterable[Written]]
    counts: Mapping[str, int]
    load: Load

    def made(
        self, lake: Lake, works: Sequence[MirrorWork], pieces: Sequence[RowGroup]
    ) -> Iterator[tuple[str, list[Written]]]:
        """The results of each mirror."""
        folder = f"parts-{uuid.uuid4()}"
        try:
            dealt: dict[str, list[Dealt]] = {work.path: [] for work in works}
            deal = partial(self.deal, folder=folder)
            for one in _reports(lake, deal, pieces, Dealt, partial(_by_tasks, lake), self.load):
                dealt[one.path].append(one)
            refused = {
                one.path: Written(one.path, one.refused, one.needs_history, failed=one.failed)
                for found in dealt.values()
                for one in found
                if one.refused or one.failed
            }
            yield from ((path, [one]) for path, one in refused.items())
            todo = [
                (work, dealt[work.path], part)
                for work in works
                for part in range(self.counts[work.path])
                if work.path not in refused
            ]
            made: dict[str, list[Written]] = {}
            for each in _reports(lake, self.merge, todo, Written, one_each, self.load):
                made.setdefault(each.path, []).append(each)
            for work in works:
                parts = made.get(work.path, [])
                if parts and all(one.is_made for one in parts):
                    try:
                        parts[0] = replace(parts[0], vectors=arrow_parts.vectors_of(work, parts))
                    except StoreError as error:
                        parts[0] = replace(parts[0], failed=str(error))
            for path, parts in made.items():
                parts[0].rejects.extend(each for one in dealt[path] for each in one.rejected)
                parts[0].counts[CPU] = parts[0].counts.get(CPU, 0) + sum(one.cpu for one in dealt[path])
            yield from made.items()
        finally:
            for work in works:
                with contextlib.suppress(StoreError):  # `ingest maintain` deletes what is left
                    stores.at(work.folder).remove_folder(f"{work.folder}/{folder}")


def _groups(works: Sequence[MirrorWork], cores: int) -> list[list[MirrorWork]]:
    """Mirrors in groups of about equal numbers of changes and bytes."""
    groups: list[list[MirrorWork]] = [[] for _ in range(min(len(works), cores))]
    weights = [0] * len(groups)
    for work in sorted(works, key=_weight, reverse=True):
        least = weights.index(min(weights))
        groups[least].append(work)
        weights[least] += _weight(work)
    return groups


def _weight(work: MirrorWork) -> int:
    return 50_000 + work.size + 1_000 * work.changes


def _spread(items: Sequence[Given], count: int) -> list[Sequence[Given]]:
    """The items dealt out in turn to at most so many tasks."""
    return [items[at::count] for at in range(min(count, len(items)))]


def _fold_some(files: Sequence[str], works: Sequence[MirrorWork], across: Across = map) -> Iterator[Written]:
    """Fold some mirrors."""
    try:
        rows = read(files, [lane for work in works for lane in work.lanes])
    except StoreError as error:
        return (Written(work.path, failed=str(error)) for work in works)
    return iter(across(lambda work: make(work, rows), works))


def _merge_parts(parts: Sequence[tuple[MirrorWork, Sequence[Dealt], int]], most: int) -> Iterator[Written]:
    return (arrow_parts.merged(*part, most) for part in parts)


def _merge_shares(
    parts: Sequence[tuple[MirrorWork, Sequence[Dealt], int]], shares: Mapping[str, Shares]
) -> Iterator[Written]:
    return (arrow_shares.merged(work, dealt, share, shares[work.path]) for work, dealt, share in parts)


def _reports(
    lake: Lake,
    do: Callable[..., Iterable[Report]],
    items: Sequence[Given],
    kind: type[Report],
    deal: Callable[[Sequence[Given]], Sequence[Sequence[Given]]],
    load: Load,
    pool: ThreadPoolExecutor | None = None,
) -> Iterator[Report]:
    """What the work on some items has found."""

    def run(some: Sequence[Given], **how: Any) -> Iterator[pa.RecordBatch]:
        for one in do(some, **how):
            text = msgspec.json.encode(one).decode()
            yield pa.RecordBatch.from_arrays([pa.array([text], pa.string())], names=["written"])

    mirrors = [one for one in items if isinstance(one, MirrorWork)]
    last = max((lane.last for work in mirrors for lane in work.lanes), default=0)
    about = (
        (f"batch {last}", counted(len(mirrors), "mirror")) if mirrors else ("", "changes of large mirrors")
    )
    work = Work(STAGE, items, run, "written STRING", deal, load, *about, pool)
    return (msgspec.json.decode(row["written"], type=kind) for row in lake.runner.rows(work))


# --- the commits ----------------------------------------------------------------------------------


def _stopped(
    lake: Lake, fold: FoldPlan, work: MirrorWork, made: Sequence[Written], counts: Counter[str]
) -> MirrorCommit | None:
    """Why a mirror's outcomes are not applied; None if they are: then what does not fit is in `rejects` already.

    ``counts`` gets what its tasks have counted.
    """
    for part in made:
        if not part.is_made:
            return MirrorCommit(part.refused, part.held, failed=part.failed)
        counts.update(part.counts)
    mirror, told = fold.plan.mirror, retyped.told(fold.retyped)
    rejects = [
        each for part in made for each in part.rejects if each.place or (each.column, each.raw) not in told
    ]
    try:
        narrow = outgrown.narrow(mirror, fold.plan.job.rule, rejects)
        files = changes_files(lake, work.lanes) if narrow else []
        if narrow and (wider := outgrown.widened(mirror, narrow, files, work.lanes)):
            return MirrorCommit(wider=wider)
        if rejected := unfit.keep(lake, mirror, rejects, fold.books.last):
            counts[COUNTED] = rejected
    except StoreError as error:
        return MirrorCommit(failed=str(error))
    return None


def _committed(
    lake: Lake, fold: FoldPlan, target: _Target, made: Sequence[Written], counts: Counter[str], engine: str
) -> MirrorCommit:
    """Add a mirror's new files to its log, under the batch's identifier, unless another writer was first."""
    before, now = fold.before, int(time.time() * 1000)
    files = [Added(one.file, one.size, {}, one.stats, now) for one in made if one.file]
    replaces, added = any(one.replaces for one in made), sum(one.size for one in made)
    vectors = {name: vector for one in made for name, vector in one.vectors.items()}
    rows = NewRows(files, replaces, target.schema, marked=target.work.marked, vectors=vectors)
    if not before.exists:
        rows = rows._replace(**_described(lake, fold))
    effort = merge_entry.total(one.effort for one in made)
    said = merge_entry.entry(target.work, before, rows, counts, effort)
    rows = rows._replace(**said._asdict(), engine=engine)
    last, metadata = fold.books.last, lake.metadata(fold.books.last, landed=True)
    try:
        if unknown := retyped.keep(lake, fold.plan.mirror, fold.retyped, last):
            counts[COUNTED] += unknown
        if not commits.write(target.work.folder, before, rows, metadata, fold.writer, last):
            return MirrorCommit("another writer has committed to it")
    except StoreError as error:
        return MirrorCommit(failed=str(error))
    except (OSError, IngestError) as error:  # a full disk, for example: the others go on
        return MirrorCommit(f"{type(error).__name__}: {error}")
    size = added if replaces and not fold.marks else target.work.size + added
    return MirrorCommit(version=before.version + 1, size=size, counts=dict(counts))


def _described(lake: Lake, fold: FoldPlan) -> dict[str, Any]:
    """A new mirror's metadata and protocol, as Spark would create the table.

    delta-rs would require features that the table does not use.
    """
    given = mirror_table.Made.of(lake.pipeline, fold.plan.job.rule)
    meta = {
        "description": mirror_table.description(fold.plan.mirror),
        "format": {"provider": "parquet", "options": {}},
        "partitionColumns": [],
        "configuration": given.properties(lake.pipeline.horizon_days),
    }
    if given.plain:
        return {"meta": meta, "protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    vectors = ["deletionVectors"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": vectors,
        "writerFeatures": [*vectors, "appendOnly", "invariants"],
    }
    return {"meta": meta, "protocol": protocol}
