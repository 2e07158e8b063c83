"""Alibaba DTS, storage format DTS Avro (document "Data formats of a Kafka cluster", section DTS Avro).

The document only names the schema; ``avro_schemas/dts.avsc`` is the public ``Record.avsc``. FORMATS.md
section 4 has the sources of what follows.

- A message is one bare datum. Newer producers append ``bornTimestamp``, a long; older ones do not.
- An image is a list beside ``fields``: value i belongs to field i. The union branch says how a value is
  written, ``dataTypeNumber`` (the source's own code) refines its type; where both disagree the branch wins.
- Fractions of a second are microseconds from MySQL and PostgreSQL, nanoseconds from the others.
- ``EmptyObject`` stands for a column that was not captured: absent, and the row is partial.
- DDL: ``afterImages`` is the statement, ``objectName`` is often the database alone.
- ``objectName`` parts are split at dots; a dot of a name is written as backslash, ``u002E``.
- Values of 48 bytes that do not decode are no-operations of the service.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from ingest.change import NO_TABLE, ROW_OPS, Change, Hints, Image, Message, Op, TableId
from ingest.decoding import avro
from ingest.decoding.charsets import decoded
from ingest.decoding.codes import BY_SOURCE
from ingest.errors import Undecodable
from ingest.formats import About
from ingest.values import (
    base64_text,
    boolean_text,
    float32_text,
    float_text,
    fraction,
    integer,
    number_text,
    strict,
    timestamp_text,
    zoned_text,
)

ABOUT = About(
    title="Alibaba DTS, DTS Avro",
    document="DTS Data formats, section DTS Avro; Record.avsc",
    operations=("insert", "update", "delete", "read", "ddl", "heartbeat", "begin", "commit"),
    order="id",
    strength="strong",
    keys="tag pk_uk_info: the primary key, else the first unique index",
    types="union branch and dataTypeNumber of each column",
    images="full (columns that were not captured are missing)",
    ddl="afterImages holds the statement",
    losses=("Labels of ENUM and lengths of columns are not sent.",),
    options={"timezone": "no meaning; instants carry their own", "order_by": "sequence"},
    framing="length",
    binary=True,
)

OPS = {
    "INSERT": Op.INSERT,
    "UPDATE": Op.UPDATE,
    "DELETE": Op.DELETE,
    "INIT": Op.READ,
    "DDL": Op.DDL,
    "COMMAND": Op.DDL,
    "BEGIN": Op.BEGIN,
    "COMMIT": Op.COMMIT,
    "HEARTBEAT": Op.HEARTBEAT,
}
"""Every other operation of the schema is a mark of the service: control."""

NO_OPERATION = 48  # bytes
MICROSECOND_SOURCES = frozenset({"MySQL", "PostgreSQL"})

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


# --- one message --------------------------------------------------------------------------------


def parse(message: Message, hints: Hints) -> Iterable[Change]:
    """The change of one datum."""
    if message.value is None:
        return [Change(op=Op.CONTROL, note="null value")]
    try:
        record = decode(message.value)
    except Undecodable:
        if len(message.value) == NO_OPERATION:
            return [Change(op=Op.CONTROL, note="no operation")]
        raise
    return [_change(record, hints)]


def decode(data: bytes) -> dict[str, Any]:
    """One record of the schema, with or without ``bornTimestamp``, to the last byte."""
    record, end = avro.read_at(_schema(), data, 0)
    if end < len(data):
        record["bornTimestamp"], end = avro.read_at(avro.PRIMITIVES["long"], data, end)
    if end != len(data):
        raise Undecodable("trailing-bytes", f"{len(data) - end} bytes are left after the datum")
    return dict(record)


def _schema() -> avro.Node:
    return avro.bundled("dts", "Record")


def _change(record: dict[str, Any], hints: Hints) -> Change:
    operation, tags = record["operation"], record["tags"]
    op = OPS.get(operation, Op.CONTROL)
    if operation == "COMMAND" and (record["afterImages"] or ("",))[0] != "string":
        op = Op.CONTROL  # a command of a document store, which is no statement
    common = Change(
        op=op,
        sequence=(record["id"],),
        position=record["sourcePosition"] or None,
        event_time=record["sourceTimestamp"] * 10**6 or None,
        transaction=tags.get("GTID") or record["sourceTxid"] or None,
        note=operation if op is Op.CONTROL else None,
    )
    if op is Op.DDL:
        return _ddl(record, common)
    return _row(record, common, hints) if op in ROW_OPS else common


def _ddl(record: dict[str, Any], common: Change) -> Change:
    branch, statement = record["afterImages"] or ("", None)
    if branch != "string":
        raise Undecodable("bad-message", "a DDL record has no statement in afterImages")
    name, source = record["objectName"], record["source"]["sourceType"]
    return replace(
        common,
        table=table_of(name) if name else NO_TABLE,
        ddl=statement,
        dialect=DIALECTS.get(source, "mysql"),
    )


DIALECTS = {"Oracle": "oracle", "PostgreSQL": "postgres", "PPAS": "postgres"}


def _row(record: dict[str, Any], common: Change, hints: Hints) -> Change:
    if not record["objectName"]:
        raise Undecodable("no-table", "a row record has no objectName")
    branch, fields = record["fields"] or ("", [])
    if branch != "array":
        raise Undecodable("bad-message", "a row record has no list of fields")
    table = table_of(record["objectName"])
    declared = hints.tables(table)
    source = record["source"]["sourceType"]
    micros = source in MICROSECOND_SOURCES and "<->" not in record["sourcePosition"]
    known: dict[str, str] = {}
    before, unsent = _image(record["beforeImages"], fields, source, micros, known)
    after, missing = _image(record["afterImages"], fields, source, micros, known)
    op = common.op
    if (before if op is Op.DELETE else after) is None:
        raise Undecodable("no-image", f"the {op} has no image of its row")
    absent = unsent + missing
    return replace(
        common,
        table=table,
        keys=declared.keys or key_columns(record["tags"].get("pk_uk_info")),
        before=before,
        after=None if op is Op.DELETE else after,
        types={**known, **declared.columns} if declared.columns else known,
        partial=missing > 0 and op is not Op.DELETE,
        phase=0 if op is Op.READ and record["id"] <= 0 else 1,
        note=f"columns that were not captured are absent: {absent}" if absent else None,
    )


def _image(
    found: tuple[str, Any] | None,
    fields: list[dict[str, Any]],
    source: str,
    micros: bool,
    known: dict[str, str],
) -> tuple[Image | None, int]:
    """One image by its fields, and how many columns were not captured; types go into ``known``."""
    if found is None:
        return None, 0
    branch, cells = found
    if branch != "array" or len(cells) != len(fields):
        raise Undecodable("bad-message", f"an image does not have the {len(fields)} values of its fields")
    image: Image = {}
    absent = 0
    for field, cell in zip(fields, cells, strict=True):
        name = field["name"]
        if cell is None:
            image[name] = None
            continue
        tag, value = cell
        if tag == "EmptyObject":
            absent += 1
            continue
        hint = _code_type(source, field["dataTypeNumber"], tag)
        try:
            image[name], known[name] = READERS[tag](value, hint, micros)
        except ValueError as error:
            raise Undecodable(
                "bad-value", f"a {tag} of column {name[:80]!r} cannot be read: {error}"
            ) from None
    if len(image) + absent != len(fields):
        raise Undecodable("duplicate-key", "a column name occurs twice in one list of fields")
    return image, absent


@lru_cache(maxsize=4096)
def _code_type(source: str, number: int, branch: str) -> str | None:
    """What the source's own code says, if that is possible in the branch the value came in."""
    found = BY_SOURCE.get(source, {}).get(number)
    return found if found in FITS[branch] else None


@lru_cache(maxsize=10_000)
def table_of(name: str) -> TableId:
    """``db``, ``db.table`` or ``db.schema.table``; a dot inside a part is escaped."""
    parts = [part.replace(_DOT, ".") for part in name.split(".")]
    if len(parts) == 1:
        return TableId(parts[0], None, None)
    if len(parts) == 2:
        return TableId(parts[0], None, parts[1])
    if len(parts) == 3:
        return TableId(*parts)
    raise Undecodable("bad-message", f"objectName has {len(parts)} parts")


_DOT = "\\u002E"


@lru_cache(maxsize=10_000)
def key_columns(info: str | None) -> tuple[str, ...]:
    """The primary key of ``{"PRIMARY": ["id"], "uk_x": ["a"]}``, else the first unique index."""
    if not info:
        return ()
    try:
        indexes = strict(info.encode())
        columns = indexes.get("PRIMARY") or next(iter(indexes.values()), ())
        return tuple(map(str, columns))
    except (AttributeError, TypeError, UnicodeEncodeError):
        raise Undecodable("bad-message", "the tag pk_uk_info is no object of lists") from None


# --- values -------------------------------------------------------------------------------------

Read = tuple[str, str]  # canonical text and logical type


def _integer(value: Any, hint: str | None, _micros: bool) -> Read:
    text = value["value"]
    number = integer(text)
    if number is None:
        raise ValueError("its text is no integer")
    return text, _integer_type(hint, number)


def _integer_type(hint: str | None, number: int) -> str:
    """The code's type, or a wider one where the value proves it: the codes do not tell UNSIGNED."""
    if hint == "bit" and number >> 63:
        return "bit(64)"
    if hint is None or not hint.startswith("int"):
        return hint or "decimal"
    width = int(hint[3:])
    if -(1 << width - 1) <= number < 1 << width - 1:
        return hint
    return f"uint{width}" if 0 <= number < 1 << width else "decimal"


def _character(value: Any, hint: str | None, _micros: bool) -> Read:
    charset, data = value["charset"].strip().lower(), value["value"]
    if charset in ("", "binary"):
        return base64_text(data), "binary"
    return decoded(data, charset), hint or "string"


def _decimal(value: Any, _hint: str | None, _micros: bool) -> Read:
    text, precision, scale = value["value"], value["precision"], value["scale"]
    text = _INFINITE.get(text) or number_text(text)
    known = 0 <= scale <= precision and 0 < precision <= 1000
    return text, f"decimal({precision},{scale})" if known else "decimal"


_INFINITE = {"~": "Infinity", "-~": "-Infinity"}


def _float(value: Any, hint: str | None, _micros: bool) -> Read:
    number = value["value"]
    return (float32_text(number), "float32") if hint == "float32" else (float_text(number), "float64")


def _timestamp(value: Any, _hint: str | None, micros: bool) -> Read:
    text = timestamp_text(value["timestamp"], 1)
    return text[:-1] + _fraction(value["millis"], micros) + "Z", "timestamp"


def _fraction(ticks: int | None, micros: bool) -> str:
    digits = str(ticks or 0)
    width = 6 if micros else 9
    if len(digits) > width or not digits.isdecimal():
        raise ValueError(f"{digits} is no fraction of a second of {width} digits")
    return fraction(digits.rjust(width, "0"))


def _datetime(value: Any, hint: str | None, micros: bool) -> Read:
    date, clock = _date_part(value), _clock_part(value, micros)
    if hint == "interval":
        return _interval(value, micros), "interval"
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
    parts = [value["hour"], value["minute"], value["second"], value["millis"]]
    if all(part is None for part in parts):
        return ""
    negative = any(part is not None and part < 0 for part in parts)
    hour, minute, second, ticks = (abs(part or 0) for part in parts)
    return f"{'-' if negative else ''}{hour:02d}:{minute:02d}:{second:02d}{_fraction(ticks, micros)}"


def _interval(value: Any, micros: bool) -> str:
    """Oracle's own way to write its two intervals: ``3-06`` and ``5 04:03:02.1``."""
    if value["year"] is not None or value["month"] is not None:
        return f"{value['year'] or 0}-{abs(value['month'] or 0):02d}"
    return f"{value['day'] or 0} {_clock_part(value, micros) or '00:00:00'}"


def _zoned(value: Any, _hint: str | None, micros: bool) -> Read:
    text, _ = _datetime(value["value"], None, micros)
    written = f"{text} {value['timezone']}"
    try:
        return zoned_text(written, "UTC"), "timestamp"
    except ValueError:
        return written, "timestamp"


def _binary_geometry(value: Any, _hint: str | None, _micros: bool) -> Read:
    """WKB, which MySQL puts behind four bytes of SRID."""
    data = value["value"]
    if data[4:5] in (b"\0", b"\1") and _is_shape(data[5:9], data[4]):
        return f"SRID={int.from_bytes(data[:4], 'little')};{base64_text(data[4:])}", "geometry"
    return f"SRID=0;{base64_text(data)}", "geometry"


def _is_shape(code: bytes, order: int) -> bool:
    return 1 <= int.from_bytes(code, "little" if order else "big") <= 7


def _text_geometry(value: Any, _hint: str | None, _micros: bool) -> Read:
    return value["value"], "geometry"


def _binary_object(value: Any, hint: str | None, _micros: bool) -> Read:
    data = value["value"]
    if hint == "json" or value["type"].lower() in ("json", "jsonb"):
        return decoded(data, "utf8"), "json"
    return base64_text(data), "binary"


def _text_object(value: Any, hint: str | None, _micros: bool) -> Read:
    text = value["value"]
    if hint == "boolean":
        return boolean_text(text), "boolean"
    return text, hint or _OBJECTS.get(value["type"].lower(), "string")


_OBJECTS = {"enum": "enum", "set": "set", "json": "json", "jsonb": "json"}

READERS: dict[str, Callable[[Any, str | None, bool], Read]] = {
    "Integer": _integer,
    "Character": _character,
    "Decimal": _decimal,
    "Float": _float,
    "Timestamp": _timestamp,
    "DateTime": _datetime,
    "TimestampWithTimeZone": _zoned,
    "BinaryGeometry": _binary_geometry,
    "TextGeometry": _text_geometry,
    "BinaryObject": _binary_object,
    "TextObject": _text_object,
}


def recognise(sample: bytes) -> str | None:
    """The whole sample is one record of the schema."""
    if sample[:1] == b"{" or not sample:
        return None
    try:
        operation = decode(sample)["operation"]
    except Undecodable:
        return None
    return f"one {operation} record of the DTS schema, to the last byte"
