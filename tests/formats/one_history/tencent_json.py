"""Tencent Cloud DTS: JSON of a data subscription, documents 571/61656 and 571/55398."""

from __future__ import annotations

from typing import Any

from ingest.change import Image, Message
from tests.formats.one_history import canal
from tests.formats.one_history.history import Column, Event, History, bytes_of, ticks
from tests.formats.one_history.writing import Dialect, Loss, message, pipeline_hints


def write(history: History) -> list[Message]:
    """One record for each event; there is no full load, so its rows come as changes."""
    return [message(_record(event), event) for event in history.events]


def _record(event: Event) -> dict[str, Any]:
    kind = {"read": "INSERT", **dict.fromkeys(canal.KINDS, "DDL")}.get(event.kind) or event.kind.upper()
    is_row = kind != "DDL"
    return {
        "id": 40_000 + event.number,
        "version": 1,
        "messageType": kind,
        "fileName": "mysql-bin.000004",
        "position": f"{2000 + 97 * event.number}@4",
        "safePosition": "1900@4",
        "timestamp": event.second,
        "gtid": f"c7c98333-6006-11ed-bfc9-b8cef6e1a231:{event.number}",
        "transactionId": "",
        "serverId": 109741,
        "threadId": 12,
        "sourceType": "MySQL",
        "sourceVersion": "8.0.30",
        "schemaName": event.database,
        "tableName": event.table,
        "objectName": f"{event.database}.{event.table}",
        "columns": [_described(event, name) for name in event.columns] if is_row else None,
        "oldColumns": _values(event, event.before) if is_row else None,
        "newColumns": _values(event, event.after) if is_row else None,
        "sql": event.sql,
        "pkNames": list(event.keys) if is_row else None,
        "tags": {"lowerCaseTableNames": "0"},
        "total": 1,
        "index": 0,
    }


def _described(event: Event, name: str) -> dict[str, Any]:
    column = event.shape[name]
    return {
        "name": name,
        "dataTypeNumber": 253,
        "isKey": name in event.keys,
        "originalType": column.declared,
    }


def _values(event: Event, row: Image | None) -> list[str | None] | None:
    if row is None:
        return None
    return [None if value is None else _text(event.shape[name], value) for name, value in row.items()]


def _text(column: Column, text: str) -> str:
    if column.logical == "binary":
        return "0x" + bytes_of(text).hex()
    if column.logical.startswith("timestamp"):
        return str(ticks(text, 1000))
    return str(int(text == "true")) if column.logical == "boolean" else text


def _milliseconds(value: str) -> str:
    whole, dot, fraction = value.removesuffix("Z").partition(".")
    return f"{whole}{dot}{fraction[:3]}Z"


DIALECTS = {"tencent-json": Dialect("tencent-json", write, pipeline_hints(keys=False))}
LOSSES = {"tencent-json": Loss(views={"seen_at": _milliseconds})}
