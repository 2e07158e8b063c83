"""What people decided of logged DDL statements: gold acts on it, the checks report it."""

from __future__ import annotations

import hashlib
import json

from pyspark.sql import functions as F

from ingest.lake.lake import Lake
from ingest.lake.schemas import DECISIONS

APPROVE, DISMISS = "approve", "dismiss"


def statement_id(*position: object) -> str:
    """A short name for a statement from its message's position, the same after every rebuild."""
    return hashlib.sha256(json.dumps(position).encode()).hexdigest()[:8]


def decided(lake: Lake) -> dict[str, str]:
    """What was decided of statements, by their ids; the last word counts."""
    if not lake.exists(DECISIONS.name):
        return {}
    rows = (
        lake.read(DECISIONS.name)
        .where(F.col("kind").isin(APPROVE, DISMISS))
        .select("decided_at", "kind", F.get_json_object("value", "$.statement").alias("statement"))
        .collect()
    )
    in_order = sorted(rows, key=lambda row: row["decided_at"])
    return {row["statement"]: row["kind"] for row in in_order if row["statement"]}
