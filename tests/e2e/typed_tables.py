"""The tables of the tests with real databases: nearly every type, with values at its edges and between.

What is not generated cannot be had from the capture at all: `NOT_SENT` says what and why.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from random import Random

Value = Callable[[Random], object]

NOT_SENT = {
    "Avro": {
        "NULL in a column with DEFAULT": "Confluent's converter of the wheel sends the default in its place; later "
        "ones do not if ignore.default.for.nullables is set, Connect's JSON if replace.null.with.default is not",
    },
    "Canal": {
        "what existed before": "Canal takes no snapshot; so it is there before the tables are made",
        "JSON of MariaDB": "is a LONGTEXT; where the structure came from the words of CREATE TABLE, its UTF-8 is "
        "sent as if it were binary, which nothing shows; so it is declared as LONGTEXT",
        "tables without a key, once Canal sends again": "no position distinguishes the second time from the first",
    },
    "MariaDB": {
        "zero dates": "a NOT NULL one arrives as 1970-01-01",
        "YEAR 0": "arrives as 1900",
        "FLOAT before the snapshot": "read with six digits; so those rows have no more",
        "ADD COLUMN with DEFAULT of an expression": "what it gave the existing rows is in no message",
        "MODIFY that rewrites values": "the rows' new values are in no message; so it only widens",
    },
    "PostgreSQL": {
        "ADD COLUMN with DEFAULT, RENAME": "no DDL is sent; so new columns are nullable and none is renamed",
        "DROP COLUMN": "no DDL is sent; the mirror keeps the column, and rows sent later have NULL in it",
        "5 to 14 October 1582": "which the old calendar skipped: sent as ten days later",
        "infinity": "of dates and times: sent as a number far out of range",
        "intervals": "compared part by part: the connector writes zeros that the server leaves out",
    },
}


@dataclass(frozen=True)
class Column:
    """A column, its declared type and how its values are made; ``calm`` makes those that a snapshot can read.

    ``default`` is what a row has that names no value, in the form in which `tests.e2e.cells` compares.
    """

    type: str
    value: Value
    null: bool = True
    calm: Value | None = None
    default: object = None

    def make(self, random: Random, *, calm: bool = False) -> object:
        """A value, one in eight of a nullable column NULL."""
        if self.null and random.random() < 0.12:
            return None
        return (self.calm if calm and self.calm else self.value)(random)


@dataclass
class Table:
    """A table as it is now: its columns change with DDL, ``live`` are the keys of its rows."""

    name: str
    columns: dict[str, Column]
    keys: tuple[str, ...] = ()
    weight: int = 1  # how often it is written to, compared with the others
    live: list[tuple[object, ...]] = field(default_factory=list)


# --- values ----------------------------------------------------------------------------------------


def integers(low: int, high: int) -> Value:
    """Whole numbers, often the edges."""
    return lambda random: random.choice(
        [low, high, 0, random.randint(low, high), min(high, random.randint(0, 99))]
    )


def numbers(low: int, high: int) -> Value:
    """Whole numbers for keys: two are seldom equal, and small ones are as common as large ones."""
    return lambda random: random.choice(
        [random.randint(low, high), random.randint(max(low, -(10**6)), 10**6)]
    )


def decimals(precision: int, scale: int) -> Value:
    """Decimals of up to all digits."""

    def make(random: Random) -> object:
        digits = 10 ** random.choice([1, scale + 1, precision])
        return Decimal(random.randrange(1 - digits, digits)).scaleb(-scale)

    return make


def doubles(random: Random) -> object:
    """Doubles of any size."""
    return random.choice([0.1, -1.5, 1e300, 5e-300, random.uniform(-1e9, 1e9), random.random()])


def floats(random: Random) -> object:
    """Floats of 32 bits, all of their bits."""
    return struct.unpack("f", struct.pack("f", random.uniform(-1e6, 1e6)))[0]


def short_floats(random: Random) -> object:
    """Floats of at most six digits."""
    return random.randrange(-3999, 3999) / 4


_WORDS = [
    "rose",
    "Ähre",
    "漢字",
    "🌱 sprout",
    "it's",
    'say "so"',
    "back\\slash",
    "a,b",
    "new\nline",
    "tab\t",
    "NULL",
]


def texts(length: int) -> Value:
    """Words, some of which break careless quoting, and the empty text."""

    def make(random: Random) -> object:
        words = random.choices(_WORDS, k=random.randint(0, max(1, length // 8)))
        return " ".join(words)[:length].rstrip(" ")

    return make


def large(random: Random) -> object:
    """A text that is stored out of its row, now and then a short one."""
    if random.random() < 0.2:
        return "short"
    return "".join(random.choices("abcdefghijklmnopqrstuvwxyzäöü漢字", k=random.randint(3000, 6000)))


def binaries(length: int) -> Value:
    """Bytes, also those that end with zeros."""
    return lambda random: random.choice([b"", b"\x00" * length, b"\xff\x00", random.randbytes(length)])


def one_of(*values: object) -> Value:
    """One of these."""
    return lambda random: random.choice(values)


def dates(random: Random) -> object:
    """Days of nine thousand years."""
    days = [date(1000, 1, 1), date(9999, 12, 31), date(1582, 10, 10), date(1970, 1, 1)]
    return random.choice([*days, date.fromordinal(random.randrange(365_000, 3_600_000))])


def moments(digits: int, low: int = 1000, high: int = 9999) -> Value:
    """Dates with times, with so many fraction digits."""

    def make(random: Random) -> object:
        micros = random.randrange(10**digits) * 10 ** (6 - digits)
        day = date(random.randint(low, high), random.randint(1, 12), random.randint(1, 28))
        second = timedelta(seconds=random.randrange(86400), microseconds=micros)
        return f"{datetime.combine(day, time()) + second}"

    return make


def spans(digits: int) -> Value:
    """MySQL's TIME: from minus to plus 838 hours."""

    def make(random: Random) -> object:
        seconds = random.choice([0, 3020398, random.randrange(86400), random.randrange(3020398)])
        fraction = f".{random.randrange(10**digits):0{digits}d}" if digits else ""
        sign = "-" if random.random() < 0.4 else ""
        return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"

    return make


def documents(random: Random) -> object:
    """JSON with nesting, large numbers and letters of all kinds."""
    found = {"a": random.choice([None, True, 1.5, 2**60]), "ключ": [random.choice(_WORDS), {"b": {}}]}
    return json.dumps(found, ensure_ascii=random.random() < 0.5)


# --- MariaDB ---------------------------------------------------------------------------------------


def canal() -> list[Table]:
    """The tables of `mariadb` as Canal can send them."""
    tables = mariadb()
    tables[0].columns["js"] = Column("LONGTEXT", documents)
    return tables


def mariadb() -> list[Table]:
    """A wide table, one with a composite key, one without any, one that DDL changes."""
    word = Column("VARCHAR(20)", texts(20))
    return [
        Table("plants", {"id": Column("BIGINT UNSIGNED", numbers(0, 2**64 - 1), null=False)} | _wide(), ("id",), 4),
        Table(
            "beds",
            {
                "garden": Column("VARCHAR(12)", texts(12), null=False),
                "at": Column("DATETIME(6)", moments(6), null=False),
                "side": Column("ENUM('N','Süd','a,b')", one_of("N", "Süd", "a,b")),
                "area": Column("DECIMAL(38,10)", decimals(38, 10)),
            },
            ("garden", "at"),
            3,
        ),
        Table("notes", {"word": word, "n": Column("INT", integers(-9, 9)), "at": Column("DATE", dates)}, (), 1),
        Table(
            "orders",
            {
                "id": Column("INT", numbers(-(2**31), 2**31 - 1), null=False),
                "title": word,
                "price": Column("DECIMAL(12,4)", decimals(12, 4)),
            },
            ("id",),
            4,
        ),
    ]  # fmt: skip


def _wide() -> dict[str, Column]:
    return {
        "t": Column("TINYINT", integers(-128, 127)),
        "tu": Column("TINYINT UNSIGNED", integers(0, 255)),
        "flag": Column("BOOLEAN", integers(0, 1)),
        "s": Column("SMALLINT", integers(-(2**15), 2**15 - 1)),
        "mu": Column("MEDIUMINT UNSIGNED", integers(0, 2**24 - 1)),
        "iu": Column("INT UNSIGNED", integers(0, 2**32 - 1)),
        "b": Column("BIGINT", integers(-(2**63), 2**63 - 1)),
        "bu": Column("BIGINT UNSIGNED", integers(0, 2**64 - 1)),
        "d38": Column("DECIMAL(38,10)", decimals(38, 10)),
        "d65": Column("DECIMAL(65,30)", decimals(65, 30)),
        "money": Column("DECIMAL(10,2) NOT NULL DEFAULT 0", decimals(10, 2), null=False),
        "f": Column("FLOAT", floats, calm=short_floats),
        "g": Column("DOUBLE", doubles),
        "bit1": Column("BIT(1)", integers(0, 1)),
        "bit9": Column("BIT(9)", integers(0, 511)),
        "bit64": Column("BIT(64)", integers(0, 2**64 - 1)),
        "da": Column("DATE", dates),
        "dt": Column("DATETIME", moments(0)),
        "dt3": Column("DATETIME(3)", moments(3)),
        "dt6": Column("DATETIME(6)", moments(6)),
        "ts": Column("TIMESTAMP(6) NULL", moments(6, 1971, 2037)),
        "ti": Column("TIME", spans(0)),
        "ti6": Column("TIME(6)", spans(6)),
        "y": Column("YEAR", lambda random: random.choice([1901, 2155, random.randint(1970, 2070)])),
        "e": Column("ENUM('a','ä','c,d')", one_of("a", "ä", "c,d")),
        "st": Column("SET('x','y','z')", one_of("", "x", "x,z", "x,y,z")),
        "c": Column("CHAR(5)", texts(5)),
        "v": Column("VARCHAR(80)", texts(80)),
        "lob": Column("LONGTEXT", large),
        "js": Column("JSON", documents),
        "bi": Column("BINARY(4)", lambda random: random.randbytes(3) + b"\x00"),
        "vb": Column("VARBINARY(20)", binaries(20)),
        "bl": Column("BLOB", binaries(300)),
    }


# --- PostgreSQL ------------------------------------------------------------------------------------


def postgres() -> list[Table]:
    """A wide table, one with a composite key, one without any, and large values with and without full images."""
    words = {
        "body": Column("text", large),
        "more": Column("text", large),
        "n": Column("integer", integers(0, 99)),
    }
    key = {"id": Column("bigint", numbers(-(2**63), 2**63 - 1), null=False)}
    return [
        Table("plants", key | _wide_postgres(), ("id",), 3),
        Table(
            "beds",
            {
                "garden": Column("varchar(12)", texts(12), null=False),
                "at": Column("timestamptz", moments(6), null=False),
                "area": Column("numeric(38,10)", decimals(38, 10)),
            },
            ("garden", "at"),
            2,
        ),
        Table("notes", {"word": Column("text", texts(20)), "n": Column("integer", integers(-9, 9))}, (), 1),
        Table("letters", key | words, ("id",), 3),
        Table("parcels", key | words, ("id",), 2),
    ]  # fmt: skip


def _wide_postgres() -> dict[str, Column]:
    return {
        "s": Column("smallint", integers(-(2**15), 2**15 - 1)),
        "i": Column("integer", integers(-(2**31), 2**31 - 1)),
        "d38": Column("numeric(38,10)", decimals(38, 10)),
        "free": Column("numeric", lambda random: decimals(60, random.randint(0, 20))(random)),
        "f": Column("real", floats),
        "g": Column("double precision", lambda random: random.choice([doubles(random), float("nan")])),
        "flag": Column("boolean", one_of(True, False)),
        "c": Column("char(5)", texts(5)),
        "v": Column("varchar(80) DEFAULT 'as ever'", texts(80), default="as ever"),
        "ba": Column("bytea", binaries(50)),
        "da": Column("date", lambda random: str(moments(0)(random))[:10]),
        "ti": Column("time", lambda random: str(moments(6)(random))[11:]),
        "dt": Column("timestamp", moments(6)),
        "ts": Column("timestamptz", moments(6)),
        "iv": Column("interval", one_of("0", "1 year -2 months 3 days 04:05:06.789", "-1 day 00:00:00.000001")),
        "uu": Column("uuid", lambda random: f"{random.getrandbits(128):032x}"),
        "js": Column("json", documents),
        "jb": Column("jsonb", documents),
        "e": Column("colour", one_of("red", "grün")),
        "ai": Column("integer[]", lambda random: [random.choice([None, random.randint(-9, 9)]) for _ in range(3)]),
        "at": Column("text[]", lambda random: random.choices(_WORDS, k=random.randint(0, 3))),
        "ip": Column("inet", one_of("10.0.0.1", "::1", "192.168.0.0/16")),
        "b9": Column("bit(9)", lambda random: f"{random.randrange(512):09b}"),
        "ra": Column("int4range", one_of("[1,5)", "empty", "(,3)")),
    }  # fmt: skip
