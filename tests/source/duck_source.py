"""A source database that needs no server: a file of DuckDB's, read as any other database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import SplitResult

import duckdb
import orjson

from ingest.change import TableId
from ingest.source.database import Key, SourceColumn, SourceTable, concat_call, nth_by_limit, trim_call
from ingest.tables.duck import name, text

ERRORS: tuple[type[Exception], ...] = (duckdb.Error,)
BOUNDED_TEXTS = HIDES_TABLES = SPACES_JSON = False
CLOCK = "SELECT '2024-05-01T00:00:00Z'"  # of long ago, so that any mirror has passed it
nth, concat, trimmed = nth_by_limit, concat_call, trim_call
_TYPES = {"INTEGER": "int32", "BIGINT": "int64", "VARCHAR": "string", "DOUBLE": "float64"}
asked: list[str] = []
place: list[str] = []  # the file


def connect(_url: SplitResult, _user: str, _password: str) -> Any:
    """A connection to the file."""
    return duckdb.connect(place[-1])


def table(connection: Any, table: TableId) -> SourceTable | None:
    """A table of the file; its key is its first column."""
    found = values(
        connection,
        f"SELECT column_name, data_type FROM information_schema.columns WHERE table_name = {text(table.table or '')} "
        "ORDER BY ordinal_position",
    )
    if not found:
        return None
    columns = tuple(
        SourceColumn(one, kind, _TYPES[kind], _printed(one, kind), kind == "VARCHAR") for one, kind in found
    )
    return SourceTable(table, name(table.table or ""), columns, (columns[0].name,))


def _printed(column: str, kind: str) -> str:
    """SQL for a column's text: large numbers are printed as MySQL prints them."""
    text = f"CAST({name(column)} AS VARCHAR)"
    return f"replace({text}, 'e+', 'e')" if kind == "DOUBLE" else text


def key(column: SourceColumn) -> Key:
    """Every type reads its own text back."""
    return Key(name(column.name), column.text, "CAST({} AS " + column.declared + ")")


def equal(column: SourceColumn, given: str) -> str:
    """A condition by a value's text."""
    return f"{name(column.name)} = CAST({text(given)} AS {column.declared})"


def double(column: SourceColumn) -> tuple[str, str]:
    """A number and its text."""
    return name(column.name), f"regexp_replace({column.text}, '\\.0$', '')"


def real_date(column: SourceColumn) -> str:
    """Every date is one."""
    return column.text


def bits(_column: SourceColumn) -> str:
    """Numbers are compared by their texts."""
    return ""


def md5(given: str, digits: int = 32, *, binary: bool = False) -> str:
    """The first digits of an MD5."""
    return f"substr(md5({given}), 1, {digits})"


def number(given: str) -> str:
    """The first 60 bits of an MD5."""
    return f"('0x' || substr(md5({given}), 1, 15))::UBIGINT"


def rows(connection: Any, columns: Sequence[str], rest: str) -> Iterator[bytes]:
    """Rows as JSON arrays."""
    for row in values(connection, f"SELECT {', '.join(columns)} FROM {rest}"):
        yield orjson.dumps(list(row))


def values(connection: Any, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query."""
    asked.append(query)
    return list(connection.cursor().execute(query).fetchall())


def settled(_connection: Any, _mark: str) -> str:
    """Nothing is open."""
    return ""


def is_replica(_connection: Any) -> bool:
    """It follows none."""
    return False
