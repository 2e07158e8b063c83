"""Tune Spark to the size of a batch: few rows are interpreted by one task, many are compiled and use all cores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ingest.spark.deferred import has_started
from ingest.spark.settings import COMPILED, INTERPRETED, PACED, PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW = 5_000  # rows
SMALL = 1 << 19  # bytes of a table that may be read together with few rows


def pace(spark: SparkSession, rows: int, size: int = 0) -> None:
    """Interpret the next queries if they are small, compile them if they are large; only in our own session on one
    machine.

    Args:
        spark: the session.
        rows: approximate number of rows that the next queries process.
        size: bytes of the tables that they read.
    """
    if has_started(spark) and _is_ours(spark):
        for name, value in (INTERPRETED if rows <= FEW and size <= SMALL else COMPILED).items():
            spark.conf.set(name, value)


def narrow(spark: SparkSession, rows: int, size: int) -> None:
    """Shuffle few rows with one task instead of one per core; only in our own session on one machine.

    Args:
        spark: the session.
        rows: approximate number of rows of the next queries.
        size: bytes of the table that they are joined with: it is shuffled, too.
    """
    if rows <= FEW and size <= SMALL and _is_ours(spark):
        cores = str(spark.sparkContext.defaultParallelism)
        if spark.conf.get(PARTITIONS) == cores:  # otherwise they are the user's settings
            spark.conf.set(PARTITIONS, "1")


@contextmanager
def paced(spark: SparkSession, rows: int, size: int = 0) -> Iterator[None]:
    """`pace` for one query; the others keep their settings."""
    ours = has_started(spark) and _is_ours(spark)  # one that starts in this query has its first settings
    before = {name: spark.conf.get(name) or "" for name in COMPILED} if ours else {}
    pace(spark, rows, size)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def _is_ours(spark: SparkSession) -> bool:
    """True for a session whose settings for one small machine come from here, not from the user."""
    return spark.conf.get(PACED, "") == "true"
