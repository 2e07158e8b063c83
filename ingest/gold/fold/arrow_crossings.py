"""Rows that move onto each other's keys, in Arrow's fold: where they may, the last image of a key does not tell its row.

The plain fold (`ingest.departures`) decides then, if need be with the whole history: a row that was at a key before the
batch may be the one that leaves it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.change import Op
from ingest.departures import NO_TRANSACTION
from ingest.gold.fold import overtaken
from ingest.gold.fold.arrow_fold import PLACE, outcomes
from ingest.gold.fold.arrow_merge import comparable, numbered, pairs
from ingest.gold.fold.arrow_values import HistoryNeeded
from ingest.gold.fold.arrow_work import LaneWork, MirrorWork, Rows
from ingest.gold.fold.key_shares import Numbers
from ingest.gold.fold.outcomes import MirrorOutcomes
from ingest.tables.json_cells import object_in

_MET = "rows have moved onto each other's keys"
_UNNAMED = -1


def folded(work: MirrorWork, rows: Rows) -> MirrorOutcomes:
    """What the changes make of each key.

    Raises:
        NotPlain: several tables send rows of one key, or the whole history is needed.
        CollisionError: a row with the same key is in two lanes.
    """
    for lane in work.lanes:
        if lane.late_from:
            refuse_meeting(rows[lane.id], lane, work)
    rows = overtaken.without(work, rows)
    lanes = (
        replace(lane, images=False) if lane.images and rows_meet(rows[lane.id], lane, work) else lane
        for lane in work.lanes
    )
    return outcomes(replace(work, lanes=tuple(lanes)), rows)


def refuse_meeting(rows: pa.Table, lane: LaneWork, work: MirrorWork) -> None:
    """Refuse changes that are only some of their keys'; without a transaction they are no neighbours.

    Raises:
        HistoryNeeded: rows move onto each other's keys.
    """
    if rows_meet(rows.filter(pc.not_equal(rows["transaction"], "")), lane, work):
        raise HistoryNeeded(_MET)


def refuse_doubted(made: MirrorOutcomes, work: MirrorWork, rows_of: Callable[[MirrorWork], pa.Table]) -> None:
    """Refuse outcomes that would be others if a row of the mirror is the one that has left its key.

    Raises:
        HistoryNeeded: there is such a row.
    """
    if made.doubted is None or work.again:
        return
    keys = tuple(column for column in work.columns if column.name in work.keys)
    rows, _ = pairs(rows_of(replace(work, columns=keys)), made.doubted)
    if len(rows):
        raise HistoryNeeded(_MET)


def rows_meet(rows: pa.Table, lane: LaneWork, work: MirrorWork) -> bool:
    """True if a row may leave a key to which another one came before in the same transaction.

    Where messages name no transaction, if it leaves next and was not what had come.
    """
    op = rows["op"]
    inserts, deletes = pc.equal(op, str(Op.INSERT)), pc.equal(op, str(Op.DELETE))
    if not (lane.moves or (pc.any(inserts).as_py() and pc.any(deletes).as_py())):
        return False
    ends, updates = pc.or_(inserts, deletes), pc.equal(op, str(Op.UPDATE))
    if not lane.moves:  # an update leaves no key, and the keys of updates are mostly not needed
        places = np.flatnonzero(ends)
        met = _meetings(rows.take(pa.array(places)), lane, work)
        if met.in_transaction or not len(_unexplained(met, places, rows["after"], updates)):
            return met.in_transaction
    met = _meetings(rows.filter(pc.or_(ends, updates)), lane, work)
    return met.in_transaction or len(_differing(met)) > 0


def _unexplained(
    met: _Meetings, places: Numbers, after: pa.ChunkedArray, updates: pa.ChunkedArray
) -> Numbers:
    """The rows that leave and are neither what had come nor what an update in between has left, by their whole images; ``places``
    are those of the changes that have met, ``updates`` is a mask of all changes, whose images after are ``after``.
    """
    left = _differing(met)
    if not len(left):
        return left
    leaving = {
        "image": met.said.take(pa.array(left)),
        "came": places[met.came[left]],
        "leaves": places[met.leaves[left]],
    }
    made = pa.table({"image": after.filter(updates), "made": np.flatnonzero(updates)})
    joined = pa.table({**leaving, "number": left}).join(made, "image", join_type="inner")
    came, at, leaves = (joined[name].to_numpy() for name in ("came", "made", "leaves"))
    explained: Numbers = joined["number"].to_numpy()[(came < at) & (at < leaves)]
    return np.setdiff1d(left, explained)


def another_leaves(rows: pa.Table, lane: LaneWork, work: MirrorWork) -> bool:
    """True if a row leaves a key next after another one has come to it, by its image before; of changes in the order of
    history whose messages name no transaction.
    """
    met = _meetings(rows, lane, work)
    return any(_differ(*images) for images in zip(met.said.to_pylist(), met.sent.to_pylist(), strict=True))


def _differ(said: str | None, sent: str | None) -> bool:
    """True if a column that both images have differs."""
    before_image, after_image = (object_in(image) for image in (said, sent))
    return any(before_image[name] != after_image[name] for name in before_image.keys() & after_image.keys())


class _Meetings(NamedTuple):
    """Where a row leaves a key to which one has come before: in one transaction, or without one the next change of the key.

    Of these without one: ``came`` and ``leaves`` are the numbers of the two changes, ``said`` is the image before of what leaves,
    ``sent`` the row that has come.
    """

    in_transaction: bool
    came: Numbers
    leaves: Numbers
    said: pa.ChunkedArray
    sent: pa.ChunkedArray


def _differing(met: _Meetings) -> Numbers:
    """Which of the rows that leave without a transaction are not what had come."""
    return np.flatnonzero(pc.fill_null(pc.not_equal(met.said, met.sent), True))


def _meetings(rows: pa.Table, lane: LaneWork, work: MirrorWork) -> _Meetings:
    rows = rows.combine_chunks()
    keys = overtaken.keys_concerned(rows, lane, work)
    keys = keys.append_column("%leaves", pa.array(np.arange(keys.num_rows) >= rows.num_rows)).drop_null()
    row, leaves = keys[overtaken.ROW].to_numpy(), np.array(keys["%leaves"])
    op = np.array(rows["op"])[row]
    departs = leaves | (op == str(Op.DELETE))
    arrives = ~departs & ((op == str(Op.INSERT)) | np.isin(row, row[leaves]))
    group = numbered(comparable(keys.drop_columns([overtaken.ROW, PLACE, "%leaves"])))
    order = np.lexsort((row, group))
    row, group, departs, arrives = (cells[order] for cells in (row, group, departs, arrives))
    numbers = np.arange(len(row))
    came = np.maximum.accumulate(np.where(arrives, numbers, -1))
    met = departs & (came >= 0) & (group[came] == group)
    transaction = _transactions(rows)[row]
    met &= transaction == transaction[came]
    is_named = transaction != _UNNAMED
    next_ones = np.flatnonzero(met & ~is_named & (came == numbers - 1))
    came_at, leaves_at = row[next_ones - 1], row[next_ones]
    said, sent = rows["before"].take(pa.array(leaves_at)), rows["after"].take(pa.array(came_at))
    return _Meetings(bool(np.any(met & is_named)), came_at, leaves_at, said, sent)


def _transactions(rows: pa.Table) -> Numbers:
    """A number for each change, equal for changes of one transaction."""
    texts = rows["transaction"].combine_chunks()
    is_named = pc.fill_null(pc.invert(pc.is_in(texts, pa.array(NO_TRANSACTION))), False)
    named = pc.if_else(is_named, texts, None).dictionary_encode().indices
    numbers: Numbers = pc.fill_null(named, _UNNAMED).to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers
