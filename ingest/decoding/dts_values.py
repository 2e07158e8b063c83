"""Column values whose union branch says how they are written (Alibaba DTS, the public ``Record.avsc``).

A value is a record named after its branch; the source's own type code, which is sent with the column's
name, refines the branch's type where it is possible in that branch. Readers for all branches of a column
are chosen once per list of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from ingest import types, values
from ingest.errors import Undecodable
from ingest.values.charsets import decoded
from ingest.values.remembered import remembered

Read = tuple[str, str]  # canonical text and logical type
Reader = Callable[[Any, str | None, bool], Read]
"""A branch's reader: its record, the type that the code names, and whether fractions are microseconds."""

Column = tuple[str, Mapping[str, tuple[Reader, str | None]]]
"""A column's name, and by branch the reader with the type that the column's code names."""

FITS = {
    "Integer": frozenset(["int8", "int16", "int32", "int64", "year", "bit", "decimal", "boolean"]),
    "Character": frozenset(["string", "enum", "set", "json", "interval"]),
    "Decimal": frozenset(["decimal"]),
    "Float": frozenset(["float32", "float64"]),
    "Timestamp": frozenset(["timestamp"]),
    "DateTime": frozenset(["date", "time", "datetime", "year", "interval"]),
    "TimestampWithTimeZone": frozenset(["timestamp"]),
    "BinaryGeometry": frozenset(["geometry"]),
    "TextGeometry": frozenset(["geometry"]),
    "BinaryObject": frozenset(["binary", "json"]),
    "TextObject": frozenset(["string", "enum", "set", "json", "boolean", "interval"]),
}
"""The types that a branch may carry: a code that says anything else is not believed."""


@remembered(4096)
def columns(fields: tuple[tuple[str, int], ...], source: str) -> tuple[Column, ...]:
    """How columns of these names and type codes are read; `Undecodable` (``duplicate-key``) if a name occurs twice."""
    if len({name for name, _ in fields}) != len(fields):
        raise Undecodable("duplicate-key", "a column name occurs twice in one list of fields")
    codes = BY_SOURCE.get(source, {})
    return tuple((name, _readers(codes.get(number))) for name, number in fields)


@lru_cache(maxsize=256)
def _readers(code: str | None) -> Mapping[str, tuple[Reader, str | None]]:
    return {branch: (read, code if code in FITS[branch] else None) for branch, read in READERS.items()}


def _integer(value: Any, hint: str | None, _micros: bool) -> Read:
    text = value["value"]
    number = values.integer(text)
    if number is None:
        raise ValueError("its text is not an integer")
    if hint == "bit" and number >> 63:
        return text, "bit(64)"
    if hint is None or not hint.startswith("int"):
        return text, hint or "decimal"
    return text, types.integer(number, hint)  # a wider one if need be: the codes do not show UNSIGNED


def _character(value: Any, hint: str | None, _micros: bool) -> Read:
    charset, data = value["charset"], value["value"]
    if charset.strip().lower() in ("", "binary"):
        return values.base64_text(data), "binary"
    return decoded(data, charset), hint or "string"


def _decimal(value: Any, _hint: str | None, _micros: bool) -> Read:
    text, precision, scale = value["value"], value["precision"], value["scale"]
    text = _INFINITE.get(text) or values.number_text(text)
    return text, types.decimal(precision, scale)


_INFINITE = {"~": "Infinity", "-~": "-Infinity"}


def _float(value: Any, hint: str | None, _micros: bool) -> Read:
    number = value["value"]
    if hint == "float32":
        return values.float32_text(number), "float32"
    return values.float_text(number), "float64"


def _timestamp(value: Any, _hint: str | None, _micros: bool) -> Read:
    """An instant: its fraction is microseconds from every source (the service's own readers, ``setMicro``)."""
    text = values.timestamp_text(value["timestamp"], 1)
    return text[:-1] + _fraction(value["millis"], micros=True) + "Z", "timestamp"


def _fraction(ticks: int | None, micros: bool) -> str:
    if not ticks:
        return ""
    digits = str(ticks)
    width = 6 if micros else 9
    if ticks < 0 or len(digits) > width:
        raise ValueError(f"{digits} is not a fraction of a second of {width} digits")
    return values.fraction(digits.rjust(width, "0"))


def _datetime(value: Any, hint: str | None, micros: bool) -> Read:
    date, clock = _date_part(value), _clock_part(value, micros)
    if hint == "interval":  # as Oracle itself writes its two: 3-06 and 5 04:03:02.1
        if value["year"] is not None or value["month"] is not None:
            return f"{value['year'] or 0}-{abs(value['month'] or 0):02d}", "interval"
        return f"{value['day'] or 0} {clock or '00:00:00'}", "interval"
    if date and clock:
        return f"{date} {clock}", "datetime"
    if date:
        return (date, "date") if "-" in date else (date, "year")
    return clock or "00:00:00", "time"


def _date_part(value: Any) -> str:
    year, month, day = value["year"], value["month"], value["day"]
    if year is None and month is None and day is None:
        return ""
    if month is None and day is None:
        return str(year)
    return f"{year or 0:04d}-{month or 0:02d}-{day or 0:02d}"


def _clock_part(value: Any, micros: bool) -> str:
    parts = hour, minute, second, ticks = value["hour"], value["minute"], value["second"], value["millis"]
    if None in parts:
        if parts == _NO_CLOCK:
            return ""
        hour, minute, second, ticks = (part or 0 for part in parts)
    if hour >= 0 and minute >= 0 and second >= 0 and ticks >= 0:
        return f"{hour:02d}:{minute:02d}:{second:02d}{_fraction(ticks, micros)}"
    return f"-{abs(hour):02d}:{abs(minute):02d}:{abs(second):02d}{_fraction(abs(ticks), micros)}"


_NO_CLOCK = (None, None, None, None)


def _zoned(value: Any, _hint: str | None, micros: bool) -> Read:
    text, _ = _datetime(value["value"], None, micros)
    written = f"{text} {value['timezone']}"
    try:
        return values.zoned_text(written, "UTC"), "timestamp"
    except ValueError:
        return written, "timestamp"


def _binary_geometry(value: Any, _hint: str | None, _micros: bool) -> Read:
    """WKB, which MySQL puts after four bytes of SRID."""
    data = value["value"]
    if data[4:5] in (b"\0", b"\1"):
        shape = int.from_bytes(data[5:9], "little" if data[4] else "big")
        if 1 <= shape <= 7:
            return f"SRID={int.from_bytes(data[:4], 'little')};{values.base64_text(data[4:])}", "geometry"
    return f"SRID=0;{values.base64_text(data)}", "geometry"


def _binary_object(value: Any, hint: str | None, _micros: bool) -> Read:
    data = value["value"]
    if hint == "json" or value["type"].lower() in ("json", "jsonb"):
        return decoded(data, "utf8"), "json"
    return values.base64_text(data), "binary"


def _text_object(value: Any, hint: str | None, _micros: bool) -> Read:
    text = value["value"]
    if hint == "boolean":
        return values.boolean_text(text), "boolean"
    return text, hint or _OBJECTS.get(value["type"].lower(), "string")


_OBJECTS = {"enum": "enum", "set": "set", "json": "json", "jsonb": "json"}

READERS: dict[str, Reader] = {
    "Integer": _integer,
    "Character": _character,
    "Decimal": _decimal,
    "Float": _float,
    "Timestamp": _timestamp,
    "DateTime": _datetime,
    "TimestampWithTimeZone": _zoned,
    "BinaryGeometry": _binary_geometry,
    "TextGeometry": lambda value, _hint, _micros: (value["value"], "geometry"),
    "BinaryObject": _binary_object,
    "TextObject": _text_object,
}


# --- type codes -----------------------------------------------------------------------------------

# The numbers by which databases name their own types: MySQL's protocol types, PostgreSQL's type OIDs, Oracle's
# codes. MySQL's do not show an unsigned integer, and 15, 253 and 254, 249 to 252 mean texts and bytes alike.

MYSQL_TYPES = {
    0: "decimal", 1: "int8", 2: "int16", 3: "int32", 4: "float32", 5: "float64", 7: "timestamp", 8: "int64", 9: "int32",
    10: "date", 11: "time", 12: "datetime", 13: "year", 14: "date", 15: "string", 16: "bit", 17: "timestamp",
    18: "datetime", 19: "time", 245: "json", 246: "decimal", 247: "enum", 248: "set", 253: "string", 254: "string",
    255: "geometry",
}  # fmt: skip
POSTGRES_TYPES = {
    16: "boolean", 17: "binary", 20: "int64", 21: "int16", 23: "int32", 25: "string", 114: "json", 700: "float32",
    701: "float64", 1042: "string", 1043: "string", 1082: "date", 1083: "time", 1114: "datetime", 1184: "timestamp",
    1186: "interval", 1700: "decimal", 2950: "string", 3802: "json",
}  # fmt: skip
ORACLE_TYPES = {
    **dict.fromkeys([1, 8, 58, 69, 96, 112, 208], "string"), 2: "decimal", 100: "float32", 101: "float64",
    **dict.fromkeys([23, 24, 113, 114], "binary"), **dict.fromkeys([12, 180], "datetime"),
    **dict.fromkeys([181, 231], "timestamp"), **dict.fromkeys([182, 183], "interval"),
}  # fmt: skip
BY_SOURCE = {
    **dict.fromkeys(["MySQL", "DRDS"], MYSQL_TYPES),
    **dict.fromkeys(["PostgreSQL", "PPAS"], POSTGRES_TYPES),
    "Oracle": ORACLE_TYPES,
}
"""The codes of a source by its kind as captures name it."""
