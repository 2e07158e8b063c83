"""JSON of a Tencent Cloud DTS data subscription ("JSON Demo Description", documents 571/61656 and 571/55398).

A message is one record: ``columns`` describes the table, ``oldColumns`` and ``newColumns`` are lists of values next to it, of
which value i belongs to column i. Quirks:

- ``id`` increases over the whole stream and orders records; ``position`` is the end of the event, ``offset@file number``.
- Every value is text: a TIMESTAMP counts milliseconds, bytes are hexadecimal digits after ``0x``.
- ``oldColumns`` is null for an INSERT, ``newColumns`` for a DELETE.
- HEARTBEAT and CHECKPOINT are the service's own marks, the latter every ten seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import UNSET

from ingest import values
from ingest.change import ROW_OPS, Change, Hints, Image, Message, Op, TableId
from ingest.decoding import rows
from ingest.decoding.flat_messages import mysql_types
from ingest.decoding.split import SPLIT
from ingest.errors import Undecodable
from ingest.formats import About
from ingest.images_before import ImagesBefore
from ingest.values.json_records import Count, Kept, RecordReader, Text, Texts, count_of, kept_of, texts_of
from ingest.values.remembered import remembered

ABOUT = About(
    title="Tencent Cloud DTS, data subscription in JSON",
    document="Tencent Cloud DTS, JSON Demo Description (571/61656)",
    operations=("insert", "update", "delete", "truncate", "ddl", "heartbeat", "begin", "commit", "control"),
    order="id, which increases over the whole stream",
    strength="strong",
    keys="pkNames, else the columns marked isKey",
    types="originalType of each column, as MySQL declares it",
    images="full, before and after",
    ddl="sql",
    losses=(
        "There is no full load: the subscription begins with the changes of its day.",
        "Geometry stays the hexadecimal digits that were sent.",
        "A row of more than 10 MB may be discarded by the service, and no message tells.",
    ),
    options={
        "timezone": "zone of TIMESTAMP texts that are no count (default UTC)",
        "binary": "the encoding of bytes (default hex, with or without 0x)",
        "time_units": "unit of whole-number times, default millis",
        "order_by": "sequence (default), arrival or event_time",
    },
    bytes_as="hex",
    before=ImagesBefore(renumbers=True),
)

OPS = {
    "INSERT": Op.INSERT,
    "UPDATE": Op.UPDATE,
    "DELETE": Op.DELETE,
    "DDL": Op.DDL,
    "BEGIN": Op.BEGIN,
    "COMMIT": Op.COMMIT,
    "HEARTBEAT": Op.HEARTBEAT,
    "CHECKPOINT": Op.CONTROL,
    "ROLLBACK": Op.CONTROL,
}
MEMBERS = frozenset({"messageType", "fileName", "position"})
MILLIS = 1000


class SubscribedRecord(msgspec.Struct, gc=False, rename="camel"):
    """The documented members of a record."""

    id: Count = UNSET
    version: Kept = UNSET
    message_type: Text = UNSET
    file_name: Text = UNSET
    position: Text = UNSET
    safe_position: Kept = UNSET
    timestamp: Count = UNSET
    gtid: Text = UNSET
    transaction_id: Kept = UNSET
    server_id: Kept = UNSET
    thread_id: Kept = UNSET
    source_type: Kept = UNSET
    source_version: Kept = UNSET
    schema_name: Text = UNSET
    table_name: Text = UNSET
    object_name: Kept = UNSET
    columns: Kept = UNSET
    old_columns: Texts = UNSET
    new_columns: Texts = UNSET
    sql: Text = UNSET
    execution_time: Kept = UNSET
    heartbeat_timestamp: Kept = UNSET
    synced_gtid: Kept = UNSET
    fake_gtid: Kept = UNSET
    pk_names: Texts = UNSET
    reader_timestamp: Kept = UNSET
    tags: Kept = UNSET
    total: Count = UNSET
    index: Kept = UNSET


_records = RecordReader(SubscribedRecord)


def parse(message: Message, hints: Hints) -> Iterable[Change]:
    """The change of one record; a TRUNCATE statement makes two, the truncation and the statement."""
    record, note = _records.read(message.sent)
    if record.message_type is UNSET or record.file_name is UNSET or record.position is UNSET:
        raise Undecodable("not-this-format", f"the record lacks one of {', '.join(sorted(MEMBERS))}")
    place = _place(record, note)
    if place.op is Op.DDL:
        return rows.statement(place, record.sql or None, None)
    return (_row(place, record, hints) if place.op in ROW_OPS else place,)


def recognise(sample: bytes) -> str | None:
    """The members of a record."""
    return ", ".join(sorted(MEMBERS)) if values.opened(sample)[0].keys() >= MEMBERS else None


def _place(record: SubscribedRecord, note: str | None) -> Change:
    kind = record.message_type or ""
    op = rows.operation(OPS, kind, "messageType")
    number, seconds = count_of(record.id), count_of(record.timestamp)
    sequence = (number,) if number is not None and number >= 0 else ()
    if note or not sequence or op is Op.CONTROL:
        unplaced = None if sequence else "id is missing or unreadable, arrival decides"
        note = rows.noted(note, unplaced, kind if op is Op.CONTROL else None)
    return Change(
        op=op,
        table=TableId.named(record.schema_name, None, record.table_name),
        sequence=sequence,
        position=record.position or None,
        event_time=values.clock_of(seconds, 1),
        transaction=record.gtid or None,
        note=note,
    )


def _row(place: Change, record: SubscribedRecord, hints: Hints) -> Change:
    if (count_of(record.total) or 0) > 1:
        raise Undecodable(SPLIT, "the record is a part of several, which version 1 does not send")
    if place.table.table is None:
        raise Undecodable("no-table", "a record of a row has no tableName")
    described = _described(kept_of(record.columns) or b"null")
    declared = hints.tables(place.table)
    options = hints.options
    plan = _plan(
        described.types,
        tuple(declared.columns.items()),
        options.timezone,
        options.binary or "hex",
        options.time_units,
    )
    before = _image(record.old_columns, described.names, "oldColumns")
    after = _image(record.new_columns, described.names, "newColumns")
    kept = rows.convert_both(before, after, plan)
    keys = declared.keys or tuple(filter(None, texts_of(record.pk_names, "pkNames") or ())) or described.keys
    before, after = rows.images_of(place.op, before, after)
    rows.require_images(before, after, place.op)
    return rows.finish(place, place.table, keys, before, after, plan, kept)


class _Described:
    """A table's columns: their names, their types as MySQL declares them, and those of the key."""

    def __init__(self, columns: list[Mapping[str, object]]) -> None:
        self.names = tuple(str(column["name"]) for column in columns)
        self.types = tuple((str(column["name"]), str(column.get("originalType") or "")) for column in columns)
        self.keys = tuple(str(column["name"]) for column in columns if column.get("isKey") is True)
        if len({*self.names}) < len(self.names):
            raise Undecodable("duplicate-name", "a column occurs twice in columns")


@remembered(1024)
def _described(columns: bytes) -> _Described:
    try:
        return _Described(values.strict(columns))
    except (KeyError, TypeError, AttributeError):
        raise Undecodable("bad-message", "columns is not a list of columns with their names") from None


@remembered(1024)
def _plan(
    sent: tuple[tuple[str, str], ...],
    declared: rows.Declared,
    zone: str,
    binary: str,
    units: str | None,
) -> rows.RowPlan:
    return rows.plan(mysql_types(dict(sent)), declared, zone, binary, units, MILLIS)


def _image(cells: Texts, names: tuple[str, ...], member: str) -> Image | None:
    """One image from its list of values; None where there is none."""
    listed = texts_of(cells, member)
    if listed is None:
        return None
    if len(listed) != len(names):
        raise Undecodable(
            "bad-message", f"{member} does not hold one value for each column (there are {len(names)})"
        )
    return dict(zip(names, listed, strict=True))
