"""Where a table that was loaded again began to come: rows that the new load lacks are deleted by no message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

from ingest.change import LaneId, TableId
from ingest.config import target
from ingest.errors import command, counted
from ingest.ledgers import decisions, lanes, mirrors
from ingest.order import place_sql
from ingest.quality.ordered_lane import from_places
from ingest.quality.subjects import CheckedMirror
from ingest.store.names import mirror_path
from ingest.tables import duck
from ingest.tables.snapshots import read_sql
from ingest.tables.tables import Row, Tables


class _Load(NamedTuple):
    """A table's newest load that brought rows again: its messages begin in a batch, or within one that has older rows, too."""

    batch: int
    begun: Sequence[Row]  # its first messages, where the rows that it replaces are in the same batch


def advice(lake: Tables, subject: CheckedMirror) -> str:
    """What to do if rows that came again were a second load of a table, as a sentence before another; empty if none is found.

    A connector that has lost its place loads all of its tables: one command names those that began with the same batch.
    """
    for lane in subject.lanes:
        load = _load(lake, subject.decided.keys, lane.id)
        if load is None:
            continue
        tables = [lane.table]
        if load.begun:
            kinds = {source.name: source.kind for source in lake.pipeline.sources}
            begun = load.begun[:1] if kinds.get(lane.source) == "files" else load.begun
            where = from_places(begun)
            began = f"with message {' and '.join(where[1::2])}"
        else:
            loaded = _loaded_from(lake, lane.source, load.batch)
            if lane.table in loaded:
                tables = sorted(loaded, key=str)
            where, began = ["--from-batch", str(load.batch)], f"in batch {load.batch}"
        named = [word for table in tables for word in ("--resnapshot", str(table))]
        typed = command("epoch", lake.pipeline.file, lane.source, *where, *named, "--complete")
        others = f" and of {counted(len(tables) - 1, 'other table')} that began with it" if tables[1:] else ""
        return (
            f"If {lane.table} was loaded again, which began {began}, rows that the new load lacks are still in the mirror: "
            f"when it has come to its end, `{typed}` removes them{others}. "
        )
    return ""


def _loaded_from(lake: Tables, source: str, batch: int) -> frozenset[TableId]:
    """The source's tables of which most rows came again from a batch on; looked for once, for the checks of all these tables.

    Of a table with few such rows nothing says that it was loaded, and an epoch would remove all of its others.
    """
    state = lake.decoded(), decisions.read(lake)
    name = f"loaded from {batch} of {source}"
    return lake.made_once(name, state, lambda: frozenset(_loads_from(lake, source, batch)))


def _loads_from(lake: Tables, source: str, batch: int) -> Iterator[TableId]:
    by_path = mirrors.known(lake)
    for lane in lanes.booked(lake, f"source = {duck.text(source)} AND batch = {batch}"):
        mirror = by_path.get(mirror_path(target(lake.pipeline.rule(lane[1]), lane[1])))
        if mirror is None or not mirror.keys:
            continue
        first = [parts for parts in _batches(lake, mirror.keys, lane) if parts[0]["batch"] == batch]
        begins = bool(first) and all(part["again"] and not part["inside"] for part in first[0])
        if begins and _is_most(lake, mirror.keys, lane, batch):
            yield lane[1]


def _is_most(lake: Tables, keys: Sequence[str], lane: LaneId, batch: int) -> bool:
    """True if at least half of the rows that a table had before a batch have come again since."""
    [rows] = lake.ask(
        f"""WITH rows AS (SELECT batch, order_key, op, [{duck.cells(keys)}] AS k FROM {{changes.change}} WHERE op <> 'truncate' AND {duck.of_lane(*lane)}),
        newest AS (SELECT k, op, row_number() OVER (PARTITION BY k ORDER BY batch DESC, order_key DESC) AS n FROM rows WHERE batch < {batch}),
        before AS (SELECT k FROM newest WHERE n = 1 AND op <> 'delete'),
        again AS (SELECT k FROM before INTERSECT SELECT k FROM rows WHERE batch >= {batch} AND op IN ('insert', 'read'))
        SELECT (SELECT count(*) FROM before) AS before, (SELECT count(*) FROM again) AS again"""
    )
    return bool(2 * rows["again"] >= rows["before"] > 0)


def _load(lake: Tables, keys: Sequence[str], lane: LaneId) -> _Load | None:
    """The newest load of a lane's table that has rows of the mirror again, some of them with other values."""
    batches = _batches(lake, keys, lane)
    differing = [i for i, parts in enumerate(batches) if any(part["differs"] for part in parts)]
    if not differing:
        return None
    load = list(takewhile(lambda parts: any(part["again"] for part in parts), batches[differing[-1] :: -1]))
    first = [part for part in load[-1] if part["again"]]
    is_inside = any(part["inside"] for part in first)
    return _Load(first[0]["batch"], first if is_inside else [])


def _batches(lake: Tables, keys: Sequence[str], lane: LaneId) -> list[Sequence[Row]]:
    """The parts of each batch of a lane, in order of arrival: whether inserts met rows of their keys, and where a load began.

    What a snapshot of the source itself has read is no load: it says by itself what is to go.
    """
    arrival = f"coalesce(substr(order_key, length({place_sql('order_key')}) + 1), order_key)"
    rows = lake.ask(
        f"""WITH rows AS (SELECT batch, topic, "partition" AS part, "offset", op, after, [{duck.cells(keys)}] AS k,
            {arrival} AS arrival FROM {{changes.change}} WHERE op <> 'truncate' AND {duck.of_lane(*lane)}),
        placed AS (SELECT *, op IN ('insert', 'read') AND NOT {read_sql()} AND lag(op) OVER of_key <> 'delete' AS again, lag(batch) OVER of_key AS was_in,
            lag(topic) OVER of_key AS was_of, row_number() OVER (PARTITION BY k, after ORDER BY batch, arrival) = 1 AS is_new
            FROM rows WINDOW of_key AS (PARTITION BY k ORDER BY batch, arrival))
        SELECT batch, topic, part, coalesce(bool_or(again), false) AS again,
            coalesce(bool_or(again AND is_new), false) AS differs, coalesce(bool_or(again AND was_in = batch), false) AS inside,
            CASE WHEN bool_or(again AND was_in = batch AND was_of = topic) THEN min("offset") FILTER (again)
            ELSE min("offset") END AS first
        FROM placed GROUP BY batch, topic, part ORDER BY batch, part, topic"""
    )
    numbers = dict.fromkeys(row["batch"] for row in rows)
    return [[row for row in rows if row["batch"] == number] for number in numbers]
