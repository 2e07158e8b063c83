"""Replays: decode rejected messages again, in a new batch, from the bytes in bronze.

A replay is a row of bronze (kind ``replay``) with the place of the old bytes and the new batch's number, so it is
committed like any landed batch, and the run after a kill finishes it. Its rows keep the arrival of their bytes in their
order. The old batch's books get a line that says where its rejects went, and a rebuild rejects again in the old batch
what the new one decodes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.config.masks import NOT_SHOWN
from ingest.ledgers import sealing
from ingest.ledgers.books import Line
from ingest.ledgers.rejects import PLACE, REPLAY, groups, still_open
from ingest.silver import split_lookup
from ingest.silver.lift import Lifting
from ingest.silver.messages import Messages
from ingest.silver.split_messages import Spot, Wholes
from ingest.tables.lake import Lake
from ingest.tables.schemas import BRONZE
from ingest.tables.tables import Row

BRONZE_STAGE = "bronze"
Lift = Callable[[DataFrame, Lifting], DataFrame]


def replayed_batch() -> Column:
    """For a replay in bronze, the batch whose message it decodes again; NULL for any other row."""
    return F.get_json_object(F.col("value").cast("string"), "$.batch").cast("bigint")


@dataclass(frozen=True, slots=True)
class Moved:
    """The number of rejects of one batch and partition that were replayed in another batch."""

    batch: int
    old: int
    source: str
    topic: str | None
    partition: int | None
    count: int

    def line(self) -> Line:
        """The book line that is added to the old batch."""
        line = Line(self.old, self.source, self.topic, self.partition, None, None, None)
        line.replayed, line.replayed_in = self.count, self.batch
        return line

    def refusals(self) -> Line:
        """The old batch's line for the messages that it had rejected, when it is decoded again."""
        line = Line(self.old, self.source, self.topic, self.partition, None, None, None)
        line.messages = line.rejected = self.count
        return line


def touching(moved: Sequence[Moved], batches: Sequence[int]) -> list[Moved]:
    """The replays that run in some batches, or whose messages landed in them."""
    return [replay for replay in moved if replay.batch in batches or replay.old in batches]


def messages(lake: Lake) -> DataFrame:
    """The messages that replays decode again."""
    return _bytes(lake, _rows(lake))


def _rows(lake: Lake) -> DataFrame:
    return lake.read(BRONZE.name).where(F.col("kind") == REPLAY)


# --- decoding -----------------------------------------------------------------------------------


def decoded(
    lake: Lake,
    of_batches: DataFrame,
    batches: Sequence[int],
    moved: Sequence[Moved],
    lifting: Lifting,
    lift: Lift,
) -> DataFrame:
    """The rows of ``changes`` of some batches that contain replays, or that replays point into.

    ``of_batches`` are the messages of the batches themselves, ``moved`` are the replays of the lake.
    """
    replays = _rows(lake)
    wanted = [replay for replay in moved if replay.batch in batches]
    refused = [replay for replay in moved if replay.old in batches]
    refusals: list[DataFrame] = []
    if refused:
        places = replays.select(*PLACE, replayed_batch().alias("batch")).distinct()
        of_batches = of_batches.join(F.broadcast(places), [*PLACE, "batch"], "left_anti")
        olds = replays.where(replayed_batch().isin(sorted({replay.old for replay in refused})))
        refusals = [_refusals(olds, hide=lake.pipeline.masks)]
    parts = [lift(of_batches, lifting), *refusals]
    for batch in sorted({replay.batch for replay in wanted}):
        again = _bytes(lake, replays.where(F.col("batch") == batch))
        wholes = split_lookup.wholes_of_replay(lake, again, lifting.opener)
        parts.append(lift(again, replace(lifting, batch=batch, wholes=wholes)))
    lines = [(replay.batch, replay.line()) for replay in wanted] + [
        (replay.old, replay.refusals()) for replay in refused
    ]
    rows = [("book", batch, line.source, line.to_json()) for batch, line in lines]
    books = lake.spark.createDataFrame(rows, "kind STRING, batch BIGINT, source STRING, payload STRING")
    parts.append(books.coalesce(1))
    return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), parts)


def _bytes(lake: Lake, replays: DataFrame) -> DataFrame:
    """The old messages, with their own batch's number: their rows keep its arrival."""
    places = F.broadcast(replays.select(*PLACE, replayed_batch().alias("batch")))
    kept = lake.read(BRONZE.name).where(F.col("kind") == "message")
    return kept.join(places, [*PLACE, "batch"], "left_semi")


def _refusals(replays: DataFrame, *, hide: bool) -> DataFrame:
    """The rejects of the old batches as their replays hold them; ``hide`` removes quotations from before masks."""
    reason, decoder = (
        F.get_json_object(F.col("value").cast("string"), f"$.reject.{name}").alias(name)
        for name in ("reason", "decoder")
    )
    hidden = F.to_json(F.struct(reason, F.lit(f"({NOT_SHOWN})").alias("detail"), decoder))
    return replays.select(
        F.lit("reject").alias("kind"),
        replayed_batch().alias("batch"),
        *PLACE,
        F.lit(0).alias("row"),
        (hidden if hide else F.get_json_object(F.col("value").cast("string"), "$.reject")).alias("payload"),
    ).distinct()


def landed(moved: Sequence[Moved], batches: Sequence[int]) -> dict[tuple[int, str], int]:
    """How many messages the replays brought into batches, by batch and source: what the books must hold."""
    counts: dict[tuple[int, str], int] = {}
    for replay in moved:
        if replay.batch in batches:
            counts[replay.batch, replay.source] = counts.get((replay.batch, replay.source), 0) + replay.count
    return counts


# --- appointing ---------------------------------------------------------------------------------


def appoint(
    lake: Lake, lifting: Callable[[Lake, Messages, Wholes], Lifting], lift: Lift, reason: str = ""
) -> tuple[int | None, int, int]:
    """Commit a new batch that decodes again the rejected messages, of one reason code if given, that can be decoded now.

    The caller holds the lake's lock. Returns the new batch, None if there is none; how many messages it replays, and how
    many stay rejected.
    """
    waits = any(group["kind"] == "message" and reason in ("", group["reason"]) for group in groups(lake))
    waiting = still_open(lake) if waits else None  # which starts Spark
    if waiting is None:
        return None, 0, 0
    waiting = waiting.where(
        (F.col("kind") == "message") & (F.lit(reason == "") | (F.col("reason") == reason))
    )
    places = waiting.select(*PLACE, "batch", "reason", "detail", "decoder").cache()
    try:
        count = places.count()
        if not count:
            return None, 0, 0
        kept = lake.read(BRONZE.name).where(F.col("kind") == "message")
        rows = kept.join(F.broadcast(places.select(*PLACE, "batch")), [*PLACE, "batch"], "left_semi")
        opener = sealing.opener(lake)
        sealing.refuse_unreadable_rows(opener, rows)
        wholes = split_lookup.wholes_of_replay(lake, rows, opener)
        how = lifting(lake, Messages(lake, lambda: rows), wholes)
        still = lift(rows, how).where(F.col("kind") == "reject").select(*PLACE, "batch")
        appointed = places.join(rows.select(*PLACE, "batch").distinct(), [*PLACE, "batch"], "left_semi")
        decodable = appointed.join(still, [*PLACE, "batch"], "left_anti").collect()
        ready = _complete([row.asDict() for row in decodable], wholes.others)
    finally:
        places.unpersist()
    if not ready:
        return None, 0, count
    batch = max(0, lake.progress(BRONZE_STAGE, BRONZE.name)) + 1
    lake.append(_appointed(lake, ready, batch), BRONZE, BRONZE_STAGE, batch)
    return batch, len(ready), count - len(ready)


def _complete(ready: Sequence[Row], others: Mapping[Spot, Sequence[Spot]]) -> list[Row]:
    """Rejects without the parts of messages of which a part is in another batch and is not among them."""
    rows = {Spot.of(row): row for row in ready}
    for last, parts in others.items():
        if not {last, *(part for part in parts if part.batch != last.batch)} <= rows.keys():
            for spot in (last, *parts):
                rows.pop(spot, None)
    return list(rows.values())


def _appointed(lake: Lake, rows: Sequence[dict[str, object]], batch: int) -> DataFrame:
    now = lake.now()
    same = {"kind": REPLAY, "batch": batch, "ingested_at": now, "day": now.date()}
    made = []
    for row in rows:
        reject = {name: row[name] for name in ("reason", "detail", "decoder")}
        value = json.dumps({"batch": row["batch"], "reject": reject}, ensure_ascii=False).encode()
        made.append(same | {name: row[name] for name in PLACE} | {"value": value})
    return lake.spark.createDataFrame(made, lake.read(BRONZE.name).schema).coalesce(1)
