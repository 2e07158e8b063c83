"""Write rows of ``changes`` as Arrow columns, one column after the other.

Building a row of twenty-two values one by one costs more than decoding its message. So Arrow repeats values that are
equal in all rows, values from bronze are taken from its columns, and the rest is one list per column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from ingest.change import Change, ChangeColumns, Op
from ingest.tables.schemas import CHANGES

SCHEMA = CHANGES.arrow
_FROM_BRONZE = ("topic", "partition", "offset")
_DDL = Op.DDL  # looked up in the enum it costs 0.1 us each time
_json = msgspec.json.encode


def of_changes(
    source: str,
    bronze: pa.RecordBatch,
    batch: pa.Array,
    message_rows: Sequence[int],
    rows: Sequence[Change],
    orders: Sequence[str],
    payload: Any,
) -> pa.RecordBatch:
    """Changes and DDL events as rows, ``message_rows`` the bronze row of each; any exception: a value cannot be written."""
    places = pa.array(message_rows, pa.int32())
    ops = [change.op for change in rows]
    tables = [change.table for change in rows]
    has_statements = _DDL in ops
    columns = {
        "kind": ["ddl" if op is _DDL else "change" for op in ops] if has_statements else "change",
        "batch": batch.take(places),
        "source": source,
        **{name: bronze.column(name).take(places) for name in _FROM_BRONZE},
        "row": [change.row for change in rows],
        "op": ops,
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
        "payload": [payload(row) if row.op is _DDL else None for row in rows] if has_statements else None,
    }
    return _record_batch(columns, len(rows))


def of_columns(
    source: str, bronze: pa.RecordBatch, batch: pa.Array, changes: ChangeColumns, orders: Sequence[str]
) -> pa.RecordBatch:
    """The same of changes as columns; bronze's rows are their messages."""
    places = pa.array(changes.at, pa.int32())
    shape = pa.array(changes.shape, pa.int32())
    tables = [shape.table for shape in changes.shapes]
    shared = {
        "database": [table.database for table in tables],
        "schema": [table.schema for table in tables],
        "table": [table.table for table in tables],
        "keys": _shared([shape.keys for shape in changes.shapes]),
        "types": _shared([shape.types for shape in changes.shapes]),
        "note": [shape.note for shape in changes.shapes],
    }
    columns = {
        "kind": "change",
        "batch": batch.take(places),
        "source": source,
        **{name: bronze.column(name).take(places) for name in _FROM_BRONZE},
        "row": changes.row,
        "op": changes.op,
        "order_key": orders,
        "sequence": changes.position,
        "event_time": changes.event_time,
        "transaction": changes.transaction,
        "before": changes.before,
        "after": changes.after,
        "partial": pa.repeat(pa.scalar(False), len(orders)),
        **{name: pa.array(values, SCHEMA.field(name).type).take(shape) for name, values in shared.items()},
    }
    return _record_batch(columns, len(orders))


def of_rejects(
    source: str, bronze: pa.RecordBatch, batch: pa.Array, message_rows: Sequence[int], payloads: Sequence[str]
) -> pa.RecordBatch:
    """One row for each message that could not be decoded."""
    places = pa.array(message_rows, pa.int32())
    columns = {name: bronze.column(name).take(places) for name in _FROM_BRONZE}
    columns |= {
        "kind": "reject",
        "batch": batch.take(places),
        "source": source,
        "row": [0] * len(message_rows),
    }
    return _record_batch(columns | {"payload": payloads}, len(message_rows))


def of_book_lines(source: str, batches: Sequence[int], payloads: Sequence[str]) -> pa.RecordBatch:
    """One row for each book line."""
    columns = {"kind": "book", "batch": batches, "source": source, "payload": payloads}
    return _record_batch(columns, len(payloads))


def _shared(values: list[Any]) -> list[bytes | None]:
    """JSON of values that parsers share between rows, serialized once each; empty ones give nothing.

    The list keeps every value alive, so that no two of them can have the same identity.
    """
    marks = list(map(id, values))
    distinct = dict(zip(marks, values, strict=True))
    written = {mark: _json(value) if value else None for mark, value in distinct.items()}
    return list(map(written.__getitem__, marks))


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
    if value and value[0] is value[-1] and value.count(value[0]) == count:
        return pa.repeat(pa.scalar(value[0], kind), count)
    return pa.array(value, kind)
