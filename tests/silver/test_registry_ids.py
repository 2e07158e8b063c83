"""The numbers in messages' frames: what the registry is asked for before a batch is decoded."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from ingest.config.model import Source
from ingest.errors import SetupError
from ingest.silver import registry
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


def test_a_slow_registry_ends_the_batch_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of ids, one by one and each within its own limit, would hold a run for days."""
    seconds = iter(range(0, 10_000, 100))
    asked: list[int] = []

    def fetch(_address: str, number: int) -> str:
        asked.append(number)
        return "{}"

    monkeypatch.setattr(registry, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    monkeypatch.setattr(registry, "schema_registry", SimpleNamespace(fetch=fetch))
    source = Source("s", "kafka", "debezium-avro", registry="http://registry")
    with pytest.raises(SetupError, match=r"takes more than 300 s .*messages wait in bronze"):
        registry._fetched(source, range(10_000))
    assert [0, 1, 2] == asked


def test_random_bytes_do_not_crowd_out_real_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any value that begins with a zero byte looks framed; the ids asked for are those that occur most."""
    monkeypatch.setattr(registry, "_MOST", 2)
    frames = [7, 9, 7, 1234567, 9, 7654321, 7]
    rows = [
        {"source": "s", "value": b"\x00" + one.to_bytes(4, "big"), "key": None, "headers": None}
        for one in frames
    ]
    [told] = framed(["s"])(iter([pa.RecordBatch.from_pylist(rows, schema=WANTED)]))
    assert {7, 9} == {int.from_bytes(row["id"], "big") for row in told.to_pylist()}
