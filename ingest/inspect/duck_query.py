"""Run one query with DuckDB over the files that it is given, and nothing else.

The database has views of the tables in the query, may open only their files, and is locked before it gets the query: it
can write nothing, read no other file and load no extension.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from ingest.change import TableId
from ingest.errors import IngestError
from ingest.store import stores
from ingest.tables import duck
from ingest.tables.query import TABLE_FUNCTIONS, rewrite
from ingest.values import shortened

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_VIEW = re.compile(r"(?:main\.)?_table_\d+_")
_SPARKS = (
    "CREATE MACRO get_json_object(document, place) AS "
    "json_extract_string(document, replace(replace(place, '[''', '.\"'), ''']', '\"'))"
)
"""The one function of Spark in the queries of checks (`ingest.quality.queries`), which both engines run."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a query in a process with many users."""

    seconds: float
    memory: int  # bytes
    cells: int = 100_000
    size: int = 8 << 20  # bytes of all cells as Python has them, roughly


@dataclass(frozen=True, slots=True)
class Question:
    """A query as it was typed, and the tables that it may name, each with the name of its view."""

    text: str
    mirrors: list[tuple[TableId, str]]
    products: dict[str, str]
    lake: str
    limit: int = 0  # rows; 0 for all
    bounds: Bounds | None = None


@dataclass(frozen=True, slots=True)
class Scans:
    """The tables of a query: the SQL of each one's view, and the files that these read."""

    views: dict[str, str]
    files: list[str]
    folders: list[str]
    stores: dict[str, dict[str, str]] = field(default_factory=dict)  # how those in stores are reached


@dataclass(frozen=True, slots=True)
class QueryResult:
    """A query's columns and rows; each cell is a JSON value without loss."""

    columns: list[str]
    rows: list[list[Any]]


def answer(question: Question, scans_of: Callable[[list[str]], Scans]) -> QueryResult:
    """A query's rows.

    Args:
        question: the query.
        scans_of: gives the tables of some views.

    Raises:
        IngestError: it is not a query, names no table, or DuckDB refuses it.
    """
    import duckdb

    query = rewrite(question.text, dict(question.mirrors), question.products, question.lake, "duckdb")
    base = duck.opened()
    try:
        scans = scans_of(sorted(query.used))
        stores.register(base)  # a process for one query has learnt of them just now
        _close_up(base, scans, question.bounds)
        return _result(base, query.text, question)
    except RecursionError:
        raise IngestError("The query is nested too deeply.") from None
    except UnicodeDecodeError:  # DuckDB quotes bytes of a value as they are
        raise IngestError("DuckDB refuses the query: a value in it cannot be converted.") from None
    except (duckdb.OutOfMemoryException, MemoryError):
        if question.bounds is None:
            raise
        raise IngestError(
            f"The query needs more than {question.bounds.memory >> 20} MB of memory: ask for less, or with `ingest sql`."
        ) from None
    except duckdb.Error as error:
        raise IngestError(f"DuckDB refuses the query: {_said(error)}") from None
    finally:
        base.close()


def _close_up(base: DuckDBPyConnection, scans: Scans, bounds: Bounds | None) -> None:
    """Give a database its views, and let it open their files and no others; that cannot be changed afterwards."""
    if bounds:
        # it counts its buffers alone: strings and lists have the rest, which the system counts
        base.execute(f"SET memory_limit = '{bounds.memory * 3 // 4}B'")
        base.execute("SET temp_directory = ''")
        base.execute("SET threads = 1")
    for name, scan in scans.views.items():
        base.execute(f"CREATE VIEW {name} AS SELECT * FROM {scan}")
    base.execute(_SPARKS)
    if scans.files:
        base.execute(f"SET allowed_paths = {duck.texts(scans.files)}")
    base.execute("SET python_enable_replacements = false")
    base.execute("SET enable_external_access = false")
    base.execute("SET lock_configuration = true")


def _refuse_functions(base: DuckDBPyConnection, text: str) -> None:
    """Refuse a query that calls other functions of tables than it may, by what DuckDB's own parser makes of it.

    Raises:
        IngestError: it does, or is not one query.
    """
    row = base.execute(f"SELECT json_serialize_sql({duck.text(text)})").fetchone()
    tree = json.loads(row[0]) if row else {}
    if tree.get("error"):
        raise IngestError(f"DuckDB refuses the query: {_said(tree['error_message'])}")
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            waiting += node.values()
            name = node["function"]["function_name"] if node.get("type") == "TABLE_FUNCTION" else ""
            if name and name.lower() not in TABLE_FUNCTIONS:
                raise IngestError(f"Only tables are read here: the function {name[:80]} is refused.")


def _result(base: DuckDBPyConnection, text: str, question: Question) -> QueryResult:
    _refuse_functions(base, text)
    described = base.execute(f"DESCRIBE {text}").fetchall()
    columns = [f"c{number}" for number in range(len(described))]
    readers = [_reader(kind) for _, kind, *_ in described]
    cells = ", ".join(sql.format(column) for column, (sql, _) in zip(columns, readers, strict=True))
    most = f" LIMIT {question.limit}" if question.limit else ""
    result = base.execute(f"SELECT {cells} FROM ({text}) AS q({', '.join(columns)}){most}")
    rows = result.fetchall() if question.bounds is None else _within(result, question.bounds)
    return QueryResult(
        [name for name, *_ in described],
        [
            [None if cell is None else read(cell) for cell, (_, read) in zip(row, readers, strict=True)]
            for row in rows
        ],
    )


def _within(result: DuckDBPyConnection, bounds: Bounds) -> Iterator[tuple[Any, ...]]:
    """The rows of a result; an `IngestError` if they are more than a process with many users can hold and draw."""
    cells = size = 0
    while (row := result.fetchone()) is not None:
        cells, size = cells + len(row), size + sum(map(_size, row))
        if cells > bounds.cells or size > bounds.size:
            raise IngestError(
                f"The result has more than {bounds.cells:,} cells or {bounds.size >> 20} MB: ask for less, or with `ingest sql`."
            )
        yield row


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return sum(len(str(name)) + _size(item) for name, item in value.items())
    if isinstance(value, list | tuple):
        return sum(map(_size, value))
    return len(value) if isinstance(value, str | bytes) else 8


def _said(error: object) -> str:
    """DuckDB's error in one line, with the tables' names instead of the views'."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    kept = [line for line in lines if not line.startswith(("LINE ", "^"))]
    return _VIEW.sub("the table", " ".join(kept))[:500]


# --- values ---

Read = Callable[[Any], Any]


def _reader(kind: str) -> tuple[str, Read]:
    """How a column of a type is selected, and the function that converts its cells to JSON values."""
    if kind in ("FLOAT", "DOUBLE"):
        return "CAST({} AS VARCHAR)", lambda text: _WORDS.get(text) or msgspec.Raw(text.encode())
    if kind.startswith("DECIMAL("):
        return "CAST({} AS VARCHAR)", Decimal
    if kind == "TIMESTAMP WITH TIME ZONE":
        return (
            "CAST({} AT TIME ZONE 'UTC' AS VARCHAR)",
            lambda text: shortened(text).replace(" ", "T", 1) + "Z",
        )
    if kind.startswith("TIMESTAMP"):
        return "CAST({} AS VARCHAR)", shortened
    if kind in _PLAIN or kind.endswith("]") or kind.startswith(("STRUCT(", "MAP(")):
        return "{}", _nested
    return "CAST({} AS VARCHAR)", _nested


_PLAIN = frozenset(
    "BOOLEAN TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT UHUGEINT VARCHAR BLOB".split()
)
_WORDS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _nested(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _nested(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_nested(item) for item in value]
    if isinstance(value, dt.datetime):
        return shortened(value.replace(tzinfo=None).isoformat("T"))
    return value
