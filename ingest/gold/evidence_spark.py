"""The part of a row's evidence that needs Spark: its changes under an earlier primary key of the table."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.change import LaneId
from ingest.errors import IngestError
from ingest.gold import evidence
from ingest.gold.cast import cast
from ingest.gold.gather import with_shard, with_stamps
from ingest.gold.refold import json_key, keyed_rows
from ingest.gold.rekeyed import rebased
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Mirror, shard_of
from ingest.lake.names import of_table
from ingest.lake.schemas import CHANGES
from ingest.lake.stamps import stamps_of


def of_lane(frame: DataFrame, lane: LaneId) -> DataFrame:
    """The rows of one source table in any product table."""
    return frame.where(F.col("source") == lane[0]).where(of_table(lane[1]))


def rows_under_last_key(lake: Lake, mirror: Mirror, lane: LaneId, texts: Sequence[str]) -> list[evidence.Row]:
    """All changes of a key in a table whose primary key has changed: earlier rows are keyed by the last key."""
    changes = of_lane(lake.read(CHANGES.name).where(F.col("kind") == "change"), lane)
    changes = with_shard(changes, shard_of(lake.pipeline, mirror, lane))
    changes = with_stamps(changes, stamps_of(mirror, *lane))
    steps = tuple(step for step, _ in evidence.schema_steps(lake, mirror, lane))
    shared = lake.pipeline.shared_reads(lane[0])
    changes = rebased(
        changes, mirror, mirror.eras_of(*lane), steps, 0, links=True, lane=lane, shared_reads=shared
    )
    keyed = keyed_rows(changes, mirror, evidence.ROW)
    wanted = {_as_json(lake, mirror, texts)}
    for _ in range(evidence.ROUNDS):
        rows = keyed.where(F.col("key").isin(*sorted(wanted))).collect()
        linked = {key for row in rows for key in row["keys"] if key is not None}
        if linked <= wanted:
            break
        wanted |= linked
    unique = {(row["order_key"], row["batch"]): row.asDict() for row in rows}
    return [unique[place] for place in sorted(unique)]


def _as_json(lake: Lake, mirror: Mirror, texts: Sequence[str]) -> str:
    """The key as Spark writes it after the same casts as a change's."""
    frame = lake.spark.createDataFrame([tuple(texts)], [f"t{i}" for i in range(len(texts))])
    cells = [cast(F.col(f"t{i}"), one.type) for i, one in enumerate(mirror.key_columns)]
    found = frame.select(json_key(cells).alias("key")).collect()[0]["key"]
    if found is None:
        raise IngestError(f"{mirror.name} can hold no row with the key {', '.join(texts)}.")
    return str(found)
