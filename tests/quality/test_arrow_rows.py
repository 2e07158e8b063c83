"""The condition by which the rows of some keys are read."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from ingest.change import TableId
from ingest.lake.mirrors import Column, Mirror
from ingest.quality import arrow_rows

KINDS = {
    "decimal(12,2)": (pa.decimal128(12, 2), lambda number: Decimal(number - 35_000) / 4),
    "date": (pa.date32(), lambda number: dt.date(1800, 1, 1) + dt.timedelta(number)),
    "int64": (pa.int64(), lambda number: number - 35_000),
    "string": (pa.string(), lambda number: f"{number}'\u00e9\U0001f600"[number % 2 :]),
}


@pytest.mark.parametrize("count", [3, 70_000])
@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_of_many_keys(tmp_path: Path, kind: str, count: int) -> None:
    """A list of 30,000 keys overflows the stack of delta-rs, which ends the whole run without a word."""
    arrow, value = KINDS[kind]
    cells = [value(number) for number in range(count)]
    deltalake.write_deltalake(str(tmp_path / "t"), pa.table({"id": pa.array(cells, arrow)}))
    mirror = Mirror(TableId("d", None, "t"), "mirrors/d/t", ("id",), (Column("id", "id", kind),))
    condition = arrow_rows._of_keys(mirror, [(cell,) for cell in cells], arrow_rows._RUST)
    assert len(condition) < 100_000
    assert ("IN (" if count == 3 else "BETWEEN") in condition
    table = deltalake.DeltaTable(str(tmp_path / "t"))
    query = f"SELECT count(*) AS n FROM t WHERE {condition}"
    found = pa.table(deltalake.QueryBuilder().register("t", table).execute(query).read_all())
    assert [count] == found["n"].to_pylist()
