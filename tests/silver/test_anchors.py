"""The place of table events without a position: after the row before them, however tasks cut the messages."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ingest import formats
from ingest.change import Options
from ingest.config import Pipeline, Source
from ingest.order import order_of
from ingest.silver.anchors import Event, event_rows, rows_before, stream_of
from ingest.silver.lift import INPUT, Lifting, lift
from ingest.silver.split_messages import Spot
from ingest.tables.schemas import BRONZE

SECOND = 1718000042


def oms(op: str, counter: int | None, table: str = "t", second: int = SECOND) -> bytes:
    """A message of OMS Default."""
    meta = {
        "record_primary_key": "id" if counter else None,
        "dbType": "OB_MYSQL",
        "table_name": table,
        "db": "d",
        "storeDataSequence": None if counter is None else f"{second}{counter:05d}",
        "timestamp": str(second),
        "ddlType": "TRUNCATE_TABLE" if op == "DDL" else None,
    }
    post: dict[str, Any] = {"ddl": f"TRUNCATE TABLE {table}"} if op == "DDL" else {"id": counter}
    return json.dumps(
        {"allMetaData": meta, "recordType": op, "prevStruct": None, "postStruct": post}
    ).encode()


def shareplex(op: str, counter: int | None) -> bytes:
    """A message of OMS SharePlex."""
    meta = {"time": "2024-06-10T06:14:02", "op": op, "table": "d.t", "rowid": "d.t-", "seq": 0}
    meta["scn"] = "null" if counter is None else f"{SECOND}{counter:05d}"
    if counter is None:
        return json.dumps({"meta": meta, "data": {}, "sql": {"ddl": "truncate table d.t"}}).encode()
    return json.dumps({"meta": meta, "data": {"id": counter}}).encode()


def how(name: str = "oms-default", kind: str = "files") -> Lifting:
    """What a worker knows of one source."""
    source = Source("s", kind, name, Options(), path="/x")
    return Lifting(Pipeline("p", Path("/p.yaml"), "/lake", (source,), ()))


def pages(messages: list[tuple[int, int, int, bytes]], size: int, topic: str = "a") -> list[pa.RecordBatch]:
    """Bronze rows (batch, partition, offset, value) in Arrow batches of a size."""
    names = ("batch", "partition", "offset", "value")
    rows = [
        dict(zip(names, one, strict=True)) | {"source": "s", "topic": topic, "headers": []}
        for one in messages
    ]
    return [
        pa.RecordBatch.from_pylist(rows[at : at + size], schema=BRONZE.part(*INPUT))
        for at in range(0, len(rows), size)
    ]


def anchored(
    lifting: Lifting, messages: list[tuple[int, int, int, bytes]], size: int
) -> list[tuple[int, ...]]:
    """The sequences of all rows and events in the order of their order keys, as a run of silver gives them."""
    marked = {one.name: formats.load(one.format).ABOUT.event_marks for one in lifting.pipeline.sources}
    look = event_rows(lifting, marked)
    found = [row for page in look(iter(pages(messages, size))) for row in page.to_pylist()]
    events = [
        Event(
            stream_of(lifting.pipeline, row["source"], row["topic"], row["partition"]),
            Spot(row["source"], row["topic"], row["partition"], row["batch"], row["offset"]),
            row["second"],
        )
        for row in found
    ]
    anchors: dict[Spot, tuple[int, ...]] = {event.spot: () for event in events}
    best: dict[int, tuple[int, int, str]] = {}
    for page in rows_before(lifting, events)(iter(pages(messages, size))):
        for row in page.to_pylist():
            here = (row["batch"], row["offset"], row["sequence"])
            best[row["number"]] = max(best.get(row["number"], here), here)
    for number, (_, _, sequence) in best.items():
        anchors[events[number].spot] = tuple(json.loads(sequence))
    done = replace(lifting, anchors=anchors)
    rows = [row for page in lift(done)(iter(pages(messages, size))) for row in page.to_pylist()]
    keys = sorted((row["order_key"], row["op"]) for row in rows if row["kind"] == "change")
    return [(op, *order_of(key).sequence[1:]) for key, op in keys]


@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize(
    ("name", "row", "event"),
    [
        ("oms-default", lambda n: oms("INSERT", n), oms("DDL", None)),
        ("oms-default-extended", lambda n: oms("INSERT", n), oms("DDL", None)),
        ("oms-shareplex", lambda n: shareplex("ins", n), shareplex("ddl", None)),
    ],
)
def test_a_truncate_is_ordered_between_the_rows_around_it(
    name: str, row: Any, event: bytes, size: int
) -> None:
    """A job that empties and fills a table within one second left it empty."""
    messages = [(1, 0, 0, row(1)), (1, 0, 50, event), (1, 0, 90, row(7)), (2, 0, 120, row(8))]
    assert [("insert", 1), ("truncate", 1), ("insert", 7), ("insert", 8)] == anchored(
        how(name), messages, size
    )


def test_a_truncate_whose_second_no_row_before_has() -> None:
    """After every counter of its second it cleared all rows that came after it."""
    messages = [
        (1, 0, 0, oms("INSERT", 9, second=SECOND - 1)),
        (1, 0, 50, oms("DDL", None)),
        (1, 0, 90, oms("INSERT", 1)),
    ]
    assert [("insert", 9), ("truncate", 9), ("insert", 1)] == anchored(how(), messages, 2)


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("clock", [-9, 8 * 3600, -8 * 3600])
def test_the_clock_of_a_truncate_is_another_than_that_of_the_rows(clock: int, size: int) -> None:
    """A capture that lags, or a clock of another zone, spared rows from before a TRUNCATE or cleared eight hours after it."""
    messages = [
        (1, 0, 0, oms("INSERT", 1)),
        (1, 0, 20, oms("INSERT", 2)),
        (1, 0, 50, oms("DDL", None, second=SECOND + clock)),
        (1, 0, 90, oms("INSERT", 3, second=SECOND + 2)),
    ]
    assert [("insert", 1), ("insert", 2), ("truncate", 2), ("insert", 3)] == anchored(how(), messages, size)


def test_many_messages_without_a_row_before_a_truncate() -> None:
    """Heartbeats between a row and a TRUNCATE must not hide the row."""
    beats = [(1, 0, 10 + n, oms("HEARTBEAT", None)) for n in range(200)]
    messages = [
        (1, 0, 0, oms("INSERT", 1)),
        *beats,
        (1, 0, 900, oms("DDL", None)),
        (1, 0, 990, oms("INSERT", 7)),
    ]
    assert [("insert", 1), ("truncate", 1), ("insert", 7)] == anchored(how(), messages, 500)


def test_a_row_of_an_earlier_batch_is_the_row_before() -> None:
    """A cut between two batches must not move a TRUNCATE."""
    messages = [(1, 0, 0, oms("INSERT", 1)), (2, 3, 50, oms("DDL", None)), (2, 3, 90, oms("INSERT", 7))]
    assert [("insert", 1), ("truncate", 1), ("insert", 7)] == anchored(how(), messages, 1)


def test_another_partition_says_nothing() -> None:
    """Kafka orders nothing across partitions: only the check of order can report such changes."""
    messages = [(1, 0, 0, oms("INSERT", 5)), (1, 1, 50, oms("DDL", None)), (1, 1, 90, oms("INSERT", 7))]
    assert [("truncate",), ("insert", 5), ("insert", 7)] == anchored(how(kind="kafka"), messages, 3)
