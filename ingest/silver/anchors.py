"""Positions for table events that carry no position of their own, only a second.

OceanBase OMS sends a TRUNCATE or a DDL statement with its second alone, between rows that have a second and a
counter.  Such an event takes the place right after the last row that arrived before it in the same partition or file,
whatever that row's second is: the event's second is when it was executed, a row's may be when it was captured, or the
event's clock is of another zone.  Only where no row arrived before it, it is placed before all rows of its second.  The
place depends on bronze alone, so every rebuild, replay and backfill finds the same one, however tasks and batches divide
the messages.

This half runs in Python workers and imports no Spark; `ingest.silver.events` calls it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ingest.change import ROW_OPS, Change
from ingest.config import Pipeline
from ingest.silver.lift import Batches, Lifting, SourceDecoder
from ingest.silver.split_messages import Spot
from ingest.tables.schemas import BRONZE

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
    """The stream of a message: its source with the topic and its partition, or with the file. Messages of one stream arrive in their order."""
    entry = pipeline.by_source.get(source)
    return source, topic, partition if entry is not None and entry.kind == "kafka" else None


def event_rows(how: Lifting, marked: Mapping[str, Sequence[str]]) -> Callable[[Batches], Batches]:
    """For ``mapInArrow``: the table events without a position among messages, as rows of `EVENT`.

    ``marked`` holds, by source, texts of which every such event contains one: only messages with one are decoded.
    """

    def run(batches: Batches) -> Batches:
        for page, changes in _decoded(
            how, (batch.filter(_holding(batch, marked)) for batch in map(how.opener.opened, batches))
        ):
            events = [
                {**spot._asdict(), "second": change.sequence[0]}
                for spot, decoded in zip(_spots(page), changes, strict=True)
                for change in decoded[:1]
                if change.second_only
            ]
            yield pa.RecordBatch.from_pylist(events, _EVENT)

    return run


def _holding(batch: pa.RecordBatch, marked: Mapping[str, Sequence[str]]) -> pa.Array:
    """The messages that contain a mark of their source, in any letter case."""
    holding = pa.repeat(pa.scalar(False), batch.num_rows)
    for name, marks in marked.items():
        of_source = pc.equal(batch.column("source"), name)
        for mark in marks:
            held = pc.match_substring(batch.column("value"), mark, ignore_case=True)
            holding = pc.or_(holding, pc.and_(of_source, pc.fill_null(held, False)))
    return holding


def rows_before(how: Lifting, events: Sequence[Event]) -> Callable[[Batches], Batches]:
    """For ``mapInArrow``: the last row before each event, in each Arrow batch, as rows of `FOUND`."""
    decoders: dict[str, SourceDecoder] = {}
    topics = pa.array({event.spot.topic for event in events}, pa.string())

    def run(batches: Batches) -> Batches:
        for batch in map(how.opener.opened, batches):
            page = batch.filter(pc.is_in(batch.column("topic"), topics))
            spots = _spots(page)
            streams = [stream_of(how.pipeline, spot.source, spot.topic, spot.partition) for spot in spots]
            rows: list[dict[str, object]] = []
            for number, event in enumerate(events):
                before = [
                    i
                    for i, (spot, stream) in enumerate(zip(spots, streams, strict=True))
                    if stream == event.stream and event.after(spot.batch, spot.offset)
                ]
                before.sort(key=lambda i: (spots[i].batch, spots[i].offset), reverse=True)
                name = event.spot.source
                if before and name not in decoders:
                    decoders[name] = SourceDecoder(how, name)
                if before and (last := _last_row(decoders[name], page, before)) is not None:
                    i, sequence = last
                    place = number, spots[i].batch, spots[i].offset, json.dumps(sequence)
                    rows.append(dict(zip(_FOUND.names, place, strict=True)))
            yield pa.RecordBatch.from_pylist(rows, _FOUND)

    return run


_AT_ONCE = 64  # messages before an event that are decoded: one of them nearly always is a row


def _last_row(
    decoder: SourceDecoder, page: pa.RecordBatch, before: Sequence[int]
) -> tuple[int, tuple[int, ...]] | None:
    """The first of some messages that has a row with a position, and that position."""
    for start in range(0, len(before), _AT_ONCE):
        asked = before[start : start + _AT_ONCE]
        taken, _ = decoder.decoded(page.take(pa.array(asked)))
        for i, message in enumerate(asked):
            places = [
                change.sequence
                for change in taken.get(i, ())
                if change.op in ROW_OPS and change.sequence and not change.second_only
            ]
            if places:
                return message, places[-1]
    return None


def _decoded(how: Lifting, batches: Batches) -> Iterator[tuple[pa.RecordBatch, list[Sequence[Change]]]]:
    """Each source's messages with their changes; messages that cannot be decoded have none."""
    decoders: dict[str, SourceDecoder] = {}
    for batch in batches:
        for name in batch.column("source").unique().to_pylist():
            of_source = batch.filter(pc.equal(batch.column("source"), name))
            if name not in decoders:
                decoders[name] = SourceDecoder(how, name)
            taken, _ = decoders[name].decoded(of_source)
            yield of_source, [taken.get(i, ()) for i in range(of_source.num_rows)]


def _spots(page: pa.RecordBatch) -> list[Spot]:
    names = ("source", "topic", "partition", "batch", "offset")
    return [Spot(*row) for row in zip(*(page.column(name).to_pylist() for name in names), strict=True)]
