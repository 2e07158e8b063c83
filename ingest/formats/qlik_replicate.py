"""Qlik Replicate (formerly Attunity) to Kafka and its kin, JSON ("The Replicate envelope", "Metadata and data messages").

An envelope ``{"magic": "atMSG", "type": "DT", "message": {...}}`` holds a data message: ``data``, ``beforeData`` and ``headers``.
Where the endpoint leaves out the envelope, the data message comes alone. Quirks:

- ``headers.changeSequence`` orders all changes of a task: sixteen digits of a clock that never goes back, then a counter.
- The rows of a full load (REFRESH) have none: they come before all changes.
- By default neither schema nor table is in a data message; the option ``table`` then names the table of a topic.
- ``columnMask`` says in hexadecimal, the lowest byte first, which of the row's columns the message carries: a column
  without its bit is absent, though it is written as null.
- A deleted row is in ``beforeData``, or in ``data`` where the source gives no image before.
- A message of type MD describes a table. It is no statement: what became of the rows, it does not say.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import UNSET, UnsetType

from ingest import values
from ingest.change import NO_TABLE, Change, Hints, Image, Message, Op, TableId
from ingest.ddl import TableStructure
from ingest.decoding import rows
from ingest.decoding.replicate_types import HEX, logical
from ingest.errors import Undecodable
from ingest.formats import About
from ingest.images_before import ImagesBefore
from ingest.values.json_records import Kept, RecordReader, Text, no_record
from ingest.values.remembered import remembered

ABOUT = About(
    title="Qlik Replicate JSON",
    document="Qlik Replicate, Using Kafka as a target: envelope, metadata and data messages",
    operations=("insert", "update", "delete", "read", "ddl"),
    order="headers.changeSequence",
    strength="strong",
    keys="none with rows: `keys:` of the pipeline file, or a metadata message",
    types="none with rows: `columns:` of the pipeline file, or a metadata message",
    images="full (updates may be partial, which columnMask shows)",
    ddl="none; metadata messages describe a table",
    losses=(
        "Statements are not sent, TRUNCATE neither: a metadata message describes a table after a change of its structure.",
        "Schema and table are not sent unless the endpoint includes them.",
        "Values are as Replicate converted them to its own types.",
    ),
    options={
        "table": "the table of messages that name none, which is the default of the endpoint",
        "timezone": "zone of times that name none, default UTC",
        "binary": "encoding of bytes, default hex, with or without 0x",
        "time_units": "unit of whole-number times; without it they stay as they are",
        "order_by": "sequence (default), arrival or event_time",
    },
    bytes_as="hex",
    before=ImagesBefore(renumbers=True),
)

OPS = {
    "INSERT": Op.INSERT,
    "UPDATE": Op.UPDATE,
    "DELETE": Op.DELETE,
    "REFRESH": Op.READ,
}
MAGIC = "atMSG"
DATA, METADATA = "DT", "MD"
COUNTER = 19  # digits at the end of a changeSequence


class NamedRecord(msgspec.Struct, gc=False, rename="camel"):
    """What may name the table, in a message or in its headers, as the endpoint was set."""

    schema: Text = UNSET
    schema_name: Text = UNSET
    table: Text = UNSET
    table_name: Text = UNSET


class ChangeHeaders(NamedRecord):
    """The documented headers of a data message."""

    operation: Text = UNSET
    change_sequence: Text = UNSET
    timestamp: Text = UNSET
    stream_position: Kept = UNSET
    transaction_id: Text = UNSET
    change_mask: Kept = UNSET
    column_mask: Text = UNSET
    external_schema_id: Kept = UNSET
    transaction_event_counter: Kept = UNSET
    transaction_last_event: Kept = UNSET


class ReplicateMessage(NamedRecord):
    """The members of a data message or of a metadata message."""

    lineage: Kept = UNSET
    table_structure: Kept = UNSET
    data_schema: Kept = UNSET
    data: Kept = UNSET
    before_data: Kept = UNSET
    headers: ChangeHeaders | UnsetType | None = UNSET


class ReplicateEnvelope(ReplicateMessage):
    """The members of an envelope, and those of a message that comes without one."""

    magic: Text = UNSET
    type: Text = UNSET
    message: ReplicateMessage | UnsetType | None = UNSET
    message_schema_id: Kept = UNSET
    message_schema: Kept = UNSET


_records, _headers = RecordReader(ReplicateEnvelope), RecordReader(ChangeHeaders)


def parse(message: Message, hints: Hints) -> Iterable[Change]:
    """The change of one message, with or without the envelope."""
    if message.sent.startswith(MAGIC.encode()):
        raise Undecodable("avro-envelope", "the envelope is Avro: set the endpoint's message format to JSON")
    envelope, note = _records.read(message.sent)
    kind, content = _opened(envelope)
    if kind == METADATA:
        return (_description(content, hints, note),)
    if kind != DATA:
        raise Undecodable("unknown-operation", f"the message type {kind[:40]!r} is not documented")
    headers = content.headers
    if other := no_record(headers):
        _headers.read(other)  # refuses it as such
    if not isinstance(headers, ChangeHeaders) or headers.operation is UNSET:
        raise Undecodable("not-this-format", "headers.operation is missing")
    place = _place(headers, content, note)
    return (_row(place, headers, content, hints, message.topic),)


def recognise(sample: bytes) -> str | None:
    """The envelope's constant, or a data message alone by its headers."""
    seen, _note = values.opened(sample)
    if values.member_text(seen, "magic") == MAGIC and "message" in seen:
        return "the envelope atMSG"
    headers = values.bare_image(seen["headers"]) if {"data", "headers"} <= seen.keys() else {}
    return "data and headers.changeSequence" if {"operation", "changeSequence"} <= headers.keys() else None


def _opened(envelope: ReplicateEnvelope) -> tuple[str, ReplicateMessage]:
    """What kind of message it is, and the message inside the envelope."""
    if envelope.magic is UNSET:
        return (METADATA if envelope.table_structure is not UNSET else DATA), envelope
    inside = envelope.message
    if no_record(inside)[:1] == b'"':
        raise Undecodable(
            "avro-envelope", "the envelope's message is no JSON: set the endpoint's message format to JSON"
        )
    if envelope.magic != MAGIC or not isinstance(inside, ReplicateMessage):
        raise Undecodable("not-this-format", f"an envelope without the constant {MAGIC} or without a message")
    return envelope.type or "", inside


def _place(headers: ChangeHeaders, content: NamedRecord, note: str | None) -> Change:
    op = rows.operation(OPS, headers.operation or "", "headers.operation")
    position = headers.change_sequence or None
    sequence = change_sequence(position)
    return Change(
        op=op,
        table=_table(headers, content),
        sequence=sequence,
        position=position,
        phase=0 if op is Op.READ and not sequence else 1,
        event_time=rows.moment(headers.timestamp or None, "UTC"),
        transaction=headers.transaction_id or None,
        note=rows.noted(note, rows.unreadable(position, sequence)),
    )


def change_sequence(text: str | None) -> tuple[int, ...]:
    """A clock and a counter of ``20240610061320250000000000000000042``, else nothing."""
    if not text or not text.isascii() or not text.isdigit() or len(text) > 2 * COUNTER:
        return ()
    return int(text[:-COUNTER] or 0), int(text[-COUNTER:])


def _table(*places: NamedRecord) -> TableId:
    """The table that a message names in its headers or next to its images, as the endpoint was set."""
    names = [name for place in places for name in (place.table, place.table_name) if name is not UNSET]
    if not names or not names[0]:
        return NO_TABLE
    owners = [name for place in places for name in (place.schema, place.schema_name) if name is not UNSET]
    return TableId.named(owners[0] if owners else None, None, names[0])


def _row(
    place: Change, headers: ChangeHeaders, content: ReplicateMessage, hints: Hints, topic: str
) -> Change:
    new, old = content.data or None, content.before_data or None
    after, before = values.optional_image(new), values.optional_image(old)
    mask = headers.column_mask or None
    table = rows.named_table(place.table, hints, topic)
    declared = hints.tables(table)
    plan = rows.plan_of_declared(declared.columns, hints.options, binary=HEX)
    if place.op is Op.DELETE:
        _without_absent(before if after is None else after, mask)
        kept = rows.convert_both(before, after, plan, old, new)
        before, after = {**(after or {}), **(before or {})} or None, None
        rows.require_image(before, place.op)
        return rows.finish(place, table, declared.keys, before, None, plan, kept)
    rows.require_image(after, place.op)
    whole = _without_absent(after, mask)
    kept = rows.convert_both(before, after, plan, old, new)
    partial = place.op is Op.UPDATE and not whole
    before, after = rows.images_of(place.op, before, after)
    return rows.finish(place, table, declared.keys, before, after, plan, kept, partial=partial)


def _without_absent(image: Image | None, mask: str | None) -> bool:
    """Take the columns out whose bit is not set and that are written as null; True if the row is whole.

    A bit belongs to a column by its place in the table. Where the row has fewer columns than the mask has bits, the writer
    left out the absent ones itself.
    """
    if not image or not mask:
        return False
    try:
        bits = int.from_bytes(bytes.fromhex(mask), "little")
    except ValueError:
        return False
    if bits.bit_length() > len(image):
        return False
    absent = [
        name for place, (name, value) in enumerate(image.items()) if value is None and not bits >> place & 1
    ]
    for name in absent:
        del image[name]
    return not absent


def _description(content: ReplicateMessage, hints: Hints, note: str | None) -> Change:
    """A table's structure, which changes no rows: silver keeps it as a connector's own description."""
    if content.lineage is UNSET or content.table_structure is UNSET:
        raise Undecodable("bad-message", "a metadata message lacks lineage or tableStructure")
    lineage = _headers.read(content.lineage)[0]
    table = _table(lineage)
    structure = _structure(bytes(content.table_structure), hints.options.binary or HEX)
    if table is NO_TABLE or structure is None:
        raise Undecodable("bad-message", "a metadata message names no table, or its columns cannot be read")
    return Change(
        op=Op.DDL,
        table=table,
        phase=0,
        event_time=rows.moment(lineage.timestamp or None, "UTC"),
        structure=structure,
        note=rows.noted(note, "snapshot of the table's structure"),
    )


@remembered(256)
def _structure(described: bytes, encoding: str) -> str | None:
    """A table's structure as `Change.structure` wants it; bytes are in ``encoding``."""
    structure = values.strict(described)
    try:
        columns = sorted(structure["tableColumns"].items(), key=lambda column: int(column[1]["ordinal"]))
        places = {name: int(column.get("primaryKeyPosition") or 0) for name, column in columns}
        types = {name: logical(column, encoding) for name, column in columns}
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return None
    keys = sorted((name for name, place in places.items() if place > 0), key=places.__getitem__)
    return TableStructure("CREATE", tuple(keys), types).text()
