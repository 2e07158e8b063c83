"""Write bronze's messages as data files where they are read, and report the written files as rows.

Runs in Python workers, and for few messages in the driver; imports no Spark.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ingest.store.envelope import Seal
from ingest.tables.datafiles import Added, Files, Layout, fitted, written
from ingest.tables.schemas import BRONZE

_COLUMNS = ("kind", "source", "topic", "partition", "offset", "value")  # the kind is file or receipt
REPORT, _ARROW = BRONZE.part_ddl(*_COLUMNS), BRONZE.part(*_COLUMNS)
_ADDED = BRONZE.part("batch", "ingested_at", "day")
Batches = Iterator[pa.RecordBatch]
_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)


def storing(
    layout: Layout,
    batch: int,
    now: dt.datetime,
    *,
    source: str = "",
    read: Callable[[Batches], Batches] = lambda batches: batches,
    seal: Seal | None = None,
) -> Callable[[Batches], Batches]:
    """The function that ``mapInArrow`` runs: write rows of bronze to files, and report receipts and files.

    ``read`` yields the rows, whose source is ``source`` where they do not name it; ``now`` is when they are landed.
    """

    def run(batches: Batches) -> Batches:
        with Files(layout) as files:
            for page in read(batches):
                rows = page if not source else page.append_column("source", _all(source, page.num_rows))
                rows = rows if seal is None else seal.page(rows, batch)
                is_message = pc.equal(rows.column("kind"), "message")
                receipts = rows
                if is_message.true_count:
                    messages = rows if is_message.true_count == rows.num_rows else rows.filter(is_message)
                    files.add(landed(messages, batch, now))
                    receipts = rows.filter(pc.invert(is_message))
                if receipts.num_rows:
                    yield _report(receipts)
            done = [added.to_json() for added in files.finish()]
        if done:
            kinds = _all("file", len(done))
            yield _report(pa.RecordBatch.from_arrays([kinds, pa.array(done, pa.binary())], ["kind", "value"]))

    return run


def written_receipts(
    layout: Layout, receipts: Sequence[Mapping[str, Any]], batch: int, now: dt.datetime
) -> list[Added]:
    """Write reported receipts as a file."""
    rows = fitted(pa.Table.from_pylist(list(receipts), schema=_ARROW), _ARROW)
    return written(layout, landed(rows, batch, now))


def landed(rows: _Rows, batch: int, now: dt.datetime) -> _Rows:
    """Rows of bronze with the columns that say when they are landed."""
    for name, value in {"batch": batch, "ingested_at": now, "day": now.date()}.items():
        column = pa.repeat(pa.scalar(value, _ADDED.field(name).type), rows.num_rows)
        rows = rows.append_column(name, column)
    return rows


def _all(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)


def _report(rows: pa.RecordBatch) -> pa.RecordBatch:
    [batch] = fitted(rows, _ARROW).combine_chunks().to_batches()
    return batch
