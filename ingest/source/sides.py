"""The two sides of a comparison: a table in its database and its mirror, asked for sums, numbers and cells of rows."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from queue import Empty, LifoQueue
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ingest.config.entries import Database
from ingest.errors import IngestError
from ingest.ledgers.mirrors import Column, Mirror
from ingest.source import digest
from ingest.source.chunks import Chunk, beyond, bounds, chunks, condition, key_conditions, keys_of, literals
from ingest.source.database import (
    DatabaseError,
    Key,
    SourceColumn,
    SourceDialect,
    SourceTable,
    clock,
    connected,
)
from ingest.source.digest import ComparedColumn
from ingest.source.reconciled import Cells, IncomparableError, ReconcileOptions, RowKey
from ingest.source.snapshot import is_settled
from ingest.tables import delta, duck
from ingest.tables.tables import Tables, scan

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_TRIES = 4
_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DATE", "TIMESTAMP_NTZ")

_Answer = TypeVar("_Answer")
Sums = dict[Any, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """A table and its mirror, column by column."""

    table: SourceTable
    mirror: Mirror
    columns: tuple[ComparedColumn, ...]
    keys: tuple[ComparedColumn, ...]
    ranged: tuple[tuple[SourceColumn, Column], ...]  # the first key columns that both order alike
    lacking: tuple[str, ...]
    left_out: tuple[str, ...]  # columns that are not compared

    def key_of(self, texts: Sequence[Any]) -> RowKey:
        """The key of a row by which both sides know it, from the texts that one of them has printed."""
        return digest.row_key(self.keys, texts)

    def cells_of(self, texts: Sequence[Any]) -> Cells:
        """The cells of a row in their one text."""
        return tuple(column.canonical(text) for column, text in zip(self.columns, texts, strict=True))


def _order_alike(source: SourceColumn, mirror: Column) -> bool:
    """True if a database and DuckDB order a column's values alike."""
    return mirror.delta in _WHOLE or mirror.delta.startswith("DECIMAL") or source.by_bytes


def compared_table(lake: Tables, dialect: SourceDialect, table: SourceTable, mirror: Mirror) -> ComparedTable:
    """How a source's table is compared with its mirror.

    Raises:
        IncomparableError: a key column is of a type that cannot be compared.
        IngestError: a key column is lacking.
    """
    types_of_mirror = lake.snapshot(mirror.path).types
    by_name = {column.name: column for column in mirror.sent if column.column in types_of_mirror}
    rule = lake.pipeline.rule(table.id)
    masked = {name for name in by_name if rule.mask_of(name)}
    shared = [column for column in table.columns if column.name in by_name]
    if lost := set(mirror.keys) - {column.name for column in shared}:
        raise IngestError(f"{table.id} has no column {min(lost)!r}, which is in the key of its mirror.")
    incomparable = {column.name for column in shared if not column.comparable}
    if unlike := incomparable & set(mirror.keys):
        raise IncomparableError(
            f"{min(unlike)!r} is in the key of {mirror.name}, and values of its type cannot be compared here "
            f"(docs/reading-the-source.md), so no row can be looked up in {table.id}."
        )
    not_compared = [column for column in shared if column.name in masked | incomparable]
    compared = {
        column.name: digest.compared(dialect, column, by_name[column.name], is_key=column.name in mirror.keys)
        for column in shared
        if column not in not_compared
    }
    columns = {column.name: column for column in table.columns}
    keys = ((columns[name], by_name[name]) for name in mirror.keys)
    return ComparedTable(
        replace(table, keys=mirror.keys),
        mirror,
        tuple(compared.values()),
        tuple(compared[name] for name in mirror.keys),
        # ranges are cut along the first columns of the key that both sides order alike
        tuple(takewhile(lambda key: _order_alike(*key), keys)),
        tuple(
            column.name
            for column in table.columns
            if column.name not in by_name and not rule.leaves_out(column.name)
        ),
        tuple(column.name for column in (*not_compared, *table.left_out)),
    )


class SourceConnections:
    """A few connections to one database, each asked by one thread at a time, at no more than a pace."""

    def __init__(self, database: Database, options: ReconcileOptions) -> None:
        self.database = database
        self._options = options
        self._free: LifoQueue[tuple[ExitStack, SourceDialect, Any]] = LifoQueue()
        self._lock = threading.Lock()
        self._due = 0.0

    def close(self) -> None:
        with suppress(Empty):
            while True:
                self._free.get_nowait()[0].close()

    @contextmanager
    def connection(self) -> Iterator[tuple[SourceDialect, Any]]:
        """A connection of this thread's for a while: closed after an error, else kept for the next."""
        try:
            stack, dialect, connection = self._free.get_nowait()
        except Empty:
            stack = ExitStack()
            dialect, connection = stack.enter_context(connected(self.database))
        with stack:  # turns the client's own errors into a sentence
            yield dialect, connection
            self._free.put((stack.pop_all(), dialect, connection))

    def ask(self, query: str, rows: int = 0) -> list[tuple[Any, ...]]:
        """The rows of a query; ``rows`` is about how many rows of the table it reads, for the pace."""
        self._pace(rows)
        return self.again(lambda dialect, connection: dialect.values(connection, query))

    def again(self, what: Callable[[SourceDialect, Any], _Answer]) -> _Answer:
        """What the database answers, asked again on a new connection if one breaks."""
        for trial in range(_TRIES):
            try:
                with self.connection() as (dialect, connection):
                    return what(dialect, connection)
            except DatabaseError:
                if trial == _TRIES - 1:
                    raise
                self.close()  # a server that went took the others with it
                time.sleep(2.0**trial)
        raise AssertionError

    def _pace(self, rows: int) -> None:
        if not self._options.rows_per_second or not rows:
            return
        with self._lock:
            now = time.monotonic()
            start = max(now, self._due)
            self._due = start + rows / self._options.rows_per_second
        time.sleep(start - now)


@dataclass(slots=True)
class SourceSide:
    """The table, by questions that move sums rather than rows."""

    asking: SourceConnections
    dialect: SourceDialect
    pair: ComparedTable
    fetched: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def keys(self) -> list[Key]:
        """How the ranged columns are compared."""
        names = tuple(column.name for column, _ in self.pair.ranged)
        return keys_of(self.dialect, replace(self.pair.table, keys=names))

    def ranges(self, size: int) -> list[Chunk]:
        """The table in ranges of its ranged columns, or of its whole key where there is none."""
        names = tuple(column.name for column, _ in self.pair.ranged) or self.pair.mirror.keys
        table = replace(self.pair.table, keys=names)
        return chunks(
            self.asking.again(lambda dialect, connection: list(bounds(dialect, connection, table, "", size)))
        )

    def where(self, chunk: Chunk, and_: str = "") -> str:
        """A range's WHERE, with another condition if one is given."""
        return condition(self.keys or keys_of(self.dialect, self.pair.table), chunk, and_)

    def number(self) -> str:
        """SQL for a row's number."""
        parts = [column.source_part for column in self.pair.columns]
        return self.dialect.number(digest.source_text(self.dialect, parts))

    def key_hash(self, digits: int) -> str:
        """SQL for the first digits of the MD5 of a row's key, or of the row if it has none."""
        parts = [key.source_part for key in self.pair.keys or self.pair.columns]
        return self.dialect.md5(digest.source_text(self.dialect, parts), digits)

    def sums(self, chunk: Chunk, group: str, rows: int = 0) -> Sums:
        """Counts and sums of a range by groups."""
        inner = f"SELECT {group} AS g, {self.number()} AS d FROM {self.pair.table.name} {self.where(chunk)}"
        sums = self.asking.ask(f"SELECT g, COUNT(*), SUM(d) FROM ({inner}) s GROUP BY g", rows)
        return {str(g): (int(count), int(total or 0)) for g, count, total in sums}

    def pieces(self, cuts: Sequence[Sequence[str]]) -> str:
        """SQL for the number of the piece in which a row is."""
        orders = [key.order for key in self.keys]
        bounds_of = [beyond(orders, literals(self.keys, cut), "<", equal=True) for cut in cuts]
        cases = [f"WHEN {bound} THEN {i}" for i, bound in enumerate(bounds_of)]
        return f"CASE {' '.join(cases)} ELSE {len(cuts)} END" if cases else "0"

    def numbers(self, chunk: Chunk, where: str = "") -> dict[RowKey, int | None]:
        """The rows of a range by key, as numbers."""
        texts = ", ".join(f"{key.source} AS k{i}" for i, key in enumerate(self.pair.keys))
        rows = self.asking.ask(
            f"SELECT {texts}, {self.number()} AS d FROM {self.pair.table.name} {self.where(chunk, where)}"
        )
        with self._lock:
            self.fetched += len(rows)
        return {self.pair.key_of(row[:-1]): None if row[-1] is None else int(row[-1]) for row in rows}

    def contents(self, where: str) -> dict[int, int]:
        """How often each number occurs among some rows."""
        inner = f"SELECT {self.number()} AS d FROM {self.pair.table.name} WHERE {where}"
        counts = self.asking.ask(f"SELECT d, COUNT(*) FROM ({inner}) s GROUP BY d")
        self.fetched += len(counts)
        return {int(number): int(count) for number, count in counts}

    def rows(self, keys: Sequence[RowKey]) -> tuple[dict[RowKey, Cells], dict[RowKey, Cells]]:
        """Rows by key, cell by cell: as they are compared, and as the source has them."""
        both = [column.source for column in (*self.pair.keys, *self.pair.columns)]
        sent_columns = {i: column.sent for i, column in enumerate(self.pair.columns) if column.sent}
        texts = ", ".join(f"{column} AS c{i}" for i, column in enumerate([*both, *sent_columns.values()]))
        rows: dict[RowKey, Cells] = {}
        sent: dict[RowKey, Cells] = {}
        size, end = len(self.pair.keys), len(both)
        for wanted in key_conditions(self.dialect, self.pair.table, keys):
            answered = self.asking.ask(f"SELECT {texts} FROM {self.pair.table.name} WHERE {wanted}")
            self.fetched += len(answered)
            for row in answered:
                key, cells = self.pair.key_of(row[:size]), self.pair.cells_of(row[size:end])
                rows[key] = cells
                texts_of = dict(zip(sent_columns, row[end:], strict=True))
                sent[key] = tuple(texts_of.get(i) if cell is None else cell for i, cell in enumerate(cells))
        return rows, sent

    def clock(self) -> str:
        """The database's own time."""
        return self.asking.again(clock)

    def is_settled(self, seconds: float) -> bool:
        """Wait until all that the stream may have delivered is seen here; False if it is not in time."""
        database = self.asking.database
        return self.asking.again(
            lambda dialect, connection: is_settled(database, dialect, connection, seconds)
        )

    def unchanged(self) -> None:
        """Complain of columns that are not what they were."""
        now = self.asking.again(lambda dialect, connection: dialect.table(connection, self.pair.table.id))
        if now is None or now.shape != self.pair.table.shape:
            what = "vanished" if now is None else "got other columns"
            raise IngestError(
                f"{self.pair.table.id} {what} while it was compared: run the same command again."
            )


class MirrorRow(NamedTuple):
    """One row of the mirror: its place among the ranges, its key, its number."""

    order: tuple[str, ...]
    key: RowKey
    number: int


class WrittenRow(NamedTuple):
    """One row of the mirror: its key as the mirror writes it, and its cells in their one text."""

    key: RowKey
    cells: Cells


def numbered(rows: Iterable[tuple[RowKey, int]]) -> dict[RowKey, int | None]:
    """The mirror's rows by key, as numbers; None for a key that several rows have, each in a text of its own."""
    numbers: dict[RowKey, int | None] = {}
    for key, number in rows:
        numbers[key] = None if key in numbers else number
    return numbers


class MirrorSide:
    """The mirror at one version: its rows' numbers in a table of DuckDB's own, in a file that ``ends`` removes."""

    def __init__(self, lake: Tables, pair: ComparedTable, ends: ExitStack) -> None:
        self._lake = lake
        self._pair = pair
        folder = ends.enter_context(tempfile.TemporaryDirectory(prefix="reconcile-"))
        self._base: DuckDBPyConnection = duck.opened(str(Path(folder) / "mirror.duckdb"))
        orders = [f"{duck.name(ours.column)} AS o{i}" for i, (_, ours) in enumerate(self._pair.ranged)]
        texts = [f"{key.mirror} AS k{i}" for i, key in enumerate(self._pair.keys)]
        ends.callback(self._base.close)
        hashed = "'' AS h"
        if len(orders) < len(texts) or not texts:  # else every place among the ranges has one row
            parts = [key.mirror_part for key in self._pair.keys or self._pair.columns]
            hashed = f"md5({digest.mirror_text(parts)}) AS h"
        number = digest.mirror_number(
            digest.mirror_text([column.mirror_part for column in self._pair.columns])
        )
        sort = f"ORDER BY {', '.join(f'o{i}' for i in range(len(orders)))}" if orders else ""
        self._base.execute(
            f"CREATE TABLE m AS SELECT {', '.join([*orders, *texts, hashed, f'{number} AS d'])} "
            f"FROM {self._scan()} {sort}"
        )
        self.rows_count: int = self._ask("SELECT count(*) FROM m")[0][0]

    def _scan(self) -> str:
        folder = self._lake.path(self._pair.mirror.path)
        return scan(folder, delta.snapshot(folder))

    def _ask(self, query: str) -> list[tuple[Any, ...]]:
        return self._base.cursor().execute(query).fetchall()

    def where(self, chunk: Chunk, and_: str = "") -> str:
        """A range's WHERE, with another condition if one is given."""
        keys = [
            Key(f"o{i}", "", f"CAST({{}} AS {duck.type_of(ours.delta)})")
            for i, (_, ours) in enumerate(self._pair.ranged)
        ]
        return condition(keys, chunk, and_, duck.text)

    def sums(self, chunk: Chunk, group: str) -> Sums:
        """Counts and sums of a range by groups."""
        inner = f"SELECT {group} AS g, d FROM m {self.where(chunk)}"
        sums = self._ask(f"SELECT g, count(*), sum(d) FROM ({inner}) GROUP BY g")
        return {str(g): (int(count), int(total or 0)) for g, count, total in sums}

    def ordered(self, chunk: Chunk) -> list[MirrorRow]:
        """The rows of a range, in the order of its bounds."""
        orders = [f"o{i}" for i in range(len(self._pair.ranged))]
        bound = ", ".join(f"CAST({order} AS VARCHAR)" for order in orders)
        key = ", ".join(f"k{i}" for i in range(len(self._pair.keys)))
        rows = self._ask(f"SELECT {bound}, {key}, d FROM m {self.where(chunk)} ORDER BY {', '.join(orders)}")
        size = len(orders)
        return [MirrorRow(row[:size], self._pair.key_of(row[size:-1]), row[-1]) for row in rows]

    @staticmethod
    def key_hash(digits: int) -> str:
        """SQL for the first digits of the MD5 of a row's key."""
        return f"substr(h, 1, {digits})"

    def numbers(self, chunk: Chunk, where: str = "") -> dict[RowKey, int | None]:
        """The rows of a range by key, as numbers."""
        texts = ", ".join(f"k{i}" for i in range(len(self._pair.keys)))
        rows = self._ask(f"SELECT {texts}, d FROM m {self.where(chunk, where)}")
        return numbered((self._pair.key_of(row[:-1]), row[-1]) for row in rows)

    def contents(self, where: str) -> dict[int, int]:
        """How often each number occurs among some rows."""
        return dict(self._ask(f"SELECT d, count(*) FROM m WHERE {where} GROUP BY d"))

    def rows(self, keys: Sequence[RowKey]) -> dict[RowKey, list[WrittenRow]]:
        """Rows by key, cell by cell, as the mirror is now: several where it has one key in several texts."""
        if not keys:
            return {}
        ks = [f"k{i}" for i in range(len(self._pair.keys))]
        kinds = [
            "DOUBLE" if key.is_float else "VARCHAR" for key in self._pair.keys
        ]  # by which keys are equal
        texts = [
            f"CAST({key.mirror} AS {kind}) AS k{i}"
            for i, (key, kind) in enumerate(zip(self._pair.keys, kinds, strict=True))
        ]
        cells = [f"{column.mirror} AS c{i}" for i, column in enumerate(self._pair.columns)]
        own = [duck.name(column.column) for column in self._pair.mirror.key_columns]
        own_texts = [
            f"{name if kind == 'VARCHAR' and key.delta == 'STRING' else 'NULL'} AS w{i}"
            for i, (name, kind, key) in enumerate(zip(own, kinds, self._pair.keys, strict=True))
        ]
        base = self._base.cursor()
        declared = ", ".join(f"{name} {kind}" for name, kind in zip(ks, kinds, strict=True))
        base.execute(f"CREATE OR REPLACE TEMP TABLE wanted ({declared})")
        for first in range(0, len(keys), 1000):
            base.execute(f"INSERT INTO wanted VALUES {duck.listed(keys[first : first + 1000])}")
        result = base.execute(
            f"SELECT {', '.join([*ks, *(f'w{i}' for i in range(len(ks))), *(f'c{i}' for i in range(len(cells)))])} FROM (SELECT "
            f"{', '.join([*texts, *own_texts, *cells])} FROM {self._scan()}) JOIN wanted USING ({', '.join(ks)})"
        ).fetchall()
        rows: dict[RowKey, list[WrittenRow]] = {}
        for row in result:
            key = self._pair.key_of(row[: len(ks)])
            written = tuple(
                text if there is None else there for text, there in zip(key, row[len(ks) :], strict=False)
            )
            rows.setdefault(key, []).append(WrittenRow(written, self._pair.cells_of(row[2 * len(ks) :])))
        return {key: sorted(written_rows, key=repr) for key, written_rows in rows.items()}
