"""Effects of a DDL event: from the message's own structure where it carries one, else from its SQL.

Structure beats SQL text: it needs no grammar.  But it is a table's state, not what happened to it,
so an ALTER's renames, drops and defaults still come from the statement.  Without one that can be read
(SQL Server sends none, AWS DMS neither) it is not known what became of the rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ingest.change import Change, TableId
from ingest.ddl.effect_model import UNREAD, ColumnDefinition, Ddl, Effect, kind_of
from ingest.ddl.statements import effects
from ingest.values import boolean_text

SNAPSHOT = "snapshot"  # note of DDL that a connector prints for its own snapshot
UNPLACED = "the message has no position"  # note of a TRUNCATE whose rows are unknown


def charsets(table: object, columns: Mapping[str, object]) -> dict[str, Any]:
    """What a structure says of MySQL's character sets: of the table's new columns, and of each column.

    A structure whose message names none has no such members.
    """
    named = {
        name: charset.lower() for name, charset in columns.items() if charset and isinstance(charset, str)
    }
    of_table = {"charset": table.lower()} if table and isinstance(table, str) else {}
    return of_table | ({"charsets": named} if named else {})


def of_change(change: Change) -> Ddl:
    """What a DDL change does to mirrors; one printed for a snapshot does nothing, and describes its table."""
    parsed = _of_event(change)
    if change.note and SNAPSHOT in change.note:
        return Ddl(parsed.effects, "none", "printed for a snapshot")
    return parsed


def _of_event(change: Change) -> Ddl:
    database, schema, table = change.table
    parsed = effects(change.ddl or "", change.dialect, database, schema, table)
    if change.note == UNPLACED:
        return Ddl((), "unknown", f"{UNPLACED}, so that the rows which it removed are not known")
    structure = None if change.structure is None else json.loads(change.structure)
    says = structure is not None and (
        structure["columns"] or structure["keys"] or structure["type"] in ("DROP", "RENAME")
    )
    if not says and not (change.ddl or "").strip():
        return Ddl((), "unknown", "neither a statement nor a structure")
    if structure is None:
        return parsed
    if structure["type"] != "ALTER" and any(effect.action == "rename_table" for effect in parsed.effects):
        return parsed  # the structures may show the table as one that was created and one that was dropped
    types, key = structure["columns"], tuple(structure["keys"])
    if structure["type"] == "ALTER" and parsed.kind != "unknown" and change.ddl:
        return _typed(parsed, change.table, structure, key)
    if structure["type"] == "CREATE":
        sets = structure.get("charsets", {})
        columns = tuple(
            ColumnDefinition(name, type=logical, charset=sets.get(name)) for name, logical in types.items()
        )
        effect = Effect(
            "create_table", change.table, columns=columns, keys=key, charset=structure.get("charset")
        )
        effect = _with_statement(effect, parsed)
        foreign = (constraint for constraint in parsed.effects if constraint.action == "add_foreign_key")
        return _of((effect, *foreign), "the message's own structure")
    if structure["type"] == "DROP":
        return _of((Effect("drop_table", change.table),), "the message's own structure")
    if structure["type"] == "RENAME":  # of the two names it has one, and does not say which
        effect = Effect("truncate_partition", change.table, note="the table has another name")
        return _of((effect,), "the message's own structure")
    added = tuple(
        Effect("add_column", change.table, name, type=logical, note=UNREAD) for name, logical in types.items()
    )
    keys = (Effect("add_primary_key", change.table, keys=key),) if key else ()
    return _of((*added, *keys), "the message's own structure; its statement was not understood")


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
            type=column.type,
            charset=column.charset or its.charset,
            default=_default(its, column.type),
        )
        if (its := written.get(column.name))
        else column
        for column in effect.columns
    )
    return replace(effect, columns=columns, charset=effect.charset or said.charset)


def _typed(statement: Ddl, table: TableId, structure: Mapping[str, Any], keys: tuple[str, ...]) -> Ddl:
    """The statement's effects with the structure's types, character sets and key."""
    columns, sets = structure["columns"], structure.get("charsets", {})

    def typed(effect: Effect) -> Effect:
        if effect.action == "add_primary_key":
            return replace(effect, keys=keys or effect.keys)
        if effect.column and effect.type is not None:
            logical = columns.get(effect.column, effect.type)
            return replace(
                effect,
                type=logical,
                charset=effect.charset or sets.get(effect.column),
                default=_default(effect, logical),
            )
        return effect

    return replace(
        statement,
        effects=tuple(typed(effect) if effect.table == table else effect for effect in statement.effects),
    )


def _default(said: Effect | ColumnDefinition, logical: str | None) -> str | None:
    """A statement's default as a value of the type that the messages give the column."""
    if logical != "boolean" or said.default is None or said.default not in ("0", "1"):
        return said.default
    return boolean_text(said.default)
