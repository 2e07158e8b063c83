"""Where a table that was loaded again began to come: rows that the new load lacks are deleted by no message."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from ingest.errors import command
from ingest.lake import duck
from ingest.lake.snapshots import read_sql
from ingest.lake.tables import Row, Tables
from ingest.order import place_sql
from ingest.quality.ordered_lane import from_places
from ingest.quality.subjects import CheckedLane, CheckedMirror


def advice(lake: Tables, subject: CheckedMirror) -> str:
    """What to do if rows that came again were a second load of a table, as a sentence before another; empty if none is found."""
    for lane in subject.lanes:
        batches = _batches(lake, subject, lane)
        if differing := [i for i, parts in enumerate(batches) if any(part["differs"] for part in parts)]:
            load = list(
                takewhile(lambda parts: any(part["again"] for part in parts), batches[differing[-1] :: -1])
            )
            first = [row for row in load[-1] if row["again"]]
            batch, where = first[0]["batch"], ["--from-batch", first[0]["batch"]]
            if any(row["inside"] for row in first):  # the rows that it replaces are in the same batch
                kinds = {source.name: source.kind for source in lake.pipeline.sources}
                begun = first[:1] if kinds.get(lane.source) == "files" else first
                where = from_places(begun)
            typed = command(
                "epoch", lake.pipeline.file, lane.source, *where, "--resnapshot", lane.table, "--complete"
            )
            began = (
                f"with message {' and '.join(map(str, where[1::2]))}"
                if where[0] == "--from"
                else f"in batch {batch}"
            )
            return (
                f"If {lane.table} was loaded again, which began {began}, rows that the new load lacks are still in the mirror: "
                f"when it has come to its end, `{typed}` removes them. "
            )
    return ""


def _batches(lake: Tables, subject: CheckedMirror, lane: CheckedLane) -> list[Sequence[Row]]:
    """The parts of each batch of a lane, in order of arrival: whether inserts met rows of their keys, and where a load began.

    What a snapshot of the source itself has read is no load: it says by itself what is to go.
    """
    arrival = f"coalesce(substr(order_key, length({place_sql('order_key')}) + 1), order_key)"
    rows = lake.ask(
        f"""WITH rows AS (SELECT batch, topic, coalesce("partition", 0) AS part, "offset", op, after, [{duck.cells(subject.decided.keys)}] AS k,
            {arrival} AS arrival FROM {{changes.change}} WHERE op <> 'truncate' AND {duck.of_lane(lane.source, lane.table)}),
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
