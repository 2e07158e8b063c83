"""The Canal family: open source, OMS, OceanBase Cloud, DTS of today and before 2022-03-20, DRS, TiCDC.

alibaba/canal `FlatMessage`; "Data formats" of OMS; "Message formats for subscriptions"; "Data formats of a
Kafka cluster"; "Kafka Message Format"; tiflow `canal_json_row_event_encoder.go`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from typing import Any

from ingest.change import Message
from tests.formats.one_history.history import Column, Event, History, bit_bytes, bytes_of, wall
from tests.formats.one_history.writing import Cell, Dialect, bare, cells, changed, message, pipeline_hints

SHANGHAI = 8
KINDS = {
    "truncate": "TRUNCATE",
    "alter": "ALTER",
    "create": "CREATE",
    "drop": "ERASE",
    "rename": "RENAME",
    "query": "QUERY",
}


def latin(column: Column, text: str) -> Any:
    """Open source and TiCDC: labels by index, bytes as ISO-8859-1, BIT in decimal, clocks of Shanghai."""
    logical = column.logical
    if logical == "enum":
        return str(("", *column.labels).index(text))  # 0: no label that the type still has
    if logical == "binary":
        return bytes_of(text).decode("latin-1")
    return common(column, text)


def common(column: Column, text: str) -> Any:
    """What no document says otherwise: text, TIMESTAMP as the clock of the configured zone."""
    logical = column.logical
    if logical == "boolean":
        return str(int(text == "true"))
    return wall(text, SHANGHAI) if logical.startswith("timestamp") else text


def epoch(text: str) -> str:
    """An instant as seconds with a fraction."""
    import datetime as dt

    whole, dot, fraction = text.removesuffix("Z").partition(".")
    moment = dt.datetime.fromisoformat(whole).replace(tzinfo=dt.UTC)
    return f"{int(moment.timestamp())}{dot}{fraction}"


def huawei(column: Column, text: str, clock: Callable[[str], str] = epoch) -> Any:
    """DRS: bytes as the text of a list of numbers."""
    logical = column.logical
    if logical == "binary":
        return json.dumps(list(bytes_of(text)))
    return clock(text) if logical.startswith("timestamp") else common(column, text)


def ocean(column: Column, text: str) -> Any:
    """OMS: bare numbers, TIMESTAMP as seconds, BIT in base64 without leading zero bytes."""
    logical = column.logical
    if logical.startswith(("int", "uint", "decimal", "float")):
        return bare(text)
    if logical == "boolean":
        return bare(str(int(text == "true")))
    if logical == "bit":
        return base64.b64encode(bit_bytes(text)).decode()
    return epoch(text) if logical.startswith("timestamp") else text


# --- messages -----------------------------------------------------------------------------------


def grouped(events: list[Event]) -> Iterator[list[Event]]:
    """Rows that one statement may have changed: neighbours of one second, kind and list of columns."""
    for (kind, *_), found in groupby(events, _statement):
        several = list(found)
        yield from [several] if kind not in KINDS else [[event] for event in several]


def _statement(event: Event) -> tuple[object, ...]:
    return event.kind, event.second, event.database, event.table, event.columns


def write(
    history: History,
    cell: Cell,
    *,
    rows: Callable[[list[Event], Cell], dict[str, Any]],
    types: Callable[[str], str] = str,
    number: Callable[[Event], int | None] = lambda event: 100 + event.number,
    load: str = "INIT",
    ddl: str | None = "DDL",
    more: Callable[[Event], dict[str, Any]] = lambda _event: {},
    alone: bool = False,
    shaped: Callable[[Event, dict[str, Any]], dict[str, Any]] = lambda _event, frame: frame,
) -> list[Message]:
    """Messages of a whole history, several rows in one where the source's statement made them; or each row ``alone``.

    ``shaped`` gives a message its last form.
    """
    messages = []
    for several in ([event] for event in history.events) if alone else grouped(history.events):
        if several[0].sql == "":  # one statement truncates several tables
            continue
        event = several[0]
        kind = {"read": load, **dict.fromkeys(KINDS, ddl)}.get(event.kind) or event.kind.upper()
        place = number(several[-1])
        frame = {
            **({} if place is None else {"id": place}),
            "database": event.database,
            "table": event.table,
            "isDdl": event.kind in KINDS,
            "type": kind,
            "es": event.second * 1000,
            "ts": event.time + 90,
            "sql": event.sql or "",
            **more(event),
        }
        if event.kind in KINDS:
            frame |= {"data": None, "old": None, "mysqlType": None, "sqlType": None, "pkNames": None}
        else:
            frame |= {
                "pkNames": list(event.keys),
                "mysqlType": {c: types(event.shape[c].declared) for c in event.columns},
            }
            frame |= {"sqlType": dict.fromkeys(event.columns, 12)} | rows(several, cell)
        messages.append(message(shaped(event, frame), event))
    return messages


def new_rows(several: list[Event], cell: Cell) -> dict[str, Any]:
    """``data`` is the row after or the deleted one, ``old`` the changed columns."""
    old = [cells(event, changed(event), cell) for event in several] if several[0].kind == "update" else None
    return {"data": [cells(event, event.row, cell) for event in several], "old": old}


def exchanged(several: list[Event], cell: Cell) -> dict[str, Any]:
    """DTS before 2022-03-20: ``old`` is the row after an update, and a deleted row."""
    before, after = _images(several, cell)
    if several[0].kind == "delete":
        return {"old": before}
    return {"data": before, "old": after} if several[0].kind == "update" else {"data": after, "old": None}


def full_old(several: list[Event], cell: Cell, *, deleted_in_old: bool) -> dict[str, Any]:
    """DRS: ``old`` is the whole row before; JSON puts a deleted row there, JSON-C into ``data``."""
    before, after = _images(several, cell)
    kind = several[0].kind
    if kind == "delete":
        return {"data": None, "old": before} if deleted_in_old else {"data": before, "old": None}
    return {"data": after, "old": before if kind == "update" else None}


def _images(several: list[Event], cell: Cell) -> tuple[list[Any], list[Any]]:
    before = [cells(event, event.before, cell) for event in several]
    return before, [cells(event, event.after, cell) for event in several]


def base(declared: str) -> str:
    """A type name without its length, as DTS, DRS and OMS send it."""
    name, _, rest = declared.partition("(")
    return (name + rest.partition(")")[2]).strip()


def upper(declared: str) -> str:
    """A type name in full and in upper case, its labels as they are."""
    return declared if declared.startswith("enum") else declared.upper()


def _tidb(event: Event) -> dict[str, Any]:
    """A commit of its own: a transaction has at most one change of a key."""
    return {"_tidb": {"commitTs": 429_918_007_904_436_226 + event.second * 10_000 + event.counter}}


def _dts(event: Event) -> dict[str, Any]:
    return {"gtid": f"2174b383-5441-11ef-b90a-c80aa9429562:{event.number}"}


ZONE = {"timezone": "Asia/Shanghai"}
OLD_DTS = partial(write, cell=common, rows=exchanged, types=base)
DIALECTS = {
    "canal": Dialect(
        "canal",
        partial(
            write,
            cell=latin,
            rows=new_rows,
            number=lambda event: 7 + event.number // 5,
            load="INSERT",
            ddl=None,
        ),
        pipeline_hints(keys=False, **ZONE),
    ),
    "oms-canal": Dialect(
        "oms-canal",
        partial(
            write, cell=ocean, rows=new_rows, types=base, number=lambda _event: None, load="ROW", ddl=None
        ),
    ),
    "obcloud-canal": Dialect(
        "obcloud-canal",
        partial(write, cell=common, rows=new_rows, types=upper, load="INSERT"),
        pipeline_hints(keys=False, **ZONE),
    ),
    "dts-canal": Dialect(
        "dts-canal",
        partial(write, cell=common, rows=new_rows, types=base, more=_dts),
        pipeline_hints(keys=False, **ZONE),
    ),
    "dts-canal before 2022-03-20": Dialect(
        "dts-canal", OLD_DTS, pipeline_hints(keys=False, swap_old_data=True, **ZONE)
    ),
    "drs-json": Dialect(
        "drs-json", partial(write, cell=huawei, rows=partial(full_old, deleted_in_old=True), types=base)
    ),
    "drs-json-c": Dialect(
        "drs-json-c",
        partial(
            write,
            cell=partial(huawei, clock=lambda text: wall(text, SHANGHAI)),
            rows=partial(full_old, deleted_in_old=False),
            types=base,
        ),
        pipeline_hints(keys=False, **ZONE),
    ),
    "ticdc-canal": Dialect(
        "ticdc-canal",
        partial(
            write,
            cell=latin,
            rows=new_rows,
            number=lambda _event: 0,
            load="INSERT",
            ddl=None,
            more=_tidb,
            alone=True,
        ),
        pipeline_hints(keys=False, **ZONE),
    ),
    "ticdc-canal without the extension": Dialect(
        "ticdc-canal",
        partial(write, cell=latin, rows=new_rows, number=lambda _event: 0, load="INSERT", ddl=None),
        pipeline_hints(keys=False, **ZONE),
    ),
}
