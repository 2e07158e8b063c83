"""Which tables of a source are to be compared with its database again, and which should have been long ago."""

from __future__ import annotations

import datetime as dt
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ingest.change import TableId
from ingest.config import Source
from ingest.errors import counted
from ingest.lake import duck, mirrors
from ingest.lake.decoded_with import edited_at
from ingest.lake.tables import Row, Tables
from ingest.quality.catalogue import RECONCILED, WARN, duration

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


PATIENCE = 2  # times `reconcile_every:` after which a comparison is overdue, not only due


@dataclass(frozen=True, slots=True)
class OverdueComparisons:
    """Mirrors of one source whose scheduled comparison has failed, or was not begun, for too long."""

    source: str
    every: float  # seconds
    mirrors: tuple[str, ...]
    # the last comparison of any of them; before the first one its first rows, or when the file was written last, which may
    # be when it got the schedule; in UTC without a zone
    since: dt.datetime

    @property
    def sentence(self) -> str:
        """What is wrong."""
        several = counted(len(self.mirrors), "mirror was", "mirrors were")
        which = (
            f"{several}, {self.mirrors[0]} among them," if len(self.mirrors) > 1 else f"{self.mirrors[0]} was"
        )
        return (
            f"{which} not compared with the database of source {self.source} since {self.since:%Y-%m-%d %H:%M}, although "
            f"`reconcile_every:` asks for it every {duration(self.every)}"
        )


def overdue(lake: Tables, gone: Container[str] = ()) -> Iterator[OverdueComparisons]:
    """The sources whose comparisons are overdue; tables that are ``gone`` from them cannot be compared."""
    scheduled = [
        each
        for each in lake.pipeline.sources
        if each.enabled and each.database and each.database.reconcile_every
    ]
    if not scheduled:
        return
    from ingest.source.reconcile import (
        comparable_views,
        mirror_of,
        tables_of,
    )  # few pipelines have a database

    last, now = _last(lake), dt.datetime.now(dt.UTC).replace(tzinfo=None)
    begun = _begun(lake)
    if (edited := edited_at(lake.pipeline)) and edited <= now:
        begun = {name: max(moment, edited) for name, moment in begun.items()}
    for source in scheduled:
        every = (source.database.reconcile_every if source.database else None) or 0.0
        times: dict[str, dt.datetime] = {}
        for table in tables_of(lake, source):
            for view in comparable_views(lake, source, table):
                name = mirror_of(view, source, table).name
                compared = last[name]["checked_at"] if name in last else begun.get(name)
                if compared and name not in gone and compared + dt.timedelta(seconds=PATIENCE * every) < now:
                    times[name] = compared
        if times:
            yield OverdueComparisons(source.name, every, tuple(times), min(times.values()))


def _begun(lake: Tables) -> dict[str, dt.datetime]:
    """When each mirror was folded for the first time."""
    rows = lake.ask(
        "SELECT subject, min(started_at) AS moment FROM {runs} WHERE stage = 'gold' AND subject IS NOT NULL GROUP BY subject"
    )
    return {row["subject"]: row["moment"] for row in rows}


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
