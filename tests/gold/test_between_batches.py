"""What others do by Spark to a lake's tables between two batches: right mirrors stay right, and what harms is said."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ingest.config.model import TableRule
from ingest.run import Warm
from tests.gold.depot import Depot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ingest.gold.plan.results import Folded

HARMLESS = {
    "ordered": "OPTIMIZE {} ZORDER BY (n)",
    "vacuumed": "VACUUM {} RETAIN 0 HOURS",
    "checked": "ALTER TABLE {} ADD CONSTRAINT positive CHECK (n > 0)",
    "fed": "ALTER TABLE {} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)",
    "same": "RESTORE TABLE {} TO VERSION AS OF 1",
}
HARMFUL = {
    "older": ("RESTORE TABLE {} TO VERSION AS OF 0", "was not written by this pipeline (RESTORE)"),
    "less": ("DELETE FROM {} WHERE id = 2", "was not written by this pipeline (DELETE)"),
    "narrow": (
        "ALTER TABLE {} ADD CONSTRAINT small CHECK (n < 8)",
        "DROP CONSTRAINT small, then `ingest retry",
    ),
    "closed": (
        "ALTER TABLE {} SET TBLPROPERTIES (delta.appendOnly = true)",
        "UNSET TBLPROPERTIES (delta.appendOnly), then `ingest retry",
    ),
}


def batch(depot: Depot, number: int) -> dict[str, Folded]:
    """A row is inserted in each table, and the ones before are updated; what became of each mirror."""
    for table in (*HARMLESS, *HARMFUL):
        types = {"id": "int", "n": "int"}
        about = {"isDdl": False, "mysqlType": types, "pkNames": ["id"], "sql": "", "table": table}
        for key in range(1, number + 1):
            row, old = {"id": str(key), "n": str(3 * number)}, {"n": str(3 * number - 3)}
            is_new = key == number
            depot.say(
                type="INSERT" if is_new else "UPDATE", data=[row], old=None if is_new else [old], **about
            )
    return {mirror.mirror.partition(".")[2]: mirror for mirror in depot.result(checked=True).mirrors}


def commanded(spark: SparkSession, statements: Mapping[str, str], depot: Depot) -> None:
    """Statements on mirrors, each by its table's name."""
    for table, statement in statements.items():
        spark.sql(statement.format(f"delta.`{depot.folder}/lake/mirrors/yard/{table}`"))


@pytest.mark.e2e
@pytest.mark.spark
def test_what_spark_does_between_batches_harms_no_mirror_silently(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A command of upkeep that made a mirror wrong, or a right one complain, would be typed on the first day."""
    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.*"))
    for number in (1, 2):
        assert {"done"} == {mirror.state for mirror in batch(depot, number).values()}
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        commanded(spark, HARMLESS | {table: statement for table, (statement, _) in HARMFUL.items()}, depot)
        spark.sql(f"OPTIMIZE delta.`{depot.folder}/lake/changes`")
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    after = batch(depot, 3)
    assert dict.fromkeys(HARMLESS, "") == {table: after[table].message for table in HARMLESS}
    for table, (_, sentence) in HARMFUL.items():
        message = after[table].message
        assert sentence in message
        assert "Exception" not in message
        assert after[table].state in ("held", "failed")
    rows = {table: [(row["id"], row["n"]) for row in depot.rows(table)] for table in HARMLESS}
    assert {table: [(1, 9), (2, 9), (3, 9)] for table in HARMLESS} == rows
    complaints = depot.lake().ask(
        "SELECT mirror, \"check\", detail FROM {checks} WHERE state IN ('fail', 'warn')"
    )
    assert [] == [complaint for complaint in complaints if complaint["mirror"].partition(".")[2] in HARMLESS]
    fed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 3)
    types = fed.load(f"{depot.folder}/lake/mirrors/yard/fed").groupBy("_change_type").count().collect()
    assert {"insert": 1, "update_preimage": 2, "update_postimage": 2} == {row[0]: row[1] for row in types}
