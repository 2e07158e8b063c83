"""Each mirror of a source table is compared with it, if it holds all of the table's rows; without Spark."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from ingest.config import load
from tests.source.bins import COLUMNS, Bins

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
