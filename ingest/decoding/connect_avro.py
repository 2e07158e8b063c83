"""Rows in framed Avro as Confluent's converter writes them: the frame, and a schema's fields as those of Connect.

Confluent's wire format: a byte 0, the schema's id as four big-endian bytes, then one datum. Connect's types and semantic names
are given next to the Avro ones as ``connect.type``, ``connect.name`` and ``connect.parameters``. Avro's own logical types are
the fallback.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ingest.change import Hints
from ingest.decoding import avro
from ingest.decoding.connect import Field, FieldDefault
from ingest.errors import Undecodable
from ingest.values import Number, integer

PHYSICAL = {"int": "int32", "long": "int64", "enum": "string", "fixed": "bytes", "record": "struct"}
LOGICAL = {
    "decimal": "org.apache.kafka.connect.data.Decimal",
    "date": "org.apache.kafka.connect.data.Date",
    "time-millis": "org.apache.kafka.connect.data.Time",
    "time-micros": "io.debezium.time.MicroTime",
    **{
        prefix + unit: name
        for prefix in ("timestamp-", "local-timestamp-")
        for unit, name in (
            ("millis", "org.apache.kafka.connect.data.Timestamp"),
            ("micros", "io.debezium.time.MicroTimestamp"),
            ("nanos", "io.debezium.time.NanoTimestamp"),
        )
    },
}
"""Avro's logical types as the semantic names of the same encoding."""


class NamedDatum(NamedTuple):
    """A datum, and the number by which its writer names its schema."""

    schema: int
    datum: bytes


def frame(data: bytes) -> NamedDatum:
    """The parts of one framed datum."""
    if len(data) < 5 or data[0] != 0:
        raise Undecodable("no-frame", "the value does not begin with a zero byte and a schema id")
    number = int.from_bytes(data[1:5], "big")
    if not number:
        raise Undecodable("no-frame", "the schema's id is 0, and a registry counts from 1")
    return NamedDatum(number, data[5:])


def unframed(data: bytes, hints: Hints) -> tuple[str, Any]:
    """The schema's text and the value of one framed datum."""
    return read(frame(data), hints)


def read(named: NamedDatum, hints: Hints) -> tuple[str, Any]:
    """The schema's text and the value of a datum whose schema the registry has."""
    if hints.schema is None:
        raise Undecodable("unknown-schema", "the source has no registry: to look up schemas in")
    number = named.schema
    try:
        text = hints.schema(number)
    except KeyError:
        raise Undecodable("unknown-schema", f"the registry does not know schema {number}") from None
    try:
        return text, avro.read(avro.load(text), named.datum)
    except Undecodable as error:
        raise Undecodable(error.code, f"by the registry's schema {number}: {error.detail}") from None


def row_fields(text: str) -> tuple[Field, ...]:
    """The fields of a record: the columns of a row, and what is next to them."""
    schema = avro.load(text)
    return _fields(schema, _value(schema, schema.root))


def envelope_fields(text: str) -> tuple[Field, ...]:
    """The columns of a row that is the member ``after`` or ``before`` of a record."""
    schema = avro.load(text)
    members = {each["name"]: each["type"] for each in _value(schema, schema.root).get("fields", ())}
    image = members.get("after") or members.get("before")
    return _fields(schema, _value(schema, image)) if image else ()


def _fields(schema: avro.AvroSchema, record: Mapping[str, Any]) -> tuple[Field, ...]:
    return tuple(_described(schema, each) for each in record.get("fields", ()))


def _described(schema: avro.AvroSchema, member: Mapping[str, Any]) -> Field:
    """A record's field, with whether it may be null and its default."""
    field = _field(schema, member["name"], member["type"])
    branches = schema.resolved(member["type"])
    optional = isinstance(branches, list) and any(
        schema.resolved(branch)["type"] == "null" for branch in branches
    )
    default = member.get(avro.DEFAULT)
    if isinstance(default, str) and field.type == "bytes":
        default = default.encode(
            "latin-1", "replace"
        )  # a code point for each byte (Avro specification, Complex Types)
    elif isinstance(default, Number):
        default = int(default) if integer(default) is not None else float(default)
    return field._replace(
        optional=optional, default=None if default is None else FieldDefault(default, plain=True)
    )


def _value(schema: avro.AvroSchema, optional: Any) -> Mapping[str, Any]:
    """The object of a type; the one that is not null of an optional type."""
    resolved = schema.resolved(optional)
    if isinstance(resolved, list):
        branches = [branch for branch in resolved if schema.resolved(branch)["type"] != "null"]
        resolved = schema.resolved(branches[0]) if len(branches) == 1 else {"type": "union"}
    return resolved  # type: ignore[no-any-return]


def _field(schema: avro.AvroSchema, name: str, optional: Any) -> Field:
    props = _value(schema, optional)
    parameters = props.get("connect.parameters")
    semantic = props.get("connect.name")
    if semantic is None and props.get("logical") in LOGICAL:
        semantic = LOGICAL[props["logical"]]
        parameters = {"scale": props.get("scale", 0), "connect.decimal.precision": props.get("precision", "")}
    items = props.get("items") or props.get("values")
    return Field(
        name=name,
        type=str(props.get("connect.type") or PHYSICAL.get(props["type"], props["type"])),
        semantic=str(semantic or ""),
        parameters={key: str(value) for key, value in (parameters or {}).items()},
        fields=(_field(schema, "", items),) if items else (),
    )
