"""Debezium's own events, wrapped and flattened, in JSON and Avro; and the three serializers of OMS.

Debezium `connectors/mysql.adoc`, `transformations/event-flattening.adoc`, `configuration/avro.adoc`; "Data
formats" of OMS, Debezium, DebeziumFlatten and DebeziumSmt.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import cache, partial
from types import MappingProxyType
from typing import Any
from zlib import crc32

import fastavro

from ingest.change import Hints, Image, Message
from tests.formats.avro_cases import written
from tests.formats.one_history.history import (
    TYPES,
    Column,
    Event,
    History,
    bit_bytes,
    bytes_of,
    days,
    span,
    ticks,
    unscaled,
)
from tests.formats.one_history.writing import Cell, Dialect, bare, cells, message, pipeline_hints

OPS = {"read": "r", "insert": "c", "update": "u", "delete": "d", "truncate": "t"}


def events(history: History) -> Iterator[tuple[Event, Image | None]]:
    """Events as connectors make them, with the old key: a changed key is a delete and an insert."""
    for event in map(without_large, history.events):
        if event.kind != "update" or key(event, event.before) == key(event, event.after):
            yield event, None
        else:
            yield event._replace(kind="delete", after=None), None
            yield event._replace(kind="insert", before=None), key(event, event.before)


UNAVAILABLE = "__debezium_unavailable_value"


def without_large(event: Event) -> Event:
    """An event whose unchanged large values are not sent: of PostgreSQL they are in the log if all of the row before is."""
    if event.identity == "full" or event.kind != "update" or event.after is None or event.before is None:
        return event
    after = {
        name: UNAVAILABLE if text is not None and len(text) > 60 and text == event.before[name] else text
        for name, text in event.after.items()
    }
    return event._replace(after=after)


def as_logged(event: Event) -> Event:
    """An event as the log tells it: by default of a row before no more than its key, and that only where it goes."""
    if event.identity == "full" or event.before is None:
        return event
    if event.kind == "update":
        return event._replace(before=None)
    return event._replace(
        before={name: event.before.get(name) if name in event.keys else None for name in event.columns}
    )


def key(event: Event, row: Image | None) -> Image:
    """The key columns of a row."""
    return {name: (row or {})[name] for name in event.keys}


def source(event: Event) -> dict[str, Any]:
    """The position of the database's connector."""
    head = {
        "version": "2.7.0.Final",
        "connector": event.server.lower(),
        "name": "capture",
        "ts_ms": event.time,
        "snapshot": "incremental" if event.again else "true" if event.kind == "read" else "false",
        "table": event.table,
    }
    return head | _PLACES[event.server](event)


def _mysql(event: Event) -> dict[str, Any]:
    """The place in a file of the log; rows of the first snapshot stand at 0.

    Two rows may share an event of the log, and so its place. A statement is an event of its own, before or after that.
    """
    pair, number = divmod(event.number, 2)
    pos, row = 4000 + pair % 3 * 90, number
    if not event.row:
        pos, row = pos + (30 if number else -30), 0
    if event.kind == "read" and not event.again:
        pos = 0
    return {"db": event.database, "file": f"binlog.{99 + event.number // 6:06d}", "pos": pos, "row": row}


def _oracle(event: Event) -> dict[str, Any]:
    """The place in the order of commits; rows of the snapshot have the number at which it read."""
    places = {"scn": "4000"} if event.kind == "read" else {
        "scn": str(4000 + (event.logged or event.number)), "commit_scn": str(50_000 + 10 * event.transaction), "ssn": 0,
    }  # fmt: skip
    return {"db": event.within, "schema": event.database, "txId": f"{event.transaction:016x}", **places}


def _postgres(event: Event) -> dict[str, Any]:
    """The log's place, with that of the last commit before; rows of the first snapshot have that of its begin.

    A transaction's rows keep their places in the log, also where another one was committed after them ("The last known commit
    LSN and the current LSN", `connectors/postgresql.adoc`).
    """
    lsn = 90_000 if event.kind == "read" else 100_000 + (event.logged or event.number) * 56
    committed = 100_008 + event.committed * 56 if event.committed else lsn - 8
    return {
        "db": event.within,
        "sequence": json.dumps([str(committed), str(lsn)]),
        "schema": event.database,
        "txId": 700 + event.transaction,
        "lsn": lsn,
    }


_PLACES = {"MySQL": _mysql, "PostgreSQL": _postgres, "Oracle": _oracle}


# --- values -------------------------------------------------------------------------------------


def connect(column: Column, text: str) -> Any:
    """As Connect carries it: what its JSON writes bare is bare, bytes are base64."""
    value = avro(column, text)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return value | {"value": base64.b64encode(value["value"]).decode()}
    if isinstance(value, float):
        return bare(text) if math.isfinite(value) else text
    return value


def avro(column: Column, text: str) -> Any:
    """The same as Avro's types: precise numbers as unscaled bytes, times as counts."""
    logical = column.logical
    if column.declared.endswith("[]"):
        return array(column, text)
    if logical == "decimal":
        if text == "NaN":
            return None
        return {"scale": len(text.partition(".")[2]), "value": unscaled(text)}
    if column.declared in OF_ORACLE:
        return OF_ORACLE[column.declared](text)
    if column.declared == "boolean":
        return text == "true"
    if column.declared == "interval":
        return INTERVALS[text]
    if logical.startswith("decimal") or logical == "uint64":
        return unscaled(text)
    if logical in ("int64", "int32", "int16"):
        return int(text)
    return _CONNECT.get(logical, str)(text)


OF_ORACLE: dict[str, Callable[[str], Any]] = {
    "NUMBER(9)": int,
    "NUMBER(18)": int,
    "NUMBER(10,2)": lambda text: unscaled(f"{Decimal(text):.2f}"),
    "NUMBER(20,6)": lambda text: unscaled(f"{Decimal(text):.6f}"),
    "DATE": lambda text: ticks(text, 10**3),
}
"""What its connector makes of values; its texts have no zeros at their end."""


def array(column: Column, text: str) -> list[Any]:
    """An array of PostgreSQL as a list: without quotes but for whole elements, and NULL."""
    items = [item.strip('"') for item in text[1:-1].split(",") if item]
    return [
        None if item == "NULL" else int(item) if column.declared == "integer[]" else item for item in items
    ]


INTERVALS = {
    "01:30:00": "P0Y0M0DT1H30M0S",
    "1 day 02:00:00": "P0Y0M1DT2H0M0S",
    "3 mons": "P0Y3M0DT0H0M0S",
    "-00:00:05": "P0Y0M0DT0H0M-5S",
}
"""Spans as PostgreSQL prints them, and as ``interval.handling.mode: string`` writes them."""


_CONNECT: dict[str, Callable[[str], Any]] = {
    "float64": float,
    "boolean": lambda text: int(text == "true"),
    "binary": bytes_of,
    "bit": lambda text: int(text).to_bytes(2, "little"),
    "date": days,
    "time": lambda text: span(text, 10**6),
    "datetime(6)": lambda text: ticks(text, 10**6),
}


def schemaless(column: Column, text: str) -> Any:
    """Without a schema, and settings to match: decimals as text, unsigned numbers as signed ones."""
    logical = column.logical
    if logical == "uint64":
        return bare(str(int(text) - 2**64 if int(text) >= 2**63 else int(text)))
    return text if logical.startswith("decimal") else connect(column, text)


def oms(column: Column, text: str) -> Any:
    """OMS: days, microseconds of TIME, milliseconds of DATETIME, Base16, large numbers as text."""
    logical = column.logical
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
    "interval": ("string", "io.debezium.time.Interval"),
    "decimal": ("struct", "io.debezium.data.VariableScaleDecimal"),
}
_PHYSICAL = {
    "int64": "int64",
    "int32": "int32",
    "int16": "int16",
    "boolean": "int16",
    "float64": "double",
    "binary": "bytes",
}


_DECLARED = {
    "NUMBER(9)": ("int32", None),
    "NUMBER(18)": ("int64", None),
    "DATE": ("int64", "io.debezium.time.Timestamp"),
    "boolean": ("boolean", None),
    "uuid": ("string", "io.debezium.data.Uuid"),
    "integer[]": ("array", None),
    "text[]": ("array", None),
}


def physical(column: Column) -> tuple[str, str | None, dict[str, str]]:
    """Connect's type, semantic name and parameters of a column."""
    logical = column.logical
    if column.declared in _DECLARED:
        return (*_DECLARED[column.declared], {})
    if logical == "uint64" or logical.startswith("decimal("):
        precision, scale = {"uint64": ("20", "0")}.get(logical) or logical[8:-1].split(",")
        parameters = {"scale": scale, "connect.decimal.precision": precision}
        return "bytes", "org.apache.kafka.connect.data.Decimal", parameters
    kind, semantic = _SEMANTIC.get(logical) or (_PHYSICAL.get(logical, "string"), None)
    if logical == "enum":
        return kind, semantic, {"allowed": ",".join(column.labels)}
    return kind, semantic, {"length": column.declared[4:-1]} if logical == "bit" else {}


def field(name: str, event: Event) -> dict[str, Any]:
    """A column in a schema of Connect's JSON."""
    column = event.shape[name]
    kind, semantic, parameters = physical(column)
    found: dict[str, Any] = {"type": kind, "optional": name not in event.keys, "field": name}
    if event.within is not None:
        found["optional"] = column.nullable
        found |= {} if column.default is None else {"default": connect(column, column.default)}
    if kind == "array":
        item = {"type": "int32" if column.declared == "integer[]" else "string", "optional": True}
        found["items"] = item
    if kind == "struct":
        found["fields"] = [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}]
    return (
        found
        | ({"name": semantic, "version": 1} if semantic else {})
        | ({"parameters": parameters} if parameters else {})
    )


def envelope(event: Event, of: Callable[[str, Event], dict[str, Any]]) -> dict[str, Any]:
    """The schema of a wrapped row."""
    image = {"type": "struct", "optional": True, "fields": [of(column, event) for column in event.columns]}
    fields = [image | {"field": name} for name in ("before", "after")]
    return {
        "type": "struct",
        "fields": [*fields, {"type": "string", "field": "op"}],
        "name": "capture.Envelope",
    }


def keyed(event: Event, cell: Cell, schema: bool) -> Any:
    """The Kafka key of a row."""
    found = cells(event, key(event, event.row), cell)
    if not schema:
        return found
    return {
        "schema": {"type": "struct", "fields": [field(name, event) for name in event.keys]},
        "payload": found,
    }


# --- JSON ---------------------------------------------------------------------------------------


def wrapped(history: History, *, cell: Cell, schema: bool) -> list[Message]:
    """Events with before, after and source; a tombstone after each delete."""
    found = []
    for each, old_key in events(history):
        event = as_logged(each)
        if event.sql and event.server != "PostgreSQL":
            found.append(message(statement(event), event))
        if event.kind not in OPS:
            continue
        frame = _frame(event, cell, source(event))
        value = {"schema": envelope(event, field), "payload": frame} if schema else frame
        sent_key = keyed(event, cell, schema) if event.row else None
        old = () if old_key is None else (("__debezium.oldkey", _old(event, old_key, cell, schema)),)
        found.append(message(value, event, sent_key, headers=old))
        if event.kind == "delete":
            found.append(message(None, event, sent_key)._replace(value=None))
    return found


def _old(event: Event, old_key: Image, cell: Cell, schema: bool) -> bytes:
    old_event = event._replace(after=None, before=old_key)
    return message(keyed(old_event, cell, schema), event).value or b""


def _frame(event: Event, cell: Cell, place: dict[str, Any]) -> dict[str, Any]:
    before, after = (cells(event, row, cell) for row in (event.before, event.after))
    return {"before": before, "after": after, "op": OPS[event.kind], "source": place, "ts_ms": event.time + 8}


def statement(event: Event) -> dict[str, Any]:
    """The message of a statement in the schema-change topic."""
    return {
        "source": source(event),
        "ts_ms": event.time,
        "databaseName": event.within or event.database,
        "schemaName": event.database if event.within else None,
        "ddl": event.sql,
        "tableChanges": [],
    }


def flattened(history: History, *, deletes: str) -> list[Message]:
    """Rows alone, deletes as rows that say so, or as null values."""
    found = []
    for event, _ in events(history):
        sent_key = keyed(event, schemaless, schema=False) if event.row else None
        if event.kind == "delete" and deletes == "null":
            found.append(message(None, event, sent_key)._replace(value=None))
        elif event.row:
            row = cells(event, event.row, schemaless) or {}
            place = {
                f"__{name}": source(event)[name] for name in ("file", "pos", "row", "snapshot", "table", "db")
            }
            marks = {"__deleted": str(event.kind == "delete").lower()} if deletes == "rows" else {}
            found.append(message({**row, **place, "__op": OPS[event.kind], **marks}, event, sent_key))
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
    return {"payload": frame} | ({"schema": envelope(event, _oms_field)} if form == "schema" else {})


def _oms_source(event: Event) -> dict[str, Any]:
    found = {
        "version": "1",
        "connector": "OB_MYSQL",
        "name": "OMS",
        "db": event.database,
        "table": event.table,
    }
    if event.kind == "read":
        return found | {"ts_ms": 0}
    return found | {"ts_ms": event.time, "pos": f"{999_990 + event.counter}@{event.second}"}


def _oms_field(name: str, event: Event) -> dict[str, Any]:
    column = event.shape[name]
    kind = {"bytes": "string"}.get(physical(column)[0], physical(column)[0])
    if column.logical.startswith(("decimal", "uint64")):
        kind = "string"
    return {"type": kind, "optional": True, "field": name}


def smt(history: History) -> list[Message]:
    """The row alone, and of a changed key its delete first."""
    rows = [event for event, _ in events(history) if event.row]
    return [
        message(
            {**(cells(event, event.row, oms) or {}), "__deleted": str(event.kind == "delete").lower()}, event
        )
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
_SCHEMAS: dict[int, str] = {}
"""The registry: each schema's text by its id, which follows from the text, whatever was registered before."""


@cache
def _parsed(text: str) -> Any:
    return fastavro.parse_schema(json.loads(text))


def framed(schema: dict[str, Any], datum: Any) -> bytes:
    """A datum in Confluent's frame; its schema is registered if it is new."""
    number, data = registered(schema, datum, lambda text: crc32(text.encode()))
    return b"\0" + number.to_bytes(4, "big") + data


def registered(schema: dict[str, Any], datum: Any, number_of: Callable[[str], int]) -> tuple[int, bytes]:
    """The number of a schema, which is registered if it is new, and a datum that it describes."""
    text = json.dumps(schema)
    number = number_of(text)
    assert text == _SCHEMAS.setdefault(number, text), "two schemas have one id"
    return number, written(_parsed(text), datum)


def _place_schema(event: Event) -> dict[str, Any]:
    """The schema of `source`."""
    kinds = {name: "long" if name in ("ts_ms", "pos", "row") else "string" for name in source(event)}
    if event.table is None:
        kinds["table"] = "null"
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    return {"type": "record", "name": "Source", "fields": fields}


def _statement_schema(event: Event) -> dict[str, Any]:
    fields = [{"name": "source", "type": _place_schema(event)}, {"name": "ts_ms", "type": "long"}]
    fields += [{"name": name, "type": ["null", "string"]} for name in ("databaseName", "schemaName", "ddl")]
    fields += [{"name": "tableChanges", "type": {"type": "array", "items": "string"}}]
    return {"type": "record", "name": "SchemaChange", "fields": fields}


def _avro_envelope(event: Event) -> dict[str, Any]:
    row = {"type": "record", "name": "Value", "fields": [_avro_field(name, event) for name in event.columns]}
    fields = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Value"]}]
    fields += [
        {"name": "op", "type": "string"},
        {"name": "source", "type": _place_schema(event)},
        {"name": "ts_ms", "type": "long"},
    ]
    return {"type": "record", "name": "Envelope", "fields": fields}


def _avro_key(event: Event) -> dict[str, Any]:
    return {"type": "record", "name": "Key", "fields": [_avro_field(name, event) for name in event.keys]}


def _avro_field(name: str, event: Event) -> dict[str, Any]:
    kind, semantic, parameters = physical(event.shape[name])
    found: dict[str, Any] = {"type": _AVRO[kind], "connect.type": kind}
    if semantic:
        found |= {"connect.name": semantic, "connect.version": 1, "connect.parameters": parameters}
    return {"name": name, "type": found if name in event.keys else ["null", found]}


def in_avro(history: History) -> list[Message]:
    """Wrapped events in Avro, keys too."""
    found = []
    for event, old_key in events(history):
        if event.sql:
            found.append(Message(framed(_statement_schema(event), statement(event))))
        if event.kind not in OPS:
            continue
        value = framed(_avro_envelope(event), _frame(event, avro, source(event)))
        sent_key = headers = None
        if event.row:
            sent_key = framed(_avro_key(event), cells(event, key(event, event.row), avro))
        if old_key is not None:
            old = framed(_avro_key(event), cells(event, old_key, avro))
            headers = (("__debezium.oldkey", old),)
        found.append(Message(value, sent_key, "t", headers or ()))
    return found


def registry() -> Mapping[int, str]:
    """The registered schemas, by id; those of messages that are written later are in it, too."""
    return MappingProxyType(_SCHEMAS)


UNTYPED = pipeline_hints(TYPES, keys=False)
DIALECTS = {
    "debezium": Dialect("debezium", partial(wrapped, cell=schemaless, schema=False), UNTYPED),
    "debezium with schema": Dialect("debezium", partial(wrapped, cell=connect, schema=True)),
    "debezium flattened": Dialect("debezium", partial(flattened, deletes="rows"), UNTYPED),
    "debezium flattened with null values": Dialect(
        "debezium",
        partial(flattened, deletes="null"),
        pipeline_hints(TYPES, keys=False, table=True),
    ),
    "debezium-avro": Dialect("debezium-avro", in_avro, Hints(schema=registry().__getitem__)),
    **{
        name: Dialect(format_, partial(oms_wrapped, form=form), pipeline_hints(TYPES))
        for name, format_, form in (
            ("oms-debezium", "oms-debezium", "payload"),
            ("oms-debezium with schema", "oms-debezium", "schema"),
            ("oms-debezium-flatten", "oms-debezium-flatten", "flat"),
        )
    },
    "oms-debezium-smt": Dialect("oms-debezium-smt", smt, pipeline_hints(TYPES, table=True)),
}
