"""Transactions that a batch boundary cuts: what leaves a key and what comes to it may be in different batches.

A check that sees only one side must not judge such keys by it (`ingest.departures`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from ingest.change import LaneId, Op, TableId
from ingest.departures import NO_TRANSACTION
from ingest.lake import duck
from ingest.lake.lake import Lake
from ingest.lake.schemas import CHANGES
from ingest.quality.arrow_rows import changes_since, read_sums
from ingest.quality.subjects import CheckedLane, CheckedMirror, Cut

REACH = 8  # batches before the ones to check in which a cut transaction may have begun


def mark(lake: Lake, chosen: Sequence[CheckedMirror], since: int) -> None:
    """Note the cut transactions of the lanes of some mirrors, whose changes of batches after ``since`` are checked."""
    lanes = {lane: subject for subject in chosen if subject.keyed for lane in subject.lanes if _departs(lane)}
    for lane, cut in _found(lake, list(lanes), since) if lanes and since > 0 else ():
        lanes[lane].cut[lane.source, lane.table] = cut


def _departs(lane: CheckedLane) -> bool:
    # above a floor earlier changes are judged with the new ones
    return lane.changes > 0 and bool(lane.deletes or lane.key_changes or lane.floor)


def _found(lake: Lake, lanes: Sequence[CheckedLane], since: int) -> Iterator[tuple[CheckedLane, Cut]]:
    spans = defaultdict[LaneId, list[dict[str, object]]](list)
    for row in _spans(lake, lanes, since).to_pylist():
        spans[row["source"], TableId.of(row)].append(row)
    for lane in lanes:
        found = spans.get((lane.source, lane.table), [])
        newest = max(found, key=lambda row: str(row["place"]), default=None)
        begun = frozenset(str(row["transaction"]) for row in found if row["begun"] and row["new"])
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
