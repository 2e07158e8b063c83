"""Appends of several threads to one of the product's tables."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ingest.config import Pipeline, Source
from ingest.spark.session import new_session
from ingest.tables.datafiles import table_of
from ingest.tables.lake import Lake
from ingest.tables.schemas import REJECTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
MIRRORS = range(6)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    """A lake with an empty table of rejects."""
    source = Source("s", "files", "dts-canal", path=str(tmp_path / "*.jsonl"))
    lake = Lake(spark, Pipeline("p", tmp_path / "p.yaml", str(tmp_path / "lake"), (source,), engine="auto"))
    lake.ensure(REJECTS)
    return lake


def _row(number: int) -> tuple[str | None, ...]:
    return tuple({"kind": "cell", "column": str(number)}.get(name) for name in REJECTS.columns.names)


def _new(spark: SparkSession, lake: Lake, number: int) -> DataFrame:
    """A row that the table does not hold yet."""
    session = new_session(spark)
    known = session.read.format("delta").load(lake.path(REJECTS.name)).select("column")
    frame = session.createDataFrame([_row(number)], REJECTS.columns).join(known, "column", "left_anti")
    return frame.select(*REJECTS.columns.names)


def _kept(lake: Lake) -> list[str]:
    return sorted(row["column"] for row in lake.read(REJECTS.name).select("column").collect())


@pytest.mark.e2e
def test_mirrors_folded_at_once_keep_their_rejects(spark: SparkSession, lake: Lake) -> None:
    """Each append leaves out what the table holds already: Delta refuses one that has read while another wrote."""

    def keep(number: int) -> bool:
        return lake.append(_new(spark, lake, number), REJECTS, f"gold/{number}", 1)

    keep(0)

    with ThreadPoolExecutor(len(MIRRORS)) as pool:
        assert all(pool.map(keep, MIRRORS[1:]))
    assert _kept(lake) == [str(number) for number in MIRRORS]


def test_a_mirror_that_arrow_folds_keeps_its_rejects_next_to_one_of_spark(
    spark: SparkSession, lake: Lake
) -> None:
    """An append of Arrow between the reading and the commit of Spark's made Spark's mirror fail."""

    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(2)
        yield from batches

    lake.append(table_of([_row(0)], REJECTS.columns.names, REJECTS.arrow), REJECTS, "gold/0", 1)
    frame = _new(spark, lake, 1).mapInArrow(slow, REJECTS.columns)
    rows = table_of([_row(2)], REJECTS.columns.names, REJECTS.arrow)

    with ThreadPoolExecutor(2) as pool:
        of_spark = pool.submit(lake.append, frame, REJECTS, "gold/1", 1)
        time.sleep(1)
        of_arrow = pool.submit(lake.append, rows, REJECTS, "gold/2", 1)
        assert of_spark.result()
        assert of_arrow.result()
    assert _kept(lake) == ["0", "1", "2"]
