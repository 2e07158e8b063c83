"""Fold tables without a key by Arrow: rows appended, or kept as a multiset, as `ingest.gold.keyless` defines it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.change import Change, Image, Op
from ingest.fold import SchemaStep, identity
from ingest.gold import unfit
from ingest.gold.arrow_fold import events_of
from ingest.gold.arrow_merge import Merged, bits
from ingest.gold.arrow_values import Typed, typed_column
from ingest.gold.arrow_work import LaneWork, MirrorWork, Rows
from ingest.gold.past_keys import LaneEvent
from ingest.gold.unfit import Cell, Reject
from ingest.order import order_of

Texts = list[str | None]


class Half(NamedTuple):
    """A row that is inserted (+1) or deleted (-1); the insert of an update comes after its delete."""

    place: str
    part: int
    batch: int
    adds: int
    op: Op
    texts: Texts


def merged(work: MirrorWork, rows: Rows, present: pa.Table) -> tuple[Merged, list[Reject]]:
    """A mirror's rows after the batch: kept, and new ones; and the new changes' cells that do not fit."""
    floors = {lane.id: _floor(rows[lane.id], lane) for lane in work.lanes}
    steps = {lane.id: () if work.appends else lane.own_steps for lane in work.lanes}
    from_scratch = any(new for _, new in floors.values()) or (
        not work.appends and any(lane.since for lane in work.lanes)
    )
    nothing, others, gone = present.slice(0, 0), present.slice(0, 0), 0
    if work.again or from_scratch:
        shards = () if work.again else tuple(lane.shard for lane in work.lanes)
        others = present.filter(pc.invert(work.of_shards(present, shards or (None,))))
        present, gone = nothing, present.num_rows - others.num_rows
    first = 0 if work.again or from_scratch else min(lane.first for lane in work.lanes)
    halves: list[Half] = []
    tables: list[pa.Table] = [work.schema.empty_table()]
    rejects: list[Reject] = []
    for lane in work.lanes:
        events = events_of(rows[lane.id], lane, work.logical)
        after = (event for event in events if event.place > floors[lane.id][0])
        delivered = _once(after, shared_reads=lane.shared_reads)
        mine = list(halves_of(delivered, list(work.logical), steps[lane.id]))
        if work.appends:
            mine = [one for one in mine if one.op in ADDING and one.batch >= first]
        typed = _typed(mine, work)
        rejects += _rejects(mine, typed, lane, work, rows[lane.id])
        tables.append(pa.table([one.cells for one in typed.values()], schema=work.schema))
        halves += mine
    happened = pa.concat_tables(tables)
    if work.appends:
        stays = pa.concat_tables([others, present])
        return Merged(stays, nothing, happened, happened.num_rows, 0, gone), rejects
    order = sorted(range(len(halves)), key=lambda at: (halves[at].place, halves[at].part))
    halves, happened = [halves[at] for at in order], happened.take(pa.array(order, pa.int64()))
    keeps, adds = _counted(_contents(pa.concat_tables([happened, present])), halves, first)
    stays, new = present.filter(keeps), happened.take(adds)
    deleted = gone + present.num_rows - stays.num_rows
    return Merged(pa.concat_tables([others, stays]), nothing, new, new.num_rows, 0, deleted), rejects


def _rejects(
    halves: Sequence[Half], typed: Mapping[str, Typed], lane: LaneWork, work: MirrorWork, rows: pa.Table
) -> list[Reject]:
    """The cells of rows that new changes insert, if they do not fit."""
    cells = [
        (halves[at], one.name, str(halves[at].texts[i]))
        for i, one in enumerate(work.columns)
        if (mask := typed[one.column].unfit) is not None
        for at in pc.indices_nonzero(mask).to_pylist()
        if halves[at].adds > 0 and halves[at].batch >= lane.first
    ]
    if not cells:
        return []
    sent = rows.filter(pc.is_in(rows["order_key"], value_set=pa.array([half.place for half, _, _ in cells])))
    places = dict(zip(sent["order_key"].to_pylist(), unfit.places_of(sent), strict=True))
    return [
        unfit.reject(Cell(name, text, lane.source, places.get(half.place)), None, work)
        for half, name, text in cells
    ]


ADDING = (Op.INSERT, Op.READ)
"""Operations that add a row and remove none."""


def _floor(rows: pa.Table, lane: LaneWork) -> tuple[str, bool]:
    """The place after which a lane's rows still exist, and whether it is new."""
    cleared = rows.filter(pc.equal(rows["op"], str(Op.TRUNCATE)))
    truncates = zip(cleared["order_key"].to_pylist(), cleared["batch"].to_pylist(), strict=True)
    return max([("", False), *((at, batch >= lane.first) for at, batch in truncates), *lane.created])


def halves_of(
    events: Iterable[LaneEvent], columns: Sequence[str], steps: Sequence[SchemaStep]
) -> Iterator[Half]:
    """The rows that changes insert or delete, with the columns' texts after all schema steps."""
    stepped = [name for step in steps for name in (step.column, step.to) if name]
    names = list(dict.fromkeys([*columns, *stepped]))
    for place, batch, change in events:
        before, after = change.before or {}, change.after or {}
        for part, adds, first, second in ((0, -1, before, after), (1, 1, after, before)):
            if change.op in (Op.UPDATE, Op.DELETE if part == 0 else Op.INSERT, *(ADDING * part)):
                texts = _texts(first, second, change, place, names, steps)
                yield Half(place, part, batch, adds, change.op, [texts[name] for name in columns])


def _once(events: Iterable[LaneEvent], *, shared_reads: bool) -> Iterator[LaneEvent]:
    """Each change once, as first delivered."""
    seen: set[tuple[Hashable, ...]] = set()
    for event in sorted(events, key=lambda event: (event.batch, event.place)):
        same = identity(order_of(event.place), event.change, shared_reads=shared_reads)
        if event.change.op is not Op.TRUNCATE and same not in seen:
            seen.add(same)
            yield event


def _texts(
    first: Image, second: Image, change: Change, place: str, names: Sequence[str], steps: Sequence[SchemaStep]
) -> Image:
    """A row's texts from one image, completed from the other, and by the steps after its place."""
    values: Image = {name: first[name] if name in first else second.get(name) for name in names}
    there = first.keys() | second.keys()
    for step in steps:
        target, before = step.to or step.column, place < str(step.order)
        if step.since:  # a repeated statement
            before = before and place > str(step.since)
        if step.action == "retype_column":
            if before and target in values:
                values[target] = step.converted(values[target], change.types.get(target, ""))
        elif step.action == "drop_column":
            if not before:
                continue
            values[target] = None
            there = there - {target}
        elif not step.empties and before:
            if target not in there:
                values[target] = step.default if step.action == "add_column" else values[step.column]
            there = there | {target}
    return values


def _typed(halves: Sequence[Half], work: MirrorWork) -> dict[str, Typed]:
    texts = (pa.array([one.texts[at] for one in halves], pa.string()) for at in range(len(work.columns)))
    return {
        one.column: typed_column(column, one.type) for column, one in zip(texts, work.columns, strict=True)
    }


# --- the multiset ---------------------------------------------------------------------------------


def _contents(rows: pa.Table) -> np.ndarray:
    """A number for each row, equal for rows with equal cells; 0.0 and -0.0 differ."""
    found = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        codes = pc.dictionary_encode(bits(column).combine_chunks(), null_encoding="encode").indices
        numbers = codes.to_numpy(zero_copy_only=False).astype(np.int64)
        _, found = np.unique(found * (len(numbers) + 1) + numbers, return_inverse=True)
    return found


def _counted(contents: np.ndarray, halves: Sequence[Half], first: int) -> tuple[pa.Array, pa.Array]:
    """The present rows that are kept, and the numbers of the halves whose rows are added.

    How often a content exists at the end is its last running sum minus the lowest one, if below zero. A content that
    the new batches do not concern, or that exists as often as it should, is not touched.

    Args:
        contents: those of the halves, in order, and of the present rows.
        halves: everything that happened.
        first: the first new batch.
    """
    numbers = contents.tolist()
    sums: dict[int, int] = {}
    lows: dict[int, int] = {}
    touched: dict[int, int] = {}  # with a half that has the content
    for at, half in enumerate(halves):
        content = numbers[at]
        sums[content] = sums.get(content, 0) + half.adds
        lows[content] = min(lows.get(content, 0), sums[content])
        if half.batch >= first:
            touched.setdefault(content, at)
    present: dict[int, int] = {}
    for content in numbers[len(halves) :]:
        present[content] = present.get(content, 0) + 1
    wanted = {content: sums[content] - lows[content] for content in touched}
    wrong = {content: n for content, n in wanted.items() if n != present.get(content, 0)}
    keeps = [content not in wrong for content in numbers[len(halves) :]]
    adds = [touched[content] for content, n in wrong.items() for _ in range(n)]
    return pa.array(keeps, pa.bool_()), pa.array(adds, pa.int64())
