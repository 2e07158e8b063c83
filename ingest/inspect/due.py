"""Which tables of a source are to be compared with its database again, from the last outcomes in `checks`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

from ingest.change import TableId
from ingest.config import Source
from ingest.lake import duck, mirrors
from ingest.lake.tables import Row, Tables
from ingest.quality.catalogue import RECONCILED, WARN

NOW = dt.datetime.fromtimestamp(0, dt.UTC).replace(tzinfo=None)  # due since ever


def due(lake: Tables, source: Source, tables: Sequence[TableId]) -> list[TableId]:
    """Those whose last comparison is older than `reconcile_every:`, or did not judge all rows."""
    last, now = _last(lake), dt.datetime.now(dt.UTC).replace(tzinfo=None)
    return [table for table in tables if _when(lake, source, table, last) <= now]


def next_due(lake: Tables, source: Source) -> dt.datetime | None:
    """When the next table of a source is due, in UTC without a zone; None if it has no table."""
    from ingest.source.reconcile import tables_of  # few pipelines have a database

    last = _last(lake)
    return min((_when(lake, source, table, last) for table in tables_of(lake, source)), default=None)


def _when(lake: Tables, source: Source, table: TableId, last: Mapping[str, Row]) -> dt.datetime:
    names = map(str, mirrors.names(lake.pipeline, table))
    times = [last[name] for name in names if name in last]  # some further mirrors cannot be compared
    if not times or any(comparison["state"] == WARN for comparison in times):
        return NOW
    every = (source.database.reconcile_every if source.database else None) or 0.0
    compared: dt.datetime = min(comparison["checked_at"] for comparison in times)
    return compared + dt.timedelta(seconds=every)


def _last(lake: Tables) -> dict[str, Row]:
    """The outcome of each mirror's last comparison."""
    rows = lake.ask(
        f"""SELECT mirror, state, checked_at FROM {{checks}} WHERE "check" = {duck.text(RECONCILED)}
        QUALIFY row_number() OVER (PARTITION BY mirror ORDER BY checked_at DESC) = 1"""
    )
    return {row["mirror"]: row for row in rows}
