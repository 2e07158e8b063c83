"""What captures of PostgreSQL send: Debezium, whose log has no statements, and those that print these themselves."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from tests.formats.one_history import bare_avro, canal, debezium
from tests.formats.one_history.history import Column, Event, bytes_of
from tests.formats.one_history.writing import Dialect, Loss


def by_debezium(column: Column, text: str) -> str | None:
    """What is left of a value: NaN in a NUMERIC without digits is none, spans and arrays have a form of their own."""
    if column.declared.endswith("[]"):
        return json.dumps(debezium.array(column, text), separators=(",", ":"))
    if column.declared == "interval":
        return debezium.INTERVALS[text]
    return None if text == "NaN" and column.logical == "decimal" else text


def by_huawei(column: Column, text: str) -> Any:
    """DRS of PostgreSQL: each value as the server prints it, in a session of UTC."""
    if column.declared == "bytea":
        return "\\x" + bytes_of(text).hex()
    if column.declared == "boolean":
        return text[0]
    return text.replace("T", " ").replace("Z", "+00") if column.logical.startswith("timestamp") else text


def second_shape(event: Event, frame: dict[str, Any]) -> dict[str, Any]:
    """DRS of databases with schemas ("Kafka message format"): ``columnType``, ``dbType``, ``schema`` and ``opType``."""
    types = frame.pop("mysqlType")
    names = {name: _NAMES.get(canal.base(kind), canal.base(kind)) for name, kind in (types or {}).items()}
    return frame | {
        "columnType": names or None, "dbType": "PostgreSQL", "database": event.within, "schema": event.database,
        "opType": frame["type"],
    }  # fmt: skip


_NAMES = {"varchar": "character varying", "char": "character"}


POSTGRES = {
    "debezium with schema": Dialect(
        "debezium", partial(debezium.wrapped, cell=debezium.connect, schema=True)
    ),
    "dts-avro": Dialect("dts-avro", partial(bare_avro.dts, born=True)),
    "drs-json": Dialect(
        "drs-json",
        partial(
            canal.write,
            cell=by_huawei,
            rows=partial(canal.full_old, deleted_in_old=True),
            shaped=second_shape,
        ),
    ),
}
"""Dialects of a PostgreSQL source."""
LOST: dict[str, Loss] = {"debezium with schema": Loss(statements=True, view=by_debezium)}
"""What they cannot say."""
