"""Transactions that begin in one batch and end in a later one.

A row may have come to a key with the first part, and the row that was there may leave it with the second: the new changes
alone show a plain delete, which would take the newcomer. Where that may be, the whole history decides (`ingest.departures`).
Where messages name no transaction, a row that leaves is another one than the newcomer if its image before says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ingest.change import LaneId, Op, TableId, lane_of
from ingest.departures import NO_TRANSACTION
from ingest.gold.apply import planner, targets
from ingest.gold.fold import arrow_crossings, arrow_files, arrow_merge, overtaken
from ingest.gold.fold.arrow_fold import PLACE
from ingest.gold.fold.arrow_work import LaneWork, MirrorWork, lanes_of
from ingest.gold.fold.change_files import ChangeFiles
from ingest.store import stores

REACH = 64  # batches before a lane's last folded one in which a cut transaction may have begun
_LANE = ("source", *TableId._fields)
_OPS = pa.array([str(op) for op in (Op.INSERT, Op.UPDATE, Op.DELETE)])


def whole_where_cut(files: ChangeFiles, works: Sequence[MirrorWork]) -> list[MirrorWork]:
    """The mirrors' parts of a batch; one in which a row may leave a key to which another one has come with an earlier part of
    the same transaction is folded from its whole history.
    """
    lanes = {lane.id: lane for lane in lanes_of(works) if _may_be_cut(lane)}
    cut = _cut(files, list(lanes.values())) if lanes else {}
    return [
        targets.whole(files, work)
        if any(_meets(files, lane, work, cut[lane.id]) for lane in work.lanes if lane.id in cut)
        or any(_another_leaves(files, lane, work) for lane in work.lanes if _may_be_cut(lane))
        else work
        for work in works
    ]


def _may_be_cut(lane: LaneWork) -> bool:
    """True if new changes may depend on those of the batch before; without a key the whole history is folded."""
    return lane.departs and not lane.whole and 0 < lane.last_folded < lane.first


def _cut(files: ChangeFiles, lanes: Sequence[LaneWork]) -> dict[LaneId, set[str]]:
    """The transactions of each lane that have changes among the new ones and in the batch before these."""
    parts = [_batches_of(page) for page in _named(files, lanes)]
    cut = defaultdict[LaneId, set[str]](set)
    if not parts:
        return cut
    spans = pa.concat_tables(parts).group_by([*_LANE, "transaction"])
    spans = spans.aggregate([("batch_min", "min"), ("batch_max", "max")])
    spans = spans.filter(pc.less(spans["batch_min_min"], spans["batch_max_max"]))
    first = {lane.id: lane.first for lane in lanes}
    for row in spans.to_pylist():
        lane = lane_of(row)
        if lane in first and row["batch_min_min"] < first[lane] <= row["batch_max_max"]:
            cut[lane].add(row["transaction"])
    return cut


def _batches_of(page: pa.RecordBatch) -> pa.Table:
    """The first and last batch of each transaction among some changes."""
    grouped = pa.Table.from_batches([page]).group_by([*_LANE, "transaction"])
    return grouped.aggregate([("batch", "min"), ("batch", "max")])


def _named(files: ChangeFiles, lanes: Sequence[LaneWork]) -> Iterator[pa.RecordBatch]:
    """The new changes of some lanes and those of the batch before, as far as they name transactions."""
    first, last = min(lane.last_folded for lane in lanes), max(lane.last for lane in lanes)
    asked = ds.field("table").isin(sorted({lane.table.name for lane in lanes}))
    asked &= (ds.field("batch") >= first) & (ds.field("batch") <= last) & ds.field("op").isin(_OPS)
    asked &= ds.field("transaction").is_valid() & ~ds.field("transaction").isin(NO_TRANSACTION)
    paths = files.of([replace(lane, first=lane.last_folded) for lane in lanes])
    if paths:
        changes = stores.at(paths[0]).dataset(paths, format="parquet")
        yield from changes.to_batches(columns=[*_LANE, "batch", "transaction"], filter=asked)


def _meets(files: ChangeFiles, lane: LaneWork, work: MirrorWork, cut: Collection[str]) -> bool:
    """True if a row may leave a key to which another has come before the new changes, in one of some cut transactions."""
    begun = lane.last_folded - REACH
    new, update = ds.field("batch") >= lane.first, ds.field("op") == str(Op.UPDATE)
    arrives, departs = ds.field("op") == str(Op.INSERT), ds.field("op") == str(Op.DELETE)
    asked = ds.field("transaction").isin(sorted(cut)) & (ds.field("batch") >= begun)
    asked &= update | (~new & arrives) | (new & (departs | (arrives & ds.field("before").is_valid())))
    paths = files.of([replace(lane, first=begun)])
    pages, count = list[pa.RecordBatch](), 0
    for page in arrow_files.pages(paths, lane, _IMAGES, asked):
        pages.append(page)
        count += page.num_rows
        if count > planner.CHANGES_AT_MOST:  # more than are looked through at once
            return True
    return bool(pages) and arrow_crossings.rows_meet(
        pa.Table.from_batches(pages).sort_by("order_key"), lane, work
    )


# --- without transactions -------------------------------------------------------------------------


def _another_leaves(files: ChangeFiles, lane: LaneWork, work: MirrorWork) -> bool:
    """True if another row than the one that has moved to its key with the batch before leaves it with the new changes."""
    if not lane.moves:
        return False
    recent, new = ds.field("batch") >= lane.last_folded, ds.field("batch") >= lane.first
    unnamed = ds.field("transaction").is_null() | ds.field("transaction").isin(NO_TRANSACTION)
    paths = files.of([replace(lane, first=lane.last_folded)])
    asked = unnamed & recent & ~new & (ds.field("op") == str(Op.UPDATE))
    reached = []
    for page in arrow_files.pages(paths, lane, _IMAGES, asked):
        keys = overtaken.keys_concerned(pa.Table.from_batches([page]), lane, work)
        moved = keys[overtaken.ROW].slice(page.num_rows)
        reached.append(_alone(keys.take(moved)))
    arrived = pa.concat_tables(reached) if reached else None
    if arrived is None or not arrived.num_rows:
        return False
    pages = []
    for page in arrow_files.pages(paths, lane, _IMAGES, unnamed & recent & ds.field("op").isin(_OPS)):
        keys = overtaken.keys_concerned(pa.Table.from_batches([page]), lane, work)
        places, _ = arrow_merge.pairs(_alone(keys), arrived)
        pages.append(page.take(pc.unique(keys[overtaken.ROW].take(places))))
    return arrow_crossings.another_leaves(pa.Table.from_batches(pages).sort_by("order_key"), lane, work)


def _alone(keys: pa.Table) -> pa.Table:
    """The cells of keys, without the changes that have them."""
    return keys.drop_columns([overtaken.ROW, PLACE])


_IMAGES = ("batch", "op", "order_key", "transaction", "before", "after")
