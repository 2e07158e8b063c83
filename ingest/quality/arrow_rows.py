"""Read rows of the lake's tables as Arrow batches: by DuckDB or delta-rs without a Spark job, or by Spark if they cannot."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from operator import itemgetter
from typing import Any, TypeVar

import pyarrow as pa

from ingest.fold import Key
from ingest.ledgers import rejects
from ingest.ledgers.mirrors import Mirror, Shard
from ingest.ledgers.stamps import TIME
from ingest.quality.catalogue import key_json
from ingest.quality.cell_diff import key_of_row
from ingest.quality.subjects import CheckedLane
from ingest.store import stores
from ingest.tables import delta, duck
from ingest.tables.cell_values import of_column, text_of
from ingest.tables.delta import Snapshot, UnreadableError
from ingest.tables.lake import Lake
from ingest.tables.schemas import REJECTS
from ingest.tables.tables import Tables, scan

_Taken = TypeVar("_Taken")
Read = Callable[[Lake, str, Sequence[str], str], Iterator[pa.RecordBatch]]
"""Read columns of the rows of a table, named as under the lake, for which a condition holds.

The condition is SQL that means the same in DuckDB and delta-rs; sqlglot makes Spark's of it.
"""


def _query(table: str, columns: Sequence[str], where: str) -> str:
    return f"SELECT {', '.join(map(duck.name, columns))} FROM {table} WHERE {where}"


def by_duck(lake: Lake, name: str, columns: Sequence[str], where: str) -> Iterator[pa.RecordBatch]:
    """Read with DuckDB, which needs no more than the files' names: opening a table by delta-rs takes longer than a query.

    Raises:
        UnreadableError: only delta-rs or Spark can read it.
    """
    state = delta.snapshot(lake.path(name)) if lake.is_local else delta.NO_TABLE
    if not state.exists or any(file.deleted for file in state.files):
        raise UnreadableError(f"{name} has deletion vectors, or does not exist.")
    table = scan(lake.path(name), state, zones=True, wanted=columns)
    cursor = duck.connection().cursor().execute(_query(table, columns, where))
    return iter(cursor.to_arrow_table().to_batches())


def by_delta(lake: Tables, name: str, columns: Sequence[str], where: str) -> Iterator[pa.RecordBatch]:
    """Read with delta-rs, which supports deletion vectors and skips files by their statistics."""
    from deltalake import QueryBuilder  # a heavy import, not needed if Spark has to read

    state = lake.snapshot(name)
    delta.refuse_irregular(lake.path(name), state.files)
    table = stores.newest(lake.path(name), state.table_id, state.version)
    rows_read = QueryBuilder().register("t", table).execute(_query("t", columns, where))
    for rows in pa.RecordBatchReader.from_stream(rows_read):
        yield pa.RecordBatch.from_arrays([_plain(column) for column in rows.columns], names=rows.schema.names)


def _plain(column: pa.Array) -> pa.Array:
    """The column without view types, which few functions of Arrow support."""
    kinds = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return column.cast(kinds[column.type]) if column.type in kinds else column


def by_spark(lake: Lake, name: str, columns: Sequence[str], where: str) -> Iterator[pa.RecordBatch]:
    """Read with Spark, for stores and tables that delta-rs cannot read."""
    frame = lake.mirror_frame(name, _query("{mirror}", columns, where))
    return iter(frame.toArrow().to_batches())


def read(lake: Lake, name: str, columns: Sequence[str], where: str) -> list[pa.RecordBatch]:
    """Read the rows for which a condition holds, by the first that can."""
    return _read(lake, name, columns, where, lambda page: page, (by_duck, by_delta))


def read_sums(
    lake: Lake, name: str, columns: Sequence[str], where: str, sums: Callable[[pa.RecordBatch], pa.Table]
) -> list[pa.Table]:
    """Sum up the rows for which a condition holds, page by page: they may be more than memory holds."""
    return _read(lake, name, columns, where, sums, (by_delta,))


def _read(
    lake: Lake,
    name: str,
    columns: Sequence[str],
    where: str,
    taken: Callable[[pa.RecordBatch], _Taken],
    readers: Iterable[Read],
) -> list[_Taken]:
    for reader in readers:
        with suppress(
            Exception
        ):  # a store or a table that it does not support; Spark reports damage in words
            return [taken(page) for page in reader(lake, name, columns, where)]
    return [taken(page) for page in by_spark(lake, name, columns, where)]


def changes_since(batch: int, tables: Iterable[str | None]) -> str:
    """The condition of all changes after a batch that are of tables with these names, whatever their database."""
    names = ", ".join(sorted({duck.text(name or "") for name in tables}))
    return f"kind = 'change' AND batch > {batch} AND \"table\" IN ({names})"


# --- a mirror -------------------------------------------------------------------------------------


def mirror_rows(
    lake: Lake,
    mirror: Mirror,
    kinds: Sequence[str],
    keys: Iterable[Key] | None,
    state: Snapshot | None = None,
) -> list[Sequence[object]]:
    """The rows of some keys, in the fold's form, and possibly others, with cells as in `of_column`; all rows for None.

    ``kinds`` has the actual Delta type of each column; empty if it does not exist. ``state`` is an earlier one of a local
    table; else its newest is read.
    """
    listed = None if keys is None else list(keys)
    if listed == []:
        return []
    comparable = [column.column for column, kind in zip(mirror.columns, kinds, strict=True) if kind]
    read_rows: list[Sequence[object]] = []
    where = _of_keys(mirror, listed)
    pages = (
        _of_state(lake, mirror, comparable, where, state)
        if state
        else read(lake, mirror.path, comparable, where)
    )
    for rows in pages:
        columns = iter(rows.columns)
        nothing: list[object] = [None] * rows.num_rows
        read_rows += zip(
            *[of_column(next(columns), kind) if kind else nothing for kind in kinds], strict=True
        )
    return read_rows


def rows_by_key(
    lake: Lake, mirror: Mirror, kinds: Sequence[str], keys: Collection[Key]
) -> dict[Key | None, Sequence[object]]:
    """The rows of some keys, and possibly others, as `mirror_rows` gives them; of those that no change can have one under None."""
    return {key_of_row(row, mirror, kinds): row for row in mirror_rows(lake, mirror, kinds, keys)}


def _of_state(
    lake: Tables, mirror: Mirror, columns: Sequence[str], where: str, state: Snapshot
) -> list[pa.RecordBatch]:
    table = scan(lake.path(mirror.path), state, zones=True, wanted=columns)
    cursor = duck.connection().cursor().execute(_query(table, columns, where))
    return list(cursor.to_arrow_table().to_batches())


def changes_of_keys(
    lake: Tables,
    mirror: Mirror,
    lane: CheckedLane,
    shard: Shard,
    applied: int,
    keys: Iterable[Sequence[str]] | str,
    *,
    inherited: bool = False,
) -> list[dict[str, Any]]:
    """All changes of some keys of a lane up to a batch, with its TRUNCATEs, and the time of each.

    ``keys`` are cells as texts, without that of the shard; or a query that finds the first `ALWAYS` of them as
    ``own_key`` in the lane's ``rows``. With ``inherited`` the changes of the keys that their rows had before are among them.
    """
    named = mirror.keys_without(*dict(shard))
    now, left = duck.cells(named), duck.cells(named, "before", "after")
    columns = ", ".join(map(duck.name, (*CHANGE, TIME)))
    rows = f"""SELECT {columns}, [{now}] AS own_key, [{left}] AS left_key
        FROM {{changes.change}} WHERE {lane.where} AND batch <= {applied}"""
    if not isinstance(keys, str):
        places = [i for i, name in enumerate(mirror.keys) if name in named]
        keys = _unnested([key[i] for i in places] for key in keys)
    chosen = f"SELECT DISTINCT own_key FROM ({keys}) LIMIT {ALWAYS}"
    if inherited and lane.key_changes_ever:
        chosen = _unnested(_with_former(lake, rows, chosen))
    return lake.ask(
        f"""WITH rows AS ({rows}), chosen AS ({chosen})
        SELECT {columns} FROM rows WHERE own_key IN (FROM chosen) OR left_key IN (FROM chosen) OR op = 'truncate'"""
    )


def _unnested(keys: Iterable[Iterable[str | None]]) -> str:
    """A query of keys that are known."""
    listed = ", ".join(f"[{', '.join(map(duck.value, key))}]" for key in keys)
    return f"SELECT unnest(CAST([{listed}] AS VARCHAR[][])) AS own_key"


def _with_former(lake: Tables, rows: str, keys: str) -> set[tuple[str | None, ...]]:
    """The keys that a query finds in ``rows``, and those that their rows had before they had these.

    The moves are followed here, from the newest to the oldest: a recursive query looks at all rows again for each move of a
    chain, and Spark's SQL may refuse it. Of more than `MOVES` the oldest are not known.
    """
    asked = lake.ask(
        f"""WITH rows AS ({rows}), chosen AS ({keys}),
        moves AS (SELECT own_key, left_key, order_key FROM rows WHERE op = 'update' AND own_key <> left_key
            ORDER BY order_key DESC LIMIT {MOVES})
        SELECT own_key, left_key, order_key FROM moves UNION ALL SELECT own_key, own_key, '' FROM chosen"""
    )
    reached = {tuple(row["own_key"]) for row in asked if not row["order_key"]}
    for move in sorted(asked, key=itemgetter("order_key"), reverse=True):
        if tuple(move["own_key"]) in reached:
            reached.add(tuple(move["left_key"]))
    return reached


MOVES = 100_000  # to other keys, of one lane
ALWAYS = 1_000  # keys of a mirror that are always compared
CHANGE = ("batch", "op", "order_key", "partial", "before", "after", "types", "transaction")


def _of_keys(mirror: Mirror, keys: Sequence[Key] | None) -> str:
    """A condition that holds for the rows of all these keys, and for few others."""
    parts = []
    for i, column in enumerate(mirror.key_columns if keys is not None else ()):
        name = duck.name(column.column)
        is_number = column.delta in WHOLE or column.delta.startswith("DECIMAL")
        # texts and dates in the order of their bytes, as in all engines
        cells = sorted({str(key[i]) for key in keys or ()}, key=Decimal if is_number else None)
        if column.delta in WHOLE:
            listed = cells
        elif column.delta == "STRING":
            listed = list(map(duck.text, cells))
        elif column.delta == "DATE" or is_number:
            listed = [f"CAST({duck.text(cell)} AS {column.delta})" for cell in cells]
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
    return key_json(names, shown)


_REJECT = (
    "kind", "batch", "source", "topic", "partition", "offset", "database", "schema", "table", "key", "column", "raw",
    "reason",
)  # fmt: skip


def cell_rejects(lake: Lake, mirror: Mirror) -> list[tuple[Key, dict[str, Any]]]:
    """All rejected cells of a mirror, with the keys of their rows in the fold's form."""
    if not lake.exists(REJECTS.name):
        return []

    where = f"kind = 'cell' AND {duck.of_table(mirror.table)} AND key IS NOT NULL"
    refused = read(lake, REJECTS.name, _REJECT, where)
    keyed = ((rejects.key_of(mirror, row["key"]), row) for rows in refused for row in rows.to_pylist())
    return [(key, row) for key, row in keyed if key is not None]
