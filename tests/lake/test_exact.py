"""Texts that distinguish all values of a type."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

VALUES = {
    "TIMESTAMP": ("'2024-05-01 08:00:00.123456Z'", "'2024-05-01 08:00:00.123789Z'"),
    "TIMESTAMP_NTZ": ("'2024-05-01 08:00:00.123456'", "'2024-05-01 08:00:00.123'", "'2024-05-01 08:00:00'"),
    "DOUBLE": ("'0'", "'-0'", "'NaN'", "'Infinity'", "'1e-323'", "'0.1'", "'0.10000000000000002'"),
    "FLOAT": ("'0'", "'-0'", "'NaN'", "'0.1'", "'0.10000001'"),
    "BINARY": ("X''", "X'00'", "X'80'", "X'FF'", "X'EFBFBD'"),
    "DECIMAL(38,10)": ("'9007199254740993.1'", "'9007199254740992.1'", "'0'"),
    "STRING": ("''", "'a'", "'a '", "'a\\u0001'", "'a\\u0000'", "'a\\\"'", "'null'"),
    "BIGINT": ("9007199254740993", "9007199254740992"),
    "DATE": ("'2024-05-01'", "'0001-01-01'"),
    "BOOLEAN": ("true", "false"),
}


def test_no_two_values_share_a_text(spark: SparkSession) -> None:
    """Rows of a table without key that share one become copies of one another."""
    from pyspark.sql import functions as F

    from ingest.tables import exact

    cells = [
        exact.content([(F.expr(f"CAST({literal} AS {delta})"), delta)])
        for delta, literals in VALUES.items()
        for literal in (*literals, "NULL")
    ]
    rows = [exact.content([(F.lit("a").cast("string"), "STRING"), (F.lit(None).cast("string"), "STRING")])]
    rows += [exact.content([(F.lit(None).cast("string"), "STRING"), (F.lit("a"), "STRING")])]
    found = spark.range(1).select(F.array(*cells, *rows).alias("all")).first()
    assert found is not None
    texts = iter(found["all"])
    for delta, literals in VALUES.items():
        mine = [next(texts) for _ in range(len(literals) + 1)]
        assert len(mine) == len(set(mine)), delta
    assert all(left != right for left, right in pairwise(texts))


def test_a_key_shows_every_digit_of_its_time(spark: SparkSession) -> None:
    """Two keys within a millisecond would be named alike in rejects and reports."""
    from pyspark.sql import functions as F

    from ingest.tables import exact

    cells = [
        F.expr("CAST('2024-05-01 08:00:00.123456Z' AS TIMESTAMP)").alias("at"),
        F.expr("CAST('2024-05-01 08:00:00.120001' AS TIMESTAMP_NTZ)").alias("here"),
        F.lit(7).alias("id"),
    ]
    values = spark.range(1).select(*cells)
    found = values.select(exact.key_json(map(F.col, values.columns)).alias("key")).first()
    assert found is not None
    assert found["key"] == '{"at":"2024-05-01T08:00:00.123456Z","here":"2024-05-01T08:00:00.120001","id":7}'
