"""Write and describe data files of the product's own tables with Arrow, in the process that holds the rows.

A file counts only once a commit names it (`ingest.tables.commits`). `ingest maintain` deletes what a task or a killed run
has left without a commit.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import product
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ingest.store import stores
from ingest.tables.delta import UnreadableError
from ingest.tables.row_files import NewFile, kept_rows
from ingest.types import decimal_parts

_GROUP_ROWS, _GROUP_BYTES = 50_000, 32 << 20  # of a row group, about
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # the folder name of NULL in every engine
_BOUND = 256  # characters of the longest text that serves as a bound of its column


class Added(NamedTuple):
    """One data file, as in a commit."""

    path: str  # under the table's folder
    size: int
    partition: dict[str, str | None]
    stats: str
    written_at: int  # milliseconds

    def to_json(self) -> bytes:
        """The file in the form of a task's report."""
        return orjson.dumps(self._asdict())

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Read a task's report back."""
        return cls(**orjson.loads(text))


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a table's files are written, and what they contain; small enough to be sent to every task."""

    folder: str
    columns: pa.Schema  # of the table, in its order
    partition_by: tuple[str, ...] = ()
    statistics: tuple[str, ...] = ()  # columns of integers or short texts
    repeated: tuple[str, ...] = ()  # columns whose values repeat often
    sorted_by: tuple[str, ...] = ()  # how rows that are written together are sorted

    @property
    def stored(self) -> pa.Schema:
        """The columns of the files, without those of the partitioning."""
        return pa.schema([column for column in self.columns if column.name not in self.partition_by])


class Files:
    """New files of one table, one for each partition that gets rows.

    Use it as a context manager: after an error the files are removed.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._stored = layout.stored
        self._open: dict[tuple[str | None, ...], _File] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            error.add_note(f"in {self._layout.folder}")
            for file in self._open.values():
                file.discard()

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Write rows; missing columns are NULL, except those of the partitioning, which are required."""
        for values, rows_of_partition in self._parted(rows):
            self.add_to(dict(zip(self._layout.partition_by, values, strict=True)), rows_of_partition)

    def add_to(self, partition: dict[str, str | None], rows: pa.Table | pa.RecordBatch) -> None:
        """Write rows of one partition, whose columns they need not have."""
        values = tuple(partition.values())
        if rows.num_rows and values not in self._open:
            self._open[values] = _File(self._layout.folder, self._layout, self._stored, partition)
        if rows.num_rows:
            self._open[values].write(fitted(rows, self._stored))

    def _parted(
        self, rows: pa.Table | pa.RecordBatch
    ) -> Iterator[tuple[tuple[str | None, ...], pa.Table | pa.RecordBatch]]:
        """The rows of each partition."""
        names = self._layout.partition_by
        texts = [rows.column(name).cast(pa.string()) for name in names]
        keys = list(product(*(pc.unique(text).to_pylist() for text in texts))) if rows.num_rows else []
        for key in keys:
            same = [
                pc.is_null(text) if value is None else pc.fill_null(pc.equal(text, value), fill_value=False)
                for text, value in zip(texts, key, strict=True)
            ]
            of_partition = rows.filter(reduce(pc.and_, same)) if len(keys) > 1 else rows
            if of_partition.num_rows:
                yield key, of_partition

    def finish(self) -> list[Added]:
        """Close the files and describe them; from here on they are not removed."""
        done = [file.finish() for file in self._open.values()]
        self._open = {}
        return done


def fitted(rows: pa.Table | pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """Rows in the form of a schema: its columns in its order, missing ones as NULL."""
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    have = set(table.column_names)
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in have
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


@dataclass(slots=True)
class _Bounds:
    """A file's statistics of one column."""

    low: Any = None
    high: Any = None
    nulls: int = 0

    def take(self, column: pa.ChunkedArray) -> None:
        self.nulls += column.null_count
        if column.null_count < len(column):
            ends = pc.min_max(column).as_py()
            self.low = ends["min"] if self.low is None else min(self.low, ends["min"])
            self.high = ends["max"] if self.high is None else max(self.high, ends["max"])

    @property
    def is_short(self) -> bool:
        """True if both bounds fit the statistics."""
        ends = (self.low, self.high)
        return None not in ends and not any(isinstance(end, str) and len(end) > _BOUND for end in ends)


@dataclass(slots=True)
class _File(NewFile):
    """One file while it is written."""

    layout: Layout
    stored: pa.Schema
    partition: dict[str, str | None]
    waiting_rows: int = 0
    waiting_bytes: int = 0
    bounds: dict[str, _Bounds] = field(default_factory=dict)

    def write(self, rows: pa.Table) -> None:
        self.waiting.append(rows)
        self.waiting_rows += rows.num_rows
        self.waiting_bytes += rows.nbytes
        if self.waiting_rows >= _GROUP_ROWS or self.waiting_bytes >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        """Write the buffered rows as one row group, or more if there are many."""
        rows = pa.concat_tables(self.waiting)
        self.waiting, self.waiting_rows, self.waiting_bytes = [], 0, 0
        by = [name for name in self.layout.sorted_by if pc.count_distinct(rows.column(name)).as_py() > 1]
        if by:
            rows = rows.sort_by([(name, "ascending") for name in by])
        if self.writer is None:
            self._open()
        groups = 1 + rows.nbytes // (2 * _GROUP_BYTES)  # one page may contain many long messages
        self.write_groups(rows, max(1, -(-rows.num_rows // groups)))
        for name, bounds in self.bounds.items():
            bounds.take(rows.column(name))

    def _open(self) -> None:
        folders = [f"{quote(name)}={quote(value or _NO_VALUE)}" for name, value in self.partition.items()]
        path = "/".join([*folders, f"part-{uuid.uuid4()}.zstd.parquet"])
        names = self.stored.names
        self.bounds = {name: _Bounds() for name in self.layout.statistics if name in names}
        repeated = [name for name in self.layout.repeated if name in names]
        described = list(dict.fromkeys([*self.bounds, *repeated]))
        self.begin(path, self.stored, use_dictionary=repeated, write_statistics=described)

    def finish(self) -> Added:
        if self.waiting:
            self._flush()
        size = self.close()
        short = {name: bound for name, bound in self.bounds.items() if bound.is_short}
        stats = {
            "numRecords": self.rows,
            "minValues": {name: bounds.low for name, bounds in short.items()},
            "maxValues": {name: bounds.high for name, bounds in short.items()},
            "nullCount": {name: bound.nulls for name, bound in self.bounds.items()},
        }
        now = int(time.time() * 1000)
        return Added(self.name, size, self.partition, orjson.dumps(stats).decode(), now)


def joined(layout: Layout, places: Iterable[str]) -> list[Added]:
    """Write the rows of some files of an unpartitioned table as one."""
    pages = (page for place in places for page in kept_rows(f"{layout.folder}/{place}", layout.stored, None))
    return in_partition(layout, {}, pages)


def in_partition(layout: Layout, partition: dict[str, str | None], pages: Iterable[pa.Table]) -> list[Added]:
    """Write rows of one partition, without its columns, as one file; none if there are no rows."""
    with Files(layout) as files:
        for page in pages:
            files.add_to(partition, page)
        return files.finish()


def written(layout: Layout, rows: pa.Table | pa.RecordBatch) -> list[Added]:
    """Write rows as files; none if there are no rows."""
    with Files(layout) as files:
        files.add(rows)
        return files.finish()


@dataclass(frozen=True, slots=True)
class FilePart:
    """A part of a table's rows: some row groups of one data file, of which some batches are wanted."""

    path: str
    columns: pa.Schema  # wanted
    first: int  # batch
    last: int
    groups: tuple[int, ...] = ()  # all of them if none is named
    rows: int = 0  # about
    size: int = 0  # of the whole file

    def read(self) -> Iterator[pa.Table]:
        """Read the rows, one row group after the other; a column that the file lacks is NULL."""
        with self._open() as file:
            names = [column.name for column in self.columns if column.name in file.schema_arrow.names]
            for group in self.groups or range(file.num_row_groups):
                rows = file.read_row_group(group, columns=list({*names, "batch"}))
                batch = rows.column("batch")
                inside = pc.and_(pc.greater_equal(batch, self.first), pc.less_equal(batch, self.last))
                yield fitted(rows if pc.all(inside).as_py() else rows.filter(inside), self.columns)

    @contextlib.contextmanager
    def _open(self) -> Iterator[pq.ParquetFile]:
        """Open the file; errors name it."""
        try:
            file = stores.at(self.path).source(self.path)
            # the unit is for times as other writers store them
            with pq.ParquetFile(file, coerce_int96_timestamp_unit="us") as parquet:
                yield parquet
        except (pa.ArrowException, OSError) as error:
            error.add_note(f"in {self.path}")
            raise

    def parts(self) -> list[FilePart]:
        """The same piece, a row group at a time."""
        with self._open() as file:
            count = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        return [replace(self, groups=(group,), rows=rows) for group, rows in enumerate(count)]


def table_of(rows: Sequence[Sequence[object]], names: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Rows of Python values as Arrow."""
    columns = dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else {}
    arrays = [
        pa.array(columns[field.name], field.type)
        if field.name in columns
        else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def listed(column: pa.Array) -> list[Any]:
    """A column's values as a list: through numpy where possible, which is five times as fast."""
    if column.null_count == len(column):
        return [None] * len(column)
    if (column.null_count and not pa.types.is_binary(column.type)) or pa.types.is_nested(column.type):
        return list(column.to_pylist())
    return list(column.to_numpy(zero_copy_only=False).tolist())


_ARROW: dict[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def arrow_schema(types: Mapping[str, object]) -> pa.Schema:
    """A table's columns, from the form of its log; errors as in `arrow_type`."""
    return pa.schema([(name, arrow_type(kind)) for name, kind in types.items()])


def arrow_type(kind: object) -> pa.DataType:
    """A type of a table's log in Arrow.

    Raises:
        UnreadableError: Arrow does not write it.
    """
    if isinstance(kind, Mapping) and kind["type"] == "array":
        return pa.list_(arrow_type(kind["elementType"]))
    if isinstance(kind, Mapping) and kind["type"] == "struct":
        return pa.struct([(field["name"], arrow_type(field["type"])) for field in kind["fields"]])
    if isinstance(kind, str) and (parts := decimal_parts(kind)):
        return pa.decimal128(*parts)
    if not isinstance(kind, str) or kind not in _ARROW:
        raise UnreadableError(f"A column of type {kind} is written with Spark alone.")
    return _ARROW[kind]
