"""The key checks of a batch find the same however a mirror's keys are counted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ingest.config.model import TableRule
from ingest.gold.plan.steps import steps_of
from ingest.quality import key_checks, key_sides, many_keys
from ingest.quality.key_sides import Side
from ingest.quality.ledgers import read
from ingest.quality.subjects import survey
from ingest.tables.lake import Lake
from tests.gold.depot import Depot
from tests.quality.plain_keys import by_plain_fold

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
        subjects = survey(lake, read(lake, 1, 2).lanes, steps=steps_of(lake)).subjects
        assert [True] == [one.size > 0 for one in subjects]
        [counted] = key_checks.count(lake, subjects, 1).values()
        return counted.numbers | {
            f"{name}: {each}": 1 for name, some in counted.failing.items() for each in some
        }

    small = numbers()
    monkeypatch.setattr(key_sides, "LARGE", 1)
    large = numbers()
    assert {"key_not_null": 1, "missing_rows": 2, "ghost_rows": 2} == {
        name: small[name] for name in ("key_not_null", "missing_rows", "ghost_rows")
    }
    assert 2 == small["key_unique"]
    # of keys that the batch did not touch, none can be doubled by it
    assert small | {"key_unique": 1} == large


def counted_alike(depot: Depot, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """The numbers of all batches and of the last one, which must be those of the plain fold, from files and from Spark's pages."""
    assert ("done", "") == depot.run()
    lake = depot.lake()
    last = lake.decoded()

    def numbers(since: int) -> dict[str, int]:
        subjects = survey(lake, read(lake, since, last).lanes, steps=steps_of(lake)).subjects
        [counted] = key_checks.count(lake, subjects, since).values()
        return counted.numbers

    def plain(since: int) -> dict[str, int]:
        [subject] = survey(lake, read(lake, since, last).lanes, steps=steps_of(lake)).subjects
        return by_plain_fold(lake, Side(lake, subject, since, 0))

    found = [numbers(since) for since in (0, last - 1)]
    assert found == [plain(since) for since in (0, last - 1)]
    monkeypatch.setattr(many_keys, "PAGE", 256)
    monkeypatch.setattr(many_keys, "PAGE_ROWS", 2)
    monkeypatch.setattr(Lake, "is_local", False)
    assert found == [numbers(since) for since in (0, last - 1)]
    return found


def test_few_changes_are_checked_alike_without_a_job(depot: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is quick for a small batch must count what Spark counts for a large one."""
    depot.row("UPDATE", {"n": "0"}, id="1", n="1").row("DELETE", id="6", n="0")
    depot.row("UPDATE", MOVED, id="10", n="0").row(id="6", n="2")
    assert [9, 9] == [one["rows"] for one in counted_alike(depot, monkeypatch)]


def test_late_changes_are_checked_alike_without_a_job(depot: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    """A delete that came before the changes of earlier batches deletes nothing that they inserted."""
    depot.row("DELETE", at=45, id="4", n="0").row("DELETE", at=15, id="5", n="0").row(at=25, id="11", n="3")
    depot.row("UPDATE", {"id": "8"}, at=85, id="12", n="0").row(at=15, id="3", n="7")
    assert [9, 9] == [one["rows"] for one in counted_alike(depot, monkeypatch)]


def test_a_late_truncate_is_checked_alike_without_a_job(
    depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of earlier batches that came after a truncate are those that stay."""
    depot.say(at=55, isDdl=True, sql="TRUNCATE TABLE depot", type="TRUNCATE").row(at=45, id="11", n="3")
    assert [4, 4] == [one["rows"] for one in counted_alike(depot, monkeypatch)]


def test_a_changed_key_is_checked_alike_without_a_job(depot: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows under the older key are not looked for; those of later batches and late ones are."""

    def row(kind: str, at: int = 0, **cells: str) -> None:
        types = dict.fromkeys(cells, "int")
        depot.say(
            at, data=[cells], isDdl=False, mysqlType=types, old=None, pkNames=["id", "n"], sql="", type=kind
        )

    depot.ddl("ALTER TABLE depot DROP PRIMARY KEY, ADD PRIMARY KEY (id, n)")
    row("INSERT", id="1", n="1")
    assert ("done", "") == depot.run()
    row("INSERT", id="1", n="2")
    row("DELETE", at=depot.number - 5, id="1", n="1")
    assert [10, 10] == [one["rows"] for one in counted_alike(depot, monkeypatch)]


def test_a_lost_row_of_a_late_change_is_a_fault(depot: Depot) -> None:
    """A mirror with late changes is sound only if it has their rows."""
    depot.row(at=25, id="11", n="3")
    assert ("done", "") == depot.run()
    lake = depot.lake()
    depot.spark.sql(f"DELETE FROM {lake.named('mirrors/yard/depot')} WHERE id = 11")
    [counted] = key_checks.count(
        lake, survey(lake, read(lake, 1, 2).lanes, steps=steps_of(lake)).subjects, 1
    ).values()
    assert (1, ('{"id":11}',)) == (counted.numbers["missing_rows"], counted.failing["missing_rows"])
