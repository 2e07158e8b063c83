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

from msgspec import Raw

from ingest import values
from ingest.change import ROW_OPS, Change, Hints, Image, Message, Op, TableId
from ingest.decoding import rows
from ingest.decoding.flat_messages import mysql_types
from ingest.errors import Undecodable
from ingest.formats import About
from ingest.images_before import ImagesBefore
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


def parse(message: Message, hints: Hints) -> Iterable[Change]:
    """The change of one record; a TRUNCATE statement makes two, the truncation and the statement."""
    if message.value is None:
        return rows.TOMBSTONE
    record, note = values.opened(message.value)
    if not record.keys() >= MEMBERS:
        raise Undecodable("not-this-format", f"the record lacks one of {', '.join(sorted(MEMBERS))}")
    place = _place(record, note)
    if place.op is Op.DDL:
        return rows.statement(place, values.member_text(record, "sql"), None)
    return (_row(place, record, hints) if place.op in ROW_OPS else place,)


def recognise(sample: bytes) -> str | None:
    """The members of a record."""
    return ", ".join(sorted(MEMBERS)) if values.peeked(sample).keys() >= MEMBERS else None


def _place(record: Mapping[str, Raw], note: str | None) -> Change:
    kind = values.member_text(record, "messageType") or ""
    op = rows.operation(OPS, kind, "messageType")
    number = values.integer(values.member_text(record, "id"))
    seconds = values.integer(values.member_text(record, "timestamp"))
    database, table = (values.member_text(record, name) or None for name in ("schemaName", "tableName"))
    return Change(
        op=op,
        table=TableId.without_schema(database, table),
        sequence=(number,) if number is not None and number >= 0 else (),
        position=values.member_text(record, "position") or None,
        event_time=values.micros_of(seconds, 1) if seconds and seconds > 0 else None,
        transaction=values.member_text(record, "gtid") or None,
        note=rows.noted(
            note,
            None if number is not None and number >= 0 else "id is missing or unreadable, arrival decides",
            kind if op is Op.CONTROL else None,
        ),
    )


def _row(place: Change, record: Mapping[str, Raw], hints: Hints) -> Change:
    if (values.integer(values.member_text(record, "total")) or 0) > 1:
        raise Undecodable("split-message", "the record is a part of several, which version 1 does not send")
    if place.table.table is None:
        raise Undecodable("no-table", "a record of a row has no tableName")
    described = _described(bytes(record.get("columns", b"null")))
    declared = hints.tables(place.table)
    options = hints.options
    plan = _plan(
        described.types,
        tuple(declared.columns.items()),
        options.timezone,
        options.binary or "hex",
        options.time_units,
    )
    before = _image(record.get("oldColumns"), described.names, "oldColumns")
    after = _image(record.get("newColumns"), described.names, "newColumns")
    kept = rows.convert_both(before, after, plan)
    keys = declared.keys or values.names(record.get("pkNames")) or described.keys
    rows.require_images(before, after, place.op)
    if place.op is Op.INSERT:
        before = None
    elif place.op is Op.DELETE:
        after = None
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


def _image(raw: Raw | None, names: tuple[str, ...], member: str) -> Image | None:
    """One image from its list of values; None where there is none."""
    if raw is None or values.is_null(raw):
        return None
    if bytes(raw)[:1] != b"[":
        raise Undecodable("bad-message", f"{member} is not a list of values")
    cells = values.items(raw)
    if len(cells) != len(names) or any(bytes(value)[:1] in (b"{", b"[") for value in cells):
        raise Undecodable(
            "bad-message", f"{member} does not hold one value for each column (there are {len(names)})"
        )
    return {name: values.text(value) for name, value in zip(names, cells, strict=True)}
