"""GoldenGate's Kafka Connect Handler through Confluent's Avro converter: operation- and row-modelled records.

"Using the Kafka Connect Handler" and the Avro schemas of "Using the Pluggable Formatters", Oracle GoldenGate for Big Data.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ingest.change import Hints, Image, Message
from tests.formats.one_history.debezium import framed, registry
from tests.formats.one_history.history import TYPES, Column, Event, History, bytes_of
from tests.formats.one_history.relatives import clock
from tests.formats.one_history.writing import Dialect, Loss, changed, pipeline_hints

AVRO = {
    "int32": "int",
    "int64": "long",
    "float64": "double",
    "binary": "bytes",
    "boolean": "int",
    "bit": "long",
}
"""Of the columns that are not texts."""
METADATA = ("table", "op_type", "op_ts", "current_ts", "pos")
DECLARED = {
    name: kind
    for name, kind in TYPES.items()
    if kind not in ("int32", "int64", "float64", "binary", "string")
}


def write(history: History, *, rows: bool, marks: bool) -> list[Message]:
    """Records of all rows; updates with ``marks`` are compressed, and have a mark for each column."""
    events = [event for event in history.events if event.kind != "alter"]
    if rows:
        return [Message(_row(each)) for event in events for each in _delete_insert(event)]
    return [Message(_operation(event, marks)) for event in events]


def _delete_insert(event: Event) -> list[Event]:
    """A changed key as a delete and an insert (``pkUpdateHandling=delete-insert``), any other event as it is."""
    before, after = event.before, event.after
    if not before or not after or all(before[name] == after[name] for name in event.keys):
        return [event]
    return [event._replace(kind="delete", after=None), event._replace(kind="insert", before=None)]


def _head(event: Event) -> dict[str, Any]:
    return {
        "table": f"{event.database}.{event.table}",
        "op_type": "I" if event.kind == "read" else event.kind[0].upper(),
        "op_ts": clock(event.time),
        "current_ts": clock(event.time + 40),
        "pos": f"{event.number // 4:010d}{500 + event.number % 4:010d}",
        "primary_keys": list(event.keys),
    }


def _operation(event: Event, marks: bool) -> bytes:
    before, after = event.before, event.after
    if marks and before and after:
        names = {*event.keys, *changed(event)}
        before, after = ({n: v for n, v in image.items() if n in names} for image in (before, after))
    datum = _head(event) | {
        "before": None if before is None else _cells(event, before, marks),
        "after": None if after is None else _cells(event, after, marks),
    }
    row = {"type": "record", "name": "columns", "fields": _fields(event, marks)}
    images = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "columns"]}]
    return framed({"type": "record", "name": "OP", "fields": _metadata() + images}, datum)


def _row(event: Event) -> bytes:
    datum = _head(event) | _cells(event, event.row, False)
    schema = {"type": "record", "name": "ROW", "fields": _metadata() + _fields(event, False)}
    return framed(schema, datum)


def _metadata() -> list[dict[str, Any]]:
    keys = {"name": "primary_keys", "type": {"type": "array", "items": "string"}}
    return [{"name": name, "type": "string"} for name in METADATA] + [keys]


def _fields(event: Event, marks: bool) -> list[dict[str, Any]]:
    fields = []
    for name in event.columns:
        kind = AVRO.get(event.shape[name].logical, "string")
        fields.append({"name": name, "type": ["null", kind]})
        if marks:
            fields.append({"name": f"{name}_isMissing", "type": "boolean"})
    return fields


def _cells(event: Event, row: Image, marks: bool) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for name in event.columns:
        text = row.get(name)
        cells[name] = None if text is None else _cell(event.shape[name], text)
        if marks:
            cells[f"{name}_isMissing"] = name not in row
    return cells


def _cell(column: Column, text: str) -> Any:
    logical = column.logical
    if logical == "binary":
        return bytes_of(text)
    if logical == "boolean":
        return int(text == "true")
    if logical == "float64":
        return float(text)
    if logical in ("int32", "int64", "bit"):
        return int(text)
    moment = text.rstrip("Z").replace("T", " ")
    return moment if logical.startswith("timestamp") else text


def _hints(**options: Any) -> Hints:
    given = pipeline_hints(DECLARED, keys=False, **options)
    return Hints(given.options, given.tables, registry().__getitem__)


DIALECTS = {
    "ogg-avro": Dialect("ogg-avro", partial(write, rows=False, marks=False), _hints()),
    "ogg-avro compressed": Dialect("ogg-avro", partial(write, rows=False, marks=True), _hints()),
    "ogg-avro rows": Dialect("ogg-avro", partial(write, rows=True, marks=False), _hints(left_out="null")),
}
LOSSES = {
    "ogg-avro": Loss(statements=True),
    "ogg-avro compressed": Loss(statements=True),
    "ogg-avro rows": Loss(statements=True),
}
