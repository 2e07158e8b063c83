"""Fold a mirror's changes with Arrow and merge their outcomes into its rows.

Only plain cases are handled: anything else is refused, and Spark folds the mirror. The fold is `ingest.fold` itself; if
every change carries the whole row, the last image of each key gives the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from itertools import repeat
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest import types
from ingest.change import Change, Image, LaneId, Op, TableId
from ingest.config.conditions import columns as columns_of
from ingest.fold import (
    Concerned,
    Key,
    KeyCellError,
    Placed,
    SchemaStep,
    Table,
    key_of_change,
    steps,
    texts_of_key,
    typed,
)
from ingest.gold.collision import CollisionError
from ingest.gold.past_keys import LaneEvent, rebased
from ingest.lake import conditions
from ingest.lake.image_columns import texts_of
from ingest.lake.mirrors import Era
from ingest.lake.stamps import NO_STAMPS, TIME, Stamps, types_of
from ingest.order import order_of
from ingest.values.typed_values import value_of

Rows = Mapping[LaneId, pa.Table]
Texts = tuple[str | None, ...]
AT_ONCE, READ_AT_ONCE = 500, 50_000  # changes whose images are read as columns: at least, and at once
PLACE, _AT = "%place", "%at"  # of the change that an outcome is from, and its number
TYPES = "types"  # which only steps of a whole history need
_CELLS = 16 << 20  # bytes of changes that are Python's at a time
_decode = msgspec.json.Decoder(dict[str, str | None]).decode


class NotPlain(Exception):
    """Raised for a case that Arrow leaves to Spark."""


@dataclass(frozen=True, slots=True)
class LaneWork:
    """One lane's new changes: which they are, and what they may contain according to the books."""

    source: str
    table: TableId
    first: int
    last: int
    images: bool = False  # every change carries the whole row and does not change its key
    floor: str | None = None  # the place of a new incarnation: rows from before it are gone
    shard: tuple[str, str] | None = None
    stamps: Stamps = NO_STAMPS
    whole: bool = False  # its whole history is folded again, because new changes precede folded ones
    steps: tuple[SchemaStep, ...] = ()  # of a whole history, by order key
    since: str = ""  # the place of the first new one; empty if none is new
    eras: tuple[Era, ...] = ()  # of a whole history in which the key has changed
    begins: bool = False  # no change of it has been folded before
    merged: str = ""  # its name, if the mirror has rows of other lanes that only their key distinguishes
    late_from: str = ""  # the place from which folded changes are read, too: they tell which late ones count

    @property
    def id(self) -> LaneId:
        """Source and table."""
        return self.source, self.table

    @property
    def own_steps(self) -> tuple[SchemaStep, ...]:
        """The steps that meet rows under the last key."""
        if not self.eras:
            return self.steps
        last = self.eras[-1].place
        return tuple(step.after(last) for step in self.steps if str(step.order) > last)

    @property
    def created(self) -> list[tuple[str, bool]]:
        """Where the table was created again, and whether that is new."""
        found = (str(step.order) for step in self.own_steps if step.empties)
        return [(at, bool(self.since) and at >= self.since) for at in found]

    @property
    def from_batch(self) -> int:
        """The first batch to read."""
        return 0 if self.whole else self.first


class ColumnWork(NamedTuple):
    """A mirror's column: the source's name, Delta's, the logical type, and how it is computed."""

    name: str
    column: str
    type: str
    expression: str = ""  # what it is computed by


@dataclass(frozen=True, slots=True)
class MirrorWork:
    """One mirror's part of a batch, with its table's files."""

    path: str  # names the mirror
    folder: str
    keys: tuple[str, ...]
    columns: tuple[ColumnWork, ...]
    lanes: tuple[LaneWork, ...]
    files: tuple[tuple[str, pa.BooleanArray | None], ...] = ()  # with the rows that its deletion vector keeps
    size: int = 0
    changes: int = 0
    where: str = ""  # the condition that its rows meet
    reshaped: bool = False  # the table's columns or their metadata change: all its files are replaced
    again: bool = False  # its changes so far give all its rows, whatever the files hold
    appends: bool = False  # without a key: what is inserted is added
    # columns that get another type, with theirs; empty if no value is kept
    old: tuple[tuple[str, str], ...] = ()
    marked: frozenset[str] = frozenset()  # the files of which rows are deleted by vectors, not by a new file

    @property
    def logical(self) -> dict[str, str]:
        """The columns by the source's names, with their types."""
        return {one.name: one.type for one in self.columns}

    @property
    def schema(self) -> pa.Schema:
        """The table's columns in Arrow."""
        return pa.schema([(one.column, arrow_type(one.type)) for one in self.columns])

    @property
    def key_columns(self) -> list[str]:
        """The key's columns, by Delta's names."""
        return [one.column for one in self.columns if one.name in self.keys]


# --- the outcomes ---------------------------------------------------------------------------------


def outcomes(work: MirrorWork, rows: Rows) -> tuple[pa.Table, bool]:
    """What the changes make of each key, as typed columns, and whether all other rows are deleted.

    Raises:
        NotPlain: Spark must fold them.
        CollisionError: a row with the same key is in two lanes.
    """
    source, clears = _at_once(work, rows) or _one_after_another(work, rows)
    source = _shaped(source, work)
    if len(work.lanes) > 1:
        keys = source.select(work.key_columns)
        if keys.group_by(work.key_columns).aggregate([]).num_rows < keys.num_rows:
            raise NotPlain("several tables send rows of one key")
    return source, clears


def _at_once(work: MirrorWork, rows: Rows) -> tuple[pa.Table, bool] | None:
    """The outcomes read as columns; None if some lane's images cannot be read so."""
    found, clears = [], False
    for lane in work.lanes:
        if (one := last_images(rows[lane.id], lane, work)) is None:
            return None
        found.append(one[0].drop_columns(PLACE))
        clears |= one[1]
    return pa.concat_tables(found), clears


def _one_after_another(work: MirrorWork, rows: Rows) -> tuple[pa.Table, bool]:
    """The outcomes by a look at each change, with the mirror's own columns."""
    found, clears = Outcomes([], [], []), False
    apart = {}
    for lane in work.lanes:
        own, cleared = fold(rows[lane.id], lane, work.keys, work.logical)
        if lane.merged:
            apart[lane.merged] = own
        else:
            found, clears = found + own, clears or cleared
    return typed_outcomes(_merged(apart, work) if apart else found, work), clears


def _merged(apart: Mapping[str, Outcomes], work: MirrorWork) -> Outcomes:
    """The outcomes of several lanes' keys as those of one table: a row may be in one lane only.

    Raises:
        CollisionError: a row with the same key is in two lanes.
    """
    key_types = work.logical
    found: dict[Key, tuple[str, Texts, Image | None]] = {}
    for name, outcomes in apart.items():
        for texts, image in zip(outcomes.keys, outcomes.images, strict=True):
            key = _key(work.keys, texts, key_types)
            other = found.get(key)
            if image is None:
                found.setdefault(key, (name, texts, None))
            elif other is None or other[2] is None:
                found[key] = name, texts, image
            else:
                raise CollisionError(dict(zip(work.keys, map(str, texts), strict=True)), (other[0], name))
    return Outcomes(
        [texts for _, texts, _ in found.values()],
        [image for *_, image in found.values()],
        [True] * len(found),
    )


def typed_outcomes(outcomes: Outcomes, work: MirrorWork) -> pa.Table:
    """Outcomes as typed columns by Delta's names, with ``%gone`` and, for partial rows, which columns they carry."""
    columns: dict[str, pa.Array] = {"%gone": pa.array([one is None for one in outcomes.images], pa.bool_())}
    partial = not all(outcomes.whole)
    for one in work.columns:
        at = work.keys.index(one.name) if one.name in work.keys else None
        if at is None:
            texts: Iterable[str | None] = [
                None if row is None else row.get(one.name) for row in outcomes.images
            ]
        else:
            texts = [key[at] for key in outcomes.keys]
        columns[one.column] = typed_column(pa.array(texts, pa.string()), one.type, at)
        if partial:
            columns["%has " + one.column] = pa.array(
                [
                    whole or (row is not None and one.name in row)
                    for row, whole in zip(outcomes.images, outcomes.whole, strict=True)
                ],
                pa.bool_(),
            )
    return pa.table(columns)


def _shaped(source: pa.Table, work: MirrorWork) -> pa.Table:
    """The same outcomes with computed columns; rows that do not meet the mirror's condition are deleted."""
    computed = {one.name: (one.expression, one.type) for one in work.columns if one.expression}
    if not work.where and not computed:
        return source
    if any(name.startswith("%has ") for name in source.schema.names):
        raise NotPlain("a rule is evaluated on whole rows")
    names = {one.name: one.column for one in work.columns}
    gone = source["%gone"].combine_chunks()
    gone, made = conditions.shaped(work.where, computed, lambda name: source[names[name]], gone)
    for name, cells in {"%gone": gone, **{names[name]: cells for name, cells in made.items()}}.items():
        at = source.schema.get_field_index(name)
        source = source.set_column(at, name, cells.cast(source.schema.field(at).type))
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


def fold(
    rows: pa.Table, lane: LaneWork, keys: tuple[str, ...], logical: Mapping[str, str]
) -> tuple[Outcomes, bool]:
    """A lane's outcomes, and whether its other rows are deleted.

    Args:
        rows: its new changes, in history's order.
        lane: what it is.
        keys: the mirror's key.
        logical: the mirror's columns with their types.

    Raises:
        NotPlain: a key does not fit.
    """
    try:
        if lane.whole:
            return _refolded(events_of(rows, lane, logical), lane, keys, logical)
        return _in_order(rows, lane, keys, logical)
    except KeyCellError as error:
        raise NotPlain(str(error)) from None


def _in_order(
    rows: pa.Table, lane: LaneWork, keys: tuple[str, ...], key_types: Mapping[str, str]
) -> tuple[Outcomes, bool]:
    """The same for changes that are all newer than what was folded."""
    rows, cleared = _after_clearing(rows, lane)
    found = (_last if lane.images else _folded)(rows, lane, keys, key_types)
    if cleared:  # nothing from before is kept
        found = replace(found, whole=[True] * len(found.keys))
    return found, cleared


def _after_clearing(rows: pa.Table, lane: LaneWork) -> tuple[pa.Table, bool]:
    """The changes after the last truncate or new incarnation, and whether there is a truncate."""
    cleared = rows.filter(pc.equal(rows["op"], str(Op.TRUNCATE)))
    floor = max([lane.floor or "", *cleared["order_key"].to_pylist()])
    if cleared.num_rows:
        rows = rows.filter(pc.not_equal(rows["op"], str(Op.TRUNCATE)))
    if floor:
        rows = rows.filter(pc.greater(rows["order_key"], floor))
    return rows, bool(cleared.num_rows)


def last_images(rows: pa.Table, lane: LaneWork, work: MirrorWork) -> tuple[pa.Table, bool] | None:
    """What `_last` and `typed_outcomes` give, column by column, with the places of the changes, and whether the lane's
    other rows are deleted; None for what only these can do, or refuse.
    """
    plain = lane.images and not (lane.whole or lane.merged or lane.shard) and lane.stamps == NO_STAMPS
    if not plain or rows.num_rows < (1 if work.where else AT_ONCE):
        return None
    rows, cleared = _after_clearing(rows, lane)
    asked = {*work.keys, *columns_of(work.where)} if work.where else work.logical.keys()
    try:
        found = _images(rows, replace(work, columns=tuple(one for one in work.columns if one.name in asked)))
        if any(found[name].null_count for name in work.key_columns):
            return None
        found = found.append_column(PLACE, rows["order_key"]).append_column(
            _AT, pa.array(np.arange(rows.num_rows))
        )
        found = last_of(found, work.key_columns)
        if work.where:
            found = _filtered(found, rows, work)
    except (NotPlain, pa.ArrowInvalid, conditions.ConditionError):
        return None
    return found.drop_columns(_AT), cleared


def _filtered(last: pa.Table, rows: pa.Table, work: MirrorWork) -> pa.Table:
    """The last images of changes, of which the key and the condition's columns are known: the others are read only of rows
    that meet the condition.
    """
    names = {one.name: one.column for one in work.columns}
    gone, _ = conditions.shaped(
        work.where, {}, lambda name: last[names[name]], last["%gone"].combine_chunks()
    )
    kept, back = conditions.kept(gone)
    whole = _images(rows.take(last[_AT].take(kept)), work)
    columns = {
        name: last[name] if name in last.schema.names else whole[name].take(back)
        for name in work.schema.names
    }
    return pa.table({"%gone": gone, **columns, PLACE: last[PLACE], _AT: last[_AT]})


def _images(rows: pa.Table, work: MirrorWork) -> pa.Table:
    """The image of each change as typed columns: of a deleted row that before, of others that after."""
    parts = [_some_images(pa.Table.from_batches([one]), work) for one in rows.to_batches(READ_AT_ONCE)]
    return pa.concat_tables([typed_outcomes(Outcomes([], [], []), work), *parts], promote_options="none")


def _some_images(rows: pa.Table, work: MirrorWork) -> pa.Table:
    gone = pc.equal(rows["op"], str(Op.DELETE)).combine_chunks()
    images = pc.if_else(gone, rows["before"], rows["after"]).combine_chunks()
    if images.null_count:
        raise NotPlain("a change has no image")
    texts = texts_of(images, [one.name for one in work.columns])
    columns = {
        one.column: typed_column(cells, one.type, 0 if one.name in work.keys else None)
        for one, cells in zip(work.columns, texts, strict=True)
    }
    return pa.table({"%gone": gone, **columns})


def last_of(rows: pa.Table, keys: list[str]) -> pa.Table:
    """The last row of each key."""
    numbered = rows.select(keys).append_column("%row", pa.array(np.arange(rows.num_rows)))
    last = numbered.group_by(keys).aggregate([("%row", "max")])["%row_max"]
    return rows if len(last) == rows.num_rows else rows.take(pa.array(np.sort(last.to_numpy())))


def events_of(rows: pa.Table, lane: LaneWork, logical: Mapping[str, str]) -> list[LaneEvent]:
    """A lane's changes; under earlier keys, the rows that exist at their end.

    Raises:
        HeldError: such a row has no usable key now.
    """
    places, batches = (rows[name].to_pylist() for name in ("order_key", "batch"))
    found = list(map(LaneEvent, places, batches, _changes(rows, lane)))
    if not lane.eras:
        return found
    return rebased(found, lane.eras, lane.steps, logical, lane.first if lane.begins else 0, lane.id)


def _changes(rows: pa.Table, lane: LaneWork) -> Iterator[Change]:
    """Each change, as `ingest.fold` takes it."""
    shard: Image = dict([lane.shard]) if lane.shard else {}
    cells = _cells(rows, "op", "partial", "after", "before")
    kinds = rows[TYPES].to_pylist() if TYPES in rows.schema.names else repeat(None)
    times = (
        rows[TIME].cast(pa.timestamp("us")).cast(pa.int64()).to_pylist() if lane.stamps.soft else repeat(None)
    )
    for (op, partial, after, before), sent, at in zip(cells, kinds, times, strict=False):
        new, old = _image(after, shard), _image(before, shard)
        yield Change(
            op=Op(op), partial=bool(partial), after=new, before=old, types=types_of(sent), event_time=at
        )


def _cells(rows: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    """Some cells of each row; where they are large, few of them are Python's at a time."""
    size = max(1, _CELLS * rows.num_rows // max(1, rows.nbytes))
    for page in rows.select(names).to_batches(max_chunksize=size):
        yield from zip(*(column.to_pylist() for column in page.columns), strict=True)


def _image(text: str | None, shard: Image) -> Image | None:
    """A row image, with the shard's cell."""
    return None if text is None else {**shard, **_decode(text)} if shard else _decode(text)


def _last(rows: pa.Table, lane: LaneWork, keys: tuple[str, ...], key_types: Mapping[str, str]) -> Outcomes:
    """The last image of each key: equal to `ingest.fold` if each change carries the whole row of its key."""
    known: dict[Texts, Key] = {}
    last: dict[Key, tuple[Texts, Image | None, str]] = {}
    shard: Image = dict([lane.shard]) if lane.shard else {}
    wanted = set(keys)
    texts: Texts
    for op, after, before, place in _cells(rows, "op", "after", "before", "order_key"):
        gone = op == "delete"
        first, second = (before, after) if gone else (after, before)
        image = _image(first, shard)
        if image is not None and wanted <= image.keys():  # the other image is not read: it adds nothing
            texts = tuple([image[name] for name in keys])
        else:
            texts = texts_of_key(keys, image, _image(second, shard))
        key = known.get(texts)
        if key is None:
            key = known[texts] = _key(keys, texts, key_types)
        last[key] = texts, None if gone else image or {}, place
    texts_of, images, places = map(list, zip(*last.values(), strict=True)) if last else ([], [], [])
    return Outcomes(texts_of, images, [True] * len(last), places)


def _key(keys: tuple[str, ...], texts: Texts, key_types: Mapping[str, str]) -> Key:
    cells: list[object] = []
    for name, text in zip(keys, texts, strict=True):
        if text is None:
            raise KeyCellError(name, "is NULL")
        cells.append(typed(key_types[name], text, name))
    return tuple(cells)


@dataclass(slots=True)
class _Events:
    """Changes as `ingest.fold` takes them, with the keys that they concern."""

    keys: tuple[str, ...]
    key_types: Mapping[str, str]
    found: list[Placed | SchemaStep] = field(default_factory=list)
    texts: dict[Key, Texts] = field(default_factory=dict)

    def add(self, place: str, change: Change) -> Concerned:
        """One more change of a row."""
        before, after = change.before, change.after
        concerned = key_of_change(change, self.keys, self.key_types)
        images = (before, after) if change.op is Op.DELETE else (after, before)
        self.texts.setdefault(concerned.key, texts_of_key(self.keys, *images))
        if concerned.left is not None:
            self.texts.setdefault(concerned.left, texts_of_key(self.keys, before, after))
        self.found.append(Placed(order_of(place), change))
        return concerned

    def outcomes(self, table: Table, whole: Mapping[Key, bool]) -> Outcomes:
        """The outcomes of some keys."""
        rows = map(table.row, whole)
        images = [None if row is None else row.values for row in rows]
        return Outcomes([self.texts[key] for key in whole], images, list(whole.values()))


def _folded(rows: pa.Table, lane: LaneWork, keys: tuple[str, ...], key_types: Mapping[str, str]) -> Outcomes:
    """`ingest.fold` of the new rows: a row that is only updated in part keeps the mirror's other values."""
    table, events, whole = Table(keys, key_types), _Events(keys, key_types), dict[Key, bool]()
    for place, change in zip(rows["order_key"].to_pylist(), _changes(rows, lane), strict=True):
        if events.add(place, change).left is not None and change.partial:
            raise NotPlain("a changed key takes values along that its message does not carry")
    for step in steps(table, events.found):
        whole[step.key] = whole.get(step.key, False) or step.effect != "overlay"
    return events.outcomes(table, whole)


def _refolded(
    changes: Iterable[LaneEvent], lane: LaneWork, keys: tuple[str, ...], key_types: Mapping[str, str]
) -> tuple[Outcomes, bool]:
    """`ingest.fold` of a whole history: for all keys if a clearing is new, else for those that the new changes
    concern.

    A mirror that keeps deleted rows is not cleared: its rows become deleted ones.
    """
    table = Table(keys, key_types, soft=lane.stamps.soft)
    events = _Events(keys, key_types, [one.decoded() for one in lane.own_steps])
    clearings = lane.created
    touched: set[Key] = set()
    links: dict[Key, list[Key]] = {}
    for place, batch, change in changes:
        new = batch >= lane.first
        if change.op is Op.TRUNCATE:
            clearings.append((place, new))
            events.found.append(Placed(order_of(place), change))
            continue
        key, left = events.add(place, change)
        touched |= {key} if new else set()
        if left is not None:  # one key may take over values that the other one had
            links.setdefault(key, []).append(left)
            links.setdefault(left, []).append(key)
    for _step in steps(table, events.found):
        pass
    _, clears = max(clearings, default=("", False))
    if table.soft:  # an earlier clearing ended rows, too, which a late one changes
        clears = any(new for _, new in clearings)
    every = clears or lane.since or lane.merged
    wanted = events.texts.keys() if every else _linked(touched, links)
    return events.outcomes(table, dict.fromkeys(wanted, True)), clears and not table.soft


def _linked(keys: Iterable[Key], links: Mapping[Key, Sequence[Key]]) -> set[Key]:
    """Some keys and all keys that key changes link with them."""
    found, open_keys = set[Key](), list(keys)
    while open_keys:
        key = open_keys.pop()
        if key not in found:
            found.add(key)
            open_keys += links.get(key, ())
    return found


# --- texts to values ------------------------------------------------------------------------------

_YEAR = r"(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_NOTHING = r"[^\s\S]"
# whose values Arrow converts exactly as `value_of` does
_DEFINED = frozenset({"integer", "decimal", "float", "binary"})
_CLOCK = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_FIXED = {
    "BOOLEAN": pa.bool_(), "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(), "BIGINT": pa.int64(),
    "FLOAT": pa.float32(), "DOUBLE": pa.float64(), "BINARY": pa.binary(), "DATE": pa.date32(),
    "TIMESTAMP_NTZ": pa.timestamp("us"), "TIMESTAMP": pa.timestamp("us", tz="UTC"), "STRING": pa.string(),
}  # fmt: skip


@cache
def arrow_type(logical: str) -> pa.DataType:
    """A logical type's Delta type in Arrow."""
    return of_delta(types.delta(logical))


def of_delta(delta: str) -> pa.DataType:
    parts = types.decimal_parts(delta.lower())
    return pa.decimal128(*parts) if parts else _FIXED[delta]


@cache
def _simple(logical: str) -> str:
    """A pattern of texts that Arrow reads as Spark does; others are read one by one."""
    kind, parts = types.family(logical) or "", types.decimal_parts(types.delta(logical).lower())
    if parts:
        whole, scale = parts[0] - parts[1], parts[1]
        fraction = rf"(\.[0-9]{{1,{scale}}})?" if scale else ""
        return rf"-?[0-9]{{1,{whole}}}{fraction}" if whole else _NOTHING
    return {
        "boolean": r"true|false",
        "integer": r"-?[0-9]{1,19}",
        "float": r"-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?",
        "date": rf"{_YEAR}-[0-9]{{2}}-[0-9]{{2}}",
        "datetime": rf"{_YEAR}-[0-9]{{2}}-[0-9]{{2}}( {_CLOCK})?",
        "timestamp": rf"{_YEAR}-[0-9]{{2}}-[0-9]{{2}}T{_CLOCK}(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])",
        "binary": _NOTHING,
    }[kind]


def values(texts: pa.Array, logical: str) -> pa.Array:
    """Canonical texts as a column's values; a NULL stays one.

    Raises:
        NotPlain: a text is not a value of the type, or is at the ends of its range.
    """
    kind, target = types.family(logical), arrow_type(logical)
    if kind is None or target == pa.string():
        return texts
    simple = pc.match_substring_regex(texts, rf"\A(?:{_simple(logical)})\z")
    if not pc.all(simple, min_count=0).as_py():
        return _one_by_one(texts, logical, kind, target)
    try:
        found = texts.cast(target)
    except pa.ArrowInvalid as error:
        raise NotPlain(f"a cell does not fit {logical}: {error}") from None
    if kind == "float" and not pc.all(pc.is_finite(found), min_count=0).as_py():
        raise NotPlain(f"a cell does not fit {logical}")
    return found


def _one_by_one(texts: pa.Array, logical: str, kind: str, target: pa.DataType) -> pa.Array:
    """The same by the definition of a value (`ingest.values.typed_values`), for the texts that Arrow may misread."""
    if kind not in _DEFINED:
        raise NotPlain(f"a cell does not fit {logical}, or is at its far end")
    value = _float if kind == "float" else value_of
    try:
        return pa.array(
            [None if text is None else value(logical, text) for text in texts.to_pylist()], target
        )
    except (ValueError, ArithmeticError, pa.ArrowInvalid) as error:
        raise NotPlain(f"a cell does not fit {logical}: {error}") from None


def _float(logical: str, text: str) -> float:
    """A number with its sign: the canonical text of zero has none."""
    number = float(str(value_of(logical, text)))
    return -0.0 if number == 0 and text.startswith("-") else number


def typed_column(texts: pa.Array, logical: str, key: int | None = None) -> pa.Array:
    """A column's values; times are cut to microseconds, as Delta stores them.

    A key that would be cut has been refused before.
    """
    if key is None and types.family(logical) in ("datetime", "timestamp"):
        texts = pc.replace_substring_regex(texts, r"(\.[0-9]{6})[0-9]+", r"\1")
    return values(texts, logical)


# --- the merge ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Merged:
    """A mirror's rows after the batch: kept, replacing, and new ones."""

    stays: pa.Table
    put: pa.Table
    new: pa.Table
    inserted: int
    updated: int
    deleted: int


def merge(there: pa.Table, source: pa.Table, work: MirrorWork, *, clears: bool) -> Merged:
    """Merge outcomes into a mirror's rows; a row that would not change is not touched."""
    rows, others = pairs(there.select(work.key_columns), source.select(work.key_columns))
    gone = source["%gone"].combine_chunks()
    going = gone.take(others)
    unmatched = pc.invert(pc.or_(_mask(source.num_rows, others), gone))
    new = source.filter(unmatched).select(there.schema.names)
    stay = pc.invert(going)
    at, of = rows.filter(stay), others.filter(stay)
    matched, put = there.take(at), _put(there, source, at, of)
    # a mask of the matched rows that differ
    none = pa.chunked_array([pa.array([False] * matched.num_rows, pa.bool_())])
    differs = reduce(
        pc.or_, (_differs(matched[name], put[name]) for name in matched.schema.names), none
    ).combine_chunks()
    changed = at
    if differs.true_count < len(differs):  # else a copy would be the same
        put, changed = put.filter(differs), at.filter(differs)
    if clears:
        stays = matched.filter(pc.invert(differs))
    else:
        stays = there.filter(
            pc.invert(_mask(there.num_rows, pa.concat_arrays([rows.filter(going), changed])))
        )
    deleted = there.num_rows - stays.num_rows - put.num_rows
    return Merged(stays, put, new, new.num_rows, put.num_rows, deleted)


def pairs(there: pa.Table, source: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Row numbers of equal keys in both tables."""
    names = there.schema.names
    if len(names) == 1:
        found = pc.index_in(there[names[0]], value_set=source[names[0]].combine_chunks())
        found = pa.chunked_array(found.chunks if isinstance(found, pa.ChunkedArray) else [found], pa.int32())
        places = pc.indices_nonzero(pc.is_valid(found)).cast(pa.int64())
        return places, found.drop_null().combine_chunks().cast(pa.int64())
    left = there.append_column("%t", pa.array(np.arange(there.num_rows)))
    right = source.append_column("%s", pa.array(np.arange(source.num_rows)))
    both = left.join(right, names, join_type="inner")
    return both["%t"].combine_chunks(), both["%s"].combine_chunks()


def _mask(length: int, places: pa.Array) -> pa.BooleanArray:
    """A mask that is True at some row numbers."""
    mask = np.zeros(length, np.bool_)
    mask[places.to_numpy(zero_copy_only=False)] = True
    return pa.array(mask)


def _put(there: pa.Table, source: pa.Table, at: pa.Array, of: pa.Array) -> pa.Table:
    """Outcomes as rows; a column that an outcome does not carry keeps the existing row's value."""
    columns = []
    for name in there.schema.names:
        value = source[name].take(of)
        if "%has " + name in source.schema.names:
            value = pc.if_else(source["%has " + name].take(of), value, there[name].take(at))
        columns.append(value)
    return pa.Table.from_arrays(columns, schema=there.schema)


def bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column in which values that differ are unequal: 0.0 and -0.0 differ, and NaN equals NaN."""
    if not pa.types.is_floating(column.type):
        return column
    return pa.chunked_array([column.combine_chunks().view(f"int{column.type.bit_width}")])


def _differs(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    left, right = bits(left), bits(right)
    unequal = pc.not_equal(left, right)
    return pc.coalesce(unequal, pc.xor(pc.is_null(left), pc.is_null(right)))
