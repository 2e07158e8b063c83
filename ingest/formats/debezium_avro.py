"""Debezium in framed Avro: Confluent's converter with a schema registry.

Documents: Debezium ``configuration/avro.adoc``; Confluent's wire format. What the events mean is Debezium's
and is read there; here is only how they are written:

- A byte 0, the schema's id as four big-endian bytes, then one datum. The key is framed likewise, with
  a schema of its own; where it is JSON it is read as JSON.
- Connect's types and semantic names are given next to the Avro ones as ``connect.type``, ``connect.name`` and
  ``connect.parameters``. Avro's own logical types are the fallback.
- Names that Avro does not allow were changed by the connector before sending.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ingest.change import Change, Hints, Image, Message, TableHints
from ingest.decoding import avro, connect, json_values
from ingest.decoding.connect import Field, FieldDefault, meanings
from ingest.decoding.debezium_events import control
from ingest.decoding.declared_values import compact, plain_text
from ingest.errors import Undecodable
from ingest.formats import About, SharedEvidence, debezium
from ingest.values import Number, integer

ABOUT: About = replace(
    debezium.ABOUT,
    title="Debezium Avro with a schema registry",
    document="Debezium documentation, Avro serialization; Confluent wire format",
    types="the registry's schema",
    framing="length",
    binary=True,
)

PHYSICAL = {"int": "int32", "long": "int64", "enum": "string", "fixed": "bytes", "record": "struct"}
LOGICAL = {
    "decimal": "org.apache.kafka.connect.data.Decimal",
    "date": "org.apache.kafka.connect.data.Date",
    "time-millis": "org.apache.kafka.connect.data.Time",
    "time-micros": "io.debezium.time.MicroTime",
    "timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
}
"""Avro's logical types as the semantic names of the same encoding."""


def parse(message: Message, hints: Hints) -> Iterable[Change]:
    """The change of one framed datum; a DDL message may name several tables and gives one for each."""
    if message.value is None:
        return [debezium.no_value(message, _key(message.key, hints), hints)]
    text, row = unframed(message.value, hints)
    if row is None:
        return [debezium.no_value(message, _key(message.key, hints), hints)]
    if not isinstance(row, dict):
        raise Undecodable("not-this-format", "the datum is not a record")
    kind = debezium.kind_of(row, hints)
    if kind == "row":
        return [debezium.wrapped_row(AVRO, text, row, message, hints)]
    if kind == "flat":
        return [debezium.flat_row(AVRO, text, row, message, hints)]
    return control(kind, json_values.object_of(compact(row).encode()))


def unframed(data: bytes, hints: Hints) -> tuple[str, Any]:
    """The schema's text and the value of one framed datum."""
    if len(data) < 5 or data[0] != 0:
        raise Undecodable("no-frame", "the value does not begin with a zero byte and a schema id")
    if hints.schema is None:
        raise Undecodable("unknown-schema", "the source has no registry: to look up schemas in")
    number = int.from_bytes(data[1:5], "big")
    try:
        text = hints.schema(number)
    except KeyError:
        raise Undecodable("unknown-schema", f"the registry does not know schema {number}") from None
    return text, avro.read(avro.load(text), data[5:])


def _key(key: bytes | None, hints: Hints, declared: TableHints | None = None) -> Image | None:
    """The key's columns from framed Avro or JSON; None where it is neither."""
    if not key or key[0] != 0:
        return debezium.json_key(key, hints, declared)
    try:
        text, parsed = unframed(key, hints)
        columns = declared.columns if declared else {}
        plan = connect.plan(text, _row_fields, columns, meanings, debezium.reading(hints.options))
    except Undecodable:
        return None
    return connect.plain_image(parsed, plan) if isinstance(parsed, dict) else None


def _image(row: Any, plan: connect.ConnectPlan) -> Image | None:
    if row is None:
        return None
    if not isinstance(row, dict):
        raise Undecodable(
            "unsupported-source", "an image that is not a record is a MongoDB document, not a row"
        )
    return connect.plain_image(row, plan)


def _texts(record: Any) -> Image:
    return {name: plain_text(value) for name, value in record.items()} if isinstance(record, dict) else {}


# --- schemas ------------------------------------------------------------------------------------


def _row_fields(text: str) -> tuple[Field, ...]:
    schema = avro.load(text)
    return _fields(schema, _value(schema, schema.root))


def _envelope_fields(text: str) -> tuple[Field, ...]:
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


AVRO = debezium.Encoding(
    text=plain_text,
    texts=_texts,
    image=_image,
    columns=connect.plain_image,
    key=_key,
    envelope_fields=_envelope_fields,
    row_fields=_row_fields,
)


def recognise(sample: bytes) -> str | None:
    """Without the registry only the frame can be seen, and texts; a bare datum, or another sender's, may begin like one."""
    if len(sample) <= 5 or sample[0] != 0 or sample[5:6] in (b"{", b"["):  # JSON has this frame, too
        return None
    number = int.from_bytes(sample[1:5], "big")
    if number and (source := _SOURCE.search(sample, 5)):
        return f"a zero byte, schema id {number} and the connector {source[1].decode()}"
    return SharedEvidence(f"perhaps a zero byte and schema id {number}")


_SOURCE = re.compile(
    rb"\.(?:Final|CR[0-9]|Beta[0-9]|Alpha[0-9])"  # Debezium's version, and the connector's name after its length
    rb"(?:\x0a(?=mysql)|\x0e(?=mariadb)|\x14(?=postgresql)|\x0c(?=oracle)|\x12(?=sqlserver)|\x06(?=db2))"
    rb"(mysql|mariadb|postgresql|oracle|sqlserver|db2)"
)
