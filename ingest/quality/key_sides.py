"""The two sides of a mirror whose keys are compared: its rows, and its lanes with the changes to compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ingest.change import LaneId
from ingest.ledgers import mirrors
from ingest.ledgers.cleared import NEVER, Cleared
from ingest.ledgers.logged_statements import Statement
from ingest.ledgers.mirrors import rule_for
from ingest.quality.catalogue import LEFT_OUT
from ingest.quality.ddl_ledger import beginning
from ingest.quality.subjects import CheckedLane, CheckedMirror
from ingest.tables.lake import Lake

LARGE = 4 << 20  # bytes of a mirror whose untouched rows are only counted
FEW = 1_000_000  # changes of which most rows of a large mirror are untouched


@dataclass(slots=True)
class Side:
    """One mirror's two sides: its rows and its changes."""

    lake: Lake
    subject: CheckedMirror
    since: int
    index: int
    cleared: dict[int, Cleared] = field(default_factory=dict)  # by the lane's place among the subject's

    @classmethod
    def of_new(cls, lake: Lake, subject: CheckedMirror, since: int) -> Side:
        """One mirror alone with the changes of batches after ``since``, also where some of them are late."""
        lanes = [replace(lane, folded_high="") for lane in subject.lanes]
        return cls(lake, replace(subject, lanes=lanes), since, 0)

    def asks(self, check: str) -> bool:
        """True if the check can be answered for this mirror."""
        if check in ("key_unique", "key_not_null"):
            return self.subject.keyed
        if check in ("missing_rows", LEFT_OUT) and check != self.lacking:
            return False
        if check == "incomplete_rows" and (self.since > 0 or self.subject.decided.eras):
            return False  # a row may have come whole earlier, or under another key
        return self.comparable

    @property
    def lacking(self) -> str:
        """What a live key is that the mirror lacks: with a condition it is left out; the check of cells judges that."""
        return LEFT_OUT if self.subject.decided.where else "missing_rows"

    @property
    def comparable(self) -> bool:
        """True if the changes contain the whole key: a shard column is only in the mirror."""
        mirror = self.subject.decided
        if not self.subject.keyed or mirror.soft:
            return False  # the check of cells decides which deleted rows are kept
        if self.subject.merges(self.lake.pipeline):
            return False  # the check of cells decides which table's row a mirror holds
        rules = (rule_for(self.lake.pipeline, lane.table, self.subject.path) for lane in self.subject.lanes)
        return not {rule.shard_column for rule in rules} & set(mirror.keys)

    @property
    def lanes(self) -> list[tuple[int, CheckedLane]]:
        """The lanes with changes to compare."""
        if not self.comparable:
            return []
        return [(i, lane) for i, lane in enumerate(self.subject.lanes) if self.since <= 0 or lane.changes]

    @property
    def closed(self) -> bool:
        """True if the given changes are the complete history."""
        if not self.comparable or self.subject.decided.eras:
            return False
        return self.since <= 0 or any(batch > self.since for _, batch in self.cleared.values())

    @property
    def mostly_untouched(self) -> bool:
        """True if most rows are untouched by this batch and were verified earlier, so counting them is enough."""
        if not self.comparable or self.closed or self.since <= 0 or self.subject.size < LARGE:
            return False
        lanes = [lane for _, lane in self.lanes]
        return sum(lane.changes for lane in lanes) <= FEW and not any(lane.floor for lane in lanes)

    @property
    def signature(self) -> tuple[tuple[str, str], ...]:
        """Name and logical type of each key column."""
        return tuple((column.name, column.type) for column in self.columns)

    @property
    def columns(self) -> tuple[mirrors.Column, ...]:
        return self.subject.decided.key_columns

    def above(self, index: int, lane: CheckedLane) -> str:
        """The place up to which a lane's changes are not compared: its rows were emptied there, or had another key."""
        return max(self.cleared.get(index, NEVER).place, self.subject.decided.rekeyed_at(*lane.id))

    def clear(self, index: int, cleared: Cleared) -> None:
        """Record that a lane was emptied at a place: no earlier row may be in its mirror."""
        self.cleared[index] = max(self.cleared.get(index, cleared), cleared)

    def begins(
        self, about: Mapping[LaneId, Sequence[Statement]], done: Mapping[tuple[str, str], str]
    ) -> None:
        """Record where lanes began again, by the statements about each and by what these have ``done`` to mirrors when they were
        folded, as `ingest.ledgers.logged_statements.done` gives it.
        """
        for i, lane in self.lanes:
            rule = rule_for(self.lake.pipeline, lane.table, self.subject.path)
            statements = about.get(lane.id, ())
            path = self.subject.path
            did = {statement.id: done.get((path, statement.id), "") for statement in statements}
            cleared = beginning(statements, rule, lane.table, self.subject.applied, did)
            if cleared is not None:
                self.cleared[i] = cleared


SideLane = tuple[Side, int, CheckedLane]
