"""Fold and merge a mirror's changes with Arrow: from files of ``changes`` and of the mirror to a new file.

Only plain cases are handled: anything else stops the work before a commit, and Spark folds the mirror. The fold is
`ingest.fold` itself; if every change carries the whole row, the last image of each key gives the same.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ingest import types
from ingest.change import Change, Image, Op, TableId
from ingest.errors import HeldError
from ingest.fold import (
    Concerned,
    Key,
    KeyCellError,
    Placed,
    SchemaStep,
    Table,
    key_of_change,
    steps,
    typed,
)
from ingest.gold.collision import CollisionError
from ingest.gold.lane import types_of
from ingest.gold.past_keys import LaneEvent, rebased
from ingest.lake import conditions, vectors
from ingest.lake.mirrors import Era
from ingest.lake.schemas import CPU
from ingest.lake.stamps import NO_STAMPS, TIME, Stamps, columns_for, stamped
from ingest.order import order_of
from ingest.values.typed_values import value_of

LaneId = tuple[str, TableId]
Rows = Mapping[LaneId, pa.Table]
Texts = tuple[str | None, ...]
LONGEST_STATISTIC = 32  # characters of a text that Delta keeps
FILES = 16  # with this many a mirror is written whole, so that appended files stay few
SMALL = 4 << 20  # bytes of a mirror that is written whole even where rows are only added
ROWS_AT_MOST = 512 << 20  # bytes that a mirror's rows take in memory, whatever their files take
SAMPLED, SAMPLE = 256 << 10, 1024  # bytes of a file that is sampled first, and rows of a sample
READ = 16 << 10  # rows that are read at once of a large mirror's file
_COLUMNS = ("source", "database", "schema", "table", "batch", "order_key", "op", "partial", "before", "after")
_TYPES = "types"  # which only steps of a whole history need
_PARQUET = ds.ParquetFileFormat(
    read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")  # as other writers store times
)
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
        found = (str(step.order) for step in self.own_steps if step.action == "new_incarnation")
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
class Work:
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
    old: tuple[
        tuple[str, str], ...
    ] = ()  # columns that get another type, with theirs; empty if no value is kept
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


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a mirror's part: a file that is not committed yet, or why Arrow cannot fold it."""

    path: str
    refused: str = ""
    held: str = ""  # why no way of folding it gives its rows
    file: str = ""  # within the table's folder; empty if no row is added or kept
    size: int = 0
    stats: str = ""
    replaces: bool = False  # the table's other files are removed, except marked ones
    vectors: dict[str, dict[str, Any]] = field(default_factory=dict)  # of marked files
    counts: dict[str, int] = field(default_factory=dict)


def make(work: Work, rows: Rows) -> Written:
    """Fold one mirror's changes and write the resulting rows; commits nothing."""
    began = time.thread_time()
    try:
        made = _make(work, rows)
        made.counts[CPU] = round(1000 * (time.thread_time() - began))
        return made
    except NotPlain as error:
        return Written(work.path, str(error))
    except (CollisionError, HeldError) as error:
        return Written(work.path, held=str(error))
    except conditions.ConditionError as error:  # Spark's tasks ask the same engine
        text = str(error)
        return Written(work.path, held=text) if conditions.FAILED in text else Written(work.path, text)
    except Exception as error:  # whatever it is, Spark handles it, for this mirror only
        return Written(work.path, f"{type(error).__name__}: {error}")


def _make(work: Work, rows: Rows) -> Written:
    from ingest.gold import keyless_arrow  # which uses this module

    gone: dict[str, vectors.Rows] = {}
    if work.keys:
        merged, gone = _keyed(work, rows)
    else:
        merged = keyless_arrow.merged(work, rows, _present(work))
    counts = {"inserted": merged.inserted, "updated": merged.updated, "deleted": merged.deleted}
    changed = merged.updated or merged.deleted or work.reshaped
    if not changed and not merged.inserted:
        return Written(work.path, counts=counts)
    few = (
        len(work.files) == len(work.marked) if work.marked else work.size > SMALL and len(work.files) < FILES
    )
    if not changed and few:
        result, made = merged.new, Written(work.path, counts=counts)
    else:
        result = pa.concat_tables([merged.stays, merged.put, merged.new])
        found = vectors.write(work.folder, gone) if gone else {}
        made = Written(work.path, replaces=True, vectors=found, counts=counts)
    if not result.num_rows:
        return made
    name, size = _write(result, work)
    counts |= {"written": result.num_rows, "rewritten_bytes": size}
    return replace(made, file=name, size=size, stats=_statistics(result, work))


def _present(work: Work) -> pa.Table:
    return work.schema.empty_table() if work.again else there(work)


def _keyed(work: Work, rows: Rows) -> tuple[Merged, dict[str, vectors.Rows]]:
    """The rows after the batch, and which rows of marked files are not among these any more."""
    outcomes, clears = Outcomes([], [], []), False
    apart = {}
    for lane in work.lanes:
        found, cleared = fold(rows[lane.id], lane, work.keys, work.logical)
        if lane.merged:
            apart[lane.merged] = found
        else:
            outcomes, clears = outcomes + found, clears or cleared
    if apart:
        outcomes = _merged(apart, work)
    source = _shaped(sources(outcomes, work), work)
    if len(work.lanes) > 1:
        keys = source.select(work.key_columns)
        if keys.group_by(work.key_columns).aggregate([]).num_rows < keys.num_rows:
            raise NotPlain("several tables send rows of one key")
    if not work.marked:
        return merge(_present(work), source, work, clears=clears), {}
    if clears:
        raise NotPlain("all rows of a large mirror are deleted")
    others = tuple(one for one in work.files if one[0] not in work.marked)
    parts, gone = [there(replace(work, files=others))], {}
    for name, kept in work.files:
        if name in work.marked:
            most = ROWS_AT_MOST - sum(one.nbytes for one in parts)
            found, numbers = _touched(work, name, kept, source, most)
            parts.append(found)
            if found.num_rows:
                gone[name] = numbers
    return merge(pa.concat_tables(parts), source, work, clears=False), gone


def _merged(apart: Mapping[str, Outcomes], work: Work) -> Outcomes:
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


# --- changes in -----------------------------------------------------------------------------------


def read(files: Sequence[str], lanes: Sequence[LaneWork]) -> dict[LaneId, pa.Table]:
    """The new changes of some lanes, each lane's in the order of history."""
    found: dict[LaneId, pa.Table] = {}
    for some in ([one for one in lanes if not one.whole], [one for one in lanes if one.whole]):
        if some:
            found.update(_apart(_table(files, some), some))
    return found


def _table(files: Sequence[str], lanes: Sequence[LaneWork]) -> pa.Table:
    needed = (*_COLUMNS, _TYPES) if any(lane.whole for lane in lanes) else _COLUMNS
    columns = columns_for((lane.stamps for lane in lanes), needed)
    if not files:  # a batch of statements alone
        kinds = {"batch": pa.int64(), "partial": pa.bool_(), TIME: pa.timestamp("us")}
        return pa.schema([(name, kinds.get(name, pa.string())) for name in columns]).empty_table()
    first, last = min(lane.from_batch for lane in lanes), max(lane.last for lane in lanes)
    wanted = (ds.field("batch") >= first) & (ds.field("batch") <= last)
    wanted &= ds.field("table").isin(sorted({lane.table.table or "" for lane in lanes}))
    return ds.dataset(list(files), format="parquet").to_table(columns=list(columns), filter=wanted)


def _apart(found: pa.Table, lanes: Sequence[LaneWork]) -> Iterator[tuple[LaneId, pa.Table]]:
    ids = zip(*(found[name].to_pylist() for name in _COLUMNS[:4]), strict=True)
    places: dict[tuple[str | None, ...], list[int]] = {}
    for at, one in enumerate(ids):
        places.setdefault(one, []).append(at)
    for lane in lanes:
        own = found.take(pa.array(places.get((lane.source, *lane.table), []), pa.int64()))
        batch = own["batch"]
        own = own.filter(pc.and_(pc.greater_equal(batch, lane.from_batch), pc.less_equal(batch, lane.last)))
        yield lane.id, stamped(own.sort_by("order_key"), lane.stamps)


# --- the fold -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcome of each key: its texts, its row (None: deleted), and whether the row is complete."""

    keys: list[Texts]
    images: list[Image | None]
    whole: list[bool]

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
    cleared = rows.filter(pc.equal(rows["op"], str(Op.TRUNCATE)))
    floor = max([lane.floor or "", *cleared["order_key"].to_pylist()])
    if cleared.num_rows:
        rows = rows.filter(pc.not_equal(rows["op"], str(Op.TRUNCATE)))
    if floor:
        rows = rows.filter(pc.greater(rows["order_key"], floor))
    found = (_last if lane.images else _folded)(rows, lane, keys, key_types)
    if cleared.num_rows:  # nothing from before is kept
        found = Outcomes(found.keys, found.images, [True] * len(found.keys))
    return found, bool(cleared.num_rows)


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
    columns = (rows[name].to_pylist() for name in ("op", "partial", "after", "before"))
    kinds = rows[_TYPES].to_pylist() if _TYPES in rows.schema.names else repeat(None)
    times = (
        rows[TIME].cast(pa.timestamp("us")).cast(pa.int64()).to_pylist() if lane.stamps.soft else repeat(None)
    )
    for op, partial, after, before, kinds_of_row, at in zip(*columns, kinds, times, strict=False):
        new, old = _image(after, shard), _image(before, shard)
        yield Change(
            op=Op(op),
            partial=bool(partial),
            after=new,
            before=old,
            types=types_of(kinds_of_row),
            event_time=at,
        )


def _image(text: str | None, shard: Image) -> Image | None:
    """A row image, with the shard's cell."""
    return None if text is None else {**shard, **_decode(text)} if shard else _decode(text)


def _last(rows: pa.Table, lane: LaneWork, keys: tuple[str, ...], key_types: Mapping[str, str]) -> Outcomes:
    """The last image of each key: equal to `ingest.fold` if each change carries the whole row of its key."""
    known: dict[Texts, Key] = {}
    last: dict[Key, tuple[Texts, Image | None]] = {}
    shard: Image = dict([lane.shard]) if lane.shard else {}
    wanted = set(keys)
    columns = (rows[name].to_pylist() for name in ("op", "after", "before"))
    texts: Texts
    for op, after, before in zip(*columns, strict=True):
        gone = op == "delete"
        first, second = (before, after) if gone else (after, before)
        image = _image(first, shard)
        if image is not None and wanted <= image.keys():  # the other image is not read: it adds nothing
            texts = tuple([image[name] for name in keys])
        else:
            texts = _texts(keys, (image, _image(second, shard)))
        key = known.get(texts)
        if key is None:
            key = known[texts] = _key(keys, texts, key_types)
        last[key] = texts, None if gone else image or {}
    return Outcomes(
        [texts for texts, _ in last.values()], [image for _, image in last.values()], [True] * len(last)
    )


def _texts(keys: tuple[str, ...], images: tuple[Image | None, ...]) -> Texts:
    """A key's cells, each from the first image that has its column."""
    texts = []
    for name in keys:
        image = next((one for one in images if one is not None and name in one), None)
        if image is None:
            raise KeyCellError(name, "is missing")
        texts.append(image[name])
    return tuple(texts)


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
        self.texts.setdefault(concerned.key, _texts(self.keys, images))
        if concerned.left is not None:
            self.texts.setdefault(concerned.left, _texts(self.keys, (before, after)))
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
    return _of_delta(types.delta(logical))


def _of_delta(delta: str) -> pa.DataType:
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


def sources(outcomes: Outcomes, work: Work) -> pa.Table:
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


def _shaped(source: pa.Table, work: Work) -> pa.Table:
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


def merge(there: pa.Table, source: pa.Table, work: Work, *, clears: bool) -> Merged:
    """Merge outcomes into a mirror's rows; a row that would not change is not touched."""
    rows, others = _pairs(there.select(work.key_columns), source.select(work.key_columns))
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
    put, changed = put.filter(differs), at.filter(differs)
    if clears:
        stays = matched.filter(pc.invert(differs))
    else:
        stays = there.filter(
            pc.invert(_mask(there.num_rows, pa.concat_arrays([rows.filter(going), changed])))
        )
    deleted = there.num_rows - stays.num_rows - put.num_rows
    return Merged(stays, put, new, new.num_rows, put.num_rows, deleted)


def _pairs(there: pa.Table, source: pa.Table) -> tuple[pa.Array, pa.Array]:
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


# --- files ----------------------------------------------------------------------------------------


def there(work: Work) -> pa.Table:
    """The mirror's rows."""
    old = dict(work.old)
    stored = pa.schema(
        one.with_type(_of_delta(old[one.name])) if one.name in old else one
        for one in work.schema
        if old.get(one.name, "same")
    )
    parts, left = [stored.empty_table()], ROWS_AT_MOST
    for name, kept in work.files:
        part = _rows_of(f"{work.folder}/{name}", stored, left)
        left -= part.nbytes
        if kept is not None:  # it may stop short: after its last deleted row
            rest = pa.array([True] * (part.num_rows - len(kept)), pa.bool_())
            part = part.filter(pa.concat_arrays([kept, rest]))
        parts.append(part)
    found = pa.concat_tables(parts)
    return pa.table([_widened(found, one.name, one.type) for one in work.schema], schema=work.schema)


def _rows_of(file: str, stored: pa.Schema, most: int) -> pa.Table:
    """A file's rows, if they take no more than so many bytes: a text that repeats takes next to nothing in a file.

    Raises:
        NotPlain: they take more.
    """
    found = None
    if Path(file).stat().st_size < SAMPLED or _likely_bytes(file) <= most:
        found = ds.dataset([file], schema=stored, format=_PARQUET).to_table()
    if found is None or found.nbytes > most:
        raise _too_much()
    return found


def _too_much() -> NotPlain:
    return NotPlain(f"its rows take more than {ROWS_AT_MOST >> 20} MiB of memory")


def _likely_bytes(file: str) -> int:
    """What a file's rows take in memory, by the first rows of each row group: a group can only be read whole."""
    with pq.ParquetFile(file) as parquet:
        groups = range(parquet.num_row_groups)
        samples = [next(parquet.iter_batches(SAMPLE, row_groups=[group]), None) for group in groups]
        rows = [parquet.metadata.row_group(group).num_rows for group in groups]
    return sum(one.nbytes * n // one.num_rows for one, n in zip(samples, rows, strict=True) if one)


def _touched(
    work: Work, name: str, kept: pa.BooleanArray | None, source: pa.Table, most: int
) -> tuple[pa.Table, vectors.Rows]:
    """A file's rows with a key of some outcomes, and the numbers of all its rows that are gone then.

    Row groups without such a key are not read, except for their keys.

    Raises:
        NotPlain: the rows take more memory than so many bytes.
    """
    [file] = ds.dataset([f"{work.folder}/{name}"], schema=work.schema, format=_PARQUET).get_fragments()
    firsts = np.cumsum([0, *(group.num_rows for group in file.row_groups)])
    left = np.ones(firsts[-1], np.bool_)
    if kept is not None:
        left[: len(kept)] = kept.to_numpy(zero_copy_only=False)
    keys, parts = source.select(work.key_columns), [work.schema.empty_table()]
    for part in file.split_by_row_group(_between(keys), work.schema):
        first = firsts[part.row_groups[0].id]
        at, _ = _pairs(part.to_table(schema=work.schema, columns=work.key_columns), keys)
        at = at.filter(pa.array(left[at.to_numpy() + first]))
        places = np.sort(at.to_numpy())
        left[places + first] = False
        if len(places):
            parts += _rows_at(part, work.schema, places)
        if sum(one.nbytes for one in parts) > most:
            raise _too_much()
    return pa.concat_tables(parts), np.flatnonzero(~left)


def _rows_at(group: ds.ParquetFileFragment, schema: pa.Schema, places: vectors.Rows) -> Iterator[pa.Table]:
    """Some rows of a row group, which is read bit by bit: it may take far more memory than its file."""
    first = 0
    for batch in group.to_batches(schema=schema, batch_size=READ, batch_readahead=2, fragment_readahead=1):
        low, high = np.searchsorted(places, [first, first + batch.num_rows])
        if low < high:
            yield pa.Table.from_batches([batch.take(pa.array(places[low:high] - first))])
        first += batch.num_rows


def _between(keys: pa.Table) -> ds.Expression | None:
    """A condition that all keys meet, for the statistics of row groups; None if there is none to rely on."""
    name = keys.schema.names[0]
    if not keys.num_rows or not pa.types.is_integer(keys.schema.field(0).type):
        return None
    ends = pc.min_max(keys[name])
    return (ds.field(name) >= ends["min"]) & (ds.field(name) <= ends["max"])


def _widened(rows: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray:
    """A column's values in its wider type, through their texts where only these are exact: FLOAT 0.1 is DOUBLE 0.1."""
    if name not in rows.schema.names:
        return pa.chunked_array([pa.nulls(rows.num_rows, kind)])
    column = rows[name]
    if column.type == pa.float32() and kind == pa.float64():
        column = column.cast(pa.string())
    return column.cast(kind)


def _write(rows: pa.Table, work: Work) -> tuple[str, int]:
    """Write a table's rows to a new file in its folder; returns its name and size."""
    name = f"part-00000-{uuid.uuid4()}-c000.zstd.parquet"
    Path(work.folder).mkdir(parents=True, exist_ok=True)
    # A column with NaN gets no minimum and maximum: Spark sorts NaN above all numbers, Parquet ignores it.
    ended = [one.name for one in rows.schema if not pa.types.is_floating(one.type)]
    pq.write_table(
        rows,
        f"{work.folder}/{name}",
        compression="zstd",
        write_statistics=ended,
        store_decimal_as_integer=True,
    )
    return name, Path(work.folder, name).stat().st_size


def _statistics(rows: pa.Table, work: Work) -> str:
    """A file's statistics, for key columns whose values no engine rounds or truncates."""
    ends: dict[str, tuple[object, object]] = {}
    for name in work.key_columns:
        kind = rows.schema.field(name).type
        if pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_string(kind):
            found = pc.min_max(rows[name]).as_py()
            low, high = (str(end) if pa.types.is_date(kind) else end for end in (found["min"], found["max"]))
            if not isinstance(low, str) or max(len(low), len(str(high))) <= LONGEST_STATISTIC:
                ends[name] = low, high
    return json.dumps(
        {
            "numRecords": rows.num_rows,
            "minValues": {name: low for name, (low, _) in ends.items()},
            "maxValues": {name: high for name, (_, high) in ends.items()},
            "nullCount": dict.fromkeys(ends, 0),
            "tightBounds": True,
        },
        # Arrow's reader of JSON makes of an escaped character beyond U+1FFFF another one, and its engines miss the file
        ensure_ascii=False,
    )
