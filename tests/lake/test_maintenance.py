"""Upkeep: fewer files, the same answers, and nothing dropped that something needs."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from ingest.errors import IngestError
from ingest.ledgers.maintenance import maintain, run_vacuum
from ingest.ledgers.mirrors import Clusters
from ingest.result import STAGES
from ingest.run import run
from ingest.silver.rebuild import rebuild
from ingest.tables.lake import Lake
from ingest.tables.schemas import ALL
from tests.lakes import Depot, counted

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

BINS = "mirrors/depot/bins"
NAMES = [*(schema.name for schema in ALL), BINS]


@pytest.fixture(scope="module")
def depot(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Depot:
    """A lake of three batches; the last of them is checked."""
    made = Depot(tmp_path_factory.mktemp("upkeep"))
    for stages in (STAGES[:3], STAGES[:3], STAGES):
        made.grow()
        run(spark, made.pipeline, stages)
    return made


def test_joined_files_say_the_same(spark: SparkSession, depot: Depot) -> None:
    """Maintenance that changes an answer, or keeps what time travel was promised from being read.

    OPTIMIZE commits in a mirror must not look like a stranger's either, nor hide how far a run has come. What no commit
    names is deleted, and nothing else.
    """
    lake = Lake(spark, depot.pipeline)
    before = counted(lake), depot.found(spark)
    oldest = spark.read.format("delta").option("versionAsOf", 0).load(lake.path(BINS)).collect()
    orphan = Path(lake.path("books"), "of-a-commit-that-lost-its-race.zstd.parquet")
    orphan.write_bytes(b"")
    os.utime(orphan, (0, 0))
    done = {one.table: one for one in maintain(lake, NAMES)}
    assert done["books"].joined >= 3
    assert 1 == done["books"].into
    assert {"books": 1} == {one.table: one.deleted for one in done.values() if one.deleted}
    assert not orphan.exists()
    assert before == (counted(lake), depot.found(spark))
    assert oldest == spark.read.format("delta").option("versionAsOf", 0).load(lake.path(BINS)).collect()
    newest = spark.sql(f"DESCRIBE HISTORY {lake.named('books')}").where("operation = 'OPTIMIZE'").first()
    assert newest is not None
    assert newest["engineInfo"].startswith("ingest")
    assert str(done["books"].joined) == newest["operationMetrics"]["numRemovedFiles"]
    assert not any(one.joined for one in maintain(lake, ["books", "changes", BINS], vacuum=False))
    assert run(spark, depot.pipeline).batch is None
    depot.grow()
    result = run(spark, depot.pipeline)
    assert (4, 0) == (result.batch, result.exit_code)


def test_files_are_ordered_by_the_columns_of_the_rule(spark: SparkSession, depot: Depot) -> None:
    """Files in the order of their batches make every query read all; an order that costs readers or writers is no gain."""
    lake = Lake(spark, depot.pipeline)
    before, protocol = depot.found(spark), DeltaTable(lake.path(BINS)).protocol()
    order = {BINS: Clusters(("word",)), "books": Clusters(refused="no")}
    for rewritten in (True, False):
        done = {one.table: one for one in maintain(lake, ["books", BINS], vacuum=False, clusters=order)}
        assert (rewritten, "no") == (bool(done[BINS].joined), done["books"].refused)
        assert "" == done[BINS].refused
    assert [1] == [one.into for one in maintain(lake, [BINS], clusters={BINS: Clusters(("word", "id"))})]
    assert before == depot.found(spark)
    assert protocol == DeltaTable(lake.path(BINS)).protocol()
    depot.grow()
    result = run(spark, depot.pipeline)
    assert {""} == {one.why_merge for one in result.mirrors if one.path == BINS}


def test_a_table_whose_columns_have_other_names_in_files_is_joined_by_spark(
    spark: SparkSession, depot: Depot, tmp_path: Path
) -> None:
    """A file with the columns' own names would be read as NULL."""
    shutil.copytree(depot.folder, tmp_path / "copy")
    copy = Depot(tmp_path / "copy")
    lake = Lake(spark, copy.pipeline)
    spark.sql(f"ALTER TABLE {lake.named(BINS)} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    spark.sql(f"INSERT INTO {lake.named(BINS)} SELECT * FROM {lake.named(BINS)} LIMIT 1")
    before = lake.read(BINS).collect()
    [done] = maintain(lake, [BINS], vacuum=False)
    assert (True, 1) == (done.joined > 1, done.into)
    assert sorted(map(str, before)) == sorted(map(str, lake.read(BINS).collect()))


def test_dead_files_are_deleted_after_the_horizon(spark: SparkSession, depot: Depot) -> None:
    """A killed write leaves files that no version names: they would stay for ever."""
    lake = Lake(spark, depot.pipeline)
    dead = Path(lake.path(BINS)) / "part-00000-dead.zstd.parquet"
    dead.write_bytes(b"PAR1")
    assert [0] == [one.deleted for one in maintain(lake, [BINS])]
    month_ago = time.time() - 30 * 86400
    os.utime(dead, (month_ago, month_ago))
    version = lake.snapshot(BINS).version
    assert [1] == [one.deleted for one in maintain(lake, [BINS])]
    assert not dead.exists()
    assert version == lake.snapshot(BINS).version, "a commit of VACUUM's would overtake a run's"


def test_vacuum_says_nothing_on_the_terminal(spark: SparkSession, depot: Depot) -> None:
    """Delta would print its own line even with --quiet; other output to the console must still appear."""
    jvm: Any = spark._jvm
    console = getattr(getattr(jvm, "scala.Console$"), "MODULE$")
    heard, before = jvm.java.io.ByteArrayOutputStream(), console.out()
    console.setOutDirect(jvm.java.io.PrintStream(heard))
    try:
        run_vacuum(spark, Lake(spark, depot.pipeline).named(BINS))
        console.println("after")
    finally:
        console.setOutDirect(before)
    assert "after\n" == heard.toString()


def test_messages_go_only_when_nothing_needs_them(spark: SparkSession, tmp_path: Path) -> None:
    """A dropped message that was still rejected could never be replayed, one not yet decoded is lost."""
    depot = Depot(tmp_path)
    depot.grow()
    tomorrow = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=1)
    run(spark, depot.pipeline, ["bronze"])
    lake = Lake(spark, depot.pipeline)
    assert [0] == [one.messages for one in maintain(lake, ["bronze"], bronze_before=tomorrow)]
    run(spark, depot.pipeline, ["silver"])
    # a reject waits
    assert [0] == [one.messages for one in maintain(lake, ["bronze"], bronze_before=tomorrow)]

    whole = Depot(tmp_path / "whole")
    whole.grow(broken=False)
    run(spark, whole.pipeline, STAGES[:3])
    lake = Lake(spark, whole.pipeline)
    assert [whole.lines] == [
        one.messages for one in maintain(lake, ["bronze"], bronze_before=tomorrow, vacuum=False)
    ]
    assert whole.expected() == whole.found(spark)
    with pytest.raises(IngestError, match="mirrors can still be rebuilt from silver"):
        rebuild(lake, 2, dry_run=True)
    assert run(spark, whole.pipeline).batch is None  # the receipts know what was read
