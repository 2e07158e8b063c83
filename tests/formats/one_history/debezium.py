"""Debezium's own events, wrapped and flattened, in JSON and Avro; and the three serializers of OMS.

Debezium `connectors/mysql.adoc`, `transformations/event-flattening.adoc`, `configuration/avro.adoc`; "Data
formats" of OMS, Debezium, DebeziumFlatten and DebeziumSmt.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import fastavro

from ingest.change import Hints, Image, Message
from tests.formats.avro_cases import written
from tests.formats.one_history.history import (
    COLUMNS,
    DATABASE,
    DECLARED,
    KEYS,
    TABLE,
    TYPES,
    Event,
    History,
    bit_bytes,
    bytes_of,
    days,
    span,
    ticks,
    unscaled,
)
from tests.formats.one_history.writing import Cell, Dialect, bare, cells, message, told

OPS = {"read": "r", "insert": "c", "update": "u", "delete": "d", "truncate": "t"}
LENGTH = {"flags": "12"}


def events(history: History) -> Iterator[tuple[Event, Image | None]]:
    """Events as connectors make them, with the old key: a changed key is a delete and an insert."""
    for event in history.events:
        if event.kind != "update" or key(event.before) == key(event.after):
            yield event, None
        else:
            yield event._replace(kind="delete", after=None), None
            yield event._replace(kind="insert", before=None), key(event.before)


def key(row: Image | None) -> Image:
    """The key columns of a row."""
    return {name: (row or {})[name] for name in KEYS}


def source(event: Event) -> dict[str, Any]:
    """Where MySQL's connector stood."""
    return {
        "connector": "mysql",
        "name": "capture",
        "ts_ms": event.time,
        "snapshot": "true" if event.kind == "read" else "false",
        "db": DATABASE,
        "table": TABLE,
        "file": f"binlog.{99 + event.number // 6:06d}",
        "pos": 0 if event.kind == "read" else 4000 + event.number // 2 % 3 * 90,
        "row": event.number % 2,
    }


# --- values -------------------------------------------------------------------------------------


def connect(column: str, text: str) -> Any:
    """As Connect carries it: what its JSON writes bare is bare, bytes are base64."""
    value = avro(column, text)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return bare(text) if isinstance(value, float) else value


def avro(column: str, text: str) -> Any:
    """The same as Avro's types: precise numbers as unscaled bytes, times as counts."""
    logical = TYPES[column]
    if logical.startswith("decimal") or logical == "uint64":
        return unscaled(text)
    if logical in ("int64", "int32"):
        return int(text)
    return _CONNECT.get(logical, str)(text)


_CONNECT: dict[str, Callable[[str], Any]] = {
    "float64": float,
    "boolean": lambda text: int(text == "true"),
    "binary": bytes_of,
    "bit": lambda text: int(text).to_bytes(2, "little"),
    "date": days,
    "time": lambda text: span(text, 10**6),
    "datetime(6)": lambda text: ticks(text, 10**6),
}


def schemaless(column: str, text: str) -> Any:
    """Without a schema, and settings to match: decimals as text, unsigned numbers as signed ones."""
    logical = TYPES[column]
    if logical == "uint64":
        return bare(str(int(text) - 2**64 if int(text) >= 2**63 else int(text)))
    return text if logical.startswith("decimal") else connect(column, text)


def oms(column: str, text: str) -> Any:
    """OMS: days, microseconds of TIME, milliseconds of DATETIME, Base16, large numbers as text."""
    logical = TYPES[column]
    if logical in ("binary", "bit"):
        return (bytes_of(text) if logical == "binary" else bit_bytes(text)).hex().upper()
    if logical.startswith("datetime"):
        return ticks(text, 1000)
    return text if logical.startswith(("uint64", "decimal")) else connect(column, text)


# --- schemas ------------------------------------------------------------------------------------

_SEMANTIC = {
    "date": ("int32", "io.debezium.time.Date"),
    "time": ("int64", "io.debezium.time.MicroTime"),
    "datetime(6)": ("int64", "io.debezium.time.MicroTimestamp"),
    "timestamp(6)": ("string", "io.debezium.time.ZonedTimestamp"),
    "bit": ("bytes", "io.debezium.data.Bits"),
    "enum": ("string", "io.debezium.data.Enum"),
    "json": ("string", "io.debezium.data.Json"),
}
_PHYSICAL = {"int64": "int64", "int32": "int32", "boolean": "int16", "float64": "double", "binary": "bytes"}


def physical(column: str) -> tuple[str, str | None, dict[str, str]]:
    """Connect's type, semantic name and parameters of a column."""
    logical = TYPES[column]
    if logical == "uint64" or logical.startswith("decimal"):
        precision, scale = {"uint64": ("20", "0")}.get(logical) or logical[8:-1].split(",")
        parameters = {"scale": scale, "connect.decimal.precision": precision}
        return "bytes", "org.apache.kafka.connect.data.Decimal", parameters
    kind, semantic = _SEMANTIC.get(logical) or (_PHYSICAL.get(logical, "string"), None)
    return kind, semantic, {"length": LENGTH[column]} if column in LENGTH else {}


def field(column: str) -> dict[str, Any]:
    """A column in a schema of Connect's JSON."""
    kind, semantic, parameters = physical(column)
    found: dict[str, Any] = {"type": kind, "optional": column not in KEYS, "field": column}
    return (
        found
        | ({"name": semantic, "version": 1} if semantic else {})
        | ({"parameters": parameters} if parameters else {})
    )


def envelope(columns: tuple[str, ...], of: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """The schema of a wrapped row."""
    image = {"type": "struct", "optional": True, "fields": [of(column) for column in columns]}
    fields = [image | {"field": name} for name in ("before", "after")]
    return {
        "type": "struct",
        "fields": [*fields, {"type": "string", "field": "op"}],
        "name": "capture.Envelope",
    }


def keyed(event: Event, cell: Cell, schema: bool) -> Any:
    """The Kafka key of a row."""
    found = cells(key(event.row), cell)
    if not schema:
        return found
    return {"schema": {"type": "struct", "fields": [field(name) for name in KEYS]}, "payload": found}


# --- JSON ---------------------------------------------------------------------------------------


def wrapped(history: History, *, cell: Cell, schema: bool) -> list[Message]:
    """Events with before, after and source; a tombstone after each delete."""
    found = []
    for event, old_key in events(history):
        if event.sql:
            found.append(message(statement(event), event))
        if event.kind not in OPS:
            continue
        frame = _frame(event, cell, source(event))
        value = {"schema": envelope(event.columns, field), "payload": frame} if schema else frame
        told_key = keyed(event, cell, schema) if event.row else None
        old = () if old_key is None else (("__debezium.oldkey", _old(event, old_key, cell, schema)),)
        found.append(message(value, event, told_key, headers=old))
        if event.kind == "delete":
            found.append(message(None, event, told_key)._replace(value=None))
    return found


def _old(event: Event, old_key: Image, cell: Cell, schema: bool) -> bytes:
    old_event = event._replace(after=None, before=old_key)
    return message(keyed(old_event, cell, schema), event).value or b""


def _frame(event: Event, cell: Cell, place: dict[str, Any]) -> dict[str, Any]:
    before, after = (cells(row, cell) for row in (event.before, event.after))
    return {"before": before, "after": after, "op": OPS[event.kind], "source": place, "ts_ms": event.time + 8}


def statement(event: Event) -> dict[str, Any]:
    """What the schema-change topic tells of a statement."""
    return {
        "source": source(event),
        "ts_ms": event.time,
        "databaseName": DATABASE,
        "schemaName": None,
        "ddl": event.sql,
        "tableChanges": [],
    }


def flattened(history: History, *, deletes: str) -> list[Message]:
    """Rows alone, deletes as rows that say so, or as null values."""
    found = []
    for event, _ in events(history):
        told_key = keyed(event, schemaless, schema=False) if event.row else None
        if event.kind == "delete" and deletes == "null":
            found.append(message(None, event, told_key)._replace(value=None))
        elif event.row:
            row = cells(event.row, schemaless) or {}
            place = {
                f"__{name}": source(event)[name] for name in ("file", "pos", "row", "snapshot", "table", "db")
            }
            marks = {"__deleted": str(event.kind == "delete").lower()} if deletes == "rows" else {}
            found.append(message({**row, **place, "__op": OPS[event.kind], **marks}, event, told_key))
    return found


# --- OMS ----------------------------------------------------------------------------------------


def oms_wrapped(history: History, *, form: str) -> list[Message]:
    """The payload, with or without a schema around it, or by itself."""
    rows = [(event, _frame(event, oms, _oms_source(event))) for event in history.events if event.row]
    return [message(_formed(event, frame, form), event) for event, frame in rows]


def _formed(event: Event, frame: dict[str, Any], form: str) -> dict[str, Any]:
    frame = {name: value for name, value in frame.items() if value is not None}
    if form == "flat":
        return frame
    return {"payload": frame} | ({"schema": envelope(event.columns, _oms_field)} if form == "schema" else {})


def _oms_source(event: Event) -> dict[str, Any]:
    found = {"version": "1", "connector": "OB_MYSQL", "name": "OMS", "db": DATABASE, "table": TABLE}
    if event.kind == "read":
        return found | {"ts_ms": 0}
    return found | {"ts_ms": event.time, "pos": f"{999_990 + event.counter}@{event.second}"}


def _oms_field(column: str) -> dict[str, Any]:
    kind = {"bytes": "string"}.get(physical(column)[0], physical(column)[0])
    if TYPES[column].startswith(("decimal", "uint64")):
        kind = "string"
    return {"type": kind, "optional": True, "field": column}


def smt(history: History) -> list[Message]:
    """The row alone, and of a changed key its delete first."""
    rows = [event for event, _ in events(history) if event.row]
    return [
        message({**(cells(event.row, oms) or {}), "__deleted": str(event.kind == "delete").lower()}, event)
        for event in rows
    ]


# --- Avro ---------------------------------------------------------------------------------------

_AVRO = {
    "int64": "long",
    "int32": "int",
    "int16": "int",
    "double": "double",
    "bytes": "bytes",
    "string": "string",
}
ROWS, WIDER_ROWS, KEY_ID, STATEMENT = range(1, 5)


@cache
def schemas() -> dict[int, Any]:
    """The registry: rows before and after the new column, keys, statements."""
    place = {
        "type": "record",
        "name": "Source",
        "fields": [
            {"name": name, "type": "long" if name in ("ts_ms", "pos", "row") else "string"}
            for name in source(Event(1, 0, 1, "insert", None, None, ()))
        ],
    }
    statement_fields = [{"name": "source", "type": place}, {"name": "ts_ms", "type": "long"}]
    statement_fields += [
        {"name": name, "type": ["null", "string"]} for name in ("databaseName", "schemaName", "ddl")
    ]
    statement_fields += [{"name": "tableChanges", "type": {"type": "array", "items": "string"}}]
    return {
        ROWS: _avro_envelope(tuple(COLUMNS), place),
        WIDER_ROWS: _avro_envelope(tuple(DECLARED), place),
        KEY_ID: {"type": "record", "name": "Key", "fields": [_avro_field(name) for name in KEYS]},
        STATEMENT: {"type": "record", "name": "SchemaChange", "fields": statement_fields},
    }


def _avro_envelope(columns: tuple[str, ...], place: dict[str, Any]) -> dict[str, Any]:
    row = {"type": "record", "name": "Value", "fields": [_avro_field(column) for column in columns]}
    fields = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Value"]}]
    fields += [
        {"name": "op", "type": "string"},
        {"name": "source", "type": place},
        {"name": "ts_ms", "type": "long"},
    ]
    return {"type": "record", "name": "Envelope", "fields": fields}


def _avro_field(column: str) -> dict[str, Any]:
    kind, semantic, parameters = physical(column)
    found: dict[str, Any] = {"type": _AVRO[kind], "connect.type": kind}
    if semantic:
        found |= {"connect.name": semantic, "connect.version": 1, "connect.parameters": parameters}
    return {"name": column, "type": found if column in KEYS else ["null", found]}


@cache
def _parsed(number: int) -> Any:
    return fastavro.parse_schema(schemas()[number])


def framed(number: int, datum: Any) -> bytes:
    """A datum in Confluent's frame."""
    return b"\0" + number.to_bytes(4, "big") + written(_parsed(number), datum)


def in_avro(history: History) -> list[Message]:
    """Wrapped events in Avro, keys too."""
    found = []
    for event, old_key in events(history):
        if event.sql:
            found.append(Message(framed(STATEMENT, statement(event))))
        if event.kind not in OPS:
            continue
        number = ROWS if len(event.columns) == len(COLUMNS) else WIDER_ROWS
        value = framed(number, _frame(event, avro, source(event)))
        told_key = framed(KEY_ID, cells(key(event.row), avro)) if event.row else None
        headers = () if old_key is None else (("__debezium.oldkey", framed(KEY_ID, cells(old_key, avro))),)
        found.append(Message(value, told_key, "t", headers))
    return found


def _registry() -> Hints:
    return Hints(schema=lambda number: json.dumps(schemas()[number]))


UNTYPED = told(TYPES, keys=False)
DIALECTS = {
    "debezium": Dialect("debezium", partial(wrapped, cell=schemaless, schema=False), UNTYPED),
    "debezium with schema": Dialect("debezium", partial(wrapped, cell=connect, schema=True)),
    "debezium flattened": Dialect("debezium", partial(flattened, deletes="rows"), UNTYPED),
    "debezium flattened with null values": Dialect(
        "debezium",
        partial(flattened, deletes="null"),
        told(TYPES, keys=False, table=True),
    ),
    "debezium-avro": Dialect("debezium-avro", in_avro, _registry()),
    **{
        name: Dialect(format_, partial(oms_wrapped, form=form), told(TYPES))
        for name, format_, form in (
            ("oms-debezium", "oms-debezium", "payload"),
            ("oms-debezium with schema", "oms-debezium", "schema"),
            ("oms-debezium-flatten", "oms-debezium-flatten", "flat"),
        )
    },
    "oms-debezium-smt": Dialect("oms-debezium-smt", smt, told(TYPES, table=True)),
}
