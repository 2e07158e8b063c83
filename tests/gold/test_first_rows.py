"""A mirror's first rows make its table; whatever goes wrong with them must not stand in its way afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ingest.config.model import TableRule
from tests.gold.depot import Depot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.e2e]


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


def test_a_truncate_comes_before_any_row(spark: SparkSession, tmp_path: Path) -> None:
    """A table made of its key alone, before anybody has said the key's type, would hold texts for ever."""
    from ingest.run import Warm

    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.*", keys=("id",)))
    truncate = {"isDdl": True, "type": "TRUNCATE", "sql": "TRUNCATE TABLE depot"}
    assert ("skipped", "") == depot.say(50, **truncate).run()
    assert ("done", "") == depot.row(at=40, id="1", n="1").row(at=60, id="2", n="2").run()
    assert [(2, 2)] == [(row["id"], row["n"]) for row in depot.rows()]
    assert ("done", "") == depot.row(at=45, id="3", n="3").row(at=61, id="4", n="4").run()
    assert [(2, 2), (4, 4)] == [(row["id"], row["n"]) for row in depot.rows()]
