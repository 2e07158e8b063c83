"""The source tables that have sent rows, as the books name them."""

from __future__ import annotations

from pyspark.sql import functions as F

from ingest.change import TableId
from ingest.lake.lake import Lake
from ingest.lake.schemas import BOOKS


def with_rows(lake: Lake) -> set[tuple[str, TableId]]:
    """Each source's tables with row changes."""
    if not lake.exists(BOOKS.name):
        return set()
    booked = lake.rows(BOOKS).where(F.col("table").isNotNull() & (F.col("changes") > 0))
    found = booked.select("source", "database", "schema", "table").distinct().collect()
    return {(row["source"], TableId(row["database"], row["schema"], row["table"])) for row in found}
