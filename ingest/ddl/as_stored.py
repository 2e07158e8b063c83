"""What a column of a type stores for a literal, such as a DEFAULT: one rule for each database and type, or nothing.

Existing rows get what the database stores, which may differ from what the statement spells: CHAR is filled up with blanks,
a clock is rounded, JSONB is written anew. `stored` gives the canonical text, and a `ValueError` wherever no rule is certain:
the session or the locale decides, or the type is not known here. ``tests/e2e/test_as_stored.py`` executes the literals of each
type on MariaDB and on PostgreSQL; the rules of Oracle, SQL Server and Db2 are those of their references.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ingest import types, values
from ingest.ddl import stored_db2, stored_mysql, stored_oracle, stored_postgres, stored_sqlserver
from ingest.ddl.effect_model import Dialect
from ingest.ddl.tokens import Cursor, Token, Unread


class Default(NamedTuple):
    """A DEFAULT for the rows that are there: its canonical text, whether there is one, and why its value is not known."""

    text: str | None = None
    known: bool = False
    note: str | None = None


EXPRESSION = Default(None, True, "expression")
_EMPTY_JSON = {"JSON_OBJECT()": "{}", "JSON_ARRAY()": "[]"}  # how MySQL must write them
_MAX_BRACKETS = 8  # around one literal; each costs a pass over what it holds
_STORED = {
    "mysql": stored_mysql.stored, "oracle": stored_oracle.stored, "postgres": stored_postgres.stored,
    "sqlserver": stored_sqlserver.stored, "db2": stored_db2.stored,
}  # fmt: skip


def default(
    items: Sequence[Token],
    logical: str | None,
    declared: str | None,
    dialect: Dialect,
    charset: str | None = None,
) -> Default:
    """What a DEFAULT's tokens give to existing rows.

    Args:
        items: the tokens after DEFAULT.
        logical: the column's logical type; None if the statement does not name it.
        declared: the same as the source wrote it.
        dialect: the database's.
        charset: the column's character set, in lower case; None if the definition does not name it.

    Raises:
        Unread: there are no tokens.
    """
    if not items:
        raise Unread("DEFAULT without a value")
    items = _unwrapped(items)
    casts: list[str] = []
    if dialect == "postgres":
        items, casts = _without_casts(items)
    if len(items) == 1 and items[0].word == "NULL":
        return Default(None, True)
    if len(items) == 2 and items[0].word in ("DATE", "TIMESTAMP", "TIME") and items[1].kind == "string":
        items = [Token("moment", items[1].text, items[0].start, items[1].end)]
    if (made := _EMPTY_JSON.get("".join(token.text.upper() for token in items[:4]))) and logical == "json":
        return Default(made, True)
    try:
        literal = _literal(items)
        if charset and literal.kind in ("bits", "hex") and logical == "string":
            literal = stored_mysql.in_charset(literal, charset)
        text = _text_of(literal, logical, declared or "", casts, dialect)
    except (ValueError, ArithmeticError):
        return EXPRESSION
    return Default(text, True)


def default_of_type(logical: str | None, declared: str | None) -> Default:
    """What a DEFAULT without a value, which only Db2 has, gives to existing rows."""
    try:
        return Default(stored_db2.of_type(logical, declared or ""), True)
    except ValueError:
        return EXPRESSION


def _text_of(
    literal: Token, logical: str | None, declared: str, casts: Sequence[str], dialect: Dialect
) -> str | None:
    if dialect == "oracle" and literal.kind == "string" and not literal.text:
        return None  # Oracle takes an empty text for NULL
    rule = _STORED[dialect]
    for cast in casts:
        if not stored_postgres.keeps(cast, declared):
            cast_type = types.postgres(cast)
            if cast_type == "unknown":
                raise ValueError(f"what the type {cast} makes of it is not known")
            literal = Token("string", rule(literal, cast_type, cast), literal.start, literal.end)
    return rule(literal, logical or "unknown", declared)


def _literal(items: Sequence[Token]) -> Token:
    """One token for a literal; a number has its sign, TRUE and FALSE are of kind ``truth``."""
    token = items[-1]
    if len(items) == 1 and token.kind in ("bits", "hex", "string", "unicode", "moment"):
        return token
    if len(items) == 1 and token.word in ("TRUE", "FALSE"):
        return token._replace(kind="truth", text=token.word.lower())
    if token.kind == "number" and all(item.kind == "symbol" and item.text in "+-." for item in items[:-1]):
        text = "".join(item.text for item in items[:-1]) + token.text
        return token._replace(text=values.number_text(text.lstrip("+")))
    raise ValueError("no literal")


def _unwrapped(items: Sequence[Token]) -> Sequence[Token]:
    for _ in range(_MAX_BRACKETS):
        cursor = Cursor(items)
        if not cursor.is_symbol("("):
            break
        inside = cursor.group()
        if not cursor.done or not inside:
            break
        items = inside
    return items


def _without_casts(items: Sequence[Token]) -> tuple[Sequence[Token], list[str]]:
    """A literal without ``::type``, and the types to which it is cast, in order."""
    places = [at for at, token in enumerate(items) if token.kind == "symbol" and token.text == "::"]
    if not places or not places[0]:
        return items, []
    ends = [*places[1:], len(items)]
    casts = [written(items[start + 1 : end]) for start, end in zip(places, ends, strict=True)]
    return _unwrapped(items[: places[0]]), casts


def written(items: Sequence[Token]) -> str:
    """A type's tokens as it is declared: ``character varying(3)``."""
    text = ""
    for token in items:
        word = token.kind in ("word", "name") and text[-1:].isalnum()
        text += (" " if word else "") + token.text
    return text
