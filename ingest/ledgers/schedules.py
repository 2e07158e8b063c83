"""How often mirrors are to be compared with their source's database, and since when, from the ledger of decisions.

A run notes each `reconcile_every:` that it sees for the first time. The time of the pipeline file would say nothing:
whatever deploys a file may write it each day.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from ingest.config import Source
from ingest.ledgers import decisions
from ingest.ledgers.decisions import INCOMPARABLE, SCHEDULE, Decision
from ingest.tables.schemas import DECISIONS
from ingest.tables.tables import Tables

if TYPE_CHECKING:
    from ingest.tables.lake import Lake

_EVERY = "every"


def every(source: Source) -> float | None:
    """Seconds between two comparisons of a source's mirrors; None without a schedule."""
    return source.database.reconcile_every if source.enabled and source.database else None


def note(lake: Lake) -> None:
    """Keep which schedules are new, or others, in a lake that has mirrors."""
    if not (
        lake.snapshot(DECISIONS.name).exists and any(source.database for source in lake.pipeline.sources)
    ):
        return
    newest = decisions.read(lake).newest(SCHEDULE)
    noted = {name: decision.value.get(_EVERY) for name, decision in newest.items()}
    decisions.append(
        lake,
        [
            Decision(SCHEDULE, source.name, {_EVERY: every(source)})
            for source in lake.pipeline.sources
            if noted.get(source.name) != every(source)
        ],
    )


def since(lake: Tables, source: Source) -> dt.datetime | None:
    """When a run first saw a source's schedule as it is now, in UTC without a zone; None if none has yet."""
    noted = decisions.read(lake).newest(SCHEDULE).get(source.name)
    return noted.decided_at if noted and noted.value.get(_EVERY) == every(source) else None


def refuse(lake: Tables, mirror: str, reason: str) -> None:
    """Keep that a mirror cannot be compared.

    Raises:
        IngestError: the store does not take it.
    """
    decisions.append_alone(lake, Decision(INCOMPARABLE, mirror, reason=reason))


def refused(lake: Tables) -> dict[str, dt.datetime]:
    """When each mirror was last found to be one that cannot be compared, in UTC without a zone."""
    newest = decisions.read(lake).newest(INCOMPARABLE)
    return {name: decision.decided_at for name, decision in newest.items() if decision.decided_at}
