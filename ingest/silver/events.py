"""Find the row before each table event that has a second but no position; see `ingest.silver.anchors`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest import formats
from ingest.errors import counted
from ingest.ledgers import sealing
from ingest.silver.anchors import EVENT, FOUND, Event, event_rows, rows_before, stream_of
from ingest.silver.lift import Lifting
from ingest.silver.messages import WANTED, Messages
from ingest.silver.split_messages import Spot
from ingest.store.envelope import Opener
from ingest.tables import duck
from ingest.tables.lake import Lake
from ingest.tables.schemas import BOOKS, BRONZE
from ingest.tables.tables import Tables

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
    by_spot: dict[Spot, tuple[int, ...]] = {event.spot: () for event in events}
    best: dict[int, tuple[int, int, str]] = {}
    for row in _candidates(lake, events, how.opener, messages.cores).through(rows_before(how, events), FOUND):
        here = row["batch"], row["offset"], row["sequence"]
        best[row["number"]] = max(best.get(row["number"], (0, -1, "")), here)
    for number, (_, _, sequence) in best.items():
        by_spot[events[number].spot] = tuple(json.loads(sequence))
    return by_spot


def _events(messages: Messages, marked: Mapping[str, Sequence[str]], how: Lifting) -> list[Event]:
    rows = messages.through(event_rows(how, marked), EVENT)
    events = [
        Event(
            stream_of(how.pipeline, row["source"], row["topic"], row["partition"]),
            Spot(row["source"], row["topic"], row["partition"], row["batch"], row["offset"]),
            row["second"],
        )
        for row in rows
    ]
    return sorted(set(events), key=str)


def _candidates(lake: Lake, events: Sequence[Event], opener: Opener, cores: int) -> Messages:
    """Messages that may be the row before an event."""
    batches = _batches(lake, events)
    pieces = None  # Spark leaves out the days whose key was dropped
    if not opener.dropped:
        pieces = lake.pieces(BRONZE, WANTED, {"message"}, (batches[0], batches[-1]))
    about = f"rows before {counted(len(events), 'statement')}"
    return Messages(lake, lambda: _of_topics(lake, events, opener, batches), pieces, cores, about=about)


def _of_topics(lake: Lake, events: Sequence[Event], opener: Opener, batches: Sequence[int]) -> DataFrame:
    """Messages of the events' topics and files."""
    rows = sealing.readable(opener, lake.read(BRONZE.name))
    topics = {event.spot.topic for event in events}
    return rows.where(
        (F.col("kind") == "message") & F.col("topic").isin(*topics) & F.col("batch").isin(*batches)
    )


def _batches(lake: Tables, events: Sequence[Event]) -> list[int]:
    """The batches up to the newest event's, from the last one with rows of each event's topic or file."""
    batches = {event.spot.batch for event in events}
    first, newest = min(batches), max(batches)
    if not lake.exists(BOOKS.name):
        return list(range(max(1, first - _FALLBACK), newest + 1))
    topics = ", ".join(sorted({duck.text(event.spot.topic) for event in events}))
    decoded = lake.ask(f"SELECT max(batch) AS batch FROM {{books}} WHERE batch < {first}")[0]["batch"] or 0
    lasts = lake.ask(
        f"""SELECT max(batch) AS batch FROM {{books}} WHERE batch < {first} AND changes > 0 AND topic IN ({topics})
        GROUP BY source, topic, "partition" """
    )
    # what the books do not have yet is being decoded with the events
    return sorted({*range(min(first, decoded + 1), newest + 1), *(row["batch"] for row in lasts)})
