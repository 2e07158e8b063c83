"""Fold long histories of tables without a key: their halves are dealt to shares by a hash of their rows' cells.

Equal rows are in one share, so that each share tells how often its rows exist; a truncate is in every share.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.gold import keyless_arrow
from ingest.gold.arrow_files import Written, no_changes, written
from ingest.gold.arrow_parts import EVERY, Dealer, Dealt, batches_of
from ingest.gold.arrow_work import LaneWork, MirrorWork
from ingest.gold.key_shares import Numbers, parts_by_key
from ingest.gold.keyless_arrow import ADDS
from ingest.gold.outcomes import MirrorOutcomes


class HalfDealer(Dealer):
    """The halves of one mirror's changes in one task; ``count`` is that of the shares."""

    def take(self, number: int, lane: LaneWork, rows: pa.Table) -> None:
        """Distribute the halves of some changes of a lane."""
        self.waiting.append(keyless_arrow.halves_of(self.work, number, lane, rows))

    def dealt(self, rows: pa.Table) -> tuple[pa.Table, Numbers]:
        """What waits as it is written, and the share of each half."""
        parts = parts_by_key(rows.select(self.work.schema.names), self.count)
        return rows, np.where(pc.equal(rows[ADDS], 0).to_numpy(), EVERY, parts)


def merged(work: MirrorWork, dealt: Sequence[Dealt], share: int, count: int) -> Written:
    """Count the rows of a share, and write them with the mirror's own rows of that share; commits nothing."""

    def made() -> MirrorOutcomes:
        batches = [*batches_of(dealt, EVERY), *batches_of(dealt, share)]
        if batches:
            return keyless_arrow.counted(work, pa.Table.from_batches(batches))
        return keyless_arrow.outcomes(work, {lane.id: no_changes(work.lanes) for lane in work.lanes})

    def chosen(rows: pa.Table) -> pa.Table:
        return rows.filter(pa.array(parts_by_key(rows, count) == share))

    return written(work, made, chosen)
