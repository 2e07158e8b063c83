"""What a reading task counts: every message once, in the partition that it came from."""

from __future__ import annotations

import datetime as dt
import json

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.bronze.kafka import _ARROW, _count, _counting
from ingest.bronze.offsets import Place
from ingest.bronze.store import storing
from ingest.tables.datafiles import Added, Layout
from ingest.tables.schemas import BRONZE

PLACES = st.sampled_from([Place("soil", 0), Place("soil", 1), Place("seed", 0)])


def batch(rows):
    """Messages at these places and offsets, as Spark hands them over."""
    columns = (
        [place.topic for place, _ in rows],
        [place.partition for place, _ in rows],
        [at for _, at in rows],
    )
    names = ("topic", "partition", "offset")
    arrays = [pa.array(one, _ARROW.field(name).type) for one, name in zip(columns, names, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, list(names))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.tuples(PLACES, st.integers(0, 99)), max_size=6), max_size=6))
def test_counts_are_those_of_the_rows(parts):
    """A receipt that counts wrongly makes the books of its batch lie."""
    seen = {}
    for rows in parts:
        _count(batch(rows), seen)
    expected = {}
    for place, at in (row for rows in parts for row in rows):
        first, last, count = expected.get(place, (at, at, 0))
        expected[place] = (min(first, at), max(last, at), count + 1)
    assert expected == {place: tuple(found) for place, found in seen.items()}


def test_a_task_writes_messages_and_reports_receipts(tmp_path):
    """Messages into files, the count of each partition into the report; nothing is committed."""
    now = dt.datetime(2024, 5, 1, 23, 30, tzinfo=dt.UTC)
    layout = Layout(
        str(tmp_path), BRONZE.arrow, BRONZE.partition_by, ("batch", "offset"), ("source", "topic")
    )
    soil, seed = Place("soil", 1), Place("seed", 0)
    headers = [[{"key": "h", "value": b"\x00"}], None, []]
    pages = []
    for rows in ([(soil, 3), (soil, 4), (seed, 9)], [(soil, 7)]):
        page = batch(rows)
        for name in ("timestamp", "key", "value", "headers"):
            kind = _ARROW.field(name).type
            values = {"value": [f"{at}".encode() for _, at in rows], "headers": headers[: len(rows)]}
            page = page.append_column(name, pa.array(values.get(name, [None] * len(rows)), kind))
        pages.append(page)
    store = storing(
        layout, 17, now, source="field", read=_counting("cluster", {"soil": "id-1", "seed": "id-2"})
    )
    written = [row for page in store(iter(pages)) for row in page.to_pylist()]
    [file] = [Added.from_json(row["value"]) for row in written if row["kind"] == "file"]
    assert {"kind": "message", "day": "2024-05-01"} == file.partition
    receipts = [
        (row["source"], row["topic"], json.loads(row["value"])) for row in written if row["kind"] == "receipt"
    ]
    assert [("field", "seed", 1), ("field", "soil", 3)] == sorted(
        (*one, receipt["count"]) for *one, receipt in receipts
    )
    found = pq.read_table(tmp_path / file.path, partitioning=None).to_pylist()
    assert [3, 4, 9, 7] == [row["offset"] for row in found]
    assert [(17, "field", now)] * 4 == [(row["batch"], row["source"], row["ingested_at"]) for row in found]
    assert [b"3", b"4", b"9", b"7"] == [row["value"] for row in found]
    assert [headers[0], None, [], headers[0]] == [row["headers"] for row in found]
