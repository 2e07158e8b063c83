"""Bronze's own counts before anything is decoded: how many messages landed, and which are replays."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column
from pyspark.sql import functions as F

from ingest.lake.lake import Lake
from ingest.lake.rejects import REPLAY
from ingest.lake.schemas import BRONZE
from ingest.silver.replay import Moved

_WANTED = BRONZE.part("batch", "source", "topic", "partition", "value")


@dataclass(frozen=True, slots=True)
class LandedCounts:
    """Bronze's own counts."""

    landed: dict[tuple[int, str], int] = field(default_factory=dict)  # (batch, source) -> messages
    moved: list[Moved] = field(default_factory=list)  # all replays of the lake, summed


def landed_with(value: Column) -> Column:
    """The number of messages that landed with a receipt."""
    return F.get_json_object(value.cast("string"), "$.count").cast("bigint")


def counts(lake: Lake, batches: Sequence[int]) -> LandedCounts:
    """Read the receipts of some batches, and all replays."""
    found = LandedCounts()
    for page in lake.pages(BRONZE, _WANTED, "receipt", (batches[0], batches[-1])):
        for row in page.to_pylist():
            place = (row["batch"], row["source"])
            found.landed[place] = found.landed.get(place, 0) + (json.loads(row["value"]).get("count") or 0)
    moved: Counter[tuple[int, int, str, str, int]] = Counter()
    for page in lake.pages(BRONZE, _WANTED, REPLAY, (0, lake.progress("bronze", BRONZE.name))):
        for row in page.to_pylist():
            old = json.loads(row["value"])["batch"]
            moved[row["batch"], old, row["source"], row["topic"], row["partition"]] += 1
    found.moved.extend(Moved(*place, count) for place, count in moved.items())
    return found
