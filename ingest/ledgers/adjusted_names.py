"""Columns that rows have under another name than statements: Debezium writes ``_`` for what Avro's names may not contain.

``x-y`` comes as ``x_y``, ``备注`` as ``__`` and ``9a`` as ``_9a`` (Debezium documentation, ``field.name.adjustment.mode``, ``avro``). A
statement's column is that of the rows where none of them had its own name before, and no other column of the table may be meant:
none is called so by a statement, and none had the name in rows before the statement that adds the column, unless a statement
has dropped it. Before the first such row the column is known by its own name alone: a mirror that has folded the statement
until then is folded again (`ingest.gold.plan.mirror_schema`).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from ingest.change import TableId
from ingest.ddl import Effect

_OTHER = re.compile(r"[^A-Za-z0-9_]")


def adjusted(name: str) -> str:
    """A name as the connector writes it for Avro; the same one where Avro takes it."""
    return _OTHER.sub("_", f"_{name}" if name[:1].isdigit() else name)


class _Sent(Protocol):
    @property
    def low(self) -> str: ...
    @property
    def batch(self) -> int: ...


class Adjusted(NamedTuple):
    """A table's column that a statement makes and that no row has by this name."""

    table: TableId
    name: str
    batch: int  # of the first row that has it by another name


@dataclass(slots=True)
class _Columns:
    """A table's columns by its statements; ``all`` if these say all of them."""

    named: dict[str, str] = field(default_factory=dict)  # to the rows' names
    declared: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)  # the rows' names of columns that are gone
    all: bool = False


@dataclass(slots=True)
class AdjustedNames:
    """The columns of one source's tables that statements call otherwise than rows, in the order of the statements.

    Args:
        sent: the columns that a table's rows have had; asked only where a statement has a name that Avro does not take.
    """

    sent: Callable[[TableId], Mapping[str, _Sent]]
    _tables: dict[TableId, _Columns] = field(default_factory=lambda: defaultdict(_Columns))
    _made: list[Adjusted] = field(default_factory=list)  # by the statement

    def take(self, effects: Iterable[Effect], order: str) -> tuple[list[Effect], tuple[Adjusted, ...]]:
        """The effects of the next statement under the rows' names, and the columns that it makes by other ones."""
        self._made.clear()
        return [self._adjusted(effect, order) for effect in effects], tuple(self._made)

    def _adjusted(self, effect: Effect, order: str) -> Effect:
        if effect.action == "create_table" and effect.columns:
            self._tables[effect.table] = _Columns(all=True)
            self._add(effect.table, [column.name for column in effect.columns], order)
        elif effect.action == "add_column":
            self._add(effect.table, [effect.name], order)
        elif effect.action == "rename_column":
            self._add(effect.table, [effect.new_name], order)
        elif effect.action == "rename_table" and effect.other_table is not None:
            self._tables[effect.other_table] = self._tables.pop(effect.table, _Columns())
        columns = self._tables.get(effect.table)
        if columns is None:
            return effect
        under_rows_names = _renamed(effect, columns.named) if columns.named else effect
        if effect.action in ("drop_column", "rename_column"):  # another column may get the name
            columns.declared.discard(effect.name)
            columns.left |= {columns.named.pop(effect.name)} if effect.name in columns.named else set()
        return under_rows_names

    def _add(self, table: TableId, names: Sequence[str], order: str) -> None:
        """Take note of new columns, and of those that rows have under another name."""
        columns = self._tables[table]
        columns.declared.update(names)
        others = [name for name in names if adjusted(name) != name]
        sent = self.sent(table) if others else {}
        called = Counter(map(adjusted, columns.declared))
        for name in others:
            other = adjusted(name)
            column, plain = sent.get(other), sent.get(name)
            if column is None or called[other] > 1 or (plain is not None and plain.low <= column.low):
                continue
            if columns.all or column.low >= order or other in columns.left:
                columns.named[name] = other
                self._made += [Adjusted(table, name, column.batch)] if plain is None else []


def _renamed(effect: Effect, names: Mapping[str, str]) -> Effect:
    """An effect under the rows' names."""

    def all_of(columns: Collection[str]) -> tuple[str, ...]:
        return tuple(names.get(name, name) for name in columns)

    return replace(
        effect,
        column=None if effect.column is None else names.get(effect.column, effect.column),
        to=names.get(effect.to, effect.to) if isinstance(effect.to, str) else effect.to,
        keys=all_of(effect.keys),
        made_of=effect.made_of if effect.other_table else all_of(effect.made_of),
        columns=tuple(
            replace(column, name=names.get(column.name, column.name), made_of=all_of(column.made_of))
            for column in effect.columns
        ),
    )
