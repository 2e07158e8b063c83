"""Tencent Cloud DTS: Canal JSON of its synchronization to Kafka, documents 571/60084 and 571/102285."""

from __future__ import annotations

from functools import partial
from typing import Any

from ingest.change import Message
from tests.formats.one_history import canal
from tests.formats.one_history.history import Column, Event, History, bytes_of, wall
from tests.formats.one_history.writing import Cell, Dialect, pipeline_hints


def incompatible(column: Column, text: str) -> Any:
    """The mode that is not fully compatible: bytes as hexadecimal digits, TIMESTAMP with its zone."""
    if column.logical == "binary":
        return bytes_of(text).hex()
    if column.logical.startswith("timestamp"):
        return wall(text, 0) + " +00:00"
    return canal.common(column, text)


def compatible(column: Column, text: str) -> Any:
    """The fully compatible mode: bytes and TIMESTAMP as the open-source writer sends them."""
    if column.logical == "binary":
        return bytes_of(text).decode("latin-1")
    return canal.common(column, text)


def write(history: History, *, cell: Cell) -> list[Message]:
    """Canal's flat messages with Tencent's marks."""
    return canal.write(history, cell, rows=_rows, types=canal.base, more=_marks)


def _rows(several: list[Event], cell: Cell) -> dict[str, Any]:
    return canal.new_rows(several, cell) | {"sqlType": None}


def _marks(event: Event) -> dict[str, Any]:
    return {"gtid": f"3c2d9a11-5441-11ef-9b0a-525400a1b2c3:{event.number}"}


DIALECTS = {
    "tencent-canal": Dialect("tencent-canal", partial(write, cell=incompatible), pipeline_hints(keys=False)),
    "tencent-canal fully compatible": Dialect(
        "tencent-canal",
        partial(write, cell=compatible),
        pipeline_hints(keys=False, binary="iso8859-1", timezone="Asia/Shanghai"),
    ),
}
