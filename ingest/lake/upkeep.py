"""Maintenance of a lake: compact small files, delete unreferenced files, drop old messages.

Nothing here changes a query's result. Files that time travel needs are kept for the retention period (`horizon_days` of
the pipeline file, set in each table as a property, which VACUUM obeys). Receipts are kept forever. Messages are dropped
only after silver has decoded them and if no open reject points at them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.lake import commits
from ingest.lake.lake import Lake
from ingest.lake.names import literal
from ingest.lake.pace import pace
from ingest.lake.rejects import PLACE, still_open
from ingest.lake.schemas import BRONZE, BY_NAME
from ingest.lake.session import new_session

THREADS = 3
SMALL_FILE, JOINED_FILE = 32 << 20, 128 << 20  # bytes: smaller files are compacted, up to this size
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"  # VACUUM starts 10,000 tasks if not set
_OPTIMIZE = {
    "spark.databricks.delta.optimize.minFileSize": str(SMALL_FILE),
    "spark.databricks.delta.optimize.maxFileSize": str(JOINED_FILE),
    "spark.databricks.delta.vacuum.parallelDelete.enabled": "true",
}
Tell = Callable[[str, str], None]


@dataclass(slots=True)
class Kept:
    """What was done to one table."""

    table: str  # its name under the lake
    joined: int = 0  # small files that were compacted
    into: int = 0  # larger files that replaced them
    deleted: int = 0  # dead files
    messages: int = 0  # of bronze, dropped
    changes: int = 0  # of silver, condensed
    keys: int = 0  # of days of bronze, dropped


def maintain(
    lake: Lake,
    names: Iterable[str],
    *,
    bronze_before: dt.date | None = None,
    vacuum: bool = True,
    tell: Tell = lambda _table, _step: None,
) -> list[Kept]:
    """Maintain tables; the caller holds the lake's lock.

    Args:
        lake: the lake.
        names: the tables, by their names under the lake.
        bronze_before: drop messages that landed before this day and are no longer needed.
        vacuum: delete files that no retained version needs.
        tell: called with the table and the step that begins.
    """
    cores = str(lake.spark.sparkContext.defaultParallelism)
    settings = {**_OPTIMIZE, _LISTING: cores, _USER_METADATA: lake.metadata()}

    def one(name: str) -> Kept:
        session = new_session(lake.spark)
        for setting, value in settings.items():
            session.conf.set(setting, value)
        pace(session, 0, lake.snapshot(name).size or 0)
        done = Kept(name)
        if name == BRONZE.name and bronze_before is not None:
            tell(name, "dropping old messages")
            done.messages = _drop(lake, session, bronze_before)
        tell(name, "joining small files")
        _join(session, lake.named(name), done)
        if name in BY_NAME and lake.writes(BY_NAME[name]):  # Spark cleans the logs that it writes
            commits.clean(lake.path(name))
        if vacuum:
            tell(name, "deleting dead files")
            done.deleted = _vacuum(session, lake.named(name))
        return done

    with ThreadPoolExecutor(THREADS, thread_name_prefix="maintain") as pool:
        return list(pool.map(one, [name for name in names if lake.snapshot(name).exists]))


def _join(session: SparkSession, table: str, done: Kept) -> None:
    """Run OPTIMIZE, which also rewrites files with many deleted rows; a compact table is not touched."""
    row = session.sql(f"OPTIMIZE {table}").first()
    if row is not None:
        done.joined, done.into = row["metrics"]["numFilesRemoved"], row["metrics"]["numFilesAdded"]


def _vacuum(session: SparkSession, table: str) -> int:
    """Delete files older than the table's own retention, and return their number."""
    files = session.sql(f"VACUUM {table} DRY RUN").count()
    if files:
        session.sql(f"VACUUM {table}").collect()
    return files


def _drop(lake: Lake, session: SparkSession, before: dt.date) -> int:
    """Drop whole days of messages: partitions, so that no file is rewritten."""
    decoded = lake.decoded()
    messages = lake.read(BRONZE.name).where(F.col("kind") == "message")
    days = {
        row["day"]: row["n"]
        for row in messages.where(F.col("day") < F.lit(before))
        .groupBy("day")
        .agg(F.max("batch").alias("batch"), F.count("*").alias("n"))
        .collect()
        if row["batch"] <= decoded
    }
    waiting = still_open(lake) if days else None
    if waiting is not None:
        rejected = waiting.where(F.col("kind") == "message").select(*PLACE, "batch").distinct()
        needed = messages.join(F.broadcast(rejected), [*PLACE, "batch"], "left_semi").select("day").distinct()
        for row in needed.collect():
            days.pop(row["day"], None)
    if days:
        listed = ", ".join(f"DATE {literal(day.isoformat())}" for day in sorted(days))
        session.sql(f"DELETE FROM {lake.named(BRONZE.name)} WHERE kind = 'message' AND day IN ({listed})")
    return sum(days.values())
