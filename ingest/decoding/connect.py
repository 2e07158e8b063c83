"""Values as Kafka Connect schemas describe them, turned into canonical text.

A converter (JSON or Avro) sends a schema of fields beside the row, or nothing.  `columns` makes the
plan of one such list once: for each column its logical type and two functions, one for its JSON
bytes, one for its Avro value.  What a field's *semantic name* means is the format's own table.  In
this order the meaning of a value is: its semantic name, the declared type (``columns:``), its physical type;
without any of them it stays as it came, with type ``unknown``.  A value that does not fit its meaning
keeps its own text: later stages set such a cell aside with its text, never the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

from ingest import types
from ingest.change import Image
from ingest.decoding.declared import Column, Reading, compact, plain_text, without_digits
from ingest.decoding.declared import column as declared_column
from ingest.errors import Undecodable
from ingest.values import (
    MAX_EXPONENT,
    Raw,
    bytes_of,
    float32_text,
    fraction,
    is_null,
    items,
    members,
    strict,
    string,
    text,
    unscaled_text,
    zoned_text,
)

Text = Callable[[Any], str]


class Field(NamedTuple):
    """One field of a Connect schema: physical type, semantic name and its parameters."""

    name: str
    type: str
    semantic: str = ""
    parameters: Mapping[str, str] = {}
    fields: tuple[Field, ...] = ()


class Meaning(NamedTuple):
    """A semantic name's logical type, the shape of its JSON value, and its text from that value.

    Shapes: ``int``, ``bytes`` (JSON writes base64), ``text``, ``struct`` (a dict of the members).
    """

    logical: str
    shape: str
    text: Text


Meanings = Callable[[Field], Meaning | None]

PHYSICAL = {
    "boolean": "boolean",
    **{width: width for width in ("int8", "int16", "int32", "int64")},
    **dict.fromkeys(["float", "float32"], "float32"),
    **dict.fromkeys(["double", "float64"], "float64"),
    "string": "string",
    "bytes": "binary",
    **dict.fromkeys(["array", "map", "struct"], "json"),
}
"""Connect's physical types (its JSON converter writes ``float`` and ``double``) as logical types."""


MAX_BITS = 512  # bytes of a bit string that become a number


class Plan(NamedTuple):
    """The columns that a schema or the pipeline file knows, and their logical types."""

    columns: Mapping[str, Column]
    types: Mapping[str, str]


def plan(
    schema: str | bytes,
    fields: Callable[[Any], Iterable[Field]],
    declared: Mapping[str, str],
    meanings: Meanings,
    reading: Reading,
) -> Plan:
    """The plan of one schema's rows, made once; ``fields`` reads the fields out of the schema."""
    return _plan(schema, fields, tuple(declared.items()), meanings, reading)


@lru_cache(maxsize=1024)
def _plan(
    schema: str | bytes,
    fields: Callable[[Any], Iterable[Field]],
    declared: tuple[tuple[str, str], ...],
    meanings: Meanings,
    reading: Reading,
) -> Plan:
    known = dict(declared)
    found = {
        field.name: column(field, known.pop(field.name, None), meanings, reading) for field in fields(schema)
    }
    for name, logical in known.items():
        found[name] = declared_column(logical, reading)
    return Plan(found, {name: each.logical for name, each in found.items() if each.logical != "unknown"})


def column(field: Field, declared: str | None, meanings: Meanings, reading: Reading) -> Column:
    """The plan of one column."""
    meaning = meanings(field)
    if meaning:
        return _meant(meaning, declared, reading)
    if field.type == "array" and field.fields and meanings(field.fields[0]):
        return _list(column(field.fields[0], None, meanings, reading))
    if field.type == "bytes":
        reading = reading._replace(binary=reading.schema_bytes)
    if declared and declared != "unknown" and not _fits(field, declared):
        return declared_column(declared, reading)
    if field.type == "bytes" and reading.binary != "base64":
        return declared_column("binary", reading)
    logical = declared or PHYSICAL.get(field.type, "unknown")
    return Column(without_digits(logical), text, _PLAIN.get(field.type, plain_text))


def _list(item: Column) -> Column:
    """An array whose items have a meaning: a JSON list of their canonical texts."""

    def read(raw: Raw) -> str | None:
        return None if bytes(raw) == b"null" else compact([item.json(each) for each in items(raw)])

    def plain(value: Any) -> str | None:
        return None if value is None else compact([item.plain(each) for each in value])

    return Column("json", read, plain)


def unwrapped(root: dict[str, Raw]) -> tuple[bytes, dict[str, Raw] | None]:
    """The schema's bytes (empty without one) and the payload's members, None for a null payload."""
    if "payload" not in root or not root.keys() <= {"schema", "payload"}:
        return b"", root
    schema = b"" if is_null(root.get("schema")) else bytes(root["schema"])
    return schema, None if is_null(root["payload"]) else members(root["payload"])


def json_key(key: bytes | None, plan_of: Callable[[bytes], Plan]) -> Image | None:
    """A Kafka key's columns, by the plan of its schema; None for no key and for no JSON object."""
    if not key or key.lstrip()[:1] != b"{":
        return None
    try:
        schema, found = unwrapped(members(key))
        known = plan_of(schema).columns
    except Undecodable:
        return None
    if not found:
        return None
    return {name: known[name].json(value) if name in known else text(value) for name, value in found.items()}


def texts(raw: Raw) -> Image:
    """A small JSON object's members as text."""
    return {name: text(value) for name, value in members(raw).items()}


def envelope_fields(schema: bytes) -> tuple[Field, ...]:
    """The columns that the envelope's schema gives to ``after`` (or ``before``)."""
    found = {field.name: field.fields for field in row_fields(schema)}
    return found.get("after") or found.get("before") or ()


def row_fields(schema: bytes) -> tuple[Field, ...]:
    """The fields of a schema as Connect's JSON converter writes it."""
    return json_field(strict(schema)).fields if schema else ()


def json_field(schema: Any) -> Field:
    """A field as Connect's JSON converter describes it, with the fields below it."""
    if not isinstance(schema, dict):
        raise Undecodable("bad-schema", "a field of the message's schema is no JSON object")
    below = schema.get("fields") or ([schema["items"]] if isinstance(schema.get("items"), dict) else [])
    parameters = schema.get("parameters")
    if not isinstance(below, list):
        raise Undecodable("bad-schema", "the fields of the message's schema are no list")
    return Field(
        name=str(schema.get("field") or ""),
        type=str(schema.get("type")).lower(),
        semantic=str(schema.get("name") or ""),
        parameters={name: str(value) for name, value in parameters.items()}
        if isinstance(parameters, dict)
        else {},
        fields=tuple(map(json_field, below)),
    )


def json_image(raw: Raw, plan: Mapping[str, Column]) -> Image:
    """A JSON object as a row image by its plan."""
    return {
        name: plan[name].json(value) if name in plan else text(value) for name, value in members(raw).items()
    }


def plain_image(row: Mapping[str, Any], plan: Mapping[str, Column]) -> Image:
    """A decoded Avro record as a row image by its plan."""
    return {
        name: plan[name].plain(value) if name in plan else plain_text(value) for name, value in row.items()
    }


def decimal_meaning(parameters: Mapping[str, str]) -> Meaning:
    """Connect's Decimal: unscaled bytes, scale and maybe precision among the parameters."""
    scale = _small(parameters.get("scale"))
    precision = _small(parameters.get("connect.decimal.precision"))
    if scale is None:
        return Meaning("decimal", "text", str)
    known = precision is not None and 0 <= scale <= precision
    logical = f"decimal({precision},{scale})" if known else "decimal"
    return Meaning(logical, "bytes", lambda value: unscaled_text(value, scale))


def duration(count: int, unit: int) -> str:
    """An ISO 8601 span of seconds from a count of ticks."""
    sign, count = ("-", -count) if count < 0 else ("", count)
    seconds, rest = divmod(count, unit)
    return f"{sign}PT{seconds}{fraction(str(rest).rjust(len(str(unit)) - 1, '0'))}S"


_PLAIN: dict[str, Callable[[Any], str | None]] = {
    "float": lambda value: None if value is None else float32_text(value),
    "float32": lambda value: None if value is None else float32_text(value),
}


# --- values with a semantic name ----------------------------------------------------------------


def _meant(meaning: Meaning, declared: str | None, reading: Reading) -> Column:
    convert = meaning.text
    logical = meaning.logical
    if declared:
        if types.base(declared) == "timestamp" and logical == "datetime":
            convert = partial(_instant, convert, reading.timezone)
        logical = without_digits(declared)
    unpack = _UNPACK[meaning.shape]

    def read(raw: Raw) -> str | None:
        try:
            return None if bytes(raw) == b"null" else convert(unpack(raw))
        except (ValueError, TypeError):
            return text(raw)

    def plain(value: Any) -> str | None:
        try:
            return None if value is None else convert(value)
        except (ValueError, TypeError):
            return plain_text(value)

    return Column(logical, read, plain)


def _instant(convert: Text, timezone: str, value: Any) -> str:
    return zoned_text(convert(value), timezone)


def _struct(raw: Raw) -> dict[str, str | None]:
    return {name: text(value) for name, value in members(raw).items()}


_UNPACK: dict[str, Callable[[Raw], Any]] = {
    "int": lambda raw: int(bytes(raw)),
    "bytes": lambda raw: bytes_of(string(raw), "base64"),
    "text": text,
    "struct": _struct,
}


def _fits(field: Field, declared: str) -> bool:
    """True if the physical type is the declared one already, so that nothing needs converting."""
    physical = PHYSICAL.get(field.type)
    return physical == declared or declared in ("string", "enum", "set", "json", "interval")


def _small(value: str | None) -> int | None:
    if value is None or not value.lstrip("-").isdecimal() or len(value) > 5:
        return None
    return int(value) if abs(int(value)) <= MAX_EXPONENT else None
