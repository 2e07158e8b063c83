"""Which tables of a source are to be compared with its database again, and which should have been long ago."""

from __future__ import annotations

import datetime as dt
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from ingest.change import TableId
from ingest.config import Source, target
from ingest.errors import counted
from ingest.ledgers import mirrors, schedules, targets
from ingest.ledgers.decisions import INCOMPARABLE
from ingest.quality.catalogue import RECONCILED, WARN, duration
from ingest.tables import duck
from ingest.tables.tables import Row, Tables

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
    # the last comparison of any of them, before the first one its first rows, or when a run first saw the schedule if that
    # was later; in UTC without a zone
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
    scheduled = [source for source in lake.pipeline.sources if schedules.every(source)]
    if not scheduled:
        return
    from ingest.source.reconcile import filled, is_comparable, tables_of  # few pipelines have a database

    now = dt.datetime.now(dt.UTC).replace(tzinfo=None)
    compared = _begun(lake) | {name: row["checked_at"] for name, row in _last(lake).items()}
    views = targets.views(lake)
    fills = cache(lambda place: filled(views[place]))  # asked for if a mirror is late
    for source in scheduled:
        every, seen = schedules.every(source) or 0.0, schedules.since(lake, source)
        if seen is None:
            continue
        latest, tables = now - dt.timedelta(seconds=PATIENCE * every), tables_of(lake, source)
        times = {
            name: max(compared[name], seen)
            for place, view in enumerate(views)
            for table, name in _named(view, tables)
            if name in compared and name not in gone and max(compared[name], seen) < latest
            if is_comparable(view, source, table, fills(place))
        }
        if times:
            yield OverdueComparisons(source.name, every, tuple(times), min(times.values()))


def _named(view: Tables, tables: Sequence[TableId]) -> Iterator[tuple[TableId, str]]:
    """The tables that a view of the lake does not exclude, with the names of their mirrors."""
    rules = ((table, view.pipeline.rule(table)) for table in tables)
    return ((table, str(target(rule, table))) for table, rule in rules if not rule.exclude)


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
    """The outcome of each mirror's last comparison, also of one that was refused."""
    rows = lake.ask(
        f"""SELECT mirror, state, checked_at FROM {{checks}} WHERE "check" = {duck.text(RECONCILED)}
        QUALIFY row_number() OVER (PARTITION BY mirror ORDER BY checked_at DESC) = 1"""
    )
    last = {row["mirror"]: row for row in rows}
    for name, moment in schedules.refused(lake).items():
        if name not in last or last[name]["checked_at"] < moment:
            last[name] = {"mirror": name, "state": INCOMPARABLE, "checked_at": moment}
    return last
