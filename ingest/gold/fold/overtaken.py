"""Late changes: which of them count, without the whole histories of their keys.

A late change is overtaken if a folded change of its key is later. The folded changes after the first late one tell, and
only these are read. One that is not overtaken is folded like any new one; one that is can be left out, because where
every change carries the whole row of its key, the last one decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.change import Op
from ingest.gold.fold.arrow_fold import PLACE, last_of
from ingest.gold.fold.arrow_merge import pairs
from ingest.gold.fold.arrow_values import HistoryNeeded, typed_column
from ingest.gold.fold.arrow_work import LaneWork, MirrorWork, Rows
from ingest.tables.image_columns import first_texts_of

ROW = "%row"


def without(work: MirrorWork, rows: Rows) -> Rows:
    """The new changes of each lane that are not overtaken.

    Args:
        work: the mirror.
        rows: by lane, its new changes, and the folded ones from its first late one on.

    Raises:
        HistoryNeeded: one is overtaken that is not without effect.
    """
    return {**rows, **{lane.id: _left(rows[lane.id], lane, work) for lane in work.lanes if lane.late_from}}


def _left(rows: pa.Table, lane: LaneWork, work: MirrorWork) -> pa.Table:
    is_new = pc.greater_equal(rows["batch"], lane.first)
    new, folded = rows.filter(is_new), rows.filter(pc.invert(is_new))
    truncates = folded.filter(pc.equal(folded["op"], str(Op.TRUNCATE)))
    if floor := pc.max(truncates["order_key"]).as_py():
        new, folded = (part.filter(pc.greater(part["order_key"], floor)) for part in (new, folded))
    if not (new.num_rows and folded.num_rows):
        return new
    late = new.filter(pc.less(new["order_key"], folded["order_key"][-1]))
    if not late.num_rows:
        return new
    ours, theirs = keys_concerned(late, lane, work), keys_concerned(folded, lane, work)
    names = theirs.schema.names[2:]
    theirs = last_of(theirs.drop_null().sort_by(PLACE), names)  # changes without a usable key overtake none
    numbers, of = pairs(ours.select(names), theirs.select(names))
    numbers = numbers.filter(pc.less(ours[PLACE].take(numbers), theirs[PLACE].take(of)))
    if not len(numbers):
        return new
    overtaken = np.unique(ours[ROW].take(numbers).to_numpy())
    if pc.any(folded["partial"]).as_py() or ours.num_rows > late.num_rows:
        raise HistoryNeeded(
            "a later change of a late one's key has been folded, and does not carry its whole row"
        )
    places = late["order_key"].take(pa.array(overtaken)).combine_chunks()
    return new.filter(pc.invert(pc.is_in(new["order_key"], value_set=places)))


def keys_concerned(rows: pa.Table, lane: LaneWork, work: MirrorWork) -> pa.Table:
    """The keys of changes: of each its number, its place and its key, and once more if it leaves another key.

    A cell is NULL where the change has no usable key. The lane's shard is left out.
    """
    sent = {*work.keys} - dict(lane.shard).keys()  # no image has the shard, and it is the same in all of them
    columns = [column for column in work.columns if column.name in sent]
    names = [column.name for column in columns]
    before, after = (rows[side].combine_chunks() for side in ("before", "after"))
    left, reached = (
        [cells.cast(pa.string()) for cells in first_texts_of(*images, names)]
        for images in ((before, after), (after, before))
    )
    is_delete = pc.equal(rows["op"], str(Op.DELETE)).combine_chunks()
    reached = [pc.if_else(is_delete, old, new) for old, new in zip(left, reached, strict=True)]
    moved = np.zeros(rows.num_rows, np.bool_)
    for key_left, other in zip(left, reached, strict=True):
        moved |= pc.fill_null(pc.not_equal(key_left, other), True).to_numpy(zero_copy_only=False)
    again = pa.array(np.flatnonzero(moved))
    numbers = pa.concat_arrays([pa.array(np.arange(rows.num_rows)), again])
    cells = {ROW: numbers, PLACE: rows["order_key"].take(numbers)}
    for column, here, there in zip(columns, reached, left, strict=True):
        texts = pa.concat_arrays([here, there.take(again)])
        cells[column.column] = typed_column(texts, column.type, is_key=True).cells
    return pa.table(
        {**cells, **_usable(numbers, {column.column: cells[column.column] for column in columns})}
    )


def _usable(numbers: pa.Array, keys: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """The keys of numbered changes, with NULLs under both keys of a change of which one is not usable: the fold refuses it."""
    lacking = [pc.is_null(cells) for cells in keys.values() if cells.null_count]
    if not lacking:
        return dict(keys)
    refused = pc.is_in(numbers, value_set=numbers.filter(reduce(pc.or_, lacking)))
    return {name: pc.if_else(refused, None, cells) for name, cells in keys.items()}
