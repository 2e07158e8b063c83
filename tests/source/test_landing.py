"""Files of rows that were read, beside a stream: landed, decoded and folded as any other message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ingest.lake import snapshots
from ingest.lake.snapshots import folder
from ingest.source.place import after, number_after
from tests.lakes import Depot, change, touch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def told(op: str, place: dict, rows: list | None = None) -> str:
    """One message, as a line."""
    frame = {"ingest-snapshot": 1, "op": op, "table": ["depot", None, "bins"], "keys": ["id"], "place": place}
    if rows is not None:
        frame |= {"types": {"id": "int64", "word": "string"}, "rows": rows}
    return json.dumps(frame) + "\n"


def test_rows_that_were_read_heal_a_gap(spark: SparkSession, tmp_path: Path) -> None:
    """A row that the stream lost stays wrong, a deleted one stays for ever, or a later change is undone."""
    from ingest.lake.lake import Lake
    from ingest.run import run

    depot = Depot(tmp_path)
    lines = [change("INSERT", "bins", serial, {"id": str(serial), "word": "old"}) for serial in range(1, 5)]
    depot.feed.write_text("".join(lines), "utf-8")
    touch(depot.feed)
    assert 0 == run(spark, depot.pipeline, ("bronze", "silver", "gold")).exit_code
    lake = Lake(spark, depot.pipeline)
    [high] = lake.read("books").selectExpr("max(order_high)").collect()[0]
    place = after(high, 1, number_after(high, 1))
    # what the stream lost: 1 deleted, 2 updated; what it still brings: 3 updated, 4 deleted and 5 inserted
    here = folder(depot.pipeline, "bins") / "depot.bins-1"
    here.mkdir(parents=True)
    read = [["2", "healed"], ["3", "read"], ["5", "read early"]]
    name = here / "chunk-1.ingest-snapshot.jsonl"
    name.write_text(told("read", place.of(0, 0), read) + told("end", place.end()), "utf-8")
    late = [
        change("UPDATE", "bins", 9, {"id": "3", "word": "streamed"}),
        change("DELETE", "bins", 10, {"id": "4", "word": "old"}),
        change("INSERT", "bins", 11, {"id": "5", "word": "streamed"}),
    ]
    depot.feed.write_text("".join([*lines, *late[:1]]), "utf-8")
    touch(depot.feed, 1800)
    result = run(spark, depot.pipeline, ("bronze", "silver", "gold"))
    assert [] == result.failures
    assert snapshots.source_of(depot.pipeline, depot.pipeline.sources[0]) is not None
    with depot.feed.open("a", encoding="utf-8") as file:
        file.writelines(late[1:])
    touch(depot.feed, 900)
    result = run(spark, depot.pipeline)
    assert [] == result.failures
    rows = lake.read("mirrors/depot/bins").selectExpr("id", "word").collect()
    assert {2: "healed", 3: "streamed", 5: "streamed"} == {row[0]: row[1] for row in rows}
