"""The quality stage over many mirrors in one batch, and the report over many tables.

    python -m benchmarks.quality                              # 50 mirrors of 100,000 rows, 500 tables
    python -m benchmarks.quality --mirrors 5 --rows 1000

The pipeline makes the lake of inserts; the checks compare all of it, and then batches that change some rows of each
mirror.  The exit code is 1 if a check complains.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from benchmarks.contest.sections import SEED
from benchmarks.contest.workload import Workload
from benchmarks.tree import cpu
from ingest.config import Pipeline, load
from ingest.gold.plan.steps import steps_of
from ingest.quality import stage
from ingest.quality.report import page, render
from ingest.run import run
from ingest.spark.session import session, stop
from ingest.tables.lake import Lake
from tests.quality.conftest import facts

PIPELINE = """\
pipeline: yard
lake: ./lake
engine: auto
sources: [{name: gate, kind: files, path: ./*.jsonl, format: dts-canal, settle: 0s}]
tables: [{match: "*", columns: {id: int64, customer: int64, amount: "decimal(38,10)"}}]
"""


def main() -> int:
    """Make a lake, check it, draw a report; print what each took."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__.splitlines()[0])
    parser.add_argument("--mirrors", type=int, default=50)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument(
        "--touched", type=int, default=1_000, help="changes of each mirror that a batch brings"
    )
    parser.add_argument("--tables", type=int, default=500, help="tables of the report")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "yard.yaml"
        file.write_text(PIPELINE, "utf-8")
        spark = session("benchmark", master="local[2]", profile="batch")
        try:
            counts = all_checked(spark, load(file), given)
        finally:
            stop(spark)
    _report(given.tables)
    return 1 if any(set(one) - {"pass", "warn"} for one in counts) else 0


def all_checked(spark: SparkSession, pipeline: Pipeline, given: argparse.Namespace) -> list[dict[str, int]]:
    """How many checks have each state, look by look."""
    lake, workload = Lake(spark, pipeline), Workload(SEED, given.mirrors, given.rows)
    _run(lake, workload.births(given.rows))
    whole = f"{given.mirrors} mirrors of {given.rows:,} rows"
    counts = [_checked(lake, f"{whole}, all of them") for _ in ("cold", "warm")]
    for batch in (2, 3):
        _run(lake, workload.stream(given.touched * given.mirrors))
        counts.append(_checked(lake, f"{whole}, {given.touched:,} changes of each", batch - 1))
    return counts


def _run(lake: Lake, messages: Iterable[str]) -> None:
    """Fold a file of messages."""
    landed = lake.pipeline.file.parent / f"{time.time_ns()}.jsonl"
    with landed.open("w", encoding="utf-8") as file:
        file.writelines(messages)
    failures = run(lake.spark, lake.pipeline, ["bronze", "silver", "gold"]).failures
    assert not failures, failures


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
