"""Find the row before each table event that has a second but no position; see `ingest.silver.anchors`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest import formats
from ingest.lake import sealing
from ingest.lake.envelope import Opener
from ingest.lake.lake import Lake
from ingest.lake.schemas import BOOKS, BRONZE
from ingest.silver.anchors import EVENT, FOUND, Event, event_rows, rows_before, stream_of
from ingest.silver.lift import INPUT, Lifting, Spot
from ingest.silver.messages import Messages

_FALLBACK = 5  # batches to look back if the books do not say which


def anchors(lake: Lake, messages: Messages, how: Lifting) -> dict[Spot, tuple[int, ...]]:
    """The position of the row before each table event without one of its own; empty if there is no such row."""
    sources = {
        source.name: formats.load(source.format).ABOUT.event_marks
        for source in lake.pipeline.sources
        if source.options.order_by == "sequence"
    }
    marked = {name: marks for name, marks in sources.items() if marks}
    if not marked:
        return {}
    events = _events(messages, marked, how)
    if not events:
        return {}
    found: dict[Spot, tuple[int, ...]] = {event.spot: () for event in events}
    best: dict[int, tuple[int, int, str]] = {}
    rows = _candidates(lake, events, how.opener).select(*INPUT).mapInArrow(rows_before(how, events), FOUND)
    for number, batch, offset, sequence in rows.collect():
        best[number] = max(best.get(number, (0, -1, "")), (batch, offset, sequence))
    for number, (_, _, sequence) in best.items():
        found[events[number].spot] = tuple(json.loads(sequence))
    return found


def _events(messages: Messages, marked: Mapping[str, Sequence[str]], how: Lifting) -> list[Event]:
    rows = messages.through(event_rows(how, marked), EVENT)
    found = [
        Event(
            stream_of(how.pipeline, row["source"], row["topic"], row["partition"]),
            Spot(row["source"], row["topic"], row["partition"], row["batch"], row["offset"]),
            row["second"],
        )
        for row in rows
    ]
    return sorted(set(found), key=str)


def _candidates(lake: Lake, events: Sequence[Event], opener: Opener) -> DataFrame:
    """Messages of the events' topics and files that name one of their seconds; where they are sealed, all of them."""
    seconds = sorted({event.second for event in events})
    rows = sealing.readable(opener, lake.read(BRONZE.name))
    text = F.col("value").cast("string")
    named = F.lit(False)
    for second in seconds:
        named |= F.contains(text, F.lit(str(second)))
    batches = _batches(lake, events)
    if sealed := [batch for batch in batches if opener.seals(batch)]:
        named |= F.col("batch").isin(*sealed)
    return rows.where(
        (F.col("kind") == "message")
        & F.col("topic").isin(*{event.spot.topic for event in events})
        & F.col("batch").isin(*batches)
        & named
    )


def _batches(lake: Lake, events: Sequence[Event]) -> list[int]:
    """The events' own batches, and earlier ones whose rows reach their seconds."""
    own = {event.spot.batch for event in events}
    first, newest = min(own), max(own)
    if not lake.exists(BOOKS.name):
        return list(range(max(1, first - _FALLBACK), newest + 1))
    reaching = (
        lake.read(BOOKS.name)
        .where(
            (F.col("batch") <= newest)
            & F.col("topic").isin(*{event.spot.topic for event in events})
            & (F.unix_micros("event_high") >= min(event.second for event in events) * 10**6)
        )
        .select("batch")
        .distinct()
        .collect()
    )
    return sorted(own | set(range(first, newest + 1)) | {row["batch"] for row in reaching})
