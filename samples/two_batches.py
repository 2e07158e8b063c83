"""One of the examples in two batches, and what Delta's history says of a mirror afterwards.

``python samples/two_batches.py``, which `make demo` runs at its end: the first half of the shop's messages, then the second as
a tick into mirrors that have rows already. Its lake is in ``demo/two-batches``, which it begins again each time.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

import ingest
from ingest.spark.jobs import said

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ingest.config import Pipeline
    from ingest.result import Result

DEMO = Path(__file__).resolve().parent.parent / "demo"
FOLDER = DEMO / "two-batches"
EXAMPLE = "drs-json"
MIRROR = "orders"
ROWS = {
    "inserted": "numTargetRowsInserted",
    "updated": "numTargetRowsUpdated",
    "deleted": "numTargetRowsDeleted",
}


def prepared() -> Pipeline:
    """The example's pipeline over a folder of its own, without messages yet."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    text = (DEMO / f"{EXAMPLE}.yaml").read_text("utf-8")
    text = text.replace(f"lake: ./lake/{EXAMPLE}", "lake: ./lake").replace(f"./messages/{EXAMPLE}/", "./")
    file = FOLDER / "two-batches.yaml"
    file.write_text(text, "utf-8")
    return ingest.load(file)


def tick(pipeline: Pipeline, spark: SparkSession, part: str) -> Result:
    """Run the pipeline over what was there and one more file."""
    shutil.copy(DEMO / "messages" / EXAMPLE / part, FOLDER / part)
    return ingest.run_pipeline(pipeline, spark)


def history(spark: SparkSession, path: str) -> Table:
    """What ``DESCRIBE HISTORY`` says of a table, the oldest first."""
    shown = Table("version", "operation", "merged on", *ROWS, "engine", title=f"DESCRIBE HISTORY of {MIRROR}")
    for row in reversed(spark.sql(f"DESCRIBE HISTORY delta.`{path}`").collect()):
        given, metrics = row["operationParameters"] or {}, row["operationMetrics"] or {}
        on = " AND ".join(json.loads(given.get("predicate") or "[]"))
        rows = [metrics.get(name, "-") for name in ROWS.values()]
        shown.add_row(str(row["version"]), row["operation"], on or "-", *rows, row["engineInfo"] or "-")
    return shown


def main() -> int:
    """Run both batches, print where each was done, and the mirror's history."""
    console, pipeline, code = Console(width=140, highlight=False), prepared(), 0
    console.print(f"{EXAMPLE} again, in two batches:")
    with ingest.session(pipeline) as spark:
        for part in ("shop-1.jsonl", "shop-2.jsonl"):
            result = tick(pipeline, spark, part)
            code = max(code, result.exit_code)
            changes = f"batch {result.batch}: {result.changes} changes into {result.touched} mirrors"
            console.print(f"{changes} in {result.seconds:.1f} s: {said(result.ran)}")
        console.print(history(spark, f"{pipeline.lake}/mirrors/shop/{MIRROR}"))
    return code


if __name__ == "__main__":
    sys.exit(main())
