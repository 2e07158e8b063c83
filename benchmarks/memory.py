"""The memory of a process that folds the largest mirrors which Arrow takes, each in a process of its own.

    python -m benchmarks.memory                 # or the name of one: python -m benchmarks.memory "long texts"

Each line is one mirror: its file, what its rows take in Arrow, the changes of the batch, and how far the process grew
beyond what its modules take. The last mirror is refused: its rows would take more than `ROWS_AT_MOST`.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ingest.change import TableId
from ingest.gold.fold import arrow_files
from ingest.gold.fold.arrow_work import ColumnWork, LaneWork, MirrorWork
from ingest.order import Order, order_key
from ingest.tables.row_files import RowFile

MIB = 1 << 20
TABLE = TableId("shop", None, "orders")


class Mirror(NamedTuple):
    """A mirror's rows and the changes of a batch."""

    name: str
    rows: int
    texts: int  # characters of each of its four texts
    repeated: bool  # the same few texts in all rows, which a file holds once
    changes: int
    partial: bool = False


MIRRORS = [
    Mirror("ten columns, few changes", 1_600_000, 8, False, 16_384),
    Mirror("ten columns, most changes", 1_600_000, 8, False, 500_000),
    Mirror("ten columns, most partial changes", 1_600_000, 8, False, 500_000, partial=True),
    Mirror("most cells", 1_990_000, 4, True, 16_384),
    Mirror("long texts", 125_000, 200, False, 16_384),
    Mirror("long repeated texts", 1_000_000, 1_000, True, 16_384),
]
COLUMNS = (
    ColumnWork("id", "id", "int64"),
    *(ColumnWork(f"n{i}", f"n{i}", "int32") for i in range(2)),
    ColumnWork("price", "price", "decimal(18,2)"),
    ColumnWork("day", "day", "date"),
    ColumnWork("at", "at", "datetime(6)"),
    *(ColumnWork(f"t{i}", f"t{i}", "string") for i in range(4)),
)


def rows_of(one: Mirror) -> pa.Table:
    """The mirror's rows."""
    random = np.random.default_rng(1)
    whole = random.integers(0, 10_000_000, one.rows)

    def texts() -> pa.Array:
        letters = random.integers(97, 123, (64 if one.repeated else one.rows, one.texts), np.uint8)
        made = pa.array(np.ascontiguousarray(letters).view(f"S{one.texts}").ravel()).cast(pa.string())
        return made.take(pa.array(whole % 64)) if one.repeated else made

    cells: list[pa.Array] = [
        pa.array(np.arange(one.rows)),
        *(pa.array(random.integers(0, 1_000, one.rows, np.int32)) for _ in range(2)),
        pa.array(whole).cast(pa.decimal128(21, 2)).cast(pa.decimal128(18, 2)),
        pa.array((whole % 20_000).astype(np.int32)).cast(pa.date32()),
        pa.array(whole * 1_000_000).cast(pa.timestamp("us")),
        *(texts() for _ in range(4)),
    ]
    return pa.table(cells, names=[column.column for column in COLUMNS])


def changes_of(one: Mirror) -> pa.Table:
    """The batch's changes, each with the row before and after."""

    def image(i: int, word: str) -> str:
        cells = {
            "id": str(i * 2), "n0": "1", "n1": "2", "price": "12.50", "day": "2024-05-01", "at": "2024-05-01 10:00:00.000001",
            **{f"t{k}": word * one.texts for k in range(4)},
        }  # fmt: skip
        return json.dumps(dict(list(cells.items())[:5]) if one.partial else cells)

    n = range(one.changes)
    return pa.table(
        {
            "source": ["s"] * one.changes, "database": ["shop"] * one.changes, "schema": pa.nulls(one.changes, pa.string()),
            "table": ["orders"] * one.changes, "batch": pa.array([7] * one.changes, pa.int64()),
            "order_key": [order_key(Order(0, 1, (i,), 0, (i,), 0)) for i in n], "op": ["update"] * one.changes,
            "partial": [one.partial] * one.changes, "before": [image(i, "a") for i in n], "after": [image(i, "b") for i in n],
            "topic": ["t"] * one.changes, "partition": pa.array([0] * one.changes, pa.int32()), "offset": pa.array(n, pa.int64()),
            "row": pa.array([0] * one.changes, pa.int32()), "transaction": pa.nulls(one.changes, pa.string()),
        }
    )  # fmt: skip


def written(one: Mirror, folder: str) -> None:
    """Write both files; a process of its own, so that their making is not measured."""
    work = MirrorWork("orders", f"{folder}/mirror", ("id",), COLUMNS, ())
    Path(work.folder).mkdir()
    file = RowFile(work.folder, work.key_columns)
    file.add(rows_of(one))
    file.finish()
    Path(work.folder, file.name).rename(Path(work.folder, "rows.parquet"))
    pq.write_table(changes_of(one), f"{folder}/changes.parquet", compression="zstd")


def folded(one: Mirror, folder: str) -> tuple[int, int, float, str]:
    """Fold it; the file's bytes, the bytes that the process grew by, CPU-seconds, and why it was refused."""
    lane = LaneWork("s", TABLE, 7, 7, images=not one.partial)
    size = Path(folder, "mirror", "rows.parquet").stat().st_size
    work = MirrorWork(
        "orders", f"{folder}/mirror", ("id",), COLUMNS, (lane,), (("rows.parquet", None),), size, one.changes
    )
    before, began = _peak(), time.process_time()
    made = arrow_files.make(work, arrow_files.read([f"{folder}/changes.parquet"], [lane]))
    assert made.refused or made.counts["updated"] == one.changes, made
    return size, _peak() - before, time.process_time() - began, made.refused


def _peak() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def main() -> int:
    """Measure each mirror."""
    fresh = get_context("spawn")
    for one in MIRRORS:
        if not set(sys.argv[1:]) <= {one.name}:
            continue
        with tempfile.TemporaryDirectory(prefix="memory-") as folder:
            for call in (written, folded):
                with fresh.Pool(1) as pool:
                    found = pool.apply(call, (one, folder))
        size, grown, seconds, refused = found
        print(
            f"{one.name}: {size / MIB:.0f} MiB, {one.rows:,} rows, {one.changes:,} changes: {grown / MIB:,.0f} MiB, "
            f"{seconds:.1f} CPU-s{f'; refused: {refused}' if refused else ''}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
