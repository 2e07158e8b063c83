"""The source's comments on its columns are in the mirror's table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ingest.config.model import TableRule
from tests.gold.depot import Depot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.e2e]


def test_comments_of_the_source(spark: SparkSession, tmp_path: Path) -> None:
    """Without them, an analyst cannot see what a column means, nor what it was at the source."""
    from ingest.run import Warm

    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.*"))

    def comments() -> dict[str, str]:
        schema = depot.lake().read("mirrors/yard/depot").schema
        return {one.name: one.metadata.get("comment", "") for one in schema.fields}

    made = "CREATE TABLE depot (id BIGINT PRIMARY KEY, n INT COMMENT 'places that''re free')"
    assert ("done", "") == depot.ddl(made).row(id="1", n="1").run()
    n = comments()["n"]
    assert n.startswith("places that're free; source type ")

    depot.ddl("ALTER TABLE depot ADD COLUMN gate INT COMMENT 'nearest'").row(id="2", n="2", gate="3").run()
    added = comments()
    assert n == added["n"]
    assert added["gate"].startswith("nearest; source type ")

    depot.ddl("ALTER TABLE depot MODIFY COLUMN n INT COMMENT 'free places'").row(
        id="3", n="3", gate="4"
    ).run()
    assert comments() == added | {"n": n.replace("places that're free", "free places")}
    assert [(1, 1, None), (2, 2, 3), (3, 3, 4)] == [(x["id"], x["n"], x["gate"]) for x in depot.rows()]
