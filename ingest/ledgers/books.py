"""The books (audit counts): where every message went, per batch, source, partition and table. They are also gold's work
list.

A message is counted once, by the strongest thing that it contains: a DDL event before a row change before a control
mark.  ``messages = change_messages + ddl + control + routed_out + rejected``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Protocol, Self, TypeVar

import msgspec
import orjson

from ingest import types
from ingest.change import TableId
from ingest.tables.json_cells import list_in, object_in

_Value = TypeVar("_Value", int | None, str | None)
_Key = TypeVar("_Key")
_Part = TypeVar("_Part", bound="_Uniting")
PlaceSpan = list[str]
"""The lowest and the highest place of some rows; empty for none."""
COUNTS = (
    "messages change_messages ddl control routed_out rejected changes reads inserts updates deletes truncates "
    "partials key_changes inherits noted erased replayed turned_back left_out"
).split()

EXCLUDED_SQL = "(routed_out > 0 OR coalesce(left_out, 0) > 0)"
"""True for a line of a table of which a rule has left out rows."""


class _Uniting(Protocol):
    """What some rows say of a thing, to which others may add."""

    def united(self, other: Self) -> Self: ...


@dataclass(frozen=True, slots=True)
class LabelList:
    """An enumeration's labels in their order, and the first and the last place of a row whose schema lists them so.

    ``strays`` are labels of such rows that the list lacks, each with its last place: a connector reads the list of today, and may
    send an older row with it.
    """

    labels: tuple[str, ...]
    low: str
    high: str
    strays: Mapping[str, str] = field(default_factory=dict)

    def united(self, other: LabelList) -> LabelList:
        """Of the rows of both, which have the same labels."""
        strays = {
            label: max(self.strays.get(label, ""), other.strays.get(label, ""))
            for label in {**self.strays, **other.strays}
        }
        return LabelList(self.labels, min(self.low, other.low), max(self.high, other.high), strays)


@dataclass(frozen=True, slots=True)
class Announcement:
    """What the schemas of a table's rows say of a column: of the rows before it by the first one, at the place ``low``, and
    whether it may be NULL by the last one, at the place ``high``; of an enumeration also its lists of labels.
    """

    low: str
    high: str
    nullable: bool
    known: bool
    default: str | None = None
    lists: tuple[LabelList, ...] = ()

    def united(self, other: Announcement) -> Announcement:
        """Of the rows of both."""
        first, last = min(self, other, key=attrgetter("low")), max(self, other, key=attrgetter("high"))
        return replace(
            first, high=last.high, nullable=last.nullable, lists=united_lists(*self.lists, *other.lists)
        )


def united_lists(*lists: LabelList) -> tuple[LabelList, ...]:
    """Each list of labels once."""
    return tuple(_united((labels.labels, labels) for labels in lists).values())


@dataclass(frozen=True, slots=True)
class ColumnOrder:
    """A table's columns in their order, and the first and the last place of a row whose schema has them so.

    The row at the first place leaves the ``unchanged`` columns as they were.
    """

    columns: tuple[str, ...]
    low: str
    high: str
    unchanged: tuple[str, ...] = ()

    def united(self, other: ColumnOrder) -> ColumnOrder:
        """Of the rows of both, which have the same columns."""
        return replace(min(self, other, key=attrgetter("low")), high=max(self.high, other.high))


def united_layouts(layouts: Iterable[ColumnOrder]) -> list[ColumnOrder]:
    """Each order of columns once."""
    return [*_united((layout.columns, layout) for layout in layouts).values()]


def _united(parts: Iterable[tuple[_Key, _Part]]) -> dict[_Key, _Part]:
    """What several rows say of the same things, each of them once."""
    united_parts: dict[_Key, _Part] = {}
    for key, part in parts:
        united_parts[key] = united_parts[key].united(part) if key in united_parts else part
    return united_parts


@dataclass(frozen=True, slots=True)
class LoadMark:
    """A message that says where a full load of a table begins or ends, and that is no row.

    Args:
        offset: of the message in its partition or file.
        time: of the source's clock, in microseconds.
        ends: True after the last row of the load, False before the first one.
    """

    offset: int
    time: int | None
    ends: bool


@dataclass(slots=True)
class Line:
    """One book line. ``columns`` maps each column seen to its logical type, in the order first seen.

    ``lacks`` has the columns that some whole rows lack: the places of whole rows without and with each. ``announced`` has
    what the messages' own schemas say of columns, and ``layouts`` their order, where that says something. ``load_marks`` say
    where full loads begin and end.
    """

    batch: int
    source: str
    topic: str | None
    partition: int | None
    database: str | None
    schema: str | None
    table: str | None
    messages: int = 0
    change_messages: int = 0
    ddl: int = 0
    control: int = 0
    routed_out: int = 0
    rejected: int = 0
    changes: int = 0
    reads: int = 0
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    truncates: int = 0
    partials: int = 0
    key_changes: int = 0
    inherits: int = 0  # key changes whose row is not sent whole
    noted: int = 0
    erased: int = 0  # changes left out because their rows were erased
    order_low: str | None = None
    order_high: str | None = None
    event_low: int | None = None
    event_high: int | None = None
    keys: list[list[str]] = field(default_factory=list)
    columns: dict[str, str] = field(default_factory=dict)
    lacks: dict[str, tuple[PlaceSpan, PlaceSpan]] = field(default_factory=dict)
    announced: dict[str, Announcement] = field(default_factory=dict)
    layouts: list[ColumnOrder] = field(default_factory=list)
    load_marks: list[LoadMark] = field(default_factory=list)
    whole: PlaceSpan = field(default_factory=list)  # of the rows that are sent whole
    servers: dict[str, int] = field(default_factory=dict)  # "epoch server 7" to the offset of its first row
    turned_back: int = 0  # changes newer than all before them in their partition, at lower positions
    replayed: int = 0  # those of the batch's rejects that a later batch decoded
    replayed_in: int | None = None  # that batch; such a line has no other counts
    left_out: int = 0  # changes of an excluded table, in messages that are counted otherwise

    @property
    def table_id(self) -> TableId:
        """The source table; all None for messages that name none."""
        return TableId(self.database, self.schema, self.table)

    @property
    def of_rows(self) -> int:
        """How many of its changes are of single rows."""
        return self.changes - self.truncates

    @property
    def balanced(self) -> bool:
        """True if every message is accounted for."""
        return self.messages == (
            self.change_messages + self.ddl + self.control + self.routed_out + self.rejected
        )

    def spans(self, column: str) -> tuple[PlaceSpan, PlaceSpan]:
        """The places of the whole rows that lack a column, and of those that have it."""
        if column in self.lacks:
            return self.lacks[column]
        return ([], self.whole) if column in self.columns else (self.whole, [])

    def last_with(self, column: str) -> str:
        """The place of the last row that has a column, or an earlier one if that is not known; empty if none has it."""
        if column not in self.columns:
            return ""
        return max([self.order_low or "", *self.spans(column)[1]])

    def merge(self, other: Line) -> None:
        """Add another line of the same batch, partition and table."""
        self.lacks = dict(_lacking(self, other))
        self.whole = united(self.whole, other.whole)
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.order_low = _of_known(min, self.order_low, other.order_low)
        self.order_high = _of_known(max, self.order_high, other.order_high)
        self.event_low = _of_known(min, self.event_low, other.event_low)
        self.event_high = _of_known(max, self.event_high, other.event_high)
        self.keys.extend(keys for keys in other.keys if keys not in self.keys)
        self.columns.update(merged_columns(self.columns, other.columns))
        self.load_marks += other.load_marks
        self.layouts = united_layouts([*self.layouts, *other.layouts])
        self.announced = _united([*self.announced.items(), *other.announced.items()])
        for name, offset in other.servers.items():
            self.servers[name] = min(offset, self.servers.get(name, offset))

    def to_json(self) -> str:
        """The line in the form of ``changes.payload``."""
        return orjson.dumps(self).decode()

    @classmethod
    def from_json(cls, text: str) -> Line:
        """Read a line back."""
        return _line_in.decode(text)

    def place(self) -> tuple[object, ...]:
        """The key of a line: lines with equal keys are merged."""
        return self.batch, self.source, self.topic, self.partition, *self.table_id, self.replayed_in


_line_in = msgspec.json.Decoder(Line)
_announced_in = msgspec.json.Decoder(dict[str, Announcement])
_layouts_in = msgspec.json.Decoder(list[ColumnOrder])
_load_marks_in = msgspec.json.Decoder(list[LoadMark])


def announcements(text: str | None) -> dict[str, Announcement]:
    """`Line.announced` from its JSON."""
    return _announced_in.decode(text or "{}")


def layouts(text: str | None) -> list[ColumnOrder]:
    """`Line.layouts` from its JSON, NULL in rows of 0.1.0."""
    return _layouts_in.decode(text or "[]")


def load_marks(text: str) -> list[LoadMark]:
    """`Line.load_marks` from its JSON."""
    return _load_marks_in.decode(text)


WHOLE_OR_NOT = ("changes", "partials", "deletes", "truncates")
"""The counts of lines whose sums say whether some of their rows are sent whole."""


def summed(row: Mapping[str, Any]) -> Line:
    """Several lines of one table as one, by a query's row: what they have in common, the sums `WHOLE_OR_NOT`, and the lowest and
    the highest place.
    """
    changes, *others = (row[name] or 0 for name in WHOLE_OR_NOT)
    line = Line(
        row.get("batch") or 0, row["source"], None, None, row["database"], row["schema"], row["table"],
        keys=list_in(row.get("keys")),
    )  # fmt: skip
    line.columns, line.lacks = (object_in(row[name]) for name in ("columns", "lacks"))
    line.announced = announcements(row.get("announced"))
    line.layouts = layouts(row.get("layouts"))
    line.whole = [row["low"], row["high"]] if changes > sum(others) and row["low"] else []
    return line


CLOCKS_DIFFER = dt.timedelta(hours=1)
"""A source's clock that is ahead of this machine's by no more is taken for right."""
PRESENT_SQL = "now() + INTERVAL 1 HOUR"
"""`CLOCKS_DIFFER` from now on, in queries that others run."""
NEWEST_SQL = f"coalesce(max(CASE WHEN event_high <= {PRESENT_SQL} THEN event_high END), max(event_high))"
"""What `newest_sql` asks, in queries that others run."""


def ahead_sql(now: dt.datetime) -> str:
    """SQL: true for lines whose newest source time is in the future."""
    return f"epoch_us(event_high) > {round((now + CLOCKS_DIFFER).timestamp() * 1_000_000)}"


def newest_sql(now: dt.datetime) -> str:
    """SQL: the newest source time of some lines; one in the future only where there is no other."""
    return f"coalesce(max(event_high) FILTER (WHERE NOT {ahead_sql(now)}), max(event_high))"


def newest_of(times: Iterable[dt.datetime], now: dt.datetime) -> dt.datetime | None:
    """The newest of source times; one in the future only where there is no other."""
    return max(times, key=lambda time: (time <= now + CLOCKS_DIFFER, time), default=None)


MISDATED = "1971"  # a time before this year is of another unit


def misdated(newest: str | None) -> str:
    """What is wrong with the newest source time of some changes, as ISO text; empty if nothing is, or there is none."""
    if newest is None or newest >= MISDATED:
        return ""
    return (
        f"the newest change is of {newest[:10]}, as if the source sent seconds where its format has milliseconds, or "
        "these for microseconds: correct the times that it sends; lag, freshness and complete_until are wrong until then"
    )


def _lacking(left: Line, right: Line) -> Iterator[tuple[str, tuple[PlaceSpan, PlaceSpan]]]:
    """What `Line.lacks` of two lines together holds."""
    for column in (left.columns.keys() ^ right.columns.keys()) | left.lacks.keys() | right.lacks.keys():
        without, having = map(united, left.spans(column), right.spans(column))
        if without:
            yield column, (without, having)


def united(left: PlaceSpan, right: PlaceSpan) -> PlaceSpan:
    """The places of both."""
    return [min(left[0], right[0]), max(left[1], right[1])] if left and right else left or right


def merged_columns(left: dict[str, str], right: dict[str, str]) -> dict[str, str]:
    """Columns of both, each with a type that can hold the values of both."""
    merged = dict(left)
    for name, logical in right.items():
        merged[name] = types.common(merged[name], logical) if name in merged else logical
    return merged


def merged(lines: Iterable[Line]) -> list[Line]:
    """One line per place, in stable order."""
    by_place: dict[tuple[object, ...], Line] = {}
    for line in lines:
        same_place = by_place.setdefault(line.place(), line)
        if same_place is not line:
            same_place.merge(line)
    return [by_place[place] for place in sorted(by_place, key=str)]


def _of_known(pick: Callable[..., Any], *values: _Value) -> _Value:
    """The least or the greatest of some values; of those that are not None."""
    picked: _Value = pick((value for value in values if value is not None), default=None)
    return picked
