"""Positions for table events that carry no position of their own, only a second.

OceanBase OMS sends a TRUNCATE or a DDL statement with its second alone, between rows that have a second and a
counter.  Such an event takes the place right after the last row of its second that arrived before it in
the same partition or file; before all rows of its second if none did.  The place depends on bronze alone, so every
rebuild, replay and backfill finds the same one, however tasks and batches divide the messages.

This half runs in Python workers and imports no Spark; `ingest.silver.events` calls it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ingest.change import Change
from ingest.config import Pipeline
from ingest.lake.schemas import BRONZE
from ingest.silver.lift import Batches, Lifting, SourceDecoder, Spot

FOUND = "number INT, batch BIGINT, `offset` BIGINT, sequence STRING"
EVENT = "source STRING, topic STRING, `partition` INT, batch BIGINT, `offset` BIGINT, second BIGINT"
_EVENT = BRONZE.part("source", "topic", "partition", "batch", "offset").append(pa.field("second", pa.int64()))
_FOUND = pa.schema({"number": pa.int32(), "batch": pa.int64(), "offset": pa.int64(), "sequence": pa.string()})
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


def stream_of(pipeline: Pipeline, source: str, topic: str, partition: int) -> Stream:
    """Messages of one stream arrive in their order."""
    kinds = {one.name: one.kind for one in pipeline.sources}
    return source, topic, partition if kinds.get(source) == "kafka" else None


def event_rows(how: Lifting, marked: Mapping[str, Sequence[str]]) -> Callable[[Batches], Batches]:
    """For ``mapInArrow``: the table events without a position among messages, as rows of `EVENT`.

    ``marked`` holds, by source, texts of which every such event contains one: only messages with one are decoded.
    """

    def run(batches: Batches) -> Batches:
        for page, changes in _decoded(
            how, (one.filter(_holding(one, marked)) for one in map(how.opener.opened, batches))
        ):
            found = [
                {**spot._asdict(), "second": change.sequence[0]}
                for spot, one in zip(_spots(page), changes, strict=True)
                for change in one[:1]
                if change.second_only
            ]
            yield pa.RecordBatch.from_pylist(found, _EVENT)

    return run


def _holding(batch: pa.RecordBatch, marked: Mapping[str, Sequence[str]]) -> pa.Array:
    """The messages that contain a mark of their source, in any letter case."""
    found = pa.repeat(pa.scalar(False), batch.num_rows)
    for name, marks in marked.items():
        mine = pc.equal(batch.column("source"), name)
        for mark in marks:
            held = pc.match_substring(batch.column("value"), mark, ignore_case=True)
            found = pc.or_(found, pc.and_(mine, pc.fill_null(held, False)))
    return found


def rows_before(how: Lifting, events: Sequence[Event]) -> Callable[[Batches], Batches]:
    """For ``mapInArrow``: the last row before each event, in each Arrow batch, as rows of `FOUND`."""
    asked: dict[tuple[Stream, int], list[int]] = {}
    for number, event in enumerate(events):
        asked.setdefault((event.stream, event.second), []).append(number)

    def run(batches: Batches) -> Batches:
        for page, changes in _decoded(how, _naming(map(how.opener.opened, batches), events)):
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
            rows = [dict(zip(_FOUND.names, (number, *found), strict=True)) for number, found in last.items()]
            yield pa.RecordBatch.from_pylist(rows, _FOUND)

    return run


def _naming(batches: Batches, events: Sequence[Event]) -> Batches:
    """The messages of the events' topics and files that contain one of their seconds: only they are decoded."""
    topics = pa.array({event.spot.topic for event in events}, pa.string())
    seconds = sorted({str(event.second) for event in events})
    for batch in batches:
        mine = batch.filter(pc.is_in(batch.column("topic"), topics))
        found = [pc.match_substring(mine.column("value"), second) for second in seconds]
        yield mine.filter(reduce(pc.or_kleene, found))


def _decoded(how: Lifting, batches: Batches) -> Iterator[tuple[pa.RecordBatch, list[Sequence[Change]]]]:
    """Each source's messages with their changes; messages that cannot be decoded have none."""
    decoders: dict[str, SourceDecoder] = {}
    for batch in batches:
        for name in batch.column("source").unique().to_pylist():
            mine = batch.filter(pc.equal(batch.column("source"), name))
            if name not in decoders:
                decoders[name] = SourceDecoder(how, name)
            taken, _ = decoders[name].decoded(mine)
            yield mine, [taken.get(at, ()) for at in range(mine.num_rows)]


def _spots(page: pa.RecordBatch) -> list[Spot]:
    names = ("source", "topic", "partition", "batch", "offset")
    return [Spot(*row) for row in zip(*(page.column(name).to_pylist() for name in names), strict=True)]
