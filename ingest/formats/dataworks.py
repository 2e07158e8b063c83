"""Alibaba DataWorks data integration to Kafka ("Appendix: Message format"), written by StreamX.

One object per record: ``schema`` lists the columns with one of six types, the key and the source,
``payload`` holds the images, the operation, the place and the clock. Quirks:

- An update is two messages that share a ``sequenceId``, UPDATE_BEFOR (spelt so) and UPDATE_AFTER, or,
  by a setting of the task, one UPDATE_AFTER with both images.
- ``sequenceId`` is digits in a text. Rows of the full load are inserts with ``"-1"``, and ``eventTime`` -1.
- DATE is a count of milliseconds, whatever the column was at the source; DOUBLE may come as text.
- ``primaryKey`` may be null: then RDS adds the column ``#alibaba_rds_row_id#``, Oracle ``rowid``.
- ``ddl.ddlMeta`` is a serialized Java object; it is never read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from msgspec import Raw
from msgspec.structs import replace

from ingest import types, values
from ingest.change import ROW_OPS, Change, Hints, Message, Op, TableId
from ingest.ddl import dialect_of
from ingest.decoding import rows
from ingest.errors import Undecodable
from ingest.formats import About
from ingest.images_before import ImagesBefore
from ingest.values.remembered import remembered

ABOUT = About(
    title="Alibaba DataWorks data integration (StreamX) JSON",
    document="DataWorks, synchronize a full database to Kafka, Appendix: Message format",
    operations=("insert", "update", "delete", "read", "truncate", "ddl", "heartbeat", "begin", "commit"),
    order="payload.sequenceId; of a pair the image before goes first",
    strength="strong",
    keys="schema.primaryKey, else #alibaba_rds_row_id#, else rowid of Oracle",
    types="schema.dataColumn: BOOLEAN DOUBLE DATE BYTES LONG STRING",
    images="full",
    ddl="payload.ddl.text",
    losses=(
        "All numbers with a point are DOUBLE or STRING: the source's decimal precision is not sent.",
        "All dates and times are milliseconds: finer fractions are gone, and so is what kind they were.",
        "Of an update in two messages the row is missing from the mirror between the two.",
        "An Oracle row that moves gets another rowid, so it looks like a new row.",
    ),
    options={
        "timezone": "zone in which DATE numbers declared date, datetime or time are read, default UTC",
        "binary": "encoding of BYTES, default base64",
        "order_by": "sequence (default), arrival or event_time",
    },
    bytes_as="base64",
    before=ImagesBefore(renumbers=True),
)

OPS = {
    "INSERT": Op.INSERT,
    "UPDATE_BEFOR": Op.DELETE,
    "UPDATE_BEFORE": Op.DELETE,
    "UPDATE_AFTER": Op.UPDATE,
    "DELETE": Op.DELETE,
    "TRUNCATE": Op.TRUNCATE,
    **dict.fromkeys("CREATE ALTER ERASE QUERY RENAME CINDEX DINDEX".split(), Op.DDL),
    "TRANSACTION_BEGIN": Op.BEGIN,
    "TRANSACTION_END": Op.COMMIT,
    "MHEARTBEAT": Op.HEARTBEAT,
    **dict.fromkeys("GTID XACOMMIT XAROLLBACK".split(), Op.CONTROL),
}
BEFORE = ("UPDATE_BEFOR", "UPDATE_BEFORE")
FULL_LOAD = "-1"
ROW_IDS = ("#alibaba_rds_row_id#",)
JAVA = "rO0AB"  # how base64 of a serialized Java object begins

Columns = tuple[tuple[str, str], ...]
"""Name and type of each column, as a message lists them."""


class RowPlace(NamedTuple):
    """What a dialect reads of a message's place: text, numbers, phase, and what is odd about it."""

    position: str | None
    sequence: tuple[int, ...]
    phase: int = 1
    note: str | None = None


class StreamxDialect(NamedTuple):
    """What distinguishes one DataWorks JSON from another.

    Args:
        ops: the operations by name.
        names: the members that hold the list of columns, the key, the schema's and the table's name.
        image: the member of ``before`` and ``after`` that holds the row.
        place: reads the place from the payload, for a row or for anything else.
        plan: the conversions for a list of columns, in an Oracle or another source, by the zone and the encoding of bytes.
        nulls_may_hide: True where an unchanged large object is sent as NULL.
    """

    ops: Mapping[str, Op]
    names: tuple[str, str, str, str]
    image: str
    place: Callable[[Mapping[str, Raw], bool], RowPlace]
    plan: Callable[[Columns, bool, rows.Declared, str, str | None], rows.RowPlan]
    nulls_may_hide: bool


class Schema(NamedTuple):
    """The ``schema`` member, read once per distinct text: the same bytes come with every row."""

    table: TableId
    keys: tuple[str, ...]
    columns: Columns
    dialect: str


def recognise(sample: bytes) -> str | None:
    return evidence(sample, "MHEARTBEAT", "dataColumn", "primaryKey")


def evidence(sample: bytes, heartbeat: str, columns: str, key: str) -> str | None:
    """Version, operation and clock, with the list of columns or the key in the schema, unless it is a heartbeat."""
    members, _note = values.opened(sample)
    payload, schema = members_of(members.get("payload")), members_of(members.get("schema"))
    op, clock = (bytes(payload.get(name, b"")) for name in ("op", "timestamp"))
    if "version" not in members or not op or clock[:1] != b"{":
        return None
    if op == f'"{heartbeat}"'.encode() or columns in schema or key in schema:
        return f"version, payload.op, payload.timestamp and schema.{columns}"
    return None


# --- any writer ---------------------------------------------------------------------------------


def read(message: Message, hints: Hints, dialect: StreamxDialect) -> tuple[Change, ...]:
    """The changes of one message as a dialect writes them."""
    envelope, note = values.opened(message.sent)
    payload = members_of(envelope.get("payload"))
    kind = values.text(payload.get("op", b"null"))
    if kind is None or "version" not in envelope:
        raise Undecodable("not-this-format", "version or payload.op is missing")
    op = rows.operation(dialect.ops, kind, "payload.op")
    schema = read_schema(bytes(envelope.get("schema", b"null")), dialect.names)
    place = _place(payload, schema, kind, op, dialect, note)
    if op in (Op.DDL, Op.TRUNCATE):
        return ddl_event(place, payload, kind)
    if op in ROW_OPS:
        return (_row(place, payload, schema, kind, dialect, hints, message.topic),)
    return (place,)


def members_of(raw: Raw | None) -> dict[str, Raw]:
    """The members of an object; none for null or nothing."""
    return {} if raw is None or values.is_null(raw) else values.members(raw)


@remembered(1024)
def read_schema(raw: bytes, names: tuple[str, str, str, str]) -> Schema:
    """Table, key and columns of a message's ``schema``.

    Raises:
        Undecodable: it names neither columns nor key as this dialect does, but has other members.
    """
    schema = members_of(Raw(raw))
    listed, key, owner_name, table_name = names
    if schema and listed not in schema and key not in schema and schema.keys() != {"source"}:
        raise Undecodable("not-this-format", f"schema.{listed} and schema.{key} are missing")
    source = values.image_of(schema.get("source"))
    database, owner = source.get("dbName"), source.get(owner_name)
    kind = (source.get("dbType") or "").lower()
    if owner == database and "mysql" in kind:  # MySQL has no schemas: the name is only repeated
        owner = None
    columns = column_list(schema.get(listed))
    dialect = dialect_of(kind)
    keys = values.names(schema.get(key))
    if not keys:
        known = ROW_IDS + (("rowid", "ROWID") if dialect == "oracle" else ())
        keys = next(((name,) for name, _type in columns if name in known), ())
    return Schema(TableId.named(database, owner, source.get(table_name)), keys, columns, dialect)


def column_list(raw: Raw | None) -> Columns:
    """Name and type of each column of a list of ``{"name": .., "type": ..}``."""
    if raw is None or values.is_null(raw):
        return ()
    entries = (values.bare_image(entry) for entry in values.items(raw))
    return tuple((entry.get("name") or "", entry.get("type") or "") for entry in entries)


def _place(
    payload: Mapping[str, Raw], schema: Schema, kind: str, op: Op, dialect: StreamxDialect, note: str | None
) -> Change:
    row = op in ROW_OPS
    place = dialect.place(payload, row)
    return Change(
        op=Op.READ if op is Op.INSERT and not place.phase else op,
        table=schema.table,
        keys=schema.keys if row else (),
        phase=place.phase,
        sequence=place.sequence,
        position=place.position,
        event_time=event_time(payload),
        note=rows.noted("update-before" if kind in BEFORE else None, note, place.note),
        dialect=schema.dialect,
    )


def event_time(payload: Mapping[str, Raw]) -> int | None:
    """The source's clock in microseconds; the full load's -1 is none."""
    clock = values.image_of(payload.get("timestamp"))
    count = values.integer(clock.get("eventTime"))
    return values.micros_of(count, 1000) if count is not None and count >= 0 else None


def _row(
    place: Change,
    payload: Mapping[str, Raw],
    schema: Schema,
    kind: str,
    dialect: StreamxDialect,
    hints: Hints,
    topic: str,
) -> Change:
    images = rows.images_of(place.op, payload.get("before"), payload.get("after"))
    old, new = (members_of(image).get(dialect.image) for image in images)
    before, after = values.optional_image(old), values.optional_image(new)
    rows.require_images(before, after, place.op)
    table = rows.named_table(place.table, hints, topic)
    declared = hints.tables(table)
    oracle = schema.dialect == "oracle"
    zone, binary = hints.options.timezone, hints.options.binary
    plan = dialect.plan(schema.columns, oracle, tuple(declared.columns.items()), zone, binary)
    kept = rows.convert_both(before, after, plan, old, new)
    if kind == "UPDATE_AFTER" and before is None:
        place = replace(place, half=1)
    # a list of columns that shares no name with the row is not the row's
    known = [name in after for name, _type in schema.columns] if after is not None else []
    return rows.finish(
        place, table, declared.keys or place.keys, before, after, plan, kept,
        partial=any(known) and not all(known),
        nulls_may_hide=dialect.nulls_may_hide and place.op is Op.UPDATE,
    )  # fmt: skip


def ddl_event(place: Change, payload: Mapping[str, Raw], kind: str) -> tuple[Change, ...]:
    """The DDL event of a table, with the truncation before it for TRUNCATE."""
    ddl = values.image_of(payload.get("ddl"))
    if (ddl.get("ddlMeta") or "").startswith(JAVA):
        place = replace(
            place, note=rows.noted(place.note, "ddlMeta holds a serialized Java object, left unread")
        )
    return rows.statement(place, ddl.get("text"), kind, truncates=kind == "TRUNCATE")


# --- StreamX ------------------------------------------------------------------------------------


def _streamx_place(payload: Mapping[str, Raw], row: bool) -> RowPlace:
    position = values.text(payload.get("sequenceId", b"null")) or None
    if position == FULL_LOAD:
        return RowPlace(position, (), phase=0)
    sequence = rows.numbered(position)
    note = "the position is missing or unreadable" if row and not sequence else None
    return RowPlace(position, sequence, note=note)


@remembered(1024)
def _plan(
    columns: Columns, _oracle: bool, declared: rows.Declared, zone: str, binary: str | None
) -> rows.RowPlan:
    sent = {name: types.streamx(kind) for name, kind in columns}
    parts = {"date": slice(10), "time": slice(11, None)}  # of the text of a date and time
    by_kind = {kind: partial(_of_milliseconds, part=part, zone=zone) for kind, part in parts.items()}
    return rows.plan(sent, declared, zone, binary, "millis", by_kind=by_kind)


def _of_milliseconds(value: str, part: slice, zone: str) -> str:
    """A date or a time of day from the milliseconds of a moment, as clocks in ``zone`` show it."""
    if not values.INTEGER.fullmatch(value):
        return value
    return values.wall_text(*rows.instant(value, 1000), zone)[part]


STREAMX = StreamxDialect(
    ops=OPS,
    names=("dataColumn", "primaryKey", "schemaName", "tableName"),
    image="dataColumn",
    place=_streamx_place,
    plan=_plan,
    nulls_may_hide=False,
)
parse = partial(read, dialect=STREAMX)
