"""The subjects of the checks: each mirror with its lanes, from the books, the decisions and the logs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ingest.change import LaneId, TableId
from ingest.config import Pipeline, TableRule, matches, target
from ingest.errors import explain_command
from ingest.fold import Key, KeyCellError, SchemaStep, key_of_texts
from ingest.ledgers import decisions, mirrors, targets
from ingest.ledgers.books import newest_of
from ingest.ledgers.decisions import ACCEPT_GAP
from ingest.ledgers.mirrors import Mirror, feeding, rule_for
from ingest.order import same_place
from ingest.quality.catalogue import key_json
from ingest.store import faults
from ingest.store.names import mirror_path
from ingest.tables import duck
from ingest.tables.tables import Tables

if TYPE_CHECKING:
    from ingest.tables.lake import Lake

StepsOf = Callable[[Mirror, str, TableId, int], Sequence[tuple[SchemaStep, int]]]
"""The schema steps of a mirror's lane up to a batch, each with its own batch."""


def no_steps(_mirror: Mirror, _source: str, _table: TableId, _last: int) -> Sequence[tuple[SchemaStep, int]]:
    """The steps where no statement is known."""
    return ()


@dataclass(frozen=True, slots=True)
class CheckedLane:
    """One source table of one source: its audit counts for the batches to check and for those before."""

    source: str
    table: TableId
    last: int  # the last batch with changes; 0 if there is none
    changes: int
    reads: int
    deletes: int
    key_changes: int
    truncates: int
    truncates_ever: int
    changes_ever: int
    order_low: str  # of the batches to check; empty if they have no changes
    order_high: str
    folded_high: str  # of the batches before
    newest: dt.datetime | None  # source commit time
    places: int  # the topics and partitions that it was read from
    key_changes_ever: int = 0
    erased_ever: int = 0  # changes of erased rows that were not written
    inserts: int = 0
    turned_back: int = 0  # new changes that are newer than all before them, at lower positions
    load_marked: bool = False  # a new batch has marks of a full load
    last_read: int = 0  # the last batch with rows of a full load
    last_sent: int = 0  # the last batch of its source
    load_rests: bool = (
        False  # its last rows of a load came before; its source has now sent a first batch without any
    )
    several_new_topics: bool = False  # new changes were read from several topics or files

    @property
    def id(self) -> LaneId:
        """The source with its table."""
        return self.source, self.table

    @property
    def where(self) -> str:
        """The condition in SQL for its rows of product tables."""
        return duck.of_lane(self.source, self.table)

    @property
    def is_late(self) -> bool:
        """True if some new change comes before one of an earlier batch."""
        return "" < self.order_low <= self.folded_high

    @property
    def floor(self) -> str | None:
        """The place from which earlier batches matter, too: some new change is not newer than all of them."""
        if not self.order_low or not self.folded_high:
            return None
        low = same_place(self.order_low)
        return low if low <= self.folded_high else None


@dataclass(frozen=True, slots=True)
class Cut:
    """The cut transactions of one lane."""

    begun: frozenset[str] = frozenset()  # with changes in earlier batches, and in those to check
    last: str | None = None  # the newest one, if rows leave keys in it: others may follow
    # keys, each with its cells as texts, to which rows have moved and which rows leave after that, outside of transactions
    met: Mapping[Key, tuple[str, ...]] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """True if only earlier changes say which rows leave some keys."""
        return bool(self.begun or self.met)


NOTHING_CUT = Cut()


@dataclass(slots=True)
class CheckedMirror:
    """One mirror to check. ``mirror`` is None while no schema has been decided, for example for a held table."""

    table: TableId
    path: str
    mirror: Mirror | None = None
    applied: int = -1  # the last batch that it has folded
    exists: bool = False
    size: int = 0  # bytes of its table, if known
    damage: str = ""  # why its table cannot be read
    types: dict[str, str] = field(default_factory=dict)  # the actual Delta type of each column
    lanes: list[CheckedLane] = field(default_factory=list)
    cut: dict[LaneId, Cut] = field(default_factory=dict)  # `ingest.quality.cut_transactions`
    steps_of: StepsOf = no_steps

    def steps(self, lane: CheckedLane) -> Sequence[tuple[SchemaStep, int]]:
        """What statements have done to a lane's rows that it holds, each with the statement's batch."""
        if self.mirror is None:
            return ()
        return self.steps_of(self.mirror, lane.source, lane.table, self.applied)

    def schema_steps(self, lane: CheckedLane) -> list[SchemaStep]:
        """The same without the batches."""
        return [step for step, _batch in self.steps(lane)]

    @property
    def name(self) -> str:
        return str(self.table)

    @property
    def decided(self) -> Mirror:
        """Its schema; one without a key and columns as long as none has been decided."""
        return self.mirror or Mirror(self.table, self.path)

    @property
    def has_table(self) -> bool:
        """True if its schema has been decided and its table is there."""
        return self.exists and self.mirror is not None

    @property
    def is_readable(self) -> bool:
        """True if that table can be read, as far as is known."""
        return self.has_table and not self.damage

    @property
    def kinds(self) -> list[str]:
        """The actual Delta type of each column; empty for one that does not exist."""
        return [self.types.get(column.column, "") for column in self.decided.columns]

    def named(self, keys: Iterable[Iterable[object]]) -> list[str]:
        """Keys, each given by its cells, as JSON."""
        return [key_json(self.decided.keys, key) for key in keys]

    def usable_keys(self, texts: Iterable[Sequence[str]]) -> dict[Key, tuple[str, ...]]:
        """Keys in the fold's form, each with its cells as texts in their first spelling; without those that the fold rejects."""
        names, types = self.decided.keys, self.decided.key_types
        keys: dict[Key, tuple[str, ...]] = {}
        for cells in texts:
            with suppress(KeyCellError):
                keys.setdefault(key_of_texts(names, cells, types), tuple(cells))
        return keys

    @property
    def last(self) -> int:
        """The last batch with changes for it."""
        return max((lane.last for lane in self.lanes), default=0)

    def newest(self, now: dt.datetime) -> dt.datetime | None:
        """The newest source commit that was read for it; one in the future only where there is no other."""
        return newest_of((lane.newest for lane in self.lanes if lane.newest), now)

    def row_in_words(self, lake: Tables, key: Sequence[str], what: str) -> str:
        """What is wrong with a row of it, after the row's key, with the command that shows the row's changes."""
        cells = ", ".join(f"{name} = {cell}" for name, cell in zip(self.decided.keys, key, strict=True))
        return f"{cells}{what} (see `{explain_command(lake.pipeline.file, self.name, key)}`)"

    def merges(self, pipeline: Pipeline) -> bool:
        """True if it has rows of several source tables that only their key distinguishes."""
        lanes = feeding(pipeline, (lane.id for lane in self.lanes))
        return len(lanes) > 1 and not any(
            rule_for(pipeline, table, self.path).shard_column for _, table in lanes
        )

    def rule(self, pipeline: Pipeline, lane: CheckedLane) -> TableRule:
        """The rules by which it holds the rows of one of its lanes."""
        return rule_for(pipeline, lane.table, self.path)

    def following(self, pipeline: Pipeline) -> list[CheckedLane]:
        """The lanes whose statements it follows; none without a table."""
        lanes = self.lanes if self.has_table else ()
        return [lane for lane in lanes if not self.rule(pipeline, lane).ignores]

    @property
    def keyed(self) -> bool:
        """True if its rows can be distinguished and every lane's key is in the messages."""
        return bool(self.decided.keys)


@dataclass(slots=True)
class Booked:
    """The audit counts of one source's batches to check; ``off`` counts messages that are in no column."""

    messages: int = 0
    rejected: int = 0
    off: int = 0
    control_ever: int = 0
    messages_ever: int = 0
    rejected_ever: int = 0
    tables: set[str] = field(default_factory=set)  # as named by a connector, with and without database

    def add(self, line: Mapping[str, Any]) -> None:
        """Add the sums of one of its lanes."""
        for name in _BOOKED:
            setattr(self, name, getattr(self, name) + line[name])
        if line["table"] is not None and line["active"]:
            source = TableId.of(line)
            self.tables |= {str(source), str(source._replace(database=None))}


@dataclass(slots=True)
class Survey:
    """The mirrors to check and the sources that fed the batches to check."""

    subjects: list[CheckedMirror] = field(default_factory=list)
    booked: dict[str, Booked] = field(default_factory=dict)
    names: frozenset[str] = frozenset()  # of all mirrors, checked or not


def survey(
    lake: Lake,
    lines: Iterable[Mapping[str, Any]],
    also: Iterable[str] = (),
    decided: Mapping[str, Mirror] | None = None,
    only: Collection[str] | None = None,
    *,
    steps: StepsOf,
) -> Survey:
    """The mirrors that new batches touched, those of the paths ``also``, and the books' sums.

    ``lines`` are the books by lane. ``decided`` is each mirror's schema as last decided, if known already. ``only`` are the
    paths of the mirrors to check; None means all. ``steps`` returns the schema steps of a lane.
    """
    schemas = mirrors.known(lake) if decided is None else decided
    views, gone = targets.views(lake), mirrors.dropped(lake)
    made, subjects, touched = Survey(), dict[str, CheckedMirror](), set(also)
    for row in lines:
        made.booked.setdefault(row["source"], Booked()).add(row)
        if row["table"] is None or not row["active"]:
            continue
        source = TableId.of(row)
        for table in _mirrors(views, gone, source):
            path = mirror_path(table)
            new = CheckedMirror(table, path, schemas.get(path), steps_of=steps)
            subjects.setdefault(path, new).lanes.append(_lane(row, source))
            if row["new"] or row["load_rests"]:
                touched.add(path)
    made.subjects = [
        subjects[path]
        for path in sorted(subjects)
        if path in touched and (only is None or path in only)
        if not lake.select or matches(lake.select, subjects[path].table)
    ]
    made.names = frozenset(subject.name for subject in subjects.values())
    for subject in made.subjects:
        _look(lake, subject)
    return made


def _mirrors(views: Sequence[Lake], gone: Collection[str], source: TableId) -> Iterator[TableId]:
    """The mirrors of a source table: the first one also if its table is excluded now, unless it was dropped since."""
    for view in views:
        rule = view.pipeline.rule(source)
        table = target(rule, source)
        if not rule.exclude or (view is views[0] and str(table) not in gone):
            yield table


def lost_sources(lake: Tables, subject: CheckedMirror) -> set[str]:
    """The sources of a mirror's rows of which messages are lost, as the operator has accepted."""
    accepted = {decision.subject for decision in decisions.read(lake).of(ACCEPT_GAP)}
    return accepted & {lane.source for lane in subject.lanes}


def of_some(lanes: Iterable[CheckedLane]) -> str:
    """A condition that rows of some lanes meet, and few others: no other lane is asked for."""
    names = sorted({lane.table.name for lane in lanes})
    return f"coalesce(\"table\", '') IN ({', '.join(map(duck.text, names))})"


def _look(lake: Tables, subject: CheckedMirror) -> None:
    """Note the state of a mirror's table; one damaged table must not hide the state of the others."""
    try:
        state = lake.snapshot(subject.path)
    except Exception as error:
        subject.damage = faults.of_mirror(error, lake, subject.name, subject.path)
        return
    subject.exists, subject.size = state.exists, state.known_size
    subject.types = state.delta_types
    if subject.mirror is not None:
        subject.applied = mirrors.folded_until(lake, subject.mirror, state)


def _lane(row: Mapping[str, Any], source: TableId) -> CheckedLane:
    given = {member.name: row[member.name] for member in fields(CheckedLane) if member.name != "table"}
    newest = None if row["newest"] is None else row["newest"].replace(tzinfo=dt.UTC)
    return CheckedLane(**given | {"table": source, "newest": newest})


_BOOKED = ("messages", "rejected", "off", "control_ever", "messages_ever", "rejected_ever")
