"""Maxwell's daemon ("Data format"), Oracle GoldenGate ("Pluggable Formatters"), AWS DMS ("Kafka as a target")."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from functools import partial
from typing import Any

from ingest.change import Image, Message
from tests.formats.one_history.history import EPOCH, TYPES, Column, Event, History, bytes_of
from tests.formats.one_history.oms import plain
from tests.formats.one_history.writing import Dialect, bare, cells, changed, message, pipeline_hints


def clock(milliseconds: int) -> str:
    """A clock's text with six digits."""
    return (EPOCH + dt.timedelta(milliseconds=milliseconds)).isoformat(" ", "microseconds")


# --- Maxwell ------------------------------------------------------------------------------------


def maxwell(history: History, *, position: bool) -> list[Message]:
    """``data`` and the former values of changed columns; the log's place and the key's names if switched on."""
    return [message(_maxwell(event, position), event, _maxwell_key(event)) for event in history.events]


def _nested(column: Column, text: str) -> Any:
    """As `plain`, and JSON documents as members of the message."""
    return bare(text) if column.logical == "json" else plain(column, text)


def sent_document(text: str) -> str | None:
    """What is left of a JSON document: its spaces are not, and null is no value as in any other column."""
    return None if text == "null" else text.replace(", ", ",").replace(": ", ":")


def _maxwell(event: Event, position: bool) -> dict[str, Any]:
    frame: dict[str, Any] = {
        "database": event.database,
        "table": event.table,
        "ts": event.second,
        "xid": 7000 + event.number,
    }
    if event.sql:
        return frame | {"type": "table-alter", "ts": event.time, "sql": event.sql} | _place(event, position)
    kind = "bootstrap-insert" if event.kind == "read" else event.kind
    frame |= {"type": kind, "data": cells(event, event.row, _nested)}
    if event.kind != "read":
        frame |= {"commit": True} | _place(event, position)
    return frame | ({"old": cells(event, changed(event), _nested)} if event.kind == "update" else {})


def _place(event: Event, position: bool) -> dict[str, Any]:
    return {"position": f"mysql-bin.{999_998 + event.number}:{1000 - event.number}"} if position else {}


def _maxwell_key(event: Event) -> dict[str, Any]:
    return {
        "database": event.database,
        "table": event.table,
        **{f"pk.{name}": event.row.get(name) for name in event.keys},
    }


# --- GoldenGate ---------------------------------------------------------------------------------


def goldengate(history: History, *, compressed: bool) -> list[Message]:
    """Both images, or of an update only keys and what changed, with marks for what is missing."""
    rows = [event for event in history.events if event.kind != "alter"]
    return [message(_goldengate(event, compressed), event) for event in rows]


def _goldengate(event: Event, compressed: bool) -> dict[str, Any]:
    kind = "I" if event.kind == "read" else event.kind[0].upper()
    frame: dict[str, Any] = {
        "table": f"{event.database}.{event.table}",
        "op_type": kind,
        "op_ts": clock(event.time),
        "current_ts": clock(event.time + 40),
        "pos": f"{event.number // 4:010d}{500 + event.number % 4:010d}",
    }
    if event.kind == "truncate":
        return frame
    frame["primary_keys"] = list(event.keys)
    before, after = event.before, event.after
    if compressed and before and after:
        names = {*event.keys, *changed(event)}
        before, after = _only(before, names), _only(after, names)
    if before:
        frame["before"] = cells(event, before, plain)
    if after:
        frame["after"] = (cells(event, after, plain) or {}) | _marks(event, after)
    return frame


def _only(row: Image, names: set[str]) -> Image:
    return {name: value for name, value in row.items() if name in names}


def _marks(event: Event, after: Image) -> dict[str, bool]:
    """Every second message marks what it lacks."""
    return {f"{c}_isMissing": c not in after for c in event.columns} if event.number % 2 else {}


# --- DMS ----------------------------------------------------------------------------------------


def dms(history: History, *, position: bool, prefixed: bool) -> list[Message]:
    """``data`` and ``metadata``; the row before next to the row, or in it under a prefix."""
    found = [event for event in history.events if event.row or event.kind in _CONTROL]
    return [message(_dms(event, position, prefixed), event) for event in found]


_CONTROL = {"truncate": "truncate-table", "drop": "drop-table", "create": "create-table"}
_DMS_TYPES = {"int32": "INT32", "int64": "INT64", "date": "DATE", "string": "STRING"}


def _structure(event: Event) -> dict[str, Any]:
    """The part of a control message that describes a table."""
    if event.kind != "create":
        return {}
    columns: dict[str, Any] = {}
    for name, column in event.shape.items():
        columns[name] = {"type": _DMS_TYPES.get(column.logical, "STRING")}
        if column.logical.startswith("decimal"):
            precision, scale = map(int, column.logical[8:-1].split(","))
            columns[name] = {"type": "NUMERIC", "precision": precision, "scale": scale}
    return {"table-def": {"columns": columns, "primary-key": list(event.keys)}}


def _dms(event: Event, position: bool, prefixed: bool) -> dict[str, Any]:
    control = not event.row
    meta = {
        "timestamp": clock(event.time).replace(" ", "T") + "Z",
        "record-type": "control" if control else "data",
        "operation": {"read": "load", **_CONTROL}.get(event.kind, event.kind),
        "partition-key-type": "task-id",
        "schema-name": event.database,
        "table-name": event.table,
    }
    if position and event.kind != "read":
        meta["stream-position"] = f"{event.number:08X}/{4096 - event.number:08X}.1.0"
    if control:
        return {"control": _structure(event), "metadata": meta}
    data = cells(event, event.row, _dms_cell) or {}
    former = cells(event, event.before, _dms_cell) if event.kind == "update" else None
    if former and prefixed:
        return {"data": data | {f"BI_{name}": value for name, value in former.items()}, "metadata": meta}
    return {"data": data, "metadata": meta} | ({"before-image": former} if former else {})


def _dms_cell(column: Column, text: str) -> Any:
    """As others, but bytes are hexadecimal digits after ``0x``."""
    return f"0x{bytes_of(text).hex().upper()}" if column.logical == "binary" else plain(column, text)


# --- rows read from the source itself -------------------------------------------------------------


def snapshot(history: History) -> list[Message]:
    """Each row at its place; a key that goes is a row that the source does not have."""
    return [
        message(frame, event)
        for event in history.events
        for frame in _snapshot(event)
    ]  # fmt: skip


def _snapshot(event: Event) -> Iterator[dict[str, Any]]:
    before, after = event.before, event.after
    if event.kind == "truncate":
        yield _read_frame(event, "end", 0)
    if before and (after is None or any(before[name] != after[name] for name in event.keys)):
        yield _read_frame(event, "delete", 0) | _rows(event, {name: before[name] for name in event.keys})
    if after:
        yield _read_frame(event, "read", 1) | _rows(event, after)


def _read_frame(event: Event, op: str, half: int) -> dict[str, Any]:
    place = {"phase": "1", "sequence": ["7", str(event.number)], "half": str(half), "arrival": ["3", "1"]}
    return {
        "ingest-snapshot": 1,
        "op": op,
        "table": [event.database, None, event.table],
        "keys": list(event.keys),
        "place": place,
        "time": clock(event.time).replace(" ", "T") + "Z",
    }


def _rows(event: Event, row: Image) -> dict[str, Any]:
    return {"types": {name: event.shape[name].logical for name in row}, "rows": [list(row.values())]}


UNTYPED = pipeline_hints(TYPES)
DIALECTS = {
    "maxwell": Dialect("maxwell", partial(maxwell, position=False), pipeline_hints(TYPES, keys=False)),
    "maxwell with position": Dialect(
        "maxwell", partial(maxwell, position=True), pipeline_hints(TYPES, keys=False)
    ),
    "ogg": Dialect("ogg", partial(goldengate, compressed=False), pipeline_hints(TYPES, keys=False)),
    "ogg compressed": Dialect("ogg", partial(goldengate, compressed=True), pipeline_hints(TYPES, keys=False)),
    "dms": Dialect("dms", partial(dms, position=False, prefixed=False), UNTYPED),
    "ingest-snapshot": Dialect("ingest-snapshot", snapshot),
    "dms with position": Dialect("dms", partial(dms, position=True, prefixed=True), UNTYPED),
}
