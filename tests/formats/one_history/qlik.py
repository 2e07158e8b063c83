"""Qlik Replicate to Kafka: "The Replicate envelope", "Metadata and data messages"."""

from __future__ import annotations

import datetime as dt
from functools import partial
from typing import Any

from ingest.change import Message
from tests.formats.one_history.history import EPOCH, TYPES, Column, Event, History, bytes_of
from tests.formats.one_history.oms import plain
from tests.formats.one_history.writing import Dialect, Loss, cells, changed, message, pipeline_hints


def write(history: History, *, envelope: bool, masked: bool) -> list[Message]:
    """One data message for each row; where columns are masked, an update carries keys and changed columns alone."""
    return [_message(event, envelope, masked) for event in history.events if event.row]


def _message(event: Event, envelope: bool, masked: bool) -> Message:
    data, before = cells(event, event.after, _cell), cells(event, event.before, _cell)
    headers: dict[str, Any] = {"operation": "REFRESH" if event.kind == "read" else event.kind.upper()}
    if event.kind == "read":
        headers |= {"changeSequence": None, "timestamp": None, "transactionId": None}
    else:
        headers |= {
            "changeSequence": f"{_clock(event)}{event.number:019d}",
            "timestamp": _moment(event).isoformat(timespec="milliseconds"),
            "streamPosition": f"00000000.{event.number:08x}",
            "transactionId": f"{event.number // 3:032X}",
        }
    if masked and data:
        sent = {*event.keys, *changed(event)} if event.kind == "update" else {*event.columns}
        data = {name: value if name in sent else None for name, value in data.items()}
        headers["columnMask"] = _mask([name in sent for name in event.columns])
    inside = {"data": data, "beforeData": before, "headers": headers}
    if not envelope:
        return message(inside, event)
    frame = {"magic": "atMSG", "type": "DT", "headers": None, "messageSchemaId": None, "messageSchema": None}
    return message(frame | {"message": inside}, event)


def _moment(event: Event) -> dt.datetime:
    return EPOCH + dt.timedelta(milliseconds=event.time)


def _clock(event: Event) -> str:
    """Sixteen digits, to the hundredth of a second."""
    return f"{_moment(event):%Y%m%d%H%M%S%f}"[:16]


def _mask(bits: list[bool]) -> str:
    number = sum(1 << place for place, is_sent in enumerate(bits) if is_sent)
    return number.to_bytes((len(bits) + 7) // 8, "little").hex().upper()


def _cell(column: Column, text: str) -> Any:
    """As others, but bytes are hexadecimal digits and moments have a T."""
    if column.logical == "binary":
        return bytes_of(text).hex().upper()
    return text.replace(" ", "T") if column.logical.startswith("datetime") else plain(column, text)


TABLE_OF_TOPIC = pipeline_hints(TYPES, table=True)
LOSS = Loss(truncates=True, statements=True)
DIALECTS = {
    "qlik-replicate": Dialect("qlik-replicate", partial(write, envelope=True, masked=False), TABLE_OF_TOPIC),
    "qlik-replicate without envelope, masked": Dialect(
        "qlik-replicate", partial(write, envelope=False, masked=True), TABLE_OF_TOPIC
    ),
}
LOSSES = dict.fromkeys(DIALECTS, LOSS)
