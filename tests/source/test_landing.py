"""Files of rows that were read, beside a stream: landed, decoded and folded as any other message."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from ingest.lake.snapshots import folder
from ingest.source.place import after, number_after
from tests.lakes import Depot, change, touch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def told(op: str, place: dict, rows: list | None = None) -> str:
    """One message, as a line."""
    frame = {"ingest-snapshot": 1, "op": op, "table": ["depot", None, "bins"], "keys": ["id"], "place": place}
    if rows is not None:
        frame |= {"types": {"id": "int64", "word": "string"}, "rows": rows}
    return json.dumps(frame) + "\n"


def test_files_of_rows_are_read_beside_the_sources_own(tmp_path: Path) -> None:
    """The source's own file would be taken for one that vanished from the snapshots, or the rows never be read."""
    from ingest.bronze import files, land
    from ingest.bronze.receipts import FileState

    depot = Depot(tmp_path)
    depot.grow()
    pipeline = depot.pipeline
    [source] = pipeline.sources
    lake = SimpleNamespace(pipeline=pipeline)
    assert [source] == land._of_files(lake, source)  # type: ignore[arg-type]
    here = folder(pipeline, "bins") / "depot.bins-1"
    here.mkdir(parents=True)
    (here / "plan.json").write_text("{}", "utf-8")
    (here / ".chunk-2.part").write_text("half", "utf-8")
    (here / "chunk-1.ingest-snapshot.jsonl").write_text("{}\n", "utf-8")
    own, read = land._of_files(lake, source)  # type: ignore[arg-type]
    assert (own, read.name, read.kind) == (source, "bins", "files")
    half_read = land.Positions(files={"bins": {str(depot.feed): FileState(position=1, size=9)}})
    plan = files.plan(read, 0, land._known(half_read, read), 2)
    assert [str(here / "chunk-1.ingest-snapshot.jsonl")] == [one.file for one in plan.ranges]
    assert () == plan.alarms
    assert [str(depot.feed)] == list(land._known(half_read, own))


@pytest.mark.spark
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
    depot.feed.write_text("".join([*lines, *late]), "utf-8")
    touch(depot.feed, 1800)
    result = run(spark, depot.pipeline, ("bronze", "silver", "gold"))
    assert [] == result.failures
    rows = lake.read("mirrors/depot/bins").selectExpr("id", "word").collect()
    assert {2: "healed", 3: "streamed", 5: "streamed"} == {row[0]: row[1] for row in rows}
