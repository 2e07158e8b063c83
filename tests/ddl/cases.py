"""The statements of ``statements.txt`` and the short form in which their effects are written there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ingest.ddl import ColumnDefinition, Ddl, Effect

FILE = Path(__file__).with_name("statements.txt")
MESSAGE = {
    "mysql": ("web", None, "message_table"),
    "oracle": ("HR", None, "MESSAGE_TABLE"),
    "postgres": ("db", "public", "message_table"),
    "sqlserver": ("db", "dbo", "message_table"),
    "db2": ("db", "HR", "MESSAGE_TABLE"),
}


class Case(NamedTuple):
    """One statement and what is expected of it."""

    dialect: str
    statement: str
    kind: str
    lines: tuple[str, ...]


def cases() -> Iterator[Case]:
    """Blocks of ``@ dialect kind``, a statement, and one ``> effect`` line per effect."""
    for block in FILE.read_text("utf-8").split("\n@ ")[1:]:
        head, *rest = block.strip("\n").split("\n")
        dialect, kind = head.split()
        statement = "\n".join(line for line in rest if not line.startswith("> "))
        yield Case(dialect, statement, kind, tuple(line[2:] for line in rest if line.startswith("> ")))


def lines(ddl: Ddl) -> tuple[str, ...]:
    """A statement's effects in the file's short form."""
    return tuple(_effect(effect) for effect in ddl.effects)


def _effect(effect: Effect) -> str:
    words = [effect.action, str(effect.table)]
    if effect.column is not None:
        words.append(f"[{effect.column}]")
    if effect.to is not None:
        words.append(f"-> {effect.to}")
    words += _members(effect)
    words += [f"({column.name}: {' '.join(_members(column))})" for column in effect.columns]
    if effect.keys:
        words.append("keys=" + ",".join(effect.keys))
    words += [name for name in ("only", "cascade", "filled") if getattr(effect, name)]
    return " ".join(words)


def _members(of: Effect | ColumnDefinition) -> list[str]:
    found = []
    if of.type is not None:
        found.append(f"{of.type} <{of.declared}>")
    if of.nullable is not None:
        found.append("null" if of.nullable else "not-null")
    if of.has_default:
        found.append(f"default={of.default!r}")
    if of.comment is not None:
        found.append(f"comment={of.comment!r}")
    if of.position is not None:
        found.append(f"at={of.position}")
    if of.note is not None:
        found.append(f"note={of.note}")
    if of.charset is not None:
        found.append(f"charset={of.charset}")
    if of.made_of:
        found.append("of=" + ",".join(of.made_of))
    return found
