"""Positions of a source that start again, so that newer changes come before older ones."""

from __future__ import annotations

from collections.abc import Iterator

from ingest.change import LaneId, lane_of
from ingest.errors import counted
from ingest.order import is_weak, last_repeat, phase_of, place_sql, same_place
from ingest.quality.behind_load import lost_behind_load, newest_of_stream
from ingest.quality.catalogue import FAILING_KEYS, Metric
from ingest.quality.ordered_lane import OrderedLane, from_places
from ingest.tables import duck
from ingest.tables.lake import Lake
from ingest.tables.live_rows import under_both_keys
from ingest.tables.snapshots import CARRIED_SQL

_ARRIVAL_KEY = f"substr(order_key, length({place_sql('order_key')}) + 1)"


def restarted(ordered: OrderedLane) -> Iterator[Metric]:
    """Changes that come before older ones, as if the positions had started again."""
    load = ordered.later_load
    yield from _old(ordered, load)
    yield from _lost(ordered, load)


def _old(ordered: OrderedLane, load: str | None) -> Iterator[Metric]:
    """Complains of new changes that all come before what the mirror has."""
    lane = ordered.lane
    folded: str | None = lane.folded_high
    low, high = lane.order_low, lane.order_high
    if load and folded and low and low < same_place(folded):
        folded = newest_of_stream(ordered, load)  # it may be sent again from before its load
    # loaded rows come before all changes, whenever they come
    is_placed = high and not is_weak(high) and phase_of(high)
    if low and high and folded and is_placed and high < same_place(folded) and (late := _sent(ordered)):
        detail = (
            f"what came of {lane.table} since batch {ordered.since} ({counted(late, 'change')}) comes before what the "
            "mirror has already. If it is only late, nothing is to be done; if the positions started again, "
            f"{ordered.epoch(ordered.since + 1)}"
        )
        yield ordered.metric("old_positions", late, detail, _new_keys(ordered))


def _sent(ordered: OrderedLane) -> int:
    """The number of new changes that are the source's, and the first of their kind.

    Rows of a renamed table are carried over to the place of its statement, and what says the same at the same place and
    moment as an earlier change is that change, sent again.
    """
    columns = f'{place_sql("order_key")}, op, before, after, event_time, "row"'
    low, high = same_place(ordered.lane.order_low), last_repeat(ordered.lane.order_high)
    among = f"{ordered.where} AND order_key BETWEEN {duck.text(low)} AND {duck.text(high)}"
    [said] = ordered.lake.ask(
        f"""SELECT count(*) AS n FROM (
            SELECT {columns} FROM {{changes.change}} WHERE {among} AND batch > {ordered.since} AND NOT {CARRIED_SQL}
            EXCEPT SELECT {columns} FROM {{changes.change}} WHERE {among} AND batch <= {ordered.since}) AS said"""
    )
    return int(said["n"])


def _lost(ordered: OrderedLane, load: str | None) -> Iterator[Metric]:
    """Complains of new changes that have lost against older ones: with a load, against it or the stream beyond it."""
    lane = ordered.lane
    if load and (lost := lost_behind_load(ordered, load)) and not _started_again(ordered, beyond=load):
        places = ordered.places_of(ordered.begin_of_load(load))
        detail = (
            f"changes of {counted(lost, 'row')} of {lane.table} came after its last load and lost against it: they were written before "
            "the load and committed after it, so their positions are lower. To let them win, "
            f"{ordered.epoch_of_load(None, places)}"
        )
        typed = ordered.epoch_command(places=places)
        yield ordered.metric("positions_started_again", lost, detail, command=typed)
    elif lost := _started_again(ordered):
        typed = ordered.epoch_command(places=_first_of_each_stream(ordered), loaded=False)
        detail = (
            f"{counted(lost, 'change')} of {lane.table}, newer by the source's clock than all changes before, lost "
            "against older ones with higher positions, as if the source's positions had started again: "
            f"`{typed}` places them after everything before"
        )
        yield ordered.metric("positions_started_again", lost, detail, command=typed)


def _new_keys(ordered: OrderedLane) -> tuple[str, ...]:
    """The keys of a few new changes as JSON; none if there are more, or a key changes: then not all could be named."""
    if not ordered.subject.keyed or ordered.lane.changes > FAILING_KEYS:
        return ()
    rows = ordered.lake.ask(
        f"""SELECT DISTINCT [{ordered.cells("before", "after")}] AS was, [{ordered.cells("after", "before")}] AS k
        FROM {{changes.change}} WHERE {ordered.where} AND batch > {ordered.since} AND op <> 'truncate'
        AND NOT {CARRIED_SQL} ORDER BY k"""
    )
    is_moved = any(row["was"] != row["k"] for row in rows)
    return () if is_moved else ordered.named(row["k"] for row in rows)


def _started_again(ordered: OrderedLane, beyond: str = "") -> int:
    """The number of new changes that are newer by the source's clock than all before them, but placed before an earlier
    change of their key, or a truncate.

    Before them are earlier batches, and what came before in their batch: of a topic, through their partition.

    Neither repeated nor late changes are newer than everything before. A statement that waited for a lock has an older
    time than its position, so a late change may look newer than all before it; but not than a change of its own row.

    With ``beyond`` the earlier change is one of the stream beyond that place: who waits for a row that another has written
    writes it at a higher position, so none that is newer has a lower one.
    """
    lane = ordered.lane
    if not lane.order_low or ordered.is_weak or not ordered.subject.keyed:
        return 0
    several = ordered.in_files and lane.several_new_topics
    if not (lane.floor or lane.turned_back or (several and lane.id in ordered.turned())):
        return 0
    newest, doubtful = _newer_and_lower(ordered, ordered.where)
    [first] = ordered.lake.ask(f"WITH {newest} SELECT min(order_key) AS low FROM ({doubtful}) AS c")
    if first["low"] is None:
        return 0
    left, new = ordered.cells("before", "after"), ordered.cells("after", "before")
    one_stream = "".join(f" AND o.{name} IS NOT DISTINCT FROM n.{name}" for name in ordered.stream_columns)
    came_before = f"(o.batch < n.batch OR (o.batch = n.batch AND o.arrival < n.arrival{one_stream}))"
    columns = ("batch", "topic", '"partition"', "arrival", "op", "order_key", "after")
    is_beyond = f" AND o.op <> 'read' AND o.order_key > {duck.text(beyond)}" if beyond else ""
    [lost] = ordered.lake.ask(
        f"""WITH {newest}, news AS ({doubtful}),
        c AS (SELECT batch, topic, "partition", {_ARRIVAL_KEY} AS arrival, op, order_key, coalesce(after, '') AS after,
            concat_ws('\n', {left}) AS left_key, concat_ws('\n', {new}) AS k
            FROM {{changes.change}} WHERE {ordered.where} AND order_key >= {duck.text(first["low"])}),
        keyed AS ({under_both_keys("c", columns)})
        SELECT count(DISTINCT order_key) AS n FROM (
            SELECT order_key FROM news WHERE op = 'truncate'
            UNION ALL SELECT n.order_key FROM news AS n JOIN c AS o ON {came_before}
            WHERE o.op = 'truncate' AND o.order_key > n.order_key
            UNION ALL SELECT n.order_key FROM keyed AS n JOIN keyed AS o ON n.k = o.k AND {came_before}
            WHERE n.order_key IN (SELECT order_key FROM news) AND o.op <> 'truncate'
            AND o.order_key > n.order_key AND o.after <> n.after{is_beyond}) AS lost"""
    )
    return int(lost["n"])


def _newer_and_lower(ordered: OrderedLane, of_lanes: str) -> tuple[str, str]:
    """SQL: what came before the new changes of each lane, and those that are newer than it and placed before its end."""
    same = duck.same(duck.LANE, "c", "e")
    before = f"""batches AS (SELECT {duck.LANE_SQL}, batch, max(event_high) AS newest, max(order_high) AS high
            FROM {{books}} WHERE changes > 0 AND {of_lanes} GROUP BY {duck.LANE_SQL}, batch),
        earlier AS (SELECT {duck.LANE_SQL}, batch, max(newest) OVER before_it AS newest, max(high) OVER before_it AS high
            FROM batches WINDOW before_it AS (
                PARTITION BY {duck.LANE_SQL} ORDER BY batch ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)),
        fresh AS (SELECT *, max(event_time) OVER before_it AS newest, max(order_key) OVER before_it AS high
            FROM (SELECT {duck.LANE_SQL}, batch, topic, "partition", "offset", op, order_key, event_time, {_ARRIVAL_KEY} AS arrival
                FROM {{changes.change}} WHERE batch > {ordered.since} AND {of_lanes}) AS each
            WINDOW before_it AS (PARTITION BY {", ".join((duck.LANE_SQL, "batch", *ordered.stream_columns))}
                ORDER BY arrival ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))"""
    # changes of one transaction have one time: each is newer than all with higher positions, but not than those of its own
    stream = (*duck.LANE, "batch", *(name.strip('"') for name in ordered.stream_columns), "event_time")
    doubtful = f"""SELECT c.batch, c.topic, c."partition", c."offset", c.arrival, c.op, c.order_key
        FROM fresh AS c LEFT JOIN earlier AS e ON c.batch = e.batch AND {same}
        WHERE c.op <> 'read' AND c.order_key < greatest(coalesce(c.high, e.high), coalesce(e.high, c.high))
        AND (c.newest IS NULL OR c.event_time >= c.newest) AND (e.newest IS NULL OR c.event_time > e.newest)
        AND (c.newest IS NOT NULL OR e.newest IS NOT NULL)
        AND NOT EXISTS (SELECT 1 FROM fresh AS p WHERE {duck.same(stream, "p", "c")}
            AND p.arrival < c.arrival AND p.order_key > c.order_key)"""
    return before, doubtful


def turned_files(lake: Lake, since: int) -> set[LaneId]:
    """The lanes of which one file of a new batch has only newer changes than another one, and lower positions."""
    same = duck.same((*duck.LANE, "batch"), "a", "b")
    rows = lake.ask(
        f"""WITH lines AS (SELECT {duck.LANE_SQL}, batch, order_low, order_high, event_low, event_high
            FROM {{books}} WHERE batch > {since} AND changes > 0)
        SELECT DISTINCT a.source, a.database, a."schema", a."table" FROM lines AS a JOIN lines AS b ON {same}
        WHERE b.order_low < a.order_high AND b.event_low > a.event_high"""
    )
    return {lane_of(row) for row in rows}


def _first_of_each_stream(ordered: OrderedLane) -> list[str]:
    """Where a source's positions started again, as options of `ingest epoch`."""
    newest, doubtful = _newer_and_lower(ordered, f"source = {duck.text(ordered.lane.source)}")
    places = ordered.lake.ask(
        f"""WITH {newest} SELECT topic, "partition" AS part, min("offset") AS first
        FROM ({doubtful}) AS c GROUP BY topic, "partition" ORDER BY topic, part"""
    )
    return from_places(places)
