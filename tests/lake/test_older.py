"""A lake made by an older version, whose tables lack a column."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ingest.config.model import TableRule
from tests.gold.depot import Depot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_missing_column_is_added(spark: SparkSession, tmp_path: Path) -> None:
    """An upgrade that has to begin with an empty lake costs every table's history."""
    from ingest.gold.work import open_books
    from ingest.run import Warm

    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.depot"))
    depot.row(id="1", n="1").run()
    lake = depot.lake()
    older = lake.read("books").drop("servers").write.format("delta").mode("overwrite")
    older.option("overwriteSchema", "true").save(lake.path("books"))

    assert [{}] == [line.servers for line in open_books(depot.lake(), 0, 1).lines]
    assert ("done", "") == depot.row("UPDATE", {"n": "1"}, id="1", n="2").run()
    assert "servers" in depot.lake().read("books").columns
    assert [(1, 2)] == [(row["id"], row["n"]) for row in depot.rows()]
