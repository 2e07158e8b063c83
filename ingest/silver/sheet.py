"""Rows of ``changes`` as Arrow columns, one column after the other.

A row of twenty-two values made one by one costs more than decoding its message.  So what is the same
in all rows is repeated by Arrow, what stands in bronze is taken from its own columns, and the rest is
one list per column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa

from ingest.change import Change, Op, number_key

SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("batch", pa.int64()),
        ("source", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("row", pa.int32()),
        ("op", pa.string()),
        ("database", pa.string()),
        ("schema", pa.string()),
        ("table", pa.string()),
        ("order_key", pa.string()),
        ("sequence", pa.string()),
        ("event_time", pa.timestamp("us", tz="UTC")),
        ("transaction", pa.string()),
        ("keys", pa.string()),
        ("before", pa.string()),
        ("after", pa.string()),
        ("types", pa.string()),
        ("partial", pa.bool_()),
        ("note", pa.string()),
        ("payload", pa.string()),
    ]
)
"""The columns of ``changes``, in their order."""

_FROM_BRONZE = ("topic", "partition", "offset")
_json = msgspec.json.encode
small_key = lru_cache(maxsize=4096)(number_key)
"""`number_key` for the numbers that recur: phases, halves, rows."""


def changes(
    source: str,
    bronze: pa.RecordBatch,
    batch: pa.Array,
    at: Sequence[int],
    rows: Sequence[Change],
    orders: Sequence[str],
    payload: Any,
) -> pa.RecordBatch:
    """Changes and DDL events as rows; ``at`` is the bronze row of each.

    Raises:
        Exception: a text that cannot be written, or a number past its column; of any row.
    """
    places = pa.array(at, pa.int32())
    statements = [change.op is Op.DDL for change in rows]
    tables = [change.table for change in rows]
    columns = {
        "kind": _kinds(statements),
        "batch": batch.take(places),
        "source": source,
        **{name: bronze.column(name).take(places) for name in _FROM_BRONZE},
        "row": [change.row for change in rows],
        "op": [change.op for change in rows],
        "database": [table[0] for table in tables],
        "schema": [table[1] for table in tables],
        "table": [table[2] for table in tables],
        "order_key": orders,
        "sequence": [change.position for change in rows],
        "event_time": [change.event_time for change in rows],
        "transaction": [change.transaction for change in rows],
        "keys": _shared([change.keys for change in rows]),
        "before": [None if change.before is None else _json(change.before) for change in rows],
        "after": [None if change.after is None else _json(change.after) for change in rows],
        "types": _shared([change.types for change in rows]),
        "partial": [change.partial for change in rows],
        "note": [change.note for change in rows],
        "payload": [payload(row) if row.op is Op.DDL else None for row in rows] if any(statements) else None,
    }
    return _record_batch(columns, len(rows))


def rejects(
    source: str, bronze: pa.RecordBatch, batch: pa.Array, at: Sequence[int], payloads: Sequence[str]
) -> pa.RecordBatch:
    """One row for each message that could not be decoded."""
    places = pa.array(at, pa.int32())
    columns = {name: bronze.column(name).take(places) for name in _FROM_BRONZE}
    columns |= {"kind": "reject", "batch": batch.take(places), "source": source, "row": [0] * len(at)}
    return _record_batch(columns | {"payload": payloads}, len(at))


def books(source: str, batches: Sequence[int], payloads: Sequence[str]) -> pa.RecordBatch:
    """One row for each book line."""
    columns = {"kind": "book", "batch": batches, "source": source, "payload": payloads}
    return _record_batch(columns, len(payloads))


def order_keys(
    rows: Iterable[Change], at: Iterable[int], arrivals: Sequence[str], epoch: str, order_by: str
) -> list[str]:
    """Each row's place in history, as `ingest.change.order_key` writes it.

    Args:
        rows: the changes.
        at: the bronze row of each.
        arrivals: the written arrival of each bronze row.
        epoch: the written epoch of the source's sequence.
        order_by: ``sequence``, ``arrival`` or ``event_time``.
    """
    return [
        f"{epoch}{small_key(change.phase)}{_sequence(change, order_by)}!"
        f"{small_key(change.half)}{arrivals[place]}!{small_key(change.row)}"
        for change, place in zip(rows, at, strict=True)
    ]


def _sequence(change: Change, order_by: str) -> str:
    if order_by != "sequence":
        return "" if order_by == "arrival" else number_key(change.event_time or 0)
    numbers = change.sequence
    return number_key(numbers[0]) if len(numbers) == 1 else "".join(map(number_key, numbers))


def listed(column: pa.Array) -> list[Any]:
    """A column's values as a list: by way of numpy, five times as fast where nothing speaks against it."""
    if column.null_count == len(column):
        return [None] * len(column)
    if (column.null_count and not pa.types.is_binary(column.type)) or pa.types.is_nested(column.type):
        return list(column.to_pylist())
    return list(column.to_numpy(zero_copy_only=False).tolist())


def _kinds(statements: list[bool]) -> str | list[str]:
    return ["ddl" if each else "change" for each in statements] if any(statements) else "change"


def _shared(values: list[Any]) -> list[bytes | None]:
    """JSON of values that parsers share between rows, written once for each; nothing for empty ones.

    The list holds every value, so that no two of them can have one identity.
    """
    written: dict[int, bytes | None] = {
        id(value): _json(value) if value else None for value in _distinct(values)
    }
    return [written[id(value)] for value in values]


def _distinct(values: list[Any]) -> Iterable[Any]:
    return {id(value): value for value in values}.values()


def _record_batch(columns: dict[str, Any], count: int) -> pa.RecordBatch:
    arrays = [_array(columns.get(field.name), field.type, count) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _array(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    """A column from an Arrow array, a list, one value that all rows share, or nothing."""
    if value is None:
        return pa.nulls(count, kind)
    if isinstance(value, str):
        return pa.repeat(pa.scalar(value, kind), count)
    if isinstance(value, pa.Array):
        return value if value.type == kind else value.cast(kind)
    return pa.array(value, kind)
