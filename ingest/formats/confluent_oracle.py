"""Confluent's Oracle CDC source connector, JSON (its documentation, "Configuration Reference", the ``output.*`` properties).

A message is the row, with metadata next to its columns: ``table``, ``op_type``, ``scn``, ``op_ts``, ``current_ts``, ``row_id``
and ``username``. Quirks:

- ``scn`` is that of the change, not of its commit. For one row it never goes back, because the row is locked until the commit;
  several changes may share one, and then arrival decides.
- A row of the snapshot is R; it has no ``row_id``, ``op_ts`` and ``username``, but an ``scn``.
- The row before a change is sent only where ``output.before.state.field`` names a member for it; without it a changed key
  leaves its old row. ``output.data.value.field`` may put the row into a member of its own.
- The record's key names the columns of a composite key; that of one column is its value alone.
- Connect's converter writes with its schema around the row unless ``schemas.enable`` is off.
- Connect's decimals are bytes in base64 unless the connector maps numbers otherwise (``numeric.mapping``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from msgspec import Raw
from msgspec.json import encode
from msgspec.structs import replace

from ingest import values
from ingest.change import Change, ColumnSchema, Hints, Image, Message, Op, TableId
from ingest.decoding import connect, json_values, rows
from ingest.errors import Undecodable
from ingest.formats import About
from ingest.values.remembered import remembered

ABOUT = About(
    title="Confluent Oracle CDC source connector, JSON",
    document="Confluent, Oracle CDC Source Connector: Configuration Reference",
    operations=("insert", "update", "delete", "read", "truncate"),
    order="scn; arrival among the changes of one scn",
    strength="weak",
    keys="the record's key, if it has several columns; else `keys:` of the pipeline file",
    types="none in the message: only `columns:` of the pipeline file",
    images="full (supplemental logging of all columns)",
    ddl="none",
    losses=(
        "DDL is not sent.",
        "Without `output.before.state.field` the key before a change is not sent, so that the old row stays.",
        "Several changes may share one scn: a table must stay in one partition.",
    ),
    options={
        "before_image": "the member that holds the row before, default before",
        "after_image": "the member that holds the row, if it is not next to the metadata",
        "table": "the table of messages that name none",
        "timezone": "zone of times that name none, default UTC",
        "binary": "encoding of bytes, default base64",
        "time_units": "unit of whole-number times, default millis, as Connect counts",
        "order_by": "sequence (default), arrival or event_time",
    },
    bytes_as="base64",
    shared_reads=True,
)

OPS = {"R": Op.READ, "I": Op.INSERT, "U": Op.UPDATE, "D": Op.DELETE, "T": Op.TRUNCATE}
Converts = tuple[tuple[str, rows.Convert], ...]
METADATA = frozenset("table op_type scn op_ts current_ts row_id username redo undo".split())
ALWAYS = frozenset({"op_type", "scn"})
MARKS = frozenset({"op_type", "table", "scn"})
MILLIS = 1000


class OracleRecord(NamedTuple):
    """A message in its parts; ``old`` and ``row`` are the images as sent, None where nothing is unusual."""

    metadata: Mapping[str, str | None]
    before: Image | None
    image: Image | None
    old: Raw | None = None
    row: Raw | None = None
    schema: bytes = b""
    note: str | None = None


def parse(message: Message, hints: Hints) -> Iterable[Change]:
    """The change of one message."""
    names = hints.options.extra
    record = _usual(message.sent, names) or _read(message.sent, names)
    place = _place(record.metadata, record.note)
    if place.op is Op.TRUNCATE:
        return (replace(place, table=rows.named_table(place.table, hints, message.topic)),)
    return (_row(place, record, message, hints),)


def _usual(value: bytes, names: Mapping[str, str]) -> OracleRecord | None:
    """A message without Connect's schema, read in one pass; None if anything in it is unusual."""
    before, after = names.get("before_image", "before"), names.get("after_image", "")
    members = values.usual_image(value, *filter(None, (before, after)))
    if members is None or not members.keys() >= ALWAYS:
        return None
    metadata = {name: members.pop(name) for name in METADATA if name in members}
    old = members.pop(before) if isinstance(members.get(before, ""), dict | None) else None
    row = members.get(after) if after else members or None
    return OracleRecord(metadata, old, row) if isinstance(row, dict | None) else None


def _read(value: bytes, names: Mapping[str, str]) -> OracleRecord:
    """A message in any form, with Connect's schema or without."""
    opened, note = values.opened(value)
    envelope = _payload(opened)
    if not envelope.keys() >= ALWAYS:
        raise Undecodable("not-this-format", "op_type or scn is missing")
    old, row = _images(envelope, names)
    metadata = {name: values.text(envelope[name]) for name in METADATA if name in envelope}
    images = values.optional_image(old), values.optional_image(row)
    return OracleRecord(metadata, *images, old, row, _schema(opened), note)


def recognise(sample: bytes) -> str | None:
    """The metadata's names, with or without Connect's schema around the row."""
    envelope = _payload(values.opened(sample)[0])
    is_loaded = values.member_text(envelope, "op_type") == "R"  # has no row_id
    is_marked = envelope.keys() >= MARKS and ("row_id" in envelope or is_loaded)
    return f"op_type, table, scn and {'the operation R' if is_loaded else 'row_id'}" if is_marked else None


def _payload(envelope: Mapping[str, Raw]) -> Mapping[str, Raw]:
    """The row and its metadata, out of Connect's schema if it is around them."""
    if envelope.keys() == {"schema", "payload"} and bytes(envelope["payload"])[:1] == b"{":
        return values.members(envelope["payload"])
    return envelope


def _schema(envelope: Mapping[str, Raw]) -> bytes:
    """Connect's schema around the row; empty without one."""
    return bytes(envelope["schema"]) if envelope.keys() == {"schema", "payload"} else b""


@remembered(256)
def _described(
    schema: bytes, member: str, plan: tuple[Converts, tuple[str, ...]]
) -> Mapping[str, ColumnSchema]:
    """What a schema says of the row's columns, which are next to the metadata or in a member of their own."""
    fields = connect.row_fields(schema)
    if member:
        fields = next((field.fields for field in fields if field.name == member), ())
    reading = rows.RowPlan({}, plan[0], bits=plan[1])

    return {
        field.name: connect.column_schema(field, partial(_text, reading, field.name))
        for field in fields
        if field.optional is not None and field.name not in METADATA
    }


def _text(reading: rows.RowPlan, name: str, value: object) -> str | None:
    """A column's value as its canonical text."""
    image = {name: json_values.text(value)}
    rows.convert(image, reading)
    return image[name]


def _place(metadata: Mapping[str, str | None], note: str | None) -> Change:
    position = metadata["scn"] or None
    sequence = rows.numbered(position)
    clock = values.integer(metadata.get("op_ts"))
    return Change(
        op=rows.operation(OPS, metadata["op_type"] or "", "op_type"),
        table=_table(metadata.get("table")),
        sequence=sequence,
        position=position,
        event_time=values.clock_of(clock, MILLIS),
        note=note if sequence else rows.noted(note, "the scn is missing or unreadable, arrival decides"),
        dialect="oracle",
    )


@remembered(4096)
def _table(name: str | None) -> TableId:
    """``ORCL.ADMIN.USERS`` is a database, a schema and a table."""
    parts = (name or "").split(".", 2)  # a table's quoted name may have dots
    if len(parts) == 3:
        return TableId.named(*parts)
    if len(parts) == 2:
        return TableId.named(parts[0], None, parts[1])
    return TableId.named(None, None, parts[0])


def _row(place: Change, record: OracleRecord, message: Message, hints: Hints) -> Change:
    table = rows.named_table(place.table, hints, message.topic)
    declared = hints.tables(table)
    plan = rows.plan_of_declared(declared.columns, hints.options, whole=MILLIS)
    if plan.bits and plan.of(record.image or record.before or {}).bits:  # number or text? only the bytes say
        record = _read(message.sent, hints.options.extra)
    _, before, image, old, row, schema, _ = record
    kept = rows.convert_both(before, image, plan, old, row)
    keys = declared.keys or _keys(message.key, image or before or {})
    if place.op is Op.DELETE:
        gone = {**(image or {}), **(before or {})} or None
        rows.require_image(gone, place.op)
        return rows.finish(place, table, keys, gone, None, plan, kept)
    rows.require_image(image, place.op)
    if schema:
        member = hints.options.extra.get("after_image", "")
        place = replace(place, schema=_described(schema, member, (plan.converts, plan.bits)))
    before, image = rows.images_of(place.op, before, image)
    return rows.finish(place, table, keys, before, image, plan, kept)


def _images(envelope: Mapping[str, Raw], names: Mapping[str, str]) -> tuple[Raw | None, Raw | None]:
    """The row before, and the row, which is next to the metadata or in a member of its own."""
    before, after = names.get("before_image", "before"), names.get("after_image")
    old = envelope.get(before)
    is_image = old is not None and bytes(old)[:1] in (b"{", b"n")
    if after is not None:
        return (old if is_image else None), envelope.get(after)
    columns = {
        name: raw
        for name, raw in envelope.items()
        if name not in METADATA and not (name == before and is_image)
    }
    return (old if is_image else None), Raw(encode(columns)) if columns else None


def _keys(key: bytes | None, image: Mapping[str, str | None]) -> tuple[str, ...]:
    """The key's columns from the record's key, if it is an object of columns of the row."""
    names = connect.json_key_columns(key)
    return names if image.keys() >= {*names} else ()
