"""Rows that lack columns although their source may leave out NULLs: then an update to NULL looks like an unchanged column.

AWS DMS leaves out NULLs by default, GoldenGate by a setting, and no message says so. A source that sends one NULL does not
leave them out. Of one that never does, a row that lacks a column which rows before it have is a doubt, until the option
``left_out`` decides it. An insert has all columns, so it proves it; an update proves it where updates are never compressed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ingest.errors import agreeing, counted
from ingest.lake import duck, lanes
from ingest.lake.lake import Lake
from ingest.quality.catalogue import FAILING_KEYS, Metric
from ingest.quality.ordered_lane import OrderedLane, ordered_lanes
from ingest.quality.subjects import CheckedMirror

_PROOFS = {"by default": ("insert", "update"), "by a setting": ("insert",)}


def of_mirrors(lake: Lake, chosen: Iterable[CheckedMirror], since: int) -> Iterator[Metric]:
    """Count the new rows of each mirror that lack columns in doubt; nothing for sources that always send NULLs."""
    for ordered in ordered_lanes(lake, (subject for subject in chosen if subject.mirror), since):
        proofs = _PROOFS.get(ordered.source.about.leaves_out_nulls)
        if proofs and ordered.source.options.left_out is None:
            yield _of_lane(ordered, proofs)


def _of_lane(ordered: OrderedLane, proofs: Iterable[str]) -> Metric:
    short = {name: n for name in _columns(ordered) if (n := _lacking(ordered, name, proofs))}
    if not short or lanes.sends_nulls(ordered.lake, ordered.source):
        return ordered.metric("nulls_left_out", 0, "")
    n = max(short.values())
    detail = (
        f"{counted(n, 'row')} of {ordered.lane.table} {agreeing(n, 'lacks', 'lack')} {', '.join(list(short)[:FAILING_KEYS])}, which "
        f"rows before have, and source {ordered.source.name} has never sent a NULL: if it leaves NULLs out, write "
        f"`left_out: null` under its options, if it leaves out what is unchanged, `left_out: unchanged`; then run {ordered.backfill()}"
    )
    return ordered.metric("nulls_left_out", n, detail)


def _columns(lane: OrderedLane) -> list[str]:
    keys = {*lane.subject.decided.keys}
    return [column.name for column in lane.subject.decided.sent if column.name not in keys]


def _lacking(lane: OrderedLane, name: str, proofs: Iterable[str]) -> int:
    """The number of new rows that lack a column which an earlier row has."""
    kinds = ", ".join(map(duck.text, proofs))
    has = duck.has_member("after", name)
    [row] = lane.lake.ask(
        f"""WITH rows AS (SELECT op, batch, order_key, {has} AS has FROM {{changes.change}}
            WHERE op IN ('read', 'insert', 'update') AND {lane.where}),
        firsts AS (SELECT min(order_key) AS place FROM rows WHERE has)
        SELECT count(*) AS n FROM rows, firsts WHERE NOT has AND op IN ({kinds}) AND batch > {lane.since} AND order_key > place"""
    )
    return int(row["n"])
