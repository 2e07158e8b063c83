"""What a reading task counts: every message once, in the partition that it came from."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.bronze.kafka import _ARROW, _count
from ingest.bronze.offsets import Place

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
