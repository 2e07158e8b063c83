"""Effects of a DDL event: from the message's own structure where it carries one, else from its SQL.

Structure beats SQL text: it needs no grammar.  But it is a table's state, not what happened to it,
so an ALTER's renames, drops and defaults still come from the statement.  Without one that can be read
(SQL Server sends none, AWS DMS neither) it is not known what became of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from ingest import types
from ingest.change import Change, TableId
from ingest.ddl.effect_model import UNREAD, ColumnDefinition, Ddl, Effect, kind_of
from ingest.ddl.statements import effects
from ingest.values import boolean_text

SNAPSHOT = "snapshot"  # note of DDL that a connector prints for its own snapshot
UNPLACED = "the message has no position"  # note of a TRUNCATE whose rows are unknown


class TableStructure(msgspec.Struct, frozen=True, omit_defaults=True, rename={"kind": "type"}):
    """A table as a DDL message describes it; its text is what `Change.structure` holds.

    Args:
        kind: CREATE, ALTER, DROP, RENAME or the source's word for another change.
        keys: the columns of the primary key.
        columns: the logical type of each column.
        charset: MySQL's character set of the table's new columns.
        charsets: those of columns, by name.
    """

    kind: str
    keys: tuple[str, ...]
    columns: dict[str, str]
    charset: str | None = None
    charsets: dict[str, str] = {}

    def with_charsets(self, table: object, columns: Mapping[str, object]) -> TableStructure:
        """With the character sets that a message names, whatever it has in their place."""
        named = {
            name: charset.lower() for name, charset in columns.items() if charset and isinstance(charset, str)
        }
        of_table = table.lower() if table and isinstance(table, str) else None
        return msgspec.structs.replace(self, charset=of_table, charsets=named)

    def text(self) -> str:
        """As compact JSON."""
        return msgspec.json.encode(self).decode()

    @property
    def is_empty(self) -> bool:
        """True if it has no columns, and its table need not have been one."""
        return not self.columns and not self.keys and self.kind not in ("DROP", "RENAME")


def of_change(change: Change) -> Ddl:
    """What a DDL change does to mirrors; one printed for a snapshot does nothing, and describes its table."""
    parsed = _of_event(change)
    if change.note and SNAPSHOT in change.note:
        return Ddl(parsed.effects, "none", "printed for a snapshot")
    return parsed


def _of_event(change: Change) -> Ddl:
    if change.note == UNPLACED:
        return Ddl((), "unknown", f"{UNPLACED}, so that the rows which it removed are not known")
    parsed = effects(change.ddl or "", change.dialect, *change.table)
    structure = None
    if change.structure is not None:
        structure = msgspec.json.decode(change.structure, type=TableStructure)
    if (structure is None or structure.is_empty) and not (change.ddl or "").strip():
        return Ddl((), "unknown", "neither a statement nor a structure")
    if structure is None:
        return parsed
    if structure.kind == "ALTER" and parsed.kind != "unknown" and change.ddl:
        return _typed(parsed, change.table, structure)
    if structure.kind != "ALTER" and any(effect.action == "rename_table" for effect in parsed.effects):
        return parsed  # the structures may show the table as one that was created and one that was dropped
    return _OF_KIND.get(structure.kind, _of_unread)(change.table, structure, parsed)


def _of_created(table: TableId, structure: TableStructure, statement: Ddl) -> Ddl:
    columns = tuple(
        ColumnDefinition(name, type=logical, charset=structure.charsets.get(name))
        for name, logical in structure.columns.items()
    )
    created = Effect("create_table", table, columns=columns, keys=structure.keys, charset=structure.charset)
    foreign = (effect for effect in statement.effects if effect.action == "add_foreign_key")
    return _of((_with_statement(created, statement), *foreign), "the message's own structure")


def _of_dropped(table: TableId, _structure: TableStructure, _statement: Ddl) -> Ddl:
    return _of((Effect("drop_table", table),), "the message's own structure")


def _of_renamed(table: TableId, _structure: TableStructure, _statement: Ddl) -> Ddl:
    """Of the two names a structure has one, and does not say which."""
    effect = Effect("truncate_partition", table, note="the table has another name")
    return _of((effect,), "the message's own structure")


def _of_unread(table: TableId, structure: TableStructure, _statement: Ddl) -> Ddl:
    added = tuple(
        Effect("add_column", table, name, type=logical, note=UNREAD)
        for name, logical in structure.columns.items()
    )
    keys = (Effect("add_primary_key", table, keys=structure.keys),) if structure.keys else ()
    return _of((*added, *keys), "the message's own structure; its statement was not understood")


_OF_KIND = {"CREATE": _of_created, "DROP": _of_dropped, "RENAME": _of_renamed}
"""What a structure says by itself, by its kind."""


def _of(made: tuple[Effect, ...], reason: str) -> Ddl:
    return Ddl(made, kind_of(made), reason)


def _with_statement(effect: Effect, statement: Ddl) -> Effect:
    """A created table with what only its statement says: defaults, character sets, and the types as written."""
    said = next(
        (
            written
            for written in statement.effects
            if (written.action, written.table) == (effect.action, effect.table)
        ),
        None,
    )
    if said is None:
        return effect
    written = {column.name: column for column in said.columns}
    columns = tuple(
        replace(
            its,
            name=column.name,
            type=_with_digits(column.type, its.type),
            charset=column.charset or its.charset,
            default=_default(its, column.type),
        )
        if (its := written.get(column.name))
        else column
        for column in effect.columns
    )
    return replace(effect, columns=columns, charset=effect.charset or said.charset)


def _typed(statement: Ddl, table: TableId, structure: TableStructure) -> Ddl:
    """The statement's effects with the structure's types, character sets and key."""

    def typed(effect: Effect) -> Effect:
        if effect.action == "add_primary_key":
            return replace(effect, keys=structure.keys or effect.keys)
        if effect.column and effect.type is not None:
            logical = _with_digits(structure.columns.get(effect.column, effect.type), effect.type)
            return replace(
                effect,
                type=logical,
                charset=effect.charset or structure.charsets.get(effect.column),
                default=_default(effect, logical),
            )
        return effect

    return replace(
        statement,
        effects=tuple(typed(effect) if effect.table == table else effect for effect in statement.effects),
    )


def _with_digits(named: str | None, said: str | None) -> str | None:
    """The type that a structure names; a decimal with the digits that only the statement has."""
    return said if named == "decimal" and said is not None and types.base(said) == "decimal" else named


def _default(said: Effect | ColumnDefinition, logical: str | None) -> str | None:
    """A statement's default as a value of the type that the messages give the column."""
    if logical != "boolean" or said.default is None or said.default not in ("0", "1"):
        return said.default
    return boolean_text(said.default)
