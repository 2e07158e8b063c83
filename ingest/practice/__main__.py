"""The training run of the class archive: two small batches of the product's own work, and a query compiled.

Run as ``python -m ingest.practice ARCHIVE``; Java writes the archive when it ends, so this waits for that.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from ingest.config import load
from ingest.run import run
from ingest.spark.pace import FEW, pace
from ingest.spark.session import session

_HERE = Path(__file__).parent
_COMPILED = """
    SELECT name, sum(price) AS price, row_number() OVER (PARTITION BY name ORDER BY count(*)) AS rank
    FROM delta.`{table}` WHERE id > 3 GROUP BY name
"""


def practise(spark: SparkSession, folder: Path) -> None:
    """Make mirrors from the first file, change them by the second, and look at one as a user would."""
    for name in ("pipeline.yaml", "first.jsonl", "second.jsonl"):
        shutil.copy(_HERE / name, folder / name)
        if name.endswith(".jsonl"):
            run(spark, load(folder / "pipeline.yaml"))
    pace(spark, FEW + 1)
    spark.sql(_COMPILED.format(table=folder / "lake" / "mirrors" / "practice" / "items")).collect()


def main(archive: str) -> None:
    """Practise once and end Java, which then writes the archive."""
    spark = session("practice", conf={"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={archive}"})
    with tempfile.TemporaryDirectory() as folder:
        practise(spark, Path(folder))
    spark.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    main(sys.argv[1])
