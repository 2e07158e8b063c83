"""Whole runs over sealed bronze, by both writers in one lake: mirrors, checks, replay and rebuild are as without the seal."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.ledgers import sealing
from ingest.ledgers.rejects import dismiss, listed
from ingest.run import run
from ingest.store.envelope import SealError
from ingest.tables.lake import Lake
from tests.lake.sealed import SEALED, Sealed, held
from tests.lakes import FORMAT, touch, write_by_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]
PLEX = "  - {name: plex, kind: files, path: ./plex-*.jsonl, format: oms-shareplex, settle: 1s}\n"
STAGES = ("bronze", "silver", "gold")
TABLES = "tables:\n  - {match: depot.job, keys: [id], columns: {id: int64}}\n"


def plex(op: str, number: int | None, part: str = "0/0") -> str:
    """A change of one second; a statement has no position in it."""
    meta = {
        "time": "2024-06-10T06:14:02", "op": op, "table": "depot.job", "posttime": "2024-06-10T06:14:02", "size": 0,
        "idx": part, "rowid": f"job-{number}", "trans": None if number is None else "t", "seq": 0,
        "scn": "null" if number is None else str(171800004200000 if part != "0/0" else 171800004200000 + number),
    }  # fmt: skip
    row = {"meta": meta, "data": {} if number is None else {"id": number}}
    return (
        json.dumps(row if number is not None else row | {"sql": {"ddl": "truncate table depot.job"}}) + "\n"
    )


def test_runs_by_both_writers(
    spark: SparkSession, tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A TRUNCATE finds its place among sealed rows of an earlier batch, and a transaction that lacks a part is found."""
    from ingest.silver import replay
    from ingest.silver.decode import lifted, lifting
    from ingest.silver.rebuild import rebuild

    depot = Sealed(tmp_path, PLEX + TABLES + SEALED)
    right = depot.file.read_text("utf-8")

    def send(*lines: str) -> None:
        file = tmp_path / "plex-1.jsonl"
        with file.open("a", encoding="utf-8") as more:
            more.writelines(lines)
        touch(file, 3600 - depot.slices)

    def failures() -> list[str]:
        result = run(spark, depot.pipeline)
        return result.failures + result.warnings

    send(plex("ins", 1, "1/3"), plex("ins", 4, "2/3"))
    depot.file.write_text(right.replace(FORMAT, "oms-shareplex", 1), "utf-8")  # reads none of the feed
    depot.grow()
    run(spark, depot.pipeline)
    clock(1)
    depot.file.write_text(right, "utf-8")
    writes = Lake.writes
    write_by_spark(monkeypatch)
    send(plex("ddl", None), plex("ins", 7), plex("ins", 8))
    depot.grow(broken=False)
    reported = " ".join(failures())
    assert "1 transaction lacks changes: t has 2 of 3" in reported
    lake = Lake(spark, depot.pipeline)
    appointed = replay.appoint(lake, lifting, lifted)
    assert (3, 5, 1) == appointed
    monkeypatch.setattr(Lake, "writes", writes)
    assert [] == run(spark, depot.pipeline, STAGES).failures
    assert depot.expected() == depot.found(spark)
    assert [7, 8] == sorted(row["id"] for row in lake.read("mirrors/depot/job").collect())

    kinds = lake.ask(
        "SELECT DISTINCT batch, left(hex(value), 8) AS head FROM {bronze.message} ORDER BY batch"
    )
    assert [(1, "49534231"), (2, "49534231")] == [(row["batch"], row["head"]) for row in kinds]
    bytes_of = held(tmp_path / "lake" / "bronze")
    assert not [
        one for one in (b"new 0", b"soon gone", b"broken", b"truncate table", b"rowid") if one in bytes_of
    ]

    lake = Lake(spark, depot.pipeline)
    compared = rebuild(lake, 2, dry_run=True)
    assert compared.none, compared.differences
    depot.key("two")
    with pytest.raises(
        SealError, match=r"2026-03-14, 2026-03-15 \(batch 1 to 2\) cannot be opened: another master key"
    ):
        rebuild(Lake(spark, depot.pipeline), 2, dry_run=True)
    depot.grow()
    reported = failures()
    assert ["nothing was read", "nothing was checked"] == [
        one.partition(",")[0] for one in reported if "master key" in one
    ]
    depot.key("one")
    failures()
    assert depot.expected() == depot.found(spark)

    dismiss(lake, [one for one in listed(lake, every=False) if one["batch"] == 1], "known")
    sealing.drop(Lake(spark, depot.pipeline), "2026-03-14", "asked for", "ann")
    with pytest.raises(
        SealError, match=r"2026-03-14 \(batch 1\) cannot be opened: the day's key was dropped by ann"
    ):
        rebuild(Lake(spark, depot.pipeline), 2, dry_run=True)
    assert rebuild(Lake(spark, depot.pipeline), 2, since=3, dry_run=True).none
    clock(2)
    depot.grow(broken=False)
    send(plex("ddl", None), plex("ins", 9))  # looks back over the dropped day
    failures()
    assert depot.expected() == depot.found(spark)
    assert [9] == [row["id"] for row in Lake(spark, depot.pipeline).read("mirrors/depot/job").collect()]
    assert dt.date(2026, 3, 16) in [
        row["day"] for row in lake.ask("SELECT DISTINCT day FROM {bronze.message}")
    ]
