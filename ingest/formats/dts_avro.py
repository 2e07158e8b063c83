"""Alibaba DTS, storage format DTS Avro (document "Data formats of a Kafka cluster", section DTS Avro).

The document only names the schema; ``avro_schemas/dts.avsc`` is the public ``Record.avsc`` of Alibaba's
subscription SDK (repository ``aliyun/aliyun-dts-subscribe-sdk-java``), whose record parser shows what
the document leaves out.

- A message is one bare datum. Newer producers append ``bornTimestamp``, a long; older ones do not.
- An image is a list parallel to ``fields``: value i belongs to field i. The union branch says how a value is
  written, ``dataTypeNumber`` (the source's own code) refines its type; where both disagree the branch wins.
- Fractions of a second of a ``Timestamp`` are microseconds, whatever the source; those of a ``DateTime`` and of a
  ``TimestampWithTimeZone`` are microseconds from MySQL and PostgreSQL, nanoseconds from the others.
- ``EmptyObject`` means a column that was not captured: absent, and the row is partial.
- DDL: ``afterImages`` is the statement, ``objectName`` is often the database alone; which table a TRUNCATE
  empties its text then says.
- ``objectName`` parts are split at dots; a dot of a name is written as backslash, ``u002E``.
- Values of 48 bytes that do not decode are no-operations of the service.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from ingest.change import NO_TABLE, ROW_OPS, Change, Hints, Image, Message, Op, TableId
from ingest.decoding import avro
from ingest.decoding.dts_values import Column, columns
from ingest.decoding.rows import require_images, statement
from ingest.errors import Undecodable
from ingest.formats import About
from ingest.images_before import ImagesBefore
from ingest.values import micros_of, strict
from ingest.values.remembered import remembered

ABOUT = About(
    title="Alibaba DTS, DTS Avro",
    document="DTS Data formats, section DTS Avro; Record.avsc",
    operations=("insert", "update", "delete", "read", "truncate", "ddl", "heartbeat", "begin", "commit"),
    order="id",
    strength="strong",
    keys="tag pk_uk_info: the primary key, else the unique index whose name comes first",
    types="union branch and dataTypeNumber of each column",
    images="full (columns that were not captured are missing)",
    ddl="afterImages holds the statement",
    losses=("Labels of ENUM and lengths of columns are not sent.",),
    options={"timezone": "no meaning; instants carry their own", "order_by": "sequence"},
    framing="length",
    binary=True,
    before=ImagesBefore(renumbers=True),
)

OPS = {
    "INSERT": Op.INSERT, "UPDATE": Op.UPDATE, "DELETE": Op.DELETE, "INIT": Op.READ, "DDL": Op.DDL, "COMMAND": Op.DDL,
    "BEGIN": Op.BEGIN, "COMMIT": Op.COMMIT, "HEARTBEAT": Op.HEARTBEAT,
}  # fmt: skip
"""Every other operation of the schema is a mark of the service: control."""

NO_OPERATION = 48  # bytes
MICROSECOND_SOURCES = frozenset({"MySQL", "PostgreSQL"})

# --- one message --------------------------------------------------------------------------------


def parse(message: Message, hints: Hints) -> Iterable[Change]:
    try:
        record = decode(message.sent)
    except Undecodable:
        if len(message.sent) == NO_OPERATION:
            return [Change(op=Op.CONTROL, note="no operation")]
        raise
    return _changes(record, hints)


def decode(data: bytes) -> dict[str, Any]:
    """One record of the schema, with or without ``bornTimestamp``, to the last byte."""
    record, end = avro.read_at(avro.load(avro.bundled("dts"), "Record"), data, 0)
    if end < len(data):
        record["bornTimestamp"] = avro.read(avro.load('"long"'), data[end:])
    return record  # type: ignore[no-any-return]


def _changes(record: dict[str, Any], hints: Hints) -> tuple[Change, ...]:
    operation, tags = record["operation"], record["tags"]
    op = OPS.get(operation, Op.CONTROL)
    if operation == "COMMAND" and not isinstance(record["afterImages"], str):
        op = Op.CONTROL  # a command of a document store, which is not a statement
    common = Change(
        op=op,
        sequence=(record["id"],),
        position=record["sourcePosition"] or None,
        event_time=micros_of(record["sourceTimestamp"], 1) or None,
        transaction=tags.get("GTID") or record["sourceTxid"] or None,
        note=operation if op is Op.CONTROL else None,
    )
    if op is Op.DDL:
        sql, name, source = record["afterImages"], record["objectName"], record["source"]["sourceType"]
        if not isinstance(sql, str):
            raise Undecodable("bad-message", "a DDL record has no statement in afterImages")
        table, dialect = table_of(name) if name else NO_TABLE, DIALECTS.get(source, "mysql")
        return statement(replace(common, table=table, dialect=dialect), sql, None)
    return (_row(record, common, hints) if op in ROW_OPS else common,)


DIALECTS = {
    "Oracle": "oracle",
    "PostgreSQL": "postgres",
    "PPAS": "postgres",
    "SQLServer": "sqlserver",
    "DB2": "db2",
}


def _row(record: dict[str, Any], common: Change, hints: Hints) -> Change:
    if not record["objectName"]:
        raise Undecodable("no-table", "a row record has no objectName")
    if not isinstance(record["fields"], list):
        raise Undecodable("bad-message", "a row record has no list of fields")
    table = table_of(record["objectName"])
    declared = hints.tables(table)
    source = record["source"]["sourceType"]
    micros = source in MICROSECOND_SOURCES and "<->" not in record["sourcePosition"]
    plan = columns(tuple((field["name"], field["dataTypeNumber"]) for field in record["fields"]), source)
    types_sent: dict[str, str] = {}
    before, unsent = _image(record["beforeImages"], plan, micros, types_sent)
    after, missing = _image(record["afterImages"], plan, micros, types_sent)
    op = common.op
    require_images(before, after, op)
    absent = unsent + missing
    return replace(
        common,
        table=table,
        keys=declared.keys or key_columns(record["tags"].get("pk_uk_info")),
        before=before,
        after=None if op is Op.DELETE else after,
        types={**types_sent, **declared.columns} if declared.columns else types_sent,
        partial=missing > 0 and op is not Op.DELETE,
        phase=0 if op is Op.READ and record["id"] <= 0 else 1,
        note=f"columns that were not captured are absent: {absent}" if absent else None,
    )


def _image(
    cells: list[Any] | str | None, plan: tuple[Column, ...], micros: bool, types_sent: dict[str, str]
) -> tuple[Image | None, int]:
    """One image by its columns, and how many of them were not captured; types go into ``types_sent``."""
    if cells is None:
        return None, 0
    if isinstance(cells, str) or len(cells) != len(plan):
        raise Undecodable(
            "bad-message", f"an image does not have one value for each of its fields (there are {len(plan)})"
        )
    image: Image = {}
    for (name, readers), cell in zip(plan, cells, strict=True):
        if cell is None:
            image[name] = None
            continue
        tag, value = cell
        if tag != "EmptyObject":
            read, hint = readers[tag]
            try:
                image[name], types_sent[name] = read(value, hint, micros)
            except ValueError as error:
                raise Undecodable(
                    "bad-value", f"a {tag} of column {name[:80]!r} cannot be read: {error}"
                ) from None
    return image, len(plan) - len(image)


@remembered(10_000)
def table_of(name: str) -> TableId:
    """``db``, ``db.table`` or ``db.schema.table``; a dot inside a part is escaped."""
    parts = [part.replace(_DOT, ".") for part in name.split(".")]
    if len(parts) == 1:
        return TableId(parts[0], None, None)
    if len(parts) == 2:
        return TableId(parts[0], None, parts[1])
    if len(parts) == 3:
        return TableId(*parts)
    raise Undecodable("bad-message", f"objectName has {len(parts)} parts")


_DOT = "\\u002E"


@remembered(10_000)
def key_columns(info: str | None) -> tuple[str, ...]:
    """The primary key of ``{"PRIMARY": ["id"], "uk_x": ["a"]}``, else the unique index whose name comes first.

    The order of a JSON object's members means nothing: by it the key could change from message to message.
    """
    if not info:
        return ()
    try:
        indexes = strict(info.encode())
        columns = indexes.get("PRIMARY") or next(
            (indexes[name] for name in sorted(indexes) if indexes[name]), ()
        )
        return tuple(map(str, columns))
    except (AttributeError, TypeError, UnicodeEncodeError):
        raise Undecodable("bad-message", "the tag pk_uk_info is not an object of lists") from None


def recognise(sample: bytes) -> str | None:
    """The whole sample is one record of the schema."""
    if sample[:1] == b"{":
        return None
    operation = decode(sample)["operation"]
    return f"one {operation} record of the DTS schema, to the last byte"
