"""The quality stage over many mirrors in one batch, and the report over many tables.

    python -m benchmarks.quality                              # 50 mirrors of 100,000 rows, 500 tables
    python -m benchmarks.quality --mirrors 5 --rows 1000

The lake is made by Spark itself, each mirror with one insert a row; the checks compare all of it, and then a batch
that updates some rows of each.  The exit code is 1 if a check complains.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import psutil
from pyspark.sql import DataFrame

from benchmarks.tree import cpu
from ingest.change import TableId
from ingest.config import load
from ingest.gold.steps import steps_of
from ingest.lake import decisions
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Column, Mirror, decision
from ingest.lake.names import mirror_path
from ingest.lake.schemas import BOOKS, BRONZE, CHANGES
from ingest.quality import stage
from ingest.quality.report import page, render
from ingest.spark.session import session, stop
from tests.quality.conftest import facts

PIPELINE = """\
pipeline: yard
lake: ./lake
engine: auto
sources: [{name: gate, kind: files, path: ./*.jsonl, format: dts-canal}]
"""
_NUMBER = "concat(substr('0123456789', length(id) + 1, 1), id)"
_ORDER = f"concat('1011', {_NUMBER}, '!10111010', {_NUMBER}, '!10')"


def main() -> int:
    """Make a lake, check it, draw a report; print what each took."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__.splitlines()[0])
    parser.add_argument("--mirrors", type=int, default=50)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--touched", type=int, default=1_000, help="rows of each mirror that a batch updates")
    parser.add_argument("--tables", type=int, default=500, help="tables of the report")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "yard.yaml"
        file.write_text(PIPELINE, "utf-8")
        spark = session("benchmark", master="local[2]", profile="batch")
        try:
            lake = Lake(spark, load(file))
            _make(lake, given.mirrors, given.rows)
            whole = f"{given.mirrors} mirrors of {given.rows:,} rows"
            counts = [_checked(lake, f"{whole}, all of them") for _ in ("cold", "warm")]
            for batch in (2, 3):
                _touch(lake, given.mirrors, given.rows, given.touched, batch)
                counts.append(_checked(lake, f"{whole}, {given.touched:,} updated in each", batch - 1))
        finally:
            stop(spark)
    _report(given.tables)
    return 1 if any(set(one) - {"pass", "warn"} for one in counts) else 0


def _make(lake: Lake, mirrors: int, rows: int) -> None:
    tables = [TableId("yard", None, f"t{i}") for i in range(mirrors)]
    columns = (Column("id", "id", "int64"), Column("label", "label", "text"))
    made = [Mirror(one, mirror_path(one), ("id",), columns) for one in tables]
    decisions.append(lake, [decision(one, 1, "made") for one in made])
    for one in made:
        frame = lake.spark.range(1, rows + 1).selectExpr("id", "concat('label ', id) AS label")
        writer = frame.coalesce(2).write.format("delta")
        writer.option("txnAppId", lake.writer("gold", one.path)).option("txnVersion", 1).save(
            lake.path(one.path)
        )
    _change(lake, 1, mirrors, rows, 1)


def _change(lake: Lake, batch: int, mirrors: int, rows: int, first: int) -> None:
    """Changes of the first rows of each mirror, ordered from ``first`` on, with their books and their receipt."""
    place = f"{batch}L AS batch, 'gate' AS source, 'f' AS topic, 0 AS partition, 'yard' AS database"
    every = lake.spark.range(mirrors * rows).selectExpr(
        f"concat('t', id DIV {rows}) AS table", f"CAST(id % {rows} + 1 AS STRING) AS key",
        f"CAST(id % {rows} + {first} AS STRING) AS id",
    )  # fmt: skip
    image = "to_json(struct(key AS id, concat('label ', key) AS label))"
    op = "insert" if batch == 1 else "update"
    _append(
        lake, CHANGES.name, CHANGES.ddl,
        every.selectExpr(
            "table", "'change' AS kind", *place.split(", "), "CAST(id AS BIGINT) AS offset", "0 AS row",
            f"'{op}' AS op", f"{_ORDER} AS order_key", f"{image} AS after", "false AS partial",
            f"{'NULL' if op == 'insert' else image} AS before",
        ),
    )  # fmt: skip
    counts = (f"{rows}L AS {name}" for name in ("messages", "change_messages", "changes"))
    books = lake.spark.range(mirrors).selectExpr(
        "concat('t', id) AS table", *place.split(", "), *counts, "current_timestamp() AS event_high"
    )
    _append(lake, BOOKS.name, BOOKS.ddl, books, lake.writer("silver", BOOKS.name), batch)
    count = mirrors * rows
    receipt = json.dumps({"file": "f", "start": 9 * (batch - 1), "end": 9 * batch, "count": count})
    read = lake.spark.range(1).selectExpr(
        "'receipt' AS kind", f"{batch}L AS batch", "'gate' AS source", f"CAST('{receipt}' AS BINARY) AS value"
    )
    _append(lake, BRONZE.name, BRONZE.ddl, read)


def _touch(lake: Lake, mirrors: int, rows: int, touched: int, batch: int) -> None:
    """A batch that says again what the first rows of each mirror hold."""
    for i in range(mirrors):
        path = mirror_path(TableId("yard", None, f"t{i}"))
        nothing = lake.read(path).limit(0).write.format("delta").mode("append")
        nothing.option("txnAppId", lake.writer("gold", path)).option("txnVersion", batch).save(
            lake.path(path)
        )
    _change(lake, batch, mirrors, touched, batch * rows)


def _append(lake: Lake, name: str, ddl: str, frame: DataFrame, writer: str = "", batch: int = 1) -> None:
    """Append a frame that has some of a product table's columns."""
    empty = lake.spark.createDataFrame([], ddl)
    out = frame.unionByName(empty, allowMissingColumns=True).select(*empty.columns).write.format("delta")
    if writer:
        out = out.option("txnAppId", writer).option("txnVersion", batch)
    out.mode("append").save(lake.path(name))


def _checked(lake: Lake, what: str, since: int = 0) -> dict[str, int]:
    mine = psutil.Process()
    wall, busy = time.perf_counter(), cpu(mine)
    counts = stage.check(lake, since, steps=steps_of(lake)).counts()
    sys.stdout.write(f"{what}: {time.perf_counter() - wall:.1f} s, {cpu(mine) - busy:.1f} CPU-s, {counts}\n")
    return counts


def _report(tables: int) -> None:
    started = time.perf_counter()
    text = render(page(facts(tables)))
    sys.stdout.write(
        f"report of {tables} tables: {time.perf_counter() - started:.1f} s, {len(text.encode()) / 1e6:.2f} MB\n"
    )


if __name__ == "__main__":
    sys.exit(main())
