"""Fold the earlier keys of a table whose history one process does not hold, one key after the other, in shares.

What a key leaves to the next one (`ingest.gold.fold.past_keys.standing`) is written as changes, which the next one reads.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ingest.change import Op
from ingest.gold.fold import past_keys
from ingest.gold.fold.arrow_files import Written, no_changes, pages
from ingest.gold.fold.arrow_fold import events_of
from ingest.gold.fold.arrow_work import ERA_ROW, LACKING_ROW, ColumnWork, LaneWork, MirrorWork, Rows
from ingest.gold.fold.past_keys import Ending, LaneEvent
from ingest.order import LAST_PLACE
from ingest.store import stores


def endings(files: Sequence[str], lane: LaneWork, work: MirrorWork) -> list[Ending]:
    """The earlier keys of a lane whose rows were not all removed later; none if these are not folded again."""
    if not lane.rekeyed:
        return []
    truncates = pages(files, lane, ("order_key",), ds.field("op") == str(Op.TRUNCATE))
    places = [place for page in truncates for place in page["order_key"].to_pylist()]
    return list(past_keys.endings(lane.eras, lane.steps, places, work.logical))


def under(ending: Ending, lane: LaneWork, work: MirrorWork, left: Ending | None, kept: str) -> MirrorWork:
    """The work on a lane's changes under an earlier key.

    Args:
        ending: the key.
        lane: the lane.
        work: the mirror.
        left: the key before it.
        kept: the name of a folder in the mirror's folder for what the key leaves to the next one.
    """
    columns = tuple(ColumnWork(key, key, logical) for key, logical in ending.keys.items())
    past_lane = replace(
        lane, eras=(), shard=(), steps=ending.steps, between=(ending.begins, ending.ends), left=left, moves=True
    )  # fmt: skip
    return MirrorWork(
        work.path, work.folder, tuple(ending.keys), columns, (past_lane,), shared=work.shared, ending=ending, staging=kept
    )  # fmt: skip


def after(lane: LaneWork, left: Ending | None) -> LaneWork:
    """A lane's changes under its last key."""
    if not lane.rekeyed:
        return lane
    begins = lane.eras[-1].place
    return replace(lane, eras=(), steps=lane.own_steps, between=(begins, LAST_PLACE), left=left)


def settled(work: MirrorWork, ending: Ending, share: int, changes: Rows) -> Written:
    """Write what a share of an earlier key leaves to the next one.

    Args:
        work: the changes under the key.
        ending: the key.
        share: the share's number.
        changes: its changes.
    """
    [lane] = work.lanes
    rows = changes[lane.id]
    if not rows.num_rows:
        return Written(work.path)
    left = past_keys.standing(ending, events_of(rows, lane, work.logical), shared_reads=lane.shared_reads)
    past_keys.refuse_unusable([row.values for row in left.rows], ending, lane.id)
    made = [
        _as_change(event, lane, ERA_ROW)
        for event in past_keys.inserted(left.rows, lane.first if lane.begins else 0, share << 40)
    ]
    made += [_as_change(row, lane, LACKING_ROW) for row in left.lacking]
    table = pa.Table.from_pylist(made, no_changes(work.lanes).schema)
    path = f"{work.folder}/{work.staging}/{uuid.uuid4()}.parquet"
    store = stores.at(path)
    out = store.create(path)
    with stores.named(path):
        pq.write_table(table, out, compression="zstd")
    store.finish(path, out)
    return Written(work.path, file=path)


def _as_change(event: LaneEvent, lane: LaneWork, row: int) -> dict[str, object]:
    place, batch, change = event
    images = (None if image is None else json.dumps(image) for image in (change.before, change.after))
    return {
        "source": lane.source, **lane.table._asdict(), "batch": batch, "order_key": place, "op": str(change.op),
        "partial": change.partial, **dict(zip(("before", "after"), images, strict=True)),
        "types": json.dumps(dict(change.types)), "row": row, "transaction": change.transaction,
    }  # fmt: skip
