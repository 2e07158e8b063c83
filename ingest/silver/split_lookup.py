"""Find the parts of split messages that tasks or batches have separated; see `ingest.silver.split_messages`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame

from ingest.decoding.split import MessagePart
from ingest.silver.lift import INPUT
from ingest.silver.messages import Messages, of_batches
from ingest.silver.split_messages import ROWS, Spot, Wholes, part_rows, put_together, splitting
from ingest.store.envelope import Opener
from ingest.tables.lake import Lake

Parts = dict[Spot, MessagePart]


def wholes(lake: Lake, messages: Messages, opener: Opener) -> Wholes:
    """What the parts among messages of whole batches become that are not put together where they are decoded."""
    every = messages.pieces is None  # Spark may read them in other portions the next time
    return _put_together(lake, _parts(_part_rows(lake, messages, opener, every=every)))


def wholes_of(lake: Lake, batches: Iterable[int], opener: Opener) -> Wholes:
    """What all parts of some batches become, also of messages that only these batches have separated."""
    return parts_of(lake, batches, opener)[1]


def parts_of(lake: Lake, batches: Iterable[int], opener: Opener) -> tuple[Parts, Wholes]:
    """All parts of some batches, and what they become, also of messages that only these batches have separated."""
    if not _formats(lake):
        return {}, Wholes()
    several = (of_batches(lake, (batch, batch), 1) for batch in sorted(batches))
    parts = _parts(row for messages in several for row in _part_rows(lake, messages, opener, every=True))
    return parts, _put_together(lake, parts, over_batches=True)


def wholes_of_replay(lake: Lake, rows: DataFrame, opener: Opener) -> Wholes:
    """What the parts among replayed messages of bronze become, together with those of their batches, which need not be replayed."""
    if not (sources := _formats(lake)):
        return Wholes()
    parts = rows.select(*INPUT).mapInArrow(part_rows(opener.opened, sources, every=True), ROWS)
    return wholes_of(lake, {row["batch"] for row in parts.select("batch").distinct().collect()}, opener)


def _formats(lake: Lake) -> dict[str, str]:
    """The format of each source that may send parts."""
    return {source.name: source.format for source in lake.pipeline.sources if splitting(source.format)}


def _part_rows(lake: Lake, messages: Messages, opener: Opener, *, every: bool) -> Iterator[Mapping[str, Any]]:
    if sources := _formats(lake):
        yield from messages.through(part_rows(opener.opened, sources, every=every), ROWS)


def _parts(rows: Iterable[Mapping[str, Any]]) -> Parts:
    """Rows of `ROWS` as parts."""
    return {
        Spot.of(row): MessagePart(row["number"], row["total"], bytes(row["data"]), row["size"])
        for row in rows
    }


def _put_together(lake: Lake, parts: Parts, *, over_batches: bool = False) -> Wholes:
    of_sources: dict[str, dict[Spot, MessagePart]] = {}
    for spot, part in parts.items():
        of_sources.setdefault(spot.source, {})[spot] = part
    read: dict[Spot, bytes] = {}
    others: dict[Spot, tuple[Spot, ...]] = {}
    for name, of_source in of_sources.items():
        module = splitting(lake.pipeline.by_source[name].format)
        assert module is not None
        done = put_together(of_source, module.joined, over_batches=over_batches)
        read |= done.read
        others |= done.others
    return Wholes(read, others)
