"""Fold mirrors of which more changes belong together than one process holds at once: long histories, many parts of rows.

Each task distributes the changes in some pieces of ``changes`` over shares by a hash of their key, in one file for each
mirror and task; where only the last image of each key counts, what becomes of the keys (`ingest.gold.fold.arrow_parts`). A share
is folded as a whole mirror is, and merged with the mirror's rows of that share into one file.
Keys that a change links are in one share, because a row that moves takes values along; a truncate is in every share.
Changes of tables without a key are dealt as their halves (`ingest.gold.fold.keyless_arrow`), by a hash of the rows' cells.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.change import LaneId, Op
from ingest.errors import StoreError
from ingest.gold.fold import arrow_parts, era_shares, keyless_arrow, past_keys
from ingest.gold.fold.arrow_files import (
    MirrorReport,
    Written,
    apart,
    attempted,
    no_changes,
    outcomes_of,
    written,
)
from ingest.gold.fold.arrow_parts import (
    EVERY,
    Dealer,
    Dealt,
    RowGroup,
    batches_of,
    dealt_by,
    pages_of,
)
from ingest.gold.fold.arrow_work import ERA_ROW, LaneWork, MirrorWork, lanes_of
from ingest.gold.fold.key_shares import KeysOfChanges, Numbers, Shares, concerned, keys_of
from ingest.gold.fold.keyless_arrow import ADDS
from ingest.gold.fold.outcomes import MirrorOutcomes

EACH = 100  # changes of a key, of which more may be
LANE, SHARE = "%lane", "%share"


@dataclass(frozen=True, slots=True)
class Links(MirrorReport):
    """The keys that changes of a mirror link, as pairs of their hashes, and of a table of old states the hashes of those that
    new changes concern.
    """

    pairs: list[tuple[int, int]] = field(default_factory=list)
    touched: tuple[int, ...] = ()


def links(works: Sequence[MirrorWork], pieces: Sequence[RowGroup]) -> Iterator[Links]:
    """The keys that the changes in some pieces link, and of tables of old states those that new changes concern."""
    lanes = lanes_of(works)
    by_path = {work.path: KeysOfChanges(set(), set()) for work in works}
    try:
        for page in pages_of(pieces, lanes):
            rows = dict(apart(page, lanes))
            for work in works:
                for lane in work.lanes:
                    if rows[lane.id].num_rows:
                        keys = concerned(rows[lane.id], lane, work)
                        by_path[work.path].links.update(keys.links)
                        by_path[work.path].touched.update(keys.touched if work.states else ())
    except StoreError as error:
        stopped = [Links.stopped(work.path, error) for work in works]
        return iter(stopped)
    return (
        Links(path, pairs=sorted(keys.links), touched=tuple(sorted(keys.touched)))
        for path, keys in by_path.items()
    )


def shares_of(work: MirrorWork, keys: KeysOfChanges, most: int) -> Shares:
    """How a mirror's changes are dealt to shares of at most so many; those under an earlier key without a column to one.

    Of a table of old states those of the touched keys are, about which only a guess says how many there are.
    """
    changes, states = work.dealt, work.states and not any(lane.everything for lane in work.lanes)
    if not work.columns:
        return Shares(1)
    if states:
        changes = min(changes, EACH * len(keys.touched))
    shares = Shares.of(max(1, -(-changes // most)), keys.links)
    return shares.only(keys.touched) if states else shares


def looked_through(work: MirrorWork) -> MirrorWork | None:
    """The mirror with the lanes whose keys `links` looks at: all changes of one in which rows move, and of a table of old
    states the new ones; None if there are none.
    """
    states = work.states and not any(lane.everything for lane in work.lanes)
    lanes = [
        replace(lane, whole=lane.moves) if states else lane for lane in work.lanes if states or lane.moves
    ]
    return replace(work, lanes=tuple(lanes)) if lanes else None


@dataclass(slots=True)
class ShareDealer(Dealer):
    """One mirror's changes in one task."""

    def take(self, number: int, lane: LaneWork, rows: pa.Table) -> None:
        """Distribute some changes of a lane."""
        keys = keys_of(rows, lane, self.work).every.slice(0, rows.num_rows)
        clears, numbers = pc.equal(rows["op"], str(Op.TRUNCATE)).to_numpy(), self.shares.shares(keys)
        if self.shares.wanted is not None:
            dealt = clears | self.shares.wants(keys)
            rows, clears, numbers = rows.filter(pa.array(dealt)), clears[dealt], numbers[dealt]
        rows = rows.append_column(LANE, pa.array([number] * rows.num_rows, pa.int32()))
        self.waiting.append(rows.append_column(SHARE, pa.array(np.where(clears, EVERY, numbers), pa.int64())))

    def dealt(self, rows: pa.Table) -> tuple[pa.Table, Numbers]:
        """What waits as it is written, and the share of each row."""
        return rows.drop_columns(SHARE), rows[SHARE].to_numpy()


class HalfDealer(ShareDealer):
    """The halves of the changes of one mirror without a key in one task: equal rows are in one share, so that each share
    tells how often its rows exist.
    """

    def take(self, number: int, lane: LaneWork, rows: pa.Table) -> None:
        """Distribute the halves of some changes of a lane."""
        halves = keyless_arrow.halves_of(self.work, number, lane, rows)
        numbers = self.shares.shares(halves.select(self.work.schema.names))
        numbers = np.where(pc.equal(halves[ADDS], 0).to_numpy(), EVERY, numbers)
        self.waiting.append(halves.append_column(SHARE, pa.array(numbers, pa.int64())))


def deal(
    works: Sequence[MirrorWork], pieces: Sequence[RowGroup], folder: str, shares: Mapping[str, Shares]
) -> list[Dealt]:
    """Distribute the changes in some pieces over the shares of their mirrors.

    Args:
        works: the mirrors.
        pieces: the row groups.
        folder: the name of a folder in each mirror's folder, for the changes.
        shares: by the path of each mirror, its shares.
    """
    return dealt_by([_dealer(work)(work, folder, shares[work.path]) for work in works], pieces)


def _dealer(work: MirrorWork) -> type[Dealer]:
    """What deals a mirror's changes: as outcomes, if the last one of each key is all that counts, else themselves."""
    if not work.shared:
        return Dealer
    return ShareDealer if work.keys or work.ending else HalfDealer


def merged(work: MirrorWork, dealt: Sequence[Dealt], share: int, shares: Shares) -> Written:
    """Fold a share and merge it into the mirror's rows of that share, or write what an earlier key leaves of it; commits
    nothing.
    """

    def batches() -> list[pa.RecordBatch]:
        return [*batches_of(dealt, EVERY), *batches_of(dealt, share)]

    if (ending := work.ending) is not None:
        return attempted(work, lambda: era_shares.settled(work, ending, share, changes_of(work, batches())))

    def made() -> MirrorOutcomes:
        if not work.shared:
            return arrow_parts.outcomes(work, dealt, share)
        of_share = batches()
        if of_share and not work.keys:
            return keyless_arrow.counted(work, pa.Table.from_batches(of_share))
        return outcomes_of(work, changes_of(work, of_share))

    return written(work, made, partial(shares.rows_of, work, share))


def changes_of(work: MirrorWork, batches: Sequence[pa.RecordBatch]) -> dict[LaneId, pa.Table]:
    """What was dealt to a share, each lane's changes in the order of history.

    Raises:
        HeldError: two rows that an earlier key of a lane has left are one row now.
    """
    if not batches:
        return {lane.id: no_changes(work.lanes) for lane in work.lanes}
    changes, rows = pa.Table.from_batches(batches), {}
    for number, lane in enumerate(work.lanes):
        of_lane = changes.filter(pc.equal(changes[LANE], number)).drop_columns(LANE)
        of_lane = rows[lane.id] = of_lane.take(pc.sort_indices(of_lane["order_key"]))
        if lane.left is not None:
            images = of_lane.filter(pc.equal(of_lane["row"], ERA_ROW))["after"].to_pylist()
            past_keys.refuse(map(json.loads, images), lane.left, lane.id)
    return rows
