"""From a row's images to its change, for dialects whose values are bare JSON numbers or texts.

How each column's values become canonical text is worked out once per list of types, then applied to
every row.  The source's text may have any of the forms that vendors' documents name; which one it is,
its own shape shows.  What fits no form of its type keeps its text, and gold then rejects that cell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from ingest import ddl, types, values
from ingest.change import Change, Hints, Image, Op, Options, TableId
from ingest.decoding.converters import base64_from, zoned
from ingest.decoding.declared_values import TICKS, without_digits
from ingest.errors import Undecodable
from ingest.values.remembered import Bounded, remembered

TOMBSTONE = (Change(op=Op.CONTROL, note="tombstone"),)

Convert = Callable[[str], str]
Declared = tuple[tuple[str, str], ...]
"""Columns with their types from the pipeline file, as a key that caches can hold."""


_SHAPES, _LONG = 64, 4096
"""For how many kinds of rows what concerns them is kept, and of how many characters in the names of their columns."""


@dataclass(frozen=True, slots=True, eq=False)
class RowPlan:
    """What to do with each column, worked out once per list of types and not per row.

    Args:
        types: logical type per column, the pipeline file's over the message's.
        converts: the columns whose text may have to change, with the function that does it.
        firm: columns whose type holds no large object, so that NULL in them means NULL.
        sent: the columns that the message's own list names.
        bits: BIT columns, whose text is base64 or, as a bare number, the value itself.
        marked: bytes are hexadecimal digits, and those of a BIT are known by the mark ``0x`` before them.
    """

    types: Mapping[str, str]
    converts: tuple[tuple[str, Convert], ...]
    firm: frozenset[str] = frozenset()
    sent: tuple[str, ...] = ()
    bits: tuple[str, ...] = ()
    marked: bool = False
    _narrow: dict[tuple[str, ...], RowPlan] = field(default_factory=lambda: Bounded(_SHAPES), repr=False)

    def of(self, row: Image) -> RowPlan:
        """What of it concerns the columns of a row; itself if it knows no other."""
        if len(self.types) <= len(row) and self.types.keys() <= row.keys():
            return self
        columns = tuple(row)
        narrow = self._narrow.get(columns)
        if narrow is None:
            narrow = RowPlan(
                {name: logical for name, logical in self.types.items() if name in row},
                tuple((name, function) for name, function in self.converts if name in row),
                self.firm,
                self.sent,
                tuple(name for name in self.bits if name in row),
                self.marked,
            )
            if sum(map(len, columns)) <= _LONG:
                self._narrow[columns] = narrow
        return narrow


NO_PLAN = RowPlan({}, ())


def plan_of_declared(
    columns: Mapping[str, str], options: Options, whole: int | None = None, binary: str | None = None
) -> RowPlan:
    """The plan where only the pipeline file names types; the common case of none costs nothing.

    ``columns`` are those of `ingest.change.TableHints`, of which there is one object for all messages of a table.
    ``binary`` is the writer's encoding of bytes where the options name none.
    """
    if not columns:
        return NO_PLAN
    place = id(columns), options.timezone, options.binary or binary, options.time_units, whole
    known = _recent.get(place)
    if known is None:
        known = _recent[place] = plan({}, tuple(columns.items()), *place[1:]), columns
    return known[0]


MAX_PLANS = 1024  # kept at a time
_recent = Bounded[tuple[object, ...], tuple[RowPlan, Mapping[str, str]]](MAX_PLANS)
"""Plans by the declared columns' identity, as `ingest.decoding.connect.plan` keeps them; the columns are kept, too."""


def plan(
    sent: Mapping[str, str],
    declared: Declared,
    zone: str,
    binary: str | None = None,
    units: str | None = None,
    whole: int | None = None,
    *,
    large: Collection[str] = (),
    by_kind: Mapping[str, Convert] | None = None,
) -> RowPlan:
    """The plan of rows of some types.

    Args:
        sent: logical type per column, as the message says.
        declared: the same as the pipeline file says, which wins.
        zone: IANA zone of texts that name none, and of instants declared zone-less.
        binary: the vendor's encoding of bytes, base64 by default.
        units: ``millis``, ``micros`` or ``nanos`` for whole-number times.
        whole: what such a number counts without ``units``, in ticks a second; None: it is not a time.
        large: columns sent with a type that may hold a large object.
        by_kind: the dialect's own conversions, by logical type.
    """
    logical_types = {**sent, **{column: without_digits(logical) for column, logical in declared}}
    unit = TICKS.get(units or "", whole)
    functions: dict[str, Convert] = {
        **_PLAIN,
        "datetime": partial(datetime_text, zone=zone, unit=unit),
        "timestamp": partial(instant_text, zone=zone, unit=unit),
        "time": partial(clock_text, unit=unit),
        **(by_kind or {}),
    }
    if binary is not None and binary != "base64":
        functions["binary"] = partial(base64_from, binary)
    marked = binary in ("hex", "base16")
    if marked:
        functions["boolean"] = partial(truth_text, marked=True)
    converts = ((column, functions.get(types.base(logical))) for column, logical in logical_types.items())
    firm = {column for column, kind in sent.items() if kind != "unknown" and column not in large}
    # a ``string`` that the pipeline file declares may be a large object
    firm |= {c for c, kind in declared if c not in sent and kind != "string" and kind not in types.LOB}
    return RowPlan(
        logical_types,
        tuple((column, function) for column, function in converts if function is not None),
        frozenset(firm),
        tuple(sent),
        tuple(column for column, logical in logical_types.items() if types.base(logical) == "bit"),
        marked,
    )


def large(name: str) -> bool:
    """True for an OMS type name of the family whose unchanged value is sent as NULL."""
    return name.partition("(")[0].strip().lower() in types.OMS_LOB


def convert(image: Image | None, plan: RowPlan, raw: values.Raw | None = None) -> list[str]:
    """Make an image's values canonical in place; the columns whose text is not a value of their type.

    ``raw`` is the image as sent, to distinguish a BIT's number from base64 of digits only.
    """
    if not image:
        return []
    failed = []
    plan = plan.of(image)
    for column, function in plan.converts:
        value = image.get(column)
        if value is not None:
            try:
                image[column] = function(value)
            except (ValueError, OverflowError):
                failed.append(column)
    for column in plan.bits:
        value = image.get(column)
        if value is not None:
            try:
                number = value.isdecimal()
                if number and raw is not None and len(value) % 4 == 0:  # maybe base64 of digits alone
                    number = bytes(values.members(raw)[column])[:1] != b'"'
                image[column] = value if number else _bits_text(value, plan.marked)
            except ValueError:
                failed.append(column)
    return failed


def convert_both(
    before: Image | None,
    after: Image | None,
    plan: RowPlan,
    old: values.Raw | None = None,
    new: values.Raw | None = None,
) -> list[str]:
    """Make a row's images before and after canonical in place, as `convert` does one; a text that did not change is read once.

    ``old`` and ``new`` are the images as sent.
    """
    if not before:
        return convert(after, plan, new)
    if not after:
        return convert(before, plan, old)
    usual = plan.of(after) if before.keys() <= after.keys() else plan
    if usual.bits:
        return convert(before, plan, old) + convert(after, plan, new)
    failed, failed_again = [], []
    for column, function in usual.converts:
        was, value = before.get(column), after.get(column)
        if was is not None:
            try:
                before[column] = function(was)
            except (ValueError, OverflowError):
                failed.append(column)
        if value is None:
            continue
        if value == was:
            after[column] = before[column]
            if column in failed:
                failed_again.append(column)
            continue
        try:
            after[column] = function(value)
        except (ValueError, OverflowError):
            failed_again.append(column)
    return failed + failed_again


def integer_text(value: str) -> str:
    """An integer's digits; ``true`` is 1, and ``1E3`` or ``7.0`` are written out."""
    if value.isdecimal() or values.INTEGER.fullmatch(value):
        return value
    if value in ("true", "false"):
        return str(int(value == "true"))
    if not values.NUMBER.fullmatch(value) or len(value) > 100:
        raise ValueError("no integer")
    try:
        number = Decimal(value)
    except InvalidOperation:  # an exponent of twenty digits
        raise ValueError("no integer") from None
    if abs(number.adjusted()) > 40 or number != number.to_integral_value():
        raise ValueError("no integer")
    return str(int(number))


def truth_text(value: str, *, marked: bool = False) -> str:
    """A boolean, also from the bytes of a BIT(1)."""
    try:
        return values.boolean_text(value)
    except ValueError:
        return values.boolean_text(_bits_text(value, marked))


def _bits_text(value: str, marked: bool) -> str:
    """The number of a BIT's bytes: base64, or hexadecimal digits after ``0x``, which base64 might begin with, too."""
    encoding = "hex" if marked and value[:2] in ("0x", "0X") else "base64"
    return values.bit_text(values.bytes_of(value, encoding))


def date_text(value: str) -> str:
    """A date; a time of day after it may only be midnight."""
    if len(value) == 10:
        return value
    day, _, clock = values.zoneless_text(value).partition(" ")
    if clock != "00:00:00":
        raise ValueError("a date with a time of day")
    return day


def datetime_text(value: str, zone: str, unit: int | None = 1) -> str:
    """A zone-less date and time as sent, its zone name dropped; a number is an instant shown in ``zone``."""
    match = values.DATETIME.match(value)
    if match is not None:
        if match.end() < len(value):
            values.zoned_text(value, zone)  # refuses what is not a zone
        return values.matched_text(match)
    if _DAY.fullmatch(value):
        return value + " 00:00:00"
    return values.wall_text(*instant(value, unit), zone)


def instant_text(value: str, zone: str, unit: int | None = 1) -> str:
    """An instant from ``seconds.fraction``, a whole number of ``unit``, or a date and time."""
    if value[4:5] == "-":
        return zoned(value, zone)
    if unit is not None and _EPOCH.fullmatch(value):
        return values.epoch_text(value)
    return values.timestamp_text(*instant(value, unit))


def instant(value: str, unit: int | None) -> tuple[int, int]:
    """A count of nanoseconds or of ``unit`` since 1970, and what it counts, from a number's text."""
    if unit is None:
        raise ValueError("nothing says what the number counts")
    if values.INTEGER.fullmatch(value) and len(value) < 25:
        return int(value), unit
    match = _EPOCH.fullmatch(value)
    if match is None:
        raise ValueError("no date and time")
    nanos = int(match[2]) * 10**9 + int(match[3].ljust(9, "0"))
    return (-nanos if match[1] else nanos), 10**9


def clock_text(value: str, unit: int | None = 1) -> str:
    """A time of day or span; seconds may be missing, and a whole number counts ``unit``."""
    match = _CLOCK.fullmatch(value)
    if match is not None:
        return f"{match[1]}{match[2] or ':00'}{values.fraction(match[3] or '')}"
    if unit is not None and values.INTEGER.fullmatch(value) and len(value) < 25:
        return values.time_text(int(value), unit)
    raise ValueError("no time")


_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_EPOCH = re.compile(r"(-)?([0-9]{1,12})\.([0-9]{1,9})", re.ASCII)
_CLOCK = re.compile(r"(-?[0-9]{2,3}:[0-9]{2})(:[0-9]{2})?(?:\.([0-9]{1,9}))?", re.ASCII)

_PLAIN: dict[str, Convert] = {
    **dict.fromkeys("int8 int16 int32 int64 uint8 uint16 uint32 uint64 year".split(), integer_text),
    **dict.fromkeys(("float32", "float64"), values.number_text),
    "boolean": truth_text,
    "date": date_text,
}


# --- changes ------------------------------------------------------------------------------------


def finish(
    place: Change,
    table: TableId,
    keys: tuple[str, ...],
    before: Image | None,
    after: Image | None,
    plan: RowPlan,
    kept: list[str],
    *,
    partial: bool = False,
    nulls_may_hide: bool = False,
) -> Change:
    """A row change from its place and its converted images, with a note of all that is odd.

    ``kept`` are the columns whose text is not a value of their type. ``partial`` is True if the row may lack columns,
    ``nulls_may_hide`` where NULL before and after may stand for an unchanged large object.
    """
    unchanged = drop_unchanged(before, after, lambda name: name not in plan.firm) if nulls_may_hide else []
    shown = after if after is not None else before or {}
    lost = {*keys, *plan.sent} - shown.keys() - {*unchanged}
    note = place.note
    if lost or kept or unchanged:
        note = noted(
            note,
            listed("kept as sent, not of their type", kept),
            listed("NULL in both images, taken as unchanged", unchanged),
            listed("key columns not in the row", [name for name in keys if name in lost]),
            listed("typed columns not in the row", [name for name in plan.sent if name in lost]),
        )
    return replace(
        place,
        table=table,
        keys=keys,
        before=before,
        after=after,
        types=plan.of(shown).types,
        partial=partial or bool(unchanged),
        note=note,
    )


def may_lack_columns(op: Op, hints: Hints) -> bool:
    """True if a column that a new row or an update lacks keeps its value; False where the option says that it is NULL."""
    return op in (Op.INSERT, Op.UPDATE) and hints.options.left_out != "null"


def named_table(table: TableId, hints: Hints, topic: str) -> TableId:
    """The message's table, else the one that the options give its topic."""
    if table.table:
        return table
    known = hints.table_of(topic)
    if known is None:
        raise Undecodable("no-table", "the message names no table; give the topic one under options.table")
    return known


def operation(operations: Mapping[str, Op], kind: str, member: str) -> Op:
    """The operation of a name; a member with any other is refused."""
    op = operations.get(kind)
    if op is None:
        shown = f"{kind[:40]!r} is not documented" if kind else "is null or empty"
        raise Undecodable("unknown-operation", f"{member} {shown}")
    return op


def numbered(position: str | None) -> tuple[int, ...]:
    """The sequence of a position that is one number; empty if it is none."""
    number = values.integer(position)
    return (number,) if number is not None and number >= 0 else ()


def unreadable(position: str | None, sequence: tuple[int, ...]) -> str | None:
    """The remark on a position without a sequence; None if there is one, or no position."""
    return "the position is unreadable" if position and not sequence else None


def moment(value: str | None, zone: str) -> int | None:
    """Microseconds since 1970 UTC of a date and time, or None where the text is none."""
    if value is None:
        return None
    try:
        return values.instant_micros(value, zone)
    except (ValueError, OverflowError):
        return None


@remembered(1024)
def binlog(server: str | None, file: str | None) -> tuple[str, ...]:
    """``("server 7", "log mysql-bin")`` of a server's id and a log file's name, each as far as it is known.

    The positions of two servers cannot be compared. A snapshot's rows name the file and server 0, so each of the two
    is a word of its own.
    """
    known = (("server", server if server != "0" else None), ("log", (file or "").rpartition(".")[0]))
    return tuple(f"{kind} {name}" for kind, name in known if name)


_Sent = TypeVar("_Sent")


def images_of(op: Op, before: _Sent | None, after: _Sent | None) -> tuple[_Sent | None, _Sent | None]:
    """The images that a row has: none before it was inserted or read, none after its delete, whatever was sent."""
    return (None if op in (Op.INSERT, Op.READ) else before), (None if op is Op.DELETE else after)


def require_images(before: Image | None, after: Image | None, op: Op) -> None:
    """Refuse a change without the image that its operation needs: a delete's before, any other's after."""
    require_image(before if op is Op.DELETE else after, op)


def require_image(image: Image | None, op: Op) -> None:
    if image is None:
        raise Undecodable("no-image", f"the {op} carries no row")


def drop_unchanged(
    before: Image | None, after: Image | None, hides: Callable[[str], bool], absent: str | None = ""
) -> list[str]:
    """Take columns that are NULL in both images out of both; their names.

    ``hides`` is True for a column whose NULL may mean an unchanged large value. ``absent`` is None where a column that
    ``before`` lacks did not change.
    """
    if before is None or after is None or None not in after.values():
        return []
    gone = [
        name
        for name, value in after.items()
        if value is None and before.get(name, absent) is None and hides(name)
    ]
    for name in gone:
        del after[name]
        before.pop(name, None)
    return gone


def drop_hidden(
    op: Op, before: Image | None, after: Image | None, hides: Callable[[str], bool], absent: str | None = ""
) -> str | None:
    """Take an update's unchanged large columns out of both images, as `drop_unchanged` does; the remark that says so, if any."""
    gone = drop_unchanged(before, after, hides, absent) if op is Op.UPDATE else []
    return f"unchanged large columns, sent as NULL, are absent: {len(gone)}" if gone else None


_Said = TypeVar("_Said")


def present(known: Mapping[str, _Said], row: Image) -> Mapping[str, _Said]:
    """What is known of the columns of a row."""
    if len(known) <= len(row) and known.keys() <= row.keys():
        return known
    return {name: logical for name, logical in known.items() if name in row}


def noted(*parts: str | None) -> str | None:
    """Several remarks as one note, each once; None without any."""
    return "; ".join(dict.fromkeys(filter(None, parts))) if any(parts) else None  # mostly there are none


def listed(remark: str, names: list[str]) -> str | None:
    """``remark: a, b`` with at most ten names, or None without any."""
    if not names:
        return None
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"{remark}: {', '.join(names[:10])}{more}"


def statement(
    place: Change, sql: str | None, kind: str | None, *, truncates: bool = False
) -> tuple[Change, ...]:
    """A DDL event; before it a truncation for each table that the statement empties."""
    note = noted(place.note, f"kind {kind}" if kind else None, None if sql else "the statement is missing")
    tables = emptied(place, sql or "")
    if truncates and not tables and place.table.table is not None:
        tables = [place.table]
    if tables and place.table.table is None:
        place = replace(place, table=tables[0])
    cleared = [
        replace(place, op=Op.TRUNCATE, keys=(), table=table, row=row) for row, table in enumerate(tables)
    ]
    if cleared and not sql:
        return tuple(cleared)
    return (*cleared, replace(place, op=Op.DDL, keys=(), ddl=sql or None, note=note, row=len(cleared)))


def emptied(place: Change, sql: str) -> list[TableId]:
    """The tables that a statement empties; one that differs from the message's in letter case alone is that."""
    if not _EMPTIES.search(sql):
        return []
    effects = ddl.effects(sql, place.dialect, *place.table).effects
    named = str(place.table).casefold()
    return [
        place.table if str(effect.table).casefold() == named else effect.table
        for effect in effects
        if effect.action == "truncate"
    ]


_EMPTIES = re.compile(r"\bTRUNCATE\b", re.IGNORECASE)
