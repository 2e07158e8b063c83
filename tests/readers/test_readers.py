"""Mirrors read by other engines: equal to what Spark reads, cell by cell."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest

from tests.lakes import ROOT, duckdb_with_delta

if TYPE_CHECKING:
    from tests.lakes import Example

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
KEYS = {"customers": ("id",), "orders": ("id",), "order_lines": ("order_id", "line_no")}


def with_duckdb(path: str) -> pa.Table:
    """DuckDB's reading."""
    return duckdb_with_delta().sql("SELECT * FROM delta_scan(?)", params=[path]).to_arrow_table()


def with_delta_rs(path: str) -> pa.Table:
    """delta-rs' reading."""
    return deltalake.DeltaTable(path).to_pyarrow_table()


def with_a_query_of_delta_rs(path: str) -> pa.Table:
    """The reading of delta-rs' own query engine."""
    table = deltalake.DeltaTable(path)
    batches = deltalake.QueryBuilder().register("mirror", table).execute("SELECT * FROM mirror").read_all()
    return pa.table(batches)


def with_polars(path: str) -> pa.Table:
    """Polars' reading."""
    return pl.scan_delta(path).collect().to_arrow()


def cells(table: pa.Table, mirror: str) -> list[dict[str, Any]]:
    """Rows in key order, as plain values."""
    return sorted(table.to_pylist(), key=lambda row: [row[name] for name in KEYS[mirror]])


@cache
def with_spark(one: Example, mirror: str) -> list[dict[str, Any]]:
    """Spark's rows of a mirror, read once: the other engines' rows are compared with them."""
    return cells(one.lake.spark.read.format("delta").load(one.mirror(mirror)).toArrow(), mirror)


READERS: list[Callable[[str], pa.Table]] = [with_duckdb, with_polars, with_delta_rs]


@pytest.mark.parametrize("mirror", KEYS)
@pytest.mark.parametrize("reader", READERS, ids=["duckdb", "polars", "delta-rs"])
def test_plain_mirrors_are_read_by_every_engine(
    shops: dict[str, Example], reader: Callable[[str], pa.Table], mirror: str
) -> None:
    """A plain mirror must be readable by every engine, not by Spark alone."""
    one = next(one for one in shops.values() if one.plain)
    assert with_spark(one, mirror) == cells(reader(one.mirror(mirror)), mirror)


@pytest.mark.parametrize("mirror", KEYS)
@pytest.mark.parametrize("reader", [with_duckdb, with_polars], ids=["duckdb", "polars"])
def test_mirrors_by_arrow_are_read_by_every_engine(
    shops: dict[str, Example], reader: Callable[[str], pa.Table], mirror: str
) -> None:
    """A file that Spark alone writes as the log says it is makes other tables of it for the others."""
    one = list(shops.values())[2]
    path = one.mirror(mirror)
    assert (
        deltalake.DeltaTable(path).history()[-1]["engineInfo"].startswith("ingest/")
    )  # as Arrow's way makes it
    assert with_spark(one, mirror) == cells(reader(path), mirror)


@pytest.mark.parametrize("mirror", KEYS)
@pytest.mark.parametrize(
    "reader",
    [with_duckdb, with_polars, with_a_query_of_delta_rs],
    ids=["duckdb", "polars", "delta-rs' QueryBuilder"],
)
def test_mirrors_with_deletion_vectors_are_read_by_engines_that_know_them(
    shops: dict[str, Example], reader: Callable[[str], pa.Table], mirror: str
) -> None:
    """A reader that passes over deletion vectors shows deleted rows."""
    one = next(one for one in shops.values() if not one.plain)
    assert with_spark(one, mirror) == cells(reader(one.mirror(mirror)), mirror)


def test_the_readme_names_the_reader_that_lacks_deletion_vectors(shops: dict[str, Example]) -> None:
    """A user who follows the README and gets an error from delta-rs loses an afternoon."""
    one = next(one for one in shops.values() if not one.plain)
    refused = []
    for mirror in KEYS:
        try:
            with_delta_rs(one.mirror(mirror))
        except Exception as error:
            refused.append(str(error))
    assert any("deletionVectors" in text for text in refused), refused
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    minor = ".".join(deltalake.__version__.split(".")[:2])
    assert (
        f"delta-rs {minor} reads such tables by its `QueryBuilder`, but not by `to_pyarrow_table`" in readme
    )
    assert "With `plain_tables: true` the mirrors have none, and every reader opens them" in readme


def test_deletion_vectors_are_there_to_be_read(shops: dict[str, Example]) -> None:
    """Without deletion vectors the test before this one would prove nothing."""
    one = next(one for one in shops.values() if not one.plain)
    logs = [Path(one.mirror(mirror), "_delta_log") for mirror in KEYS]
    actions = [
        json.loads(line)
        for log in logs
        for file in log.glob("*.json")
        for line in file.read_text().splitlines()
    ]
    assert [] != [action for action in actions if action.get("add", {}).get("deletionVector")]
    plain = next(one for one in shops.values() if one.plain)
    features = deltalake.DeltaTable(plain.mirror("orders")).protocol()
    assert "deletionVectors" not in (features.reader_features or ())
