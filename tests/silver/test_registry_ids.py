"""The numbers in messages' frames: what the registry is asked for before a batch is decoded."""

from __future__ import annotations

import pyarrow as pa

from ingest.silver.messages import WANTED
from ingest.silver.registry import framed


def test_ids_are_found_wherever_a_frame_may_stand() -> None:
    """A number not asked for would reject its messages; a source without a registry has no frames."""
    one, other, third = (b"\x00" + number.to_bytes(4, "big") for number in (7, 1 << 31, 9))
    rows = [
        {"source": "s", "value": one + b"datum", "key": other, "headers": [{"key": "h", "value": third}]},
        {"source": "s", "value": one, "key": None, "headers": None},
        {"source": "s", "value": None, "key": b"\x00\x00", "headers": []},
        {
            "source": "s",
            "value": b'{"id": 1}',
            "key": b"\x01\x00\x00\x00\x05",
            "headers": [{"key": "h", "value": None}],
        },
        {"source": "plain", "value": third, "key": None, "headers": None},
    ]
    pages = [pa.RecordBatch.from_pylist([row], schema=WANTED) for row in rows]
    [told] = framed(["s"])(iter(pages))
    found = {(row["source"], int.from_bytes(row["id"], "big")): row["count"] for row in told.to_pylist()}
    assert {("s", 7): 2, ("s", 1 << 31): 1, ("s", 9): 1} == found
    [none] = framed(["s"])(iter([]))
    assert 0 == none.num_rows
