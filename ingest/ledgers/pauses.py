"""Pauses: mirrors that the operator has paused. Their changes stay in silver, and the mirrors catch up later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingest.ledgers import decisions
from ingest.ledgers.decisions import PAUSE, RESUME, Decision
from ingest.ledgers.mirrors import Mirror
from ingest.tables.tables import Tables

if TYPE_CHECKING:
    from ingest.tables.lake import Lake


PAUSED = "it waits until it is resumed."


def paused(lake: Tables) -> frozenset[str]:
    """The paths of the mirrors whose last decision is a pause."""
    newest = decisions.read(lake).newest(PAUSE, RESUME)
    return frozenset(path for path, decision in newest.items() if decision.kind == PAUSE)


def decide(lake: Lake, mirror: Mirror, kind: str, reason: str, by: str = "") -> None:
    """Record a pause or its end."""
    decisions.append(lake, [Decision(kind, mirror.path, reason=reason, by=by)])
