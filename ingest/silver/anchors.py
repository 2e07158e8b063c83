"""Places of table events that carry no position of their own, only a second.

OceanBase OMS sends a TRUNCATE or a DDL statement with its second alone, between rows that have a second and a
counter.  Such an event takes the place right after the last row of its second that arrived before it in
the same partition or file; before all rows of its second if none did.  The place follows from bronze alone,
so every rebuild, replay and backfill finds it again, however tasks and batches cut the messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest import formats
from ingest.change import Change
from ingest.config import Pipeline
from ingest.lake.lake import Lake
from ingest.lake.schemas import BOOKS, BRONZE
from ingest.silver.lift import INPUT, Batches, Deck, Lifting, Spot

_FOUND = "number INT, batch BIGINT, `offset` BIGINT, sequence STRING"
_EVENT = "source STRING, topic STRING, `partition` INT, batch BIGINT, `offset` BIGINT, second BIGINT"
_FALLBACK = 5  # batches to look back where the books do not say which
Stream = tuple[str, str, int | None]
"""Source, topic and partition; a file has no partition of its own."""


class Event(NamedTuple):
    """A table event without a position."""

    stream: Stream
    spot: Spot
    second: int

    def after(self, batch: int, offset: int) -> bool:
        """True if it arrived after a message of its stream."""
        return (batch, offset) < (self.spot.batch, self.spot.offset)


def find(lake: Lake, messages: DataFrame, how: Lifting) -> dict[Spot, tuple[int, ...]]:
    """For each table event among the messages that has no position, that of the row before it; empty for none."""
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
    rows = _candidates(lake, events).select(*INPUT).mapInArrow(_rows_before(how, events), _FOUND)
    for number, batch, offset, sequence in rows.collect():
        best[number] = max(best.get(number, (0, -1, "")), (batch, offset, sequence))
    for number, (_, _, sequence) in best.items():
        found[events[number].spot] = tuple(json.loads(sequence))
    return found


def stream_of(pipeline: Pipeline, source: str, topic: str, partition: int) -> Stream:
    """Messages of one stream arrive in their order."""
    kinds = {one.name: one.kind for one in pipeline.sources}
    return source, topic, partition if kinds.get(source) == "kafka" else None


def _events(messages: DataFrame, marked: Mapping[str, Sequence[str]], how: Lifting) -> list[Event]:
    text = F.lower(F.col("value").cast("string"))
    wanted = F.lit(False)
    for name, marks in marked.items():
        holds = F.lit(False)
        for mark in marks:
            holds |= F.contains(text, F.lit(mark))
        wanted |= (F.col("source") == name) & holds
    rows = messages.where(wanted).select(*INPUT).mapInArrow(_event_rows(how), _EVENT).collect()
    found = [
        Event(
            stream_of(how.pipeline, row["source"], row["topic"], row["partition"]),
            Spot(row["source"], row["topic"], row["partition"], row["batch"], row["offset"]),
            row["second"],
        )
        for row in rows
    ]
    return sorted(set(found), key=str)


def _event_rows(how: Lifting) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        for page, changes in _decoded(how, batches):
            found = [
                (spot, change.sequence[0])
                for spot, one in zip(_spots(page), changes, strict=True)
                for change in one[:1]
                if change.second_only
            ]
            columns = zip(*((*spot, second) for spot, second in found), strict=True) if found else [()] * 6
            kinds = (pa.string(), pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.int64())
            yield _batch(("source", "topic", "partition", "batch", "offset", "second"), kinds, columns)

    return run


def _rows_before(how: Lifting, events: Sequence[Event]) -> Callable[[Batches], Batches]:
    asked: dict[tuple[Stream, int], list[int]] = {}
    for number, event in enumerate(events):
        asked.setdefault((event.stream, event.second), []).append(number)

    def run(batches: Batches) -> Batches:
        for page, changes in _decoded(how, batches):
            last: dict[int, tuple[int, int, str]] = {}
            for spot, one in zip(_spots(page), changes, strict=True):
                stream = stream_of(how.pipeline, spot.source, spot.topic, spot.partition)
                for change in one:
                    if change.second_only or not change.sequence:
                        continue
                    for number in asked.get((stream, change.sequence[0]), ()):
                        if events[number].after(spot.batch, spot.offset):
                            here = (spot.batch, spot.offset, json.dumps(change.sequence))
                            last[number] = max(last.get(number, here), here)
            columns = zip(*((n, *found) for n, found in last.items()), strict=True) if last else [()] * 4
            kinds = (pa.int32(), pa.int64(), pa.int64(), pa.string())
            yield _batch(("number", "batch", "offset", "sequence"), kinds, columns)

    return run


def _decoded(how: Lifting, batches: Batches) -> Iterator[tuple[pa.RecordBatch, list[Sequence[Change]]]]:
    """Each source's messages with their changes; nothing for what cannot be decoded."""
    ranks = {source.name: rank for rank, source in enumerate(how.pipeline.sources)}
    decks: dict[str, Deck] = {}
    for batch in batches:
        for name in batch.column("source").unique().to_pylist():
            mine = batch.filter(pc.equal(batch.column("source"), name))
            if name not in decks:
                decks[name] = Deck(how, ranks[name], name)
            taken, _ = decks[name].decoded(mine)
            yield mine, [taken.get(at, ()) for at in range(mine.num_rows)]


def _spots(page: pa.RecordBatch) -> list[Spot]:
    names = ("source", "topic", "partition", "batch", "offset")
    return [Spot(*row) for row in zip(*(page.column(name).to_pylist() for name in names), strict=True)]


def _batch(names: Sequence[str], kinds: Sequence[pa.DataType], columns: object) -> pa.RecordBatch:
    arrays = [pa.array(list(column), kind) for column, kind in zip(columns, kinds, strict=True)]  # type: ignore[call-overload]
    return pa.RecordBatch.from_arrays(arrays, list(names))


def _candidates(lake: Lake, events: Sequence[Event]) -> DataFrame:
    """Messages of the events' topics and files that name one of their seconds."""
    seconds = sorted({event.second for event in events})
    text = F.col("value").cast("string")
    named = F.lit(False)
    for second in seconds:
        named |= F.contains(text, F.lit(str(second)))
    return lake.read(BRONZE.name).where(
        (F.col("kind") == "message")
        & F.col("topic").isin(*{event.spot.topic for event in events})
        & F.col("batch").isin(*_batches(lake, events))
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
