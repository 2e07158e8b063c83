"""Messages of erased rows that came after the erasure: silver writes nothing of them, and here they leave bronze.

The books say in which batches a barrier has stopped something; the messages of these are decoded again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ingest.erase.remove import Removal
from ingest.erase.replacements import SEALED, Replacing, opened, replay_row, rows_of
from ingest.ledgers import barriers, decisions, sealing
from ingest.ledgers.decisions import ERASED_LATE, Decision
from ingest.ledgers.rejects import PLACE, REPLAY
from ingest.ledgers.starts import parted
from ingest.silver import split_lookup
from ingest.silver.decode import lifting
from ingest.silver.lift import INPUT, SourceDecoder
from ingest.silver.messages import of_batches
from ingest.silver.split_messages import Spot
from ingest.tables import duck
from ingest.tables.lake import Lake
from ingest.tables.schemas import BOOKS, BRONZE
from ingest.tables.tables import Row, Tables

_COLUMNS = BRONZE.part(*INPUT)


def erase(lake: Lake) -> int:
    """Replace the messages of erased rows that came late, and say how many they were.

    Args:
        lake: the lake, whose lock the caller holds.
    """
    if not lake.is_folder or not barriers.read(lake).lanes:
        return 0
    newest = decisions.read(lake).newest(ERASED_LATE).get(BRONZE.name)
    since, last = int(newest.value["batch"]) if newest else 0, lake.decoded()
    replaced: list[tuple[Any, ...]] = []
    for batch in _batches(lake, since, last):
        replaced += _replaced(lake, batch)
    if not replaced:
        return 0
    removal = Removal.of(lake)
    removal.details(
        {row[: len(PLACE)] for row in replaced}
    )  # first: of what is replaced nothing is found again
    removal.messages(replaced)
    messages = sum(1 for row in replaced if row[5] != REPLAY)
    decisions.append(lake, [Decision(ERASED_LATE, BRONZE.name, {"batch": last, "messages": messages}, last)])
    return messages


def _batches(lake: Tables, since: int, last: int) -> list[int]:
    """The batches in which a barrier has stopped something."""
    if "erased" not in lake.snapshot(BOOKS.name).columns:  # no run of this version has decoded anything yet
        return []
    rows = lake.ask(
        f"SELECT DISTINCT batch FROM {{books}} WHERE erased > 0 AND batch > {since} AND batch <= {last} ORDER BY batch"
    )
    return [row["batch"] for row in rows]


def _replaced(lake: Lake, batch: int) -> Iterator[tuple[Any, ...]]:
    """Replacements of a batch's messages, including those that it has replayed, and of these replays."""
    names = ", ".join(map(duck.name, INPUT))
    rows = lake.ask(f"SELECT {names} FROM {{bronze.message}} WHERE batch = {batch}")
    replays = [
        (replay, Spot.of(replay | {"batch": json.loads(replay["value"])["batch"]}))
        for replay in lake.ask(f"SELECT {names} FROM {{bronze.{REPLAY}}} WHERE batch = {batch}")
    ]
    rows += rows_of(lake, [spot for _, spot in replays])
    keys = sealing.opener(lake)
    rows = [row for row in rows if not (keys.seals(row["batch"]) and keys.is_lost(row["value"]))]
    rows = [opened(keys, row) for row in rows]
    sealed = {Spot.of(row): row[SEALED] for row in rows if SEALED in row}
    wholes = split_lookup.wholes_of(lake, {row["batch"] for row in rows}, keys)
    how = lifting(lake, of_batches(lake, (batch, batch), 1), wholes)
    page = pa.RecordBatch.from_pylist(rows, schema=_COLUMNS)
    replacing, sources, stopped = Replacing(lake, keys, how.barriers, wholes), set[str](), set[Spot]()
    for name, epoch, part in parted(page, how.starts):
        decoder = SourceDecoder(replace(how, epochs={name: epoch}), name)
        for i, numbers in decoder.stopped_rows(part).items():
            row: Row = part.slice(i, 1).to_pylist()[0]
            if (spot := Spot.of(row)) in sealed:
                row[SEALED] = sealed[spot]
            if new := replacing.without(decoder, row, {*numbers}):
                yield from new
                sources.add(name)
                stopped.add(spot)
    for replay, spot in replays:
        if spot in stopped:
            yield replay_row(replay)
    yield from replacing.unread_parts(sources)
