"""Outcomes that Delta's own MERGE applies, where files cannot be or where the pipeline file says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import deltalake
import pytest

from ingest.config.model import TableRule
from ingest.gold.apply import apply_merge
from ingest.gold.plan.results import MirrorCommit
from ingest.run import Warm
from tests.gold.depot import Depot
from tests.gold.test_merge_entry import history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

MIRROR = "lake/mirrors/yard/depot"
FILES, MERGE = "files", "merge"


def depot_of(spark: SparkSession, folder: Path, apply: str = MERGE, **rule: Any) -> Depot:
    """A table of which nothing was said yet, whose rule says how its mirror is written."""
    folder.mkdir(exist_ok=True)
    return Depot(spark, folder, Warm(), TableRule("yard.*", apply=apply, **rule))


def operations(depot: Depot) -> list[tuple[str, bool]]:
    """What the mirror's history says, and whether Delta's own code did it."""
    return [(one["operation"], one["engineInfo"].startswith("Apache-Spark")) for one in history(depot)]


@pytest.mark.e2e
def test_a_mirror_changes_ways_between_batches(spark: SparkSession, tmp_path: Path) -> None:
    """One way's identifiers, statistics or types that the other one does not take would lose or double a batch."""
    random, ways = Random(7), [FILES, MERGE, MERGE, FILES, MERGE, FILES, FILES]
    turning, steady = depot_of(spark, tmp_path / "turning"), depot_of(spark, tmp_path / "steady", FILES)
    there: set[str] = set()
    for way in ways:
        turning.rule = replace(turning.rule, apply=way)
        for _ in range(12):
            key, n = str(random.randrange(9)), str(random.randrange(9))
            kind = (
                "DELETE" if key in there and random.random() < 0.3 else "UPDATE" if key in there else "INSERT"
            )
            (there.discard if kind == "DELETE" else there.add)(key)
            for depot in (turning, steady):
                depot.row(kind, old={"n": "?"} if kind == "UPDATE" else None, id=key, n=n)
        if way == ways[-2]:
            for depot in (turning, steady):
                depot.ddl("ALTER TABLE depot ADD COLUMN w INT DEFAULT 5")
        assert [("done", "")] * 2 == [turning.run(), steady.run()]
        assert turning.rows() == steady.rows(), way
    assert [("CREATE TABLE AS SELECT", False), ("MERGE", True), ("MERGE", True)] == operations(turning)[:3]
    assert {"MERGE"} == {name for name, _ in operations(turning)[1:]} - {"ADD COLUMNS"}


@pytest.mark.slow
def test_truncates_partial_rows_and_statements(spark: SparkSession, tmp_path: Path) -> None:
    """What the outcomes do not say, the MERGE must: which rows go, which cells stay, which columns come."""
    by_merge, by_files = (depot_of(spark, tmp_path / way, way) for way in (MERGE, FILES))
    for depot in (by_merge, by_files):
        for key in "123":
            depot.row("INSERT", id=key, n="1", m="7")
        assert ("done", "") == depot.run()
        depot.ddl("ALTER TABLE depot RENAME COLUMN m TO o").row(
            "UPDATE", old={"n": "1"}, id="1", n="2", o="7"
        )
        assert ("done", "") == depot.run()
        depot.say(isDdl=True, sql="TRUNCATE TABLE depot", type="TRUNCATE").row("INSERT", id="2", n="9", o="8")
        assert ("done", "") == depot.run()
        depot.say(isDdl=True, sql="TRUNCATE TABLE depot", type="TRUNCATE")
        assert ("done", "") == depot.row("INSERT", id="5", n="9", o="8").row(
            "DELETE", id="5", n="9", o="8"
        ).run()
        assert [] == depot.rows()
        assert ("done", "") == depot.row("INSERT", id="6", n="1", o="1").run()
    assert by_merge.rows() == by_files.rows()
    versions = [{one["id"]: one for one in depot.rows()} for depot in (by_merge, by_files)]
    assert (
        versions[0] == versions[1] == {6: {"id": 6, "n": 1, "m": None, "o": 1}}
        or "m" not in by_merge.rows()[0]
    )


def test_no_file_of_outcomes_is_left(spark: SparkSession, tmp_path: Path) -> None:
    """Each batch would leave a copy of its rows in the mirror's folder until the next upkeep."""
    depot = depot_of(spark, tmp_path).row("INSERT", id="1", n="1")
    assert ("done", "") == depot.run()
    assert ("done", "") == depot.row("UPDATE", old={"n": "1"}, id="1", n="2").run()
    assert [] == [one.name for one in (tmp_path / MIRROR).iterdir() if one.name.startswith("parts-")]


def test_a_change_feed_is_merged_and_not_written_as_files(spark: SparkSession, tmp_path: Path) -> None:
    """Files without change data would leave a hole in what `table_changes` gives."""
    depot = depot_of(spark, tmp_path, "", change_feed=True)
    for n in "123":
        assert ("done", "") == depot.row(
            "INSERT" if n == "1" else "UPDATE", id="1", n=n, old={"n": "?"}
        ).run()
    feed = (
        spark.read.option("readChangeFeed", "true")
        .option("startingVersion", 0)
        .format("delta")
        .load(str(tmp_path / MIRROR))
    )
    seen = [(row["_change_type"], row["n"]) for row in feed.sort("_commit_version", "_change_type").collect()]
    assert [
        ("insert", 1),
        ("update_postimage", 2),
        ("update_preimage", 1),
        ("update_postimage", 3),
        ("update_preimage", 2),
    ] == seen
    depot.rule = replace(depot.rule, apply=FILES)
    state, message = depot.row("UPDATE", id="1", n="4", old={"n": "?"}).run()
    assert ("held", True) == (
        state,
        "can only be written by Delta's MERGE, because it has a change feed" in message,
    )
    depot.rule, depot.warm = replace(depot.rule, apply="auto"), Warm()
    assert ("done", "") == depot.run()
    assert [{"id": 1, "n": 4}] == depot.rows()


@pytest.mark.e2e
def test_a_change_feed_that_is_asked_for_later_begins_with_the_next_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The mirror was merged from then on, at the cost of that, and `table_changes` had nothing to read."""
    depot = depot_of(spark, tmp_path, "").row("INSERT", id="1", n="1")
    assert ("done", "") == depot.run()
    began = {}
    for n, on in (("2", True), ("3", True), ("4", False)):
        depot.rule = replace(depot.rule, change_feed=on)
        assert ("done", "") == depot.row("UPDATE", id="1", n=n, old={"n": "?"}).run()
        began[n] = deltalake.DeltaTable(str(tmp_path / MIRROR)).version()
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", began["2"])
    seen = feed.option("endingVersion", began["3"]).load(str(tmp_path / MIRROR))
    images = seen.where("_change_type = 'update_postimage'").sort("_commit_version").collect()
    assert [2, 3] == [row["n"] for row in images]
    assert [{"id": 1, "n": 4}] == depot.rows()
    settings = deltalake.DeltaTable(str(tmp_path / MIRROR)).metadata().configuration
    assert "true" == settings["delta.enableChangeDataFeed"]  # others may read it


@pytest.mark.parametrize("way", [FILES, MERGE])
def test_a_foreign_commit_after_the_plan_is_noticed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """A MERGE takes whatever rows it meets: those of somebody's DELETE would be missing for good, and nobody would know."""
    from ingest.gold.apply import file_commits

    depot = depot_of(spark, tmp_path, way).row("INSERT", id="1", n="1").row("INSERT", id="2", n="1")
    assert ("done", "") == depot.run()
    module, name = (apply_merge, "commit") if way == MERGE else (file_commits, "committed")
    commit = getattr(module, name)

    def late(*given: Any) -> MirrorCommit:
        monkeypatch.undo()
        deltalake.DeltaTable(tmp_path / MIRROR).delete("id = 2")
        found: MirrorCommit = commit(*given)
        return found

    monkeypatch.setattr(module, name, late)
    depot.row("UPDATE", id="1", n="2", old={"n": "1"})
    for _ in range(2):
        state, message = depot.run()
        assert ("held", True) == (state, "was not written by this pipeline (DELETE)" in message), message
        depot.warm = Warm()
        depot.row("UPDATE", id="1", n="3", old={"n": "2"})


def test_a_batch_whose_merge_was_committed_is_not_merged_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that dies right after the commit repeats the batch, whose number the table's log already holds."""
    depot = depot_of(spark, tmp_path).row("INSERT", id="1", n="1")
    assert ("done", "") == depot.run()

    def dies(*given: Any) -> MirrorCommit:
        apply_merge._merged(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(apply_merge, "commit", dies)
    with pytest.raises(KeyboardInterrupt):
        depot.row("UPDATE", id="1", n="2", old={"n": "1"}).row("INSERT", id="2", n="2").run()
    monkeypatch.undo()
    version = depot.lake().snapshot("mirrors/yard/depot").version
    depot.warm = Warm()
    depot.run()
    assert version == depot.lake().snapshot("mirrors/yard/depot").version
    assert [{"id": 1, "n": 2}, {"id": 2, "n": 2}] == depot.rows()
