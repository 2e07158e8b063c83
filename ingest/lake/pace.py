"""How Spark runs what comes next: few rows interpreted and by one task, many compiled and by all cores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ingest.lake.delta import Snapshot
from ingest.lake.settings import COMPILED, INTERPRETED, PACED, PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW = 5_000  # rows
SMALL = 1 << 19  # bytes of a table that may be read along with few rows


def extent(before: Snapshot) -> int:
    """Bytes of a table's files; where the log does not tell them at once, too many to be called small."""
    if before.size is None:
        return SMALL + 1 if before.exists else 0
    return before.size


def pace(spark: SparkSession, rows: int, size: int = 0) -> None:
    """Have what follows interpreted if it is little, compiled if it is much; in a session of our own on one machine.

    Args:
        spark: the session.
        rows: how many rows the next queries go through, about.
        size: bytes of the tables that they meet.
    """
    if _is_ours(spark):
        for name, value in (INTERPRETED if rows <= FEW and size <= SMALL else COMPILED).items():
            spark.conf.set(name, value)


def narrow(spark: SparkSession, rows: int, size: int) -> None:
    """Have few rows exchanged by one task, not by one for each core; in a session of our own on one machine.

    Args:
        spark: the session.
        rows: how many rows the next queries bring, about.
        size: bytes of the table that they meet: it is exchanged, too.
    """
    if rows <= FEW and size <= SMALL and _is_ours(spark):
        cores = str(spark.sparkContext.defaultParallelism)
        if spark.conf.get(PARTITIONS) == cores:  # else they are the user's own
            spark.conf.set(PARTITIONS, "1")


@contextmanager
def paced(spark: SparkSession, rows: int, size: int = 0) -> Iterator[None]:
    """`pace` for one query among others, which go on as they were."""
    before = {name: spark.conf.get(name) or "" for name in COMPILED} if _is_ours(spark) else {}
    pace(spark, rows, size)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def _is_ours(spark: SparkSession) -> bool:
    """True for a session whose settings for one small machine were made here, and not by the user."""
    return spark.conf.get(PACED, "") == "true"
