"""A mirror's rows read from its files, and written to new ones, whatever their columns were before."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.change import TableId
from ingest.gold.fold import arrow_files
from ingest.gold.fold.arrow_values import of_delta
from ingest.gold.fold.arrow_work import ColumnWork, LaneWork, MirrorWork


def test_columns_come_and_go_with_a_new_file(tmp_path: Path) -> None:
    """Readers give the values of an older file to a column that comes again under its name."""
    columns = (ColumnWork("id", "id", "int64"), ColumnWork("new", "new", "decimal(5,2)"))
    lane = LaneWork("s", TableId("yard", None, "depot"), 2, 2)
    pq.write_table(pa.table({"id": [2, 1], "gone": ["x", "y"]}), tmp_path / "one.parquet")
    work = MirrorWork("mirror", str(tmp_path), ("id",), columns, (lane,), files=(("one.parquet", None),))
    rows = arrow_files.read([], [lane])
    assert ("", False) == (arrow_files.make(work, rows).file, arrow_files.make(work, rows).replaces)
    made = arrow_files.make(replace(work, reshaped=True), rows)
    assert ("", True, 2) == (made.refused, made.replaces, made.counts["written"])
    assert {"id": [2, 1], "new": [None, None]} == pq.read_table(tmp_path / made.file).to_pydict()


def test_values_stay_in_wider_columns(tmp_path: Path) -> None:
    """A FLOAT of 0.1 that becomes 0.10000000149011612, or an old value under a reused name, is wrong for readers."""
    wider = {
        "small": ("TINYINT", "int64", [1, None], [1, None]),
        "whole": ("BIGINT", "decimal(20,0)", [-(2**63), 2**63 - 1], [Decimal(-(2**63)), Decimal(2**63 - 1)]),
        "exact": ("DECIMAL(5,2)", "decimal(38,10)", [Decimal("-1.25"), None], [Decimal("-1.25"), None]),
        "near": ("FLOAT", "float64", [0.1, math.inf], [0.1, math.inf]),
        "day": (
            "DATE",
            "datetime",
            [dt.date(1, 1, 1), None],
            [dt.datetime.fromisoformat("0001-01-01"), None],
        ),
        "word": ("", "int32", ["x", "1"], [None, None]),
    }
    stored = {name: pa.array(old, of_delta(delta or "STRING")) for name, (delta, _, old, _) in wider.items()}
    pq.write_table(pa.table(stored), tmp_path / "one.parquet")
    columns = tuple(ColumnWork(name, name, logical) for name, (_, logical, *_) in wider.items())
    work = MirrorWork("mirror", str(tmp_path), (), columns, (), files=(("one.parquet", None),))
    work = replace(work, old=tuple((name, delta) for name, (delta, *_) in wider.items()))
    assert {name: new for name, (*_, new) in wider.items()} == arrow_files.there(work).to_pydict()
    narrow = replace(work, columns=(ColumnWork("whole", "whole", "int32"),), old=(("whole", "BIGINT"),))
    with pytest.raises(pa.ArrowInvalid):
        arrow_files.there(narrow)


@pytest.mark.parametrize("deprecated", [False, True])
def test_times_of_a_mirror_are_read_as_any_writer_stores_them(deprecated: bool, tmp_path: Path) -> None:
    """Spark writes INT96 if it is set to; as nanoseconds the year 9999 cannot be read, and Spark would fold each batch."""
    columns = tuple(ColumnWork(name, name, name) for name in ("datetime", "timestamp"))
    work = MirrorWork("mirror", str(tmp_path), ("datetime",), columns, (), files=(("one.parquet", None),))
    texts = ("0001-01-01", "1582-10-10", "9999-12-31 23:59:59.999999")
    ends = [dt.datetime.fromisoformat(one).replace(tzinfo=dt.UTC) for one in texts]
    rows = {"datetime": [one.replace(tzinfo=None) for one in ends], "timestamp": ends}
    pq.write_table(
        pa.table(rows, work.schema), tmp_path / "one.parquet", use_deprecated_int96_timestamps=deprecated
    )
    assert rows == arrow_files.there(work).to_pydict()
