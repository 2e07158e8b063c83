"""Which changes a mirror must fold for a batch: its new ones, and what late ones call back.

In order (no new change is older than what the lane has folded) the new changes are enough.  A late
change is folded again together with the later changes of its key, read from silver, which is the
memory: so there are no tombstones to keep.  A late truncate folds the lane again from its place.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.change import TableId
from ingest.gold.fold import ORDER, Shape, events, key_name
from ingest.lake.mirrors import Mirror


@dataclass(frozen=True, slots=True)
class Lane:
    """One source table of one source, with what its books say of the new and the folded batches."""

    source: str
    table: TableId
    first: int  # the first batch not folded yet
    last: int
    order_low: str | None  # of the new changes
    folded_high: str | None  # of the folded ones; None if there are none
    new: Shape
    ever: Shape  # of all batches, the new ones included
    truncates: int = 0  # among the new changes
    truncates_ever: int = 0

    @property
    def late(self) -> bool:
        """True if some new change may be older than one already folded."""
        return bool(self.order_low and self.folded_high and self.order_low <= self.folded_high)


@dataclass(frozen=True, slots=True)
class Gathered:
    """Events to fold, and whether the mirror's other rows go (a truncate cleared them)."""

    events: DataFrame
    shape: Shape
    clears: bool


def of_lane(changes: DataFrame, lane: Lane) -> DataFrame:
    """A lane's rows among the changes, up to its last new batch."""
    parts = zip(("database", "schema", "table"), lane.table, strict=True)
    same = [F.col(name).eqNullSafe(F.lit(part)) for name, part in parts]
    wanted: Column = (F.col("kind") == "change") & (F.col("source") == lane.source)
    for one in same:
        wanted &= one
    return changes.where(wanted & (F.col("batch") <= lane.last))


def gather(changes: DataFrame, mirror: Mirror, lane: Lane, tolerant: bool) -> Gathered:
    """The events that a lane's new batches make necessary."""
    mine = of_lane(changes, lane)
    floor, clears = _floor(mine, lane)
    new = mine.where(F.col("batch") >= lane.first)
    rows = new.where(F.col("op") != "truncate")
    if floor is not None:
        rows = rows.where(F.col("order_key") > floor)
    if not lane.late:
        shape = Shape(lane.new.partials, lane.new.key_changes, clears)
        return Gathered(events(rows, mirror, shape, tolerant), shape, clears)
    shape = Shape(lane.ever.partials, lane.ever.key_changes, clears)
    old = _older(mine, lane, floor)
    if clears:
        return Gathered(events(rows.unionByName(old), mirror, shape, tolerant), shape, clears)
    fresh = events(rows, mirror, shape, tolerant)
    again = _called_back(fresh, events(old, mirror, shape, tolerant), mirror, lane)
    return Gathered(fresh.unionByName(again), shape, clears)


def _floor(mine: DataFrame, lane: Lane) -> tuple[str | None, bool]:
    """The newest truncate's place, and whether it is new: only then does it clear the mirror."""
    if not lane.truncates and not (lane.truncates_ever and lane.late):
        return None, False
    newest = (
        mine.where(F.col("op") == "truncate").select(F.max(F.struct("order_key", "batch")).alias("at")).first()
    )
    at = newest["at"] if newest else None
    if at is None:
        return None, False
    return at["order_key"], at["batch"] >= lane.first


def _older(mine: DataFrame, lane: Lane, floor: str | None) -> DataFrame:
    """Folded changes at or after the oldest new one: the log's statistics leave out the rest."""
    from_place = max(lane.order_low or "", floor or "")
    return mine.where(
        (F.col("batch") < lane.first) & (F.col("order_key") >= from_place) & (F.col("op") != "truncate")
    )


def _called_back(fresh: DataFrame, old: DataFrame, mirror: Mirror, lane: Lane) -> DataFrame:
    """Events of earlier batches that stand at or after their key's oldest late event."""
    keys = [key_name(i) for i in range(len(mirror.keys))]
    late = (
        fresh.where(F.col(ORDER) <= lane.folded_high)
        .groupBy(*keys)
        .agg(F.min(ORDER).alias("_since"))
        .alias("late")
    )
    same = [F.col(f"old.{key}") == F.col(f"late.{key}") for key in keys]
    return old.alias("old").join(
        late, on=[*same, F.col(f"old.{ORDER}") >= F.col("late._since")], how="left_semi"
    )
