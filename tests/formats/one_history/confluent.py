"""Confluent's Oracle CDC source connector in JSON: the ``output.*`` properties of its configuration reference."""

from __future__ import annotations

from functools import partial
from typing import Any

from ingest.change import Message
from tests.formats.one_history.history import TYPES, Event, History
from tests.formats.one_history.oms import plain
from tests.formats.one_history.writing import Dialect, Loss, cells, message, pipeline_hints

OPS = {"read": "R", "insert": "I", "update": "U", "delete": "D", "truncate": "T"}


def write(history: History, *, schema: bool, nested: bool, within: str = "ORCL.") -> list[Message]:
    """The row next to its metadata, or in a member of its own; two changes may share an scn.

    ``within`` is the name of the database before the schema's; empty in messages that name only the schema.
    """
    return [_message(event, within, schema, nested) for event in history.events if event.kind in OPS]


def _message(event: Event, within: str, schema: bool, nested: bool) -> Message:
    metadata: dict[str, Any] = {
        "table": f"{within}{event.database}.{event.table}",
        "scn": str(589_000 + event.number // 2),
        "op_type": OPS[event.kind],
        "op_ts": None if event.kind == "read" else str(event.time),
        "current_ts": str(event.time + 900),
        "row_id": None if event.kind == "read" else "AAASKgAAEAAAACHAAA",
        "username": None if event.kind == "read" else "DEPOT",
    }
    row = cells(event, event.row, plain) if event.row else None
    value = ({"row": row} if nested else row or {}) | metadata
    if event.kind == "update":
        value["before"] = cells(event, event.before, plain)
    key = {name: event.row.get(name) for name in event.keys} if event.row else None
    return message({"schema": {"type": "struct"}, "payload": value} if schema else value, event, key)


HINTS = pipeline_hints(TYPES, keys=False)
DIALECTS = {
    "confluent-oracle": Dialect("confluent-oracle", partial(write, schema=False, nested=False), HINTS),
    "confluent-oracle with schema, nested": Dialect(
        "confluent-oracle",
        partial(write, schema=True, nested=True),
        pipeline_hints(TYPES, keys=False, extra={"after_image": "row"}),
    ),
}
LOSSES = dict.fromkeys(DIALECTS, Loss(order=True, statements=True))
