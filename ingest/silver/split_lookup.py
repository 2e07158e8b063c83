"""Find the parts of split messages that tasks or batches have separated; see `ingest.silver.split_messages`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from ingest.decoding.split import MessagePart
from ingest.lake import rejects
from ingest.lake.envelope import Opener
from ingest.lake.lake import Lake
from ingest.silver.messages import Messages, of_batches
from ingest.silver.split_messages import ROWS, PartSpot, Placed, Wholes, part_rows, put_together, splitting

REACH = 64  # batches before the ones to decode in which the first part of a message may have come


def wholes(lake: Lake, messages: Messages, opener: Opener, *, every: bool = False) -> Wholes:
    """What the parts among messages become that are not put together where they are decoded; with ``every`` what all become."""
    sources = {source.name: source.format for source in lake.pipeline.sources if splitting(source.format)}
    if not sources:
        return Wholes()
    every = every or messages.pieces is None  # Spark may read them in other portions the next time
    parts = _placed(messages.through(part_rows(opener.opened, sources, every=every), ROWS))
    first = min((spot.batch for spot in parts), default=0)
    if first > 1 and (begun := _topics_begun_before(parts)):
        earlier = of_batches(lake, (max(1, first - REACH), first - 1), messages.cores)
        parts |= _placed(earlier.through(part_rows(opener.opened, sources, begun, every=every), ROWS))
    return _union(
        put_together([placed for placed in parts.items() if placed[0].source == name], module.joined)
        for name, format_name in sources.items()
        if (module := splitting(format_name)) is not None
    )


def wholes_of(lake: Lake, batches: Iterable[int], opener: Opener) -> Wholes:
    """What all parts of some batches become, whose messages may begin in batches before them."""
    if not any(splitting(source.format) for source in lake.pipeline.sources):
        return Wholes()
    return _union(
        wholes(lake, of_batches(lake, (batch, batch), 1), opener, every=True) for batch in sorted(batches)
    )


def _union(several: Iterable[Wholes]) -> Wholes:
    read: dict[PartSpot, bytes] = {}
    closed: list[PartSpot] = []
    others: dict[PartSpot, tuple[PartSpot, ...]] = {}
    for each in several:
        read |= each.read
        closed += each.closed
        others |= each.others
    return Wholes(read, tuple(closed), others)


def _placed(rows: Iterable[Mapping[str, Any]]) -> dict[PartSpot, MessagePart | None]:
    return {
        PartSpot(*(row[name] for name in PartSpot._fields)): (
            None if row["data"] is None else MessagePart(row["number"], row["total"], bytes(row["data"]))
        )
        for row in rows
    }


def _topics_begun_before(parts: Mapping[PartSpot, MessagePart | None]) -> set[str]:
    """The topics in which the first part that was read is not the first one of its message."""
    ordered: list[Placed] = sorted(parts.items(), key=lambda placed: placed[0])
    firsts = (next(of_stream) for _, of_stream in groupby(ordered, key=lambda placed: placed[0][:3]))
    return {spot.topic for spot, part in firsts if part is not None and part.number}


def close(lake: Lake, parts: Sequence[PartSpot]) -> None:
    """Close the rejects of parts that are read with a last one of a later batch."""
    if parts and not lake.shadow:
        none = dict.fromkeys(("database", "schema", "table", "key", "column", "raw"))
        rows = [{**none, **spot._asdict(), "kind": "message", "reason": "split-message"} for spot in parts]
        rejects.dismiss(lake, rows, "read with the last part of their message")
