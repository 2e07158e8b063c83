"""What captures of PostgreSQL send: Debezium, whose log has no statements, and those that print these themselves."""

from __future__ import annotations

import json
from functools import partial

from tests.formats.one_history import debezium
from tests.formats.one_history.history import Column
from tests.formats.one_history.writing import Dialect, Loss


def by_debezium(column: Column, text: str) -> str | None:
    """What is left of a value: NaN in a NUMERIC without digits is none, spans and arrays have a form of their own."""
    if column.declared.endswith("[]"):
        return json.dumps(debezium.array(column, text), separators=(",", ":"))
    if column.declared == "interval":
        return debezium.INTERVALS[text]
    return None if text == "NaN" and column.logical == "decimal" else text


POSTGRES = {
    "debezium with schema": Dialect(
        "debezium", partial(debezium.wrapped, cell=debezium.connect, schema=True)
    ),
}
"""Dialects of a PostgreSQL source."""
LOST: dict[str, Loss] = {"debezium with schema": Loss(statements=True, view=by_debezium)}
"""What they cannot say."""
