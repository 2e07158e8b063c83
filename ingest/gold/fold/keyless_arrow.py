"""Fold tables without any key: rows appended (``no_key: append``) or kept as a multiset (``full_row``).

``append``: each insert or read adds a row; updates and deletes are counted, not applied.  A truncate empties the table;
new columns have no values in existing rows.

``full_row``: an insert or read adds one row, a delete takes one row equal to its image, an update does
both.  A row that is not there cannot be removed. For equal rows this is a sequence of +1 and -1 that never goes below
zero; its end is the last running sum minus the lowest one, if that is below zero.

A repetition (equal place, equal content) counts once if the dialect has positions; without them, and in a snapshot with
one place for all its rows, it cannot be distinguished from a second equal row.

A change is at most two *halves*: a row that it deletes, and one that it inserts. Equal rows decide nothing about others,
so that the halves can be dealt to shares by a hash of their cells (`ingest.gold.fold.arrow_shares`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.change import Change, Image, Op
from ingest.fold import Row, identity, row_taken
from ingest.gold.fold import unfit
from ingest.gold.fold.arrow_fold import events_of
from ingest.gold.fold.arrow_merge import Merged, numbered
from ingest.gold.fold.arrow_values import typed_column
from ingest.gold.fold.arrow_work import Cleared, LaneWork, MirrorWork, Rows
from ingest.gold.fold.outcomes import COPIES, MirrorOutcomes
from ingest.gold.fold.unfit import UNFIT, Reject
from ingest.order import Order, order_of

ADDING = (Op.INSERT, Op.READ)
"""Operations that add a row and remove none."""
LANE, ORDER, PART, BATCH, ADDS, SAME = "%lane", "%order", "%part", "%batch", "%adds", "%same"
HALF = pa.schema(
    {
        LANE: pa.int32(),  # the lane's number
        ORDER: pa.string(),
        PART: pa.int8(),  # the insert of an update comes after its delete
        BATCH: pa.int64(),
        ADDS: pa.int8(),  # 1: inserted, -1: deleted, 0: a truncate
        SAME: pa.binary(),  # equal for repetitions of one change
    }
)
"""What is known of a half, next to its row's cells and those of them that do not fit."""


def merged(present: pa.Table, source: pa.Table, work: MirrorWork, cleared: Cleared) -> Merged:
    """A mirror's rows after the batch: kept, and new ones. Arguments as of `ingest.gold.fold.arrow_merge.merge`."""
    others, nothing, gone = present.slice(0, 0), present.slice(0, 0), 0
    if cleared:
        others = present.filter(pc.invert(work.of_shards(present, cleared)))
        present, gone = nothing, present.num_rows - others.num_rows
    rows, copies = source.select(work.schema.names), source[COPIES].to_numpy()
    stays = present
    if not work.appends:
        numbers = numbered(pa.concat_tables([rows, present]))
        counts_before = np.bincount(numbers[rows.num_rows :], minlength=len(numbers) + 1)
        wrong = copies != counts_before[numbers[: rows.num_rows]]
        stays = present.filter(
            pa.array(~np.isin(numbers[rows.num_rows :], numbers[: rows.num_rows][wrong]), pa.bool_())
        )
        copies = np.where(wrong, copies, 0)
    new = rows.take(pa.array(np.repeat(np.arange(rows.num_rows), copies)))
    deleted = gone + present.num_rows - stays.num_rows
    return Merged(pa.concat_tables([others, stays]), nothing, new, new.num_rows, 0, deleted)


def outcomes(work: MirrorWork, rows: Rows) -> MirrorOutcomes:
    """What all changes of a mirror make of its rows."""
    halves = [halves_of(work, number, lane, rows[lane.id]) for number, lane in enumerate(work.lanes)]
    return counted(work, pa.concat_tables(halves))


# --- what happened --------------------------------------------------------------------------------


def halves_of(work: MirrorWork, number: int, lane: LaneWork, rows: pa.Table) -> pa.Table:
    """The halves of a lane's changes, in any order, with the columns' values after all schema steps, and its truncates."""
    steps = () if work.appends else [step.decoded() for step in lane.own_steps if not step.empties]
    names = [column.name for column in work.columns]
    contents: list[tuple[object, ...]] = []
    texts: list[list[str | None]] = []
    for event in events_of(rows, lane, work.logical):
        change = event.change
        if change.op is Op.TRUNCATE:
            contents.append((number, event.place, 0, event.batch, 0, b""))
            texts.append([None] * len(names))
            continue
        if work.appends and change.op not in ADDING:
            continue
        order = order_of(event.place)
        same = _same(order, change, shared_reads=lane.shared_reads)
        for part, adds, image in _halves(order, change):
            row = Row(image, types=change.types, place=order)
            for step in steps:
                if order < step.order:
                    step.apply(row)
            contents.append((number, event.place, part, event.batch, adds, same))
            texts.append([row.values.get(name) for name in names])
    columns = zip(*contents, strict=True) if contents else [()] * len(HALF)
    given = {field.name: pa.array(column, field.type) for field, column in zip(HALF, columns, strict=True)}
    read = {}
    for i, column in enumerate(work.columns):
        cells = pa.array([row[i] for row in texts], pa.string())
        read[column.name] = cells, typed_column(cells, column.type)
    values = {column.column: read[column.name][1].cells for column in work.columns}
    sets = pc.greater(given[ADDS], 0)
    sent = _sent(rows, given[ORDER]) if any(typed.unfit is not None for _, typed in read.values()) else None
    return pa.table({**values, **given, UNFIT: unfit.of_rows(read, sets, lane.source, sent)})


def _sent(rows: pa.Table, places: pa.Array) -> pa.Table:
    """The change of each half; one of a row under an earlier key has no message."""
    rows = rows.filter(pc.greater_equal(rows["row"], 0))
    numbers = pc.index_in(places, value_set=rows["order_key"].combine_chunks())
    return rows.select(unfit.SentFrom._fields).take(numbers)


def _same(order: Order, change: Change, *, shared_reads: bool) -> bytes:
    """What a change has in common with its repetitions alone, as a short text."""
    place, op, *images = identity(order, change, shared_reads=shared_reads)
    cells = [None if image is None else sorted(image) for image in images]  # type: ignore[call-overload]
    return blake2b(repr((place, str(op), cells)).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _halves(order: Order, change: Change) -> Iterator[tuple[int, int, Image]]:
    """Of each half its part, what it adds, and its row: one image, completed from the other."""
    taken = row_taken(order, change)
    if taken is not None:
        yield 0, -1, taken
    if change.op is not Op.DELETE:
        yield 1, 1, {**change.old_cells, **change.new_cells}


# --- the multiset ---------------------------------------------------------------------------------


def counted(work: MirrorWork, halves: pa.Table) -> MirrorOutcomes:
    """What halves make of the rows that they concern: all halves that have one of these rows, and all truncates.

    A row that the new batches do not concern is not touched.
    """
    is_truncate = pc.equal(halves[ADDS], 0)
    truncates, halves = halves.filter(is_truncate), halves.filter(pc.invert(is_truncate))
    floors = [_floor(truncates, number, lane) for number, lane in enumerate(work.lanes)]
    stated = not work.appends and any(lane.since for lane in work.lanes)
    clears = work.again or stated or any(is_new for _, is_new in floors)
    cleared: Cleared = ((),) if work.again else tuple(lane.shard for lane in work.lanes) if clears else ()
    halves = _once(_after(halves, floors)).sort_by([(ORDER, "ascending"), (PART, "ascending")])
    first = 0 if clears else min(lane.first for lane in work.lanes)
    if work.appends:
        numbers = pc.indices_nonzero(pc.greater_equal(halves[BATCH], first))
        copies = pa.array(np.ones(len(numbers), np.int64))
    else:
        numbers, copies = _copies(halves, work, first)
    rows = halves.select(work.schema.names).take(numbers).append_column(COPIES, copies)
    return MirrorOutcomes(rows, cleared, _rejects(halves, work))


def _floor(truncates: pa.Table, number: int, lane: LaneWork) -> tuple[str, bool]:
    """The place after which a lane's rows still exist, and whether it is new."""
    of_lane = truncates.filter(pc.equal(truncates[LANE], number))
    places = zip(of_lane[ORDER].to_pylist(), of_lane[BATCH].to_pylist(), strict=True)
    return max([("", False), *((place, batch >= lane.first) for place, batch in places), *lane.created])


def _after(halves: pa.Table, floors: Iterable[tuple[str, bool]]) -> pa.Table:
    """The halves whose lane has not been emptied since."""
    for number, (floor, _) in enumerate(floors):
        if floor:
            stays = pc.or_(pc.not_equal(halves[LANE], number), pc.greater(halves[ORDER], floor))
            halves = halves.filter(stays)
    return halves


def _once(halves: pa.Table) -> pa.Table:
    """The halves of each change once, as first delivered."""
    halves = halves.sort_by([(BATCH, "ascending"), (ORDER, "ascending")])
    of_changes = halves.select([LANE, SAME, PART]).append_column("%at", pa.array(np.arange(halves.num_rows)))
    first = of_changes.group_by([LANE, SAME, PART]).aggregate([("%at", "min")])["%at_min"]
    return halves.take(first)


def _copies(halves: pa.Table, work: MirrorWork, first: int) -> tuple[pa.Array, pa.Array]:
    """The numbers of halves, one for each row that batches from ``first`` on concern, and how often the row exists.

    That is its last running sum minus the lowest one, if below zero.
    """
    numbers = numbered(halves.select(work.schema.names)).tolist()
    sums: dict[int, int] = {}
    lows: dict[int, int] = {}
    touched: dict[int, int] = {}  # with a half that has the content
    sides = zip(numbers, halves[ADDS].to_pylist(), halves[BATCH].to_pylist(), strict=True)
    for i, (content, adds, batch) in enumerate(sides):
        sums[content] = sums.get(content, 0) + adds
        lows[content] = min(lows.get(content, 0), sums[content])
        if batch >= first:
            touched.setdefault(content, i)
    counts = [sums[content] - lows[content] for content in touched]
    return pa.array(touched.values(), pa.int64()), pa.array(counts, pa.int64())


def _rejects(halves: pa.Table, work: MirrorWork) -> list[Reject]:
    """The cells of rows that new changes insert, if they do not fit."""
    rejects: list[Reject] = []
    for number, lane in enumerate(work.lanes):
        asked = pc.and_(pc.equal(halves[LANE], number), pc.greater_equal(halves[BATCH], lane.first))
        listed = halves.filter(pc.and_(asked, pc.is_valid(halves[UNFIT])))[UNFIT].to_pylist()
        rejects += [unfit.reject(cell, None, work) for text in listed for cell in unfit.cells_of(text)]
    return rejects
