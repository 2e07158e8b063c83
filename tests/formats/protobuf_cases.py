"""Golden cases of the Protobuf formats: kept as readable JSON, encoded here by a writer that shares nothing with the reader.

A case names fields as the vendor's ``.proto`` does; an enum's value is its word. A value that Protobuf would leave out
(0, an empty text) is left out, unless the field is of those that a writer sets always (``oneof``).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

EVENT_TYPES = (
    *"EVENTTYPECOMPATIBLEPROTO2 INSERT UPDATE DELETE CREATE ALTER ERASE QUERY TRUNCATE RENAME CINDEX".split(),
    *"DINDEX GTID XACOMMIT XAROLLBACK MHEARTBEAT".split(),
)
ENTRY_TYPES = tuple("UNSET TRANSACTIONBEGIN ROWDATA TRANSACTIONEND HEARTBEAT GTIDLOG".split())


class Field(NamedTuple):
    """A field's number, and what it holds: ``int``, ``text``, ``bytes``, a message's name, or the words of an enum.

    Bytes are a text in UTF-8, or ``{"$hex": "..."}``.
    """

    number: int
    kind: str | tuple[str, ...]
    always: bool = False


PAIR = {"key": Field(1, "text"), "value": Field(2, "text")}
CANAL: dict[str, dict[str, Field]] = {
    "Packet": {
        "version": Field(2, "int"),
        "type": Field(3, "int"),
        "compression": Field(4, "int"),
        "body": Field(5, "Messages"),
    },
    "Messages": {"batch_id": Field(1, "int"), "messages": Field(2, "Entry")},
    "Entry": {
        "header": Field(1, "Header"),
        "entryType": Field(2, ENTRY_TYPES, always=True),
        "storeValue": Field(3, "RowChange", always=True),
    },
    "Header": {
        "version": Field(1, "int"),
        "logfileName": Field(2, "text"),
        "logfileOffset": Field(3, "int"),
        "serverId": Field(4, "int"),
        "serverenCode": Field(5, "text"),
        "executeTime": Field(6, "int"),
        "sourceType": Field(7, "int"),
        "schemaName": Field(8, "text"),
        "tableName": Field(9, "text"),
        "eventLength": Field(10, "int"),
        "eventType": Field(11, EVENT_TYPES, always=True),
        "props": Field(12, "Pair"),
    },
    "Pair": PAIR,
    "RowChange": {
        "tableId": Field(1, "int"),
        "eventType": Field(2, EVENT_TYPES, always=True),
        "isDdl": Field(10, "int", always=True),
        "sql": Field(11, "text"),
        "rowDatas": Field(12, "RowData"),
        "ddlSchemaName": Field(14, "text"),
        "transactionId": Field(2, "text"),
    },
    "RowData": {"beforeColumns": Field(1, "Column"), "afterColumns": Field(2, "Column")},
    "Column": {
        "index": Field(1, "int"),
        "sqlType": Field(2, "int"),
        "name": Field(3, "text"),
        "isKey": Field(4, "int"),
        "updated": Field(5, "int"),
        "isNull": Field(6, "int", always=True),
        "value": Field(8, "text"),
        "mysqlType": Field(10, "text"),
    },
}
"""alibaba/canal, ``CanalProtocol.proto`` and ``EntryProtocol.proto``."""

TENCENT: dict[str, dict[str, Field]] = {
    "Envelope": {
        "version": Field(1, "int"),
        "total": Field(2, "int"),
        "index": Field(3, "int"),
        "data": Field(4, "Entries"),
        "properties": Field(15, "Pair"),
    },
    "Entries": {"items": Field(1, "Entry")},
    "Entry": {"header": Field(1, "Header"), "event": Field(2, "Event")},
    "Header": {
        "version": Field(1, "int"),
        "sourceType": Field(2, ("ORACLE", "MYSQL", "PGSQL", "MARIADB")),
        "messageType": Field(3, tuple("BEGIN COMMIT DML DDL ROLLBACK HEARTBEAT CHECKPOINT".split())),
        "timestamp": Field(4, "int"),
        "serverId": Field(5, "int"),
        "fileName": Field(6, "text"),
        "position": Field(7, "int"),
        "gtid": Field(8, "text"),
        "schemaName": Field(9, "text"),
        "tableName": Field(10, "text"),
        "seqId": Field(11, "int"),
        "eventIndex": Field(12, "int"),
        "isLast": Field(13, "int"),
        "properties": Field(15, "Pair"),
    },
    "Event": {
        "beginEvent": Field(1, "BeginEvent"),
        "dmlEvent": Field(2, "DMLEvent"),
        "commitEvent": Field(3, "CommitEvent"),
        "ddlEvent": Field(4, "DDLEvent"),
        "rollbackEvent": Field(5, "RollbackEvent"),
        "heartbeatEvent": Field(6, "HeartbeatEvent"),
        "checkpointEvent": Field(7, "CheckpointEvent"),
    },
    "BeginEvent": {"transactionId": Field(1, "text"), "threadId": Field(2, "int")},
    "CommitEvent": {"transactionId": Field(1, "text")},
    "RollbackEvent": {},
    "HeartbeatEvent": {"epoch": Field(1, "int")},
    "CheckpointEvent": {
        "syncedGtid": Field(1, "text"),
        "fakeGtid": Field(2, "int"),
        "fileName": Field(3, "text"),
        "position": Field(4, "int"),
    },
    "DDLEvent": {"schemaName": Field(1, "text"), "sql": Field(2, "text"), "executionTime": Field(3, "int")},
    "DMLEvent": {
        "dmlEventType": Field(1, ("INSERT", "UPDATE", "DELETE")),
        "columns": Field(2, "Column"),
        "rows": Field(3, "RowChange"),
    },
    "Column": {"name": Field(1, "text"), "originalType": Field(2, "text"), "isKey": Field(3, "int")},
    "RowChange": {"oldColumns": Field(1, "Data"), "newColumns": Field(2, "Data")},
    "Data": {
        "dataType": Field(
            1,
            tuple(
                "NIL INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64 FLOAT32 FLOAT64 BYTES DECIMAL STRING NA".split()
            ),
        ),
        "charset": Field(2, "text"),
        "sv": Field(3, "text"),
        "bv": Field(4, "bytes"),
    },
    "Pair": PAIR,
}
"""Tencent Cloud DTS, ``subscribe.proto``."""

ROOTS = {"canal-protobuf": (CANAL, "Packet"), "tencent-protobuf": (TENCENT, "Envelope")}


def encode(format_name: str, case: dict[str, Any]) -> bytes:
    """One message's value."""
    schema, root = ROOTS[format_name]
    return _bytes(schema, root, case)


def written(schema: dict[str, dict[str, Field]], name: str, case: dict[str, Any]) -> bytes:
    """One message of a type, its fields in the order of their numbers."""
    found = []
    for member, value in case.items():
        field = schema[name][member]
        for each in value if isinstance(value, list) else [value]:
            found.append((field.number, _field(schema, field, each)))
    return b"".join(part for _, part in sorted(found, key=lambda each: each[0]))


def _field(schema: dict[str, dict[str, Field]], field: Field, value: Any) -> bytes:
    if isinstance(field.kind, tuple):
        value = field.kind.index(value) if isinstance(value, str) else value
        return varint(field.number << 3) + varint(value) if value or field.always else b""
    if field.kind == "int":
        return varint(field.number << 3) + varint(int(value)) if value or field.always else b""
    data = value.encode() if isinstance(value, str) else _bytes(schema, field.kind, value)
    if not data and field.kind in ("text", "bytes"):
        return b""
    return varint(field.number << 3 | 2) + varint(len(data)) + data


def _bytes(schema: dict[str, dict[str, Field]], kind: str, value: Any) -> bytes:
    """A message inside a message, or bytes that are given as ``{"$hex": "..."}``."""
    return bytes.fromhex(value["$hex"]) if value.keys() == {"$hex"} else written(schema, kind, value)


def varint(value: int) -> bytes:
    """A number in groups of seven bits, a negative one as 64 bits."""
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def in_parts(envelope: bytes, parts: int) -> list[bytes]:
    """So many parts of one of Tencent's envelopes, of one size but for the last."""
    from ingest.formats import tencent_protobuf

    data = tencent_protobuf.SUBSCRIBE.read("Envelope", envelope).data
    size = -(-len(data) // parts)
    return cut_at(data, *(at * size for at in range(1, parts)))


def cut_at(data: bytes, *places: int) -> list[bytes]:
    """Parts of the data of one of Tencent's envelopes, as the service sends them: of the first one the index, 0, is left out."""
    cuts = [data[start:end] for start, end in pairwise([0, *places, len(data)])]
    total = len(cuts)
    return [
        encode("tencent-protobuf", {"version": 1, "total": total, "index": at, "data": {"$hex": cut.hex()}})
        for at, cut in enumerate(cuts)
    ]
