"""Types, domains and schemas of PostgreSQL: what statements on them do to the tables that use them.

Which tables these are, `ingest.ledgers.reach` knows. A type's identity is written as a table's is. A type, domain or schema
that is made here does nothing to rows; it is described for the statements that use it. An enumeration's labels may also be
listed by the messages of rows (`relabelled`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ingest.change import TableId
from ingest.ddl import as_stored, columns
from ingest.ddl.effect_model import Effect
from ingest.ddl.scope import Scope
from ingest.ddl.tokens import Cursor, Token, Unread

_HARMLESS = frozenset("OWNER SET VALIDATE".split())


def create(kind: str, cursor: Cursor, scope: Scope) -> Sequence[Effect]:
    """``CREATE TYPE n AS ENUM | RANGE | (...)`` and ``CREATE DOMAIN n [AS] type [DEFAULT ...]``."""
    name = scope.table(cursor)
    cursor.accept("AS")
    if kind == "TYPE":
        return (Effect("make_type", name, note="type"),)
    named = Token("name", name.table or "", 0, 0)
    made = columns.definition([named, *cursor.rest()], scope.dialect, scope.source).column
    return (
        Effect(
            "make_type",
            name,
            type=made.type,
            declared=made.declared,
            default=made.default,
            has_default=made.has_default,
            note="expression" if made.note else "domain",
        ),
    )


def alter(kind: str, cursor: Cursor, scope: Scope) -> Sequence[Effect]:
    """``ALTER TYPE`` and ``ALTER DOMAIN``, clause by clause."""
    name = scope.table(cursor)
    if cursor.accept("RENAME", "VALUE"):
        old = cursor.next().text
        if not cursor.accept("TO"):
            raise Unread("RENAME VALUE without TO")
        return (Effect("rename_label", name, old, to=cursor.next().text),)
    if cursor.accept("RENAME", "TO"):
        return (Effect("rename_type", name, to=TableId(name.database, name.schema, scope.column(cursor))),)
    if cursor.accept("SET", "SCHEMA"):
        return (Effect("rename_type", name, to=TableId(name.database, scope.column(cursor), name.table)),)
    if cursor.accept("ADD", "VALUE") or (kind == "DOMAIN" and _changes_checks(cursor)):
        return ()
    if cursor.accept("SET", "DEFAULT"):
        default, default_known, note = as_stored.default(cursor.rest(), None, None, scope.dialect)
        return (Effect("domain_default", name, default=default, has_default=default_known, note=note),)
    if cursor.accept("DROP", "DEFAULT"):
        return (Effect("domain_default", name),)
    if cursor.word() in _HARMLESS:
        return ()
    # ADD, DROP, ALTER or RENAME ATTRIBUTE: how the values of a composite type are written changes
    return (Effect("alter_type", name, note=" ".join(token.text for token in cursor.rest()[:8])[:80]),)


def _changes_checks(cursor: Cursor) -> bool:
    words = cursor.word(), cursor.word(1)
    return (
        words in {("SET", "NOT"), ("DROP", "NOT"), ("RENAME", "CONSTRAINT")}
        or words[0] == "ADD"
        or (words == ("DROP", "CONSTRAINT"))
    )


def dropped(cursor: Cursor, scope: Scope) -> Sequence[Effect]:
    """``DROP TYPE | DOMAIN a, b CASCADE``, which drops the columns of these types; without CASCADE there are none."""
    cursor.accept("IF", "EXISTS")
    names = [scope.table(cursor)]
    while cursor.symbol(","):
        names.append(scope.table(cursor))
    return [Effect("drop_type", name) for name in names] if cursor.accept("CASCADE") else ()


def rename_schema(cursor: Cursor, scope: Scope, kind: str) -> Sequence[Effect]:
    """``ALTER SCHEMA a RENAME TO b``, and of a DATABASE; all other clauses leave names and rows alone."""
    old = scope.column(cursor)
    if not cursor.accept("RENAME", "TO"):
        return ()
    new, database = scope.column(cursor), scope.message.database
    if kind == "DATABASE":
        return (Effect("rename_schema", TableId(old, None, None), to=TableId(new, None, None)),)
    return (Effect("rename_schema", TableId(database, old, None), to=TableId(database, new, None)),)


def relabelled(old: Sequence[str], new: Sequence[str]) -> dict[str, str | None]:
    """What became of an enumeration's labels of which a later list lacks some or has them elsewhere; None if it does not tell.

    PostgreSQL adds a label at any place, gives one another name at its place, and drops none (documentation, ALTER TYPE). So
    where as many new labels stand between two that stay as are gone there, these are their names now. Any other list may be
    that of another type, also one of which no label stays, unless there is only one. The same labels in another order are those
    of a type that was made again, whose rows have kept theirs. A list with a label twice is none: no type has such labels.
    """
    if set(old) == set(new) or len({*old}) < len(old) or len({*new}) < len(new):
        return {}
    kept = [label for label in old if label in new]
    stay = [label for label in new if label in old]
    if not kept and len(old) > 1:
        return dict.fromkeys(old)
    if kept != stay:
        moved = {label for label, other in zip(kept, stay, strict=True) if label != other}
        return {label: None for label in old if label in moved or label not in new}
    became: dict[str, str | None] = {}
    for gone, came in zip(between(old, kept), between(new, kept), strict=True):
        became |= zip(gone, came, strict=True) if len(gone) == len(came) else dict.fromkeys(gone)
    return became


def between(names: Sequence[str], kept: Sequence[str]) -> list[list[str]]:
    """The names before, between and after those that stay."""
    runs: list[list[str]] = [[]]
    for name in names:
        if name in kept:
            runs.append([])
        else:
            runs[-1].append(name)
    return runs
