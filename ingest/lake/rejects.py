"""Rejects that still wait: neither decoded later by a replay nor dismissed by a person."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.lake.lake import Lake
from ingest.lake.schemas import BRONZE, DECISIONS, REJECTS

DISMISSED = "dismiss-reject"
REPLAY = "replay"  # bronze's kind of a row that says: decode these old bytes in this batch
PLACE = ("source", "topic", "partition", "offset")


def still_open(lake: Lake) -> DataFrame | None:
    """The open rows of ``rejects``; None if the table is not there.

    A replayed message is told by bronze itself, so that the mark and the replay are one commit.
    """
    if not lake.exists(REJECTS.name):
        return None
    found = lake.read(REJECTS.name)
    if lake.exists(BRONZE.name):
        replayed = lake.read(BRONZE.name).where(F.col("kind") == REPLAY).select(*PLACE).distinct()
        messages = found.where(F.col("kind") == "message").join(
            F.broadcast(replayed), list(PLACE), "left_anti"
        )
        found = messages.unionByName(found.where(F.col("kind") != "message"))
    if not lake.exists(DECISIONS.name):
        return found
    dismissed = (
        lake.read(DECISIONS.name)
        .where(F.col("kind") == DISMISSED)
        .select(F.col("subject").alias("_name"))
        .distinct()
    )
    return found.join(F.broadcast(dismissed), name_of() == F.col("_name"), "left_anti")


def name_of() -> Any:
    """What a reject is called in decisions: its bytes' place, or its table, key and column."""
    parts = ("kind", *PLACE, "database", "schema", "table", "key", "column")
    return F.to_json(F.struct(*[F.col(f"`{part}`") for part in parts]))


def dismissal(lake: Lake, rows: Sequence[dict[str, Any]], reason: str) -> list[tuple[object, ...]]:
    """Rows of `decisions` that close rejects, given with the name that `name_of` gives them as ``name``."""
    now = lake.now()
    return [
        (now, DISMISSED, row["name"], row["batch"], json.dumps({"reason": row["reason"]}), reason, lake.run)
        for row in rows
    ]
