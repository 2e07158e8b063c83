"""Start tables for the peers, and the comparison of every contestant's tables with the expected ones.

    python -m benchmarks.contest.tables write  JOB.json      # Delta tables from Parquet files
    python -m benchmarks.contest.tables compare JOB.json    # prints one JSON line for each claim
    python -m benchmarks.contest.tables cells   JOB.json    # and one for each cell

A table's fingerprint is its count of rows and the exclusive or of all rows' hashes, each row as the texts of its
columns: the order does not matter, and every digit does.  Where it differs, the rows are compared one by one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.contest.auto_cdc import OWN

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FILES = 2  # of a start table


def main() -> None:
    """Do one job in a session of its own."""
    from ingest.spark.session import session, stop

    job = json.loads(Path(sys.argv[2]).read_text("utf-8"))
    spark = session("tables", profile="batch")
    try:
        if sys.argv[1] == "cells":
            for one in job:
                print(json.dumps(cell(spark, **one)), flush=True)
        elif sys.argv[1] == "write":
            for one in job:
                write(spark, **one)
        else:
            known: dict[str, list[Any]] = {}
            for one in job:
                print(json.dumps(compare(spark, known, **one)), flush=True)
    finally:
        stop(spark)


def write(spark: SparkSession, source: str, target: str, properties: dict[str, str]) -> None:
    """A Delta table with the rows of a Parquet file."""
    rows = spark.read.parquet(source).repartitionByRange(FILES, "id")
    rows.write.format("delta").options(**properties).save(target)


def compare(
    spark: SparkSession, known: dict[str, list[Any]], label: str, kind: str, path: str, expected: str
) -> dict[str, Any]:
    """What is wrong with one table: nothing, or so many rows, and where."""
    if expected not in known:
        known[expected] = fingerprint(spark.read.parquet(expected))
    try:
        found = of_user(spark.read.format(kind).load(path))
        same = fingerprint(found) == known[expected]
        wrong = {} if same else differences(found, spark.read.parquet(expected))
    except Exception as error:
        return {"label": label, "same": False, "wrong": {}, "error": f"{type(error).__name__}: {error}"[:300]}
    return {"label": label, "same": same, "wrong": wrong, "error": ""}


def of_user(frame: DataFrame) -> DataFrame:
    """A table without the columns that a contestant adds for itself."""
    return frame.select([name for name in frame.columns if not name.startswith(OWN)])


def cell(spark: SparkSession, label: str, kind: str, path: str, rejects: str) -> dict[str, Any]:
    """The text of a table's cell in the row 1, and of the reject in its place."""
    from pyspark.sql import functions as F

    try:
        row = spark.read.format(kind).load(path).where("id = 1").select(_text("value")).first()
    except Exception as error:
        return {"label": label, "error": f"{type(error).__name__}: {error}"[:200]}
    refused = None
    if rejects and Path(rejects).is_dir():
        kept = spark.read.format("delta").load(rejects).where(F.col("table") == label).select("raw").first()
        refused = kept[0] if kept else None
    return {"label": label, "found": row[0] if row else None, "refused": refused}


def fingerprint(frame: DataFrame) -> list[Any]:
    """Count and hash of a table's rows."""
    from pyspark.sql import functions as F

    texts = F.concat_ws("\x1f", *[F.coalesce(_text(name), F.lit("\x1e")) for name in sorted(frame.columns)])
    return list(frame.agg(F.count("*"), F.bit_xor(F.xxhash64(texts))).first() or ())


def differences(found: DataFrame, expected: DataFrame) -> dict[str, int]:
    """Rows that are missing, that should not be there, and cells that differ, column by column."""
    from pyspark.sql import functions as F

    names = [name for name in expected.columns if name != "id"]
    left = found.select("id", *[_text(name).alias(f"f_{name}") for name in names], F.lit(True).alias("f"))
    right = expected.select("id", *[_text(name).alias(f"e_{name}") for name in names], F.lit(True).alias("e"))
    both = F.col("f") & F.col("e")
    counts = [
        F.count_if(F.col("f").isNull()).alias("rows missing"),
        F.count_if(F.col("e").isNull()).alias("rows too many"),
        *[
            F.count_if(both & ~F.col(f"f_{name}").eqNullSafe(F.col(f"e_{name}"))).alias(name)
            for name in names
        ],
    ]
    row = left.join(right, "id", "full").agg(*counts).first()
    return {name: count for name, count in row.asDict().items() if count} if row else {}


def _text(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(name).cast("string")


if __name__ == "__main__":
    main()
