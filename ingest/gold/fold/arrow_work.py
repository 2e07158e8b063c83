"""A mirror's part of a batch as Arrow folds it: its lanes, its columns and its files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ingest.change import LaneId, TableId
from ingest.fold import (
    SchemaStep,
)
from ingest.gold.fold.arrow_values import arrow_type
from ingest.gold.fold.past_keys import Ending
from ingest.gold.plan.passes import Fill
from ingest.ledgers.mirrors import Era, Shard
from ingest.ledgers.stamps import NO_STAMPS, Stamps

ERA_ROW, LACKING_ROW = -1, -2
"""The number within its message of what an earlier key has left: a row, and a change that has no usable one."""
Rows = Mapping[LaneId, pa.Table]
Cleared = tuple[Shard, ...]
"""The tables whose rows are all deleted, except those with an outcome: by their shards; an empty one for all tables."""


@dataclass(frozen=True, slots=True)
class LaneWork:
    """One lane's new changes: which they are, and what they may contain according to the books."""

    source: str
    table: TableId
    first: int
    last: int
    images: bool = False  # every change carries the whole row and does not change its key
    floor: str = ""  # the place of a new incarnation: rows from before it are gone
    shard: Shard = ()
    stamps: Stamps = NO_STAMPS
    whole: bool = False  # its whole history is folded again, because new changes precede folded ones
    steps: tuple[SchemaStep, ...] = ()  # which only a whole history needs, by order key
    # the new ones, which the new changes meet, if all other rows take a pass (`MirrorWork.fills`)
    stated: tuple[SchemaStep, ...] = ()
    since: str = ""  # the place of the first new one; empty if none is new
    eras: tuple[Era, ...] = ()  # if its key has changed; only a whole history has rows under earlier ones
    begins: bool = False  # no change of it has been folded before
    merged: str = ""  # its name, if the mirror has rows of other lanes that only their key distinguishes
    shared_reads: bool = False  # rows of its snapshots share a position: `ingest.fold.identity`
    moves: bool = False  # some change may leave its key
    departs: bool = False  # some new change may delete a row or leave its key
    last_folded: int = 0  # the last batch with changes or statements of it before the new ones
    # the places after which, and up to which, its changes are read, and the rows that earlier keys have left (`ERA_ROW`)
    between: tuple[str, str] | None = None
    left: Ending | None = None  # the key that has left these
    late_from: str = ""  # the place from which folded changes are read, too: they tell which late ones count
    # of a table of old states: whether all its keys are folded, and by place when its statements were, in microseconds
    everything: bool = False
    moments: tuple[tuple[str, int | None], ...] | None = None

    @property
    def id(self) -> LaneId:
        """Source and table."""
        return self.source, self.table

    @property
    def timed(self) -> bool:
        """True if the event times of its changes are needed."""
        return self.stamps.timed or self.moments is not None

    @property
    def own_steps(self) -> tuple[SchemaStep, ...]:
        """The steps that meet rows under the last key."""
        if not self.eras:
            return self.steps
        last = self.eras[-1].place
        return tuple(step for step in self.steps if str(step.order) > last)

    @property
    def created(self) -> list[tuple[str, bool]]:
        """Where the table was created again, and whether that is new."""
        places = (str(step.order) for step in self.own_steps if step.empties)
        return [(place, bool(self.since) and place >= self.since) for place in places]

    @property
    def rekeyed(self) -> bool:
        """True if its rows under earlier keys are folded, too."""
        return bool(self.eras) and self.whole

    @property
    def from_batch(self) -> int:
        """The first batch to read."""
        return 0 if self.whole else self.first


class ColumnWork(NamedTuple):
    """A mirror's column: the source's name, Delta's, the logical type, and how it is computed."""

    name: str
    column: str
    type: str
    expression: str = ""  # what it is computed by


@dataclass(frozen=True, slots=True)
class MirrorWork:
    """One mirror's part of a batch, with its table's files."""

    path: str  # names the mirror
    folder: str
    keys: tuple[str, ...]
    columns: tuple[ColumnWork, ...]
    lanes: tuple[LaneWork, ...]
    files: tuple[tuple[str, pa.BooleanArray | None], ...] = ()  # with the rows that its deletion vector keeps
    size: int = 0
    changes: int = 0
    shared: int = 0  # changes that are folded key by key, if one process does not hold them all
    where: str = ""  # the condition that its rows meet
    reshaped: bool = False  # the table's columns or their metadata change: all its files are replaced
    again: bool = False  # its changes so far give all its rows, whatever the files hold
    appends: bool = False  # without a key: what is inserted is added
    # columns that get another type, with theirs; empty if no value is kept
    old: tuple[tuple[str, str], ...] = ()
    staging: str = ""  # the folder in its own for its outcomes, if a MERGE applies them
    marked: frozenset[str] = frozenset()  # the files of which rows are deleted by vectors, not by a new file
    states: bool = False  # it is a table of old states, whose rows are those of a key
    fills: tuple[Fill, ...] = ()  # what new statements put into its rows
    passed: int = 0  # its rows, if its files are written again one after the other; else 0
    described: str = ""  # its table's columns as they are with the batch, in JSON; empty if they stay
    ending: Ending | None = None  # the earlier key of its lane that is folded, into the folder `staging`

    def whole(self, changes: int) -> MirrorWork:
        """The same, folded from its whole history of so many changes."""
        lanes = tuple(replace(lane, whole=True, late_from="", stated=()) for lane in self.lanes)
        return replace(self, lanes=lanes, shared=changes, fills=(), passed=0)

    @property
    def dealt(self) -> int:
        """How many changes are dealt to shares, if they are."""
        return self.shared or self.changes

    @property
    def logical(self) -> dict[str, str]:
        """The columns by the source's names, with their types."""
        return {column.name: column.type for column in self.columns}

    @property
    def schema(self) -> pa.Schema:
        """The table's columns in Arrow."""
        return pa.schema([(column.column, arrow_type(column.type)) for column in self.columns])

    def of_shards(self, rows: pa.Table, shards: Cleared) -> pa.Array:
        """Which of some rows of the mirror are those of some tables."""
        if not shards or () in shards:
            return pa.array([bool(shards)] * rows.num_rows, pa.bool_())
        names, texts = zip(*chain.from_iterable(shards), strict=True)
        [column] = [column.column for column in self.columns if column.name in names]
        return pc.is_in(rows[column], value_set=pa.array(texts, pa.string())).combine_chunks()

    @property
    def key_columns(self) -> list[str]:
        """The key's columns, by Delta's names."""
        return [column.column for column in self.columns if column.name in self.keys]


def lanes_of(works: Iterable[MirrorWork]) -> list[LaneWork]:
    """The lanes of some mirrors."""
    return [lane for work in works for lane in work.lanes]
