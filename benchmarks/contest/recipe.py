"""The documented recipe: ``from_json``, ``foreachBatch``, the newest change of each key by ``row_number``, MERGE.

As Delta's own documentation shows it, with nothing added: no bronze, no log of changes, no order guard.  The option
``settings`` holds what is tuned.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.contest.steps import Fold, Script, perform

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MEMORY = "4g"  # the default of 1 GiB is not enough for it


@lru_cache(maxsize=1)
def session(settings: str) -> SparkSession:
    """A plain session with Delta, as its documentation sets it up; the jars are those of the product."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[*]")
    for name, value in {**delta_settings(), **pairs(settings)}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def delta_settings(before: Iterable[Path] = ()) -> dict[str, str]:
    """What a plain session with Delta is set to; folders with classes may come before the jars."""
    from ingest.spark import jars
    from ingest.spark.java import find, launcher

    os.environ["JAVA_HOME"] = str(launcher(find()))
    return {
        "spark.driver.extraClassPath": os.pathsep.join(map(str, [*before, *jars.require("delta")])),
        "spark.driver.memory": MEMORY,
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalogImplementation": "in-memory",
    }


def pairs(settings: str) -> dict[str, str]:
    """Settings of Spark from words like ``a.b=c``."""
    return dict(word.split("=", 1) for word in shlex.split(settings))


@contextmanager
def opened(folder: Path, script: Script, idle: bool) -> Iterator[Fold]:
    """A pass over copied tables, with a checkpoint of its own."""
    spark = session(script.options.get("settings", ""))
    landing = folder / "landing"
    landing.mkdir()

    def each(batch: DataFrame, number: int) -> None:
        for table, columns in script.columns.items():
            upsert(spark, batch, folder / table, table, columns)

    def fold(files: list[Path]) -> None:
        for file in files:
            os.link(file, landing / file.name)
        stream = spark.readStream.text(str(landing)).writeStream.foreachBatch(each)
        stream = stream.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
        stream.start().awaitTermination()

    yield fold


def upsert(spark: SparkSession, batch: DataFrame, path: Path, table: str, columns: dict[str, str]) -> None:
    """One table's changes of a batch into it."""
    from delta.tables import DeltaTable
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    # the values are quoted (``"id":"7"``), and `from_json` takes no quoted BIGINT: texts, then casts
    row = ", ".join(f"`{name}`: {kind if _typed(kind) else 'STRING'}" for name, kind in columns.items())
    schema = f"id BIGINT, `table` STRING, type STRING, data ARRAY<STRUCT<{row}>>"
    newest = Window.partitionBy("key").orderBy(F.col("sequence").desc())
    changes = (
        batch.select(F.from_json("value", schema).alias("message"))
        .where(F.col("message.table") == table)
        .select("message.type", F.col("message.id").alias("sequence"), F.explode("message.data").alias("row"))
        .withColumn("key", F.col("row.id"))
        .withColumn("place", F.row_number().over(newest))
        .where("place = 1")
        .select("type", *[F.col(f"row.{name}").cast(kind).alias(name) for name, kind in columns.items()])
    )
    values: dict[str, str | Column] = {name: f"s.{name}" for name in columns}
    (
        DeltaTable.forPath(spark, str(path))
        .alias("t")
        .merge(changes.alias("s"), "t.id = s.id")
        .whenMatchedDelete("s.type = 'DELETE'")
        .whenMatchedUpdate(set=values)
        .whenNotMatchedInsert("s.type <> 'DELETE'", values=values)
        .execute()
    )


def _typed(kind: str) -> bool:
    return kind.startswith("DECIMAL")  # quoted or not, these are read exactly


if __name__ == "__main__":
    perform(opened)
