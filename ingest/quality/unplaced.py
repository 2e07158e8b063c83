"""Changes that lose because they have no position, or that of an earlier time: rows that were read or loaded again, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ingest.change import NULL_VALUE
from ingest.errors import agreeing, counted
from ingest.order import is_weak, loaded_sql, order_of, place_sql, stream_sql, weak_sql
from ingest.quality.catalogue import Metric
from ingest.quality.ordered_lane import OrderedLane
from ingest.quality.ways_out import decoded_again
from ingest.tables import duck
from ingest.tables.snapshots import read_sql

_ARRIVAL = 'batch, topic, "partition", "offset", order_key'


def unplaced_changes(ordered: OrderedLane) -> Iterator[Metric]:
    """Changes without a position among others, and rows that were read or loaded in vain."""
    table = ordered.lane.table
    lost = _lost_reads(ordered) if ordered.lane.reads else _LostReads()
    unplaced = _unplaced(ordered) + lost.unplaced
    if lost.placed:
        places = lost.places(ordered)
        detail = (
            f"{counted(lost.placed, 'row')} of {table} read again lost against changes that came before: to let what was read win, "
            f"{ordered.epoch_of_load(lost.batch, places)}"
        )
        severity = "error" if lost.newest else "warn"
        typed = ordered.epoch_command(lost.batch, places)
        yield ordered.metric("re_reads_ignored", lost.placed, detail, severity=severity, command=typed)
    if unplaced:
        detail = (
            f"{counted(unplaced, 'change')} of {table} came without a position after others with one, and so counts as "
            f"the older: write `order_by: arrival` under the options of source {ordered.lane.source}, then run {decoded_again(ordered.lake)}"
        )
        yield ordered.metric("unplaced_changes", unplaced, detail)
    if ordered.lane.reads:
        yield from _loaded_in_vain(ordered)


def _unplaced(ordered: OrderedLane) -> int:
    """The number of new changes and statements without a position that arrived after a change with one."""
    lane = ordered.lane
    before = bool(lane.folded_high) and not is_weak(lane.folded_high)
    placed = before or (bool(lane.order_high) and not is_weak(lane.order_high))
    if not placed:
        return 0
    new = [row["order_key"] for row in ordered.statements if row["batch"] > ordered.since]
    lows = [*new, lane.order_low] if lane.order_low else new
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
    newest: str | None = None  # the place of those that have a newer position than what they lost against

    def places(self, ordered: OrderedLane) -> list[str]:
        """Where their load begins, as options of `ingest epoch`, if its position tells."""
        return ordered.places_of(ordered.begin_of_load(self.newest)) if self.newest else []


def _lost_reads(ordered: OrderedLane) -> _LostReads:
    """The rows read in new batches that differ from a change of their key which arrived before but is ordered after them.

    A row is right if the stream says the same somewhere after its place: it was read from what the stream had changed. One
    that says the same at the same place as before is that one, sent again.
    What a snapshot of the source itself reads has a place that was chosen before the changes that beat it.

    Rows of PostgreSQL's snapshots come before all changes, whatever their positions are, so those of a second one lose even
    within a batch. There files may come in any order, and a row has lost only if its position says so, too.
    """
    lane = ordered.lane
    if not ordered.subject.keyed or not (lane.is_late or _are_behind_changes(ordered)):
        return _LostReads()
    [lost] = ordered.lake.ask(
        f"""WITH rows AS (SELECT batch, op, order_key, topic, "partition" AS part, "offset", coalesce(after, '') AS after,
            [{ordered.cells("after", "before")}] AS k FROM {{changes.change}} WHERE op <> 'truncate' AND {ordered.where}),
        news AS (SELECT k, max(struct_pack(order_key, after, batch, topic, part, "offset")) AS last FROM rows
            WHERE op = 'read' AND batch > {ordered.since} AND NOT {read_sql()} AND NOT EXISTS (SELECT 1 FROM rows AS o
                WHERE o.op = 'read' AND o.batch <= {ordered.since} AND o.k = rows.k AND o.after = rows.after
                AND {place_sql("o.order_key")} = {place_sql("rows.order_key")}) GROUP BY k),
        later AS (SELECT n.k, n.last AS read, r.batch, r.order_key, r.after, {_is_newer("n.last", "r")} AS is_newer,
            {_is_before("r", "n.last")} AS is_before FROM news AS n JOIN rows AS r ON n.k = r.k
            AND r.order_key > n.last.order_key AND r.order_key > {duck.text(lane.order_low)}),
        beaten AS (SELECT k, read, max(struct_pack(order_key, after, is_newer)) AS change FROM later
            WHERE batch <= {ordered.since} OR (is_before AND is_newer) GROUP BY k, read),
        lost AS (SELECT k, read.order_key AS order_key, read.after AS after, read.batch AS batch, change.is_newer AS is_newer
            FROM beaten WHERE NOT {ordered.says_same("change.after", "read.after")}),
        said AS (SELECT DISTINCT l.k FROM lost AS l JOIN rows AS r ON r.k = l.k AND r.batch > {ordered.since}
            AND r.order_key > l.order_key AND {ordered.says_same("r.after", "l.after")})
        SELECT count(*) FILTER (NOT unplaced) AS placed, count(*) FILTER (unplaced) AS unplaced,
            min(batch) FILTER (NOT unplaced) AS batch, max({place_sql("order_key")}) FILTER (is_newer) AS newest
        FROM (SELECT batch, order_key, is_newer, {weak_sql("order_key")} AND NOT {loaded_sql("order_key")} AS unplaced
            FROM lost ANTI JOIN said USING (k)) AS counted"""
    )
    return _LostReads(**lost)


def _is_before(change: str, read: str) -> str:
    """SQL: true if a change arrived before a row that was read, in the same stream."""
    same = " AND ".join(f"{change}.{column} = {read}.{column}" for column in ("batch", "topic", "part"))
    return f'({same} AND {change}."offset" < {read}."offset")'


def _is_newer(read: str, change: str) -> str:
    """SQL: true if the position of a row that was read says that it is newer than a change."""
    key, other = f"{read}.order_key", f"{change}.order_key"
    return f"(NOT {weak_sql(key)} AND {stream_sql(key)} > {stream_sql(other)})"


def _are_behind_changes(ordered: OrderedLane) -> bool:
    """True if rows of a full load came after changes in a stream of a new batch."""
    if ordered.lane.reads == ordered.lane.changes:
        return False
    streams = ordered.lake.ask(
        f"""SELECT coalesce(min("offset") FILTER (op <> 'read') < max("offset") FILTER (op = 'read' AND {loaded_sql("order_key")}), false)
            AS is_behind FROM {{changes.change}} WHERE {ordered.where} AND batch > {ordered.since} GROUP BY topic, "partition", batch"""
    )
    return any(row["is_behind"] for row in streams)


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
    cleared = [row for row in clears(ordered) if row["order_key"] > ordered.lane.order_low]
    values = ", ".join(
        f"({row['batch']}, {duck.text(row['topic'])}, {duck.value(row.get('partition'))}, {row['offset']}, "
        f"{duck.text(row['order_key'])})"
        for row in cleared
    )
    streams = cleared and ordered.lake.ask(
        f"""WITH clears(batch, topic, "partition", "offset", order_key) AS (VALUES {values}),
        loaded AS (SELECT {_ARRIVAL}, "row" FROM {{changes.change}} WHERE op = 'read' AND batch > {ordered.since}
            AND {ordered.where} AND {loaded_sql("order_key")}),
        lost AS (SELECT r.batch, r.topic, r."partition" AS part, r."offset", r."row",
            bool_or({_is_newer("r", "c")}) AS is_newer FROM loaded AS r JOIN clears AS c ON c.order_key > r.order_key AND (c.batch < r.batch OR (
            c.batch = r.batch AND c.topic = r.topic AND c."partition" IS NOT DISTINCT FROM r."partition"
            AND c."offset" < r."offset"))
            GROUP BY r.batch, r.topic, r."partition", r."offset", r."row")
        SELECT batch, topic, part, min("offset") AS first, count(*) AS n, bool_or(is_newer) AS are_newer
        FROM lost GROUP BY batch, topic, part ORDER BY batch, part, topic"""
    )
    if not streams:
        return
    first, places = streams[0]["batch"], list[str]()
    # it must begin after the statement, in the middle of the batch
    if any(row["batch"] == first for row in cleared):
        places = ordered.places_of([row for row in streams if row["batch"] == first])
    n = sum(row["n"] for row in streams)
    detail = (
        f"{counted(n, 'row')} of {ordered.lane.table}, loaded after a TRUNCATE, CREATE or RENAME of the table, {agreeing(n, 'is', 'are')} not in "
        "the mirror: rows of a full load have no position, so they come before all statements. To let them win, "
        f"{ordered.epoch_of_load(first, places)}"
    )
    severity = "error" if any(row["are_newer"] for row in streams) else "warn"
    typed = ordered.epoch_command(first, places)
    yield ordered.metric("re_reads_ignored", n, detail, severity=severity, command=typed)
