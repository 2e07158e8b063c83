"""What a MERGE writes: not more than its batch brings, and by the way that costs least."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.config.model import TableRule
from ingest.gold.apply.apply_merge import _VECTORS
from ingest.spark.settings import APPLIED
from ingest.tables import commits, log
from tests.gold.depot import Depot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REWRITTEN = "ingest.gold.apply.apply_merge.REWRITTEN"
ROWS = range(1, 9)


@pytest.mark.one_of(2)
@pytest.mark.spark
@pytest.mark.parametrize("again", [{"kind": "UPDATE", "at": 5}, {"kind": "INIT"}], ids=["late", "snapshot"])
def test_rows_sent_again_are_not_written_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: dict[str, Any]
) -> None:
    """A connector that starts over sends every row again; each would be one row written and one dead."""
    monkeypatch.setattr(REWRITTEN, 0)
    depot = filled(spark, tmp_path)
    for key in ROWS:
        depot.row(**again, id=str(key), n="1")
    assert ("done", "") == depot.run()
    assert [] == [action for action in newest(depot) if "add" in action]
    assert ("done", "") == depot.row("UPDATE", id="1", n="2").run()
    assert [2, 1, 1, 1, 1, 1, 1, 1] == [row["n"] for row in depot.rows()]


@pytest.mark.spark
def test_a_negative_zero_replaces_a_zero(spark: SparkSession, tmp_path: Path) -> None:
    """To SQL's ``=`` they are the same number, to the source they are not."""
    depot = empty(spark, tmp_path)
    for kind, number in (("INSERT", "0.0"), ("INIT", "-0.0")):
        cells = {"id": "1", "n": number}
        types = {"id": "int", "n": "double"}
        depot.say(isDdl=False, type=kind, data=[cells], mysqlType=types, old=None, pkNames=["id"], sql="")
        assert ("done", "") == depot.run()
        assert number == str(depot.rows()[0]["n"])


@pytest.mark.spark
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "vectors"])
def test_a_small_mirror_is_written_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """Deletion vectors are ten Spark jobs more; whole files for each single change would fill the disk."""
    depot = filled(spark, tmp_path)
    monkeypatch.setattr(REWRITTEN, 1 << 10 if whole else 100)
    for key in ROWS[::2]:
        depot.row("UPDATE", id=str(key), n="2")
    assert ("done", "") == depot.run()
    vectors = [
        action["add"]["deletionVector"]
        for action in newest(depot)
        if "deletionVector" in action.get("add", {})
    ]
    assert whole == (vectors == [])
    assert [2, 1] * 4 == [row["n"] for row in depot.rows()]


@pytest.mark.e2e
@pytest.mark.spark
def test_the_pipelines_own_setting_of_vectors_is_kept(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that reads the mirrors' changes by their files may want none of them rewritten."""
    monkeypatch.setattr(REWRITTEN, 1 << 10)
    depot = filled(spark, tmp_path)
    known = spark.conf.get(APPLIED)
    try:
        spark.conf.set(_VECTORS, "true")
        spark.conf.set(APPLIED, f"{known} {_VECTORS}")
        for key in ROWS[::2]:
            depot.row("UPDATE", id=str(key), n="2")
        assert ("done", "") == depot.run()
    finally:
        spark.conf.set(APPLIED, known)
        spark.conf.unset(_VECTORS)
    assert any("deletionVector" in action.get("add", {}) for action in newest(depot))


@pytest.mark.spark
@pytest.mark.e2e
def test_a_mirror_of_unknown_size_is_not_taken_for_small(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other writers leave no checksum file; after one of them a large mirror would be rewritten as a whole."""
    monkeypatch.setattr(REWRITTEN, 1 << 10)
    depot = filled(spark, tmp_path)
    for file in (tmp_path / "lake" / "mirrors" / "yard" / "depot" / "_delta_log").glob("*.crc"):
        file.unlink()
    path = depot.lake().path("mirrors/yard/depot")
    log._class(spark, "org.apache.spark.sql.delta.DeltaLog").clearCache()
    assert log.snapshot(spark, path).size is None
    monkeypatch.setattr(commits, "within_reach", lambda _path: False)  # as where only Hadoop reads the log
    assert ("done", "") == depot.row("UPDATE", id="1", n="2").row("UPDATE", id="2", n="2").run()
    assert any("deletionVector" in action.get("add", {}) for action in newest(depot))


def empty(spark: SparkSession, folder: Path) -> Depot:
    """A table of which nothing was said yet."""
    from ingest.run import Warm

    return Depot(spark, folder, Warm(), TableRule("yard.*"), apply="merge")


def filled(spark: SparkSession, folder: Path) -> Depot:
    """A mirror of some rows, all of one batch and by Arrow, which takes a tenth of the time; from there on by Spark."""
    depot = empty(spark, folder)
    depot.number, depot.apply = 100, "auto"
    for key in ROWS:
        depot.row(id=str(key), n="1")
    assert ("done", "") == depot.run()
    depot.apply = "merge"
    return depot


def newest(depot: Depot) -> list[dict[str, Any]]:
    """The actions of the mirror's newest commit."""
    path = depot.lake().path("mirrors/yard/depot")
    return log.actions(depot.spark, path, log.snapshot(depot.spark, path).version)
