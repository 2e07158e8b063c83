"""What does not fit a mirror is kept once, whatever is killed in between."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.config.model import TableRule
from tests.gold.depot import Depot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_killed_between_rejects_and_merge(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run folds more batches at once, under a newer number: the guard alone would let all in again."""
    from ingest.gold import fidelity
    from ingest.gold import merge as merging
    from ingest.run import Warm

    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.*"))
    assert ("done", "") == depot.row(id="1", n="1").run()
    merge = merging.merge

    def killed(*given: Any) -> None:
        if depot.lake().exists("rejects"):
            raise RuntimeError("killed")
        merge(*given)

    monkeypatch.setattr(merging, "merge", killed)
    depot.row(id="2", n="A101").row(id="A102", n="2").run()
    monkeypatch.setattr(merging, "merge", merge)
    assert [1] == [row["id"] for row in depot.rows()]
    assert ("done", "") == depot.row(id="3", n="A103").run()
    assert [(1, 1), (2, None), (3, None)] == [(row["id"], row["n"]) for row in depot.rows()]
    found = Counter((row["kind"], row["key"], row["raw"]) for row in depot.lake().read("rejects").collect())
    assert {1} == set(found.values())
    conversions = {
        one["column"]: (one["fit"], one["rejected"]) for one in fidelity.described(depot.lake(), "yard.depot")
    }
    assert {"id": (3, 1), "n": (2, 2)} == conversions
    assert Counter({"cell": 2, "change": 1}) == Counter(kind for kind, _, _ in found)


def test_one_reject_for_each_cell_and_change(spark: SparkSession, tmp_path: Path) -> None:
    """Late changes fold a bad cell again: counted twice, and without a place, its message could not be found."""
    from ingest.run import Warm

    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.*"))
    depot.row(id="1", n="1", m="1", at=100).row(id="2", n="A1", m="1", at=110).run(checked=True)
    assert [("2", "A1", 1, True)] == reject_states(depot)
    depot.row("UPDATE", id="2", n="5", m="5", at=105).run(checked=True)  # late: the bad cell wins again
    assert [("2", "A1", 1, True)] == reject_states(depot)
    depot.row("UPDATE", id="2", n="A1", m="2", at=120).run(checked=True)  # the same text in another change
    assert [("2", "A1", 1, False), ("2", "A1", 3, True)] == reject_states(depot)
    depot.row("UPDATE", id="2", n="7", m="2", at=130).run(checked=True)
    assert [("2", "A1", 1, False), ("2", "A1", 3, False)] == reject_states(depot)
    places = {(row["topic"], row["offset"]) for row in depot.lake().read("rejects").collect()}
    assert 2 == len(places)
    assert all(topic is not None and offset is not None for topic, offset in places)


@pytest.mark.parametrize("budget", [0, None], ids=["spark", "arrow"])
def test_cells_of_rows_that_are_left_out(spark: SparkSession, tmp_path: Path, budget: int | None) -> None:
    """Only those that the condition needs are rejects: by both ways, and the others when their row enters."""
    from ingest.run import Warm

    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.*", where="m = 1"), budget=budget)
    assert ("done", "") == depot.row(id="1", n="1", m="1").row(id="2", n="A2", m="2").run()
    assert [] == reject_states(depot) if depot.lake().exists("rejects") else True
    assert (depot.why_spark == "") == (budget is None)
    depot.row(id="3", n="1", m="A3").row(id="4", n="A4", m="4").run()
    assert [("3", "A3", 2, True)] == reject_states(depot)
    depot.row("UPDATE", id="2", n="A2", m="1").run()
    assert [("2", "A2", 3, True), ("3", "A3", 2, True)] == reject_states(depot)
    assert [(1, 1), (2, None)] == [(row["id"], row["n"]) for row in depot.rows()]


@pytest.mark.parametrize("after", ["null", "delete", "rebuild"])
def test_rejects_of_cells_that_are_over(spark: SparkSession, tmp_path: Path, after: str) -> None:
    """A warning about a cell that is long gone hides the next one."""
    from ingest.gold import rebuild
    from ingest.lake import rejects
    from ingest.run import Warm

    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.*"))
    depot.row(id="1", n="A1", m="1").row(id="2", n="A2", m="1").run(checked=True)
    assert {True} == {is_open for *_, is_open in reject_states(depot)}
    if after == "null":
        depot.row("UPDATE", id="1", n=None, m="1").run(checked=True)
    elif after == "delete":
        depot.row("DELETE", id="1", n="A1", m="1").run(checked=True)
    else:
        depot.row("UPDATE", id="1", n="3", m="1").run()
        assert ["rebuilt"] == [one.state for one in rebuild.rebuild(depot.lake(), [], dry_run=False)]
    assert [("1", "A1", 1, False), ("2", "A2", 1, True)] == reject_states(depot)
    waiting = rejects.still_open(depot.lake())
    assert waiting is not None
    assert 1 == waiting.count()


def reject_states(depot: Depot) -> list[tuple[str, str, int, bool]]:
    """Key, text and batch of each reject, and whether it is open; checks close those that are over."""
    from ingest.lake import rejects

    lake = depot.lake()
    waiting = rejects.still_open(lake)
    assert waiting is not None
    open_ones = {(row["key"], row["batch"]) for row in waiting.collect()}
    return sorted(
        (str(json.loads(row["key"])["id"]), row["raw"], row["batch"], (row["key"], row["batch"]) in open_ones)
        for row in lake.read("rejects").collect()
    )
