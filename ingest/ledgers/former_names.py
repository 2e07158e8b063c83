"""Under which names a table's rows were sent before a RENAME gave it another, and why these may not be all of its rows.

A name is a table's only for a time: a swap (`RENAME TABLE orders TO old, new TO orders`) gives each name to another
table. What the messages hold of a table is therefore what came of each of its names in its time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from ingest.change import TableId
from ingest.ddl import Effect
from ingest.ledgers.decisions import APPROVE, DISMISS
from ingest.ledgers.logged_statements import Statement, touched
from ingest.ledgers.resolve import (
    DOUBTED,
    EMPTY,
    UNSEEN,
    Came,
    hides_rows,
    is_copy,
    leaves_open,
    renamed_into,
)
from ingest.ledgers.timeline import LEAVES_NAME


class Tenure(NamedTuple):
    """The time in which a table had a name: after a place, and before another one; empty for no such bound."""

    table: TableId
    low: str = ""
    high: str = ""


@dataclass(frozen=True, slots=True)
class FormerNames:
    """The names of a table, oldest first. ``lacks`` says why what came of them are not all of its rows, as part of a sentence;
    empty if they are, or if it is only not known where they begin.
    """

    tenures: tuple[Tenure, ...]
    lacks: str = ""

    @property
    def begins(self) -> str:
        """The place before which nothing was in the table; empty if no statement shows it."""
        return self.tenures[0].low


class Move(NamedTuple):
    """A RENAME that gives a name to a table whose rows were sent under others."""

    statement: Statement
    table: TableId  # the name that it gives
    rows: FormerNames


@dataclass(slots=True)
class _Names:
    """Which table has each name of a source, by its statements in order."""

    came: Came  # of the source
    renamed: Collection[TableId]  # the tables whose rows some statement moves
    tables: dict[TableId, FormerNames] = field(default_factory=dict)
    gone: set[TableId] = field(default_factory=set)
    # the ATTACH of each table that became a partition without a row of its own
    attached: dict[TableId, Statement] = field(default_factory=dict)

    def of(self, table: TableId) -> FormerNames:
        return self.tables.get(table) or FormerNames((Tenure(table),))

    def take(self, statement: Statement) -> Iterator[Move]:
        """Follow one statement; the moves that it makes."""
        before = dict(self.tables)
        for table in statement.tables if statement.kind == "unknown" and not _is_approved(statement) else ():
            self._doubt(table, statement)
        for effect in statement.effects:
            if effect.action == "rename_table" and (to := effect.other_table) is not None:
                self._doubt_partition(effect.table, statement)
                rows = self._closed(effect.table, statement.order)
                if renamed_into(effect, to):
                    yield Move(statement, to, rows)
                self._give(to, replace(rows, tenures=(*rows.tenures, Tenure(to, statement.order))))
                self._leave(effect.table)
            elif effect.action == "swap_table":
                self._give(effect.table, self._swapped(effect, before, statement.order))
            else:
                self._follow(effect, statement)

    def _swapped(self, effect: Effect, before: dict[TableId, FormerNames], place: str) -> FormerNames:
        """A table that goes on under its name: a tool's copy has taken its place, or it was away and is back."""
        there = before.get(effect.table) or self.of(effect.table)
        if effect.note == UNSEEN:
            return replace(there, lacks=f"no message shows what was done to {effect.to} before")
        other = effect.other_table
        if other is None or is_copy(other, effect.table):
            return there
        rows = self._closed(other, place)
        self._leave(other)
        return replace(rows, tenures=(*rows.tenures, Tenure(effect.table, place)))

    def _follow(self, effect: Effect, statement: Statement) -> None:
        table, note = effect.table, effect.note
        if effect.action in LEAVES_NAME:
            self._leave(table)
        elif effect.action == "create_table":
            self._create(table, note, statement)
        elif effect.action == "truncate":
            self._give(table, FormerNames((Tenure(table, statement.order),)))
        elif effect.action == "unread":
            if not _is_approved(statement):
                self._doubt(table, statement)
        elif effect.note == EMPTY and (partition := effect.other_table):
            self.attached[partition] = statement
        elif hides_rows(effect) or any(leaves_open(effect, name) for name in touched(effect)):
            self._doubt(table, statement)

    def _create(self, table: TableId, note: str | None, statement: Statement) -> None:
        """Begin a new table, unless it may be there already."""
        if note == "if-not-exists":
            asks = table not in self.tables and table in self.renamed
            if not asks or (table not in self.gone and self.came(table, "", statement.order)):
                return
        lacks = f"the rows with which {table} was created are in no message" if note == "as-select" else ""
        self._give(table, FormerNames((Tenure(table, statement.order),), lacks))
        if note == DOUBTED:
            self._doubt(table, statement)

    def _doubt_partition(self, table: TableId, statement: Statement) -> None:
        """Doubt a former partition: without a row of its own since its ATTACH, they have come under the other name."""
        attached = self.attached.pop(table, None)
        if attached and not self.came(table, attached.order, statement.order):
            self._doubt(table, attached)

    def _closed(self, table: TableId, place: str) -> FormerNames:
        rows = self.of(table)
        return replace(rows, tenures=(*rows.tenures[:-1], rows.tenures[-1]._replace(high=place)))

    def _give(self, table: TableId, rows: FormerNames) -> None:
        self.tables[table] = rows
        self.gone.discard(table)

    def _leave(self, table: TableId) -> None:
        self.tables.pop(table, None)
        self.attached.pop(table, None)
        self.gone.add(table)

    def _doubt(self, table: TableId, statement: Statement) -> None:
        lacks = f"no message shows what {statement.said[:120]!r} did to its rows"
        self.tables[table] = replace(self.of(table), lacks=lacks)


def _is_approved(statement: Statement) -> bool:
    """True if the operator knows that a statement, which could not be read, does nothing to rows."""
    return statement.decided == APPROVE


def moves(statements: Iterable[Statement], came: Came) -> list[Move]:
    """The moves of tables with rows that no decision has settled, in their order.

    Args:
        statements: the ledger's, in order, as `ingest.ledgers.resolve.resolved` gives them.
        came: whether a table may have sent rows between two places.
    """
    statements = list(statements)
    renamed = _renamed(statements)
    names: dict[str, _Names] = {}
    made: list[Move] = []
    for statement in statements:
        if statement.decided == DISMISS:
            continue
        source = statement.source
        of_source = names.setdefault(source, _Names(partial(came, source), renamed))
        made += (move for move in of_source.take(statement) if not statement.decided)
    return made


def _renamed(statements: Iterable[Statement]) -> set[TableId]:
    """The names that a statement takes from a table or gives to it: only of these it matters where their rows begin."""
    effects = (effect for statement in statements for effect in statement.effects)
    return {
        table
        for effect in effects
        if effect.action in ("rename_table", "swap_table")
        for table in (effect.table, effect.other_table)
        if table is not None
    }
