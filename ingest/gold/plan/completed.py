"""How far gold is: the last batch that mirrors have folded, from `runs` and the mirrors' own logs; read without
Spark.
"""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from dataclasses import dataclass, replace

from ingest.errors import StoreError, command
from ingest.gold.plan import foreign_commits
from ingest.ledgers import histories, mirrors, whole_files
from ingest.ledgers.mirrors import Mirror
from ingest.store import faults
from ingest.tables.delta import Commit, UnreadableError, committed_at, newest_commit
from ingest.tables.schemas import BRONZE, RUNS
from ingest.tables.tables import Row, Tables

COMPLETE, LAGGING = "complete", "lagging"  # the marks that a run leaves in the log of `runs`
STAGE = "gold"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far gold is: all mirrors have folded all batches up to ``complete``, except those that lag (by path)."""

    complete: int = 0
    lagging: frozenset[str] = frozenset()

    @property
    def marks(self) -> dict[str, object]:
        """What a run leaves in the log of `runs`."""
        return {COMPLETE: self.complete, LAGGING: sorted(self.lagging)}


def complete(lake: Tables) -> int:
    """The last batch that every mirror has folded, lagging ones included; 0 before the first."""
    now = progress(lake)
    mirrors_by_path = mirrors.known(lake) if now.lagging else {}

    def last(path: str) -> int:
        try:
            return max(0, folded(lake, mirrors_by_path.get(path)))
        except Exception:  # a damaged log, for example: what it has folded is not known
            return 0

    return min([now.complete, *map(last, now.lagging)])


def folded(lake: Tables, mirror: Mirror | None, *, states: bool = False, lagging: bool = False) -> int:
    """The last batch that a mirror has folded, by its own log; -1 before the first.

    With ``states`` the table of its old states has, too, if it exists; it must exist if the mirror is ``lagging``.
    """
    if mirror is None:
        return -1
    logs = {
        path: lake.snapshot(path) for path in (mirror.path, *([histories.path_of(mirror)] if states else []))
    }
    return min(
        mirrors.folded_until(lake, replace(mirror, path=path), log)
        for path, log in logs.items()
        if path == mirror.path or lagging or log.exists
    )


@dataclass(frozen=True, slots=True)
class LostMirror:
    """A mirror that a run has folded, and whose table is gone, cannot be read, or was changed by others: why, and what to type."""

    name: str
    said: str


def lost(lake: Tables) -> list[LostMirror]:
    """The mirrors that a run with nothing to fold must fail for: nothing else would look at their tables."""
    rows = lake.ask(
        """SELECT subject FROM {runs} WHERE stage = 'gold' AND subject IS NOT NULL
        QUALIFY row_number() OVER (PARTITION BY subject ORDER BY started_at DESC, batch DESC NULLS LAST) = 1
        AND state = 'done'"""
    )
    folded_once = {row["subject"] for row in rows}
    once_folded = [mirror for mirror in mirrors.known(lake).values() if mirror.name in folded_once]
    found = {mirror.name: table for mirror in once_folded if (table := _lost(lake, mirror)) is not None}
    return [*({mirror.name: mirror for mirror in torn(lake)} | found).values()]


def torn(lake: Tables) -> list[LostMirror]:
    """The mirrors whose data files are not those that were written, as the last look has found."""
    return [
        LostMirror(each.mirror.name, f"{each.mirror.name} damaged: {each.said}")
        for each in whole_files.torn(lake)
    ]


def _lost(lake: Tables, mirror: Mirror) -> LostMirror | None:
    """A mirror, or its history table, as lost if it is not what runs have made of it."""
    for table in (mirror, *([histories.table_of(mirror)] if mirror.history else ())):
        try:
            newest = _newest_commit(lake, table)
            if newest is None and table is mirror:
                typed = command("retry", lake.pipeline.file)
                gone = f"its table {lake.path(mirror.path)} is gone: `{typed}` folds it again."
                return LostMirror(mirror.name, f"{mirror.name}: {gone}")
            if newest and (foreign := foreign_commits.newest_foreign(lake, table, *newest)):
                return LostMirror(table.name, f"{table.name} held: {foreign}")
        except Exception as error:
            return LostMirror(
                table.name, f"{table.name}: {faults.of_mirror(error, lake, table.name, table.path)}"
            )
    return None


def _newest_commit(lake: Tables, mirror: Mirror) -> Commit | None:
    """The newest commit of a mirror's table; where only Spark can read it, its version alone."""
    with suppress(StoreError, UnreadableError):
        return newest_commit(lake.path(mirror.path))
    state = lake.snapshot(mirror.path)
    return Commit(state.version, []) if state.exists else None


def alarms(lake: Tables) -> frozenset[str]:
    """The alarms of the newest run that has left a row, as far as the next one looks for them again; those of checks have
    rows of their own.
    """
    return frozenset(row["message"] for row in _alarms(lake) if row["batch"] is None)


def has_alarms_of_batch(lake: Tables) -> bool:
    """True if the newest run has alarms of its batch's messages, which no later run looks for again."""
    return any(row["batch"] is not None for row in _alarms(lake))


def _alarms(lake: Tables) -> list[Row]:
    return lake.ask(
        """SELECT message, batch FROM {runs} WHERE stage = 'alarm' AND state = 'alarm'
        AND run = (SELECT max_by(run, started_at) FROM {runs})"""
    )


def unrecorded(lake: Tables) -> int | None:
    """The last batch that has landed, if no run has recorded it: one is at work, or did not come to its end."""
    landed = lake.progress("bronze", BRONZE.name)
    [newest] = lake.ask("SELECT max(batch) AS batch FROM {runs}")
    return landed if landed > (newest["batch"] or 0) else None


def landed_at(lake: Tables, batch: int) -> dt.datetime | None:
    """When a batch was landed, by the clock of its writer, in UTC without a zone; None if bronze's log no longer has it."""
    return committed_at(lake.landing(batch))


def recorded(lake: Tables, path: str) -> int:
    """The last batch that a mirror has folded as a run has recorded it, for a mirror that cannot be read; -1 if it lags."""
    now = progress(lake)
    return -1 if path in now.lagging else now.complete


def progress(lake: Tables) -> Progress:
    """What a run has recorded last."""
    marks = lake.last_marks(RUNS.name)
    if isinstance(marks.get(COMPLETE), int):
        return Progress(marks[COMPLETE], frozenset(marks.get(LAGGING) or ()))
    recorded_runs = lake.ask(
        "SELECT max(batch) AS batch FROM {runs} WHERE stage = 'gold' AND subject IS NULL AND state = 'done'"
    )
    return Progress(recorded_runs[0]["batch"] or 0)
