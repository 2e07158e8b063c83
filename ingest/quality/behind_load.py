"""Changes that were written before a later load and committed after it: by their positions they lose against its rows."""

from __future__ import annotations

from ingest.order import same_place
from ingest.quality.not_loaded import LoadBegin, is_older
from ingest.quality.ordered_lane import OrderedLane
from ingest.tables import duck

_CLOCK = "epoch_us(event_time)"


def lost_behind_load(ordered: OrderedLane, place: str) -> int:
    """The number of rows whose last change before the load at a place arrived after the load, and says other than it.

    A stream that is sent again from before the load says other than it, too, until it has come to the load's position. So a
    change counts that is newer than the load by the source's clock, or has none, and any as soon as the stream has passed
    the load: from there on all that was committed before it has come.
    """
    lane = ordered.lane
    if not ordered.subject.keyed or not lane.order_high or not lane.changes:
        return 0
    begun = ordered.begin_of_load(place)
    if not begun:  # its rows were removed
        return 0
    passed = same_place(lane.order_high) > place
    has_passed_before = bool(lane.folded_high) and same_place(lane.folded_high) > place
    is_new = "true" if passed and not has_passed_before else f"last.batch > {ordered.since}"
    is_newer = "true" if passed or has_passed_before else "coalesce(last.clock >= begun.clock, false)"
    older = is_older(LoadBegin.at(begun[0]), begun, in_files=ordered.in_files)
    [lost] = ordered.lake.ask(
        f"""WITH rows AS (SELECT batch, op, order_key, coalesce(after, '') AS after, {_CLOCK} AS clock, {older} AS is_older,
            starts_with(order_key, {duck.text(place)}) AND op = 'read' AS is_loaded, [{ordered.cells("after", "before")}] AS k
            FROM {{changes.change}} WHERE op <> 'truncate' AND {ordered.where}),
        load AS (SELECT k, max(struct_pack(order_key, after)) AS read FROM rows WHERE is_loaded GROUP BY k),
        begun AS (SELECT min(clock) AS clock FROM rows WHERE is_loaded),
        earlier AS (SELECT k, max(struct_pack(order_key, after, batch, clock)) AS last FROM rows
            WHERE NOT is_older AND op <> 'read' AND order_key < {duck.text(place)} GROUP BY k)
        SELECT count(*) AS n FROM earlier JOIN load USING (k) CROSS JOIN begun
        WHERE NOT {ordered.says_same("last.after", "read.after")} AND {is_new} AND {is_newer}
        AND k NOT IN (SELECT k FROM rows WHERE order_key > {duck.text(place)} AND NOT is_loaded)"""
    )
    return int(lost["n"])


def newest_of_stream(ordered: OrderedLane, place: str) -> str | None:
    """The newest place of the changes of earlier batches that no load gave."""
    [high] = ordered.lake.ask(
        f"""SELECT max(order_key) AS place FROM {{changes.change}} WHERE {ordered.where} AND batch <= {ordered.since}
        AND NOT (op = 'read' AND starts_with(order_key, {duck.text(place)}))"""
    )
    return None if high["place"] is None else str(high["place"])
