"""AWS Database Migration Service to Kafka or Kinesis (its user guide, "Using Apache Kafka as a target").

``metadata`` names table, operation and clock, ``data`` holds the row, a before image is under a
configurable name. Quirks:

- ``record-type`` is ``data`` or ``control``; control messages carry a table's structure, no statement.
- ``load`` is a row of the full load.
- ``stream-position`` is sent only with transaction details switched on, and never with control messages
  and rows of the full load.  A table that is loaded again is right by arrival alone, so arrival decides
  unless the source says ``order_by: sequence``.  Each engine writes positions in its own way:
  PostgreSQL's log address and MySQL's file and offset are read.
- The before image holds only changed key columns by default; or its columns are in
  ``data`` under the prefix ``BI_``.
- NULLs are left out unless the endpoint sets ``IncludeNullAndEmpty``: the option ``left_out`` says what a missing
  column means.
- No key names with rows. A delete may carry NULL for all but the key: these cells are unknown.
- Bytes are hexadecimal digits, with ``0x`` before them unless the endpoint sets ``NoHexPrefix``. A column that only a
  control message says to be bytes keeps its text until gold reads it (type ``hex``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from msgspec import Raw
from msgspec.structs import replace

from ingest import values
from ingest.change import Change, Hints, Image, Message, Op, TableId
from ingest.ddl import TableStructure
from ingest.decoding import rows
from ingest.decoding.replicate_types import HEX, logical
from ingest.errors import Undecodable
from ingest.formats import About
from ingest.images_before import ImagesBefore
from ingest.values.remembered import remembered

ABOUT = About(
    title="AWS DMS JSON",
    document="AWS Database Migration Service, Using Apache Kafka as a target",
    operations=("insert", "update", "delete", "read", "truncate", "ddl"),
    order="arrival; with `order_by: sequence` the stream-position of PostgreSQL or MySQL, if it is sent",
    strength="weak",
    keys="none with rows: `keys:` of the pipeline file, or the structure of a create-table message",
    types="none with rows: only `columns:` of the pipeline file",
    images="partial",
    ddl="control.table-def, a structure without a statement",
    losses=(
        "Key columns are not named with rows, so `keys:` should name them.",
        "Full-load rows and control messages have no stream position, so the order of arrival is the order.",
        "NULLs are left out unless the endpoint sets IncludeNullAndEmpty: an update to NULL then looks like an unchanged column.",
        "Numbers and times are as DMS converted them to its own types.",
    ),
    options={
        "timezone": "zone of times that name none, default UTC",
        "binary": "encoding of bytes, default hex, with or without 0x",
        "before_image": "the member that holds the before image, default before-image",
        "time_units": "unit of whole-number times; without it they stay as they are",
        "left_out": "`null` if the endpoint leaves out NULLs (its default), `unchanged` if it sends them",
        "order_by": "arrival (default), sequence or event_time",
    },
    order_by="arrival",
    bytes_as="hex",
    leaves_out_nulls="by default",
    by_keys=(Op.UPDATE, Op.DELETE),
    before=ImagesBefore(clocks_messages=True),
)

OPS = {
    "load": Op.READ, "insert": Op.INSERT, "update": Op.UPDATE, "delete": Op.DELETE, "truncate-table": Op.TRUNCATE
}  # fmt: skip
BEFORE_IMAGE = "before-image"
BEFORE_PREFIX = "BI_"
"""By the encoding of bytes, the type of a column that no row's message declares; texts in others are kept as texts."""

_POSTGRES = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})(?:\.([0-9]{1,18}))?(?:\.|\Z)", re.ASCII)
_MYSQL = re.compile(r"[A-Za-z][\w.-]*\.([0-9]{1,18}):([0-9]{1,18})", re.ASCII)


def parse(message: Message, hints: Hints) -> Iterable[Change]:
    envelope, note = values.opened(message.sent)
    meta = values.bare_image(envelope.get("metadata", b"{}"))
    record, kind = meta.get("record-type"), meta.get("operation")
    if record is None or kind is None:
        raise Undecodable("not-this-format", "metadata.record-type or metadata.operation is missing")
    op = OPS.get(kind) if record == "data" or kind == "truncate-table" else Op.DDL
    if op is None or record not in ("data", "control"):
        raise Undecodable("unknown-operation", f"operation {kind[:40]!r} is not documented")
    place = _place(meta, op, note)
    if op is Op.TRUNCATE:
        return (place,)
    if op is Op.DDL:
        control = bytes(envelope.get("control", b"{}"))
        encoding = hints.options.binary or HEX
        structure = _structure(b"{}" if control == b"null" else control, kind, encoding)
        return (replace(place, structure=structure, note=rows.noted(place.note, f"kind {kind}")),)
    return (_row(place, envelope, hints, message.topic),)


def recognise(sample: bytes) -> str | None:
    """``metadata`` with ``record-type``."""
    metadata = values.bare_image(values.opened(sample)[0].get("metadata", b""))
    return "metadata.record-type" if "record-type" in metadata else None


def _place(meta: Image, op: Op, note: str | None) -> Change:
    schema, table = meta.get("schema-name"), meta.get("table-name")
    position = meta.get("stream-position") or None
    sequence, log = log_position(position), _MYSQL.match(position or "")
    clock = rows.moment(meta.get("commit-timestamp"), "UTC")
    return Change(
        op=op,
        table=TableId.named(schema, None, table),
        sequence=sequence,
        position=position,
        servers=rows.binlog(None, log[0].partition(":")[0]) if log else (),
        event_time=rows.moment(meta.get("timestamp"), "UTC") if clock is None else clock,
        transaction=meta.get("transaction-id"),
        note=rows.noted(note, rows.unreadable(position, sequence)),
    )


def log_position(position: str | None) -> tuple[int, ...]:
    """Numbers of a position as PostgreSQL or MySQL tasks write it, else nothing."""
    match = _POSTGRES.match(position or "")
    if match is not None:
        return int(match[1], 16), int(match[2], 16), int(match[3] or 0)
    match = _MYSQL.match(position or "")
    return (int(match[1]), int(match[2])) if match is not None else ()


def _row(place: Change, envelope: Mapping[str, Raw], hints: Hints, topic: str) -> Change:
    raw = envelope.get("data")
    data = values.optional_image(raw)
    before = values.optional_image(envelope.get(hints.options.extra.get("before_image", BEFORE_IMAGE)))
    rows.require_image(data, place.op)
    table = rows.named_table(place.table, hints, topic)
    declared = hints.tables(table)
    if data is not None and before is None:
        before = _take_prefixed(data, place.op, {*declared.columns, *declared.keys})
    plan = rows.plan_of_declared(declared.columns, hints.options, binary=HEX)
    kept = rows.convert_both(before, data, plan, new=raw)
    if place.op is Op.DELETE:
        before, data = _known_of_deleted({**(data or {}), **(before or {})}, declared.keys), None
    elif place.op is not Op.UPDATE:
        before = None
    partial = rows.may_lack_columns(place.op, hints)
    return rows.finish(place, table, declared.keys, before or None, data, plan, kept, partial=partial)


def _known_of_deleted(row: Image, keys: Collection[str]) -> Image:
    """A deleted row without the NULLs that stand for what the source's log does not hold: all cells but the key."""
    key = {name: cell for name, cell in row.items() if name in keys}
    return key if keys and all(row[name] is None for name in row.keys() - key.keys()) else row


def _take_prefixed(data: Image, op: Op, columns: Collection[str]) -> Image | None:
    """The before image that the row itself holds: columns with the prefix, next to their own.

    A table may have such a column itself: the pipeline file names it, or a row that has no row before it
    holds a value in it.
    """
    names = [
        name
        for name in data
        if name.startswith(BEFORE_PREFIX) and name[len(BEFORE_PREFIX) :] in data and name not in columns
    ]
    if op in (Op.READ, Op.INSERT) and any(data[name] is not None for name in names):
        return None
    return {name[len(BEFORE_PREFIX) :]: data.pop(name) for name in names} or None


_STRUCTURES = {"create-table": "CREATE", "drop-table": "DROP", "rename-table": "RENAME"}


@remembered(256)
def _structure(control: bytes, kind: str, encoding: str) -> str | None:
    """The table's structure as `Change.structure` wants it, or None where there is none; bytes are in ``encoding``."""
    action = _STRUCTURES.get(kind, "ALTER")
    structure = values.strict(control)
    try:
        definition = structure.get("table-def")
        if definition is None and action in ("CREATE", "ALTER"):
            return None
        columns = {
            str(name): logical(column, encoding)
            for name, column in (definition or {}).get("columns", {}).items()
        }
        keys = tuple(str(name) for name in (definition or {}).get("primary-key") or ())
    except (TypeError, AttributeError):
        return None
    return TableStructure(action, keys, columns).text()
