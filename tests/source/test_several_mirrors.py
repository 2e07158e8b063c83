"""Tables with several mirrors, which are compared if they hold all rows, and several tables with one mirror, read from the source; without Spark."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

from ingest.cli.app import app
from ingest.config import load
from ingest.tables.tables import LakeReader
from tests.source.bins import COLUMNS, Bins
from tests.source.test_repaired import landed

ALSO = (
    "tables: [{match: shop.bins, keys: [id], also: [{into: eu.bins, where: size > 1}, {into: copy.bins, columns: "
    "{word: exclude}}]}]\n"
)


def further(bins: Bins, name: str, columns: dict[str, str], *, where: str = "") -> None:
    """Write a further mirror with the rows of the table's own."""
    lake = Path(load(bins.file).lake)
    rows = DeltaTable(str(lake / "mirrors/shop/bins")).to_pyarrow_table(columns=list(columns))
    write_deltalake(str(lake / f"mirrors/{name}/bins"), rows)
    value = {
        "table": [name, None, "bins"], "keys": ["id"], "columns": [[one, one, kind] for one, kind in columns.items()],
        "shape": json.dumps({"where": where} if where else {"without": ["word"]}),
    }  # fmt: skip
    decided = {
        "decided_at": [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)], "kind": ["schema"], "subject": [f"mirrors/{name}/bins"],
        "batch": [1], "value": [json.dumps(value)], "reason": [""], "by": ["run"], "number": [2],
    }  # fmt: skip
    write_deltalake(str(lake / "decisions"), pa.table(decided), mode="append")


def test_each_mirror_that_holds_all_rows_is_compared(bins: Bins) -> None:
    """A further mirror that has lost a row would never be found, or a filtered one would be reported as wrong."""
    bins.file.write_text(bins.file.read_text("utf-8") + ALSO, "utf-8")
    bins.mirror()
    del bins.rows[7]
    further(bins, "eu", COLUMNS, where="size > 1")
    further(bins, "copy", {"id": "int64", "size": "float64"})
    write_deltalake(
        str(Path(load(bins.file).lake) / "mirrors/copy/bins"),
        pa.table({"id": list(bins.rows), "size": [size for _, size in bins.rows.values()]}),
        mode="overwrite",
    )
    done = bins.type("--settled", "--output", "json")
    found = {one["mirror"]: (one["missing"], one["surplus"]) for one in json.loads(done.stdout)["tables"]}
    assert {"shop.bins": (0, 0), "copy.bins": (1, 0)} == found
    assert 1 == done.exit_code
    again = bins.type("--due", "--settled", "--output", "json")
    assert 2 == len(json.loads(again.stdout)["tables"])  # without `reconcile_every:` they are due at once


@pytest.mark.parametrize(
    "shard", ["", ", shard_column: shard"], ids=["keys that differ", "a key for each table"]
)
def test_tables_that_share_a_mirror_are_read_one_after_the_other(bins: Bins, shard: str) -> None:
    """What the reading of one does not hold, or holds under the same key, is the other's row, and stays."""
    other = 1 if shard else 10
    bins.rule(f"match: 'shop.bins_(\\d+)', into: shop.bins{shard}")
    for table, first in ((1, 1), (2, other)):
        bins.write(f"CREATE TABLE bins_{table} (id BIGINT, word VARCHAR, size DOUBLE)")
        bins.write(
            f"INSERT INTO bins_{table} SELECT n, 'w' || n, n / 8 FROM range({first}, {first + 4}) AS r(n)"
        )
    stale = [(1, "stale", 0.125), (99, "gone at the source", 1.0)]
    assert 0 == landed(bins, 1, *stale, table="bins_1").exit_code
    assert (
        0
        == landed(bins, 2, (other, "stale", 0.125), (98, "gone at the source", 1.0), table="bins_2").exit_code
    )
    for table in (1, 2):
        done = CliRunner().invoke(app, ["snapshot", str(bins.file), f"shop.bins_{table}"])
        assert 0 == done.exit_code, done.output
        later = ((1, other)[table - 1] + 1, "later", 0.5)
        bins.write(f"UPDATE bins_{table} SET word = 'later', size = 0.5 WHERE id = {later[0]}")
        assert 0 == landed(bins, 2 + table, later, kind="UPDATE", table=f"bins_{table}").exit_code
    here = LakeReader(load(bins.file)).ask_mirror("mirrors/shop/bins", "SELECT id, word, size FROM {mirror}")
    with duckdb.connect(str(bins.source)) as connection:
        there = connection.execute("FROM bins_1 UNION ALL FROM bins_2").fetchall()
    assert sorted(there) == sorted(tuple(row.values()) for row in here)
