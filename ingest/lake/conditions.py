"""Evaluate a table's ``where:`` with DuckDB, for the fold and the checks alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ingest import types
from ingest.config import conditions
from ingest.lake import duck
from ingest.values.typed_values import value_of

if TYPE_CHECKING:
    import pyarrow as pa

_FRACTION = re.compile(r"(:[0-9]{2}\.[0-9]{6})[0-9]+")
FAILED = "%where-failed"  # prefix of the error of a condition that cannot be evaluated on some row


class ConditionError(ValueError):
    """A condition cannot be evaluated on a row: for example a text that is not a number."""


def met(where: str, cells: Callable[[str], pa.Array | pa.ChunkedArray], rows: int) -> pa.Array:
    """For each row, whether a condition is true; NULL counts as false.

    Args:
        where: the condition.
        cells: returns the typed cells of a column, by the source's name.
        rows: how many there are.

    Raises:
        ConditionError: it fails on a row.
    """
    names = conditions.columns(where)
    return _asked([cells(name) for name in names], conditions.numbered(where), rows)


def met_by_row(where: str, values: Mapping[str, str | None], types_: Mapping[str, str]) -> bool:
    """The same for one row's canonical texts; a text that is not a value of its logical type is NULL."""
    texts: list[str | None] = []
    for name in conditions.columns(where):
        text = values.get(name)
        try:
            if text is not None and types.delta(types_[name]) != "STRING":
                value_of(types_[name], _FRACTION.sub(r"\1", text))
        except (ValueError, ArithmeticError):
            text = None
        texts.append(text)
    return met_by_texts(where, [texts], [types.delta(types_[name]) for name in conditions.columns(where)])[0]


def met_by_texts(where: str, rows: Sequence[Sequence[str | None]], deltas: Sequence[str]) -> list[bool]:
    """The same for canonical texts that are values of their Delta types, in the order of the condition's columns."""
    import pyarrow as pa

    cells = [pa.array([row[i] for row in rows], pa.string()) for i in range(len(deltas))]
    typed = ", ".join(f"{_typed(f'c{i}', delta)} AS c{i}" for i, delta in enumerate(deltas))
    found: list[bool] = _asked(cells, conditions.numbered(where), len(rows), typed).to_pylist()
    return found


def refused(where: str, deltas: Sequence[str]) -> str:
    """Why a condition cannot be evaluated on columns of these Delta types, in its columns' order; empty if it can."""
    import duckdb

    nulls = ", ".join(f"CAST(NULL AS {_duck(delta)}) AS c{i}" for i, delta in enumerate(deltas))
    query = f"SELECT ({conditions.numbered(where)}) IS TRUE FROM (SELECT {nulls})"
    try:
        duck.connection().cursor().execute(query)
    except duckdb.Error as error:
        return str(error).splitlines()[0]
    return ""


def _duck(delta: str) -> str:
    return {"TIMESTAMP_NTZ": "TIMESTAMP", "TIMESTAMP": "TIMESTAMPTZ"}.get(delta, delta)


def _typed(column: str, delta: str) -> str:
    if delta == "BINARY":
        return f"from_base64({column})"
    if delta == "TIMESTAMP_NTZ":
        return f"CAST(substring({column}, 1, 26) AS TIMESTAMP)"
    if delta == "TIMESTAMP":
        return f"CAST(regexp_replace({column}, '([.][0-9]{{6}})[0-9]+', '\\1') AS TIMESTAMPTZ)"
    return column if delta == "STRING" else f"CAST({column} AS {delta})"


def _asked(
    cells: Sequence[pa.Array | pa.ChunkedArray], condition: str, rows: int, typed: str = "*"
) -> pa.Array:
    import duckdb
    import pyarrow as pa

    if not rows:
        return pa.array([], pa.bool_())
    cursor = duck.connection().cursor()
    table = pa.table({f"c{i}": one for i, one in enumerate(cells)} | {"n": pa.array(range(rows), pa.int64())})
    cursor.register("given", table)
    also = "" if typed == "*" else ", n"
    query = f"SELECT ({condition}) IS TRUE AS holds FROM (SELECT {typed}{also} FROM given) ORDER BY n"
    try:
        found = cursor.execute(query).to_arrow_table()
    except duckdb.Error as error:
        raise ConditionError(f"{FAILED}{str(error).splitlines()[0]}") from None
    finally:
        cursor.close()
    return found["holds"].combine_chunks()
