"""Changes that came again where only arrival orders them."""

from __future__ import annotations

from collections.abc import Iterator

from ingest.quality.catalogue import FAILING_KEYS, Metric, key_json
from ingest.quality.ordered_lane import OrderedLane


def repeated(one: OrderedLane) -> Iterator[Metric]:
    """Repeated changes that may have made rows wrong."""
    if not one.is_weak or not one.subject.keyed:
        return
    table = one.lane.table
    if one.lane.key_changes and (moves := _repeated_moves(one)):
        detail = (
            f"{moves} updates of {table} that change the key and lack unchanged columns came again; what they "
            "lack was taken from the row that has the old key now: compare these rows with the source, or load "
            f"the table again with {one.epoch()}"
        )
        yield one.metric("repeated_moves", moves, detail)
    if one.lane.folded_high and (keys := _set_back(one)):
        detail = (
            f"{len(keys)} rows of {table} were set back: their last change came before, and a newer one since then; "
            "unless the source sends that one again, too, compare these rows with the source, or load the table "
            f"again with {one.epoch()}"
        )
        yield one.metric("rows_set_back", len(keys), detail, tuple(keys[:FAILING_KEYS]))


def _repeated_moves(one: OrderedLane) -> int:
    """The number of new partial updates that change the key, equal an earlier change, and found no row that it had moved.

    A position would place the repetition at the first one. By arrival it moves the row that has the old key at that
    time, and inherits from it what the message does not carry, unless the row that the first one moved is still there.
    """
    old, new = (", ".join(one.cells(*sides)) for sides in (("before", "after"), ("after", "before")))
    found = one.lake.ask(
        f"""WITH changes AS (SELECT batch, order_key, op, partial, "row" AS place, event_time, before, after,
            [{old}] AS left_key, CASE WHEN op <> 'delete' THEN [{new}] END AS new_key
            FROM {{changes.change}} WHERE {one.where}),
        moves AS (FROM changes WHERE op = 'update' AND partial AND left_key <> new_key)
        SELECT count(DISTINCT n.order_key) AS n FROM moves AS n JOIN moves AS o
            ON n.before = o.before AND n.after = o.after AND n.place = o.place AND o.order_key < n.order_key
        WHERE n.event_time IS NOT DISTINCT FROM o.event_time AND n.batch > {one.since} AND EXISTS (
            SELECT 1 FROM changes AS r WHERE r.order_key > o.order_key AND r.order_key < n.order_key
            AND (r.op = 'truncate' OR (r.left_key = n.new_key AND r.new_key IS DISTINCT FROM r.left_key)))"""
    )
    return int(found[0]["n"])


def _set_back(one: OrderedLane) -> list[str]:
    """The keys whose last change came again after a newer one of the key.

    A stream that goes back goes forward again to the same end; an old file that is copied does not.
    """
    [times] = one.lake.ask(
        f"SELECT min(event_low) FILTER (batch > {one.since}) AS low, max(event_high) FILTER (batch <= {one.since}) AS high "
        f"FROM {{books}} WHERE changes > 0 AND {one.where}"
    )
    if times["low"] is None or times["high"] is None or times["low"] >= times["high"]:
        return []
    changes = (
        f"SELECT batch, order_key, event_time, [{', '.join(one.cells('after', 'before'))}] AS k, "
        f"concat_ws('\n', op, before, after) AS said FROM {{changes.change}} WHERE op <> 'truncate' AND {one.where}"
    )
    found = one.lake.ask(
        f"""WITH changes AS ({changes}),
        news AS (SELECT k, max(struct_pack(order_key, event_time, said)) AS last
            FROM changes WHERE batch > {one.since} GROUP BY k),
        again AS (SELECT k, n.last.order_key AS order_key, n.last.event_time AS event_time, min(c.order_key) AS first
            FROM news AS n JOIN changes AS c USING (k)
            WHERE c.event_time = n.last.event_time AND c.said = n.last.said AND c.order_key < n.last.order_key GROUP BY ALL)
        SELECT DISTINCT k FROM again JOIN changes USING (k)
        WHERE changes.order_key > first AND changes.order_key < again.order_key
        AND changes.event_time > again.event_time"""
    )
    names = [column.name for column in one.subject.decided.key_columns]
    return sorted(key_json(names, map(str, row["k"])) for row in found)
