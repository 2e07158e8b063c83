"""DuckDB connections that read a lake's Parquet files where Spark is not needed.

Values are written into the text of queries and never bound: a bound parameter imports pandas, which takes longer than
most answers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ingest.change import TableId
from ingest.store import stores

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

LANE = ("source", *TableId._fields)  # the columns of product tables that name a source table
SENT_WHOLE = "(op <> 'update' OR NOT coalesce(partial, false))"
"""The condition that a change sets all columns of its row, or takes the row away."""
HAS_ROW = "op IN ('read', 'insert', 'update')"
"""The condition that a change leaves a row."""
LANE_SQL = 'source, "database", "schema", "table"'
_settings: dict[str, Any] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "threads": str(os.process_cpu_count() if hasattr(os, "process_cpu_count") else os.cpu_count() or 1),
}


def one_thread() -> None:
    """Use one thread for each query from now on: with more, small ones cost half as much again."""
    _settings["threads"] = "1"


def connection() -> DuckDBPyConnection:
    """This process' in-memory database, which uses UTC only and downloads nothing."""
    return _connection(stores.are_used(), _settings["threads"])


@lru_cache(maxsize=1)
def _connection(_reads_stores: bool, _threads: str) -> DuckDBPyConnection:
    """A database that was opened before the first store was known cannot open files of stores."""
    return opened()


def opened(file: str = ":memory:") -> DuckDBPyConnection:
    """A new database, in memory or in its own file."""
    import duckdb

    connection = duckdb.connect(file, config=_settings.copy())
    if not stores.are_used():  # files of this machine are in its memory already
        connection.execute("SET enable_external_file_cache = false")
    connection.execute("SET TimeZone = 'UTC'")
    stores.register(connection)
    return connection


def rows(query: str, base: DuckDBPyConnection | None = None) -> list[dict[str, Any]]:
    """A query's rows, by column, from this process' database or another one."""
    cursor = (base or connection()).cursor().execute(query)
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def text(value: str) -> str:
    """A text as a SQL literal; a zero byte would end the query there."""
    parts = ["'" + part.replace("'", "''") + "'" for part in value.split("\0")]
    return parts[0] if len(parts) == 1 else f"({' || chr(0) || '.join(parts)})"


def value(given: str | int | None) -> str:
    """A text, a number or NULL as a literal."""
    return "NULL" if given is None else text(given) if isinstance(given, str) else str(given)


def name(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'


def type_of(delta: str) -> str:
    """DuckDB's name of a Delta type."""
    return {"STRING": "VARCHAR", "TIMESTAMP_NTZ": "TIMESTAMP"}.get(delta, delta)


def member(image: str, column: str) -> str:
    """A cell of an image in `changes`, as text."""
    return f"json_extract_string({image}, {_pointer(column)})"


def cells(columns: Iterable[str | Sequence[str]], first: str = "after", second: str = "before") -> str:
    """Key cells of a change in `changes` with commas, each from one image or else from the other.

    A change that sets a key to NULL is refused, so the row stays under the key that the other image has; `sent_cell` tells
    NULL from what is not sent.

    A column that was renamed has several names, of which a change has one.
    """
    named = ((column,) if isinstance(column, str) else column for column in columns)
    members = ([member(image, name) for image in (first, second) for name in names] for names in named)
    return ", ".join(f"coalesce({', '.join(cell)})" for cell in members)


def sent_cell(column: str, first: str = "after", second: str = "before") -> str:
    """A cell of a change in `changes` from the first image that has its column, even if it is NULL there."""
    here, other = member(first, column), member(second, column)
    return f"coalesce({here}, CASE WHEN {has_member(first, column)} THEN NULL ELSE {other} END)"


def has_member(image: str, column: str) -> str:
    """The condition that an image has a column, even if it is NULL there."""
    return f"json_exists({image}, {_pointer(column)})"


def pointers(columns: Iterable[str]) -> str:
    """A list of where columns are in an image, for functions of JSON."""
    return f"[{', '.join(map(_pointer, columns))}]::VARCHAR[]"


def _pointer(column: str) -> str:
    return text("/" + column.replace("~", "~0").replace("/", "~1"))


def column_of_pointer(pointer: str) -> str:
    """The column that a pointer of `member` names."""
    return pointer[1:].replace("~1", "/").replace("~0", "~")


def sums(columns: Iterable[str]) -> str:
    """The columns' sums, under their own names."""
    return ", ".join(f"CAST(sum({column}) AS BIGINT) AS {column}" for column in columns)


def same(columns: Iterable[str], left: str, right: str) -> str:
    """The condition that rows of two tables have the same values, or NULL in both, in all columns."""
    return " AND ".join(
        f"{left}.{name(column)} IS NOT DISTINCT FROM {right}.{name(column)}" for column in columns
    )


def texts(values: Iterable[str]) -> str:
    return f"[{', '.join(map(text, values))}]"


def listed(rows: Iterable[Iterable[str | int | None]]) -> str:
    """Rows of literals, for IN and VALUES."""
    return ", ".join(f"({', '.join(map(value, row))})" for row in rows)


def of_table(table: TableId) -> str:
    """The condition that a row of a product table is of one source table, in whatever source."""
    parts = table._asdict().items()
    return " AND ".join(
        f"{name(column)} {'IS NULL' if part is None else f'= {text(part)}'}" for column, part in parts
    )


def of_lane(source: str, table: TableId) -> str:
    """The same for one source table of one source."""
    return f"source = {text(source)} AND {of_table(table)}"
