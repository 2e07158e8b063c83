"""Land the rows of a renamed table under its new name, as messages that this product has written itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice

import pyarrow as pa

from ingest.bronze.land import STAGE
from ingest.bronze.positions import CARRIED
from ingest.bronze.store import landed, storing, written_receipts
from ingest.errors import IngestError
from ingest.ledgers import sealing
from ingest.tables.datafiles import Added
from ingest.tables.lake import Lake
from ingest.tables.schemas import BRONZE

_AT_ONCE = 64  # messages, of a megabyte at most
_COLUMNS = ("kind", "source", "topic", "partition", "offset", "value", "headers")
_ARROW = BRONZE.part(*_COLUMNS)


def land(lake: Lake, batch: int, source: str, topic: str, messages: Iterable[bytes]) -> None:
    """Commit messages of a source as the next batch; their receipt says how many they are.

    Raises:
        IngestError: another run has landed that batch meanwhile.
        SealError: the master key that seals messages is not there.
    """
    now = lake.now()
    seal = sealing.begin(lake, batch, now.date())
    pages = _pages(source, topic, messages)
    if lake.writes(BRONZE):
        layout = lake.layout(BRONZE)
        report = [row for page in storing(layout, batch, now, seal=seal)(pages) for row in page.to_pylist()]
        files = [Added.from_json(row["value"]) for row in report if row["kind"] == "file"]
        files += written_receipts(layout, [row for row in report if row["kind"] == "receipt"], batch, now)
        done = lake.append(files, BRONZE, STAGE, batch)
    else:
        sealed = pages if seal is None else (seal.page(page, batch, source) for page in pages)
        rows = landed(pa.Table.from_batches(list(sealed), _ARROW), batch, now)
        done = lake.append(rows, BRONZE, STAGE, batch)
    if not done:
        raise IngestError(f"Another run landed batch {batch} at the same time: run again.")


def _pages(source: str, topic: str, messages: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    offset, left = 0, iter(messages)
    while values := list(islice(left, _AT_ONCE)):
        yield _page("message", source, topic, offset, values)
        offset += len(values)
    yield _page("receipt", source, topic, 0, [json.dumps({CARRIED: topic, "count": offset}).encode()])


def _page(kind: str, source: str, topic: str, offset: int, values: list[bytes]) -> pa.RecordBatch:
    count = len(values)
    columns = {
        "kind": [kind] * count,
        "source": [source] * count,
        "topic": [topic] * count,
        "partition": [0] * count,
        "offset": range(offset, offset + count),
        "value": values,
        "headers": [None] * count,
    }
    arrays = [pa.array(columns[column.name], column.type) for column in _ARROW]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
