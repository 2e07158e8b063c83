"""Pauses: mirrors that a person told to wait. Their changes stay in silver, and they catch up later."""

from __future__ import annotations

from pyspark.sql import functions as F

from ingest.lake.lake import Lake
from ingest.lake.mirrors import Mirror
from ingest.lake.schemas import DECISIONS

PAUSE, RESUME = "pause", "resume"


def paused(lake: Lake) -> frozenset[str]:
    """The paths of the mirrors whose last word is a pause."""
    if not lake.exists(DECISIONS.name):
        return frozenset()
    rows = (
        lake.read(DECISIONS.name)
        .where(F.col("kind").isin(PAUSE, RESUME))
        .groupBy("subject")
        .agg(F.max_by("kind", "decided_at").alias("kind"))
        .collect()
    )
    return frozenset(row["subject"] for row in rows if row["kind"] == PAUSE)


def decide(lake: Lake, mirror: Mirror, kind: str, reason: str) -> None:
    """Write down a pause or its end."""
    row = (lake.now(), kind, mirror.path, None, None, reason, lake.run)
    lake.append_unguarded([row], DECISIONS)
