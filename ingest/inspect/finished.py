"""Whether the stages have processed what has landed; `ingest.inspect.idle` also looks at what may still land."""

from __future__ import annotations

from collections.abc import Collection

from ingest.catalog import registrations
from ingest.ledgers import mirrors, targets
from ingest.tables.schemas import CHECKS, RUNS
from ingest.tables.tables import Tables


def is_finished(lake: Tables, last: int, stages: Collection[str]) -> bool:
    """True if each stage has processed everything from the stage before it."""
    if "silver" in stages and lake.decoded() < last:
        return False
    if "gold" in stages:
        marks = lake.last_marks(RUNS.name)
        if marks.get("complete") != lake.decoded() or marks.get("lagging"):
            return False
        if mirrors.outdated(lake) or mirrors.not_created_yet(lake) or targets.unfinished(lake):
            return False
        if registrations.is_due(lake):
            return False
    return "quality" not in stages or lake.last_marks(CHECKS.name).get("checked", -1) >= lake.decoded()
