"""The fidelity table: every cell counted once, under the right word."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ingest.lake.mirrors import Column

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = (
    Column("id", "id", "datetime"), Column("at", "at", "timestamp"), Column("n", "n", "int64"),
    Column("price", "price", "decimal(10,2)"), Column("word", "word", "string"),
)  # fmt: skip
NARROW = {"n": "int32", "word": "string"}
SENT: tuple[tuple[dict[str, str], dict[str, str | None]], ...] = (
    (NARROW, {"id": "2024-05-01 10:00:00.123456", "at": "2024-05-01T10:00:00.1234567Z", "n": "1", "price": "1.10"}),
    (NARROW, {"id": "2024-05-01 10:00:00.1234567", "at": "2024-05-01T10:00:00.1234560Z", "n": "A1", "word": ""}),
    ({}, {"id": "yesterday", "at": None, "n": "3", "price": "1.239", "word": "x"}),
)  # fmt: skip
EXPECTED = {
    "id": {"fit": 1, "rejected": 2},
    "at": {"fit": 1, "truncated": 1, "nulls": 1},
    "n": {"widened": 1, "rejected": 1, "fit": 1},
    "price": {"fit": 1, "rejected": 1, "absent": 1},
    "word": {"fit": 2, "absent": 1},
}


def test_every_cell_is_counted_once(spark: SparkSession) -> None:
    """A loss that the table calls exact is what the table is there to rule out."""
    from ingest.gold.fidelity import COUNTS, count

    rows = [(json.dumps(types), json.dumps(after)) for types, after in SENT] + [(None, None)]
    found = count(spark.createDataFrame(rows, "types STRING, after STRING"), COLUMNS, ("id",))
    assert EXPECTED == {one.column: {name: n for name, n in one.counts.items() if n} for one in found}
    assert {len(SENT)} == {sum(one.counts[name] for name in COUNTS) for one in found}
    assert ["TIMESTAMP_NTZ", "TIMESTAMP", "BIGINT", "DECIMAL(10,2)", "STRING"] == [one.delta for one in found]
