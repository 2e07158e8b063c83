"""Statements as a pass over a mirror's rows, where that gives the same rows as a fold of its whole history.

ADD COLUMN with a DEFAULT, RENAME COLUMN, DROP COLUMN, and a MODIFY that leaves each value as it is do the same to all
rows from before them. The rows that the batch's changes concern are folded with the statements (`ingest.gold.fold.arrow_fold`);
all others get their new cells from the mirror's own rows. `statement_pass` is the one function that decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ingest import types
from ingest.fold import SchemaStep
from ingest.gold.plan.lane import Lane, Steps
from ingest.gold.plan.mirror_schema import Plan
from ingest.ledgers.logged_statements import Statement
from ingest.ledgers.mirrors import Column, Mirror
from ingest.ledgers.stamps import NO_STAMPS
from ingest.tables.delta import Snapshot, type_of_log
from ingest.values.typed_values import value_of


class Fill(NamedTuple):
    """What the rows of a mirror have in a column after new statements, where that is not what they have there now.

    Attributes:
        column: the column, by its name in Delta.
        of: the column of the table whose values it takes over; empty if it takes none over.
        text: what all rows have then; None for NULL.
    """

    column: str
    of: str = ""
    text: str | None = None


class StatementPass(NamedTuple):
    """What a pass puts into a mirror's rows, or why their whole history is folded instead, as part of a sentence."""

    fills: tuple[Fill, ...] = ()
    why_not: str = ""


class _Refused(Exception):
    """Raised for a statement after which the mirror's rows alone do not tell what they hold."""


def statement_pass(
    plan: Plan,
    before: Snapshot,
    work: Sequence[tuple[Lane, Steps]],
    earlier: Iterable[Statement],
    altered: Collection[SchemaStep],
    misfits: Callable[[], Collection[str]],
) -> StatementPass:
    """Whether the new statements of a mirror that exists are a pass over its rows.

    Args:
        plan: what the mirror shall be.
        before: its table.
        work: its lanes with new changes or statements.
        earlier: the statements about its table that it has folded.
        altered: the new steps that may change values, or give values that no message contains.
        misfits: says which columns have had cells that do not fit.
    """
    if why := _why_rows_do_not_tell(plan, work):
        return StatementPass(why_not=why)
    [(_, steps)] = work
    try:
        cells = _Cells.of(plan, before, earlier)
        for step in steps.new:
            cells.apply(step, converts=step in altered)
        return StatementPass(tuple(cells.fills(misfits)))
    except _Refused as error:
        return StatementPass(why_not=str(error))


def _why_rows_do_not_tell(plan: Plan, work: Sequence[tuple[Lane, Steps]]) -> str:
    """Why no statement is a pass over this mirror's rows, or none with these changes; empty if one may be."""
    mirror, lanes = plan.mirror, [lane for lane, _ in work]
    if not mirror.keys:
        return "it has no key"
    if mirror.soft or mirror.expressions or any(lane.stamps != NO_STAMPS for lane in lanes):
        return "its rules compute columns, leave rows out or keep deleted ones"
    if len(lanes) > 1 or any(lane.merged or lane.shard for lane in lanes):
        return "it has the rows of several tables"
    [(lane, steps)] = work
    why_not = {
        "its key has changed": bool(lane.eras),
        "a changed key takes values along that its message does not carry": bool(lane.inherits),
        "the same batch empties it": bool(lane.truncates) or any(step.empties for step in steps.new),
        "changes or statements have come late": bool(lane.late) or _has_late_steps(lane, steps),
        "a statement has come again": any(step.since for step in steps.new),
    }
    return next((why for why, holds in why_not.items() if holds), "")


def _has_late_steps(lane: Lane, steps: Steps) -> bool:
    """True if a new step is placed among changes that the mirror has folded."""
    return any(str(step.order) <= lane.folded_high for step in steps.new)


@dataclass(slots=True)
class _Cells:
    """What each column of the mirror's rows holds, by the source's names, while statements are applied to it.

    A column of the table may lack a value in some rows of history, and have one in others: it is ``stored``. What a
    statement has filled, all rows have.
    """

    mirror: Mirror
    decided: Mirror  # as it was decided last
    before: Snapshot
    stored: dict[str, str]  # the name of a column: the one of the table that has its values
    filled: dict[str, str] = field(default_factory=dict)  # the name of a column: its text
    named: set[str] = field(default_factory=set)  # by statements before the new ones
    emptied: set[str] = field(default_factory=set)  # what no row has a value of

    @classmethod
    def of(cls, plan: Plan, before: Snapshot, earlier: Iterable[Statement]) -> _Cells:
        """What the rows hold before the new statements."""
        if plan.before is None:
            raise _Refused("its columns were never decided")
        stored = {
            column.name: column.column for column in plan.before.columns if column.column in before.types
        }
        stored = {name: name for name in before.types if name not in stored.values()} | stored
        effects = [effect for statement in earlier for effect in statement.effects]
        named = {name for effect in effects for name in (effect.column, effect.to) if isinstance(name, str)}
        named |= {column.name for effect in effects for column in effect.columns}
        return cls(plan.mirror, plan.before, before, stored, named=named)

    def apply(self, step: SchemaStep, *, converts: bool) -> None:
        """One statement's step; it ``converts`` if it may change values of a column."""
        if converts:
            raise _Refused(f"the statement converts values of {step.column}")
        if step.retypes and step.type == step.old:  # it changes NULL alone, and no row has one
            return
        if {step.column, step.to} & {*self.mirror.keys}:
            raise _Refused("the statement concerns its key")
        match step.action:
            case "drop_column":
                self.stored.pop(step.column, None)
                self.filled.pop(step.column, None)
                self.emptied.add(step.column)
            case "add_column":
                if not self._has(step.column):
                    self.filled[step.column] = str(step.default)
            case "rename_column" if not self._has(step.to):
                if step.column in self.filled:
                    self.filled[step.to] = self.filled[step.column]
                elif step.column in self.stored:
                    self.stored[step.to] = self.stored[step.column]
                else:
                    self._refuse_left_out(step.column)

    def _has(self, name: str) -> bool:
        """True if all rows have a value of a column, False if none has."""
        if name in self.stored:
            raise _Refused(f"rows may have {name} already")
        self._refuse_left_out(name)
        return name in self.filled

    def _refuse_left_out(self, name: str) -> None:
        """Refuse a column which the mirror lacks although its messages may have had it."""
        if name in self.named - self.emptied:
            raise _Refused(f"an earlier statement names {name}")

    def fills(self, misfits: Callable[[], Collection[str]]) -> Iterator[Fill]:
        """What the mirror's columns get that they do not have."""
        types_before = self.before.types
        for column in self.mirror.columns:
            if column.name in self.filled:
                _refuse_unfit(column, self.filled[column.name])
                yield Fill(column.column, text=self.filled[column.name])
            elif column.name in self.stored:
                self._refuse_other_values(column, misfits)
                if self.stored[column.name] != column.column:
                    yield Fill(column.column, of=self.stored[column.name])
            elif column.column in types_before:
                yield Fill(column.column)

    def _refuse_other_values(self, column: Column, misfits: Callable[[], Collection[str]]) -> None:
        """Refuse a column whose values would be others if its messages were read again."""
        of = self.stored[column.name]
        former = next((column for column in self.decided.columns if column.column == of), None)
        moves, kind = of != column.column, type_of_log(self.before.types[of])
        if (
            former is None
            or not _same_values(former.type, column.type)
            or not types.widens(kind, column.delta)
        ):
            raise _Refused(f"the type of {column.name} becomes another one")
        if moves and not all(
            column.type == former.type for column in self.mirror.columns if column.column == of
        ):
            raise _Refused(f"{column.name} takes over the values of a column that gets another type")
        if (moves or (kind, former.type) != (column.delta, column.type)) and former.name in misfits():
            raise _Refused(f"some cells of {former.name} do not fit its type")


def _same_values(old: str, new: str) -> bool:
    """True if each text that has a value in a logical type has the same one in another, or the same number in a wider type."""
    if types.family(old) == types.family(new) and types.delta(old) == types.delta(new):
        return True
    exact = {types.family(old), types.family(new)} <= {"integer", "decimal"}
    return exact and types.delta(new) != "STRING" and types.widens(types.delta(old), types.delta(new))


def _refuse_unfit(column: Column, text: str) -> None:
    try:
        value_of(column.type, text)
    except (ValueError, ArithmeticError):
        raise _Refused(f"the default {text!r} is no value of {column.name}") from None
