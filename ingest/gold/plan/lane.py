"""Lanes: one source table's changes on their way into a mirror, with their audit counts. Needs no Spark."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from ingest.change import LaneId, TableId
from ingest.fold import SchemaStep
from ingest.ledgers.mirrors import Era, Shard
from ingest.ledgers.stamps import NO_STAMPS, Stamps


@dataclass(frozen=True, slots=True)
class ChangeKinds:
    """Which kinds of changes there may be according to the books, so that a fold does only what is needed."""

    partials: bool = True
    key_changes: bool = True


@dataclass(frozen=True, slots=True)
class Lane:
    """One source table of one source, with the audit counts of its new and its folded batches."""

    source: str
    table: TableId
    first: int  # the first batch not folded yet
    last: int
    order_low: str  # of the new changes; empty if there are none
    folded_high: str  # of the folded ones; empty if there are none
    new: ChangeKinds
    ever: ChangeKinds  # of all batches, the new ones included
    changes: int = 0  # the new ones
    inserts: int = 0  # among them, those that were read included
    deletes: int = 0
    truncates: int = 0  # among the new changes
    inherits: int = 0
    inherits_ever: int = 0
    changes_ever: int = 0
    shard: Shard = ()
    stamps: Stamps = NO_STAMPS  # what its changes get when they are read
    eras: tuple[Era, ...] = ()  # of a lane whose key has changed
    merged: bool = False  # its mirror holds rows of other lanes, too, which only their key distinguishes
    last_folded: int = 0  # the last folded batch that has changes or statements of it
    shared_reads: bool = False  # rows of its snapshots share a position: `ingest.fold.identity`

    @property
    def late(self) -> bool:
        """True if some new change may be older than one already folded."""
        return "" < self.order_low <= self.folded_high


@dataclass(frozen=True, slots=True)
class Steps:
    """A lane's schema steps by order key; those in ``new`` change the existing rows."""

    ever: tuple[SchemaStep, ...] = ()
    new: tuple[SchemaStep, ...] = ()
    # a late statement changes what later ones do, which the mirror has folded: all rows are folded again
    revised: bool = False
    passes: bool = False  # the new ones are a pass over the mirror's rows (`ingest.gold.plan.passes`)

    def after(self, place: str) -> Steps:
        """The steps after a place."""

        def later(steps: tuple[SchemaStep, ...]) -> tuple[SchemaStep, ...]:
            return tuple(step for step in steps if str(step.order) > place)

        return replace(self, ever=later(self.ever), new=later(self.new))

    @property
    def fills(self) -> tuple[SchemaStep, ...]:
        """The new ones that change existing rows; a repeated one meets only rows that have an outcome."""
        return tuple(step for step in self.new if not step.since)

    @property
    def incarnations(self) -> tuple[SchemaStep, ...]:
        """Tables created again: they clear the rows like a truncate."""
        return tuple(step for step in self.ever if step.empties)

    def emptied(self, place: str) -> str:
        """The place of the last of these before a place; empty for none."""
        return max((str(step.order) for step in self.incarnations if str(step.order) < place), default="")


def lane_name(lanes: Collection[LaneId], lane: LaneId) -> str:
    """One of some lanes for display: the table, with its source where that tells it from another."""
    source, table = lane
    return str(table) if len({name for name, _ in lanes}) == 1 else f"{source}:{table}"
