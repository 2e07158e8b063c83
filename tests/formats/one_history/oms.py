"""OMS Default, extended and Dataworks 2.0; DataWorks itself (StreamX); SharePlex of OMS, DTS and Quest.

"Data formats" of OMS; "Appendix: Message format" of DataWorks; Shareplex Json of DTS; Quest KB 4376090.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from functools import partial
from typing import Any

from ingest.change import Message
from tests.formats.one_history.canal import KINDS, base, ocean
from tests.formats.one_history.history import EPOCH, TYPES, Column, Event, History, ticks
from tests.formats.one_history.writing import Dialect, bare, cells, changed, message, pipeline_hints

EIGHT_HOURS = 8 * 3_600_000


def moment(milliseconds: int) -> str:
    """A clock's text, to the second."""
    return (EPOCH + dt.timedelta(milliseconds=milliseconds)).isoformat(timespec="seconds")


# --- OMS Default --------------------------------------------------------------------------------


def default(history: History, *, extended: bool = False) -> list[Message]:
    """``prevStruct``, ``postStruct`` and ``allMetaData``; full-load rows without a sequence."""
    return [message(_default(event, extended), event) for event in history.events]


def _default(event: Event, extended: bool) -> dict[str, Any]:
    second = str(event.second)
    meta = {
        "checkpoint": second,
        "dbType": "OB_MYSQL",
        "db": event.database if event.sql else f"tenant_1.{event.database}",
        "table_name": event.table,
        "timestamp": None if event.kind == "read" else second,
    }
    if event.sql:
        kind = f"{event.kind.upper()}_TABLE"
        meta |= {"ddlType": kind, "storeDataSequence": None, "record_primary_key": None}
        return {
            "prevStruct": None,
            "postStruct": {"ddl": event.sql},
            "allMetaData": meta,
            "recordType": "DDL",
        }
    place = None if event.kind == "read" else bare(f"{second}{event.counter}")
    meta |= {
        "storeDataSequence": place,
        "record_primary_key": "\x01".join(event.keys),
        "uniqueId": f"u{event.number}",
    }
    return {
        "prevStruct": _light(event, event.before, extended),
        "postStruct": _light(event, event.after, extended),
        "allMetaData": meta,
        "recordType": "ROW" if event.kind == "read" else event.kind.upper(),
    }


def _light(event: Event, row: Any, extended: bool) -> Any:
    image = cells(event, row, ocean)
    if image is None or not extended:
        return image
    return {**image, "__light_type": {name: {"schemaType": _oms_type(event.shape[name])} for name in row}}


def _oms_type(column: Column) -> str:
    """OMS's own names for 64-bit integers, and the source's without length for all else."""
    return {"int64": "INT64", "uint64": "BIGINT"}.get(column.logical) or base(column.declared).upper()


# --- the frame of DataWorks ---------------------------------------------------------------------


def frame(
    event: Event, names: tuple[str, str, str, str], image: str, columns: Any, cell: Any
) -> dict[str, Any]:
    """What StreamX and OMS's Dataworks 2.0 share; ``names`` of the members of ``schema`` and ``source``."""
    listed, key, schema, table = names
    source = {"dbType": "MySQL", "dbName": event.database, schema: event.database, table: event.table}
    ddl = {"text": event.sql, "ddlMeta": "rO0ABXNy"} if event.sql else None
    before, after = (cells(event, row, cell) for row in (event.before, event.after))
    return {
        "schema": {
            listed: [{"name": c, "type": columns(event.shape[c])} for c in event.columns],
            key: list(event.keys),
            "source": source,
        },
        "payload": {
            "before": None if before is None else {image: before},
            "after": None if after is None else {image: after},
            "op": {"read": "INSERT", **KINDS}.get(event.kind) or event.kind.upper(),
            "timestamp": {
                "eventTime": -1 if event.kind == "read" else event.time,
                "systemTime": event.time + 9,
            },
            "ddl": ddl,
        },
    }


def dataworks2(history: History) -> list[Message]:
    """OMS: SQL type names, values as in Default, no usable position."""
    names = ("column", "pk", "schema", "table")
    found = []
    for event in history.events:
        written = frame(event, names, "data", _oms_type, ocean)
        written["payload"] |= {"scn": "null"} | ({"op": "ROW"} if event.kind == "read" else {})
        found.append(message(written | {"version": "2.0"}, event))
    return found


def streamx(history: History, *, pairs: bool) -> list[Message]:
    """DataWorks: an update is one UPDATE_AFTER, or a pair that shares its sequence."""
    found = []
    for event in history.events:
        written = frame(
            event, ("dataColumn", "primaryKey", "schemaName", "tableName"), "dataColumn", _six, _streamx
        )
        payload = written["payload"]
        payload["sequenceId"] = "-1" if event.kind == "read" else f"1714550399000{event.number:06d}"
        halves = [payload]
        if event.kind == "update":
            payload["op"] = "UPDATE_AFTER"
            if pairs:
                halves = [payload | {"op": "UPDATE_BEFOR", "after": None}, payload | {"before": None}]
        found += [message(written | {"payload": half, "version": "0.0.1"}, event) for half in halves]
    return found


SIX = {
    "int64": "LONG",
    "int32": "LONG",
    "uint64": "LONG",
    "bit": "LONG",
    "boolean": "BOOLEAN",
    "binary": "BYTES",
} | {
    **dict.fromkeys(("date", "datetime(6)", "timestamp(6)"), "DATE"),
    **dict.fromkeys(("float64", "decimal(10,2)"), "DOUBLE"),
}


def _six(column: Column) -> str:
    return SIX.get(column.logical, "STRING")


def _streamx(column: Column, text: str) -> Any:
    logical, kind = column.logical, _six(column)
    if kind in ("LONG", "DOUBLE", "BOOLEAN"):
        return bare(text)
    if kind != "DATE":
        return text
    count = ticks(text + " 00:00:00" if logical == "date" else text, 1000)
    # the source's clock is eight hours ahead
    return count if logical.startswith("timestamp") else count - EIGHT_HOURS


# --- SharePlex ----------------------------------------------------------------------------------


def shareplex(
    history: History, *, place: Callable[[Event], dict[str, Any]], cell: Any, hours: int, full: bool = True
) -> list[Message]:
    """``meta`` with the place, ``data`` with what changed, ``key`` with the row before, or its key alone."""
    return [message(_shareplex(event, place, cell, hours, full), event) for event in history.events]


def _shareplex(event: Event, place: Any, cell: Any, hours: int, full: bool) -> dict[str, Any]:
    op = {"read": "ins", "insert": "ins", "update": "upd", "delete": "del"}.get(event.kind, "ddl")
    meta = {
        "op": op,
        "table": f"{event.database}.{event.table}",
        "time": moment(event.time + hours * 3_600_000),
        **place(event),
    }
    if event.sql:
        return {"meta": meta, "data": {}, "sql": {"ddl": event.sql}}
    if event.kind != "update":
        return {"meta": meta, "data": cells(event, event.row if full else _set(event.row), cell)}
    before = event.before or {}
    key = before if full else {name: before[name] for name in event.keys}
    now = {name: (event.after or {})[name] for name in changed(event)}
    return {"meta": meta, "data": cells(event, now, cell), "key": cells(event, key, cell)}


def _set(row: Any) -> Any:
    """Quest omits NULL columns of inserted and deleted rows."""
    return {name: value for name, value in row.items() if value is not None}


def _oms_place(event: Event) -> dict[str, Any]:
    row_id = f"{event.database}.{event.table}-" + "\x01".join(
        event.row.get(name) or "" for name in event.keys
    )
    scn = "null" if event.sql else f"{event.second}{event.counter:05d}"
    return {"scn": scn, "seq": "0", "rowid": row_id, "trans": f"t{event.number}", "idx": "1/1"}


def _dts_place(event: Event) -> dict[str, Any]:
    """Two operations to a transaction."""
    found = {
        "scn": str(9_990_000 + event.number // 2),
        "seq": str(event.number % 2 + 1),
        "rowid": "AAASKgAAE",
    }
    return found | ({"op": "truncate"} if event.kind == "truncate" else {})


def plain(column: Column, text: str) -> Any:
    """Numbers and truth bare, the rest as text."""
    if column.logical == "boolean":
        return text == "true"
    return bare(text) if column.logical.startswith(("int", "uint", "decimal", "float", "bit")) else text


DIALECTS = {
    "oms-default": Dialect("oms-default", default, pipeline_hints(TYPES, keys=False)),
    "oms-default-extended": Dialect("oms-default-extended", partial(default, extended=True)),
    "oms-dataworks": Dialect("oms-dataworks", dataworks2),
    "dataworks": Dialect(
        "dataworks", partial(streamx, pairs=False), pipeline_hints(TYPES, keys=False, timezone="Etc/GMT-8")
    ),
    "dataworks in pairs": Dialect(
        "dataworks", partial(streamx, pairs=True), pipeline_hints(TYPES, keys=False, timezone="Etc/GMT-8")
    ),
    "oms-shareplex": Dialect(
        "oms-shareplex",
        partial(shareplex, place=_oms_place, cell=ocean, hours=8),
        pipeline_hints(TYPES, timezone="Asia/Shanghai"),
    ),
    "dts-shareplex": Dialect(
        "dts-shareplex", partial(shareplex, place=_dts_place, cell=plain, hours=0), pipeline_hints(TYPES)
    ),
    "dts-shareplex of Quest": Dialect(
        "dts-shareplex",
        partial(shareplex, place=_dts_place, cell=plain, hours=0, full=False),
        pipeline_hints(TYPES, key_is_full=False),
    ),
}
