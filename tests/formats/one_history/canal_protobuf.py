"""Canal's packets: alibaba/canal, ``CanalMessageSerializerUtil`` and ``LogEventConvert``; values as in flat messages."""

from __future__ import annotations

from typing import Any

from ingest.change import Image, Message
from tests.formats.one_history.canal import KINDS, ZONE, grouped, latin
from tests.formats.one_history.history import Event, History
from tests.formats.one_history.writing import Dialect, pipeline_hints
from tests.formats.protobuf_cases import encode

LOG = "mysql-bin"


def write(history: History) -> list[Message]:
    """One packet for each event of the log; every third has the beginning and end of its transaction around it."""
    return [_packet(several) for several in grouped(history.events)]


def _packet(several: list[Event]) -> Message:
    event = several[-1]
    entries = [_rows(several)]
    if event.number % 3 == 0:
        begin, end = _mark(event, "TRANSACTIONBEGIN", 0), _mark(event, "TRANSACTIONEND", 2)
        entries = [begin, *entries, end]
    body = {"batch_id": event.number // 4, "messages": entries}
    return Message(encode("canal-protobuf", {"version": 1, "type": 7, "body": body}))


def _header(event: Event, word: str, offset: int) -> dict[str, Any]:
    """The place in the log: a new file after five events, and offsets that begin again in it."""
    return {
        "version": 1,
        "logfileName": f"{LOG}.{999_997 + event.number // 5:06d}",
        "logfileOffset": 2_000 * (event.number % 5) + 100 + offset,
        "serverId": 7,
        "serverenCode": "UTF-8",
        "executeTime": event.second * 1000,
        "sourceType": 2,
        "schemaName": event.database,
        "tableName": event.table or "",
        "eventLength": 400,
        "eventType": word,
        "props": [{"key": "curtGtid", "value": f"9f3c:{event.number}"}],
    }


def _mark(event: Event, kind: str, offset: int) -> dict[str, Any]:
    header = _header(event, "EVENTTYPECOMPATIBLEPROTO2", offset) | {"schemaName": "", "tableName": ""}
    return {"header": header, "entryType": kind, "storeValue": {"transactionId": "12"}}


def _rows(several: list[Event]) -> dict[str, Any]:
    event = several[-1]
    word = KINDS.get(event.kind) or ("INSERT" if event.kind == "read" else event.kind.upper())
    content: dict[str, Any] = {"tableId": 90, "eventType": word, "isDdl": event.kind in KINDS}
    if event.kind in KINDS:
        content |= {"sql": event.sql, "ddlSchemaName": event.database}
    else:
        content["rowDatas"] = [
            {"beforeColumns": _columns(each, each.before), "afterColumns": _columns(each, each.after)}
            for each in several
        ]
    return {"header": _header(event, word, 1), "entryType": "ROWDATA", "storeValue": content}


def _columns(event: Event, row: Image | None) -> list[dict[str, Any]]:
    return [
        {
            "index": place,
            "sqlType": 12,
            "name": name,
            "isKey": name in event.keys,
            "updated": event.kind != "delete",
            "isNull": value is None,
            "value": "" if value is None else latin(event.shape[name], value),
            "mysqlType": event.shape[name].declared,
        }
        for place, (name, value) in enumerate((row or {}).items())
    ]


DIALECTS = {"canal-protobuf": Dialect("canal-protobuf", write, pipeline_hints(keys=False, **ZONE))}
