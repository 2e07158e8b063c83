"""SQL expressions over a row's own columns, as `where:` and computed columns of a table's rule have them.

What one may contain is listed here.  Anything else (a subquery, `now()`, `random()`, a function that has not been
looked at) could give another answer tomorrow for a row that has not changed.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from sqlglot import exp

DIALECT = "duckdb"
_KNOWN = frozenset(
    "Column Identifier Literal Boolean Null Paren Neg Tuple And Or Not Is In Between NullSafeEQ NullSafeNEQ "
    "EQ NEQ GT GTE LT LTE Like ILike Escape Add Sub Mul Div IntDiv Mod Abs "
    "Case If Coalesce Nullif Lower Upper Length Trim Substring Cast TryCast DataType DataTypeParam "
    "DPipe Concat Round Floor Ceil Greatest Least Year Month Day".split()
)
"""What an expression may contain, as sqlglot names it."""


def condition(text: str) -> str:
    """A condition that a row meets or not, whenever and wherever it is asked; else a `ValueError`."""
    _check(text, "a condition", "it holds for every row or for none")
    return text


def expression(text: str) -> str:
    """An expression whose value depends on the row alone; else a `ValueError`."""
    _check(
        text, "an expression", "its value is the same in every row: write `constant:` instead of `compute:`"
    )
    return text


def _check(text: str, what: str, without_columns: str) -> None:
    from sqlglot import exp

    tree = _parsed(text, what)
    if odd := next((node for node in tree.walk() if type(node).__name__ not in _KNOWN), None):
        shown = odd.sql(dialect=DIALECT)
        raise ValueError(
            f"{shown[:60]!r} is not allowed in {what}: write comparisons of the row's own columns, with AND, OR, NOT, IN, "
            "BETWEEN, LIKE, CASE, CAST, coalesce, lower, upper, length, trim, substring, round, year, month, day, || and arithmetic"
        )
    if odd := next((column for column in tree.find_all(exp.Column) if column.table), None):
        raise ValueError(f"{odd.sql(dialect=DIALECT)!r} names a table: write the column alone")
    if not columns(text):
        raise ValueError(f"{text!r} names no column, so that {without_columns}")


@cache
def columns(text: str) -> tuple[str, ...]:
    """The columns that a condition needs, by the source's names."""
    from sqlglot import exp

    return tuple(dict.fromkeys(column.name for column in _parsed(text).find_all(exp.Column)))


@cache
def numbered(text: str) -> str:
    """The condition as SQL of DuckDB over ``c0``, ``c1`` ... for its columns in their order."""
    from sqlglot import exp

    names = columns(text)

    def renamed(node: exp.Expression) -> exp.Expression:
        return exp.column(f"c{names.index(node.name)}") if isinstance(node, exp.Column) else node

    return _parsed(text).copy().transform(renamed).sql(dialect=DIALECT)


def _parsed(text: str, what: str = "a condition") -> exp.Expression:
    import sqlglot
    from sqlglot.errors import ParseError, TokenError

    try:
        return cast("exp.Expression", sqlglot.parse_one(text, read=DIALECT))
    except (ParseError, TokenError) as error:
        details = getattr(error, "errors", None) or [{}]
        column = details[0].get("col")
        description = str(details[0].get("description") or "")
        why = (
            "it breaks off"
            if not description or description.startswith("Required keyword")
            else description.strip().rstrip(".")
        )
        raise ValueError(
            f"{text!r} is not an SQL {what.rpartition(' ')[2]}: {why}"
            + (f", at its character {column}" if column else "")
        ) from None
