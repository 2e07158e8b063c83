"""What the fold of each mirror of a batch reads and writes: its lanes, its columns, its table's files."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow.dataset as ds

from ingest import types
from ingest.change import LaneId
from ingest.gold.apply import history, mirror_table, planner
from ingest.gold.apply.planner import FoldPlan, refolds
from ingest.gold.fold import arrow_parts
from ingest.gold.fold.arrow_files import FILES, SMALL
from ingest.gold.fold.arrow_parts import Fragments
from ingest.gold.fold.arrow_work import ColumnWork, LaneWork, MirrorWork
from ingest.gold.fold.change_files import ChangeFiles
from ingest.gold.plan import ways
from ingest.gold.plan.lane import Lane, Steps, lane_name
from ingest.ledgers import histories
from ingest.ledgers.mirrors import Column, Mirror
from ingest.tables import delta
from ingest.tables.delta import Snapshot, type_in_log
from ingest.tables.schemas import CHANGES

_ROW_BYTES = 16  # of a row in a file, at least, about


def kept_fragments() -> Fragments:
    """Opens files of ``changes`` for the mirrors of one batch, each once, whichever thread asks."""
    lock, kept = Lock(), cache(arrow_parts.fragment)

    def opened(file: str) -> ds.ParquetFileFragment:
        with lock:
            fragment = kept(file)
            fragment.ensure_complete_metadata()
            return fragment

    return opened


def target(files: ChangeFiles, opened: Fragments, fold: FoldPlan) -> MirrorWork:
    """What the fold of a mirror reads and writes.

    Args:
        files: finds the files of ``changes``.
        opened: opens them.
        fold: the mirror's part of the batch.
    """
    mirror, before, rule = fold.plan.mirror, fold.before, fold.plan.job.rule
    folder = files.lake.path(mirror.path)
    lanes = tuple(_lane(mirror, *lane_work, fold.plan.job.lanes) for lane_work in fold.work)
    if is_history := histories.is_history(mirror):
        lanes = history.with_history(files.lake, lanes, fold.work)
    columns = tuple(
        ColumnWork(column.name, column.column, column.type, column.expression) for column in mirror.columns
    )
    work = MirrorWork(
        mirror.path, folder, mirror.keys, columns, lanes,
        changes=fold.changes, shared=planner.shared(mirror, fold.work), where=mirror.where, again=fold.again,
        appends=not mirror.keys and rule.no_key == "append",
        states=is_history, fills=fold.fills, passed=_rows_of(before) if fold.passes else 0,
    )  # fmt: skip
    if fold.why_merge:
        work = replace(work, staging=f"parts-{uuid.uuid4()}")
        if not files.lake.is_local:
            work = replace(work, folder=files.spool)
    if not before.exists or not files.lake.is_local:
        return replace(work, described=_json(map(_field, mirror.columns)))
    reads = not fold.why_merge and any(file.vector for file in before.files)
    kept = delta.kept_rows(folder, before.version) if reads else {}
    if _many_later(files, [lane for lane in lanes if lane.late_from], opened):
        work = whole(files, work)
    kept_files = tuple((file.place, kept.get(Path(file.place).name)) for file in before.files)
    schema = _schema(before, mirror)
    return replace(
        work, files=kept_files, size=before.known_size, reshaped=bool(schema or fold.again or fold.fills), old=_old(before, mirror),
        marked=_marked(fold, files.lake.pipeline.rewrite_budget) if fold.marks else frozenset(), described=schema,
    )  # fmt: skip


def _rows_of(before: Snapshot) -> int:
    """A table's rows; about as many as its bytes hold if its log does not say."""
    return before.rows or 1 + before.known_size // _ROW_BYTES


def whole(files: ChangeFiles, work: MirrorWork) -> MirrorWork:
    """A mirror's part, folded from its whole history."""
    lanes = work.whole(0).lanes
    return work.whole(max(1, sum(piece.rows for piece in arrow_parts.pieces(files.of(lanes), lanes))))


def _lane(mirror: Mirror, lane: Lane, steps: Steps, lanes: Collection[LaneId]) -> LaneWork:
    """A lane's part of a mirror's work: which of its changes are read, and what the books and statements say of them."""
    whole = not mirror.keys or refolds(lane, steps)
    new = steps.after(lane.eras[-1].place).new if lane.eras else steps.new
    return LaneWork(
        lane.source,
        lane.table,
        lane.first,
        lane.last,
        images=not (lane.new.partials or lane.new.key_changes),
        floor=max((str(step.order) for step in steps.incarnations), default=""),
        shard=lane.shard,
        stamps=lane.stamps,
        whole=whole,
        steps=steps.ever,
        stated=steps.new if steps.passes else (),
        since=min((str(step.order) for step in new), default=""),
        eras=lane.eras,
        begins=not lane.folded_high,
        moves=lane.new.key_changes or lane.ever.key_changes,
        departs=bool(lane.deletes) or lane.new.key_changes,
        last_folded=lane.last_folded,
        merged=lane_name(lanes, (lane.source, lane.table)) if lane.merged else "",
        shared_reads=lane.shared_reads,
        late_from="" if whole else planner.late_from(lane, steps),
    )


def _many_later(files: ChangeFiles, late: Sequence[LaneWork], opened: Fragments) -> bool:
    """True if the folded changes after the late ones are too many to be looked through."""
    if not late or files.lake.snapshot(CHANGES.name).known_size <= planner.SILVER_AT_MOST:
        return False
    rows = sum(piece.rows for piece in arrow_parts.pieces(files.of(late), late, opened))
    return rows > planner.CHANGES_AT_MOST


def _marked(fold: FoldPlan, budget: int | None) -> frozenset[str]:
    """The files of a large mirror that stay: all, until there are enough small ones to write these again as one.

    Parts of a batch write several, so that they leave them all to the next one.
    """
    files, most = fold.before.files, (SMALL if budget is None else min(SMALL, budget)) // FILES
    small = [file.place for file in files if file.size <= most][:FILES]
    joins = len(small) == FILES and fold.changes <= planner.CHANGES_AT_MOST
    return frozenset(file.place for file in files) - set(small if joins else ())


def _old(before: Snapshot, mirror: Mirror) -> tuple[tuple[str, str], ...]:
    """The columns that get another type, with theirs, or with none if their values are not kept."""
    delta_types = before.delta_types
    changed = ((column, delta_types.get(column.column, column.delta)) for column in mirror.columns)
    return tuple(
        (column.column, old if types.widens(old, column.delta) else "")
        for column, old in changed
        if old != column.delta
    )


def _schema(before: Snapshot, mirror: Mirror) -> str:
    """The table's columns after the batch, if they change: those of the mirror; existing ones of the same type keep
    their metadata.
    """
    fields_before = {field["name"]: field for field in ways.fields(before)}
    fields = {}
    for column in mirror.columns:
        new = _field(column)
        field = fields_before.get(column.column, new)
        if field["type"] != new["type"]:
            field = new
        elif column.comment:
            field = {**field, "metadata": {**field["metadata"], "comment": mirror_table.comment_of(column)}}
        fields[column.column] = field
    return "" if fields == fields_before else _json(fields.values())  # in whatever order


def _json(fields: Iterable[Mapping[str, Any]]) -> str:
    return json.dumps({"type": "struct", "fields": list(fields)})


def _field(column: Column) -> dict[str, Any]:
    """A column as the log describes it."""
    comment = mirror_table.comment_of(column)
    return {
        "name": column.column,
        "type": type_in_log(column.delta),
        "nullable": True,
        "metadata": {"comment": comment} if comment else {},
    }
