"""Where epochs begin in bronze: the part that workers need, which imports no Spark.

A source's messages before its first start have epoch 0, those from the first start on epoch 1, and so on. Two starts may
name other partitions of one batch, and a message is in the epoch of the last start that it has reached. Epochs have no
stored numbers, so a start that is added later is sorted among the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ingest.order import Order, order_key


class MessagePlace(NamedTuple):
    """A message's place in bronze, within its source."""

    batch: int
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


@dataclass(frozen=True, slots=True)
class Start:
    """The start of an epoch: in the named partitions at their places, in all others with ``batch``."""

    batch: int
    places: tuple[MessagePlace, ...] = ()

    @property
    def first(self) -> int:
        """The oldest batch that may contain messages of the epoch."""
        return min([self.batch, *(place.batch for place in self.places)])

    def __str__(self) -> str:
        return ", ".join(map(str, self.places)) or f"batch {self.batch}"

    def to_json(self) -> str:
        """The start in the form of `decisions`; equal starts give equal texts."""
        return json.dumps({"batch": self.batch, "places": sorted(self.places)}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Start:
        members = json.loads(text)
        return cls(members["batch"], tuple(MessagePlace(*place) for place in members["places"]))

    def reached(self, rows: pa.RecordBatch) -> pa.Array:
        """A mask of one source's bronze rows at or after the start."""
        batch, topic, partition, offset = (
            rows.column(name) for name in ("batch", "topic", "partition", "offset")
        )
        is_after = pc.greater_equal(batch, self.batch)
        for place in self.places:
            of_place = pc.and_(pc.equal(topic, place.topic), pc.equal(partition, place.partition))
            later = pc.or_(
                pc.greater(batch, place.batch),
                pc.and_(pc.equal(batch, place.batch), pc.greater_equal(offset, place.offset)),
            )
            is_after = pc.if_else(of_place, later, is_after)
        return is_after


Starts = Mapping[str, Sequence[Start]]
"""The starts of each source, oldest first."""


def parted(rows: pa.RecordBatch, starts: Starts) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """Split bronze rows by source and epoch, in their order."""
    names = rows.column("source").unique().to_pylist()
    for name in names:
        of_source = rows if len(names) == 1 else rows.filter(pc.equal(rows.column("source"), name))
        for epoch, part in _by_epoch(of_source, starts.get(name, ())):
            yield name, epoch, part


def _by_epoch(rows: pa.RecordBatch, starts: Sequence[Start]) -> Iterator[tuple[int, pa.RecordBatch]]:
    reached = {number: start.reached(rows) for number, start in enumerate(starts, 1)}
    reached = {number: mask for number, mask in reached.items() if pc.any(mask).as_py()}
    if not reached:
        yield 0, rows
        return
    epochs = pa.array([0] * rows.num_rows, pa.int64())
    for number, mask in reached.items():
        epochs = pc.if_else(mask, number, epochs)
    for epoch in sorted(epochs.unique().to_pylist()):
        yield epoch, rows.filter(pc.equal(epochs, epoch))


def epoch_of(place: MessagePlace, starts: Sequence[Start]) -> int:
    """The epoch of a message of one source."""
    cells = {"batch": place.batch, "topic": place.topic, "partition": place.partition, "offset": place.offset}
    [(epoch, _)] = _by_epoch(pa.RecordBatch.from_pylist([cells]), starts)
    return epoch


def beginning(epoch: int) -> str:
    """The order key before all changes of an epoch and after all earlier ones."""
    return order_key(Order(epoch, 0, (), 0, (), 0))
