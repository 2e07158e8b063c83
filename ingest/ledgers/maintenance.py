"""Maintenance of a lake: compact small files, delete unreferenced files, drop old messages.

Arrow joins files (`ingest.tables.compaction`) while runs go on; Spark does what Arrow does not. Files of mirrors with
``cluster_by:`` are ordered by these columns (Z-order), so that queries on them read few files; this needs no feature of
the table, so that every reader and writer of a mirror still opens it.

Nothing here changes a query's result. Files that time travel needs are kept for the retention period (`horizon_days` of
the pipeline file, set in each table as a property, which VACUUM obeys). Receipts are kept forever. Messages are dropped
only after silver has decoded them and if no open reject points at them.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.errors import IngestError
from ingest.ledgers import histories
from ingest.ledgers.mirrors import Clusters, known
from ingest.ledgers.rejects import PLACE, still_open
from ingest.spark.deferred import cores
from ingest.spark.pace import pace
from ingest.spark.session import new_session
from ingest.spark.settings import USER_METADATA
from ingest.store import faults
from ingest.store.names import literal, quoted
from ingest.tables import commits, compaction, delta, staging
from ingest.tables.compaction import JOINED_FILE, SMALL_FILE, Turn
from ingest.tables.json_cells import list_in
from ingest.tables.lake import Lake, Tell
from ingest.tables.schemas import BRONZE, BY_NAME
from ingest.tables.tables import RESTORE

THREADS = 3
NEW_FILES = 10  # files are ordered again when one byte of so many is in a new file
WITH_STATISTICS = 32  # columns of which Delta keeps statistics, unless a table says otherwise
_HIDDEN, _FEED = (
    ("_", "."),
    "_change_data",
)  # names that VACUUM passes over, and the folder of Delta's own change feed
_RETENTION, _DAYS = "delta.deletedFileRetentionDuration", re.compile(r"interval (\d+) days?")
_LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"  # VACUUM starts 10,000 tasks if not set
_OPTIMIZE = {
    "spark.databricks.delta.optimize.minFileSize": str(SMALL_FILE),
    "spark.databricks.delta.optimize.maxFileSize": str(JOINED_FILE),
}


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
    refused: str = ""  # why its files are not in shape, or not ordered as the pipeline file says

    def refuse(self, why: str) -> None:
        """Add why its files are not in shape."""
        sentences = (self.refused, f"{self.table} is not in shape: {why}.")
        self.refused = " ".join(dict.fromkeys(filter(None, sentences)))


def cleaning_session(lake: Lake, settings: Mapping[str, str]) -> SparkSession:
    """A session whose VACUUM uses all cores, with further settings."""
    session = new_session(lake.spark)
    vacuum = {
        _LISTING: str(cores(lake.spark)),
        "spark.databricks.delta.vacuum.parallelDelete.enabled": "true",
        # two commits that only tell of it would overtake the batches of runs that go on meanwhile
        "spark.databricks.delta.vacuum.logging.enabled": "false",
    }
    for name, value in (vacuum | dict(settings)).items():
        session.conf.set(name, value)
    return session


def maintain(
    lake: Lake,
    names: Iterable[str],
    *,
    bronze_before: dt.date | None = None,
    vacuum: bool = True,
    clusters: Mapping[str, Clusters] = MappingProxyType({}),
    turn: Turn = nullcontext,
    tell: Tell = lambda _table, _step: None,
) -> list[Kept]:
    """Maintain tables.

    Args:
        lake: the lake.
        names: the tables, by their names under the lake.
        bronze_before: drop messages that landed before this day and are no longer needed.
        vacuum: delete files that no retained version needs.
        clusters: the order of some tables' files.
        turn: holds the lake's lock; not given by a caller who holds it all the time. Only what Spark alone does to files takes
            longer than a moment with it.
        tell: called with the table and the step that begins.
    """
    with turn():
        staging.clean(lake)
    upkeep = _Upkeep(lake, turn, tell)
    for name in names:
        upkeep.go_on(partial(upkeep.look, clusters.get(name, Clusters())), name)
    if BRONZE.name in upkeep.orders and bronze_before is not None:
        tell(BRONZE.name, "dropping old messages")
        with turn():
            upkeep.go_on(partial(upkeep.drop_messages, bronze_before), BRONZE.name)
    left = upkeep.join()
    with ThreadPoolExecutor(THREADS, thread_name_prefix="maintain") as pool:
        with turn() if left else nullcontext():
            list(pool.map(partial(upkeep.go_on, upkeep.join_by_spark), left))
        list(pool.map(partial(upkeep.go_on, partial(upkeep.clean, vacuum=vacuum)), upkeep.orders))
    return list(upkeep.done.values())


@dataclass(frozen=True, slots=True)
class _Upkeep:
    """The steps of maintenance, and what they have come to so far, by table."""

    lake: Lake
    turn: Turn
    tell: Tell
    done: dict[str, Kept] = field(default_factory=dict)
    orders: dict[str, Clusters] = field(default_factory=dict)  # of the files of tables that are there
    met: dict[str, str] = field(default_factory=dict)  # what has kept Arrow from joining a table

    def go_on(self, step: Callable[[str], None], name: str) -> None:
        """Do a step of a table's; a fault of its files is said, and the other tables are kept."""
        try:
            step(name)
        except Exception as error:
            if faults.fault(error) is None and not isinstance(error, IngestError):
                raise
            said, without = _said(self.lake, name, error).rstrip("."), self.met.get(name, "")
            also = "" if without in said else f" (without Spark: {without})"
            self.done.setdefault(name, Kept(name)).refuse(f"{said}{also}")

    def look(self, order: Clusters, name: str) -> None:
        """Take note of a table that is there."""
        if self.lake.snapshot(name).exists:
            self.orders[name] = order
            self.done[name] = Kept(name, refused=order.refused)

    def drop_messages(self, before: dt.date, name: str) -> None:
        """Drop bronze's messages that landed before a day."""
        self.done[name].messages = _drop(self.lake, _session(self.lake), before)

    def join(self) -> list[str]:
        """Join the small files of tables without an order by Arrow; gives the tables that are left to Spark."""
        plain = [name for name, order in self.orders.items() if not order.columns]
        # in a store the lock takes longer than the commit, of which the log admits one
        joined = compaction.join(
            self.lake, plain, self.turn if self.lake.is_folder else nullcontext, self.tell
        )
        self.met.update(joined.met)
        for name, (files, into) in joined.done.items():
            self.done[name].joined, self.done[name].into = files, into
        for name in joined.full:
            self.done[name].refuse(joined.met[name])
        return [name for name in self.orders if name not in joined.done]

    def join_by_spark(self, name: str) -> None:
        """Order a table's files, or join them by Spark."""
        _join_by_spark(self.lake, name, self.orders[name].columns, self.done[name], self.tell)

    def clean(self, name: str, *, vacuum: bool) -> None:
        """Drop old entries of a table's log, and dead files if that is asked for."""
        clean_log(self.lake, name)
        if vacuum and may_have_dead_files(self.lake, name):
            self.tell(name, "deleting dead files")
            # before a session starts: a table that Spark may not open needs none
            table = self.lake.named(name)
            self.done[name].deleted = _vacuum(_session(self.lake, name), table)


def _said(lake: Lake, name: str, error: Exception) -> str:
    """What keeps a table from being kept in shape; of damage to its files also what makes it whole again."""
    if not faults.damaged(error):
        return faults.said(error)
    if name in BY_NAME:
        return f"{faults.said(error)}; {RESTORE}"
    with suppress(Exception):  # the ledger may be damaged, too
        for mirror in known(lake).values():
            if name in (mirror.path, histories.path_of(mirror)):
                return faults.of_mirror(error, lake, mirror.name, name)
    return faults.said(error)


def _session(lake: Lake, name: str = BRONZE.name) -> SparkSession:
    session = cleaning_session(lake, {**_OPTIMIZE, USER_METADATA: lake.metadata()})
    pace(session, 0, lake.snapshot(name).known_size)
    return session


def _join_by_spark(lake: Lake, name: str, columns: tuple[str, ...], done: Kept, tell: Tell) -> None:
    """Let OPTIMIZE order a table's files, or join those that Arrow does not write."""
    table = lake.named(name)
    session = _session(lake, name)
    with lake.spark_writes(name):
        if columns and (why := _unordered(lake, session, name, columns)):
            tell(name, why)
            _join(session, f"{table} ZORDER BY ({', '.join(map(quoted, columns))})", done)
        else:
            tell(name, "joining small files")
            _join(session, table, done)


def clean_log(lake: Lake, name: str) -> None:
    """Drop the entries of a table's log that its retention allows; Spark cleans the logs that it alone writes.

    Spark does so at its own commits, and a mirror that is folded by Arrow may never see one.
    """
    if lake.writes(BY_NAME[name]) if name in BY_NAME else lake.takes_commits:
        commits.clean(lake.path(name))


def _join(session: SparkSession, table: str, done: Kept) -> None:
    """Run OPTIMIZE, which also rewrites files with many deleted rows; a compact table is not touched."""
    row = session.sql(f"OPTIMIZE {table}").first()
    if row is not None:
        done.joined, done.into = row["metrics"]["numFilesRemoved"], row["metrics"]["numFilesAdded"]


def _unordered(lake: Lake, session: SparkSession, name: str, columns: tuple[str, ...]) -> str:
    """Why a table's files are ordered again, as a step's name; empty if less than a tenth of them is new since then."""
    snapshot = lake.snapshot(name)
    last = _ordered(session, lake.named(name), columns)
    if last is not None:
        former = session.read.format("delta").option("versionAsOf", last).load(lake.path(name))
        before = {file.rpartition("/")[2] for file in former.inputFiles()}
        new = sum(file.size for file in snapshot.files if file.path.rpartition("/")[2] not in before)
        if new * NEW_FILES <= snapshot.known_size:
            return ""
    if any(snapshot.columns.index(column) >= WITH_STATISTICS for column in columns):
        kept = dict.fromkeys((*columns, *snapshot.columns))
        listed = ",".join(quoted(file) for file in list(kept)[:WITH_STATISTICS])
        session.sql(
            f"ALTER TABLE {lake.named(name)} SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = {literal(listed)})"
        )
    return f"ordering files by {', '.join(columns)}"


def _ordered(session: SparkSession, table: str, columns: tuple[str, ...]) -> int | None:
    """The version in which a table's files were last ordered, if it was by these columns and can still be read."""
    for row in session.sql(f"DESCRIBE HISTORY {table}").where("operation = 'OPTIMIZE'").collect():
        by = list_in(row["operationParameters"].get("zOrderBy"))
        if by:
            return int(row["version"]) if tuple(by) == columns else None
    return None


def may_have_dead_files(lake: Lake, name: str) -> bool:
    """False if VACUUM would delete nothing from a table: asking the log and the folder takes no Spark."""
    if not lake.is_folder:
        return True
    state, folder = lake.snapshot(name), Path(lake.path(name))
    interval = state.configuration.get(_RETENTION, "interval 7 days")
    days = _DAYS.fullmatch(interval.strip())
    if days is None or state.physical:  # a folder of a partition may have any name
        return True
    since = time.time() - 86400 * int(days[1])
    needed = (*state.files, *delta.removed_since(str(folder), state.version, int(since * 1000)))
    named = {place for file in needed for place in file.places}
    for path, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if not each.startswith(_HIDDEN) or each == _FEED]
        for file in files:
            whole = Path(path, file)
            if (
                not file.startswith(_HIDDEN)
                and str(whole.relative_to(folder)) not in named
                and whole.stat().st_mtime < since
            ):
                return True
    return False


def _vacuum(session: SparkSession, table: str) -> int:
    """Delete files older than the table's own retention, and return their number."""
    files = session.sql(f"VACUUM {table} DRY RUN").count()
    if files:
        run_vacuum(session, table)
    return files


def run_vacuum(session: SparkSession, table: str, retain: str = "") -> None:
    """Run VACUUM, without its count of files: Delta prints that to this thread's console of Scala, past every option."""
    jvm: Any = session._jvm
    console = getattr(getattr(jvm, "scala.Console$"), "MODULE$")
    before = console.out()
    console.setOutDirect(jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream()))
    try:
        session.sql(f"VACUUM {table} {retain}").collect()
    finally:
        console.setOutDirect(before)


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
