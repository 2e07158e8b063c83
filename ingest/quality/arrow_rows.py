"""Read rows of the lake's tables as Arrow batches: by DuckDB or delta-rs without a Spark job, or by Spark if they cannot."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ingest.change import TableId
from ingest.fold import Key
from ingest.lake import delta, duck, names, rejects, stores
from ingest.lake.delta import UnreadableError
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Mirror
from ingest.lake.schemas import REJECTS
from ingest.lake.tables import scan
from ingest.quality.cell_values import of_column, text_of


@dataclass(frozen=True, slots=True)
class Dialect:
    """How names and texts are written in an engine's SQL."""

    quoted: Callable[[str], str]
    literal: Callable[[str], str]

    def same(self, names: Iterable[str], texts: Iterable[str | None]) -> str:
        """The condition that columns hold these texts, or NULL for None."""
        return " AND ".join(
            f"{self.quoted(name)} {'IS NULL' if text is None else f'= {self.literal(text)}'}"
            for name, text in zip(names, texts, strict=True)
        )


Where = Callable[[Dialect], str]
Read = Callable[[Lake, str, Sequence[str], Where], Iterator[pa.RecordBatch]]
"""Read columns of the rows of a table, named as under the lake, for which a condition holds."""

_RUST = Dialect(
    lambda name: '"' + name.replace('"', '""') + '"', lambda text: "'" + text.replace("'", "''") + "'"
)
_DUCK = Dialect(duck.name, duck.text)
_SPARK = Dialect(names.quoted, names.literal)


def _query(table: str, columns: Sequence[str], where: Where, dialect: Dialect) -> str:
    return f"SELECT {', '.join(map(dialect.quoted, columns))} FROM {table} WHERE {where(dialect)}"


def by_duck(lake: Lake, name: str, columns: Sequence[str], where: Where) -> Iterator[pa.RecordBatch]:
    """Read with DuckDB, which needs no more than the files' names: opening a table by delta-rs takes longer than a query.

    Raises:
        UnreadableError: only delta-rs or Spark can read it.
    """
    state = delta.snapshot(lake.path(name)) if lake.is_local else delta.NO_TABLE
    if not state.exists or any(one.deleted for one in state.files):
        raise UnreadableError(f"{name} has deletion vectors, or does not exist.")
    table = scan(lake.path(name), state, zones=True, wanted=columns)
    found = duck.connection().cursor().execute(_query(table, columns, where, _DUCK))
    return iter(found.to_arrow_table().to_batches())


def by_delta(lake: Lake, name: str, columns: Sequence[str], where: Where) -> Iterator[pa.RecordBatch]:
    """Read with delta-rs, which supports deletion vectors and skips files by their statistics."""
    from deltalake import QueryBuilder  # a heavy import, not needed if Spark has to read

    state = lake.snapshot(name)
    table = stores.newest(lake.path(name), state.table_id, state.version)
    found = QueryBuilder().register("t", table).execute(_query("t", columns, where, _RUST))
    for rows in pa.RecordBatchReader.from_stream(found):
        yield pa.RecordBatch.from_arrays([_plain(column) for column in rows.columns], names=rows.schema.names)


def _plain(column: pa.Array) -> pa.Array:
    """The column without view types, which few functions of Arrow support."""
    kinds = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return column.cast(kinds[column.type]) if column.type in kinds else column


def by_spark(lake: Lake, name: str, columns: Sequence[str], where: Where) -> Iterator[pa.RecordBatch]:
    """Read with Spark, for stores and tables that delta-rs cannot read."""
    text = _query(lake.named(name), columns, where, _SPARK)
    return iter(lake.spark.sql(text).toArrow().to_batches())


def read(lake: Lake, name: str, columns: Sequence[str], where: Where) -> list[pa.RecordBatch]:
    """Read the rows for which a condition holds, by the first that can."""
    for one in (by_duck, by_delta):
        with suppress(
            Exception
        ):  # a store or a table that it does not support; Spark reports damage in words
            return list(one(lake, name, columns, where))
    return list(by_spark(lake, name, columns, where))


def changes_since(batch: int, tables: Iterable[str | None]) -> Where:
    """The condition of all changes after a batch that are of tables with these names, whatever their database."""
    names = sorted({name or "" for name in tables})

    def where(dialect: Dialect) -> str:
        kind, number, table = map(dialect.quoted, ("kind", "batch", "table"))
        listed = ", ".join(map(dialect.literal, names))
        return f"{kind} = 'change' AND {number} > {batch} AND {table} IN ({listed})"

    return where


# --- a mirror -------------------------------------------------------------------------------------


def mirror_rows(
    lake: Lake, mirror: Mirror, kinds: Sequence[str], keys: Iterable[Key] | None
) -> list[Sequence[object]]:
    """The rows of some keys, in the fold's form, and possibly others, with cells as in `of_column`; all rows for None.

    ``kinds`` has the actual Delta type of each column; empty if it does not exist.
    """
    listed = None if keys is None else list(keys)
    if listed == []:
        return []
    there = [one.column for one, kind in zip(mirror.columns, kinds, strict=True) if kind]
    found: list[Sequence[object]] = []
    for rows in read(lake, mirror.path, there, lambda dialect: _of_keys(mirror, listed, dialect)):
        columns = iter(rows.columns)
        nothing: list[object] = [None] * rows.num_rows
        found += zip(*[of_column(next(columns), kind) if kind else nothing for kind in kinds], strict=True)
    return found


def _of_keys(mirror: Mirror, keys: Sequence[Key] | None, dialect: Dialect) -> str:
    """A condition that holds for the rows of all these keys, and for few others."""
    parts = []
    for i, one in enumerate(mirror.key_columns if keys is not None else ()):
        name, is_number = dialect.quoted(one.column), one.delta in WHOLE or one.delta.startswith("DECIMAL")
        # texts and dates in the order of their bytes, as in all engines
        cells = sorted({str(key[i]) for key in keys or ()}, key=Decimal if is_number else None)
        if one.delta in WHOLE:
            listed = cells
        elif one.delta == "STRING":
            listed = list(map(dialect.literal, cells))
        elif one.delta == "DATE" or is_number:
            listed = [f"CAST({dialect.literal(cell)} AS {one.delta})" for cell in cells]
        else:
            continue
        if len(cells) <= _LISTED:
            parts.append(f"{name} IN ({', '.join(listed)})")
        else:
            parts.append(f"{name} BETWEEN {listed[0]} AND {listed[-1]}")
    return " AND ".join(parts) or "true"


_LISTED = 5_000  # cells of a condition: with 30,000 delta-rs overflows its stack, which ends the process
WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT")


def key_text(names: Sequence[str], cells: Sequence[object], kinds: Sequence[str]) -> str:
    """A mirror's key as JSON, from cells as in `of_column`: whole numbers as numbers, other values as their texts."""
    pairs = zip(cells, kinds, strict=True)
    shown = [cell if cell is None or kind in WHOLE else text_of(cell, kind) for cell, kind in pairs]
    return json.dumps(dict(zip(names, shown, strict=True)), ensure_ascii=False, separators=(",", ":"))


_REJECT = (
    "kind", "batch", "source", "topic", "partition", "offset", "database", "schema", "table", "key", "column", "raw",
    "reason",
)  # fmt: skip


def cell_rejects(lake: Lake, mirror: Mirror) -> list[tuple[Key, dict[str, Any]]]:
    """All rejected cells of a mirror, with the keys of their rows in the fold's form."""
    if not lake.exists(REJECTS.name):
        return []

    def where(dialect: Dialect) -> str:
        mine = dialect.same(("kind", *TableId._fields), ("cell", *mirror.table))
        return f"{mine} AND {dialect.quoted('key')} IS NOT NULL"

    found = read(lake, REJECTS.name, _REJECT, where)
    keyed = ((rejects.key_of(mirror, row["key"]), row) for rows in found for row in rows.to_pylist())
    return [(key, row) for key, row in keyed if key is not None]
