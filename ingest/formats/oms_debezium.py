"""OceanBase Migration Service, serializer Debezium (OMS "Data formats", section Debezium JSON).

- ``{"payload"}``, or ``{"schema", "payload"}`` where the user asks for it; ``op`` c, u, d, HEARTBEAT.
- The schema has only physical types: an ``int32`` may count days. ``columns:`` says what it means.
- The document's table of types: DATE counts days, TIME microseconds, DATETIME milliseconds without
  a zone, TIMESTAMP is UTC text, DECIMAL and large BIGINT are text, bytes are Base16.
- ``pos`` is ``left@right``. By the document these are the log file's name and the offset in it; where the left part ends like the name of a
  file, its number counts first. The document prints two numbers: the right one grows, the left one counts inside it, so the
  order is (right, left). It masks some of them: then there is none.
- ``ts_ms`` is called seconds and holds milliseconds; its size shows it. Zero means full load.
- An unchanged large value is sent as NULL on both sides of an update.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from ingest import types
from ingest.change import Change, Hints, Image, Message, Op, Options, TableId
from ingest.decoding import connect, json_values
from ingest.decoding.connect import ConnectPlan, Field, Meaning
from ingest.decoding.debezium_events import file_number
from ingest.decoding.declared_values import Reading
from ingest.decoding.json_values import Values, text, texts
from ingest.decoding.rows import drop_hidden, named_table, noted, operation, require_images
from ingest.errors import Undecodable
from ingest.formats import About
from ingest.images_before import ImagesBefore
from ingest.values import integer, micros_of

ABOUT = About(
    title="OceanBase OMS, Debezium with payload or with schema and payload",
    document="OMS Data formats, section Debezium JSON message format",
    operations=("insert", "update", "delete", "heartbeat"),
    order="pos, read as right part, then left part; as file and offset where it names a log file",
    strength="strong",
    keys="the Kafka key's columns where it is a JSON object, else keys:",
    types="the schema's physical types where it is sent; else columns:",
    images="full (unchanged large values of updates may be missing)",
    ddl="none",
    losses=(
        "A message with only a payload has no types, and a schema has only physical ones.",
        "BINARY values are padded with zero bytes on the right.",
        "Oracle tenants are not documented for this serializer.",
    ),
    options={
        "timezone": "UTC; the zone of timestamp texts without one",
        "binary": "base16; how bytes are written",
        "time_units": "millis; what bare numbers in columns declared datetime or timestamp count",
        "order_by": "sequence",
    },
    bytes_as="base16",
    by_keys=(Op.UPDATE,),
    before=ImagesBefore(hides_large=True, renumbers=True),
)

OPS = {"c": Op.INSERT, "u": Op.UPDATE, "d": Op.DELETE, "r": Op.READ, "HEARTBEAT": Op.HEARTBEAT}


def parse(message: Message, hints: Hints) -> Iterable[Change]:
    if json_values.is_null(message.value):
        return [Change(op=Op.CONTROL, note="tombstone")]
    document, note = json_values.repaired(message.sent, json_values.unwrapped)
    payload = document.payload
    if not document.wrapped:
        raise Undecodable("not-this-format", "the message has no payload")
    if payload is None:
        return [Change(op=Op.CONTROL, note="tombstone")]
    return [event(document.schema, payload, message, hints, note)]


def event(schema: bytes, members: Values, message: Message, hints: Hints, note: str | None) -> Change:
    """The change of one event's members; the flattened serializer sends them without a wrapper."""
    if "op" not in members:
        raise Undecodable("not-this-format", "the message has no op")
    op, source = operation(OPS, text(members["op"]) or "", "op"), texts(members.get("source"))
    if op is Op.HEARTBEAT:
        return Change(op=op, event_time=_micros(source.get("ts_ms") or text(members.get("ts_ms"))))
    name = source.get("table")
    table = named_table(TableId(source.get("db"), None, name), hints, message.topic)
    declared = hints.tables(table)
    plan = connect.plan(schema, connect.envelope_fields, declared.columns, no_meaning, reading(hints.options))
    before, after = _image(members.get("before"), plan), _image(members.get("after"), plan)
    require_images(before, after, op)
    after = None if op is Op.DELETE else after
    keys = declared.keys or connect.json_key_columns(message.key)

    def hides(name: str) -> bool:
        return name not in keys and types.base(plan.types.get(name, "unknown")) in types.LOB

    hidden = drop_hidden(op, before, after, hides)
    sequence, unread = _sequence(source)
    return Change(
        op=op,
        table=table,
        keys=keys,
        before=before,
        after=after,
        types=plan.types,
        schema=plan.schema,
        partial=hidden is not None,
        phase=1 if sequence or source.get("pos") else 0,  # without both it is a row of the full load
        sequence=sequence,
        position=source.get("pos"),
        event_time=_micros(source.get("ts_ms")),
        note=noted(note, unread, hidden),
    )


def _sequence(source: Image) -> tuple[tuple[int, ...], str | None]:
    """The place in ``pos``; without it the row's own second; a masked one is no place.

    The document calls it the log file's name and the offset in it, and prints numbers, of which the right one grows.
    """
    position = source.get("pos")
    if not position:
        micros = _micros(source.get("ts_ms"))
        return ((micros // 10**6, 0) if micros else ()), None
    left, _, right = position.partition("@")
    file, numbers = file_number(left), (integer(right), integer(left))
    if file is not None:
        numbers = file, numbers[0]
    if numbers[0] is None or numbers[1] is None:
        return (), "the position cannot be read"
    return (numbers[0], numbers[1]), None


def _micros(stamp: str | None) -> int | None:
    number = integer(stamp)
    return micros_of(number, 1000 if number and abs(number) >= 10**11 else 1) or None


def no_meaning(_field: Field) -> Meaning | None:
    """The schema has no semantic names."""
    return None


@lru_cache(maxsize=64)
def _reading(binary: str, datetime: str, timezone: str) -> Reading:
    return Reading(binary, "big", "micros", datetime, timezone, schema_bytes=binary)


def reading(options: Options) -> Reading:
    """How bare values read here: TIME is microseconds by the document, whatever DATETIME counts."""
    return _reading(options.binary or "base16", options.time_units or "millis", options.timezone)


def _image(row: object, plan: ConnectPlan) -> Image | None:
    if row is not None and not isinstance(row, dict):
        raise Undecodable("bad-message", "an image is not a JSON object")
    return None if row is None else connect.json_image(row, plan)


def recognise(sample: bytes) -> str | None:
    """The constant source name OMS inside a payload."""
    document, _note = json_values.repaired(sample, json_values.unwrapped)
    return evidence(document.payload) if document.wrapped else None


def evidence(members: Values | None) -> str | None:
    """What shows an event to be of OMS."""
    if not members or "op" not in members:
        return None
    if text(members["op"]) == "HEARTBEAT":
        return "op 'HEARTBEAT'"
    return "source.name 'OMS'" if texts(members.get("source")).get("name") == "OMS" else None
