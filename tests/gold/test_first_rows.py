"""A mirror's first rows make its table; whatever goes wrong with them must not hinder it afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.config.model import TableRule
from tests.gold.depot import Depot
from tests.shops import Shops

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("policy", ["lenient", "evolve"])
def test_statements_have_a_batch_of_their_own_before_any_row(policy: Any, tmp_path: Path) -> None:
    """Rows whose key a statement of their batch changes were lost: they counted as rows of the mirror already."""
    shops = Shops(tmp_path, TableRule("shop_1.*", on_schema_change=policy), dialect="canal")
    shops.stages += ("quality",)
    shops.ddl("ALTER TABLE item COMMENT 'x'").run()
    shops.say(1, "INSERT", 1, "a").say(1, "INSERT", 2, "b").ddl("ALTER TABLE item RENAME COLUMN id TO no")
    assert ("done", "") == shops.run()
    found = shops.lake.ask_mirror("mirrors/shop_1/item", "SELECT no, text FROM {mirror} ORDER BY no")
    assert [(1, "a"), (2, "b")] == [tuple(row.values()) for row in found]


def test_a_column_renamed_among_the_first_rows_keeps_its_type(tmp_path: Path) -> None:
    """Rows that follow in the next batch show its type too late: it had become a text."""
    shops = Shops(tmp_path, TableRule("shop_1.*"))
    shops.say(1, "INSERT", 1, "a", no="5")
    shops.lines[-1] = shops.lines[-1].replace('"no": "varchar"', '"no": "int"')
    assert ("done", "") == shops.ddl("ALTER TABLE item RENAME COLUMN no TO n").run()
    assert [{"n": 5}] == shops.lake.ask_mirror("mirrors/shop_1/item", "SELECT n FROM {mirror}")


def test_a_late_row_comes_after_a_batch_of_statements(tmp_path: Path) -> None:
    """The statement changes the row although its batch was folded before any row of the table."""
    shops = Shops(tmp_path, TableRule("shop_1.*"))
    shops.ddl("ALTER TABLE item ADD COLUMN n INT DEFAULT 7", at=20).run()
    assert ("done", "") == shops.say(1, "INSERT", 1, "a", at=10).run()
    assert [{"n": 7}] == shops.lake.ask_mirror("mirrors/shop_1/item", "SELECT n FROM {mirror}")


@pytest.mark.spark
@pytest.mark.e2e
def test_what_does_not_fit_comes_first(spark: SparkSession, tmp_path: Path) -> None:
    """A first batch with a bad cell, or files that a killed write left, would keep the mirror away for ever."""
    from ingest.run import Warm

    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.*"))
    left = tmp_path / "lake" / "mirrors" / "yard" / "depot" / "part-00000-killed.parquet"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half of a file")
    assert ("done", "") == depot.row(id="1", n="1").row(id="2", n="A101").run()
    assert [(1, 1), (2, None)] == [(row["id"], row["n"]) for row in depot.rows()]
    assert ["cell"] == [row["kind"] for row in depot.lake().read("rejects").collect()]


@pytest.mark.spark
@pytest.mark.e2e
def test_a_truncate_comes_before_any_row(spark: SparkSession, tmp_path: Path) -> None:
    """A table made of its key alone, before a statement or rule gives the key's type, would hold texts for ever."""
    from ingest.run import Warm

    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.*", keys=("id",)))
    truncate = {"isDdl": True, "type": "TRUNCATE", "sql": "TRUNCATE TABLE depot"}
    assert ("skipped", "") == depot.say(50, **truncate).run()
    assert ("done", "") == depot.row(at=40, id="1", n="1").row(at=60, id="2", n="2").run()
    assert [(2, 2)] == [(row["id"], row["n"]) for row in depot.rows()]
    assert ("done", "") == depot.row(at=45, id="3", n="3").row(at=61, id="4", n="4").run()
    assert [(2, 2), (4, 4)] == [(row["id"], row["n"]) for row in depot.rows()]
