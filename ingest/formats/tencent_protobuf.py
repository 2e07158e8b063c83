"""Protobuf of a Tencent Cloud DTS data subscription ("ProtoBuf Demo Description", documents 571/55396 and 571/93252).

The documents print the messages of ``subscribe.proto``; the numbers of those that they leave out are in the public
programs that were generated from it. An ``Envelope`` holds ``Entries``, and each entry is one event of the log.
Quirks:

- ``seqId`` increases over the whole stream and orders events; the rows of one event have one, so their number follows it.
- An event that does not fit one message is split over several envelopes, which the service sends one after the other;
  ``data`` of all, one after the other, is that of a whole one (`part`, `joined`).
- ``dataType`` says in which member a value is: numbers are texts in ``sv``, all other values bytes in ``bv``, which
  are text in ``charset``, or UTF-8 where none is sent. NIL is NULL, NA a column that was not sent.
- ``schemaName`` is a database of MySQL. Of PostgreSQL it is taken for the schema: which of the two it holds is not documented.
- A TIMESTAMP carries its zone: ``2021-05-17 07:22:42 +00:00``. Geometry is as MySQL stores it.
- HEARTBEAT and CHECKPOINT are the service's own marks, the latter every ten seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from msgspec.structs import replace

from ingest import types, values
from ingest.change import Change, Hints, Image, Message, Op, TableId
from ingest.decoding import converters, database_kinds, protobuf, rows
from ingest.decoding.flat_messages import mysql_types
from ingest.decoding.split import SPLIT, MessagePart
from ingest.errors import Undecodable, counted
from ingest.formats import About, SharedEvidence
from ingest.images_before import ImagesBefore
from ingest.values.charsets import decoded
from ingest.values.remembered import remembered

ABOUT = About(
    title="Tencent Cloud DTS, data subscription in Protobuf",
    document="Tencent Cloud DTS, ProtoBuf Demo Description (571/55396), subscribe.proto",
    operations=("insert", "update", "delete", "truncate", "ddl", "heartbeat", "begin", "commit", "control"),
    order="seqId, which increases over the whole stream, then the row's number in its event",
    strength="strong",
    keys="the columns marked isKey",
    types="originalType of each column, as its database declares it",
    images="full, before and after (columns that were not sent are missing)",
    ddl="sql",
    losses=(
        "There is no full load: the subscription begins with the changes of its day.",
        "Parts of an event that is larger than a Kafka message are set aside where two batches or two files have them: a replay joins those of batches.",
    ),
    options={
        "timezone": "zone of TIMESTAMP texts that name none (default UTC)",
        "order_by": "sequence (default), arrival or event_time",
    },
    framing="length",
    binary=True,
    before=ImagesBefore(renumbers=True),
)

VERSION = 1
BEGIN, COMMIT, ROWS, STATEMENT, ROLLBACK, HEARTBEAT, CHECKPOINT = range(7)
MARKS = {
    BEGIN: Op.BEGIN,
    COMMIT: Op.COMMIT,
    ROLLBACK: Op.CONTROL,
    HEARTBEAT: Op.HEARTBEAT,
    CHECKPOINT: Op.CONTROL,
}
NOTES = {ROLLBACK: "ROLLBACK", CHECKPOINT: "CHECKPOINT"}
ROW_EVENTS = (Op.INSERT, Op.UPDATE, Op.DELETE)
"""The operation of a ``DMLEvent`` by its number."""
DIALECTS = {0: database_kinds.ORACLE, 2: database_kinds.POSTGRES}
"""The dialect by ``sourceType``; every other number is MySQL or one of its kin."""
NULL, BYTES, TEXT, ABSENT = 0, 11, 13, 14


def parse(message: Message, hints: Hints) -> list[Change]:
    """The changes of an envelope's events; one event that cannot be read refuses all."""
    envelope = _envelope(message.sent)
    if envelope.total > 1:
        raise Undecodable(
            SPLIT,
            f"part {envelope.index + 1} of {envelope.total} of an event that does not fit one message, whose other parts are not "
            "all in this batch: when they have come, `ingest replay FILE` puts them together; if the service has sent the event again, "
            "dismiss this; if parts never come, take the rows from the database (`ingest reconcile FILE --repair`)",
        )
    changes: list[Change] = []
    for entry in _entries(envelope):
        changes += _changes(entry, hints, len(changes))
    return changes or [Change(op=Op.CONTROL, note="an envelope without entries")]


def part(value: bytes) -> MessagePart | None:
    """The part of an envelope that a message is; None if it is whole, or no envelope."""
    if value[:3] != _OF_VERSION or value[3:4] <= b"\x01":
        return None
    try:
        envelope = _envelope(value)
    except Undecodable:
        return None
    if not 1 < envelope.total <= _PARTS:
        return None
    return MessagePart(envelope.index, envelope.total, envelope.data, len(value))


_PARTS = 1 << 16  # the most of one event; a larger number is damage
_OF_VERSION = b"\x08\x01\x10"
"""How an envelope of version 1 begins; ``total`` follows, with more than a byte if it is large."""


def joined(parts: Sequence[bytes]) -> bytes:
    """The whole envelope that was split into these parts."""
    whole = SUBSCRIBE.read("Envelope", b"")
    whole.version, whole.total, whole.data = VERSION, 1, b"".join(parts)
    written: bytes = whole.SerializeToString()
    return written


def recognise(sample: bytes) -> str | None:
    """An envelope to the last byte, whose first entry has the header of an event; of a part only the envelope shows."""
    envelope = _envelope(sample)
    if envelope.total > 1:
        return SharedEvidence(
            f"perhaps part {envelope.index + 1} of {envelope.total} of a subscription's envelope"
        )
    entries = _entries(envelope)
    return (
        f"a subscription's envelope with {counted(len(entries), 'entry', 'entries')}"
        if entries and entries[0].header.seqId
        else None
    )


# --- the layers ---------------------------------------------------------------------------------

SUBSCRIBE = protobuf.MessageTypes(
    "subscribe.proto",
    {
        "Envelope": {
            1: "int64 version",
            2: "uint64 total",
            3: "uint64 index",
            4: "bytes data",
            15: "repeated bytes properties",
        },
        "Packet": {5: "bytes body"},
        "Entries": {1: "repeated Entry items"},
        "Entry": {1: "Header header", 2: "Event event"},
        "Header": {
            1: "int64 version",
            2: "uint64 sourceType",
            3: "uint64 messageType",
            4: "uint64 timestamp",
            5: "int64 serverId",
            6: "string fileName",
            7: "uint64 position",
            8: "string gtid",
            9: "string schemaName",
            10: "string tableName",
            11: "uint64 seqId",
            12: "uint64 eventIndex",
            13: "bool isLast",
            15: "repeated bytes properties",
        },
        "Event": {
            1: "bytes beginEvent",
            2: "DMLEvent dmlEvent",
            3: "bytes commitEvent",
            4: "DDLEvent ddlEvent",
            5: "bytes rollbackEvent",
            6: "bytes heartbeatEvent",
            7: "bytes checkpointEvent",
        },
        "DMLEvent": {1: "uint64 dmlEventType", 2: "repeated bytes columns", 3: "repeated RowChange rows"},
        "DDLEvent": {1: "string schemaName", 2: "string sql", 3: "uint64 executionTime"},
        "Column": {1: "string name", 2: "string originalType", 3: "bool isKey"},
        "RowChange": {1: "repeated bytes oldColumns", 2: "repeated bytes newColumns"},
        "Data": {1: "uint64 dataType", 2: "string charset", 3: "string sv", 4: "bytes bv"},
    },
)
"""What is in it; a text that is not read stays bytes. A ``Packet`` is a message of Canal's. ``data`` is documented as bytes; a column's description and a value stay bytes, which are compared."""


def _envelope(data: bytes) -> Any:
    try:
        envelope = SUBSCRIBE.read("Envelope", data)
    except Undecodable:
        _refuse_packet(data)
        raise
    if not envelope.HasField("data"):
        _refuse_packet(data)
    if (
        envelope.version != VERSION
        or not envelope.HasField("data")
        or envelope.index >= max(envelope.total, 1)
    ):
        raise Undecodable("not-this-format", f"no envelope of a subscription of version {VERSION}")
    return envelope


def _refuse_packet(data: bytes) -> None:
    """Refuse a message of Canal's by its name."""
    try:
        is_packet = SUBSCRIBE.read("Packet", data).body
    except Undecodable:
        return
    if is_packet:
        raise Undecodable("another-protobuf", "a packet of Canal: write `format: canal-protobuf`")


def _entries(envelope: Any) -> Any:
    return SUBSCRIBE.read("Entries", envelope.data).items


# --- its changes --------------------------------------------------------------------------------


def _changes(entry: Any, hints: Hints, row: int) -> Sequence[Change]:
    """The changes of one event, of which ``row`` is the number of the first in its envelope."""
    if not entry.HasField("header"):
        raise Undecodable("not-this-format", "an entry has no header")
    header = entry.header
    kind = header.messageType
    if kind == ROWS:
        return _rows(header, _member(entry, "dmlEvent"), hints, row)
    if kind == STATEMENT:
        changes = _statement(header, _member(entry, "ddlEvent"))
        return [replace(change, row=row + change.row) for change in changes]
    if kind in MARKS:
        return [_place(header, MARKS[kind], row, NOTES.get(kind))]
    raise Undecodable("unknown-operation", f"message type {kind} is not documented")


def _member(entry: Any, name: str) -> Any:
    if not entry.event.HasField(name):
        raise Undecodable("bad-message", f"an entry has no {name}")
    return getattr(entry.event, name)


def _place(header: Any, op: Op, row: int, note: str | None) -> Change:
    source, file, sequence, seconds = header.sourceType, header.fileName, header.seqId, header.timestamp
    return Change(
        op=op,
        table=_table(source, header.schemaName, header.tableName),
        sequence=(sequence,) if sequence else (),
        row=row,
        position=f"{file}:{header.position}" if file else None,
        event_time=values.clock_of(seconds, 1),
        transaction=header.gtid or None,
        dialect=DIALECTS.get(source, database_kinds.MYSQL),
        note=note,
    )


def _unplaced(header: Any) -> str | None:
    """The note of an event without its place."""
    return None if header.seqId else "seqId is missing, arrival decides"


def _statement(header: Any, event: Any) -> Sequence[Change]:
    table = _table(header.sourceType, event.schemaName or header.schemaName, header.tableName)
    place = replace(_place(header, Op.DDL, 0, _unplaced(header)), table=table)
    return rows.statement(place, event.sql or None, None)


@remembered(4096)
def _table(source: int, name: str, table: str) -> TableId:
    """The table of a header's ``schemaName`` and ``tableName``."""
    if DIALECTS.get(source) == database_kinds.POSTGRES:
        return TableId.named(None, name, table)
    return TableId.named(name, None, table)


def _rows(header: Any, event: Any, hints: Hints, row: int) -> list[Change]:
    if not event.dmlEventType < len(ROW_EVENTS):
        raise Undecodable("unknown-operation", f"a row event of type {event.dmlEventType} is not documented")
    op = ROW_EVENTS[event.dmlEventType]
    place = _place(header, op, row, _unplaced(header))
    if place.table.table is None:
        raise Undecodable("no-table", "an event of rows has no tableName")
    described = _described(tuple(event.columns[:]))
    declared = hints.tables(place.table)
    frame = _frame(
        described.types, tuple(declared.columns.items()), header.sourceType, hints.options.timezone
    )
    keys = declared.keys or described.keys
    changes = []
    for number, images in enumerate(event.rows):
        before, after = _images(images, frame.columns)
        is_partial = op is not Op.DELETE and after is not None and len(after) < len(described.names)
        kept = rows.convert_both(before, after, frame.plan)
        before, after = rows.images_of(op, before, after)
        rows.require_images(before, after, op)
        at = replace(place, row=row + number, sequence=(*place.sequence, number) if place.sequence else ())
        changes.append(
            rows.finish(at, place.table, keys, before, after, frame.plan, kept, partial=is_partial)
        )
    return changes


class DescribedColumns(NamedTuple):
    """A table's columns: their names, their types as their database declares them, and those of the key."""

    names: tuple[str, ...]
    types: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]


@remembered(1024)
def _described(columns: tuple[bytes, ...]) -> DescribedColumns:
    """What the columns say of themselves; `Undecodable` if one has no name, or two have the same."""
    described = []
    for place, column in enumerate(columns):
        described.append(SUBSCRIBE.read("Column", column))
        if not described[-1].name:  # at the first of maybe half a million
            raise Undecodable("bad-message", f"column {place} of an event has no name")
    names = tuple(column.name for column in described)
    if len({*names}) < len(names):
        raise Undecodable("duplicate-name", "a column occurs twice in columns")
    return DescribedColumns(
        names,
        tuple((column.name, column.originalType) for column in described),
        tuple(column.name for column in described if column.isKey),
    )


# --- values -------------------------------------------------------------------------------------

ReadBytes = Callable[[bytes, str], str]
"""The canonical text of a value's bytes, and their character set, if one is sent; a `ValueError` if it has none."""


class ValueReaders(NamedTuple):
    """How the rows of one list of columns are read."""

    plan: rows.RowPlan
    columns: tuple[tuple[str, ReadBytes], ...]


@remembered(1024)
def _frame(
    sent: tuple[tuple[str, str], ...], declared: rows.Declared, source: int, zone: str
) -> ValueReaders:
    kinds = database_kinds.TYPES.get(DIALECTS.get(source, ""), mysql_types)
    plan = rows.plan(kinds(dict(sent)), declared, zone)
    return ValueReaders(
        plan, tuple((name, _READERS.get(types.base(plan.types[name]), _text)) for name, _ in sent)
    )


def _text(data: bytes, charset: str) -> str:
    if not charset or charset == "utf8mb4":
        return data.decode("utf-8")
    return decoded(data, charset)


_geometry = converters.geometry("", converters.Settings(binary="base64"))
_READERS: dict[str, ReadBytes] = {
    "binary": lambda data, _charset: values.base64_text(data),
    "geometry": lambda data, _charset: _geometry(values.base64_text(data)),
    "bit": lambda data, _charset: str(int.from_bytes(data, "big")),
}


def _images(row: Any, columns: tuple[tuple[str, ReadBytes], ...]) -> tuple[Image | None, Image | None]:
    """A row before and after its change, None where it has none; most values do not change, and are read once."""
    old, new = row.oldColumns[:], row.newColumns[:]
    if (old and len(old) != len(columns)) or (new and len(new) != len(columns)):
        raise Undecodable(
            "bad-message", f"an image does not hold one value for each column (there are {len(columns)})"
        )
    before = _image(columns, old, repeat(None), {}) if old else None
    after = _image(columns, new, old or repeat(None), before or {}) if new else None
    return before, after


def _image(
    columns: tuple[tuple[str, ReadBytes], ...],
    cells: Sequence[bytes],
    was: Iterable[bytes | None],
    texts_before: Image,
) -> Image:
    """An image from its values; one that ``was`` the same before has its text of ``texts_before``."""
    image: Image = {}
    for (name, read), cell, old in zip(columns, cells, was, strict=False):
        if cell == old:
            if name in texts_before:
                image[name] = texts_before[name]
            continue
        value = _short_value(cell) or SUBSCRIBE.read("Data", cell)
        kind = value.dataType
        if kind == NULL:
            image[name] = None
        elif kind > ABSENT:
            raise Undecodable(
                "bad-value",
                f"the value of column {name[:80]!r} has the data type {kind}, which is not documented",
            )
        elif kind != ABSENT:
            try:
                image[name] = read(value.bv, value.charset) if kind in (BYTES, TEXT) else value.sv
            except ValueError as error:  # also bytes that are not of their character set
                raise Undecodable(
                    "bad-value", f"the value of column {name[:80]!r} cannot be read: {error}"
                ) from None
    return image


class ShortValue(NamedTuple):
    """A ``Data`` of fewer than 128 bytes."""

    dataType: int  # noqa: N815 - the names are those of the .proto
    charset: str
    sv: str
    bv: bytes


def _short_value(cell: bytes) -> ShortValue | None:
    """A value as nearly all are written, a number or a text in UTF-8; None for any other, which the library reads."""
    size = len(cell)
    if not 4 <= size < 128:
        return None
    if cell[0] == 0x08 and cell[2] == 0x1A and cell[3] == size - 4 and cell.isascii():
        return ShortValue(cell[1], "", cell[4:].decode("ascii"), b"")
    if size > len(_UTF8) and cell.startswith(_UTF8) and cell[12] == size - 13:
        return ShortValue(TEXT, "utf8mb4", "", cell[13:])
    return None


_UTF8 = b'\x08\x0d\x12\x07utf8mb4"'
"""What is before the length of such a text: its ``dataType`` and ``charset``."""
