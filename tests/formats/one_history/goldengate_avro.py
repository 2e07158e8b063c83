"""GoldenGate's Kafka Connect Handler through Confluent's Avro converter: operation- and row-modelled records.

"Using the Kafka Connect Handler" and the Avro schemas of "Using the Pluggable Formatters", Oracle GoldenGate for Big Data.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ingest.change import Hints, Image, Message
from ingest.decoding.schema_folder import fingerprint
from tests.formats.avro_cases import wrapped
from tests.formats.one_history.debezium import framed, registered, registry
from tests.formats.one_history.history import KEYS, TYPES, Column, Event, History, bytes_of
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
LOGGED = tuple(name for name in TYPES if name not in KEYS)[:3]
"""The columns that images before have though they did not change, as those of unique and foreign keys (LOGALLSUPCOLS)."""
Frame = Callable[[dict[str, Any], Any], bytes]
"""A datum with what says which schema it has."""
METADATA = ("table", "op_type", "op_ts", "current_ts", "pos")
DECLARED = {
    name: kind
    for name, kind in TYPES.items()
    if kind not in ("int32", "int64", "float64", "binary", "string")
}


def write(
    history: History,
    *,
    rows: bool = False,
    compressed: bool = False,
    marks: bool = False,
    frame: Frame = framed,
) -> list[Message]:
    """Records of all rows; ``compressed`` updates, and without marks deletes too, lack columns that did not change.

    ``marks`` writes a mark for each column. Without them a compressed update cannot say that a column became NULL.
    """
    events = [event for event in history.events if event.kind != "alter"]
    if rows:
        return [
            Message(_row(each, frame)) for event in events for each in _delete_insert(event, _moves(event))
        ]
    if compressed and not marks:
        events = [each for event in events for each in _delete_insert(event, _becomes_null(event))]
    return [Message(_operation(event, compressed, marks, frame)) for event in events]


def in_wrapper(schema: dict[str, Any], datum: Any) -> bytes:
    """A datum in the generic wrapper of the Kafka Handler ("Using the Avro Formatter")."""
    return wrapped(datum["table"], *registered(schema, datum, fingerprint))


def _moves(event: Event) -> bool:
    before, after = event.before or {}, event.after or {}
    return any(before.get(name) != after.get(name) for name in event.keys)


def _becomes_null(event: Event) -> bool:
    after = event.after or {}
    return any(value is not None and after.get(name) is None for name, value in (event.before or {}).items())


def _delete_insert(event: Event, apart: bool) -> list[Event]:
    """An update that is to be sent ``apart`` as a delete and an insert, any other event as it is."""
    if not (apart and event.before and event.after):
        return [event]
    return [event._replace(kind="delete", after=None), event._replace(kind="insert", before=None)]


def _head(event: Event) -> dict[str, Any]:
    place = (
        500 + event.number % 4 * 2 + (event.kind == "insert")
    )  # the insert of a pair comes after its delete
    return {
        "table": f"{event.database}.{event.table}",
        "op_type": "I" if event.kind == "read" else event.kind[0].upper(),
        "op_ts": clock(event.time),
        "current_ts": clock(event.time + 40),
        "pos": f"{event.number // 4:010d}{place:010d}",
        "primary_keys": list(event.keys),
    }


def _operation(event: Event, compressed: bool, marks: bool, frame: Frame) -> bytes:
    before, after = event.before, event.after
    if compressed and before and (after or not marks):
        logged = () if marks else LOGGED
        sent = {*event.keys, *(changed(event) if after else ())}
        before = {name: value for name, value in before.items() if name in sent or name in logged}
        after = after and {name: value for name, value in after.items() if name in sent}
    datum = _head(event) | {
        "before": None if before is None else _cells(event, before, marks),
        "after": None if after is None else _cells(event, after, marks),
    }
    row = {"type": "record", "name": "columns", "fields": _fields(event, marks)}
    images = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "columns"]}]
    return frame({"type": "record", "name": "OP", "fields": _metadata() + images}, datum)


def _row(event: Event, frame: Frame) -> bytes:
    datum = _head(event) | _cells(event, event.row, False)
    schema = {"type": "record", "name": "ROW", "fields": _metadata() + _fields(event, False)}
    return frame(schema, datum)


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
    "ogg-avro": Dialect("ogg-avro", write, _hints(left_out="null")),
    "ogg-avro compressed": Dialect("ogg-avro", partial(write, compressed=True, marks=True), _hints()),
    "ogg-avro compressed without marks": Dialect(
        "ogg-avro", partial(write, compressed=True), _hints(left_out="unchanged")
    ),
    "ogg-avro wrapped": Dialect("ogg-avro", partial(write, frame=in_wrapper), _hints(left_out="null")),
    "ogg-avro rows": Dialect("ogg-avro", partial(write, rows=True), _hints(left_out="null")),
}
LOSSES = dict.fromkeys(DIALECTS, Loss(statements=True))
