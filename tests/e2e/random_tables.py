"""Random tables of real databases, over all types that a reader knows, and differences planted in them.

A table has one to three key columns of any type that may be a key, up to ten others, and ``number``, by which a test
finds its rows whatever happens to their keys.  A planted difference is one statement in the source of which no stream
says anything; `Table.plant` returns what a comparison has to say of it.
"""

from __future__ import annotations

import json
import math
import struct
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from ingest.source.reconciled import DIFFERENT, MISSING, SURPLUS
from tests.e2e import typed_tables as typed
from tests.e2e.typed_tables import Value, integers, moments, one_of, spans

Said = tuple[str, tuple[str, ...]]
"""What a comparison says of a row: how it differs, and in which columns."""


@dataclass(frozen=True)
class Kind:
    """A type: how it is declared, its values, and whether a column of it may be in a key and is compared."""

    declared: str
    value: Value
    family: str
    is_key: bool = False
    is_compared: bool = True
    step: Callable[[Any], Any] | None = None  # the value next to one, which differs in its last digit


# --- values ---------------------------------------------------------------------------------------

_WORDS = ("Rose", "rose", "ROSE", "Ähre", "ähre", "straße", "漢字", "🌱", "it's", 'say "so"', "back\\slash", "a,b", "new\nline", "NULL", "0", "é", "e\u0301")  # fmt: skip


def texts(length: int) -> Value:
    """Words of both cases, with blanks and other marks at their ends, and the empty text."""

    def make(random: Random) -> object:
        words = " ".join(random.choices(_WORDS, k=random.randint(0, max(1, length // 8))))
        return (
            random.choice(("", "", "", " ", "\t")) + words + random.choice(("", "", "", " ", "  ", "\t"))
        )[:length]

    return make


def stripped(length: int) -> Value:
    """Texts of a type that pads: what it strips was never there."""
    make = texts(length)
    return lambda random: str(make(random)).rstrip(" ")


def doubles(random: Random) -> object:
    """Doubles of any size, and both zeros."""
    near = random.choice(
        [0.1, 1 / 3, 1e15, 1e16, 123456789012345678.0, 1e-4, 9.999e-5, 2.0**53, 1e20, 1e300, 5e-300]
    )
    return random.choice(
        [0.0, -0.0, near, -near, random.uniform(-1e9, 1e9), random.random() * 10 ** random.randint(-40, 40)]
    )


def special(make: Value) -> Value:
    """Also the numbers that are none."""
    return lambda random: (
        random.choice([math.nan, math.inf, -math.inf]) if random.random() < 0.2 else make(random)
    )


def floats(random: Random) -> object:
    """Floats of 32 bits."""
    value = random.choice(
        [0.0, -0.0, 0.1, 16777216.0, 1e-10, 3e38, random.uniform(-1e6, 1e6), random.random()]
    )
    return struct.unpack("f", struct.pack("f", value))[0]


def documents(random: Random) -> object:
    """JSON with spaces and marks within its texts."""
    members = [
        ("a", random.choice([None, True, 1.5, 2**60, "a, b: c", "a,b:c"])),
        ("ключ", [random.choice(_WORDS), {"b": {}}]),
    ]
    random.shuffle(members)
    return json.dumps(dict(members), ensure_ascii=random.random() < 0.5)


def uuids(random: Random) -> object:
    """UUIDs."""
    return str(uuid.UUID(int=random.getrandbits(128), version=4))


def addresses(random: Random) -> object:
    """Addresses of both versions."""
    return random.choice(
        ["::1", "fe80::1", f"10.0.0.{random.randrange(256)}", f"2001:db8::{random.randrange(65536):x}"]
    )


def _next_double(value: float) -> float:
    return math.nextafter(value, math.inf)


def _next_float(value: float) -> float:
    bits = struct.unpack("I", struct.pack("f", value))[0]
    following: float = struct.unpack("f", struct.pack("I", bits + 1))[0]
    return following


def _tick(digits: int) -> Callable[[Any], Any]:
    def step(text: str) -> str:
        moment = datetime.fromisoformat(text) + timedelta(microseconds=10 ** (6 - digits))
        return f"{moment}"

    return step


def _ulp(scale: int) -> Callable[[Any], Any]:
    return lambda value: value + Decimal(1).scaleb(-scale)


# --- types ----------------------------------------------------------------------------------------


def _decimals(precision: int, scale: int, *, unsigned: bool = False) -> Value:
    make = typed.decimals(precision - 1, scale)  # so that the next number has room
    return lambda random: abs(make(random)) if unsigned else make(random)  # type: ignore[arg-type]


def _key(declared: str, value: Value, family: str, **given: Any) -> Kind:
    return Kind(declared, value, family, is_key=True, **given)


MARIADB = [
    _key("TINYINT", integers(-128, 127), "number"),
    _key("SMALLINT", integers(-(2**15), 2**15 - 1), "number"),
    _key("MEDIUMINT UNSIGNED", integers(0, 2**24 - 1), "number"),
    _key("INT(8) UNSIGNED ZEROFILL", integers(0, 2**32 - 1), "number"),
    _key("BIGINT", typed.numbers(-(2**63), 2**63 - 1), "number"),
    _key("BIGINT UNSIGNED", typed.numbers(0, 2**64 - 1), "number"),
    _key("BOOLEAN", integers(0, 1), "number"),
    _key("DECIMAL(38,10)", _decimals(38, 10), "number", step=_ulp(10)),
    _key("DECIMAL(65,30)", _decimals(65, 30), "number", step=_ulp(30)),
    _key("DECIMAL(10,2)", _decimals(10, 2), "number", step=_ulp(2)),
    _key("DECIMAL(9,4) UNSIGNED ZEROFILL", _decimals(9, 4, unsigned=True), "number", step=_ulp(4)),
    _key("DECIMAL(5,0)", _decimals(5, 0), "number"),
    _key("DOUBLE", doubles, "float", step=_next_double),
    _key("FLOAT", floats, "float32", step=_next_float),
    _key("BIT(1)", integers(0, 1), "bits"),
    _key("BIT(9)", integers(0, 511), "bits"),
    _key("BIT(64)", integers(0, 2**64 - 1), "bits"),
    _key("DATE", typed.dates, "date"),
    _key("DATETIME", moments(0), "moment"),
    _key("DATETIME(3)", moments(3), "moment", step=_tick(3)),
    _key("DATETIME(6)", moments(6), "moment", step=_tick(6)),
    _key("TIMESTAMP(6) NULL", moments(6, 1971, 2037), "instant", step=_tick(6)),
    _key("TIMESTAMP NULL", moments(0, 1971, 2037), "instant"),
    _key("TIME", spans(0), "time"),
    _key("TIME(6)", spans(6), "time"),
    _key("YEAR", one_of(0, 1901, 1999, 2024, 2155), "number"),
    _key("ENUM('a','ä','c,d','it''s')", one_of("a", "ä", "c,d", "it's"), "text"),
    _key("SET('x','y','z')", one_of("", "x", "x,z", "x,y,z"), "text"),
    _key("CHAR(5)", stripped(5), "text"),
    _key("CHAR(9) COLLATE utf8mb4_general_ci", stripped(9), "text"),
    _key("VARCHAR(80)", texts(80), "text"),
    _key("VARCHAR(30) COLLATE utf8mb4_general_ci", texts(30), "text"),
    _key("VARCHAR(30) COLLATE utf8mb4_nopad_bin", texts(30), "text"),
    _key("VARCHAR(30) CHARACTER SET latin1", one_of("", "é", "E", "ÿ ", "ß", "ss", " x"), "text"),
    _key("BINARY(4)", lambda random: random.randbytes(random.randint(1, 4)).ljust(4, b"\0"), "bytes"),
    _key("VARBINARY(20)", typed.binaries(20), "bytes"),
    _key("UUID", uuids, "text"),
    _key("INET6", lambda random: f"2001:db8::{random.randrange(1, 65536):x}", "text"),
    _key("INET4", lambda random: f"10.{random.randrange(256)}.0.{random.randrange(256)}", "text"),
    Kind("LONGTEXT", typed.large, "text"),
    Kind("JSON", documents, "json"),
    Kind("BLOB", typed.binaries(300), "bytes"),
]  # fmt: skip

POSTGRESQL = [
    _key("smallint", integers(-(2**15), 2**15 - 1), "number"),
    _key("integer", integers(-(2**31), 2**31 - 1), "number"),
    _key("bigint", typed.numbers(-(2**63), 2**63 - 1), "number"),
    _key("numeric(38,10)", _decimals(38, 10), "number", step=_ulp(10)),
    _key("numeric(10,2)", _decimals(10, 2), "number", step=_ulp(2)),
    _key("numeric", lambda random: _decimals(60, random.randint(0, 20))(random), "number"),
    _key("real", special(floats), "float32", step=_next_float),
    _key("double precision", special(doubles), "float", step=_next_double),
    _key("boolean", one_of(True, False), "number"),
    _key("char(5)", stripped(5), "text"),
    _key("varchar(80)", texts(80), "text"),
    _key("text", texts(60), "text"),
    _key('text COLLATE "C"', texts(30), "text"),
    _key("text COLLATE any_case", texts(30), "text"),
    _key("citext", texts(30), "text"),
    _key("name", stripped(30), "text"),
    _key('"char"', one_of("a", "b", "Z"), "text"),
    _key("bytea", typed.binaries(50), "bytes"),
    _key("date", lambda random: str(moments(0)(random))[:10], "date"),
    _key("time", lambda random: str(moments(6)(random))[11:], "time"),
    _key("timestamp", moments(6), "moment", step=_tick(6)),
    _key("timestamp(3)", moments(3), "moment", step=_tick(3)),
    _key("timestamptz", moments(6), "instant", step=_tick(6)),
    _key("uuid", uuids, "text"),
    _key("mood", one_of("calm", "Grün", "it's"), "text"),
    _key("inet", lambda random: f"{addresses(random)}{random.choice(('', '/24' if random.random() < 0.5 else ''))}", "text"),
    _key("cidr", one_of("10.0.0.0/8", "::/0", "192.168.0.0/16", "10.0.0.1/32"), "text"),
    _key("macaddr", lambda random: ":".join(f"{random.randrange(256):02x}" for _ in range(6)), "text"),
    _key("bit(9)", lambda random: f"{random.randrange(512):09b}", "bit text"),
    _key("bit(1)", one_of("0", "1"), "bit flag"),
    _key("oid", integers(0, 2**32 - 1), "number"),
    _key("small_price", _decimals(6, 2, unsigned=True), "number"),
    _key("short_code", stripped(5), "text"),
    Kind("json", documents, "json"),
    Kind("jsonb", documents, "jsonb"),
    Kind("xml", one_of("<a>ä</a>", "<b x='1'/>"), "text"),
    Kind("interval", one_of("0", "1 year -2 months 3 days 04:05:06.789"), "", is_compared=False),
    Kind("integer[]", lambda random: [random.randint(-9, 9) for _ in range(3)], "", is_compared=False),
    Kind("text[]", lambda random: random.choices(_WORDS, k=2), "", is_compared=False),
    Kind("money", one_of("12.50", "-0.01"), "", is_compared=False),
    Kind("timetz", one_of("10:00:00+08", "10:00:00.25+00"), "", is_compared=False),
    Kind("bit varying", one_of("", "0", "0101"), "", is_compared=False),
    Kind("int4range", one_of("[1,5)", "empty", "(,3)"), "", is_compared=False),
    Kind("point", one_of("(1,2)", "(0.1,-3)"), "", is_compared=False),
]  # fmt: skip

PREPARED = (
    "CREATE EXTENSION IF NOT EXISTS citext",
    "CREATE COLLATION IF NOT EXISTS any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
    "DROP TYPE IF EXISTS mood CASCADE",
    "CREATE TYPE mood AS ENUM ('calm', 'Grün', 'it''s')",
    "DROP DOMAIN IF EXISTS small_price CASCADE",
    "CREATE DOMAIN small_price AS numeric(6,2) CHECK (VALUE >= 0)",
    "DROP DOMAIN IF EXISTS short_code CASCADE",
    "CREATE DOMAIN short_code AS char(5)",
)


# --- tables ---------------------------------------------------------------------------------------


@dataclass
class Table:
    """A random table: what it is created with, and what its rows are, by their number."""

    name: str
    random: Random
    keys: dict[str, Kind]
    others: dict[str, Kind]
    mysql: bool
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)
    former: set[tuple[object, ...]] = field(
        default_factory=set
    )  # keys that a row has left: they are not used again
    last: int = 0

    @property
    def kinds(self) -> dict[str, Kind]:
        """All columns but the number."""
        return self.keys | self.others

    def quoted(self, name: str) -> str:
        """A name as the database quotes it."""
        return f"`{name}`" if self.mysql else f'"{name}"'

    def create(self) -> str:
        """CREATE TABLE; a blob in a key is not drawn, so no key needs a length."""
        columns = [f"{self.quoted(name)} {_not_null(kind)}" for name, kind in self.keys.items()]
        columns += [f"{self.quoted(name)} {kind.declared}" for name, kind in self.others.items()]
        key = ", ".join(map(self.quoted, self.keys))
        return f"CREATE TABLE {self.quoted(self.name)} ({', '.join([*columns, 'number int NOT NULL UNIQUE', f'PRIMARY KEY ({key})'])})"

    def fill(self, cursor: Any, count: int) -> None:
        """Insert so many random rows; keys that the database takes for equal come once."""
        for _ in range(count):
            self.insert(cursor)

    def insert(self, cursor: Any) -> bool:
        """Insert a random row; False if its key is there."""
        self.last += 1
        row = {name: kind.value(self.random) for name, kind in self.keys.items()}
        row |= {name: self._value(kind) for name, kind in self.others.items()}
        if self.key(row) in self.former:
            return False
        names = ", ".join([*map(self.quoted, row), "number"])
        places = ", ".join(["%s"] * (len(row) + 1))
        if not _written(
            cursor,
            f"INSERT INTO {self.quoted(self.name)} ({names}) VALUES ({places})",
            [*row.values(), self.last],
        ):
            return False
        self.rows[self.last] = row
        return True

    def update(self, cursor: Any, number: int, name: str, value: Any) -> bool:
        """Give a row another value; False if its new key is another row's."""
        statement = f"UPDATE {self.quoted(self.name)} SET {self.quoted(name)} = %s WHERE number = %s"
        if not _written(cursor, statement, [value, number]):
            return False
        self.rows[number][name] = value
        return True

    def delete(self, cursor: Any, number: int) -> None:
        """Delete a row."""
        cursor.execute(f"DELETE FROM {self.quoted(self.name)} WHERE number = %s", [number])
        self.former.add(self.key(self.rows.pop(number)))

    def read(self, cursor: Any) -> dict[int, dict[str, object]]:
        """The rows by their number, in the form in which `meant` compares."""
        cells = [self._selected(name, kind) for name, kind in self.kinds.items()]
        cursor.execute(f"SELECT number, {', '.join(cells)} FROM {self.quoted(self.name)}")
        return {
            row[0]: {name: self.cell(name, value) for name, value in zip(self.kinds, row[1:], strict=True)}
            for row in cursor.fetchall()
        }

    def key(self, row: dict[str, Any]) -> tuple[object, ...]:
        """A row's key by its values."""
        return tuple(_as_key(kind, row[name]) for name, kind in self.keys.items())

    def cell(self, name: str, value: Any) -> object:
        """What a cell means; the two zeros are one key."""
        return (
            _as_key(self.keys[name], value) if name in self.keys else meant(self.others[name].family, value)
        )

    def _selected(self, name: str, kind: Kind) -> str:
        column = self.quoted(name)
        if not kind.family:
            return "NULL"  # is not compared
        if kind.family == "float32" and self.mysql:
            return f"{column} * 1e0"  # else six digits
        if kind.family in ("text", "json", "jsonb", "bit text", "bit flag") and not self.mysql:
            padded = kind.declared in ("char(5)", "short_code")
            return (
                f"rpad({column}::text, 5)"
                if padded
                else f"abbrev({column})"
                if kind.declared == "inet"
                else f"{column}::text"
            )
        return column

    def _value(self, kind: Kind) -> object:
        return None if self.random.random() < 0.12 else kind.value(self.random)

    # --- differences ---

    def plant(self, cursor: Any, planted: Counter[str]) -> list[Said]:
        """Plant one difference, of the kind that was planted least and that this table can have; what is said of it."""
        for kind in sorted(DIFFERENCES, key=lambda kind: (planted[kind], self.random.random())):
            if (said := DIFFERENCES[kind](self, cursor)) is not None:
                planted[kind] += 1
                return said
        return []

    def untouched(self) -> list[int]:
        """Rows in which nothing is planted yet."""
        return [number for number in self.rows if number not in self.touched]

    def changed(
        self, cursor: Any, families: Sequence[str], value: Callable[[Kind, Any], Any]
    ) -> list[Said] | None:
        """Give a cell of some families another value, which None refuses."""
        columns = [
            name
            for name, kind in self.others.items()
            if kind.is_compared and (kind.family in families or not families)
        ]
        self.random.shuffle(columns)
        for name in columns:
            for number in self.random.sample(self.untouched(), min(12, len(self.untouched()))):
                old, family = self.rows[number][name], self.others[name].family
                new = value(self.others[name], old)
                if new is NOTHING or (meant(family, new) == meant(family, old) and repr(new) == repr(old)):
                    continue
                before = self.read_cell(cursor, number, name)
                if not self.update(cursor, number, name, new):
                    continue
                if self.read_cell(cursor, number, name) == before:  # as some types take two values for one
                    continue
                self.touched.add(number)
                return [(DIFFERENT, (name,))]
        return None

    def read_cell(self, cursor: Any, number: int, name: str) -> object:
        """A cell as the database has it now."""
        kind = self.others[name]
        cursor.execute(
            f"SELECT {self._selected(name, kind)} FROM {self.quoted(self.name)} WHERE number = {number}"
        )
        return meant(kind.family, cursor.fetchone()[0])


NOTHING = object()
"""In place of a value that is to be none."""


def _not_null(kind: Kind) -> str:
    declared = kind.declared.removesuffix(" NULL")
    return f"{declared} NOT NULL" + (" DEFAULT '2000-01-01'" if declared.startswith("TIMESTAMP") else "")


_REFUSED = ("IntegrityError", "UniqueViolation", "DataError", "StringDataRightTruncation")
"""A key that is there, or a text that another case makes longer."""


def _written(cursor: Any, statement: str, values: Sequence[Any]) -> bool:
    try:
        cursor.execute(statement, values)
    except Exception as error:
        if type(error).__name__ not in _REFUSED:
            raise
        return False
    return True


def _missing(table: Table, cursor: Any) -> list[Said] | None:
    if not table.insert(cursor):
        return None
    table.touched.add(table.last)
    return [(MISSING, ())]


def _surplus(table: Table, cursor: Any) -> list[Said] | None:
    if not (rows := table.untouched()):
        return None
    table.delete(cursor, table.random.choice(rows))
    return [(SURPLUS, ())]


def _another_key(table: Table, cursor: Any) -> list[Said] | None:
    return _moved(table, cursor, lambda kind, _old: kind.value(table.random))


def _key_of_another_case(table: Table, cursor: Any) -> list[Said] | None:
    return _moved(table, cursor, lambda kind, old: old.swapcase() if _is_word(kind) else old)


def _moved(table: Table, cursor: Any, value: Callable[[Kind, Any], Any]) -> list[Said] | None:
    """Another key: to a mirror a row that is gone and one that is there."""
    name = table.random.choice([*table.keys])
    kind = table.keys[name]
    rows = table.untouched()
    for number in table.random.sample(rows, min(12, len(rows))):
        old = table.key(table.rows[number])
        new = table.rows[number] | {name: value(kind, table.rows[number][name])}
        if table.key(new) in {old, *table.former}:
            continue
        if table.update(cursor, number, name, new[name]):
            table.former.add(old)
            table.touched.add(number)
            return [(MISSING, ()), (SURPLUS, ())]
    return None


def _as_key(kind: Kind, value: Any) -> object:
    """A key's value; the two zeros are one key."""
    return meant(kind.family, value + 0.0 if kind.family.startswith("float") else value)


def _is_word(kind: Kind) -> bool:
    return kind.family == "text" and ("CHAR" in kind.declared.upper() or "text" in kind.declared.lower())


def _of(
    *families: str, value: Callable[[Table, Kind, Any], Any]
) -> Callable[[Table, Any], list[Said] | None]:
    return lambda table, cursor: table.changed(cursor, families, lambda kind, old: value(table, kind, old))


def _null(_table: Table, _kind: Kind, old: Any) -> Any:
    return NOTHING if old is None else None


def _empty_for_null(_table: Table, kind: Kind, old: Any) -> Any:
    if not _is_word(kind) and kind.family != "bytes":
        return NOTHING
    return (b"" if kind.family == "bytes" else "") if old is None else None if not old else NOTHING


def _space(_table: Table, kind: Kind, old: Any) -> Any:
    fixed = kind.declared.lower().startswith(("char", "name", "short_code"))
    return NOTHING if fixed or old is None or not _is_word(kind) or len(old) > 20 else f"{old} "


def _case(_table: Table, kind: Kind, old: Any) -> Any:
    return old.swapcase() if old and _is_word(kind) else NOTHING


def _sign(_table: Table, _kind: Kind, old: Any) -> Any:
    return -old if old == 0 else NOTHING


def _not_a_number(table: Table, _kind: Kind, old: Any) -> Any:
    return NOTHING if table.mysql else (math.nan if old is None or not math.isnan(old) else math.inf)


def _last_digit(_table: Table, kind: Kind, old: Any) -> Any:
    if kind.step is None or old is None or (isinstance(old, float) and not math.isfinite(old)):
        return NOTHING
    return kind.step(old)


def _zone(_table: Table, _kind: Kind, old: Any) -> Any:
    return NOTHING if old is None else f"{datetime.fromisoformat(old) + timedelta(hours=8)}"


def _within_a_text(_table: Table, _kind: Kind, old: Any) -> Any:
    """A document with a space more within a text."""
    return old.replace("a,b:c", "a, b: c") if old and "a,b:c" in old else NOTHING


def _order_of_members(table: Table, cursor: Any) -> list[Said] | None:
    """The same document of ``jsonb`` written in another order, which is no difference."""
    for name, kind in table.others.items():
        for number in table.untouched():
            if kind.family == "jsonb" and (old := table.rows[number][name]):
                new = json.dumps(dict(reversed(json.loads(old).items())))
                table.update(cursor, number, name, new)
                table.touched.add(number)
                return []
    return None


DIFFERENCES: dict[str, Callable[[Table, Any], list[Said] | None]] = {
    "a row that the mirror lacks": _missing,
    "a row too many": _surplus,
    "another value": _of(value=lambda table, kind, _old: kind.value(table.random)),
    "another key": _another_key,
    "a key in another case": _key_of_another_case,
    "NULL": _of(value=_null),
    "NULL and empty": _of("text", "bytes", value=_empty_for_null),
    "a space at the end": _of("text", value=_space),
    "another case": _of("text", value=_case),
    "the sign of zero": _of("float", "float32", value=_sign),
    "not a number": _of("float", "float32", value=_not_a_number),
    "the last digit": _of(value=_last_digit),
    "another zone": _of("instant", value=_zone),
    "a space within a document": _of("json", "jsonb", value=_within_a_text),
    "the order of members": _order_of_members,
}


def drawn(number: int, *, mysql: bool, rows: int) -> Table:
    """A random table by its number, with room for so many rows under its key."""
    random = Random(f"table {number} {mysql}")
    kinds = MARIADB if mysql else POSTGRESQL
    of_keys = [kind for kind in kinds if kind.is_key]
    # keys of one, two and three columns; twenty tables have keys of all types
    first, size = 6 * (number // 3) + (0, 1, 3)[number % 3], 1 + number % 3
    keys = {f"k{i}": of_keys[(first + i) % len(of_keys)] for i in range(size)}
    while _room(keys.values()) < 4 * rows:
        keys[f"k{len(keys)}"] = random.choice(of_keys)
    names = [*keys]
    random.shuffle(names)
    others = {f"c{i}": kind for i, kind in enumerate(random.choices(kinds, k=random.randint(3, 10)))}
    return Table(f"t{number}", random, {name: keys[name] for name in names}, others, mysql)


def _room(kinds: Any) -> int:
    """How many keys there are at least, by values drawn."""
    random, room = Random(1), 1
    for kind in kinds:
        room *= len({repr(_as_key(kind, kind.value(random))).lower() for _ in range(60)})
    return room


# --- what a value means, on both sides ------------------------------------------------------------


def meant(family: str, value: Any) -> object:
    """A cell in the form in which both sides are compared, whatever client has read it."""
    if value is None or not family:
        return None
    if family in ("float", "float32"):
        number = struct.unpack("f", struct.pack("f", value))[0] if family == "float32" else float(value)
        return repr(number)
    if family in ("number", "bits"):
        return Decimal(int.from_bytes(value) if isinstance(value, bytes) else value)
    if family == "bit text":
        return int(value, 2) if isinstance(value, str) else int(value)
    if family == "bit flag":
        return value in ("1", True)
    if family == "bytes":
        return bytes(value).hex()
    if family == "date":
        return str(value)[:10]
    if family in ("moment", "instant"):
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return moment.replace(tzinfo=None).isoformat(" ", "microseconds")
    if family == "time":
        text = typed_clock(value) if isinstance(value, timedelta) else str(value)
        return text.rstrip("0").rstrip(".") if "." in text else text
    if family == "jsonb":
        return json.dumps(json.loads(value), sort_keys=True)
    if isinstance(value, (date, time)):
        return str(value)
    return str(value)


def typed_clock(value: timedelta) -> str:
    """MySQL's TIME as it is written."""
    micros = value // timedelta(microseconds=1)
    seconds, rest = divmod(abs(micros), 10**6)
    sign = "-" if micros < 0 else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{rest:06d}"


def mirrored(table: Table, rows: Sequence[dict[str, Any]]) -> dict[int, dict[str, object]]:
    """A mirror's rows by their number, likewise."""
    return {row["number"]: {name: table.cell(name, row[name]) for name in table.kinds} for row in rows}


def differing(source: dict[int, dict[str, object]], mirror: dict[int, dict[str, object]]) -> Iterator[str]:
    """What is not the same on both sides."""
    for number in sorted(source.keys() | mirror.keys()):
        there, here = source.get(number), mirror.get(number)
        if there is None or here is None:
            yield f"row {number}: only in the {'mirror' if there is None else 'source'}"
            continue
        yield from (
            f"row {number} {name}: {there[name]!r} but {here[name]!r}"
            for name in there
            if there[name] != here[name]
        )
