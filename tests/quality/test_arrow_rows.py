"""Rows as Arrow batches: the condition by which those of some keys are read, and the values that each engine gives."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ingest.change import TableId
from ingest.config import Pipeline
from ingest.ledgers.mirrors import Column, Mirror
from ingest.quality import arrow_rows
from ingest.tables.cell_values import of_column
from ingest.tables.lake import Lake

KINDS = {
    "decimal(12,2)": (pa.decimal128(12, 2), lambda number: Decimal(number - 35_000) / 4),
    "date": (pa.date32(), lambda number: dt.date(1800, 1, 1) + dt.timedelta(number)),
    "int64": (pa.int64(), lambda number: number - 35_000),
    "string": (pa.string(), lambda number: f"{number}'\u00e9\U0001f600"[number % 2 :]),
}


@pytest.mark.parametrize("count", [3, 70_000])
@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_of_many_keys(tmp_path: Path, kind: str, count: int) -> None:
    """A list of 30,000 keys overflows the stack of delta-rs, which ends the whole run without a message."""
    arrow, value = KINDS[kind]
    cells = [value(number) for number in range(count)]
    deltalake.write_deltalake(str(tmp_path / "t"), pa.table({"id": pa.array(cells, arrow)}))
    mirror = Mirror(TableId("d", None, "t"), "mirrors/d/t", ("id",), (Column("id", "id", kind),))
    condition = arrow_rows._of_keys(mirror, [(cell,) for cell in cells])
    assert len(condition) < 100_000
    assert ("IN (" if count == 3 else "BETWEEN") in condition
    table = deltalake.DeltaTable(str(tmp_path / "t"))
    query = f"SELECT count(*) AS n FROM t WHERE {condition}"
    found = pa.table(deltalake.QueryBuilder().register("t", table).execute(query).read_all())
    assert [count] == found["n"].to_pylist()


CELLS: dict[str, tuple[pa.DataType, Sequence[object]]] = {
    "TINYINT": (pa.int8(), [-128, 127]),
    "BIGINT": (pa.int64(), [-(1 << 63), (1 << 63) - 1]),
    "DECIMAL(38,10)": (pa.decimal128(38, 10), [Decimal(f"-{'9' * 28}.{'9' * 10}"), Decimal("0.0000000001")]),
    "FLOAT": (pa.float32(), [0.1, math.nan, -0.0, math.inf]),
    "DOUBLE": (pa.float64(), [0.1, math.nan, -0.0, -math.inf, 5e-324]),
    "BOOLEAN": (pa.bool_(), [True, False]),
    "STRING": (pa.string(), ["", "a\0'\"b", "\U0001f600", "%41"]),
    "BINARY": (pa.binary(), [b"", b"\0\xff"]),
    "DATE": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "TIMESTAMP": (pa.timestamp("us", "UTC"), [-62_135_596_800_000_000, 253_402_300_799_999_999]),
    "TIMESTAMP_NTZ": (pa.timestamp("us"), [-62_135_596_800_000_000, 253_402_300_799_999_999]),
}


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("way", [arrow_rows.by_duck, arrow_rows.by_delta])
def test_each_engine_gives_the_values_of_the_files(tmp_path: Path, way: arrow_rows.Read, kind: str) -> None:
    """A rounded or shifted value would show as a wrong cell, or hide one."""
    arrow, cells = CELLS[kind]
    held = pa.array([*cells, None], arrow)
    table = pa.table({"id": list(range(len(held))), "a 'b": held, "none": held})
    deltalake.write_deltalake(str(tmp_path / "lake" / "t"), table)
    pipeline = Pipeline("p", tmp_path / "p.yaml", str(tmp_path / "lake"), (), ())
    lake = Lake(cast("Any", None), pipeline)
    rows = pa.Table.from_batches(way(lake, "t", ["a 'b", "id"], '"id" >= 0'))
    found = rows.sort_by("id")["a 'b"].combine_chunks()
    assert of_column(held, kind) == of_column(found, kind)


def test_spark_reads_by_the_same_condition(spark: SparkSession, tmp_path: Path) -> None:
    """A text that one engine read otherwise would be a row that is missing."""
    texts = ["", "a\0'\"b", "c:\\new\\'", "\U0001f600", "%41", "{books}", "other"]
    deltalake.write_deltalake(str(tmp_path / "lake" / "t"), pa.table({"a 'b": texts}))
    pipeline = Pipeline("p", tmp_path / "p.yaml", str(tmp_path / "lake"), (), ())
    mirror = Mirror(TableId("d", None, "t"), "t", ("a",), (Column("a", "a 'b", "string"),))
    condition = arrow_rows._of_keys(mirror, [(text,) for text in texts[:-1]])
    for way in (arrow_rows.by_duck, arrow_rows.by_delta, arrow_rows.by_spark):
        rows = pa.Table.from_batches(way(Lake(spark, pipeline), "t", ["a 'b"], condition))
        assert sorted(texts[:-1]) == sorted(rows["a 'b"].to_pylist()), way
