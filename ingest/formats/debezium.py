"""Debezium's JSON: change events of every relational connector, wrapped or flattened.

Documents: Debezium's connector pages (``documentation/modules/ROOT/pages/connectors/*.adoc``) and
``transformations/event-flattening.adoc``.

- A message is the envelope itself, or ``{"schema", "payload"}`` with the schema of every value.
- Snapshot rows carry the position of their snapshot. A log that is written at commit (MySQL, Oracle,
  SQL Server) places them exactly by it, incremental ones too. PostgreSQL's ``lsn`` is where a change was
  written, which may lie before a snapshot that did not see it yet: rows of its initial snapshot are phase
  0. Silver places those of a later one at their position (`ingest.ledgers.later_loads`). Rows of an incremental snapshot were compared with the stream around them and keep their place.
- A changed key arrives as a delete and a create of one position; the header ``__debezium.oldkey`` of the
  create gives the old key, under which unavailable values are to be found.
- Unchanged large values are sent as a placeholder: such a column is absent and the row partial.
- Flattened rows keep their position only where deletes are rows too (``__deleted``); else a delete is a
  key with a null value, which has no position, so arrival decides. Such a null value is a delete only
  for a topic that ``options.table`` names; after a wrapped delete it is a tombstone. A file has a line ``null`` for it, without
  the key: after a delete that is a row it says nothing, and else it is counted (`ingest.quality.null_values`).
- MySQL's ``row`` counts the rows of one event; in a compressed transaction, whose events share their position, it starts
  again with each (`ingest.silver.restarts`).
- ``bigint unsigned`` past 2^63 arrives negative: right again where ``columns:`` declares ``uint64``, or the schema has
  the column's own type (``column.propagate.source.type``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple
from uuid import UUID

from ingest.change import (
    LOAD_ENDS,
    LOAD_STARTS,
    NO_TABLE,
    NULL_VALUE,
    READ_MEANWHILE,
    UNSURE_NULLS,
    Change,
    ColumnSchema,
    Hints,
    Image,
    Message,
    Op,
    Options,
    TableHints,
    TableId,
)
from ingest.decoding import connect, debezium_events, json_values
from ingest.decoding.connect import ConnectPlan, Field, meanings
from ingest.decoding.declared_values import Reading, compact
from ingest.decoding.rows import binlog, named_table, noted, operation, present
from ingest.errors import Undecodable
from ingest.formats import About, SharedEvidence
from ingest.images_before import ImagesBefore
from ingest.values import base64_text, date_text

ABOUT = About(
    null_deletes=True,
    split_moves=True,
    counts_rows=True,
    shared_reads=True,
    placed_loads=True,
    nulls_for_large=True,
    load_ends="last row",
    title="Debezium JSON, with or without schema, wrapped or flattened",
    document="Debezium documentation, connectors and event flattening",
    operations=("insert", "update", "delete", "read", "truncate", "ddl", "heartbeat", "begin", "commit"),
    order="MySQL file, pos, row; PostgreSQL lsn; Oracle commit_scn, scn, ssn; SQL Server commit_lsn, "
    "change_lsn, event_serial_no; TiCDC commit_ts; flattened rows without __deleted by arrival",
    strength="strong except for flattened rows without __deleted",
    keys="the Kafka key's columns",
    types="the message's schema; without one from columns:",
    images="full (unchanged large values may be missing)",
    ddl="schema-change topic: statement and structure",
    losses=(
        "A zero date in a NOT NULL column arrives as 1970-01-01.",
        "With time.precision.mode connect a MySQL TIME beyond a day arrives as NULL.",
        "Flattening drops TRUNCATE, and its drop mode drops deletes.",
        "A MySQL FLOAT read by the snapshot is rounded to six digits.",
        "A MySQL YEAR of 0 arrives as 1900, and NaN in a PostgreSQL NUMERIC without digits as NULL.",
        "A NULL in a column with DEFAULT arrives as that default, unless the converter is configured otherwise.",
        "PostgreSQL: of a new nullable column that is an array or bytea, or whose DEFAULT is an expression, older rows have NULL (a text: '') until they change.",
        "PostgreSQL: a default is that of the first row with the column, as ALTER COLUMN ... SET DEFAULT has left it until then.",
        "PostgreSQL: a serial column, and one NOT NULL with an expression as DEFAULT, arrives with 0, '' or false as its default.",
        "PostgreSQL: ALTER COLUMN ... TYPE between types that arrive alike (inet, char, text) is seen when a row changes.",
        "SQL Server: of a new nullable column with DEFAULT no message says whether older rows have it (WITH VALUES) or NULL: this is asked.",
        "SQL Server: with data.query.mode direct a transaction's changes come in the order of its statements, which no message says; where change_lsn goes back (an update of many keys), that is right with `order_by: arrival` only.",
    ),
    options={
        "table": "the table of flattened rows that name none, and of null-value deletes",
        "timezone": "UTC; the zone of timestamp texts without one",
        "binary": "base64; how bytes are written where the message has no schema",
        "time_units": "adaptive; what bare numbers in declared time columns count; where it is written, a plain number of a schema also counts the days of a declared date",
        "decimal_scale": "none; if given, texts in declared decimal columns are base64 of unscaled bytes",
        "unavailable_value": "__debezium_unavailable_value; the text that means an unchanged large value",
        "connector": "none; the name of a further connector whose cells are plain values",
        "rows": "none; `flat` if all messages are flattened rows, also those with columns such as op and source",
        "left_out": "none; `unchanged` if flattening drops unchanged fields (drop.unchanged.fields), or if NULL stands for "
        "large values of PostgreSQL that did not change; `null` if it never does",
        "order_by": "sequence",
    },
    bytes_as="base64",
    by_keys_in_schemas=(Op.UPDATE,),
    members=debezium_events.FLAT_METADATA,
    before=ImagesBefore(key_deletes=True),
)

MESSAGE = "m"  # written into PostgreSQL's log by pg_logical_emit_message; of no table
READ, INSERT, UPDATE, DELETE = Op.READ, Op.INSERT, Op.UPDATE, Op.DELETE  # 0.1 us each to look up in the enum
TRUNCATE, CONTROL = Op.TRUNCATE, Op.CONTROL
OPS = {"c": INSERT, "u": UPDATE, "d": DELETE, "r": READ, "t": TRUNCATE, MESSAGE: CONTROL}
OLD_KEY = "__debezium.oldkey"
FLAT_OPS = {name: op for name, op in OPS.items() if op not in (TRUNCATE, CONTROL)}
CONNECTORS = frozenset(
    "mysql mariadb postgresql oracle sqlserver db2 db2as400 informix vitess spanner ingres ticdc tidb oceanbase oms "
    "cockroachdb singlestore".split()
)
"""Connectors whose cells are plain values; those of Cassandra, Scylla and YugabyteDB's gRPC are objects."""
PLACEHOLDER = "__debezium_unavailable_value"


# --- one message --------------------------------------------------------------------------------


def parse(message: Message, hints: Hints) -> Iterable[Change]:
    """The change of one message; a DDL message may name several tables and gives one for each."""
    if json_values.is_null(message.value):
        return [no_value(message, json_key(message.key, hints), hints)]
    document, note = json_values.repaired(
        message.sent, lambda raw: debezium_events.unwrapped(raw, hints, message.topic)
    )
    payload = document.payload
    if payload is None:
        return [no_value(message, json_key(message.key, hints), hints)]
    kind = kind_of(payload, hints)
    if kind == "row":
        return [wrapped_row(JSON, document.schema, payload, message, hints, note)]
    if kind == "flat":
        return [flat_row(JSON, document.schema, payload, message, hints, note)]
    return debezium_events.control(kind, payload)


def kind_of(members: Mapping[str, Any], hints: Hints) -> str:
    """What a message is, as `debezium_events.kind_of` says, unless the options say that all are flattened rows."""
    return "flat" if debezium_events.are_all_flat(hints.options) else debezium_events.kind_of(members)


Images = tuple[Image | None, Image | None]


class Encoding(NamedTuple):
    """How an encoding writes events: JSON here, Avro in the sister format.

    Args:
        text: one value as text.
        texts: a small record's members as texts; none of what is not a record.
        images: the images before and after of a wrapped row, each None where it has none.
        columns: the columns of a flattened row as an image.
        key: the columns of a Kafka key, or None.
        key_columns: their names; none where there is no key.
        envelope_fields: the columns that a wrapped row's schema names.
        row_fields: the columns that a flattened row's schema names.
    """

    text: Callable[[Any], str | None]
    texts: Callable[[Any], Image]
    images: Callable[[Any, Any, ConnectPlan], Images]
    columns: Callable[[Mapping[str, Any], ConnectPlan], Image]
    key: Callable[[bytes | None, Hints, TableHints | None], Image | None]
    key_columns: Callable[[bytes | None, Hints], tuple[str, ...]]
    envelope_fields: Callable[[Any], Iterable[Field]]
    row_fields: Callable[[Any], Iterable[Field]]


def wrapped_row(
    encoding: Encoding,
    schema: str | bytes,
    members: Mapping[str, Any],
    message: Message,
    hints: Hints,
    note: str | None = None,
) -> Change:
    """The change of one wrapped row."""
    source = encoding.texts(members.get("source"))
    named = encoding.text(members["op"])
    table = NO_TABLE if named == MESSAGE else _table(source, message, hints)
    declared, options = hints.tables(table), hints.options
    plan = connect.plan(schema, encoding.envelope_fields, declared.columns, meanings, reading(options))
    images = encoding.images(members.get("before"), members.get("after"), plan)
    old_key = _old_key(encoding, message, hints, declared) if message.headers else None
    transaction = encoding.texts(members.get("transaction")).get("id")
    op = operation(OPS, named or "", "op")
    places, position = debezium_events.sequence(source)
    if op is CONTROL:
        return Change(op=op, table=table, event_time=debezium_events.event_time(source), note="message")
    # most rows need only the names of the key's columns, which the pipeline file or a schema may say
    key = encoding.key(message.key, hints, declared) if op is DELETE and images[0] is None else None
    before, after = _images(op, images, key, old_key)
    keys = declared.keys or encoding.key_columns(message.key, hints)
    before = _told_before(op, (before, after), keys, plan, source)
    missing = _drop_unavailable(before, options) + _drop_unavailable(after, options)
    unsure = _unsure_nulls(after, plan, source, are_told=_are_nulls_told(op, before, old_key))
    missing += _drop_unsure(after, unsure, options)
    absent = f"unchanged large values are absent: {', '.join(dict.fromkeys(missing))}" if missing else None
    return Change(
        op=_operation(op, missing, before),
        table=table,
        keys=keys,
        before=before,
        after=after,
        types=plan.types,
        schema=_schema(plan, source),
        partial=bool(missing and op is not DELETE),
        phase=_phase(op, source, places),
        sequence=places,
        position=position,
        servers=binlog(source.get("server_id"), source.get("file")),
        event_time=debezium_events.event_time(source),
        transaction=transaction or source.get("gtid") or source.get("txId"),
        note=noted(
            note,
            "the key changed" if op is INSERT and old_key else None,
            absent,
            _note_of_load(op, source),
            _note_of_unsure(unsure, options),
        ),
    )


def _old_key(encoding: Encoding, message: Message, hints: Hints, declared: TableHints) -> Image | None:
    """The key that a row had before it changed, which a header says."""
    old = next((value for name, value in message.headers if name == OLD_KEY), None)
    return None if old is None else encoding.key(old, hints, declared)


def _told_before(
    op: Op, images: Images, keys: Collection[str], plan: ConnectPlan, source: Image
) -> Image | None:
    """The image before; none of PostgreSQL's before an update that says no more than the key, which has not changed.

    By ``REPLICA IDENTITY DEFAULT`` the log has the old key of an update that writes it in other bytes (1.0 as 1.00), and the
    connector fills all other columns: with NULL, or, of one that must not be NULL, with its default or its type's zero.
    """
    before, after = images
    if op is not UPDATE or not before or not after or not keys or "lsn" not in source:
        return before
    if any(name not in before or before[name] != after.get(name) for name in keys):
        return before
    others = ((name, text) for name, text in before.items() if name not in keys)
    return None if all(_is_filler(text, plan.schema.get(name)) for name, text in others) else before


def _schema(plan: ConnectPlan, source: Image) -> Mapping[str, ColumnSchema]:
    """What the message's schema says of the columns in the database of its rows."""
    if debezium_events.renames_labels(source):
        return plan.labelled
    return plan.unfilled if debezium_events.may_leave_nulls(source) else plan.schema


def _is_filler(text: str | None, column: ColumnSchema | None) -> bool:
    """True of what is written in a column of which the log has no value: NULL, unless it must not be NULL."""
    if text is None:
        return True
    if column is not None and column.nullable:
        return False
    is_default = column is not None and column.default == text
    return is_default or text in _ZEROS or connect.is_placeholder(text) or text.strip("0.:") in ("", "Z")


_ZEROS = frozenset(("false", "[]", "{}", "PT0S", "P0Y0M0DT0H0M0S"))
"""What the connector writes for no value of a boolean, an array, hstore and an interval; other types have noughts."""


def _note_of_load(op: Op, source: Image) -> str | None:
    """What a row of a snapshot says of it: what the table has besides is not in the source, or rows may follow."""
    return _LOADS.get(source.get("snapshot") or "") if op is READ else None


_INCREMENTAL = "incremental"
_LOADS = {
    **dict.fromkeys(("first", "first_in_data_collection"), LOAD_STARTS),
    **dict.fromkeys(("last", "last_in_data_collection"), LOAD_ENDS),
    _INCREMENTAL: READ_MEANWHILE,
}


def _operation(op: Op, missing: Sequence[str], before: Image | None) -> Op:
    """The operation: a row whose key has changed is not known whole where nothing names the old key."""
    return UPDATE if op is INSERT and missing and before is None else op


def _images(op: Op, images: Images, key: Image | None, old_key: Image | None) -> Images:
    """Before and after as the operation needs them, from the message's images and the keys."""
    before, after = images
    if op is TRUNCATE:
        return None, None
    if op is DELETE:
        before = before if before is not None else key
        if not before:
            raise Undecodable("no-image", "a delete has neither a before image nor a Kafka key")
        return before, None
    if after is None:
        raise Undecodable("no-image", f"the {op} has no after image")
    if op is INSERT and old_key:
        return old_key, after
    return (before if op is UPDATE else None), after


def _phase(op: Op, source: Image, places: tuple[int, ...], *, ordered: bool = True) -> int:
    """0 for a row of a snapshot whose place in the stream is not known, else 1.

    A row of an incremental snapshot was compared with the stream around it, so its place is right.
    Where a connector sends no position at all (``ordered`` is false), arrival decides for every row.
    """
    if op is not READ or not ordered or source.get("snapshot") == _INCREMENTAL:
        return 1
    return 0 if "lsn" in source or (not places and debezium_events.names_position(source)) else 1


def no_value(message: Message, key: Image | None, hints: Hints) -> Change:
    """A null value: the delete of its key where ``options.table`` names the topic's table, else a mark."""
    table = hints.table_of(message.topic)
    if not key or table is None:
        return Change(op=CONTROL, note="tombstone")
    keys = hints.tables(table).keys or tuple(key)
    return Change(op=DELETE, table=table, keys=keys, before=key, note=NULL_VALUE)


# --- flattened rows -----------------------------------------------------------------------------


def flat_row(
    encoding: Encoding,
    schema: str | bytes,
    members: Mapping[str, Any],
    message: Message,
    hints: Hints,
    note: str | None = None,
) -> Change:
    """The change of one flattened row; without an operation it is an upsert."""
    table = _flat_table(_metadata(members, (), encoding.text), message, hints)
    declared, options = hints.tables(table), hints.options
    plan = connect.plan(schema, encoding.row_fields, declared.columns, meanings, reading(options))
    key = encoding.key(message.key, hints, declared)
    columns = {*declared.columns, *declared.keys, *(key or ())}
    meta = _metadata(members, columns, encoding.text)
    row = encoding.columns(
        {name: value for name, value in members.items() if not debezium_events.is_metadata(name, columns)},
        plan,
    )
    if not row:
        raise Undecodable("not-this-format", "the message has no columns and no member of a Debezium event")
    is_deleted = meta.get("deleted") == "true"
    op = DELETE if is_deleted else operation(FLAT_OPS, meta.get("op") or "u", "__op")
    source = {name.removeprefix("source_"): value for name, value in meta.items()}
    ordered = "deleted" in meta
    places, position = debezium_events.sequence(source) if ordered else ((), None)
    missing = _drop_unavailable(row, options)
    unsure = _unsure_nulls(row, plan, source, are_told=_are_nulls_told(op, None, None))
    missing += _drop_unsure(row, unsure, options)
    clocks = {name: meta.get("source_" + name) for name in debezium_events.CLOCKS}
    before, after = (row, None) if op is DELETE else (None, row)
    return Change(
        op=_operation(op, missing, None),
        table=table,
        keys=declared.keys or tuple(key or ()),
        before=before,
        after=after,
        types=present(plan.types, row),
        schema=_schema(plan, source),
        partial=op is not DELETE and (bool(missing) or (op is UPDATE and options.left_out == "unchanged")),
        phase=_phase(op, source, places, ordered=ordered),
        sequence=places,
        position=position,
        servers=binlog(source.get("server_id"), source.get("file")),
        event_time=debezium_events.event_time(clocks),
        transaction=source.get("gtid") or source.get("txId"),
        note=noted(note, _note_of_unsure(unsure, options)),
    )


def _metadata(
    members: Mapping[str, Any], columns: Collection[str], text: Callable[[Any], str | None]
) -> Image:
    """The members that flattening added to a row, without their prefix."""
    return {
        name[2:]: text(value) for name, value in members.items() if debezium_events.is_metadata(name, columns)
    }


def _flat_table(meta: Image, message: Message, hints: Hints) -> TableId:
    """The table of a flattened row: from its ``__`` members, else from ``options.table``."""
    name = meta.get("table") or meta.get("source_table") or meta.get("collection")
    if not name:
        return named_table(NO_TABLE, hints, message.topic)
    database = meta.get("db") or meta.get("source_db")
    schema = meta.get("schema") or meta.get("source_schema")
    if not database and (known := hints.table_of(message.topic)):
        database, schema = known.database, schema or known.schema
    return TableId(database, schema, name)


# --- parts ----------------------------------------------------------------------------------------


def _table(source: Image, message: Message, hints: Hints) -> TableId:
    """The table of a wrapped row: from its source, else from ``options.table``."""
    connector = source.get("connector")
    if connector == "mongodb" or source.get("collection"):
        raise Undecodable(
            "unsupported-source", "documents of MongoDB are not rows; capture a relational source"
        )
    if (
        connector
        and connector.lower() not in CONNECTORS
        and connector != hints.options.extra.get("connector")
    ):
        raise Undecodable(
            "unsupported-source",
            f"how the connector {connector[:40]!r} writes cells is not known (some write each as an object, and an unchanged "
            f"one as null): flatten its rows at the source, or write `connector: {connector[:40]}` under the options if its "
            "cells are plain values",
        )
    name = source.get("table")
    if name:
        return TableId(source.get("db") or source.get("keyspace"), source.get("schema"), name)
    return named_table(NO_TABLE, hints, message.topic)


def json_key(key: bytes | None, hints: Hints, declared: TableHints | None = None) -> Image | None:
    """The Kafka key as an image of the key columns; None if there is none or it is not a JSON object."""
    columns = declared.columns if declared else {}
    return connect.json_key(
        key,
        lambda schema: connect.plan(schema, connect.row_fields, columns, meanings, reading(hints.options)),
    )


def json_key_columns(key: bytes | None, _hints: Hints) -> tuple[str, ...]:
    """The names of the key's columns; none where it is not a JSON object."""
    return connect.json_key_columns(key)


@lru_cache(maxsize=1024)
def _reading(binary: str | None, units: str | None, timezone: str, scale: int | None) -> Reading:
    time = "micros" if units in (None, "adaptive") else units
    return Reading(
        binary or "base64",
        "little",
        time or "micros",
        units or "adaptive",
        timezone,
        scale,
        days=units is not None,
    )


def reading(options: Options) -> Reading:
    """How this format's bare values read under a source's options."""
    return _reading(options.binary, options.time_units, options.timezone, options.decimal_scale)


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


def _are_nulls_told(op: Op, before: Image | None, old_key: Image | None) -> bool:
    """True if a NULL of PostgreSQL is one: of a new row, and where the log has the whole row before."""
    return not old_key if op is INSERT else op is not UPDATE or before is not None


def _unsure_nulls(after: Image | None, plan: ConnectPlan, source: Image, *, are_told: bool) -> list[str]:
    """The columns of an image whose NULL may stand for a large value of PostgreSQL that did not change."""
    if are_told or not plan.unsure or not after or "lsn" not in source:
        return []
    return [name for name, text in after.items() if text is None and name in plan.unsure]


def _drop_unsure(after: Image | None, unsure: list[str], options: Options) -> list[str]:
    """Take such columns out of an image if the options say that they did not change."""
    if not after or options.left_out != "unchanged":
        return []
    for name in unsure:
        del after[name]
    return unsure


def _note_of_unsure(unsure: list[str], options: Options) -> str | None:
    """The note by which `ingest.quality.omitted_nulls` finds them, unless the options say what they are."""
    return UNSURE_NULLS + compact(unsure) if unsure and options.left_out is None else None


@lru_cache(maxsize=64)
def _placeholders(plain: str) -> frozenset[str]:
    """The placeholder of an unchanged large value, in all forms that it has in columns of other types than text."""
    data = plain.encode()
    texts = (plain, base64_text(data), data.hex(), data.hex().upper())
    numbers = list(data)  # of whole numbers, and of what they count: days
    lists: tuple[list[Any], ...] = (
        *([text] for text in texts),
        [_named_uuid(data)],
        numbers,
        list(map(date_text, numbers)),
    )
    return frozenset([*texts, *map(compact, lists), compact({plain: plain})])


def _named_uuid(name: bytes) -> str:
    """The UUID that Java's ``UUID.nameUUIDFromBytes`` makes of a name: version 3 without a namespace."""
    return str(UUID(bytes=hashlib.md5(name, usedforsecurity=False).digest(), version=3))


def _both_images(before: object, after: object, plan: ConnectPlan) -> Images:
    return _image(before, plan), _image(after, plan)


def _image(row: object, plan: ConnectPlan) -> Image | None:
    if row is None:
        return None
    if isinstance(row, str):
        raise Undecodable("unsupported-source", "an image that is JSON text is a MongoDB document, not a row")
    if not isinstance(row, dict):
        raise Undecodable("bad-message", "an image is not a JSON object")
    return connect.json_image(row, plan)


JSON = Encoding(
    text=json_values.text,
    texts=json_values.texts,
    images=_both_images,
    columns=connect.json_image,
    key=json_key,
    key_columns=json_key_columns,
    envelope_fields=connect.envelope_fields,
    row_fields=connect.row_fields,
)


def recognise(sample: bytes) -> str | None:
    """Evidence in one message; a flattened row shows none unless it carries ``__`` members."""
    unwrapped = partial(debezium_events.unwrapped, hints=Hints(), topic="")
    payload = json_values.repaired(sample, unwrapped)[0].payload
    if not payload:
        return None
    kind = debezium_events.kind_of(payload)
    if kind == "row":
        op, source = json_values.text(payload["op"]), json_values.texts(payload.get("source"))
        if op not in OPS or source.get("name") == "OMS":
            return None
        connector = source.get("connector") or "that is not named"
        if connector.lower() not in CONNECTORS:
            return SharedEvidence(f"perhaps op {op!r}, from a connector {connector}")
        return f"op {op!r} from connector {connector!r}"
    if kind == "flat":
        marks = [name for name in ("__deleted", "__op") if name in payload]
        return f"a flat row with {marks[0]}" if marks else None
    return None if kind in debezium_events.NOT_FOR_READERS else f"the members of a Debezium {kind} message"
