"""Appends of several threads to one of the product's tables."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ingest.config import Pipeline, Source
from ingest.lake.lake import Lake
from ingest.lake.schemas import REJECTS
from ingest.spark.session import new_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
MIRRORS = range(6)


def test_mirrors_folded_at_once_keep_their_rejects(spark: SparkSession, tmp_path: Path) -> None:
    """Each append leaves out what the table holds already: Delta refuses one that has read while another wrote."""
    source = Source("s", "files", "dts-canal", path=str(tmp_path / "*.jsonl"))
    lake = Lake(spark, Pipeline("p", tmp_path / "p.yaml", str(tmp_path / "lake"), (source,)))
    lake.ensure(REJECTS)

    def keep(number: int) -> bool:
        session = new_session(spark)
        row = tuple({"kind": "cell", "column": str(number)}.get(name) for name in REJECTS.columns.names)
        known = session.read.format("delta").load(lake.path(REJECTS.name)).select("column")
        frame = session.createDataFrame([row], REJECTS.columns).join(known, "column", "left_anti")
        frame = frame.select(*REJECTS.columns.names)
        return lake.append(frame, REJECTS, f"gold/{number}", 1)

    keep(0)

    with ThreadPoolExecutor(len(MIRRORS)) as pool:
        assert all(pool.map(keep, MIRRORS[1:]))
    kept = lake.read(REJECTS.name).select("column").collect()
    assert sorted(row["column"] for row in kept) == [str(number) for number in MIRRORS]
