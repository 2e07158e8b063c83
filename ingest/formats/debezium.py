"""Debezium's JSON: change events of every relational connector, wrapped or flattened.

Documents: Debezium's connector pages (``documentation/modules/ROOT/pages/connectors/*.adoc``) and
``transformations/event-flattening.adoc``; FORMATS.md section 8; readings in sections 2 and 12.

- A message is the envelope itself, or ``{"schema", "payload"}`` with the schema of every value.
- Snapshot rows carry the position of their snapshot. A log that is written at commit (MySQL, Oracle,
  SQL Server) places them exactly by it, incremental ones too. PostgreSQL's ``lsn`` is where a change was
  written, which may lie before a snapshot that did not see it yet: its snapshot rows are phase 0.
- A changed key arrives as a delete and a create of one position; the header ``__debezium.oldkey`` of the
  create gives the old key, under which unavailable values are to be found.
- Unchanged large values are sent as a placeholder: such a column is absent and the row partial.
- Flattened rows keep their position only where deletes are rows too (``__deleted``); else a delete is a
  key with a null value, which has no position, so arrival decides. Such a null value is a delete only
  for a topic that ``options.table`` names; after a wrapped delete it is a tombstone.
- ``bigint unsigned`` past 2^63 arrives negative: right again where ``columns:`` declares ``uint64``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache, partial
from typing import NamedTuple

import msgspec

from ingest.change import NO_TABLE, Change, Hints, Image, Message, Op, Options, TableHints, TableId
from ingest.decoding import connect
from ingest.decoding.connect import Field, Meaning
from ingest.decoding.connectors import changed_table, dialect, event_time, sequence, structure
from ingest.decoding.declared import Reading, geometry, variable_decimal
from ingest.errors import Undecodable
from ingest.formats import About
from ingest.values import (
    Raw,
    base64_text,
    date_text,
    datetime_text,
    integer,
    is_null,
    items,
    micros_of,
    opened,
    strict,
    text,
    time_text,
    zoned_text,
    zoneless_text,
)

ABOUT = About(
    title="Debezium JSON, with or without schema, wrapped or flattened",
    document="Debezium documentation, connectors and event flattening",
    operations=("insert", "update", "delete", "read", "truncate", "ddl", "heartbeat", "begin", "commit"),
    order="MySQL file, pos, row; PostgreSQL lsn; Oracle commit_scn, scn, ssn; SQL Server commit_lsn, "
    "change_lsn, event_serial_no; flattened rows without __deleted by arrival",
    strength="strong",
    keys="the Kafka key's columns",
    types="the message's schema; without one from columns:",
    images="full (unchanged large values may be missing)",
    ddl="schema-change topic: statement and structure",
    losses=(
        "A zero date in a NOT NULL column arrives as 1970-01-01.",
        "With time.precision.mode connect a MySQL TIME beyond a day arrives as NULL.",
        "Flattening drops TRUNCATE, and its drop mode drops deletes.",
        "A MySQL FLOAT read by the snapshot is rounded to six digits.",
    ),
    options={
        "table": "the table of flattened rows that name none, and of null-value deletes",
        "timezone": "UTC; the zone of timestamp texts without one",
        "binary": "base64; how bytes are written where the message has no schema",
        "time_units": "adaptive; what bare numbers in declared time columns count",
        "decimal_scale": "none; if given, texts in declared decimal columns are base64 of unscaled bytes",
        "order_by": "sequence",
    },
)

MESSAGE = "m"  # written into PostgreSQL's log by pg_logical_emit_message; of no table
OPS = {
    "c": Op.INSERT,
    "u": Op.UPDATE,
    "d": Op.DELETE,
    "r": Op.READ,
    "t": Op.TRUNCATE,
    MESSAGE: Op.CONTROL,
}
OLD_KEY = "__debezium.oldkey"
FLAT_OPS = {name: op for name, op in OPS.items() if op not in (Op.TRUNCATE, Op.CONTROL)}
PLACEHOLDER = "__debezium_unavailable_value"
CLOCKS = frozenset({"ts_ms", "ts_us", "ts_ns"})

_CONNECT = "org.apache.kafka.connect.data."
_TIME = "io.debezium.time."
_DATA = "io.debezium.data."
SEMANTICS: dict[str, Meaning] = {
    _CONNECT + "Date": Meaning("date", "int", date_text),
    _CONNECT + "Time": Meaning("time", "int", partial(time_text, unit=10**3)),
    _CONNECT + "Timestamp": Meaning("datetime", "int", partial(datetime_text, unit=10**3)),
    _TIME + "Date": Meaning("date", "int", date_text),
    _TIME + "Time": Meaning("time", "int", partial(time_text, unit=10**3)),
    _TIME + "MicroTime": Meaning("time", "int", partial(time_text, unit=10**6)),
    _TIME + "NanoTime": Meaning("time", "int", partial(time_text, unit=10**9)),
    _TIME + "Timestamp": Meaning("datetime", "int", partial(datetime_text, unit=10**3)),
    _TIME + "MicroTimestamp": Meaning("datetime", "int", partial(datetime_text, unit=10**6)),
    _TIME + "NanoTimestamp": Meaning("datetime", "int", partial(datetime_text, unit=10**9)),
    _TIME + "ZonedTimestamp": Meaning("timestamp", "text", partial(zoned_text, zone="UTC")),
    _TIME + "ZonedTime": Meaning("string", "text", str),
    _TIME + "IsoDate": Meaning("date", "text", lambda value: value.removesuffix("Z")),
    _TIME + "IsoTime": Meaning("time", "text", lambda value: value.removesuffix("Z")),
    _TIME + "IsoTimestamp": Meaning("datetime", "text", lambda value: zoneless_text(value.removesuffix("Z"))),
    _TIME + "Year": Meaning("year", "int", str),
    _TIME + "Interval": Meaning("interval", "text", str),
    _TIME + "MicroDuration": Meaning("interval", "int", partial(connect.duration, unit=10**6)),
    _TIME + "NanoDuration": Meaning("interval", "int", partial(connect.duration, unit=10**9)),
    _DATA + "Json": Meaning("json", "text", str),
    _DATA + "Xml": Meaning("string", "text", str),
    _DATA + "Uuid": Meaning("string", "text", str),
    _DATA + "Ltree": Meaning("string", "text", str),
    _DATA + "TsVector": Meaning("string", "text", str),
    _DATA + "Enum": Meaning("enum", "text", str),
    _DATA + "EnumSet": Meaning("set", "text", str),
    _DATA + "VariableScaleDecimal": Meaning("decimal", "struct", variable_decimal),
    **{
        _DATA + "geometry." + shape: Meaning("geometry", "struct", geometry)
        for shape in ("Geometry", "Geography", "Point")
    },
}
"""Semantic names whose meaning needs no parameters; ``Decimal`` and ``Bits`` do."""


def meanings(field: Field) -> Meaning | None:
    """What a field's semantic name says of its values."""
    if field.semantic == _CONNECT + "Decimal":
        return connect.decimal_meaning(field.parameters)
    if field.semantic == _DATA + "Bits":
        return Meaning(_bit_type(field.parameters.get("length")), "bytes", _bits)
    return SEMANTICS.get(field.semantic)


def _bits(value: bytes) -> str:
    return str(int.from_bytes(value[: connect.MAX_BITS], "little"))


def _bit_type(length: str | None) -> str:
    width = integer(length) or 1
    return "bit" if width < 64 else "bit(64)" if width == 64 else "string"


# --- one message --------------------------------------------------------------------------------


def parse(message: Message, hints: Hints) -> Iterable[Change]:
    """The change of one message; a DDL message may name several tables and gives one for each."""
    if message.value is None:
        return [no_value(message, json_key(message.key, hints), hints)]
    root, note = opened(message.value)
    schema, found = connect.unwrapped(root)
    if found is None:
        return [no_value(message, json_key(message.key, hints), hints)]
    kind = kind_of(found)
    if kind == "row":
        return [_row(schema, found, message, hints, note)]
    if kind == "flat":
        return [_flat(schema, found, message, hints, note)]
    return control(kind, found)


def kind_of(names: Collection[str]) -> str:
    """``row``, ``ddl``, ``transaction``, ``heartbeat`` or ``flat``, by the names of the members."""
    if "op" in names and ("source" in names or "before" in names or "after" in names):
        return "row"
    if "databaseName" in names and ("ddl" in names or "tableChanges" in names):
        return "ddl"
    if "status" in names and "id" in names and "event_count" in names:
        return "transaction"
    if names and CLOCKS.issuperset(names):
        return "heartbeat"
    return "flat"


class Event(NamedTuple):
    """A wrapped row, its images canonical already; ``key`` is the Kafka key's image."""

    op: str | None
    source: Image
    table: TableId
    before: Image | None
    after: Image | None
    types: Mapping[str, str]
    key: Image | None
    old_key: Image | None
    transaction: str | None
    note: str | None = None


def _row(schema: bytes, found: dict[str, Raw], message: Message, hints: Hints, note: str | None) -> Change:
    source = {} if is_null(found.get("source")) else connect.texts(found["source"])
    op = text(found["op"])
    table = NO_TABLE if op == MESSAGE else table_of(source, message, hints)
    declared = hints.tables(table)
    plan = connect.plan(schema, connect.envelope_fields, declared.columns, meanings, reading(hints.options))
    mark = found.get("transaction")
    transaction = {} if mark is None or is_null(mark) else connect.texts(mark)
    return row_change(
        Event(
            op=op,
            source=source,
            table=table,
            before=_image(found.get("before"), plan),
            after=_image(found.get("after"), plan),
            types=plan.types,
            key=json_key(message.key, hints, declared),
            old_key=_old_key(message, hints, declared),
            transaction=transaction.get("id"),
            note=note,
        ),
        declared,
        hints.options,
    )


def row_change(event: Event, declared: TableHints, options: Options) -> Change:
    """The change of one wrapped row, however it was encoded."""
    op = OPS.get(event.op or "")
    if op is None:
        raise Undecodable("unknown-operation", f"op is {event.op!r}, none of {' '.join(OPS)}")
    places, position = sequence(event.source)
    if op is Op.CONTROL:
        return Change(op=op, table=event.table, event_time=event_time(event.source), note="message")
    before, after, notes = _images(op, event)
    missing = _drop_unavailable(before, options) + _drop_unavailable(after, options)
    if missing:
        notes.append(f"unchanged large values are absent: {', '.join(dict.fromkeys(missing))}")
    return Change(
        op=op,
        table=event.table,
        keys=declared.keys or tuple(event.key or ()),
        before=before,
        after=after,
        types=event.types,
        partial=bool(missing and op is not Op.DELETE),
        phase=_phase(op, event.source, places),
        sequence=places,
        position=position,
        event_time=event_time(event.source),
        transaction=event.transaction or event.source.get("gtid") or event.source.get("txId"),
        note="; ".join(notes) or None,
    )


def _images(op: Op, event: Event) -> tuple[Image | None, Image | None, list[str]]:
    """Before and after as the operation needs them, from the message's images and the keys."""
    notes = [event.note] if event.note else []
    if op is Op.TRUNCATE:
        return None, None, notes
    if op is Op.DELETE:
        before = event.before if event.before is not None else event.key
        if not before:
            raise Undecodable("no-image", "a delete has neither a before image nor a Kafka key")
        return before, None, notes
    if event.after is None:
        raise Undecodable("no-image", f"op {event.op!r} has no after image")
    if op is Op.INSERT and event.old_key:
        return event.old_key, event.after, [*notes, "the key changed"]
    return (event.before if op is Op.UPDATE else None), event.after, notes


def _phase(op: Op, source: Image, places: tuple[int, ...]) -> int:
    return 0 if op is Op.READ and (not places or "lsn" in source) else 1


def no_value(message: Message, key: Image | None, hints: Hints) -> Change:
    """A null value: the delete of its key where ``options.table`` names the topic's table, else a mark."""
    table = hints.table_of(message.topic)
    if not key or table is None:
        return Change(op=Op.CONTROL, note="tombstone")
    keys = hints.tables(table).keys or tuple(key)
    return Change(op=Op.DELETE, table=table, keys=keys, before=key, note="null value")


# --- flattened rows -----------------------------------------------------------------------------


def _flat(schema: bytes, found: dict[str, Raw], message: Message, hints: Hints, note: str | None) -> Change:
    meta = {name[2:]: text(value) for name, value in found.items() if name.startswith("__")}
    table = flat_table(meta, message, hints)
    declared = hints.tables(table)
    plan = connect.plan(schema, connect.row_fields, declared.columns, meanings, reading(hints.options))
    row = {
        name: plan.columns[name].json(value) if name in plan.columns else text(value)
        for name, value in found.items()
        if not name.startswith("__")
    }
    key = json_key(message.key, hints, declared)
    return flat_change(meta, row, plan.types, table, key, declared, hints.options, note)


def flat_table(meta: Image, message: Message, hints: Hints) -> TableId:
    """The table of a flattened row: from its ``__`` members, else from ``options.table``."""
    name = meta.get("table") or meta.get("source_table") or meta.get("collection")
    if name:
        database = meta.get("db") or meta.get("source_db")
        return TableId(database, meta.get("schema") or meta.get("source_schema"), name)
    return _table_by_topic(message, hints)


def flat_change(
    meta: Image,
    row: Image,
    known: Mapping[str, str],
    table: TableId,
    key: Image | None,
    declared: TableHints,
    options: Options,
    note: str | None = None,
) -> Change:
    """The change of one flattened row; without an operation it is an upsert."""
    if not row:
        raise Undecodable("not-this-format", "the message has no columns and no member of a Debezium event")
    op = Op.DELETE if meta.get("deleted") == "true" else FLAT_OPS.get(meta.get("op") or "u")
    if op is None:
        raise Undecodable("unknown-operation", f"__op is {meta.get('op')!r}, none of {' '.join(FLAT_OPS)}")
    source = {name.removeprefix("source_"): value for name, value in meta.items()}
    places, position = sequence(source) if "deleted" in meta else ((), None)
    missing = _drop_unavailable(row, options)
    return Change(
        op=op,
        table=table,
        keys=declared.keys or tuple(key or ()),
        before=row if op is Op.DELETE else None,
        after=None if op is Op.DELETE else row,
        types={name: logical for name, logical in known.items() if not name.startswith("__")},
        partial=bool(missing) and op is not Op.DELETE,
        phase=_phase(op, source, places),
        sequence=places,
        position=position,
        event_time=event_time({name: meta.get("source_" + name) for name in CLOCKS}),
        transaction=source.get("gtid") or source.get("txId"),
        note=note,
    )


# --- schema changes, transactions, heartbeats -----------------------------------------------------


def control(kind: str, found: Mapping[str, Raw]) -> list[Change]:
    """The changes of a message that is no row; ``kind`` as `kind_of` says."""
    if kind == "ddl":
        return _ddl(found)
    if kind == "heartbeat":
        return [Change(op=Op.HEARTBEAT)]
    status = text(found["status"])
    if status not in ("BEGIN", "END"):
        raise Undecodable("unknown-operation", f"a transaction's status is {status!r}, not BEGIN or END")
    count = text(found["event_count"])
    op = Op.BEGIN if status == "BEGIN" else Op.COMMIT
    note = f"event_count={count}" if count else None
    when = micros_of(integer(_text(found, "ts_ms")), 1000)
    return [Change(op=op, transaction=text(found["id"]), event_time=when, note=note)]


def _ddl(found: Mapping[str, Raw]) -> list[Change]:
    source = {} if is_null(found.get("source")) else connect.texts(found["source"])
    places, position = sequence(source)
    own = TableId(_text(found, "databaseName"), _text(found, "schemaName"), source.get("table") or None)
    changes = (
        [] if is_null(found.get("tableChanges")) else [strict(each) for each in items(found["tableChanges"])]
    )
    snapshot = source.get("snapshot") not in (None, "", "false")
    common = Change(
        op=Op.DDL,
        table=own,
        sequence=places,
        position=position,
        event_time=event_time(source) or micros_of(integer(_text(found, "ts_ms")), 1000),
        ddl=_text(found, "ddl"),
        note="snapshot" if snapshot else None,
        dialect=dialect(source),
    )
    if not changes and common.ddl is None:
        raise Undecodable("bad-message", "a schema change has neither a statement nor a structure")
    return [
        msgspec.structs.replace(
            common, row=row, table=changed_table(change, own), structure=structure(change, source)
        )
        for row, change in enumerate(changes)
    ] or [common]


# --- parts ----------------------------------------------------------------------------------------


def table_of(source: Image, message: Message, hints: Hints) -> TableId:
    """The table of a wrapped row: from its source, else from ``options.table``."""
    if source.get("connector") == "mongodb" or source.get("collection"):
        raise Undecodable(
            "unsupported-source", "documents of MongoDB are no rows; capture a relational source"
        )
    name = source.get("table")
    if name:
        return TableId(source.get("db") or source.get("keyspace"), source.get("schema"), name)
    return _table_by_topic(message, hints)


def _table_by_topic(message: Message, hints: Hints) -> TableId:
    table = hints.table_of(message.topic)
    if table is None:
        raise Undecodable("no-table", "the message names no table; give it in options.table")
    return table


def json_key(key: bytes | None, hints: Hints, declared: TableHints | None = None) -> Image | None:
    """The Kafka key as an image of the key columns; None if there is none or it is no JSON object."""
    columns = declared.columns if declared else {}
    return connect.json_key(
        key,
        lambda schema: connect.plan(schema, connect.row_fields, columns, meanings, reading(hints.options)),
    )


def _old_key(message: Message, hints: Hints, declared: TableHints) -> Image | None:
    for name, value in message.headers:
        if name == OLD_KEY:
            return json_key(value, hints, declared)
    return None


@lru_cache(maxsize=1024)
def _reading(binary: str | None, units: str | None, timezone: str, scale: int | None) -> Reading:
    time = "micros" if units in (None, "adaptive") else units
    return Reading(binary or "base64", "little", time or "micros", units or "adaptive", timezone, scale)


def reading(options: Options) -> Reading:
    """How this format's bare values read under a source's options."""
    return _reading(options.binary, options.time_units, options.timezone, options.decimal_scale)


def _text(found: Mapping[str, Raw], name: str) -> str | None:
    return text(found[name]) if name in found else None


def _image(raw: Raw | None, plan: connect.Plan) -> Image | None:
    if raw is None or is_null(raw):
        return None
    if bytes(raw)[:1] == b'"':
        raise Undecodable("unsupported-source", "an image that is JSON text is a MongoDB document, no row")
    return connect.json_image(raw, plan.columns)


def _drop_unavailable(image: Image | None, options: Options) -> list[str]:
    """Take the columns that hold the placeholder out of an image, in any of its encodings."""
    if not image:
        return []
    forms = _placeholders(options.extra.get("unavailable_value", PLACEHOLDER))
    if forms.isdisjoint(image.values()):
        return []
    gone = [name for name, value in image.items() if value in forms]
    for name in gone:
        del image[name]
    return gone


@lru_cache(maxsize=64)
def _placeholders(plain: str) -> frozenset[str]:
    data = plain.encode()
    quoted = msgspec.json.encode(plain).decode()
    codes = ",".join(map(str, data))
    return frozenset(
        [
            *(plain, base64_text(data), data.hex(), data.hex().upper()),
            *(f"[{quoted}]", f"[{codes}]", f"{{{quoted}:{quoted}}}"),  # arrays of texts, of bytes; maps
        ]
    )


def recognise(sample: bytes) -> str | None:
    """Evidence in one message; a flattened row shows none unless it carries ``__`` members."""
    try:
        found = connect.unwrapped(opened(sample)[0])[1]
    except Undecodable:
        return None
    if not found:
        return None
    kind = kind_of(found)
    if kind == "row":
        return _evidence(found)
    if kind == "flat":
        marks = [name for name in ("__deleted", "__op") if name in found]
        return f"a flat row with {marks[0]}" if marks else None
    return f"the members of a Debezium {kind} message"


def _evidence(found: Mapping[str, Raw]) -> str | None:
    op = text(found["op"])
    source = {} if is_null(found.get("source")) else connect.texts(found["source"])
    if op not in OPS or source.get("name") == "OMS":
        return None
    return f"op {op!r} from connector {source['connector']!r}" if "connector" in source else f"op {op!r}"
