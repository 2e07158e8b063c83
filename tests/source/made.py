"""A lake whose mirror was written by hand: what a comparison needs of it, without Spark."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from ingest.change import TableId
from ingest.order import Order, order_key
from ingest.store.names import mirror_path


def mirror(
    lake: Path,
    table: TableId,
    columns: Mapping[str, str],
    keys: Sequence[str],
    rows: pa.Table,
    *,
    source: str = "shop",
    reached: str = "2024-01-01T00:00:00",
    high: Order | None = None,
) -> None:
    """Make a mirror and the books and decisions that say what it is."""
    write_deltalake(str(lake / mirror_path(table)), rows, mode="overwrite")
    value = {
        "table": list(table),
        "keys": list(keys),
        "columns": [[one, one, kind] for one, kind in columns.items()],
    }
    decided = {
        "decided_at": [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)], "kind": ["schema"], "subject": [mirror_path(table)],
        "batch": [1], "value": [json.dumps(value)], "reason": [""], "by": ["run"], "number": [1],
    }  # fmt: skip
    write_deltalake(str(lake / "decisions"), pa.table(decided), mode="overwrite")
    book = {
        "batch": [1], "source": [source], "topic": ["in"], "partition": pa.array([0], pa.int32()),
        "database": pa.array([table.database], pa.string()), "schema": pa.array([table.schema], pa.string()),
        "table": [table.table], "messages": [1], "change_messages": [1], "changes": [1], "truncates": [0], "ddl": [0], "control": [0], "routed_out": [0], "rejected": [0],
        "order_high": [order_key(high or Order(0, 1, (5, 5), 0, (1, 0, 0, 0), 0))], "columns": [json.dumps(dict(columns))],
        "event_high": [dt.datetime.fromisoformat(reached).replace(tzinfo=dt.UTC)],
    }  # fmt: skip
    write_deltalake(str(lake / "books"), pa.table(book), mode="overwrite")
