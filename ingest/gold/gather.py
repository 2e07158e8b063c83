"""Select the changes that a mirror must fold for a batch: the new ones, and older ones that late changes require.

If no new change is older than what the lane has folded, the new changes are enough. A late change is folded together
with the later changes of its key, read from silver, so no tombstones are kept. After a late truncate the lane is folded
again from its place.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.gold.collision import MARK
from ingest.gold.lane import ChangeKinds, Lane, Steps
from ingest.gold.refold import Beyond, refold
from ingest.gold.rekeyed import rebased
from ingest.gold.spark_fold import ORDER, events, key_name, outcomes
from ingest.gold.staged import GONE
from ingest.lake.mirrors import Mirror
from ingest.lake.names import of_table
from ingest.lake.stamps import NO_STAMPS, TIME, Stamps

_LANE, _ROW = "%lane", "%row"  # no column of a mirror has a percent sign


@dataclass(frozen=True, slots=True)
class Gathered:
    """One lane's outcomes, the kinds of its changes, and whether the mirror's other rows are deleted."""

    outcomes: DataFrame
    kinds: ChangeKinds
    clears: bool


def of_lane(changes: DataFrame, lane: Lane) -> DataFrame:
    """A lane's rows among the changes, up to its last new batch."""
    mine = changes.where((F.col("kind") == "change") & (F.col("source") == lane.source))
    mine = mine.where(of_table(lane.table)).where(F.col("batch") <= lane.last)
    return with_stamps(with_shard(mine, lane.shard), lane.stamps)


def history_of(changes: DataFrame, mirror: Mirror, lane: Lane, steps: Steps) -> tuple[DataFrame, Steps]:
    """A lane's changes and schema steps under its last key; earlier rows are inserted where that key begins."""
    mine = of_lane(changes, lane)
    if not lane.eras:
        return mine, steps
    last = lane.eras[-1].place
    batch = lane.first if lane.folded_high is None else 0
    links, name = bool(lane.inherits_ever), (lane.source, lane.table)
    mine = rebased(
        mine, mirror, lane.eras, steps.ever, batch, links=links, lane=name, shared_reads=lane.shared_reads
    )
    return mine, steps.after(last)


def with_shard(changes: DataFrame, shard: tuple[str, str] | None) -> DataFrame:
    """Changes with the shard column's cell in their images, as if the source had sent it."""
    if shard is None:
        return changes
    cell = ":".join(json.dumps(text, ensure_ascii=False) for text in shard)
    return changes.withColumns(
        {image: _with_cell(F.col(image), F.lit(cell)) for image in ("before", "after")}
    )


def with_stamps(changes: DataFrame, stamps: Stamps) -> DataFrame:
    """Changes with the cells of constant and metadata columns in their images, as if the source had sent them."""
    if stamps == NO_STAMPS:
        return changes
    members: list[Column] = [F.lit(one) for one in stamps.members]
    for name, column in stamps.moving.items():
        text = F.col(column).cast("string")
        if column == TIME:
            text = F.date_format(column, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")
        value = F.coalesce(F.concat(F.lit('"'), text, F.lit('"')), F.lit("null"))
        members.append(F.concat(F.lit(f"{json.dumps(name)}:"), value))
    return changes.withColumn("after", _with_cell(F.col("after"), F.concat_ws(",", *members)))


def _with_cell(image: Column, cell: Column) -> Column:
    """A JSON object with one more member at its start."""
    rest = F.concat(F.lit("{"), cell, F.lit(","), F.substring(image, 2, 2**31 - 1))
    return F.when(image == "{}", F.concat(F.lit("{"), cell, F.lit("}"))).otherwise(rest)


def gather(changes: DataFrame, mirror: Mirror, lane: Lane, steps: Steps, tolerant: bool) -> Gathered:
    """The outcomes of a lane's new batches."""
    mine = of_lane(changes, lane)
    if lane.folded_high is None or lane.late or lane.inherits or steps.new:
        mine, steps = history_of(changes, mirror, lane, steps)
    truncates = _truncates(mine, lane)
    floor, clears = _floor([(at, batch) for at, batch, _ in truncates], steps, lane)
    whole = bool(steps.new) or bool(lane.late and steps.ever) or bool(lane.inherits)
    whole = whole or bool(lane.late and lane.inherits_ever)
    kinds = replace(lane.ever if lane.late else lane.new, cleared=clears)
    if not whole:
        happened = _happened(mine, mirror, lane, kinds, floor, tolerant)
        return Gathered(outcomes(happened, mirror, kinds), kinds, clears)
    since = "" if steps.doubtful else _since(steps, floor if clears else None)
    if mirror.soft:  # each row that a clearing meets becomes a deleted one
        if clears or any(batch >= lane.first for _, batch, _ in truncates):
            since = ""
        floor, clears = None, False
    happened = _happened(mine, mirror, lane, kinds, None if steps.new else floor, tolerant, since)
    beyond = Beyond(tuple(at for at, *_ in truncates), steps.ever, tuple(time for *_, time in truncates))
    kinds = ChangeKinds(True, True, clears)
    return Gathered(refold(mine, happened, mirror, beyond, bool(lane.inherits_ever)), kinds, clears)


def gather_merged(
    changes: DataFrame, mirror: Mirror, work: Sequence[tuple[Lane, Steps]], tolerant: bool
) -> list[Gathered]:
    """The outcomes of each lane for all keys that some lane has new changes of: a row may be in any of the lanes."""
    parts = [(one, *history_of(changes, mirror, one, steps)) for one, steps in work]
    every = any(one.truncates or steps.new for one, _, steps in parts)
    touched, found = [], []
    for one, mine, _ in parts:
        new = mine.where((F.col("op") != "truncate") & (F.lit(every) | (F.col("batch") >= one.first)))
        happened = events(new, mirror, ChangeKinds(True, True), tolerant)
        touched.append(happened.select(*[key_name(i) for i in range(len(mirror.keys))]))
    keys = reduce(DataFrame.unionByName, touched).distinct()
    for one, mine, steps in parts:
        rows = (
            mine.where(F.col("op") == "truncate").select("order_key").collect() if one.truncates_ever else []
        )
        beyond = Beyond(tuple(row["order_key"] for row in rows), steps.ever)
        own = refold(mine, keys, mirror, beyond, bool(one.inherits_ever))
        found.append(Gathered(own, ChangeKinds(True, True), clears=False))
    return found


def one_of(gathered: Sequence[Gathered], names: Sequence[str], mirror: Mirror) -> DataFrame:
    """The outcomes of several lanes' keys as those of one table; a row that two lanes have fails the job with a text
    for `ingest.gold.collision`.
    """
    keys = [key_name(i) for i in range(len(mirror.keys))]
    frames = [one.outcomes.withColumn(_LANE, F.lit(name)) for one, name in zip(gathered, names, strict=True)]
    every = reduce(DataFrame.unionByName, frames)
    rest = [name for name in every.columns if name not in (*keys, GONE, _LANE)]
    there = F.when(~F.col(GONE), F.col(_LANE))
    found = every.groupBy(*keys).agg(
        F.max_by(F.struct(*rest), ~F.col(GONE)).alias(_ROW), F.collect_set(there).alias(_LANE)
    )
    named = F.struct(
        *[F.col(key).cast("string").alias(name) for key, name in zip(keys, mirror.keys, strict=True)]
    )
    pair = F.concat(F.lit(MARK + "["), F.to_json(named), F.lit(", "), F.to_json(F.col(_LANE)), F.lit("]"))
    gone = F.when(F.size(_LANE) > 1, F.raise_error(pair)).otherwise(F.size(_LANE) == 0)
    return found.select(
        *keys, gone.cast("boolean").alias(GONE), *[F.col(_ROW)[name].alias(name) for name in rest]
    )


def _since(steps: Steps, cleared: str | None) -> str | None:
    """The place from which new steps require folded changes again: a new clearing keeps only rows with an outcome."""
    places = [str(step.since or step.order) for step in steps.new]
    return min([*places, cleared or places[0]]) if places else None


def _happened(
    mine: DataFrame,
    mirror: Mirror,
    lane: Lane,
    kinds: ChangeKinds,
    floor: str | None,
    tolerant: bool,
    since: str | None = None,
) -> DataFrame:
    """The events to fold: the new ones, and those that late changes (or late DDL) require again."""
    new = mine.where((F.col("batch") >= lane.first) & (F.col("op") != "truncate"))
    if floor is not None:
        new = new.where(F.col("order_key") > floor)
    late_since = since is not None and lane.folded_high is not None and since <= lane.folded_high
    if not lane.late and not late_since:
        return events(new, mirror, kinds, tolerant)
    if kinds.cleared or late_since:
        old = _older(mine, lane, since if late_since else floor)
        return events(new.unionByName(old), mirror, kinds, tolerant)
    fresh = events(new, mirror, kinds, tolerant)
    old = events(_older(mine, lane, max(lane.order_low or "", floor or "")), mirror, kinds, tolerant)
    return fresh.unionByName(_called_back(fresh, old, mirror, lane))


def clearing(mine: DataFrame, lane: Lane, steps: Steps) -> tuple[str | None, bool]:
    """The place after which a lane's rows still exist, and whether it is new."""
    rows = (
        mine.where(F.col("op") == "truncate").select("order_key", "batch").collect()
        if lane.truncates_ever
        else []
    )
    return _floor([(row["order_key"], row["batch"]) for row in rows], steps, lane)


def _truncates(mine: DataFrame, lane: Lane) -> list[tuple[str, int, int | None]]:
    """The places, batches and event times of the lane's truncates, where they matter."""
    needed = lane.truncates or (lane.truncates_ever and (lane.late or lane.inherits_ever or lane.ddl_ever))
    if not needed:
        return []
    rows = mine.where(F.col("op") == "truncate").select("order_key", "batch", F.unix_micros(TIME).alias("at"))
    return [(row["order_key"], row["batch"], row["at"]) for row in rows.collect()]


def _floor(truncates: list[tuple[str, int]], steps: Steps, lane: Lane) -> tuple[str | None, bool]:
    """The newest clearing's place, and whether it is new: only a new one clears the mirror."""
    new_steps = {step.order for step in steps.new}
    clearings = [(at, batch >= lane.first) for at, batch in truncates]
    clearings += [(str(step.order), step.order in new_steps) for step in steps.incarnations]
    return max(clearings, default=(None, False))


def _older(mine: DataFrame, lane: Lane, from_place: str | None) -> DataFrame:
    """Folded changes at or after a place; the log's statistics skip the other files."""
    return mine.where(
        (F.col("batch") < lane.first)
        & (F.col("order_key") >= (from_place or ""))
        & (F.col("op") != "truncate")
    )


def _called_back(fresh: DataFrame, old: DataFrame, mirror: Mirror, lane: Lane) -> DataFrame:
    """Events of earlier batches at or after their key's oldest late event."""
    keys = [key_name(i) for i in range(len(mirror.keys))]
    late = (
        fresh.where(F.col(ORDER) <= F.lit(lane.folded_high))
        .groupBy(*keys)
        .agg(F.min(ORDER).alias("_since"))
        .alias("late")
    )
    same = [F.col(f"old.{key}") == F.col(f"late.{key}") for key in keys]
    return old.alias("old").join(
        late, on=[*same, F.col(f"old.{ORDER}") >= F.col("late._since")], how="left_semi"
    )
