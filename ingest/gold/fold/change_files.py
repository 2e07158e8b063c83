"""The files of ``changes`` that a fold reads: those of silver, or copies of them where only Spark reads silver's."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.gold.fold.arrow_files import columns_of, no_changes
from ingest.gold.fold.arrow_work import LaneWork
from ingest.tables.schemas import CHANGES

if TYPE_CHECKING:
    from ingest.spark.tasks import Work
    from ingest.tables.lake import Lake


@dataclass(frozen=True, slots=True)
class ChangeFiles:
    """Finds the files that may contain what the folds of some lanes read.

    Attributes:
        lake: the lake.
        spool: a folder of this machine for copies.
    """

    lake: Lake
    spool: str

    def of(self, lanes: Sequence[LaneWork]) -> list[str]:
        """The files, by their whole paths."""
        if not self.lake.is_local:
            return self._copied(lanes)
        folder = self.lake.path(CHANGES.name)
        first = min(lane.from_batch for lane in lanes)
        late = min((lane.late_from for lane in lanes if lane.late_from), default="")
        paths = []
        for file in self.lake.snapshot(CHANGES.name).files:
            asked = file.may_hold("batch", first) or (late and file.may_hold("order_key", late))
            if file.partition["kind"] == "change" and asked:
                if file.deleted:
                    return self._copied(lanes)
                paths.append(f"{folder}/{file.place}")
        return paths

    def rows(self, work: Work[Any]) -> Iterator[dict[str, Any]]:
        """What work on these files reports, row by row; work on copies is this process's, which alone reads them."""
        if not any(Path(self.spool).iterdir()):
            return self.lake.runner.rows(work)
        run = work.run if work.pool is None else partial(work.run, across=work.pool.map)
        return (row for page in run(work.items) for row in page.to_pylist())

    def _copied(self, lanes: Sequence[LaneWork]) -> list[str]:
        """One file with the changes of some lanes, which Spark has read page by page."""
        from pyspark.sql import functions as F

        names = columns_of(lanes)
        asked = F.col("batch") >= min(lane.from_batch for lane in lanes)
        if places := [lane.late_from for lane in lanes if lane.late_from]:
            asked |= F.col("order_key") >= min(places)
        tables = reduce(
            or_, ((F.col("source") == lane.source) & (F.col("table") == lane.table.table) for lane in lanes)
        )
        rows = self.lake.read(CHANGES.name).where((F.col("kind") == "change") & asked & tables)
        pages = rows.select(*names).mapInArrow(_as_bytes, "page BINARY")
        path, schema = f"{self.spool}/{uuid.uuid4()}.parquet", no_changes(lanes).schema
        with pq.ParquetWriter(path, schema, compression="zstd") as writer:
            for row in pages.toLocalIterator():
                writer.write_table(pa.ipc.open_stream(bytes(row["page"])).read_all().cast(schema))
        return [path]


@contextmanager
def change_files(lake: Lake) -> Iterator[ChangeFiles]:
    """`ChangeFiles` of a lake; the copies are deleted afterwards."""
    spool = tempfile.mkdtemp(prefix="ingest-changes-")
    try:
        yield ChangeFiles(lake, spool)
    finally:
        shutil.rmtree(spool, ignore_errors=True)


def _as_bytes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.RecordBatch.from_pydict({"page": [out.getvalue().to_pybytes()]})
