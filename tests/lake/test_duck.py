"""Values in the text of queries."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.tables import duck


@pytest.mark.parametrize(
    "value", ["", "'", "''", "a\0b", "\0", "\0'\0", "\\", "\n\r\u202e", "?", "$1", "{x}"]
)
def test_a_text_comes_back_as_it_is(value: str) -> None:
    """A name with a zero byte would cut the query in two, and answer nothing about its table."""
    assert [{"x": value}] == duck.rows(f"SELECT {duck.text(value)} AS x")


def test_files_that_were_read_stay_on_disk_alone(tmp_path: Path) -> None:
    """A service over fifty lakes would otherwise hold a copy of what each question has read."""
    pq.write_table(pa.table({"x": list(range(1000))}), tmp_path / "one.parquet")
    assert [{"n": 499500}] == duck.rows(
        f"SELECT CAST(sum(x) AS BIGINT) AS n FROM read_parquet({duck.text(str(tmp_path / 'one.parquet'))})"
    )
    assert [] == duck.rows("SELECT path FROM duckdb_external_file_cache()")
