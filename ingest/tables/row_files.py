"""Read the rows of a data file that its deletion vector leaves, and write a mirror's rows to a new data file of its table, with
the statistics by which engines skip files.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ingest.errors import StoreError
from ingest.store import stores

LONGEST_STATISTIC = 32  # characters of a text that Delta keeps
LARGE = 64 << 10  # bytes of a column's usual value: a dictionary of such values would be a copy of them
GROUP_BYTES = 128 << 20  # of a row group in memory, which is held until it is written
GROUP_ROWS = 1 << 20
READ = 16 << 10  # rows that are read at once of a large file
_DATE = len("2024-12-31")
PARQUET = ds.ParquetFileFormat(
    read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")  # as other writers store times
)


def kept_rows(path: str, stored: pa.Schema, kept: pa.BooleanArray | None) -> Iterator[pa.Table]:
    """A file's rows as they are stored, some at a time, without those that its deletion vector says are gone."""
    dataset = stores.at(path).dataset([path], schema=stored, format=PARQUET)
    [file] = dataset.get_fragments()
    first = 0
    for batch in file.to_batches(schema=stored, batch_size=READ, batch_readahead=2, fragment_readahead=1):
        rows = pa.Table.from_batches([batch])
        if kept is not None:  # it may stop short: after its last deleted row
            mask = kept.slice(first, batch.num_rows)
            rest = pa.array([True] * (batch.num_rows - len(mask)), pa.bool_())
            rows = rows.filter(pa.concat_arrays([mask, rest]))
        first += batch.num_rows
        yield rows


class DataFileEnd(NamedTuple):
    """A file that was written: its name within the table's folder, its bytes, its rows, its statistics in Delta's JSON."""

    name: str
    size: int
    rows: int
    stats: str


@dataclass(slots=True)
class NewFile:
    """A Parquet file in a table's folder while it is written, a row group at a time; without a row there is none."""

    folder: str
    _: KW_ONLY
    name: str = ""  # within the folder
    rows: int = 0  # that are written
    waiting: list[pa.Table] = field(default_factory=list)
    file: Any = None
    writer: pq.ParquetWriter | None = None

    @property
    def place(self) -> str:
        """The file in the file system, or in a store."""
        return f"{self.folder}/{self.name}"

    def begin(self, name: str, schema: pa.Schema, **settings: Any) -> None:
        """Create the file."""
        self.name = name
        self.file = stores.at(self.place).create(self.place)
        with stores.named(self.place):
            self.writer = pq.ParquetWriter(self.file, schema, compression="zstd", **settings)

    def write_groups(self, rows: pa.Table, most: int) -> None:
        """Write rows, in groups of at most so many."""
        assert self.writer is not None
        with stores.named(self.place):
            self.writer.write_table(rows, row_group_size=most)
        self.rows += rows.num_rows

    def close(self) -> int:
        """End the file, and return its size in bytes."""
        assert self.writer is not None
        with stores.named(self.place):
            self.writer.close()
        return stores.at(self.place).finish(self.place, self.file)

    def discard(self) -> None:
        """Remove the file, if it exists."""
        with contextlib.suppress(Exception):
            if self.writer is not None:
                self.writer.close()
        with contextlib.suppress(OSError, StoreError):
            if self.name:
                stores.at(self.place).remove(self.place)


@dataclass(slots=True)
class RowFile(NewFile):
    """A new file of a mirror's rows, which come a page at a time.

    As a context manager it removes the file after an error.
    """

    keys: list[str]
    ends: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # of the key's columns
    unknown: set[str] = field(default_factory=set)  # columns of the key without such ends

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            self.discard()

    def add(self, rows: pa.Table) -> None:
        """Some more rows, all of the same columns."""
        if rows.num_rows:
            self.waiting.append(rows)
        if (
            sum(table.num_rows for table in self.waiting) >= GROUP_ROWS
            or sum(table.nbytes for table in self.waiting) >= GROUP_BYTES
        ):
            self._flush()

    def finish(self) -> DataFileEnd | None:
        """End the file; None if it has no row."""
        self._flush()
        if self.writer is None:
            return None
        return DataFileEnd(self.name, self.close(), self.rows, self._statistics())

    def _flush(self) -> None:
        if not self.waiting:
            return
        rows, self.waiting = pa.concat_tables(self.waiting), []
        if self.writer is None:
            self._open(rows)
        groups = 1 + rows.nbytes // GROUP_BYTES
        self.write_groups(rows, min(GROUP_ROWS, -(-rows.num_rows // groups)))
        self._note_ends(rows)

    def _open(self, rows: pa.Table) -> None:
        name = f"part-00000-{uuid.uuid4()}-c000.zstd.parquet"
        # A column with NaN gets no minimum and maximum: Spark sorts NaN above all numbers, Parquet ignores it.
        ended = [plain.name for plain in rows.schema if not pa.types.is_floating(plain.type)]
        short = [name for name in rows.column_names if rows[name].nbytes <= LARGE * rows.num_rows]
        settings = {"use_dictionary": short, "write_statistics": ended, "store_decimal_as_integer": True}
        self.begin(name, rows.schema, **settings)

    def _note_ends(self, rows: pa.Table) -> None:
        """Take the least and greatest values of key columns whose values no engine rounds or truncates."""
        for name in self.keys:
            kind = rows.schema.field(name).type
            if not (pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_string(kind)):
                continue
            scalars = pc.min_max(rows[name]).values()
            # a date as its text: Python has none of year 0
            dates = pa.types.is_date(kind)
            low, high = (end.cast(pa.string()).as_py() if dates else end.as_py() for end in scalars)
            # texts of dates are in the dates' order, and every engine reads them, if their years have four digits
            longest = _DATE if dates else LONGEST_STATISTIC
            if isinstance(low, str) and max(len(low), len(str(high))) > longest:
                self.unknown.add(name)
            least, greatest = self.ends.get(name, (low, high))
            self.ends[name] = min(least, low), max(greatest, high)

    def _statistics(self) -> str:
        ends = {name: both for name, both in self.ends.items() if name not in self.unknown}
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": {name: low for name, (low, _) in ends.items()},
                "maxValues": {name: high for name, (_, high) in ends.items()},
                "nullCount": dict.fromkeys(ends, 0),
                "tightBounds": True,
            },
            # Arrow's reader of JSON makes of an escaped character beyond U+1FFFF another one, and its engines miss the
            # file
            ensure_ascii=False,
        )
