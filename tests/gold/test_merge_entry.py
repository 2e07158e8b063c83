"""How a mirror's history describes its batches: as Delta describes a MERGE, whichever way it went."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import duckdb
import pytest

from tests.gold.depot import Depot
from tests.gold.test_arrow import BUDGET, VECTORS, depot_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

ROWS = (
    "numSourceRows", "numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted", "numTargetRowsMatchedUpdated",
    "numTargetRowsMatchedDeleted", "numTargetRowsNotMatchedBySourceDeleted", "numTargetRowsNotMatchedBySourceUpdated",
)  # fmt: skip
VECTOR = tuple(f"numTargetDeletionVectors{what}" for what in ("Added", "Updated", "Removed"))


def filled(spark: SparkSession, folder: Path, budget: int, apply: str = "files") -> Depot:
    """A mirror after four batches: rows, changes of some, changes of others, and a truncate with one row after it."""
    depot = depot_of(spark, folder, budget=budget, engine="spark")
    depot.rule = replace(depot.rule, apply=apply)
    for key in range(1, 7):
        depot.row("INSERT", id=str(key), n="1")
    assert ("done", "") == depot.run()
    depot.row("UPDATE", old={"n": "1"}, id="1", n="2").row("UPDATE", old={"n": "1"}, id="2", n="3")
    depot.row("DELETE", id="3", n="1").row("DELETE", id="9", n="1").row("INSERT", id="7", n="1")
    assert ("done", "") == depot.run()
    assert ("done", "") == depot.row("DELETE", id="4", n="1").run()
    depot.say(isDdl=True, sql="TRUNCATE TABLE depot", type="TRUNCATE").row("INSERT", id="6", n="8")
    assert ("done", "") == depot.run()
    assert [{"id": 6, "n": 8}] == depot.rows()
    return depot


def history(depot: Depot) -> list[dict[str, Any]]:
    """The mirror's entries as `DESCRIBE HISTORY` shows them, the oldest first."""
    path = depot.folder / "lake/mirrors/yard/depot"
    found = depot.spark.sql(f"DESCRIBE HISTORY delta.`{path}`").sort("version").collect()
    return [row.asDict() for row in found]


def merges(depot: Depot) -> list[dict[str, Any]]:
    """The entries of merges."""
    return [one for one in history(depot) if one["operation"] == "MERGE"]


@pytest.fixture(scope="module")
def by_spark(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What Delta itself writes for the batches."""
    return merges(filled(spark, tmp_path_factory.mktemp("spark"), BUDGET, "merge"))


@pytest.fixture(scope="module")
def rewritten(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Depot:
    """The batches by files that are written again."""
    return filled(spark, tmp_path_factory.mktemp("rewritten"), BUDGET)


@pytest.fixture(scope="module")
def marked(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Depot:
    """The batches by deletion vectors."""
    return filled(spark, tmp_path_factory.mktemp("marked"), VECTORS)


@pytest.mark.parametrize("way", ["rewritten", "marked"])
def test_a_batch_reads_as_deltas_own_merge(
    spark: SparkSession, by_spark: list[dict[str, Any]], way: str, request: pytest.FixtureRequest
) -> None:
    """An auditor who looks for merges in a mirror's history would find writes of an unknown engine."""
    first, *later = history(request.getfixturevalue(way))
    assert ("CREATE TABLE AS SELECT", "6") == (first["operation"], first["operationMetrics"]["numOutputRows"])
    assert ["MERGE"] * 3 == [one["operation"] for one in later]
    for mine, deltas in zip(later, by_spark, strict=True):
        assert sorted(deltas["operationMetrics"]) == sorted(mine["operationMetrics"])
        assert [deltas["operationMetrics"][name] for name in ROWS] == [
            mine["operationMetrics"][name] for name in ROWS
        ]
        assert actions(deltas) == actions(mine)
        assert mine["engineInfo"].startswith("ingest/")
        assert f"Apache-Spark/{spark.version}" in mine["engineInfo"]
        assert mine["version"] - 1 == mine["readVersion"]
        assert '["(t.`id` = s.`id`)"]' == mine["operationParameters"]["predicate"]


def actions(entry: dict[str, Any]) -> dict[str, list[str]]:
    """What an entry says that its merge does to rows, by its kind of clause."""
    said = entry["operationParameters"]
    return {
        name: [one["actionType"] for one in json.loads(said[name])]
        for name in ("matchedPredicates", "notMatchedPredicates", "notMatchedBySourcePredicates")
    }


@pytest.mark.e2e
def test_files_and_vectors_are_counted(rewritten: Depot, marked: Depot) -> None:
    """Whoever watches a table's growth by its history would see files that are not there."""
    seen = [one["operationMetrics"] for one in merges(rewritten)]
    assert [("1", "1", "3"), ("1", "1", "5"), ("1", "1", "0")] == [files(one) for one in seen]
    seen = [one["operationMetrics"] for one in merges(marked)]
    assert [("1", "0", "0"), ("0", "0", "0")] == [files(one) for one in seen[:2]]
    assert [("1", "0", "0"), ("1", "1", "1")] == [tuple(one[name] for name in VECTOR) for one in seen[:2]]


def files(metrics: dict[str, str]) -> tuple[str, ...]:
    """Files added and removed, and rows that were copied."""
    names = "numTargetFilesAdded", "numTargetFilesRemoved", "numTargetRowsCopied"
    return tuple(metrics[name] for name in names)


def test_other_engines_read_the_history(rewritten: Depot) -> None:
    """A catalog that reads tables by delta-rs or the log by DuckDB would not see what Spark shows."""
    path = rewritten.folder / "lake/mirrors/yard/depot"
    expected = [(one["operation"], one["operationMetrics"]) for one in history(rewritten)]
    seen = sorted(deltalake.DeltaTable(path).history(), key=lambda one: one["version"])
    assert expected == [(one["operation"], one["operationMetrics"]) for one in seen]
    found = duckdb.sql(
        f"""SELECT info->>'operation', info->'operationMetrics'->>'numTargetRowsUpdated' FROM (
        SELECT unnest(regexp_split_to_array(trim(content, chr(10)), chr(10)))::JSON->'commitInfo' AS info, filename
        FROM read_text('{path}/_delta_log/*.json')) WHERE info IS NOT NULL ORDER BY filename"""
    ).fetchall()
    assert [(name, metrics.get("numTargetRowsUpdated")) for name, metrics in expected] == found


def test_tables_without_a_key_are_written(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing matches their rows, so a MERGE with a predicate over no column would be a lie."""
    from ingest.config.model import TableRule

    depot = depot_of(spark, tmp_path)
    depot.rule = TableRule("yard.*", no_key="full_row")
    for at in range(2):
        depot.say(
            isDdl=False,
            type="INSERT",
            data=[{"id": str(at)}],
            mysqlType={"id": "int"},
            old=None,
            pkNames=None,
            sql="",
        )
        assert ("done", "") == depot.run()
    assert ["CREATE TABLE AS SELECT", "WRITE"] == [one["operation"] for one in history(depot)]
    assert ["1", "2"] == [one["operationMetrics"]["numOutputRows"] for one in history(depot)]
