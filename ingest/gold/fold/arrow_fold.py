"""Fold a mirror's changes with Arrow: one outcome for each key.

The fold is `ingest.fold` itself; if every change carries the whole row, the last image of each key gives the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations, repeat
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.change import Change, Image, Op
from ingest.config.conditions import columns as columns_of
from ingest.fold import (
    Key,
    KeyCellError,
    Placed,
    SchemaStep,
    Table,
    Texts,
    key_of_change,
    key_of_texts,
    steps,
    texts_of_key,
)
from ingest.gold.fold import unfit
from ingest.gold.fold.arrow_merge import comparable
from ingest.gold.fold.arrow_values import HistoryNeeded, NotPlain, Typed, typed_column
from ingest.gold.fold.arrow_work import ColumnWork, LaneWork, MirrorWork, Rows
from ingest.gold.fold.collision import CollisionError
from ingest.gold.fold.outcomes import MirrorOutcomes
from ingest.gold.fold.past_keys import LaneEvent, rebased
from ingest.gold.fold.stretches import linked
from ingest.gold.fold.unfit import UNFIT, Reject
from ingest.ledgers import conditions
from ingest.ledgers.mirrors import Shard
from ingest.ledgers.stamps import NO_STAMPS, TIME, types_of
from ingest.order import order_of
from ingest.tables.image_columns import texts_of

AT_ONCE, READ_AT_ONCE = 500, 50_000  # changes whose images are read as columns: at least, and at once
PLACE, _AT = "%place", "%at"  # of the change that an outcome is from, and its number
TYPES = "types"  # which only steps of a whole history need
_CELLS = 16 << 20  # bytes of changes that are Python's at a time
_decode = msgspec.json.Decoder(dict[str, str | None]).decode


# --- the outcomes ---------------------------------------------------------------------------------


def outcomes(work: MirrorWork, rows: Rows) -> MirrorOutcomes:
    """What the changes make of each key.

    Raises:
        HistoryNeeded: only all changes tell.
        NotPlain: several tables send rows of one key.
        CollisionError: a row with the same key is in two lanes.
    """
    made = _at_once(work, rows) or _one_after_another(work, rows)
    source = _shaped(made.table, work)
    if len(work.lanes) > 1:
        keys = comparable(source.select(work.key_columns))
        if keys.group_by(work.key_columns).aggregate([]).num_rows < keys.num_rows:
            raise NotPlain("several tables send rows of one key")
    return made._replace(table=source)


def _at_once(work: MirrorWork, rows: Rows) -> MirrorOutcomes | None:
    """The outcomes read as columns; None if some lane's images cannot be read so."""
    of_lanes, cleared = [], list[Shard]()
    for lane in work.lanes:
        if (last := last_images(rows[lane.id], lane, work)) is None:
            return None
        of_lanes.append(last[0].drop_columns(PLACE))
        cleared += [lane.shard] if last[1] else []
    return MirrorOutcomes(pa.concat_tables(of_lanes), tuple(cleared), [])


def _one_after_another(work: MirrorWork, rows: Rows) -> MirrorOutcomes:
    """The outcomes by a look at each change, with the mirror's own columns."""
    folded_rows, cleared, rejected = Outcomes([], [], []), list[Shard](), list[Reject]()
    apart, doubted = {}, list[Texts]()
    for lane in work.lanes:
        folded = fold(rows[lane.id], lane, work.keys, work.logical)
        rejected += unfit.changes(folded.rejected, lane, work)
        doubted += folded.doubted
        if lane.merged:
            apart[lane.merged] = folded.outcomes
        else:
            folded_rows += folded.outcomes
            cleared += [lane.shard] if folded.clears else []
    typed = typed_outcomes(_merged(apart, work) if apart else folded_rows, work)
    keys = _keys_alone(doubted, work) if doubted else None
    return MirrorOutcomes(unfit.placed(typed, work, rows), tuple(cleared), rejected, keys)


def _keys_alone(texts: Sequence[Texts], work: MirrorWork) -> pa.Table:
    """Some keys as typed columns."""
    nothing = Outcomes(list(texts), [None] * len(texts), [True] * len(texts))
    return typed_outcomes(nothing, work).select(work.key_columns)


class _LaneRow(NamedTuple):
    """What one of several lanes has at a key."""

    lane: str
    texts: Texts  # the key in the source's spelling
    image: Image | None  # None: no row any more


def _merged(apart: Mapping[str, Outcomes], work: MirrorWork) -> Outcomes:
    """The outcomes of several lanes' keys as those of one table: a row may be in one lane only.

    Raises:
        CollisionError: a row with the same key is in two lanes.
    """
    key_types = work.logical
    by_key: dict[Key, _LaneRow] = {}
    for name, outcomes in apart.items():
        for texts, image in zip(outcomes.keys, outcomes.images, strict=True):
            key = key_of_texts(work.keys, texts, key_types)
            other = by_key.get(key)
            if image is None:
                by_key.setdefault(key, _LaneRow(name, texts, None))
            elif other is None or other.image is None:
                by_key[key] = _LaneRow(name, texts, image)
            else:
                raise CollisionError(dict(zip(work.keys, map(str, texts), strict=True)), (other.lane, name))
    return Outcomes(
        [row.texts for row in by_key.values()],
        [row.image for row in by_key.values()],
        [True] * len(by_key),
    )


def typed_outcomes(outcomes: Outcomes, work: MirrorWork) -> pa.Table:
    """Outcomes as typed columns by Delta's names, with ``%gone``, for partial rows which columns they carry, and `UNFIT`."""
    sets = pa.array([image is not None for image in outcomes.images], pa.bool_())
    columns: dict[str, pa.Array] = {"%gone": pc.invert(sets)}
    partial, read = not all(outcomes.whole), dict[str, tuple[pa.Array, Typed]]()
    for column in work.columns:
        read[column.name] = texts_read(column, work, outcomes.keys, outcomes.images)
        columns[column.column] = read[column.name][1].cells
        if partial:
            columns["%has " + column.column] = pa.array(
                [
                    whole or (row is not None and column.name in row)
                    for row, whole in zip(outcomes.images, outcomes.whole, strict=True)
                ],
                pa.bool_(),
            )
    return pa.table({**columns, UNFIT: unfit.of_rows(read, sets)})


def texts_read(
    column: ColumnWork, work: MirrorWork, keys: Iterable[Texts], rows: Iterable[Image | None]
) -> tuple[pa.Array, Typed]:
    """The texts of a column, of the key those in the rows' keys, and what becomes of them."""
    if is_key := column.name in work.keys:
        place = work.keys.index(column.name)
        texts = [key[place] for key in keys]
    else:
        texts = [None if row is None else row.get(column.name) for row in rows]
    given = pa.array(texts, pa.string())
    return given, typed_column(given, column.type, is_key=is_key)


def _shaped(source: pa.Table, work: MirrorWork) -> pa.Table:
    """The same outcomes with computed columns; rows that do not meet the mirror's condition are deleted."""
    computed = {column.name: (column.expression, column.type) for column in work.columns if column.expression}
    if not work.where and not computed:
        return source
    if any(name.startswith("%has ") for name in source.schema.names):
        raise HistoryNeeded("a rule is evaluated on whole rows")
    names = {column.name: column.column for column in work.columns}
    gone = source["%gone"].combine_chunks()
    gone, made = conditions.shaped(work.where, computed, lambda name: source[names[name]], gone)
    for name, cells in {"%gone": gone, **{names[name]: cells for name, cells in made.items()}}.items():
        index = source.schema.get_field_index(name)
        source = source.set_column(index, name, cells.cast(source.schema.field(index).type))
    return source


# --- the fold -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcome of each key: its texts, its row (None: deleted), whether the row is complete, and, of last images, the
    place of the change.
    """

    keys: list[Texts]
    images: list[Image | None]
    whole: list[bool]
    places: list[str] = field(default_factory=list)

    def __add__(self, other: Outcomes) -> Outcomes:
        return Outcomes(self.keys + other.keys, self.images + other.images, self.whole + other.whole)


class LaneFold(NamedTuple):
    """A lane's outcomes, whether its other rows are deleted, those of its new changes that have no usable key, and the keys
    that are doubted (`MirrorOutcomes`).
    """

    outcomes: Outcomes
    clears: bool
    rejected: pa.Table
    doubted: Sequence[Texts] = ()


def fold(rows: pa.Table, lane: LaneWork, keys: tuple[str, ...], logical: Mapping[str, str]) -> LaneFold:
    """Fold a lane.

    Args:
        rows: its new changes, in history's order.
        lane: what it is.
        keys: the mirror's key.
        logical: the mirror's columns with their types.
    """
    if lane.whole:
        return _refolded(rows, lane, keys, logical)
    rows, cleared = _after_clearing(rows, lane)
    by_images = lane.images and not lane.stated
    folded = (_last if by_images else _folded)(rows, lane, keys, logical)
    if cleared:  # nothing from before is kept
        last_rows = replace(folded.outcomes, whole=[True] * len(folded.outcomes.keys))
        return LaneFold(last_rows, True, folded.rejected)
    return folded


def _after_clearing(rows: pa.Table, lane: LaneWork) -> tuple[pa.Table, bool]:
    """The changes after the last truncate or new incarnation, and whether there is a truncate."""
    cleared = rows.filter(pc.equal(rows["op"], str(Op.TRUNCATE)))
    floor = max([lane.floor, *cleared["order_key"].to_pylist()])
    if cleared.num_rows:
        rows = rows.filter(pc.not_equal(rows["op"], str(Op.TRUNCATE)))
    if floor:
        rows = rows.filter(pc.greater(rows["order_key"], floor))
    return rows, bool(cleared.num_rows)


def last_images(rows: pa.Table, lane: LaneWork, work: MirrorWork) -> tuple[pa.Table, bool] | None:
    """What `_last` and `typed_outcomes` give, column by column, with the places of the changes, and whether the lane's
    other rows are deleted; None for what only these can do, or refuse.
    """
    several = lane.whole or lane.stated or lane.merged or lane.shard
    plain = lane.images and not several and lane.stamps == NO_STAMPS
    if not plain or rows.num_rows < (1 if work.where else AT_ONCE):
        return None
    rows, cleared = _after_clearing(rows, lane)
    asked = {*work.keys, *columns_of(work.where)} if work.where else work.logical.keys()
    try:
        images = _images(rows, _only(work, asked), lane.source)
        if any(images[name].null_count for name in work.key_columns):
            return None
        images = images.append_column(PLACE, rows["order_key"]).append_column(
            _AT, pa.array(np.arange(rows.num_rows))
        )
        images = last_of(images, work.key_columns)
        if work.where:
            images = _filtered(images, rows, work, lane.source)
    except (NotPlain, pa.ArrowInvalid, conditions.ConditionError):
        return None
    return images.drop_columns(_AT), cleared


def _only(work: MirrorWork, names: Collection[str]) -> MirrorWork:
    return replace(work, columns=tuple(column for column in work.columns if column.name in names))


def _filtered(last: pa.Table, rows: pa.Table, work: MirrorWork, source: str) -> pa.Table:
    """The last images of changes, of which the key and the condition's columns are known: the others are read only of rows
    that meet the condition.
    """
    names = {column.name: column.column for column in work.columns}
    gone, _ = conditions.shaped(
        work.where, {}, lambda name: last[names[name]], last["%gone"].combine_chunks()
    )
    kept, back = conditions.kept(gone)
    whole = _images(rows.take(last[_AT].take(kept)), work, source)
    columns = {
        name: last[name] if name in last.schema.names else whole[name].take(back)
        for name in work.schema.names
    }
    columns[UNFIT] = pc.coalesce(whole[UNFIT].take(back), last[UNFIT])
    return pa.table({"%gone": gone, **columns, PLACE: last[PLACE], _AT: last[_AT]})


def _images(rows: pa.Table, work: MirrorWork, source: str) -> pa.Table:
    """The image of each change as typed columns: of a deleted row that before, of others that after."""
    pages = (pa.Table.from_batches([batch]) for batch in rows.to_batches(READ_AT_ONCE))
    parts = [_some_images(page, work, source) for page in pages]
    return pa.concat_tables([typed_outcomes(Outcomes([], [], []), work), *parts], promote_options="none")


def _some_images(rows: pa.Table, work: MirrorWork, source: str) -> pa.Table:
    gone = pc.equal(rows["op"], str(Op.DELETE)).combine_chunks()
    images = pc.if_else(gone, rows["before"], rows["after"]).combine_chunks()
    if images.null_count:
        raise NotPlain("a change has no image")
    texts = texts_of(images, [column.name for column in work.columns])
    read = {
        column.name: (cells, typed_column(cells, column.type, is_key=column.name in work.keys))
        for column, cells in zip(work.columns, texts, strict=True)
    }
    columns = {column.column: read[column.name][1].cells for column in work.columns}
    return pa.table({"%gone": gone, **columns, UNFIT: unfit.of_rows(read, pc.invert(gone), source, rows)})


def last_of(rows: pa.Table, keys: list[str]) -> pa.Table:
    """The last row of each key."""
    numbered = comparable(rows.select(keys)).append_column("%row", pa.array(np.arange(rows.num_rows)))
    last = numbered.group_by(keys).aggregate([("%row", "max")])["%row_max"]
    return rows if len(last) == rows.num_rows else rows.take(pa.array(np.sort(last.to_numpy())))


def events_of(rows: pa.Table, lane: LaneWork, logical: Mapping[str, str]) -> list[LaneEvent]:
    """A lane's changes; under earlier keys, the rows that exist at their end.

    Raises:
        HeldError: such a row has no usable key now.
    """
    places, batches = (rows[name].to_pylist() for name in ("order_key", "batch"))
    events = list(map(LaneEvent, places, batches, _changes(rows, lane)))
    if not lane.eras:
        return events
    batch = lane.first if lane.begins else 0
    return rebased(events, lane.eras, lane.steps, logical, batch, lane.id, shared_reads=lane.shared_reads)


def _changes(rows: pa.Table, lane: LaneWork) -> Iterator[Change]:
    """Each change, as `ingest.fold` takes it."""
    shard: Image = dict(lane.shard)
    cells = _cells(rows, "op", "partial", "after", "before", "transaction")
    kinds = rows[TYPES].to_pylist() if TYPES in rows.schema.names else repeat(None)
    times = (
        rows[TIME].cast(pa.timestamp("us")).cast(pa.int64()).to_pylist() if lane.stamps.soft else repeat(None)
    )
    for (op, partial, after, before, transaction), sent, moment in zip(cells, kinds, times, strict=False):
        yield Change(
            op=Op(op),
            partial=bool(partial),
            after=_image(after, shard),
            before=_image(before, shard),
            types=types_of(sent),
            event_time=moment,
            transaction=transaction,
        )


def _cells(rows: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    """Some cells of each row; where they are large, few of them are Python's at a time."""
    size = max(1, _CELLS * rows.num_rows // max(1, rows.nbytes))
    for page in rows.select(names).to_batches(max_chunksize=size):
        yield from zip(*(column.to_pylist() for column in page.columns), strict=True)


def _image(text: str | None, shard: Image) -> Image | None:
    """A row image, with the shard's cell."""
    return None if text is None else {**shard, **_decode(text)} if shard else _decode(text)


def _last(rows: pa.Table, lane: LaneWork, keys: tuple[str, ...], key_types: Mapping[str, str]) -> LaneFold:
    """The last image of each key: equal to `ingest.fold` if each change carries the whole row of its key."""
    unusable: list[int] = []
    typed_keys: dict[Texts, Key] = {}
    last: dict[Key, tuple[Texts, Image | None, str]] = {}
    shard: Image = dict(lane.shard)
    wanted = set(keys)
    texts: Texts
    cells = _cells(rows, "op", "after", "before", "order_key")
    for number, (op, after, before, place) in enumerate(cells):
        gone = op == "delete"
        first, second = (before, after) if gone else (after, before)
        image = _image(first, shard)
        try:
            if image is not None and wanted <= image.keys():  # the other image is not read: it adds nothing
                texts = tuple([image[name] for name in keys])
            else:
                texts = texts_of_key(keys, image, _image(second, shard))
            key = typed_keys.get(texts)
            if key is None:
                key = typed_keys[texts] = key_of_texts(keys, texts, key_types)
        except KeyCellError:
            unusable.append(number)
            continue
        last[key] = texts, None if gone else image or {}, place
    texts_of, images, places = map(list, zip(*last.values(), strict=True)) if last else ([], [], [])
    return LaneFold(
        Outcomes(texts_of, images, [True] * len(last), places),
        False,
        rows.take(pa.array(unusable, pa.int64())),
    )


@dataclass(slots=True)
class Events:
    """Changes as `ingest.fold` takes them, with the keys that they concern."""

    keys: tuple[str, ...]
    key_types: Mapping[str, str]
    placed: list[Placed | SchemaStep] = field(default_factory=list)
    texts: dict[Key, Texts] = field(default_factory=dict)

    def add(self, place: str, change: Change) -> tuple[Key, ...]:
        """Add a change; returns its key and the one that its row leaves, of a truncate none.

        Raises:
            KeyCellError: it has no usable key.
        """
        concerned: Mapping[Key, Texts] = {}
        if change.op is not Op.TRUNCATE:
            concerned = key_of_change(change, self.keys, self.key_types).texts
        for key, texts in concerned.items():
            self.texts.setdefault(key, texts)
        self.placed.append(Placed(order_of(place), change))
        return tuple(concerned)

    def outcomes(self, table: Table, whole: Mapping[Key, bool]) -> Outcomes:
        """The outcomes of some keys."""
        rows = map(table.row, whole)
        images = [None if row is None else row.values for row in rows]
        return Outcomes([self.texts[key] for key in whole], images, list(whole.values()))


def _folded(rows: pa.Table, lane: LaneWork, keys: tuple[str, ...], key_types: Mapping[str, str]) -> LaneFold:
    """`ingest.fold` of the new rows: one that is only updated in part keeps the mirror's other values, to which new
    statements do the same as to all others.
    """
    table, whole = Table(keys, key_types), dict[Key, bool]()
    events = Events(keys, key_types, [step.decoded() for step in lane.stated])
    unusable: list[int] = []
    for number, (place, change) in enumerate(
        zip(rows["order_key"].to_pylist(), _changes(rows, lane), strict=True)
    ):
        try:
            moves = len(events.add(place, change)) > 1
        except KeyCellError:
            unusable.append(number)
            continue
        if moves and change.partial:
            raise HistoryNeeded("a changed key takes values along that its message does not carry")
    for step in steps(table, events.placed):
        partly = step.effect == "overlay" or isinstance(step.event, SchemaStep)
        whole[step.key] = whole.get(step.key, False) or not partly
    doubted = [events.texts[key] for key in table.crossings.doubted]
    return LaneFold(events.outcomes(table, whole), False, rows.take(pa.array(unusable, pa.int64())), doubted)


def _refolded(
    rows: pa.Table, lane: LaneWork, keys: tuple[str, ...], key_types: Mapping[str, str]
) -> LaneFold:
    """`ingest.fold` of a whole history: for all keys if a clearing is new, else for those that the new changes
    concern.

    A mirror that keeps deleted rows is not cleared: its rows become deleted ones.
    """
    table = Table(keys, key_types, soft=lane.stamps.soft)
    events = Events(keys, key_types, [step.decoded() for step in lane.own_steps])
    clearings = lane.created
    touched: set[Key] = set()
    links = defaultdict[Key, set[Key]](set)
    unusable: list[str] = []
    for place, batch, change in events_of(rows, lane, key_types):
        new = batch >= lane.first
        if change.op is Op.TRUNCATE:
            clearings.append((place, new))
        try:
            concerned = events.add(place, change)
        except KeyCellError:
            unusable += [place] if new else []
            continue
        touched.update(concerned if new else ())
        for key, other in permutations(concerned, 2):  # it may take over values that another one had
            links[key].add(other)
    for _step in steps(table, events.placed):
        pass
    cleared, clears = max(clearings, default=("", False))
    # of rows from before it nothing is missing
    begins = max([cleared, *(era.place for era in lane.eras[-1:]), *(lane.between or ())[:1]])
    rejected = [place for place in unusable if place > begins]
    if table.soft:  # an earlier clearing ended rows, too, which a late one changes
        clears = any(new for _, new in clearings)
    every = clears or lane.since or lane.merged
    wanted = events.texts.keys() if every else linked(touched, links)
    return LaneFold(
        events.outcomes(table, dict.fromkeys(wanted, True)),
        clears and not table.soft,
        rows.filter(pc.is_in(rows["order_key"], value_set=pa.array(rejected, pa.string()))),
    )
