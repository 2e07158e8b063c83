"""Maxwell's daemon (its manual, "Data format").

One object per row: ``data`` is the row, ``old`` the former values of an update's changed columns,
``type`` the operation. Quirks:

- ``ts`` counts seconds for rows and milliseconds for table events.
- ``position`` is ``file:offset`` of the binary log and is sent only if switched on.
- Key names are sent only if switched on; the Kafka key then still names them as ``pk.<column>``.
- Bytes are base64, SET is an array, BIT a number, a geometry WKT, a zero date is kept as it is.
- With a minimal row image ``data`` lacks columns, and nothing shows it.
- A table event carries the statement and the table's structure, ``def``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from msgspec import Raw
from msgspec.structs import replace

from ingest import types, values
from ingest.change import LOAD_BEGUN, LOAD_ENDED, Change, Hints, Image, Message, Op, TableId
from ingest.ddl import TableStructure
from ingest.decoding import rows
from ingest.errors import Undecodable
from ingest.formats import About
from ingest.images_before import ImagesBefore
from ingest.values.remembered import remembered

ABOUT = About(
    title="Maxwell's daemon JSON",
    document="Maxwell's daemon, Data format",
    operations=("insert", "update", "delete", "read", "ddl"),
    order="position, the binary log's file and offset, if it is sent; else arrival decides",
    strength="weak",
    keys="primary_key_columns, else the names in the Kafka key",
    types="none with rows; table events carry the table's structure",
    images="partial (a minimal row image lacks columns); old holds the changed columns",
    ddl="sql, with the structure in def",
    losses=(
        "TRUNCATE is not sent.",
        "Without position the order of arrival is the only order, and rows of one second cannot be distinguished.",
        "A column that a minimal row image leaves out cannot be distinguished from one that does not exist.",
    ),
    options={
        "timezone": "zone of TIMESTAMP texts, default UTC",
        "time_units": "unit of whole-number times; without it they stay as they are",
        "left_out": "`null` if Maxwell leaves out NULLs (output_nulls=false), else `unchanged`",
        "order_by": "sequence (default), arrival or event_time",
    },
    bytes_as="base64",
    leaves_out_nulls="in inserts",
    load_ends="marks",
    sets_as_lists=True,
    before=ImagesBefore(changed_only=True),
)

OPS = {
    "insert": Op.INSERT,
    "update": Op.UPDATE,
    "delete": Op.DELETE,
    "bootstrap-insert": Op.READ,
    LOAD_BEGUN: Op.CONTROL,
    LOAD_ENDED: Op.CONTROL,
    "heartbeat": Op.HEARTBEAT,
    **dict.fromkeys("database-create database-alter database-drop".split(), Op.DDL),
    **dict.fromkeys("table-create table-alter table-drop".split(), Op.DDL),
}
KEY_PREFIX = "pk."
_MILLISECONDS = 10**11  # as seconds this is the year 5138


def parse(message: Message, hints: Hints) -> Iterable[Change]:
    envelope, note = values.opened(message.sent)
    kind = values.text(envelope.get("type", b"null"))
    op = OPS.get(kind or "")
    if kind is None or (op is None and not kind.islower()) or "database" not in envelope:
        raise Undecodable("not-this-format", "type, in lower case, or database is missing")
    op = rows.operation(OPS, kind, "type")
    if "encrypted" in envelope:
        raise Undecodable("encrypted", "the row is encrypted; switch Maxwell's encryption off")
    place = _place(envelope, op, note)
    if op is Op.DDL:
        return (_ddl(place, envelope, kind),)
    if op in (Op.CONTROL, Op.HEARTBEAT):
        return (replace(place, note=rows.noted(kind, note)),)
    return (_row(place, envelope, message, hints),)


def recognise(sample: bytes) -> str | None:
    """A type in lower case, with an object in ``data``; or a table event."""
    envelope, _note = values.opened(sample)
    kind = values.member_text(envelope, "type")
    if kind not in OPS or not envelope.keys() >= {"database", "type"}:
        return None
    if OPS[kind] is Op.DDL:
        return "a type such as table-create, and database"
    row = bytes(envelope.get("data", b""))[:1] == b"{"
    return "a type in lower case, data is an object" if row and "table" in envelope else None


def _place(envelope: Mapping[str, Raw], op: Op, note: str | None) -> Change:
    position = values.member_text(envelope, "position")
    sequence = log_position(position)
    clock = values.integer(values.member_text(envelope, "ts"))
    unit = 1000 if clock is not None and clock >= _MILLISECONDS else 1
    database, table = values.member_text(envelope, "database"), values.member_text(envelope, "table")
    return Change(
        op=op,
        table=TableId.named(database, None, table),
        sequence=sequence,
        position=position,
        servers=rows.binlog(values.member_text(envelope, "server_id"), (position or "").rpartition(":")[0])
        if sequence
        else (),
        event_time=values.micros_of(clock, unit),
        transaction=values.member_text(envelope, "xid"),
        note=rows.noted(note, rows.unreadable(position, sequence)),
    )


def log_position(position: str | None) -> tuple[int, ...]:
    """File number and offset of ``base.000006:800911``, else nothing."""
    file, _, offset = (position or "").rpartition(":")
    number, place = rows.numbered(file.rpartition(".")[2]), rows.numbered(offset)
    return number + place if number and place else ()


def _row(place: Change, envelope: Mapping[str, Raw], message: Message, hints: Hints) -> Change:
    table = rows.named_table(place.table, hints, message.topic)
    declared = hints.tables(table)
    plan = rows.plan_of_declared(declared.columns, hints.options)
    data, kept = _image(envelope.get("data"), plan)
    old, kept_old = _image(envelope.get("old"), plan) if place.op is Op.UPDATE else (None, [])
    rows.require_image(data, place.op)
    if old and data is not None:  # with output_nulls=false, a NULL is left out: what had a value has none now
        data = {**dict.fromkeys(old), **data}
    keys = declared.keys or _keys(envelope, message.key)
    before, after = (data, None) if place.op is Op.DELETE else (old, data)
    partial = rows.may_lack_columns(place.op, hints)
    return rows.finish(place, table, keys, before, after, plan, [*kept_old, *kept], partial=partial)


def _image(raw: Raw | None, plan: rows.RowPlan) -> tuple[Image | None, list[str]]:
    """An image and the columns that could not be converted; a SET becomes its labels with commas."""
    if raw is None or values.is_null(raw):
        return None, []
    image = values.bare_image(raw)
    for column, declared in plan.types.items():
        if (value := image.get(column)) is None:
            continue
        kind = types.base(declared)
        if kind == "set" and value.startswith("["):
            image[column] = ",".join(values.text(label) or "" for label in values.items(value.encode()))
        elif kind == "json" and bytes(values.members(raw)[column])[:1] == b'"' and not _is_nested(value):
            image[column] = json.dumps(value, ensure_ascii=False)
    return image, rows.convert(image, plan, raw)


def _is_nested(text: str) -> bool:
    """True for the text of a JSON object or list: MariaDB's JSON columns are texts, whose documents come as strings."""
    try:
        return text.lstrip()[:1] in ("{", "[") and values.strict(text.encode()) is not None
    except Undecodable:
        return False


def _keys(envelope: Mapping[str, Raw], key: bytes | None) -> tuple[str, ...]:
    named = envelope.get("primary_key_columns")
    if named is not None and not values.is_null(named):
        return values.names(named)
    if not key or key[:1] != b"{":
        return ()
    try:
        members = values.members(key)
    except Undecodable:
        return ()
    return tuple(name.removeprefix(KEY_PREFIX) for name in members if name.startswith(KEY_PREFIX))


def _ddl(place: Change, envelope: Mapping[str, Raw], kind: str) -> Change:
    definition = envelope.get("def")
    subject, _, action = kind.partition("-")
    structure = None
    if subject == "table" and definition is not None and not values.is_null(definition):
        structure = _structure(bytes(definition), action.upper())
    return replace(
        place,
        ddl=values.member_text(envelope, "sql"),
        structure=structure,
        note=rows.noted(place.note, f"kind {kind}"),
    )


@remembered(256)
def _structure(definition: bytes, action: str) -> str | None:
    """The table's structure as `Change.structure` wants it, or None if it is damaged."""
    table = values.strict(definition)
    try:
        columns = {
            str(column["name"]): types.mysql(
                f"{column['type']}{' unsigned' if column.get('signed') is False else ''}"
            )
            for column in table["columns"]
        }
        keys = tuple(str(name) for name in table.get("primary-key") or ())
        charsets = {str(column["name"]): column.get("charset") for column in table["columns"]}
        structure = TableStructure(action, keys, columns).with_charsets(table.get("charset"), charsets)
    except (KeyError, TypeError, AttributeError):
        return None
    return structure.text()
