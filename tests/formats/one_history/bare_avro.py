"""Bare Avro records: DTS Avro with and without bornTimestamp, and OceanBase Cloud's data subscription.

`Record.avsc` of DTS; "Data subscription message formats", section Avro, of OceanBase Cloud.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from ingest.change import Message
from tests.formats.avro_cases import encode
from tests.formats.one_history.history import Column, Event, History, bytes_of, ticks
from tests.formats.one_history.writing import Dialect

CODES = {
    "int64": 8,
    "int32": 3,
    "uint64": 8,
    "decimal(10,2)": 246,
    "decimal(38,10)": 246,
    "float64": 5,
    "boolean": 1,
    "string": 253,
    "date": 10,
    "time": 11,
    "datetime(6)": 12,
    "datetime": 12,
    "timestamp(6)": 7,
    "binary": 253,
    "bit": 16,
    "enum": 254,
    "json": 245,
}
PARTS = ("year", "month", "day", "hour", "minute", "second", "millis")
INFO = {
    "int64": "LONG",
    "int32": "INTEGER",
    "uint64": "DECIMAL",
    "decimal(10,2)": "DECIMAL",
    "decimal(38,10)": "DECIMAL",
    "float64": "DOUBLE",
    "boolean": "INTEGER",
    "string": "STRING",
    "date": "DATE",
    "time": "TIME",
    "datetime(6)": "DATETIME",
    "datetime": "DATETIME",
    "timestamp(6)": "TIMESTAMP",
    "binary": "BINARY",
    "bit": "BIT",
    "enum": "ENUM",
    "json": "STRING",
}


OIDS = {
    "boolean": 16, "bytea": 17, "bigint": 20, "smallint": 21, "integer": 23, "text": 25, "double precision": 701, "inet": 869,
    "money": 790, "integer[]": 1007, "text[]": 1009, "char(5)": 1042, "varchar(20)": 1043, "varchar(40)": 1043, "date": 1082,
    "time": 1083, "timestamp": 1114, "timestamp with time zone": 1184, "interval": 1186, "numeric": 1700,
    "numeric(10,2)": 1700, "uuid": 2950, "jsonb": 3802, "mood": 16_402, "feeling": 16_409,
}  # fmt: skip
"""PostgreSQL's types as itself numbers them; those of users' types begin at 16,384."""


def clock_parts(text: str) -> tuple[bool, list[int], str]:
    """Sign, hours, minutes and seconds of a time, and its fraction's digits."""
    whole, _, fraction = text.removeprefix("-").partition(".")
    return text[0] == "-", [int(part) for part in whole.split(":")], fraction


def date_parts(text: str) -> list[int]:
    """Year, month and day."""
    return [int(part) for part in text.split("-")]


# --- DTS ----------------------------------------------------------------------------------------


def dts(history: History, *, born: bool) -> list[Message]:
    """One record per row; of an update both images whole."""
    return [
        Message(encode("dts-avro", _dts(event) | ({"bornTimestamp": event.time} if born else {})))
        for event in history.events
        if event.sql != ""  # one statement truncates several tables
    ]


def _dts(event: Event) -> dict[str, Any]:
    record: dict[str, Any] = {
        "id": 70_000 + event.number,
        "sourceTimestamp": event.second,
        "sourcePosition": f"{event.number * 31}@7",
        "source": {"sourceType": "MySQL", "version": "8.0"},
        "operation": {"read": "INIT"}.get(event.kind, event.kind.upper()),
        "objectName": f"{event.database}.{event.table}",
        "tags": {"pk_uk_info": json.dumps({"PRIMARY": list(event.keys)})},
    }
    if event.within is not None:
        record |= {"source": {"sourceType": event.server, "version": "15"}}
        record |= {"objectName": f"{event.within}.{event.database}.{event.table or ''}".rstrip(".")}
    if event.sql:
        name = event.database if event.within is None else record["objectName"]
        return record | {"operation": "DDL", "objectName": name, "afterImages": event.sql}
    number, _ = OWN[event.server]
    fields = [{"name": name, "dataTypeNumber": number(event.shape[name])} for name in event.columns]
    return record | {
        "fields": fields,
        "beforeImages": _image(event, event.before),
        "afterImages": _image(event, event.after),
    }


def _code(logical: str) -> int:
    """A column's type as the protocol numbers it; decimals of any precision are one."""
    return CODES["decimal(10,2)"] if logical.startswith("decimal(") else CODES[logical]


def _image(event: Event, row: Any) -> Any:
    if row is None:
        return None
    _, cell = OWN[event.server]
    return [None if value is None else cell(event.shape[name], value) for name, value in row.items()]


def _dts_cell(logical: str, text: str) -> dict[str, Any]:
    if logical.startswith("decimal"):
        precision, scale = map(int, logical[8:-1].split(","))
        return {"Decimal": {"value": text, "precision": precision, "scale": scale}}
    if logical in ("int64", "int32", "uint64", "bit", "boolean"):
        number = {"true": "1", "false": "0"}.get(text, text)
        return {"Integer": {"precision": 19, "value": number}}
    if logical in ("date", "time", "datetime", "datetime(6)"):
        return {"DateTime": dict(zip(PARTS, _dts_moment(logical, text), strict=True))}
    if logical.startswith("timestamp"):
        micros = ticks(text, 10**6)
        return {"Timestamp": {"timestamp": micros // 10**6, "millis": micros % 10**6}}
    return _dts_text(logical, text)


def _postgres_cell(column: Column, text: str) -> dict[str, Any]:
    """Of PostgreSQL: its own texts where no branch is one of its types; TIMESTAMPTZ with its zone, JSONB as bytes."""
    logical, declared = column.logical, column.declared
    if declared == "boolean":
        return {"TextObject": {"type": "bool", "value": text[0]}}
    if logical.startswith(("int16", "int32", "int64")):
        return {"Integer": {"precision": 19, "value": text}}
    if declared.startswith("numeric"):
        digits, scale = (10, 2) if logical == "decimal(10,2)" else (0, 0)
        return {"Decimal": {"value": text, "precision": digits, "scale": scale}}
    if logical == "float64":
        return {"Float": {"value": float(text), "precision": 53, "scale": 0}}
    if logical in ("date", "time", "datetime(6)"):
        return {"DateTime": dict(zip(PARTS, _dts_moment(logical, text), strict=True))}
    if logical.startswith("timestamp"):
        moment = dict(
            zip(PARTS, _dts_moment("datetime", text.replace("T", " ").removesuffix("Z")), strict=True)
        )
        return {"TimestampWithTimeZone": {"value": moment, "timezone": "UTC"}}
    if declared == "bytea":
        return {"BinaryObject": {"type": "bytea", "value": {"$hex": bytes_of(text).hex()}}}
    if declared == "jsonb":
        return {"BinaryObject": {"type": "jsonb", "value": {"$text": text}}}
    if declared.startswith(("varchar", "char", "text")) and not declared.endswith("]"):
        return {"Character": {"charset": "utf8", "value": {"$text": text}}}
    return {"TextObject": {"type": declared, "value": text}}


def _oracle_cell(column: Column, text: str) -> dict[str, Any]:
    """Of Oracle: every NUMBER is a Decimal, whose digits none but its declaration knows; moments have nanoseconds."""
    name = column.declared.partition("(")[0]
    if name == "NUMBER":
        return {"Decimal": {"value": text, "precision": 0, "scale": -127}}
    if name == "BINARY_DOUBLE":
        return {"Float": {"value": float(text), "precision": 53, "scale": 0}}
    if name in ("DATE", "TIMESTAMP"):
        *parts, micros = _dts_moment("datetime", text.replace("T", " ").removesuffix("Z"))
        moment = dict(zip(PARTS, [*parts, (micros or 0) * 1000], strict=True))
        zoned = {"TimestampWithTimeZone": {"value": moment, "timezone": "UTC"}}
        return zoned if column.declared.endswith("ZONE") else {"DateTime": moment}
    if name == "RAW":
        return {"BinaryObject": {"type": "RAW", "value": {"$hex": bytes_of(text).hex()}}}
    if name == "CLOB":
        return {"TextObject": {"type": "CLOB", "value": text}}
    return {"Character": {"charset": "utf8", "value": {"$text": text}}}


ORACLE_CODES = {
    "VARCHAR2": 1, "NUMBER": 2, "DATE": 12, "RAW": 23, "CHAR": 96, "BINARY_DOUBLE": 101, "CLOB": 112, "TIMESTAMP": 180,
}  # fmt: skip
OWN: dict[str, tuple[Callable[[Column], int], Callable[[Column, str], dict[str, Any]]]] = {
    "MySQL": (lambda column: _code(column.logical), lambda column, text: _dts_cell(column.logical, text)),
    "PostgreSQL": (lambda column: OIDS[column.declared], _postgres_cell),
    "Oracle": (
        lambda column: (
            231 if column.declared.endswith("ZONE") else ORACLE_CODES[column.declared.partition("(")[0]]
        ),
        _oracle_cell,
    ),
}
"""How each database numbers a column's type, and what becomes of a value."""


def _dts_text(logical: str, text: str) -> dict[str, Any]:
    if logical == "float64":
        return {"Float": {"value": float(text), "precision": 53, "scale": 0}}
    if logical == "binary":
        return {"BinaryObject": {"type": "varbinary", "value": {"$hex": bytes_of(text).hex()}}}
    if logical in ("enum", "json"):
        return {"TextObject": {"type": logical, "value": text}}
    return {"Character": {"charset": "utf8mb4", "value": {"$text": text}}}


def _dts_moment(logical: str, text: str) -> list[int | None]:
    day, _, clock = text.partition(" ") if logical.startswith("datetime") else (text, "", text)
    date: list[int | None] = [None] * 3 if logical == "time" else [*date_parts(day)]
    if logical == "date":
        return [*date, None, None, None, None]
    negative, parts, fraction = clock_parts(clock)
    signed = [*parts, int(fraction.ljust(6, "0"))]
    return [*date, *(-part if negative else part for part in signed)]


# --- OceanBase Cloud ----------------------------------------------------------------------------


def ocean(history: History) -> list[Message]:
    """One record per row, key columns by their place among the fields; no full load."""
    return [Message(encode("obcloud-avro", _ocean(event))) for event in history.events]


def _ocean(event: Event) -> dict[str, Any]:
    record: dict[str, Any] = {
        "id": 5_000_000 + event.number,
        "operation": {"read": "INSERT"}.get(event.kind, event.kind.upper()),
        "timestamp": event.second,
        "source": {"sourceType": "OB_MYSQL", "version": "4.2"},
        "schemaName": event.database,
        "tableName": event.table,
    }
    if event.sql:
        return record | {"operation": "DDL", "sql": event.sql}
    return record | {
        "fields": [{"name": name, "dataTypeNumber": 0} for name in event.columns],
        "pkIndexes": [event.columns.index(name) for name in event.keys],
        "beforeImages": _cells(event, event.before),
        "afterImages": _cells(event, event.after),
    }


def _cells(event: Event, row: Any) -> Any:
    if row is None:
        return None
    return [
        {
            "type_info": INFO[event.shape[name].logical],
            "value": None if value is None else _ocean_cell(event.shape[name].logical, value),
        }
        for name, value in row.items()
    ]


def _ocean_cell(logical: str, text: str) -> Any:
    if logical in ("int64", "int32", "boolean"):
        number = int({"true": "1", "false": "0"}.get(text, text))
        return {"long" if logical == "int64" else "int": number}
    if logical == "uint64" or logical.startswith("decimal"):
        precision, scale = (20, 0) if logical == "uint64" else map(int, logical[8:-1].split(","))
        return {"DecimalObject": {"precision": precision, "scale": scale, "value": text}}
    if logical == "float64":
        return {"double": float(text)}
    if logical == "binary":
        return {"bytes": {"$hex": bytes_of(text).hex()}}
    if logical == "enum":
        return {"EnumSetValue": {"value": text, "defines": None}}
    if logical == "bit":
        return {"BitObject": {"bit_length": 12, "value": f"{int(text):012b}"}}
    return _ocean_moment(logical, text)


def _ocean_moment(logical: str, text: str) -> Any:
    if logical == "date":
        return {"DateObject": _day(text)}
    if logical == "time":
        return {"TimeObject": {"negative": clock_parts(text)[0], **_clock(text)}}
    if logical.startswith("datetime"):
        return {"DateTimeObject": {**_day(text[:10]), **_clock(text[11:])}}
    if logical.startswith("timestamp"):
        seconds, nanos = divmod(ticks(text, 10**9), 10**9)
        return {"TimestampObject": {"seconds": seconds, "nanos": nanos, "timezone": "Asia/Shanghai"}}
    return {"StringObject": {"charsetName": "utf8mb4", "value": text}}


def _day(text: str) -> dict[str, int]:
    return dict(zip(("year", "month", "day"), date_parts(text), strict=True))


def _clock(text: str) -> dict[str, int]:
    _, parts, fraction = clock_parts(text)
    names = ("hours", "minutes", "seconds", "nanos")
    return dict(zip(names, [*parts, int(fraction.ljust(9, "0"))], strict=True))


DIALECTS = {
    "dts-avro": Dialect("dts-avro", partial(dts, born=True)),
    "dts-avro before 2020-06-18": Dialect("dts-avro", partial(dts, born=False)),
    "obcloud-avro": Dialect("obcloud-avro", ocean),
}
