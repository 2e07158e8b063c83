"""Rows that a later full load of their table did not contain: the source has deleted them while nothing was sent of it."""

from __future__ import annotations

from collections.abc import Iterator

from ingest.change import LOAD_ENDS
from ingest.lake import duck
from ingest.lake.snapshots import read_sql
from ingest.order import loaded_sql, place_sql, same_place, weak_sql
from ingest.quality.catalogue import FAILING_KEYS, Metric, key_json
from ingest.quality.live_rows import live_rows
from ingest.quality.ordered_lane import OrderedLane, from_places


def rows_not_loaded(one: OrderedLane) -> Iterator[Metric]:
    """Rows older than a load that came to its end in a new batch, and that it did not contain."""
    if not one.lane.reads or not one.subject.keyed or one.subject.mirror is None:
        return
    place = _begin_of_load(one)
    if place is None:
        return
    changes = f"""SELECT op, order_key AS place, [{one.cells("after", "before")}] AS k, [{one.cells("before", "after")}] AS left_key
        FROM {{changes.change}} WHERE op <> 'truncate' AND {one.where}"""
    keys = one.lake.ask(
        f"""WITH {live_rows(changes)} SELECT k FROM live WHERE place < {duck.text(place)}
            AND place > {duck.text(one.emptied(before=place))} ORDER BY k"""
    )
    if not keys:
        return
    names = [column.name for column in one.subject.mirror.key_columns]
    failing = tuple(key_json(names, row["k"]) for row in keys[:FAILING_KEYS])
    detail = (
        f"{one.lane.table} was loaded again, and {len(keys)} of its rows, such as {failing[0]}, were not in the load: no delete of "
        f"them has come, so they are still in the mirror. {_epoch(one, place)} removes them"
    )
    yield one.metric("rows_not_loaded", len(keys), detail, failing)


_ENDS = f"coalesce(note, '') LIKE '%{LOAD_ENDS}%'"


def _begin_of_load(one: OrderedLane) -> str | None:
    """Where the newest load that has come to its end in a new batch begins; None if there is none, or nothing is older.

    All rows of a snapshot have one position. Where arrival orders a load without one, it begins after the last change before
    it, or after the load before it: a source that says where a load ends sends no change of the table meanwhile. Loads of
    several partitions each have an end of their own, and are left alone. In a dialect with positions a load without one
    comes before all changes, so nothing is older.
    """
    ended = one.lake.ask(
        f"""SELECT max({place_sql("order_key")}) AS place, max(order_key) FILTER ({weak_sql("order_key")} AND NOT {loaded_sql("order_key")}) AS last
            FROM {{changes.change}} WHERE op = 'read' AND {one.where} AND batch > {one.since} AND {_ENDS} AND NOT {read_sql()}"""
    )
    place, last = ended[0]["place"], ended[0]["last"]
    if place is not None:
        first = min(filter(None, (one.lane.folded_high, one.lane.order_low)), default="")
        return place if same_place(first) < place else None
    if last is None:
        return None
    [load] = one.lake.ask(
        f"""WITH rows AS (SELECT op, order_key, "partition", op <> 'read' OR {_ENDS} AS breaks FROM {{changes.change}}
            WHERE {one.where} AND order_key <= {duck.text(last)}),
        earlier AS (SELECT coalesce(max(order_key), '') AS last FROM rows WHERE breaks AND order_key < {duck.text(last)})
        SELECT min(order_key) AS first, count(DISTINCT "partition") AS partitions FROM rows, earlier WHERE order_key > earlier.last"""
    )
    return load["first"] if load["partitions"] <= 1 else None


def _epoch(lane: OrderedLane, place: str) -> str:
    """The command for an epoch that begins with the load."""
    begun = lane.lake.ask(
        f"""SELECT batch, topic, coalesce("partition", 0) AS part, min("offset") AS first FROM {{changes.change}}
            WHERE op = 'read' AND {lane.where} AND starts_with(order_key, {duck.text(place)}) GROUP BY ALL ORDER BY batch, part, topic"""
    )
    first = [row for row in begun if row["batch"] == begun[0]["batch"]]
    places = from_places(first[:1] if lane.source.kind == "files" else first)
    return lane.epoch(places=places, complete=True)
