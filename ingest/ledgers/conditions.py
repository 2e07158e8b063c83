"""Evaluate a table's ``where:`` and computed columns with DuckDB, for the fold and the checks alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ingest import types
from ingest.config import TableRule, conditions
from ingest.errors import FaultError, HeldError, fault_of, first_line
from ingest.tables import duck
from ingest.tables.cell_values import of_column, text_of
from ingest.values.typed_values import held

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

    from ingest.ledgers.mirrors import Column

    Cells = Callable[[str], pa.Array | pa.ChunkedArray]

_SOURCE = re.compile(r" when casting from source column c[0-9]+")  # by a number that only `numbered` knows
_WHERE = ""  # the rule that is the condition; each other one is named by its computed column
_LOGICAL = {
    "BOOLEAN": "boolean", "TINYINT": "int8", "SMALLINT": "int16", "INTEGER": "int32", "BIGINT": "int64",
    "FLOAT": "float32", "DOUBLE": "float64", "VARCHAR": "string", "BLOB": "binary", "DATE": "date",
    "TIMESTAMP": "datetime", "TIMESTAMP WITH TIME ZONE": "timestamp",
}  # fmt: skip


class ConditionError(ValueError):
    """An expression cannot be evaluated, or has a type that a column cannot have."""


class RuleFailed(FaultError, ConditionError):
    """A rule cannot be evaluated on some row, for example because of a text that is not a number: the mirror is held."""

    def __init__(self, rule: str, why: str) -> None:
        super().__init__(why.rstrip("."), {"rule": rule})


def shaped(
    where: str, computed: Mapping[str, tuple[str, str]], cells: Cells, gone: pa.Array
) -> tuple[pa.Array, dict[str, pa.Array]]:
    """Apply a mirror's rules to whole rows: the rows that it does not hold, and its computed columns.

    Args:
        where: the condition; empty if there is none.
        computed: each column's expression and logical type, by its name.
        cells: returns the typed cells of a column, by the source's name.
        gone: rows that are deleted; nothing is computed for them.

    Raises:
        RuleFailed: an expression fails on a row.
    """
    import pyarrow.compute as pc

    places, back = kept(gone)
    if where:
        fails = pc.invert(met(where, lambda column: cells(column).take(places), len(places)))
        gone = pc.if_else(gone, True, fails.take(back))
    if not computed:
        return gone, {}
    places, back = kept(gone)
    computed_cells = {
        name: values(name, expression, logical, lambda column: cells(column).take(places), len(places)).take(
            back
        )
        for name, (expression, logical) in computed.items()
    }
    return gone, computed_cells


def kept(gone: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The places of the rows that are not gone, and each row's place among these."""
    import pyarrow as pa
    import pyarrow.compute as pc

    left = pc.invert(gone)
    places = pc.subtract(pc.cumulative_sum(left.cast(pa.int64())), 1)
    return pc.indices_nonzero(left), pc.if_else(left, places, None)


def met(where: str, cells: Cells, rows: int) -> pa.Array:
    """For each of a number of rows, whether a condition is true; NULL counts as false. ``cells`` are as in `shaped`.

    Raises:
        RuleFailed: it fails on a row.
    """
    names = conditions.columns(where)
    return _asked(_WHERE, [cells(name) for name in names], _holds(where), rows).cast(
        "bool"
    )  # of no rows, too


def values(name: str, expression: str, logical: str, cells: Cells, rows: int) -> pa.Array:
    """For each of a number of rows, the value of a computed column by its expression, as in `shaped`.

    Raises:
        RuleFailed: the expression fails on a row, or its logical type would round or cut a value.
    """
    names = conditions.columns(expression)
    given = [cells(column) for column in names]
    return _asked(name, given, conditions.numbered(expression), rows, logical=logical)


def met_by_row(where: str, values: Mapping[str, str | None], types_: Mapping[str, str]) -> bool:
    """The same as `met` for one row's canonical texts; a text that is not a value of its logical type is NULL."""
    return met_by_texts(where, [_texts(where, values, types_)], _deltas(where, types_))[0]


def met_by_texts(where: str, rows: Sequence[Sequence[str | None]], deltas: Sequence[str]) -> list[bool]:
    """The same for canonical texts that are values of their Delta types, in the order of the condition's columns."""
    answers: list[bool] = _asked_of_texts(_WHERE, rows, deltas, _holds(where)).to_pylist()
    return answers


def value_by_row(column: Column, values: Mapping[str, str | None], types_: Mapping[str, str]) -> str | None:
    """A computed column's canonical text for one row's canonical texts."""
    rows = [_texts(column.expression, values, types_)]
    (value,) = of_column(values_by_texts(column, rows, _deltas(column.expression, types_)), column.delta)
    return None if value is None else text_of(value, column.delta)


def values_by_texts(column: Column, rows: Sequence[Sequence[str | None]], deltas: Sequence[str]) -> pa.Array:
    """The same as `values` for canonical texts that are values of their Delta types."""
    sql = conditions.numbered(column.expression)
    return _asked_of_texts(column.name, rows, deltas, sql, column.type)


def check(
    where: str,
    computed: Sequence[Column],
    rows: Sequence[Mapping[str, str | None]],
    types_: Mapping[str, str],
) -> None:
    """Evaluate a mirror's rules on rows of canonical texts, only to find where they fail.

    Raises:
        RuleFailed: an expression fails on a row.
    """
    if where:
        texts = [_texts(where, row, types_) for row in rows]
        met = met_by_texts(where, texts, _deltas(where, types_))
        rows = [row for row, fits in zip(rows, met, strict=True) if fits]
    for column in computed:
        texts = [_texts(column.expression, row, types_) for row in rows]
        values_by_texts(column, texts, _deltas(column.expression, types_))


def refuse(error: Exception | str, rule: TableRule) -> None:
    """Hold the mirror if its condition or a computed column has failed on a row.

    Raises:
        HeldError: it has failed; the text says where it is written, and why it failed.
    """
    if fault := fault_of(error, RuleFailed):
        column = fault.facts["rule"]
        place, what = (rule.places[column], f"columns: {column}") if column else (rule.where_place, "where:")
        raise HeldError(
            f"{place} {what} fails on a row: {fault.text}: correct the expression there."
        ) from None


def refused(where: str, deltas: Sequence[str]) -> str:
    """Why a condition cannot be evaluated on columns of these Delta types, in its columns' order; empty if it can."""
    try:
        _described(_holds(where), deltas)
    except ConditionError as error:
        return str(error)
    return ""


def type_of(expression: str, deltas: Sequence[str]) -> str:
    """The logical type of an expression on columns of these Delta types, in its columns' order.

    Raises:
        ConditionError: it cannot be evaluated on them, or its type is not one that a column can have.
    """
    kind = _described(conditions.numbered(expression), deltas)
    logical = kind.lower() if kind.startswith("DECIMAL") else _LOGICAL.get(kind)
    if logical is None:
        raise ConditionError(f"its type is {kind}, which a column cannot have: add a CAST")
    return logical


def _holds(where: str) -> str:
    return f"({conditions.numbered(where)}) IS TRUE"


def _described(sql: str, deltas: Sequence[str]) -> str:
    import duckdb

    nulls = ", ".join(f"CAST(NULL AS {_duck(delta)}) AS c{i}" for i, delta in enumerate(deltas))
    try:
        return _type(duck.connection().cursor(), sql, f"SELECT {nulls}")
    except duckdb.Error as error:
        raise ConditionError(first_line(error)) from None


def _type(cursor: DuckDBPyConnection, sql: str, rows: str) -> str:
    """The name of an expression's type in DuckDB."""
    described = cursor.execute(f"DESCRIBE SELECT {sql} AS v FROM ({rows})").fetchall()
    return str(described[0][1])


def _duck(delta: str) -> str:
    return {"TIMESTAMP_NTZ": "TIMESTAMP", "TIMESTAMP": "TIMESTAMPTZ"}.get(delta, delta)


def _deltas(expression: str, types_: Mapping[str, str]) -> list[str]:
    return [types.delta(types_[name]) for name in conditions.columns(expression)]


def _texts(expression: str, values: Mapping[str, str | None], types_: Mapping[str, str]) -> list[str | None]:
    """The cells that an expression needs; NULL for a text that is not a value of its type."""
    texts: list[str | None] = []
    for name in conditions.columns(expression):
        text = values.get(name)
        value = None if text is None else held(types_[name], text)
        if value is None or types_[name] == "hex":
            text = None if value is None else text_of(value, types.delta(types_[name]))
        texts.append(text)
    return texts


def _typed(column: str, delta: str) -> str:
    if delta == "BINARY":
        return f"from_base64({column})"
    if delta == "TIMESTAMP_NTZ":
        return f"CAST(substring({column}, 1, 26) AS TIMESTAMP)"
    if delta == "TIMESTAMP":
        return f"CAST(regexp_replace({column}, '([.][0-9]{{6}})[0-9]+', '\\1') AS TIMESTAMPTZ)"
    return column if delta == "STRING" else f"CAST({column} AS {delta})"


def _asked_of_texts(
    rule: str, rows: Sequence[Sequence[str | None]], deltas: Sequence[str], sql: str, logical: str = ""
) -> pa.Array:
    import pyarrow as pa

    cells = [pa.array([row[i] for row in rows], pa.string()) for i in range(len(deltas))]
    typed = "".join(f"{_typed(f'c{i}', delta)} AS c{i}, " for i, delta in enumerate(deltas)) + "n"
    return _asked(rule, cells, sql, len(rows), typed, logical)


def _asked(
    rule: str,
    cells: Sequence[pa.Array | pa.ChunkedArray],
    sql: str,
    rows: int,
    typed: str = "*",
    logical: str = "",
) -> pa.Array:
    """The value of an expression for each row, as a logical type if one is given."""
    import duckdb
    import numpy as np
    import pyarrow as pa

    if not rows:
        return pa.nulls(0)
    cursor = duck.connection().cursor()
    table = pa.table({f"c{i}": cell for i, cell in enumerate(cells)} | {"n": np.arange(rows)})
    cursor.register("given", table)
    given = f"SELECT {typed} FROM given"
    try:
        query = f"SELECT {sql} AS v, n FROM ({given})"
        if logical:
            query = f"SELECT {_exact(_type(cursor, sql, given), logical)} AS v, n FROM ({query})"
        answer = cursor.execute(f"SELECT v FROM ({query}) ORDER BY n").to_arrow_table()
    except duckdb.Error as error:
        said = _SOURCE.sub("", first_line(error))
        raise RuleFailed(rule, said) from None
    finally:
        cursor.close()
    return answer["v"].combine_chunks()


def _exact(kind: str, logical: str) -> str:
    """The value ``v`` of a type of DuckDB's as a logical type; an error for one that the type does not hold exactly."""
    target = _duck(types.delta(logical))
    if _LOGICAL.get(kind, kind.lower()) == logical:
        return "v"
    wrong = duck.text(f"a value is not exactly one of {logical}; write a CAST that says how to round it")
    return (
        f"CASE WHEN CAST(CAST(v AS {target}) AS {kind}) IS DISTINCT FROM v THEN error({wrong}) "
        f"ELSE CAST(v AS {target}) END"
    )
