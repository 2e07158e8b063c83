"""Mirrors read by Spark, by delta-rs and by DuckDB: one aggregate over all columns, so that no column is passed over.

DuckDB reads Delta through an extension of its own, which it would download; here it is a package of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from benchmarks.contest.steps import Fold, Script, perform
from benchmarks.contest.workload import COLUMNS

MIRROR = "mirror"
COUNTS = ", ".join(["count(*)", *(f"max({name})" for name in COLUMNS)])
QUERY = f"SELECT {COUNTS} FROM {MIRROR}"
Read = Callable[[Path], list[Any]]
"""Reads the mirror that lies somewhere: its count of rows, and the largest value of each column."""


def wrong_rows(path: Path, expected: pa.Table) -> int:
    """Rows of a mirror that are missing, too many, or not what they must be; the key is ``id``.

    Raises:
        Exception: there is no table, or delta-rs cannot read it.
    """
    columns = ", ".join(expected.column_names)
    found = _asked(path, f"SELECT {columns} FROM {MIRROR} ORDER BY id").cast(expected.schema)
    if found.equals(expected.sort_by("id")):
        return 0
    rows = {row["id"]: row for row in found.to_pylist()}
    others = {row["id"]: row for row in expected.to_pylist()}
    doubled = found.num_rows - len(rows)
    return doubled + sum(rows.get(key) != others.get(key) for key in rows.keys() | others.keys())


def _asked(path: Path, query: str) -> pa.Table:
    """A query's rows by delta-rs' own engine, which knows deletion vectors."""
    return pa.table(QueryBuilder().register(MIRROR, DeltaTable(path)).execute(query).read_all())


@contextmanager
def _spark() -> Iterator[Read]:
    from ingest.spark.session import session, stop

    spark = session("readers", profile="batch")

    def read(path: Path) -> list[Any]:
        spark.read.format("delta").load(str(path)).createOrReplaceTempView(MIRROR)
        return list(spark.sql(QUERY).first() or ())

    try:
        yield read
    finally:
        stop(spark)


@contextmanager
def _delta_rs() -> Iterator[Read]:
    yield lambda path: [column[0].as_py() for column in _asked(path, QUERY).columns]


@contextmanager
def _duckdb() -> Iterator[Read]:
    with duckdb.connect() as connection:
        load_delta(connection)
        query = f"SELECT {COUNTS} FROM delta_scan(?)"
        yield lambda path: list(connection.execute(query, [str(path)]).fetchone() or ())


READERS: dict[str, Callable[[], AbstractContextManager[Read]]] = {
    "Spark": _spark,
    "delta-rs": _delta_rs,
    "DuckDB": _duckdb,
}


def load_delta(connection: duckdb.DuckDBPyConnection) -> None:
    """Let a connection read Delta tables, deletion vectors included.

    Raises:
        duckdb.Error: the package holds no extension for this version of DuckDB.
    """
    import duckdb_extension_delta  # of use to two variants only

    folder = Path(duckdb_extension_delta.__file__).parent / "extensions" / f"v{duckdb.__version__}"
    connection.load_extension(str(folder / "delta.duckdb_extension"))


@contextmanager
def opened(folder: Path, script: Script, idle: bool) -> Iterator[Fold]:
    """A pass of one reader, which the option ``reader`` names; the "files" of its steps are mirrors."""
    with READERS[script.options["reader"]]() as read:
        yield lambda mirrors: [str(value) for path in mirrors for value in read(path)]


if __name__ == "__main__":
    perform(opened)
