"""Mirrors whose columns the pipeline file chooses: what a changed rule does to rows that stand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.change import TableId
from ingest.config.model import TableRule
from ingest.lake.mirrors import Mirror, grown
from tests.gold.depot import Depot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = TableId("yard", None, "depot")
SEEN = {"id": "int64", "a": "string", "b": "int32", "note": "string"}
SHAPED: dict[str, Any] = {
    "without": ("note",),
    "names": {"a": "b", "b": "a"},
    "places": {"note": "x.yaml:9:7", "a": "x.yaml:10:7", "b": "x.yaml:11:7"},
}


def columns(mirror: Mirror) -> list[tuple[str, str]]:
    """Each column's name at the source and in Delta."""
    return [(one.name, one.column) for one in mirror.columns]


def test_columns_are_left_out_and_renamed() -> None:
    """Two columns that exchange their names must not take a made-up name each."""
    mirror = grown(None, TABLE, TableRule(**SHAPED), ("id",), SEEN)
    assert [("id", "id"), ("a", "b"), ("b", "a")] == columns(mirror)
    assert columns(mirror) == columns(Mirror.from_value(mirror.path, mirror.to_value()))
    assert TableRule(**SHAPED).shape == Mirror.from_value(mirror.path, mirror.to_value()).shape


def test_other_rules_keep_the_types_that_were_decided() -> None:
    """A column that was widened once would come back as narrow as its newest message."""
    before = grown(None, TABLE, TableRule(), ("id",), {**SEEN, "b": "int64"})
    mirror = grown(before, TABLE, TableRule(**SHAPED), ("id",), SEEN)
    assert [("id", "id"), ("a", "b"), ("b", "a")] == columns(mirror)
    assert "int64" == mirror.columns[2].type
    assert [one.name for one in before.columns] == [
        one.name for one in grown(mirror, TABLE, TableRule(), ("id",), SEEN).columns
    ]


def test_a_pattern_spares_the_key_and_the_shard() -> None:
    """Without them rows cannot be told apart."""
    rule = TableRule(without=("*",), include=("b",), shard_column="shard")
    mirror = grown(None, TABLE, rule, ("id", "shard"), {**SEEN, "shard": "string"})
    assert ["id", "shard", "b"] == [one.name for one in mirror.columns]


@pytest.mark.spark
def test_a_changed_rule_folds_the_mirror_again(spark: SparkSession, tmp_path: Path) -> None:
    """Rows from before and from after a new rule must not stand in one table."""
    from ingest.run import Warm

    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.*"))
    for number in ("1", "2"):
        depot.row(id=number, a="5", b="6", note="7")
    assert ("done", "") == depot.run(checked=True)
    plain = [{"id": number, "a": 5, "b": 6, "note": 7} for number in (1, 2)]
    assert plain == depot.rows()

    depot.rule, depot.warm = replace(depot.rule, **SHAPED), Warm()
    assert ("done", "") == depot.run(checked=True), "nothing new has come, and the rule is another"
    assert [{"id": number, "b": 5, "a": 6} for number in (1, 2)] == depot.rows()
    assert ("idle", "") == depot.run()
    depot.row("UPDATE", {"b": "6"}, id="2", a="5", b="8", note="9").row(
        "DELETE", id="1", a="5", b="6", note="7"
    )
    assert ("done", "") == depot.run(checked=True)
    assert [{"id": 2, "b": 5, "a": 8}] == depot.rows()

    depot.rule, depot.warm = replace(depot.rule, without=(), names={}), Warm()
    depot.row(id="3", a="1", b="2", note="3")
    assert ("done", "") == depot.run(checked=True)
    again = [{"id": 2, "a": 5, "b": 8, "note": 9}, {"id": 3, "a": 1, "b": 2, "note": 3}]
    assert again == depot.rows()
    assert [] == [
        (row["check"], row["detail"])
        for row in depot.lake().read("checks").where("state IN ('fail', 'error')").collect()
    ]
