"""The key checks of a batch find the same however a mirror's keys are counted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ingest.config.model import TableRule
from ingest.quality import key_checks, key_sql
from ingest.quality.ledgers import read
from ingest.quality.subjects import survey
from tests.gold.depot import Depot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.e2e]
MOVED = {"id": "9"}


@pytest.fixture
def depot(spark: SparkSession, tmp_path: Path) -> Depot:
    """A mirror of nine rows."""
    from ingest.run import Warm

    made = Depot(spark, tmp_path, Warm(), TableRule("yard.*"))
    for key in range(1, 10):
        made.row(id=str(key), n="0")
    assert ("done", "") == made.run()
    return made


def test_large_mirrors_are_checked_alike(depot: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is quick on a large table must see what is seen on a small one."""
    for key in range(1, 6):
        depot.row("UPDATE", {"n": "0"}, id=str(key), n="1")
    depot.row("DELETE", id="6", n="0").row("DELETE", id="7", n="0").row("UPDATE", MOVED, id="10", n="0")
    assert ("done", "") == depot.run()
    lake = depot.lake()
    mirror = lake.read("mirrors/yard/depot")
    broken = mirror.where("id NOT IN (2, 3)").collect()
    broken += [(1, 1), (6, 0), (9, 0), (None, 4), (8, 0)]  # doubled, ghosts, empty; the last is not touched
    depot.spark.createDataFrame(broken, mirror.schema).write.format("delta").mode("overwrite").save(
        lake.path("mirrors/yard/depot")
    )

    def numbers() -> dict[str, int]:
        subjects = survey(lake, read(lake, 1, 2).lanes).subjects
        assert [True] == [one.size > 0 for one in subjects]
        [counted] = key_checks.count(lake, subjects, 1).values()
        return counted.numbers | {
            f"{name}: {each}": 1 for name, some in counted.failing.items() for each in some
        }

    small = numbers()
    monkeypatch.setattr(key_sql, "LARGE", 1)
    large = numbers()
    assert {"key_not_null": 1, "missing_rows": 2, "ghost_rows": 2} == {
        name: small[name] for name in ("key_not_null", "missing_rows", "ghost_rows")
    }
    assert 2 == small["key_unique"]
    # of keys that the batch did not touch, none can be doubled by it
    assert small | {"key_unique": 1} == large


def test_few_changes_are_checked_alike_without_a_job(depot: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is quick for a small batch must count what Spark counts for a large one."""
    depot.row("UPDATE", {"n": "0"}, id="1", n="1").row("DELETE", id="6", n="0")
    depot.row("UPDATE", MOVED, id="10", n="0").row(id="6", n="2")
    assert ("done", "") == depot.run()
    lake = depot.lake()

    def numbers(since: int) -> dict[str, int]:
        [counted] = key_checks.count(lake, survey(lake, read(lake, since, 2).lanes).subjects, since).values()
        return counted.numbers

    quick = [numbers(since) for since in (0, 1)]
    monkeypatch.setattr(key_checks, "session", None)
    assert quick == [numbers(since) for since in (0, 1)]  # no session was asked for
    monkeypatch.undo()
    monkeypatch.setattr(key_checks, "sound", lambda _lake, _sides: {})
    assert quick == [numbers(since) for since in (0, 1)]
    assert [9, 9] == [one["rows"] for one in quick]
