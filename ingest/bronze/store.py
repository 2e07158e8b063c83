"""Write bronze's messages as data files where they are read, and report the written files as rows.

Runs in Python workers, and for few messages in the driver; imports no Spark.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ingest.lake.datafiles import Added, Files, Layout, fitted, written
from ingest.lake.envelope import Seal

REPORT = "kind STRING, source STRING, topic STRING, `partition` INT, `offset` BIGINT, value BINARY"
_ARROW = pa.schema(
    [
        ("kind", pa.string()),  # file, or receipt
        ("source", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("value", pa.binary()),
    ]
)
Batches = Iterator[pa.RecordBatch]


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

    Args:
        layout: where bronze lies.
        batch: its number.
        now: when it is landed.
        source: the source, where the rows do not name it.
        read: yields the rows.
        seal: encrypts the messages, if they are to be.
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
                    files.add(_landed(messages, batch, now))
                    receipts = rows.filter(pc.invert(is_message))
                if receipts.num_rows:
                    yield _report(receipts)
            done = [one.to_json() for one in files.finish()]
        if done:
            kinds = _all("file", len(done))
            yield _report(pa.RecordBatch.from_arrays([kinds, pa.array(done, pa.binary())], ["kind", "value"]))

    return run


def written_receipts(
    layout: Layout, receipts: Sequence[Mapping[str, Any]], batch: int, now: dt.datetime
) -> list[Added]:
    """Write reported receipts as a file."""
    rows = fitted(pa.Table.from_pylist(list(receipts), schema=_ARROW), _ARROW)
    return written(layout, _landed(rows, batch, now))


def _landed(rows: pa.RecordBatch | pa.Table, batch: int, now: dt.datetime) -> pa.RecordBatch | pa.Table:
    added = {
        "batch": pa.scalar(batch, pa.int64()),
        "ingested_at": pa.scalar(now, pa.timestamp("us", tz="UTC")),
        "day": pa.scalar(now.date(), pa.date32()),
    }
    for name, value in added.items():
        rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
    return rows


def _all(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)


def _report(rows: pa.RecordBatch) -> pa.RecordBatch:
    [found] = fitted(rows, _ARROW).combine_chunks().to_batches()
    return found
