"""Rejects that still wait: neither decoded later by a replay nor dismissed by the operator."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.lake import decisions
from ingest.lake.decisions import DISMISS_REJECT, Decision
from ingest.lake.lake import Lake
from ingest.lake.schemas import BRONZE, REJECTS

REPLAY = "replay"  # bronze's kind of a row that says: decode these old bytes in this batch
PLACE = ("source", "topic", "partition", "offset")
_CELL = ("database", "schema", "table", "key", "column")


def still_open(lake: Lake) -> DataFrame | None:
    """The open rows of ``rejects``; None if the table is not there.

    A replayed message is told by bronze itself, so that the mark and the replay are one commit.
    """
    if not lake.exists(REJECTS.name):
        return None
    found = lake.read(REJECTS.name)
    if lake.exists(BRONZE.name):
        replays = lake.read(BRONZE.name).where(F.col("kind") == REPLAY)
        replayed = replays.select(*PLACE, replayed_batch().alias("batch")).distinct()
        messages = found.where(F.col("kind") == "message").join(
            F.broadcast(replayed), [*PLACE, "batch"], "left_anti"
        )
        found = messages.unionByName(found.where(F.col("kind") != "message"))
    dismissed = list(decisions.read(lake).of(DISMISS_REJECT))
    return _without(lake, found, dismissed) if dismissed else found


def _without(lake: Lake, found: DataFrame, dismissed: Sequence[Decision]) -> DataFrame:
    """Rejects that are not dismissed; a dismissal by an older version names no batch, and has it beside the name."""
    names = [(one.subject, None if "batch" in json.loads(one.subject) else one.batch) for one in dismissed]
    named = F.broadcast(lake.spark.createDataFrame(names, "_name STRING, _batch BIGINT").distinct())
    here = (F.col("_batch").isNull() & (F.col("_name") == name_of())) | (
        (F.col("_batch") == F.col("batch")) & (F.col("_name") == _older_name())
    )
    return found.join(named, here, "left_anti")


def replayed_batch() -> Column:
    """Of a replay in bronze, the batch whose message it decodes again; NULL of any other row."""
    return F.get_json_object(F.col("value").cast("string"), "$.batch").cast("bigint")


def name_of() -> Column:
    """What a reject is called in decisions: its batch, its bytes' place, its table, key and column, and the text.

    The batch tells a topic or a file from an older one of the same name, whose places were the same.
    """
    return _json("kind", "batch", *PLACE, *_CELL, "raw")


def written(row: Mapping[str, Any]) -> str:
    """The name that `name_of` gives a row."""
    names = ("kind", "batch", *PLACE, *_CELL, "raw")
    return json.dumps(
        {name: row[name] for name in names if row[name] is not None},
        ensure_ascii=False,
        separators=(",", ":"),
    )


def _older_name() -> Column:
    return _json("kind", *PLACE, *_CELL)


def _json(*columns: str) -> Column:
    return F.to_json(F.struct(*[F.col(f"`{name}`") for name in columns]))


def dismiss(lake: Lake, rows: Sequence[dict[str, Any]], reason: str) -> None:
    """Close rejects, given with the name that `name_of` gives them as ``name``."""
    decisions.append(
        lake,
        [
            Decision(DISMISS_REJECT, row["name"], {"reason": row["reason"]}, row["batch"], reason)
            for row in rows
        ],
    )
