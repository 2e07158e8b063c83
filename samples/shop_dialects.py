"""One history in five dialects, each as its vendor's document says.

A dialect is a function from the history to its files: a list of lines per file name.  What the
document leaves open is written the way its printed samples are.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any

from shop_history import KEYS, TYPES, Event, Row
from shop_json import Bare, dump

Files = dict[str, list[str]]
Cell = str | int | None
EPOCH = dt.datetime.fromisoformat("1970-01-01")
SHANGHAI = 8 * 3600 * 1000
LAG = 1_370  # milliseconds from the source's commit to the message
OTHER_KIND = '{"metric":"queue.depth","host":"relay-2","value":17,"at":"2024-05-01T08:20:00Z"}'


def moment_text(milliseconds: int, shift: int = 0) -> str:
    at = EPOCH + dt.timedelta(milliseconds=milliseconds + shift)
    return at.isoformat(" ", "milliseconds" if milliseconds % 1000 else "seconds")


def _epoch(milliseconds: int) -> str:
    return f"{milliseconds // 1000}.{milliseconds % 1000:03d}"


def _delivered(lines: list[str], rows: list[int]) -> list[str]:
    """As a broker delivers them: one row message late, one twice, one cut off before it came whole.

    ``rows`` are the places of row messages after the full load; the order carried in the messages
    makes good for all of this.
    """
    late, twice, cut = (rows[len(rows) * part // 10] for part in (3, 5, 7))
    found: list[str] = []
    for i, line in enumerate(lines):
        if i != late:
            found += [line[: len(line) * 2 // 3], line] if i == cut else [line]
        if i == late + 12:
            found.append(lines[late])
        if i == twice + 5:
            found.append(lines[twice])
    found.insert(len(found) * 4 // 5, OTHER_KIND)
    return found


def _halves(lines: list[str], names: tuple[str, str] = ("shop-1.jsonl", "shop-2.jsonl")) -> Files:
    middle = len(lines) * 3 // 5
    return {names[0]: lines[:middle], names[1]: lines[middle:]}


def _packed(
    events: Iterable[Event], write: Callable[[Event], list[str]], beats: Callable[[Event], str]
) -> Files:
    """Every event's messages, with a heartbeat after each forty events."""
    lines: list[str] = []
    rows: list[int] = []
    for event in events:
        written = write(event)
        if event.kind in ("insert", "update", "delete"):
            rows += range(len(lines), len(lines) + len(written))
        lines += written
        if event.number % 40 == 39 and (beat := beats(event)):
            lines.append(beat)
    return _halves(_delivered(lines, rows))


def _no_beat(_event: Event) -> str:
    return ""


# --- OceanBase OMS, Default -------------------------------------------------------------------


def oms_default(events: list[Event]) -> Files:
    """Bare numbers, TIMESTAMP as seconds with a fraction, no types at all."""
    counters: dict[int, int] = {}

    def write(event: Event) -> list[str]:
        second = event.time // 1000
        counters[second] = counters.get(second, 0) + 1
        return [dump(_oms_ddl(event) if event.sql else _oms_row(event, counters[second]))]

    return _packed(events, write, _oms_beat)


def _oms_row(event: Event, counter: int) -> dict[str, Any]:
    full_load = event.kind == "read"
    row = event.after or event.before or {}
    second = str(event.time // 1000)
    return {
        "prevStruct": _oms_image(event.table, event.before),
        "postStruct": _oms_image(event.table, event.after),
        "allMetaData": {
            "checkpoint": f"id={row['id']}" if full_load else second,
            "dbType": "OB_MYSQL",
            "storeDataSequence": None if full_load else Bare(f"{second}{counter:05d}"),
            "db": "demo_tenant.shop",
            "timestamp": None if full_load else second,
            "uniqueId": None if full_load else f"ob_{second}_{event.number}",
            "record_primary_key": "\x01".join(KEYS[event.table]),
            "source_identity": "7" if full_load else "shop_increment_0",
            "record_primary_value": "\x01".join(str(row[column]) for column in KEYS[event.table]),
            "table_name": event.table,
        },
        "recordType": "ROW" if full_load else event.kind.upper(),
    }


def _oms_image(table: str, row: Row | None) -> dict[str, Any] | None:
    return row and {column: _oms_cell(TYPES[table][column], value) for column, value in row.items()}


def _oms_cell(logical: str, value: Cell) -> Any:
    if value is None or logical in ("string", "datetime"):
        return value
    return _epoch(int(value)) if logical == "timestamp" else Bare(value)


def _oms_ddl(event: Event) -> dict[str, Any]:
    second = str(event.time // 1000)
    return {
        "prevStruct": None,
        "postStruct": {"ddl": event.sql},
        "allMetaData": {
            "checkpoint": second,
            "dbType": "OB_MYSQL",
            "storeDataSequence": None,
            "db": "shop",
            "timestamp": second,
            "uniqueId": None,
            "ddlType": f"{event.kind.upper()}_TABLE",
            "record_primary_key": None,
            "source_identity": None,
            "record_primary_value": None,
            "table_name": event.table,
        },
        "recordType": "DDL",
    }


def _oms_beat(event: Event) -> str:
    second = str(event.time // 1000)
    meta = {"checkpoint": second, "dbType": "OB_MYSQL", "timestamp": second}
    return dump({"prevStruct": None, "postStruct": None, "allMetaData": meta, "recordType": "HEARTBEAT"})


# --- the Canal family: OceanBase Cloud, DTS, DRS ------------------------------------------------

_NAMES = {
    "int64": ("bigint", "BIGINT(20)", -5),
    "int32": ("int", "INTEGER", 4),
    "int8": ("tinyint", "TINYINT(4)", -6),
    "string": ("varchar", "VARCHAR(200)", 12),
    "datetime": ("datetime", "DATETIME", 93),
    "timestamp": ("timestamp", "TIMESTAMP(3)", 93),
    "decimal(12,2)": ("decimal", "DECIMAL(12,2)", 3),
    "decimal(12,4)": ("decimal", "DECIMAL(12,4)", 3),
    "decimal(18,4)": ("decimal", "DECIMAL(18,4)", 3),
}


def _canal(event: Event, number: int, data: Any, old: Any, full_names: bool = False) -> dict[str, Any]:
    """The members that all three share; ``data`` and ``old`` are lists of rows or None."""
    declared = {column: _NAMES[TYPES[event.table][column]] for column in event.columns}
    if "note" in declared:
        declared["note"] = ("text", "TEXT", -1)
    return {
        "data": data,
        "database": "shop",
        "es": event.time // 1000 * 1000,
        "id": number,
        "isDdl": False,
        "mysqlType": {column: names[1 if full_names else 0] for column, names in declared.items()},
        "old": old,
        "pkNames": list(KEYS[event.table]),
        "sql": "",
        "sqlType": {column: names[2] for column, names in declared.items()},
        "table": event.table,
        "ts": event.time + LAG,
        "type": event.kind.upper(),
    }


def _texts(table: str, row: Row | None, moment: Callable[[int], str]) -> Row | None:
    """A row with every value as text."""
    return row and {
        column: None
        if value is None
        else moment(int(value))
        if TYPES[table][column] == "timestamp"
        else str(value)
        for column, value in row.items()
    }


def _changed(before: Row | None, after: Row | None) -> Row:
    """What stood before in the columns that changed."""
    return {column: value for column, value in (before or {}).items() if value != (after or {}).get(column)}


def _listed(row: Row | None) -> list[Row] | None:
    return [row] if row else None


def obcloud_canal(events: list[Event]) -> Files:
    """Types in full and in upper case; no full load, so its rows are inserts; old has what changed."""

    def write(event: Event) -> list[str]:
        number = 9 + event.number
        if event.sql:
            return [dump(_canal_ddl(event, number))]
        before, after = (_texts(event.table, row, moment_text) for row in (event.before, event.after))
        old = _listed(_changed(before, after)) if event.kind == "update" else None
        message = _canal(event, number, _listed(after or before), old, full_names=True)
        return [dump(message | {"type": "INSERT"} if event.kind == "read" else message)]

    return _packed(events, write, _no_beat)


def _canal_ddl(event: Event, number: int) -> dict[str, Any]:
    return {
        "data": None,
        "database": "shop",
        "es": event.time // 1000 * 1000,
        "id": number,
        "isDdl": True,
        "mysqlType": None,
        "old": None,
        "pkNames": None,
        "sql": event.sql,
        "sqlType": None,
        "table": event.table,
        "ts": event.time + LAG,
        "type": "DDL",
    }


def dts_canal(events: list[Event]) -> Files:
    """Two tasks: one of today, and one from before 2022-03-20, which has the order lines."""
    new = _packed([event for event in events if event.table != "order_lines"], _dts_new, _no_beat)
    old = [line for event in events if event.table == "order_lines" for line in _dts_old(event)]
    return new | {f"before-2022-03-20/{name}": lines for name, lines in _halves(old).items()}


def _shanghai(milliseconds: int) -> str:
    return moment_text(milliseconds, SHANGHAI)


def _dts_id(event: Event) -> int:
    return event.time * 1000 + event.number


def _dts_new(event: Event) -> list[str]:
    if event.sql:
        return [dump(_dts_ddl(event))]
    before, after = (_texts(event.table, row, _shanghai) for row in (event.before, event.after))
    old = _listed(_changed(before, after)) if event.kind == "update" else None
    message = _canal(event, _dts_id(event), _listed(after or before), old)
    if event.kind == "read":
        return [dump(message | {"type": "INIT"})]
    return [dump(message | {"gtid": f"2174b383-5441-11ef-b90a-c80aa9429562:{event.number}"})]


def _dts_old(event: Event) -> list[str]:
    """Before 2022-03-20: of an update ``old`` is the row after, and a deleted row is in ``old``."""
    if event.sql:
        return [dump(_dts_ddl(event))]
    before, after = (_texts(event.table, row, _shanghai) for row in (event.before, event.after))
    if event.kind == "delete":
        message = _canal(event, _dts_id(event), None, _listed(before))
        del message["data"]
        return [dump(message)]
    data, old = (before, after) if event.kind == "update" else (after, None)
    return [dump(_canal(event, _dts_id(event), _listed(data), _listed(old)))]


def _dts_ddl(event: Event) -> dict[str, Any]:
    message = _canal_ddl(event, _dts_id(event))
    return {name: message[name] for name in ("database", "es", "id", "isDdl", "sql", "table", "ts", "type")}


def drs_json(events: list[Event]) -> Files:
    """Full rows before and after, a deleted row in ``old``, TIMESTAMP as seconds, HTML-safe texts."""

    def write(event: Event) -> list[str]:
        number = 27_677 + event.number
        if event.sql:
            return [_html_safe(dump(_canal_ddl(event, number) | {"pkNames": []}))]
        before, after = (_texts(event.table, row, _epoch) for row in (event.before, event.after))
        message = _canal(event, number, _listed(after), _listed(before))
        return [_html_safe(dump(message | {"type": "INIT"} if event.kind == "read" else message))]

    return _packed(events, write, _no_beat)


def _html_safe(text: str) -> str:
    """The document's escape characters; none of them is outside a text."""
    for char in "<>&='":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


# --- DataWorks (StreamX) ------------------------------------------------------------------------

TASK = "1714550399000"
_STREAMX = {"int64": "LONG", "int32": "LONG", "int8": "LONG", "string": "STRING"} | dict.fromkeys(
    ["datetime", "timestamp"], "DATE"
)


def dataworks(events: list[Event]) -> Files:
    """DATE in milliseconds; updates of customers are two messages, those of other tables are one."""

    def write(event: Event) -> list[str]:
        op = {"read": "INSERT", "update": "UPDATE_AFTER"}.get(event.kind, event.kind.upper())
        before, after = (_streamx_image(event.table, row) for row in (event.before, event.after))
        if event.kind == "update" and event.table == "customers":
            halves = ((before, None, "UPDATE_BEFOR"), (None, after, "UPDATE_AFTER"))
            return [dump(_streamx(event, *half)) for half in halves]
        return [dump(_streamx(event, before, after, op))]

    return _packed(events, write, _streamx_beat)


def _streamx(event: Event, before: Any, after: Any, op: str) -> dict[str, Any]:
    full_load = event.kind == "read"
    when = -1 if full_load else event.time // 1000 * 1000
    columns = [{"name": column, "type": _streamx_type(event.table, column)} for column in event.columns]
    return {
        "schema": {
            "dataColumn": columns,
            "primaryKey": list(KEYS[event.table]),
            "source": {"dbType": "MySQL", "dbVersion": "8.0", "dbName": "shop", "tableName": event.table},
        },
        "payload": {
            "before": before,
            "after": after,
            "sequenceId": "-1" if full_load else f"{TASK}{event.number:06d}",
            "timestamp": {"eventTime": when, "systemTime": event.time + LAG, "checkpointTime": when},
            "op": op,
            "ddl": {"text": event.sql, "ddlMeta": "rO0ABQ=="} if event.sql else None,
        },
        "version": "0.0.1",
    }


def _streamx_type(table: str, column: str) -> str:
    """Wide decimals travel as STRING, for a DOUBLE has only 15 sure digits."""
    logical = TYPES[table][column]
    return _STREAMX.get(logical) or ("STRING" if column == "total" else "DOUBLE")


def _streamx_image(table: str, row: Row | None) -> dict[str, Any] | None:
    return row and {
        "dataColumn": {column: _streamx_cell(table, column, value) for column, value in row.items()}
    }


def _streamx_cell(table: str, column: str, value: Cell) -> Any:
    kind = _streamx_type(table, column)
    if value is None or kind == "STRING":
        return value
    if kind == "DOUBLE":  # as Java prints a double: without the zeros that a decimal keeps
        whole, _, digits = str(value).partition(".")
        return Bare(f"{whole}.{digits.rstrip('0') or '0'}")
    if TYPES[table][column] == "datetime":  # the source's clock is Shanghai's
        at = dt.datetime.fromisoformat(str(value)) - EPOCH
        return at // dt.timedelta(milliseconds=1) - SHANGHAI
    return value


def _streamx_beat(event: Event) -> str:
    when = event.time // 1000 * 1000
    return dump(
        {
            "schema": {"dataColumn": None, "primaryKey": None, "source": None},
            "payload": {
                "before": None,
                "after": None,
                "sequenceId": None,
                "timestamp": {"eventTime": when, "checkpointTime": when},
                "op": "MHEARTBEAT",
                "ddl": None,
            },
            "version": "0.0.1",
        }
    )


DIALECTS: dict[str, Callable[[list[Event]], Files]] = {
    "oms-default": oms_default,
    "obcloud-canal": obcloud_canal,
    "dataworks": dataworks,
    "dts-canal": dts_canal,
    "drs-json": drs_json,
}
