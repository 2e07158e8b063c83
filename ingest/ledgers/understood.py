"""The DDL ledger as gold and the checks understand it: what counts for rows, of which tables, and what rows announce."""

from __future__ import annotations

import sys
from collections.abc import Collection

from ingest.change import LaneId
from ingest.ledgers import lanes
from ingest.ledgers.announced import announced
from ingest.ledgers.logged_statements import COUNTING, Carried, Decided, Statement, carried, counting, decided
from ingest.ledgers.resolve import resolved
from ingest.tables.duck import name
from ingest.tables.schemas import BOOKS, CHANGES, DDL
from ingest.tables.tables import Tables

_COLUMNS = (
    "batch", "source", "topic", "partition", "offset", "row", "database", "schema", "table", "order_key",
    "statement", "class", "effects", "event_time",
)  # fmt: skip


def understood(lake: Tables, sent: Collection[LaneId], last: int = sys.maxsize) -> list[Statement]:
    """All statements that count, in order, read once for each state of silver and of the operator's decisions.

    Args:
        lake: the lake.
        sent: the source tables that have sent rows: names are in their spelling.
        last: the last batch whose statements and rows count, of those that are decoded.
    """
    last = min(last, lake.decoded())
    said, moved = decided(lake), carried(lake, last)
    logs = (lake.snapshot(schema.name) for schema in (DDL, BOOKS, CHANGES))
    versions = [(log.table_id, log.version) for log in logs]

    def read() -> list[Statement]:
        of_messages = logged(lake, said, moved, last)
        statements = resolved(of_messages, sent, lanes.sent_columns(lake), lanes.came_between(lake))
        return announced(lake, statements, said, last)

    return lake.made_once("ddl/understood", (last, frozenset(sent), said, moved, versions), read)


def logged(lake: Tables, said: Decided, moved: Carried, last: int) -> list[Statement]:
    """The statements of messages that count, in order, with the effects that their own words name."""
    columns = ", ".join(map(name, _COLUMNS))
    rows = lake.ask(f"SELECT {columns} FROM {{ddl}} WHERE {COUNTING} AND batch <= {last}")
    return counting(rows, said, moved)
