"""What bronze says of itself before anything is decoded: how many messages landed, and which are replays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column
from pyspark.sql import functions as F

from ingest.lake.lake import Lake
from ingest.lake.rejects import REPLAY
from ingest.lake.schemas import BRONZE
from ingest.silver.replay import Moved, replayed_batch


@dataclass(frozen=True, slots=True)
class Told:
    """Bronze's own counts."""

    landed: dict[tuple[int, str], int] = field(default_factory=dict)  # (batch, source) -> messages
    moved: list[Moved] = field(default_factory=list)  # all replays of the lake, summed up


def told_by(value: Column) -> Column:
    """How many messages a receipt says were landed with it."""
    return F.get_json_object(value.cast("string"), "$.count").cast("bigint")


def told(lake: Lake, batches: Sequence[int]) -> Told:
    """The receipts of some batches and all replays, in one read."""
    wanted = F.col("batch").between(batches[0], batches[-1])
    where = ("source", "topic", "partition")
    replays = F.col("kind") == REPLAY
    rows = (
        lake.read(BRONZE.name)
        .where(replays | ((F.col("kind") == "receipt") & wanted))
        .groupBy("kind", "batch", replayed_batch().alias("old"), *where)
        .agg(
            F.count("*").alias("rows"),
            F.sum(told_by(F.col("value"))).alias("count"),
        )
        .collect()
    )
    found = Told()
    for row in rows:
        if row["kind"] == REPLAY:
            source, topic, partition = (row[name] for name in where)
            found.moved.append(Moved(row["batch"], row["old"], source, topic, partition, row["rows"]))
        else:
            place = (row["batch"], row["source"])
            found.landed[place] = found.landed.get(place, 0) + (row["count"] or 0)
    return found
