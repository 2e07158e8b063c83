"""Deal the work on mirrors with more changes than one process holds at once: here the last image of each key, by Arrow.

Each task folds a piece of ``changes`` and distributes the outcomes over shares by a hash of the key, in one file for each
mirror and task. The last outcome of each key, among all these files, is the result of the fold
(`ingest.gold.fold.arrow_shares` merges each share, and deals the changes themselves where more of them belong together).

Only for changes that come in order, carry whole rows, and of which none lets a row leave a key after another one has come to it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ingest.change import Op
from ingest.errors import StoreError
from ingest.gold.fold import unfit
from ingest.gold.fold.arrow_files import Gone, MirrorReport, Written, apart, columns_of, wanted
from ingest.gold.fold.arrow_fold import (
    PLACE,
    READ_AT_ONCE,
    Outcomes,
    fold,
    last_images,
    last_of,
    typed_outcomes,
)
from ingest.gold.fold.arrow_merge import comparable
from ingest.gold.fold.arrow_values import NotPlain, PartsNeeded
from ingest.gold.fold.arrow_work import LaneWork, MirrorWork, Rows
from ingest.gold.fold.key_shares import Numbers, Shares
from ingest.gold.fold.outcomes import MirrorOutcomes
from ingest.gold.fold.unfit import Reject
from ingest.store import stores
from ingest.tables import vectors

# outcomes of one mirror that a task holds before it writes them
WAITING_ROWS, WAITING_BYTES = 100_000, 64 << 20
PART_BYTES = 256 << 20  # of a part's outcomes in memory
_LANE = "%lane"
EVERY = -1
"""The part of what all parts need."""


class RowGroup(NamedTuple):
    """A row group of a file of ``changes``."""

    file: str
    group: int
    rows: int


@dataclass(frozen=True, slots=True)
class Dealt(MirrorReport):
    """What one task has found of one mirror."""

    file: str = ""  # empty if no change is the mirror's
    parts: list[int] = field(default_factory=list)  # the part of each of the file's record batches
    # by the lane's number, the place of its last truncate
    cleared: dict[int, str] = field(default_factory=dict)
    cpu: int = 0  # milliseconds
    rejected: list[Reject] = field(default_factory=list)  # changes without a usable key


Fragments = Callable[[str], ds.ParquetFileFragment]


def fragment(file: str) -> ds.ParquetFileFragment:
    """A file of ``changes``."""
    [part] = stores.at(file).dataset([file], format="parquet").get_fragments()
    return part


def pieces(files: Sequence[str], lanes: Sequence[LaneWork], opened: Fragments = fragment) -> list[RowGroup]:
    """The row groups that may hold changes of some lanes; ``opened`` is `fragment`, or keeps what it returns."""
    groups = []
    for file in files:
        for part in opened(file).split_by_row_group(wanted(lanes)):
            groups += [RowGroup(file, group.id, group.num_rows) for group in part.row_groups]
    return groups


def dealt_by(dealers: Sequence[Dealer], groups: Sequence[RowGroup]) -> list[Dealt]:
    """What dealers have distributed of the changes in some pieces; all have failed if the store does not answer."""
    lanes = [lane for dealer in dealers for lane in dealer.work.lanes]
    try:
        for page in pages_of(groups, lanes):
            rows = dict(apart(page, lanes))
            for dealer in dealers:
                dealer.add(rows)
    except StoreError as error:
        return [Dealt.stopped(dealer.work.path, error) for dealer in dealers]
    return [dealer.finished() for dealer in dealers]


def pages_of(groups: Sequence[RowGroup], lanes: Sequence[LaneWork]) -> Iterator[pa.Table]:
    """The changes in some row groups that may be those of some lanes, a page at a time."""
    for piece in groups:
        pages = fragment(piece.file).subset(row_group_ids=[piece.group]).to_batches(
            columns=list(columns_of(lanes)), filter=wanted(lanes), batch_size=READ_AT_ONCE, batch_readahead=1,
            fragment_readahead=1,
        )  # fmt: skip
        for page in pages:
            if page.num_rows:
                yield pa.Table.from_batches([page])


@dataclass(slots=True)
class Dealer:
    """One mirror's outcomes in one task."""

    work: MirrorWork
    folder: str
    shares: Shares
    stopped: Dealt | None = None
    waiting: list[pa.Table] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)
    cleared: dict[int, str] = field(default_factory=dict)
    seconds: float = 0.0
    rejected: list[Reject] = field(default_factory=list)
    path: str = ""
    file: Any = None
    writer: Any = None

    def add(self, rows: Rows, *, last: bool = False) -> None:
        """Fold the mirror's changes among some; after the ``last`` ones end the file."""
        if self.stopped:
            return
        began = time.thread_time()
        try:
            for number, lane in enumerate(self.work.lanes):
                if lane.id in rows and rows[lane.id].num_rows:
                    self.take(number, lane, rows[lane.id])
            if self.waiting and (
                last
                or sum(table.num_rows for table in self.waiting) >= WAITING_ROWS
                or sum(table.nbytes for table in self.waiting) >= WAITING_BYTES
            ):
                self._flush()
            if last and self.writer is not None:
                self.writer.close()
                stores.at(self.path).finish(self.path, self.file)
        except Exception as error:
            self.stopped = Dealt.stopped(self.work.path, error)
        self.seconds += time.thread_time() - began

    def take(self, number: int, lane: LaneWork, rows: pa.Table) -> None:
        """Fold some changes of a lane; the outcomes wait to be written."""
        places = rows.filter(pc.equal(rows["op"], str(Op.TRUNCATE)))["order_key"].to_pylist()
        if places:
            self.cleared[number] = max(self.cleared.get(number, ""), *places)
        at_once = last_images(rows, lane, self.work)
        if at_once is None:
            made = fold(rows, lane, self.work.keys, self.work.logical)
            outcomes = made.outcomes
            self.rejected += unfit.changes(made.rejected, lane, self.work)
            typed = unfit.placed(typed_outcomes(outcomes, self.work), self.work, {lane.id: rows})
            typed = typed.append_column(PLACE, pa.array(outcomes.places, pa.string()))
        else:
            typed, _ = at_once
        self.waiting.append(typed.append_column(_LANE, pa.array([number] * len(typed), pa.int32())))

    def _flush(self) -> None:
        """Write what waits, each part's rows as a record batch."""
        rows, part_of = self.dealt(pa.concat_tables(self.waiting))
        self.waiting = []
        if not rows.num_rows:
            return
        if self.writer is None:
            self.path = f"{self.work.folder}/{self.folder}/{uuid.uuid4()}.arrow"
            self.file = stores.at(self.path).create(self.path)
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            self.writer = pa.ipc.new_file(self.file, rows.schema, options=options)
        order = np.argsort(part_of, kind="stable")
        rows = rows.take(pa.array(order)).combine_chunks()
        parts, firsts = np.unique(part_of[order], return_index=True)
        for part, first, after in zip(parts.tolist(), firsts, [*firsts[1:], rows.num_rows], strict=True):
            for batch in rows.slice(first, after - first).to_batches():
                self.writer.write_batch(batch)
                self.parts.append(part)

    def dealt(self, rows: pa.Table) -> tuple[pa.Table, Numbers]:
        """What waits as it is written, and the part of each row."""
        return rows, self.shares.shares(rows.select(self.work.key_columns))

    def finished(self) -> Dealt:
        """End the file."""
        self.add({}, last=True)
        return self.stopped or Dealt(
            self.work.path,
            file=self.path,
            parts=self.parts,
            cleared=self.cleared,
            cpu=round(1000 * self.seconds),
            rejected=self.rejected,
        )


# --- the parts ------------------------------------------------------------------------------------


class DealtPart(NamedTuple):
    """A part or share of a mirror's changes, as the tasks that merge it get it."""

    work: MirrorWork
    dealt: Sequence[Dealt]
    number: int


def outcomes(work: MirrorWork, dealt: Sequence[Dealt], part: int) -> MirrorOutcomes:
    """What the changes make of the keys of a share.

    Raises:
        PartsNeeded: they take too much memory.
        NotPlain: several lanes have one key.
    """
    cleared = {
        number: max(report.cleared.get(number, "") for report in dealt) for number in range(len(work.lanes))
    }
    last = _outcomes(work, dealt, part, cleared)
    shards = (work.lanes[number].shard for number, place in cleared.items() if place)
    return MirrorOutcomes(last, tuple(shards), unfit.cells(last, work))


def vectors_of(work: MirrorWork, made: Sequence[Written]) -> dict[str, dict[str, Any]]:
    """Write the deletion vectors of the files whose rows are gone according to some part."""
    gone: Gone = {}
    for name in sorted({name for part in made for name in part.gone}):
        masks = [
            np.unpackbits(np.frombuffer(part.gone[name], np.uint8)) for part in made if name in part.gone
        ]
        gone[name] = np.unique(np.concatenate([np.flatnonzero(mask) for mask in masks]))
    return vectors.write(work.folder, gone)


def _outcomes(work: MirrorWork, dealt: Sequence[Dealt], part: int, cleared: dict[int, str]) -> pa.Table:
    """The last outcome of each key of a part, from after the last truncate of its lane."""
    rows = list(batches_of(dealt, part))
    if sum(row.nbytes for row in rows) > PART_BYTES:
        raise PartsNeeded(f"the rows that its changes set take more than {PART_BYTES >> 20} MiB of memory")
    if not rows:
        return typed_outcomes(Outcomes([], [], []), work)
    return _last(pa.Table.from_batches(rows), work, cleared)


def batches_of(dealt: Sequence[Dealt], part: int) -> Iterator[pa.RecordBatch]:
    """What several tasks have written for a share."""
    for report in dealt:
        if part in report.parts:
            with pa.ipc.open_file(stores.at(report.file).source(report.file)) as file:
                yield from (file.get_batch(i) for i, number in enumerate(report.parts) if number == part)


def _last(rows: pa.Table, work: MirrorWork, cleared: dict[int, str]) -> pa.Table:
    """The last of several outcomes of a key; none from before a truncate of its lane."""
    for number, place in cleared.items():
        if place:
            after = pc.greater(rows[PLACE], place)
            rows = rows.filter(pc.or_(pc.not_equal(rows[_LANE], number), after))
    keys = work.key_columns
    last = last_of(rows, keys)
    if last.num_rows < rows.num_rows:
        lane_keys = comparable(rows.select([*keys, _LANE]))
        if len(work.lanes) > 1 and lane_keys.group_by([*keys, _LANE]).aggregate([]).num_rows > last.num_rows:
            raise NotPlain("several tables send rows of one key")
        last = last_of(rows.sort_by(PLACE), keys)
    return last.drop_columns([PLACE, _LANE])
