"""How writers of JSON put a message into bytes: bare numbers to the digit, and sometimes escapes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from ingest.change import Hints, Image, Message, Options, TableHints, TableId
from tests.formats.one_history.history import DATABASE, KEYS, TABLE, Column, Event, History

Cell = Callable[[Column, str], Any]
"""One value: its column and its canonical text to what the message contains."""


View = Callable[[str], str | None]
"""What a dialect leaves of a value."""


class Dialect(NamedTuple):
    """One writer: its format, the messages that it makes of a history, and what its pipeline file must say.

    Args:
        format: the format's name.
        write: the messages of a history, in the source's order.
        hints: what the pipeline file says, for messages that do not say it.
    """

    format: str
    write: Callable[[History], list[Message]]
    hints: Hints = Hints()


class Loss(NamedTuple):
    """What a dialect cannot say.

    Args:
        order: True if only the order of arrival gives the order.
        truncates: True if it does not send a TRUNCATE.
        statements: True if it does not send DDL.
        once: True if a message sent again may do harm: a changed key takes along what was not sent, and only
            a place of its own shows that it did so before.
        views: by column, what is left of a value.
        view: the same by what a column is.
    """

    order: bool = False
    truncates: bool = False
    statements: bool = False
    once: bool = False
    views: Mapping[str, View] = {}
    view: Callable[[Column, str], str | None] = lambda _column, text: text


def bare(text: str) -> msgspec.Raw:
    """A number exactly as it is written."""
    return msgspec.Raw(text.encode())


def message(value: Any, event: Event, key: Any = None, **parts: Any) -> Message:
    """A message; every third writes all that is not ASCII as escapes."""
    text = msgspec.json.encode(value).decode()
    if event.number % 3 == 0:
        text = re.sub(r"[^\x00-\x7f]+", lambda found: json.dumps(found[0])[1:-1], text)
    return Message(text.encode(), None if key is None else msgspec.json.encode(key), **parts)


def cells(event: Event, row: Image | None, cell: Cell) -> dict[str, Any] | None:
    """An image of an event with each value in the dialect's form."""
    if row is None:
        return None
    shape = event.shape
    return {name: None if value is None else cell(shape[name], value) for name, value in row.items()}


def changed(event: Event) -> Image:
    """The values before the event, of the columns that it changed."""
    after = event.after or {}
    return {name: value for name, value in (event.before or {}).items() if value != after.get(name)}


def pipeline_hints(
    columns: dict[str, str] | None = None, *, table: bool = False, keys: bool = True, **options: Any
) -> Hints:
    """Hints of a pipeline file that declares keys and columns, and the table where messages name none."""
    named = (("*", TableId(DATABASE, None, TABLE)),) if table else ()
    declared = TableHints(KEYS if keys else (), columns or {})
    return Hints(Options(table=named, **options), lambda _table: declared)
