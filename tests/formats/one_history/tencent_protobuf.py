"""Tencent Cloud DTS: Protobuf of a data subscription, documents 571/55396 and 571/93252; a value as its table of types says."""

from __future__ import annotations

from itertools import chain
from typing import Any

from ingest.change import Image, Message
from tests.formats.one_history import canal
from tests.formats.one_history.history import Column, Event, History, bytes_of, wall
from tests.formats.one_history.writing import Dialect, pipeline_hints
from tests.formats.protobuf_cases import encode

NUMBERS = {
    "int64": "INT64",
    "int32": "INT32",
    "uint64": "UINT64",
    "float64": "FLOAT64",
    "boolean": "INT8",
    "bit": "INT64",
}
"""The data types whose values are texts in ``sv``."""
BYTES = frozenset({"binary", "json"})


def write(history: History) -> list[Message]:
    """Envelopes of one to three events, some with the beginning and end of a transaction; there is no full load."""
    events = list(chain.from_iterable(_entries(several) for several in canal.grouped(history.events)))
    return [_envelope(events[first : first + 3]) for first in range(0, len(events), 3)]


def _envelope(entries: list[dict[str, Any]]) -> Message:
    return Message(
        encode("tencent-protobuf", {"version": 1, "total": 1, "index": 0, "data": {"items": entries}})
    )


def _entries(several: list[Event]) -> list[dict[str, Any]]:
    """The entries of one event; every third has the marks of its transaction around it."""
    event = several[-1]
    rows = [_statement(event) if event.sql else _rows(several)]
    if event.number % 3:
        return rows
    begin = _entry(event, "BEGIN", {"beginEvent": {"transactionId": "12", "threadId": 7}}, 0)
    return [begin, *rows, _entry(event, "COMMIT", {"commitEvent": {"transactionId": "12"}}, 2)]


def _entry(event: Event, kind: str, body: dict[str, Any], place: int) -> dict[str, Any]:
    is_mark = kind in ("BEGIN", "COMMIT")
    header = {
        "version": 1,
        "sourceType": "MYSQL",
        "messageType": kind,
        "timestamp": event.second,
        "serverId": 109741,
        "fileName": "mysql-bin.000004",
        "position": 2000 + 97 * event.number + place,
        "gtid": f"c7c98333-6006-11ed-bfc9-b8cef6e1a231:{event.number}",
        "schemaName": "" if is_mark else event.database,
        "tableName": "" if is_mark else event.table or "",
        "seqId": 40_000 + 10 * event.number + place,
        "isLast": 1,
    }
    return {"header": header, "event": body}


def _statement(event: Event) -> dict[str, Any]:
    body = {"schemaName": event.database, "sql": event.sql, "executionTime": 1}
    return _entry(event, "DDL", {"ddlEvent": body}, 1)


def _rows(several: list[Event]) -> dict[str, Any]:
    event = several[-1]
    body = {
        "dmlEventType": "INSERT" if event.kind == "read" else event.kind.upper(),
        "columns": [
            {"name": name, "originalType": event.shape[name].declared, "isKey": name in event.keys}
            for name in event.columns
        ],
        "rows": [
            {"oldColumns": _values(each, each.before), "newColumns": _values(each, each.after)}
            for each in several
        ],
    }
    return _entry(event, "DML", {"dmlEvent": body}, 1)


def _values(event: Event, row: Image | None) -> list[dict[str, Any]]:
    return [
        {"dataType": "NIL"} if value is None else _value(event.shape[name], value)
        for name, value in (row or {}).items()
    ]


def _value(column: Column, text: str) -> dict[str, Any]:
    kind = NUMBERS.get(column.logical) or ("DECIMAL" if column.logical.startswith("decimal") else None)
    if kind:
        return {"dataType": kind, "sv": {"true": "1", "false": "0"}.get(text, text)}
    if column.logical in BYTES:
        data = bytes_of(text) if column.logical == "binary" else text.encode()
        return {"dataType": "BYTES", "bv": {"$hex": data.hex()}}
    sent = f"{wall(text, 0)} +00:00" if column.logical.startswith("timestamp") else text
    return {"dataType": "STRING", "charset": "utf8mb4", "bv": {"$hex": sent.encode().hex()}}


DIALECTS = {"tencent-protobuf": Dialect("tencent-protobuf", write, pipeline_hints(keys=False))}
