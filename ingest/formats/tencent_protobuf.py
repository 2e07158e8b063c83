"""Protobuf of a Tencent Cloud DTS data subscription ("ProtoBuf Demo Description", documents 571/55396 and 571/93252).

The documents print the messages of ``subscribe.proto``; the numbers of those that they leave out are in the public
programs that were generated from it. An ``Envelope`` holds ``Entries``, and each entry is one event of the log.
Quirks:

- ``seqId`` increases over the whole stream and orders events; the rows of one event have one, so their number follows it.
- An event that does not fit one message is split over several envelopes, whose parts mean nothing by themselves.
- ``dataType`` says in which member a value is: numbers are texts in ``sv``, all other values bytes in ``bv``, which
  are text in ``charset``, or UTF-8 where none is sent. NIL is NULL, NA a column that was not sent.
- ``schemaName`` is a database of MySQL. Of PostgreSQL it is taken for the schema: which of the two it holds is not documented.
- A TIMESTAMP carries its zone: ``2021-05-17 07:22:42 +00:00``. Geometry is as MySQL stores it.
- HEARTBEAT and CHECKPOINT are the service's own marks, the latter every ten seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

from msgspec.structs import replace

from ingest import types, values
from ingest.change import Change, Hints, Image, Message, Op, TableId
from ingest.decoding import converters, database_kinds, protobuf, rows
from ingest.decoding.flat_messages import mysql_types
from ingest.errors import Undecodable
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
        "An event that is larger than a Kafka message is split over several, which are set aside.",
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
    if message.value is None:
        return list(rows.TOMBSTONE)
    envelope = _envelope(message.value)
    if envelope.total > 1:
        raise Undecodable(
            "split-message",
            f"part {envelope.part + 1} of {envelope.total} of an event that does not fit one message; "
            "parts are not read: take its rows from the database (`ingest reconcile FILE --repair`)",
        )
    entries = _entries(envelope.data)
    changes = list(chain.from_iterable(_changes(entry, hints) for entry in entries))
    if len(changes) == 1:
        return changes
    return [replace(change, row=row) for row, change in enumerate(changes)] or [
        Change(op=Op.CONTROL, note="an envelope without entries")
    ]


def recognise(sample: bytes) -> str | None:
    """An envelope to the last byte, whose first entry has the header of an event; of a part only the envelope shows."""
    try:
        envelope = _envelope(sample)
        if envelope.total > 1:
            return SharedEvidence(
                f"perhaps part {envelope.part + 1} of {envelope.total} of a subscription's envelope"
            )
        entries = _entries(envelope.data)
        header = _entry(entries[0]).header if entries else None
    except Undecodable:
        return None
    return f"a subscription's envelope with {len(entries)} entries" if header and header.sequence else None


# --- the layers ---------------------------------------------------------------------------------


class EnvelopePart(NamedTuple):
    """What Kafka carries: entries, or a part of the bytes of entries."""

    total: int
    part: int  # from 0
    data: bytes


def _envelope(data: bytes) -> EnvelopePart:
    version = total = index = 0
    content = None
    for number, value in protobuf.fields(data):
        if number == 1:
            version = protobuf.number_of(value, "version")
        elif number == 2:
            total = protobuf.number_of(value, "total")
        elif number == 3:
            index = protobuf.number_of(value, "index")
        elif number == 4 and isinstance(value, bytes):
            content = value
        elif number == 5 and content is None:
            raise Undecodable("another-protobuf", "a packet of Canal: write `format: canal-protobuf`")
    if version != VERSION or content is None or index >= max(total, 1):
        raise Undecodable("not-this-format", f"no envelope of a subscription of version {VERSION}")
    return EnvelopePart(total, index, content)


def _entries(data: bytes) -> list[bytes]:
    return protobuf.repeated(data, {1: "an entry"})[1]


class EventHeader(NamedTuple):
    """What an entry says of its event."""

    source: int
    kind: int
    seconds: int
    file: str
    offset: int
    transaction: str | None
    database: str | None
    table: str | None
    sequence: int


class SubscribedEvent(NamedTuple):
    """One event, and the members of its body by their numbers."""

    header: EventHeader
    body: bytes


def _entry(data: bytes) -> SubscribedEvent:
    header, body = None, b""
    for number, value in protobuf.fields(data):
        if number == 1:
            header = _header(protobuf.bytes_of(value, "header"))
        elif number == 2:
            body = protobuf.bytes_of(value, "event")
    if header is None:
        raise Undecodable("not-this-format", "an entry has no header")
    return SubscribedEvent(header, body)


_WORDS = {6: "fileName", 8: "gtid", 9: "schemaName", 10: "tableName"}
_COUNTS = {2: "sourceType", 3: "messageType", 4: "timestamp", 7: "position", 11: "seqId"}


def _header(data: bytes) -> EventHeader:
    words: dict[int, str] = {}
    counts: dict[int, int] = {}
    for number, value in protobuf.fields(data):
        if number in _COUNTS:
            counts[number] = protobuf.number_of(value, _COUNTS[number])
        elif number in _WORDS:
            words[number] = protobuf.text_of(value, _WORDS[number])
    source, kind, seconds, offset, sequence = (counts.get(number, 0) for number in _COUNTS)
    file, transaction, database, table = (words.get(number) or None for number in _WORDS)
    return EventHeader(source, kind, seconds, file or "", offset, transaction, database, table, sequence)


class RowEvent(NamedTuple):
    """A ``DMLEvent``: its number, the columns and the rows, still in bytes."""

    kind: int
    columns: tuple[bytes, ...]
    rows: list[bytes]


def _row_event(data: bytes) -> RowEvent:
    kind = 0
    parts: dict[int, list[bytes]] = {2: [], 3: []}
    for number, value in protobuf.fields(data):
        if number == 1:
            kind = protobuf.number_of(value, "dmlEventType")
        elif number in parts:
            parts[number].append(protobuf.bytes_of(value, "columns" if number == 2 else "rows"))
    return RowEvent(kind, tuple(parts[2]), parts[3])


# --- its changes --------------------------------------------------------------------------------


def _changes(data: bytes, hints: Hints) -> Sequence[Change]:
    header, body = _entry(data)
    if header.kind in MARKS:
        return [replace(_place(header, MARKS[header.kind]), note=NOTES.get(header.kind))]
    if header.kind == ROWS:
        return _rows(header, _row_event(_member(body, 2, "dmlEvent")), hints)
    if header.kind == STATEMENT:
        return _statement(header, _member(body, 4, "ddlEvent"))
    raise Undecodable("unknown-operation", f"message type {header.kind} is not documented")


def _member(body: bytes, number: int, name: str) -> bytes:
    for each, value in protobuf.fields(body):
        if each == number:
            return protobuf.bytes_of(value, name)
    raise Undecodable("bad-message", f"an entry has no {name}")


def _place(header: EventHeader, op: Op) -> Change:
    return Change(
        op=op,
        table=_table(header.source, header.database, header.table),
        sequence=(header.sequence,) if header.sequence else (),
        position=f"{header.file}:{header.offset}" if header.file else None,
        event_time=values.micros_of(header.seconds, 1) if header.seconds else None,
        transaction=header.transaction,
        dialect=DIALECTS.get(header.source, database_kinds.MYSQL),
        note=None if header.sequence else "seqId is missing, arrival decides",
    )


def _statement(header: EventHeader, data: bytes) -> Sequence[Change]:
    database, sql = header.database, None
    for number, value in protobuf.fields(data):
        if number == 1:
            database = protobuf.text_of(value, "schemaName") or database
        elif number == 2:
            sql = protobuf.text_of(value, "sql")
    place = _place(header, Op.DDL)
    return rows.statement(
        replace(place, table=_table(header.source, database, header.table)), sql or None, None
    )


def _table(source: int, name: str | None, table: str | None) -> TableId:
    """The table of a header's ``schemaName`` and ``tableName``."""
    if DIALECTS.get(source) == database_kinds.POSTGRES and (name or table):
        return TableId(None, name, table)
    return TableId.without_schema(name, table)


def _rows(header: EventHeader, event: RowEvent, hints: Hints) -> list[Change]:
    if not event.kind < len(ROW_EVENTS):
        raise Undecodable("unknown-operation", f"a row event of type {event.kind} is not documented")
    op = ROW_EVENTS[event.kind]
    place = _place(header, op)
    if place.table.table is None:
        raise Undecodable("no-table", "an event of rows has no tableName")
    described = _described(event.columns)
    declared = hints.tables(place.table)
    frame = _frame(described.types, tuple(declared.columns.items()), header.source, hints.options.timezone)
    keys = declared.keys or described.keys
    changes = []
    for number, row in enumerate(event.rows):
        before, after = _images(row, described.names, frame)
        partial_row = after is not None and len(after) < len(described.names)
        kept = [*rows.convert(before, frame.plan), *rows.convert(after, frame.plan)]
        rows.require_images(before, after, op)
        change = rows.finish(
            place,
            place.table,
            keys,
            None if op is Op.INSERT else before,
            None if op is Op.DELETE else after,
            frame.plan,
            kept,
            partial=partial_row and op is not Op.DELETE,
        )
        changes.append(replace(change, sequence=(*place.sequence, number)) if place.sequence else change)
    return changes


class DescribedColumns(NamedTuple):
    """A table's columns: their names, their types as their database declares them, and those of the key."""

    names: tuple[str, ...]
    types: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]


@remembered(1024)
def _described(columns: tuple[bytes, ...]) -> DescribedColumns:
    """What the columns say of themselves; `Undecodable` if one has no name, or two have the same."""
    names: list[str] = []
    declared: list[tuple[str, str]] = []
    keys: list[str] = []
    for column in columns:
        name, kind, is_key = "", "", False
        for number, value in protobuf.fields(column):
            if number == 1:
                name = protobuf.text_of(value, "a column's name")
            elif number == 2:
                kind = protobuf.text_of(value, "originalType")
            elif number == 3:
                is_key = value != 0
        if not name:
            raise Undecodable("bad-message", f"column {len(names)} of an event has no name")
        names.append(name)
        declared.append((name, kind))
        if is_key:
            keys.append(name)
    if len({*names}) < len(names):
        raise Undecodable("duplicate-name", "a column occurs twice in columns")
    return DescribedColumns(tuple(names), tuple(declared), tuple(keys))


# --- values -------------------------------------------------------------------------------------

ReadBytes = Callable[[bytes, str], str]
"""The canonical text of a value's bytes, and their character set, if one is sent; a `ValueError` if it has none."""


class ValueReaders(NamedTuple):
    """How the rows of one list of columns are read."""

    plan: rows.RowPlan
    readers: tuple[ReadBytes, ...]


@remembered(1024)
def _frame(
    sent: tuple[tuple[str, str], ...], declared: rows.Declared, source: int, zone: str
) -> ValueReaders:
    kinds = database_kinds.TYPES.get(DIALECTS.get(source, ""), mysql_types)
    plan = rows.plan(kinds(dict(sent)), declared, zone)
    return ValueReaders(plan, tuple(_READERS.get(types.base(plan.types[name]), _text) for name, _ in sent))


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


_ROW_IMAGES = {1: "a value", 2: "a value"}


def _images(row: bytes, names: tuple[str, ...], frame: ValueReaders) -> tuple[Image | None, Image | None]:
    """A row before and after its change, None where it has none."""
    parts = protobuf.repeated(row, _ROW_IMAGES)
    return _image(parts[1], names, frame), _image(parts[2], names, frame)


def _image(cells: list[bytes], names: tuple[str, ...], frame: ValueReaders) -> Image | None:
    if not cells:
        return None
    if len(cells) != len(names):
        raise Undecodable("bad-message", f"an image does not hold one value for each of {len(names)} columns")
    image: Image = {}
    for name, cell, read in zip(names, cells, frame.readers, strict=True):
        kind, charset, digits, content = _cell(cell)
        if kind == NULL:
            image[name] = None
        elif kind > ABSENT:
            raise Undecodable(
                "bad-value",
                f"the value of column {name[:80]!r} has the data type {kind}, which is not documented",
            )
        elif kind != ABSENT:
            try:
                image[name] = read(content, charset) if kind in (BYTES, TEXT) else digits
            except ValueError as error:  # also bytes that are not of their character set
                raise Undecodable(
                    "bad-value", f"the value of column {name[:80]!r} cannot be read: {error}"
                ) from None
    return image


def _cell(data: bytes) -> tuple[int, str, str, bytes]:
    """A value's data type, character set, text and bytes, of which it has those that its type needs."""
    kind, charset, digits, content = NULL, "", "", b""
    for number, value in protobuf.fields(data):
        if number == 1:
            kind = protobuf.number_of(value, "dataType")
        elif number == 2:
            charset = protobuf.text_of(value, "charset")
        elif number == 3:
            digits = protobuf.text_of(value, "sv")
        elif number == 4:
            content = protobuf.bytes_of(value, "bv")
    return kind, charset, digits, content
