"""A random history of one table, drawn from a seed: what every dialect has to express in its own form.

Values are canonical text, so that a writer turns them into its vendor's form and the test compares
what came back. No two events of a history share a second with a statement: some dialects place statements
after all rows of their second.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import NamedTuple

from ingest.change import Image

DATABASE, TABLE = "depot", "parcels"
LABELS = ("new", "on the way", "it's here")
KEYS = ("id", "lane")
START = 1_712_345_678_000
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - counts, no instants


class Column(NamedTuple):
    """One column: its logical type, its declaration in its database, and what else its table says of it."""

    logical: str
    declared: str
    nullable: bool = True
    default: str | None = None  # of a literal
    of_type: tuple[str, ...] = ()  # the labels of an enumeration that is a type by itself

    @property
    def labels(self) -> list[str]:
        """The labels of an enumeration or SET."""
        return [*self.of_type] or [
            label.replace("''", "'") for label in re.findall(r"'((?:[^']|'')*)'", self.declared)
        ]


_QUOTED = ",".join("'" + label.replace("'", "''") + "'" for label in LABELS)
COLUMNS = {
    "id": Column("int64", "bigint"),
    "lane": Column("string", "varchar(20)"),
    "pieces": Column("int32", "int"),
    "weight": Column("uint64", "bigint unsigned"),
    "fee": Column("decimal(10,2)", "decimal(10,2)"),
    "worth": Column("decimal(38,10)", "decimal(38,10)"),
    "ratio": Column("float64", "double"),
    "fragile": Column("boolean", "tinyint(1)"),
    "remark": Column("string", "varchar(400)"),
    "letter": Column("string", "text"),
    "sent_on": Column("date", "date"),
    "slot": Column("time", "time(6)"),
    "packed_at": Column("datetime(6)", "datetime(6)"),
    "seen_at": Column("timestamp(6)", "timestamp(6)"),
    "seal": Column("binary", "varbinary(64)"),
    "flags": Column("bit", "bit(12)"),
    "state": Column("enum", f"enum({_QUOTED})"),
    "extras": Column("json", "json"),
}
ADDED = "desk", Column("string", "varchar(30)")
SHAPE = {**COLUMNS, ADDED[0]: ADDED[1]}
TYPES = {name: column.logical for name, column in SHAPE.items()}


class Event(NamedTuple):
    """One thing that happened: a row of the full load, a change, or a statement.

    ``time`` counts milliseconds since 1970 UTC, ``counter`` the events of its second from 1.
    """

    number: int
    time: int
    counter: int
    kind: str  # read, insert, update, delete, truncate, alter
    before: Image | None
    after: Image | None
    columns: tuple[str, ...]
    sql: str | None = None
    shape: Mapping[str, Column] = SHAPE
    keys: tuple[str, ...] = KEYS
    database: str = DATABASE
    table: str | None = TABLE
    again: bool = False  # a row that is read while changes are captured
    transaction: int = 0
    identity: str = "full"  # what the log tells of the row before: all of it, or by default its key
    within: str | None = None  # the database, where ``database`` is a schema
    server: str = "MySQL"  # whose tables these are
    logged: int = (
        0  # its number in the log, if another transaction stood between: events come in the order of commits
    )
    committed: int = 0  # the number in the log of the last commit before, if that came after the event there

    @property
    def second(self) -> int:
        """The whole second of the event."""
        return self.time // 1000

    @property
    def row(self) -> Image:
        """The row after, or the one that was deleted."""
        return self.after or self.before or {}


@dataclass(slots=True)
class History:
    """Events in the source's order, and the rows that they leave, by their key's text."""

    seed: int
    events: list[Event] = field(default_factory=list)
    rows: dict[tuple[str | None, ...], Image] = field(default_factory=dict)


def history(seed: int, *, truncates: bool = True, length: int = 14) -> History:
    """The history of a seed; without truncates for the dialects that do not send them."""
    return _Writer(seed, truncates).write(length)


class _Writer:
    """The source: makes statements, and keeps rows and clock."""

    def __init__(self, seed: int, truncates: bool) -> None:
        self.random = Random(seed)
        self.truncates = truncates
        self.history = History(seed)
        self.columns = tuple(COLUMNS)
        self.time = START + seed * 61_000
        self.counter = 0

    def write(self, length: int) -> History:
        for _ in range(self.random.randint(0, 3)):
            self.emit("read", None, self.new_row())
        self.next_second()
        for _ in range(length):
            self.random.choice(_STEPS)(self)
        return self.history

    # --- statements ---

    def insert(self) -> None:
        self.emit("insert", None, self.new_row())

    def update(self) -> None:
        row = self.some_row()
        if row is not None:
            names = [name for name in self.columns if name not in KEYS]
            changed = self.random.sample(names, self.random.randint(1, 4))
            self.emit("update", row, {**row, **{name: self.value(name) for name in changed}})

    def move(self) -> None:
        row = self.some_row()
        key = self.free_key()
        if row is not None:
            self.emit("update", row, {**row, **key, "remark": self.value("remark")})

    def delete(self) -> None:
        row = self.some_row()
        if row is not None:
            self.emit("delete", row, None)

    def truncate(self) -> None:
        if self.truncates and self.random.random() < 0.3:
            self.emit("truncate", None, None, f"TRUNCATE TABLE {TABLE}")
            self.history.rows.clear()
            self.next_second()

    def alter(self) -> None:
        if ADDED[0] not in self.columns:
            self.columns += (ADDED[0],)
            self.emit("alter", None, None, f"ALTER TABLE {TABLE} ADD COLUMN desk varchar(30)")
            self.next_second()

    # --- parts ---

    def emit(self, kind: str, before: Image | None, after: Image | None, sql: str | None = None) -> None:
        if self.random.random() < 0.4:
            self.next_second()
        self.counter += 1
        if before is not None:  # a row that is older than the column has NULL in it
            before = {name: before.get(name) for name in self.columns}
            del self.history.rows[key_of(before)]
        if after is not None:
            after = {name: after.get(name) for name in self.columns}
            self.history.rows[key_of(after)] = after
        number = len(self.history.events) + 1
        event = Event(number, self.time, self.counter, kind, before, after, self.columns, sql)
        self.history.events.append(event)

    def next_second(self) -> None:
        self.time = (self.time // 1000 + self.random.randint(1, 90)) * 1000 + self.random.choice((0, 7, 250))
        self.counter = 0

    def some_row(self) -> Image | None:
        rows = self.history.rows
        return self.random.choice(list(rows.values())) if rows else None

    def new_row(self) -> Image:
        return {**self.free_key(), **{name: self.value(name) for name in self.columns if name not in KEYS}}

    def free_key(self) -> Image:
        """A key without a row: from few, so that keys come back."""
        while True:
            key: Image = {
                "id": str(self.random.choice((1, 2, 3, -4, 10, 2**62))),
                "lane": self.random.choice(("A", "a", "ä", "北", "x y")),
            }
            if key_of(key) not in self.history.rows:
                return key

    def value(self, column: str) -> str | None:
        """A value of the column's type, or NULL."""
        if self.random.random() < 0.15:
            return None
        return _VALUES[TYPES[column]](self.random)


def key_of(row: Image) -> tuple[str | None, ...]:
    """A row's key as text."""
    return tuple(row[name] for name in KEYS)


_STEPS = (
    *([_Writer.insert] * 5),
    *([_Writer.update] * 6),
    *([_Writer.delete] * 3),
    *([_Writer.move] * 2),
    _Writer.truncate,
    _Writer.alter,
)

# --- values -------------------------------------------------------------------------------------

_TEXTS = (
    *("", " ", "plain", "null", "NULL", "1.10", "-0", "true", "2024-02-30", "{}", "[1]", "0x00", "~"),
    *("ä北京🚚", 'quote " and \\ back', "line\nfeed\ttab\r", "it's 100% <b>&amp;</b>", "\x01\x1f", "e\u0301"),
    *("\u2028\u2029", "x" * 300, "AAAA", "//no comment", ",}"),
)
_JSONS = ('{"a": 1.10, "b": [null, true]}', "[]", '"text"', "null", "12345678901234567890.123", '{"ü": "🚚"}')


def _integer(bits: int, signed: bool, random: Random) -> str:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return str(random.choice((low, high, 0, 1, random.randint(low, high), random.randint(0, 999))))


def _decimal(precision: int, scale: int, random: Random) -> str:
    digits = "".join(random.choice("0123456789") for _ in range(random.choice((1, scale, precision))))
    digits = random.choice((digits, "9" * precision, "0", "10")).rjust(scale + 1, "0")
    whole = digits[:-scale].lstrip("0") or "0"
    sign = "-" if random.random() < 0.4 and digits.strip("0") else ""
    return f"{sign}{whole}.{digits[-scale:]}"


def _double(random: Random) -> str:
    return repr(
        random.choice((0.0, 0.1, -2.5, 1e300, 1.5e-300, 123456789.125, random.randint(-999, 999) / 64))
    )


def _fraction(random: Random, digits: int = 6) -> str:
    text = str(random.randint(0, 10**digits - 1)).rjust(digits, "0").rstrip("0")
    return random.choice(("", ".5", f".{text}" if text else "", "." + "0" * (digits - 1) + "1"))


def _day(random: Random) -> dt.datetime:
    day = random.choice((-25_000, -1, 0, 1, 19_800, 40_000, random.randint(-20_000, 60_000)))
    return EPOCH + dt.timedelta(days=day, seconds=random.choice((0, 86_399, random.randint(0, 86_399))))


def _date(random: Random) -> str:
    return _day(random).date().isoformat()


def _time(random: Random) -> str:
    hours = random.choice((0, 7, 23, 24, 100, 837))
    sign = "-" if random.random() < 0.3 else ""
    text = f"{hours:02d}:{random.randint(0, 59):02d}:{random.randint(0, 59):02d}{_fraction(random)}"
    return text if set(text) <= set("0:.") else sign + text


def _datetime(random: Random) -> str:
    return _day(random).isoformat(" ") + _fraction(random)


def _timestamp(random: Random) -> str:
    moment = EPOCH + dt.timedelta(seconds=random.randint(700_000_000, 2**31 - 1))
    return f"{moment.isoformat()}{_fraction(random)}Z"


def _binary(random: Random) -> str:
    data = random.choice(
        (b"", b"\x00", bytes(range(250, 256)), b"plain", random.randbytes(random.randint(1, 40)))
    )
    return base64.b64encode(data).decode()


_VALUES: dict[str, Callable[[Random], str]] = {
    "int64": partial(_integer, 64, True),
    "int32": partial(_integer, 32, True),
    "uint64": partial(_integer, 64, False),
    "decimal(10,2)": partial(_decimal, 10, 2),
    "decimal(38,10)": partial(_decimal, 38, 10),
    "float64": _double,
    "boolean": lambda random: random.choice(("true", "false")),
    "string": lambda random: random.choice(_TEXTS),
    "date": _date,
    "time": _time,
    "datetime(6)": _datetime,
    "timestamp(6)": _timestamp,
    "binary": _binary,
    "bit": lambda random: str(random.choice((0, 1, 255, 256, 4095))),
    "enum": lambda random: random.choice(LABELS),
    "json": lambda random: random.choice(_JSONS),
}


# --- what writers need --------------------------------------------------------------------------


def bytes_of(text: str) -> bytes:
    """The bytes of canonical binary text."""
    return base64.b64decode(text)


def ticks(text: str, unit: int) -> int:
    """A date and time, with or without its Z, as a count since 1970; finer digits are cut towards the past."""
    whole, _, fraction = text.removesuffix("Z").replace("T", " ").partition(".")
    seconds = int((dt.datetime.fromisoformat(whole) - EPOCH) / dt.timedelta(seconds=1))
    return seconds * unit + int(fraction.ljust(9, "0")) * unit // 10**9


def span(text: str, unit: int) -> int:
    """A time as a count of ticks, negative for a negative one."""
    whole, _, fraction = text.removeprefix("-").partition(".")
    hours, minutes, seconds = map(int, whole.split(":"))
    count = (hours * 3600 + minutes * 60 + seconds) * unit + int(fraction.ljust(9, "0")) * unit // 10**9
    return -count if text[0] == "-" else count


def days(text: str) -> int:
    """A date as days since 1970."""
    return (dt.date.fromisoformat(text) - EPOCH.date()).days


def unscaled(text: str) -> bytes:
    """A decimal's digits without the point as two's complement, highest byte first, in the fewest bytes."""
    number = int(text.replace(".", ""))
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def wall(text: str, hours: int) -> str:
    """An instant as clocks ``hours`` east of Greenwich show it."""
    whole, dot, fraction = text.removesuffix("Z").partition(".")
    return (dt.datetime.fromisoformat(whole) + dt.timedelta(hours=hours)).isoformat(" ") + dot + fraction


def bit_bytes(text: str, order: str = "big") -> bytes:
    """A BIT's number in as few bytes as hold it, one at least."""
    number = int(text)
    return number.to_bytes(max(1, -(-number.bit_length() // 8)), order)  # type: ignore[arg-type]
