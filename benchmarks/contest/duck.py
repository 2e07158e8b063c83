"""DuckDB's own JSON reader and MERGE on its native tables: about the best that one machine can do, and no Delta."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from benchmarks.contest.steps import Fold, Script, perform

NAME = "tables.duckdb"
_KIND = {"STRING": "VARCHAR", "TIMESTAMP_NTZ": "TIMESTAMP"}


def kind_of(kind: str) -> str:
    """DuckDB's name of a type."""
    return _KIND.get(kind, kind)


@contextmanager
def opened(folder: Path, script: Script, idle: bool) -> Iterator[Fold]:
    """A pass over a copied database; its tables are written out at the end, to be compared."""
    with duckdb.connect(str(folder / NAME)) as connection:

        def fold(files: list[Path]) -> None:
            connection.execute("BEGIN")
            connection.execute(f"CREATE OR REPLACE TEMP TABLE messages AS {_reading(files, script.columns)}")
            for table, columns in script.columns.items():
                connection.execute(_merging(table, columns))
            connection.execute("COMMIT")
            connection.execute("CHECKPOINT")

        yield fold
        for table in script.columns:
            connection.execute(f"COPY {table} TO '{folder / table}.parquet' (FORMAT parquet)")


def _reading(files: list[Path], tables: dict[str, dict[str, str]]) -> str:
    columns = next(iter(tables.values()))
    row = ", ".join(f"{name} {kind_of(kind)}" for name, kind in columns.items())
    names = ", ".join(f"'{file}'" for file in files)
    wanted = f"{{id: 'BIGINT', \"table\": 'VARCHAR', type: 'VARCHAR', data: 'STRUCT({row})[]'}}"
    return (
        f'SELECT id AS sequence, "table", type, unnest(data) AS image '
        f"FROM read_json([{names}], format = 'newline_delimited', columns = {wanted})"
    )


def _merging(table: str, columns: dict[str, str]) -> str:
    values = ", ".join(f"{name} = s.{name}" for name in columns if name != "id")
    return f"""
        MERGE INTO {table} AS t USING (
            SELECT type, unnest(image) FROM messages WHERE "table" = '{table}'
            QUALIFY row_number() OVER (PARTITION BY image.id ORDER BY sequence DESC) = 1
        ) AS s ON t.id = s.id
        WHEN MATCHED AND s.type = 'DELETE' THEN DELETE
        WHEN MATCHED THEN UPDATE SET {values}
        WHEN NOT MATCHED AND s.type <> 'DELETE' THEN INSERT ({", ".join(columns)})
            VALUES ({", ".join(f"s.{name}" for name in columns)})"""


if __name__ == "__main__":
    perform(opened)
