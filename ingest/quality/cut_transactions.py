"""Transactions that a batch boundary cuts: what leaves a key and what comes to it may be in different batches.

A check that sees only one side must not judge such keys by it (`ingest.departures`). Where messages name no transaction,
that holds of each key to which a row has moved and which a row leaves afterwards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from ingest.change import LaneId, Op, lane_of
from ingest.departures import NO_TRANSACTION
from ingest.fold import Key
from ingest.quality.arrow_rows import changes_since, read_sums
from ingest.quality.subjects import NOTHING_CUT, CheckedLane, CheckedMirror, Cut
from ingest.tables import duck
from ingest.tables.lake import Lake
from ingest.tables.schemas import CHANGES
from ingest.tables.tables import Tables

REACH = 8  # batches before the ones to check in which a cut transaction may have begun


def mark(lake: Lake, chosen: Sequence[CheckedMirror], since: int) -> None:
    """Note the cut transactions of the lanes of some mirrors, whose changes of batches after ``since`` are checked."""
    lanes = {lane: subject for subject in chosen if subject.keyed for lane in subject.lanes if _departs(lane)}
    for lane, cut in _found(lake, list(lanes), since) if lanes and since > 0 else ():
        lanes[lane].cut[lane.id] = cut
    for lane, subject in lanes.items():
        if lane.key_changes_ever and (met := _met(lake, subject, lane, since)):
            subject.cut[lane.id] = replace(subject.cut.get(lane.id, NOTHING_CUT), met=met)


def _departs(lane: CheckedLane) -> bool:
    # above a floor earlier changes are judged with the new ones
    return lane.changes > 0 and bool(lane.deletes or lane.key_changes or lane.floor)


def _found(lake: Lake, lanes: Sequence[CheckedLane], since: int) -> Iterator[tuple[CheckedLane, Cut]]:
    spans = defaultdict[LaneId, list[dict[str, object]]](list)
    for row in _spans(lake, lanes, since).to_pylist():
        spans[lane_of(row)].append(row)
    for lane in lanes:
        rows = spans.get(lane.id, [])
        newest = max(rows, key=lambda row: str(row["place"]), default=None)
        begun = frozenset(str(row["transaction"]) for row in rows if row["begun"] and row["new"])
        last = str(newest["transaction"]) if newest and newest["leaves"] else None
        if begun or last:
            yield lane, Cut(begun, last)


def _spans(lake: Lake, lanes: Sequence[CheckedLane], since: int) -> pa.Table:
    """Each transaction of the lanes: whether it has old and new changes, whether it deletes rows, and its newest place."""
    where = changes_since(since - REACH, (lane.table.table for lane in lanes))
    where += f" AND op IN ('insert', 'update', 'delete') AND \"transaction\" NOT IN {NO_TRANSACTION}"
    columns = (*duck.LANE, "batch", "op", "transaction", "order_key")
    parts = read_sums(lake, CHANGES.name, columns, where, partial(_of_page, since))
    if not parts:
        return pa.table({})
    spans = _by_transaction(pa.concat_tables(parts))
    newest = spans.group_by([*duck.LANE]).aggregate([("place", "max")])["place_max"]
    cut = pc.and_(spans["begun"], spans["new"])
    return spans.filter(pc.or_(cut, pc.is_in(spans["place"], newest.combine_chunks())))


def _of_page(since: int, page: pa.RecordBatch) -> pa.Table:
    new = pc.greater(page.column("batch"), since)
    changes = pa.table(
        {name: page.column(name) for name in (*duck.LANE, "transaction")}
        | {"begun": pc.invert(new), "new": new, "place": page.column("order_key")}
        | {"leaves": pc.equal(page.column("op"), str(Op.DELETE))}
    )
    return _by_transaction(changes)


def _by_transaction(spans: pa.Table) -> pa.Table:
    sums = [("begun", "any"), ("new", "any"), ("leaves", "any"), ("place", "max")]
    joined = spans.group_by([*duck.LANE, "transaction"]).aggregate(sums)
    return joined.rename_columns([*duck.LANE, "transaction", *(name for name, _ in sums)])


# --- without transactions -------------------------------------------------------------------------


def _met(lake: Tables, subject: CheckedMirror, lane: CheckedLane, since: int) -> dict[Key, tuple[str, ...]]:
    """The keys to which rows have moved outside of transactions, and which rows leave after that with the changes to check."""
    mirror = subject.decided
    shard = dict(mirror.shard_of(lane.id))
    names = mirror.keys_without(*shard)
    reached, left = duck.cells(names), duck.cells(names, "before", "after")
    rows = lake.ask(
        f"""WITH rows AS (SELECT batch, op, order_key, [{reached}] AS reached, [{left}] AS left_key
            FROM {{changes.change}} WHERE {lane.where} AND op IN ('update', 'delete')
            AND batch > {since - REACH} AND batch <= {subject.applied}
            AND coalesce("transaction", '') IN {NO_TRANSACTION}),
        moved AS (SELECT reached, min(order_key) AS place FROM rows WHERE op = 'update' AND reached <> left_key GROUP BY reached)
        SELECT DISTINCT left_key FROM rows JOIN moved ON rows.left_key = moved.reached
        WHERE batch > {since} AND order_key > place AND (op = 'delete' OR rows.reached <> left_key)"""
    )
    cells = (dict(zip(names, map(str, row["left_key"]), strict=True)) | shard for row in rows)
    return subject.usable_keys([cell[name] for name in mirror.keys] for cell in cells)
