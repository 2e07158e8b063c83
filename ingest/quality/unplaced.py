"""Changes that lose because they have no position, or that of an earlier time: rows that were read or loaded again, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ingest.change import NULL_VALUE
from ingest.lake import duck
from ingest.lake.snapshots import read_sql
from ingest.order import is_weak, loaded_sql, order_of, weak_sql
from ingest.quality.catalogue import Metric
from ingest.quality.ordered_lane import OrderedLane, from_places

_ARRIVAL = 'batch, topic, "partition", "offset", order_key'


def unplaced_changes(ordered: OrderedLane) -> Iterator[Metric]:
    """Changes without a position among others, and rows that were read or loaded in vain."""
    table = ordered.lane.table
    lost = _lost_reads(ordered) if ordered.lane.reads else _LostReads()
    unplaced = _unplaced(ordered) + lost.unplaced
    if lost.placed:
        detail = (
            f"{lost.placed} rows of {table} that were read again lost against changes folded earlier: to let them win, "
            f"{ordered.epoch_of_load(lost.batch)}"
        )
        yield ordered.metric("re_reads_ignored", lost.placed, detail)
    if unplaced:
        detail = (
            f"{unplaced} changes of {table} have no position while others before them have one, so they come "
            f"before these: write `order_by: arrival` under the options of source {ordered.lane.source}, then run {ordered.backfill()}"
        )
        yield ordered.metric("unplaced_changes", unplaced, detail)
    if ordered.lane.reads:
        yield from _loaded_in_vain(ordered)


def _unplaced(ordered: OrderedLane) -> int:
    """The number of new changes and statements without a position that arrived after a change with one."""
    lane = ordered.lane
    before = bool(lane.folded_high) and not is_weak(lane.folded_high or "")
    placed = before or (lane.order_high is not None and not is_weak(lane.order_high))
    if not placed:
        return 0
    new = [row["order_key"] for row in ordered.statements if row["batch"] > ordered.since]
    lows = new if lane.order_low is None else [*new, lane.order_low]
    if not any(is_weak(key) and order_of(key).phase == 1 for key in lows):
        return 0
    late = "true" if before else 'f.batch IS NOT NULL AND (r.batch, r."offset") > (f.batch, f."offset")'
    rows = ordered.lake.ask(
        f"""WITH rows AS (SELECT op, topic, "partition", batch, "offset", {weak_sql("order_key")} AS weak, note
            FROM {{changes}} WHERE kind IN ('change', 'ddl') AND batch > {ordered.since} AND {ordered.where}),
        places AS (SELECT topic, "partition", batch, "offset", row_number() OVER (
            PARTITION BY topic, "partition" ORDER BY batch, "offset") AS number FROM rows WHERE NOT weak)
        SELECT count(*) AS n FROM (SELECT DISTINCT r.batch, r.topic, r."partition", r."offset"
            FROM rows AS r LEFT JOIN places AS f ON r.topic = f.topic AND r."partition" = f."partition" AND f.number = 1
            WHERE r.weak AND r.op <> 'read' AND NOT coalesce(r.note LIKE '%{NULL_VALUE}%', false) AND {late}) AS late"""
    )
    return int(rows[0]["n"])


class _LostReads(NamedTuple):
    """The number of rows read in new batches that lost against older changes."""

    placed: int = 0  # they have a place of their own, or that of a full load
    unplaced: int = 0  # they have none, so all changes with a position come after them
    batch: int | None = None  # the first of the placed ones


def _lost_reads(ordered: OrderedLane) -> _LostReads:
    """The rows read in new batches that differ from a change of their key which arrived before but is ordered after them.

    A row is right if the stream says the same somewhere after its place: it was read from what the stream had changed.
    What a snapshot of the source itself reads has a place that was chosen before the changes that beat it.
    """
    lane = ordered.lane
    if not ordered.subject.keyed or not lane.is_late:
        return _LostReads()
    [lost] = ordered.lake.ask(
        f"""WITH rows AS (SELECT batch, op, order_key, topic, coalesce(after, '') AS after, [{ordered.cells("after", "before")}] AS k
            FROM {{changes.change}} WHERE op <> 'truncate' AND {ordered.where}),
        news AS (SELECT k, max(struct_pack(order_key, after, batch)) AS last FROM rows
            WHERE op = 'read' AND batch > {ordered.since} AND NOT {read_sql()} GROUP BY k),
        olds AS (SELECT k, max(struct_pack(order_key, after)) AS last FROM rows
            WHERE batch <= {ordered.since} AND order_key > {duck.text(lane.order_low or "")} GROUP BY k),
        lost AS (SELECT n.k, n.last.order_key AS order_key, n.last.after AS after, n.last.batch AS batch
            FROM news AS n JOIN olds AS o ON n.k = o.k
            WHERE o.last.order_key > n.last.order_key AND NOT {_says_same("o.last.after", "n.last.after")}),
        said AS (SELECT DISTINCT l.k FROM lost AS l JOIN rows AS r ON r.k = l.k AND r.batch > {ordered.since}
            AND r.order_key > l.order_key AND {_says_same("r.after", "l.after")})
        SELECT count(*) FILTER (NOT unplaced) AS placed, count(*) FILTER (unplaced) AS unplaced,
            min(batch) FILTER (NOT unplaced) AS batch
        FROM (SELECT batch, {weak_sql("order_key")} AND NOT {loaded_sql("order_key")} AS unplaced
            FROM lost ANTI JOIN said USING (k)) AS counted"""
    )
    return _LostReads(**lost)


def _says_same(change: str, read: str) -> str:
    """SQL: true if all cells that a change carries are those of a row that was read; a delete carries none."""
    return f"({change} <> '' AND json_contains({read}, {change}))"


def clears(ordered: OrderedLane) -> list[Mapping[str, Any]]:
    """Each TRUNCATE, CREATE or RENAME that removes a lane's rows: its place, and where it arrived."""
    emptied: list[Mapping[str, Any]] = []
    if ordered.lane.truncates_ever:
        emptied += ordered.lake.ask(
            f"SELECT {_ARRIVAL} FROM {{changes.change}} WHERE op = 'truncate' AND {ordered.where}"
        )
    places = {str(step.order) for step, _batch in ordered.taken() if step.empties}
    emptied += [row for row in ordered.statements if row["order_key"] in places]
    return [row for row in emptied if row.get("topic") is not None]  # not what an epoch has cleared


def _loaded_in_vain(ordered: OrderedLane) -> Iterator[Metric]:
    """The number of rows of a full load that arrived after their table was emptied, but come before that.

    They have no place among the changes, so they come before all of them, as those of a first load must.
    """
    cleared = [row for row in clears(ordered) if row["order_key"] > (ordered.lane.order_low or "")]
    values = ", ".join(
        f"({row['batch']}, {duck.text(row['topic'])}, {duck.value(row.get('partition'))}, {row['offset']}, "
        f"{duck.text(row['order_key'])})"
        for row in cleared
    )
    streams = cleared and ordered.lake.ask(
        f"""WITH clears(batch, topic, "partition", "offset", order_key) AS (VALUES {values}),
        loaded AS (SELECT {_ARRIVAL}, "row" FROM {{changes.change}} WHERE op = 'read' AND batch > {ordered.since}
            AND {ordered.where} AND {loaded_sql("order_key")}),
        lost AS (SELECT DISTINCT r.batch, r.topic, coalesce(r."partition", 0) AS part, r."offset", r."row" FROM loaded AS r
            JOIN clears AS c ON c.order_key > r.order_key AND (c.batch < r.batch OR (
            c.batch = r.batch AND c.topic = r.topic AND c."partition" IS NOT DISTINCT FROM r."partition"
            AND c."offset" < r."offset")))
        SELECT batch, topic, part, min("offset") AS first, count(*) AS n FROM lost GROUP BY ALL ORDER BY batch, part, topic"""
    )
    if not streams:
        return
    first, places = streams[0]["batch"], list[str]()
    # it must begin after the statement, in the middle of the batch
    if any(row["batch"] == first for row in cleared):
        begun = [row for row in streams if row["batch"] == first]
        places = from_places(begun[:1] if ordered.source.kind == "files" else begun)
    n = sum(row["n"] for row in streams)
    detail = (
        f"{n} rows of {ordered.lane.table} were loaded after a TRUNCATE, CREATE or RENAME of the table, and are not in "
        "the mirror: rows of a full load have no position, so they come before all statements. To let them win, "
        f"{ordered.epoch_of_load(first, places)}"
    )
    yield ordered.metric("re_reads_ignored", n, detail)
