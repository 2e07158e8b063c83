"""What does not fit a mirror is kept once, whatever is killed in between, and costs neither a second fold nor a Java."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.config.model import TableRule
from ingest.gold.apply import planner
from ingest.run import Warm
from ingest.tables import commits
from tests.gold.depot import Depot
from tests.gold.test_tasks import Cluster
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIRROR = "mirrors/yard/depot"


@pytest.fixture
def depot(tmp_path: Path) -> Depot:
    """A mirror that this process folds."""
    return Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*"))


def cells(depot: Depot, columns: str = "id, n") -> list[tuple[Any, ...]]:
    """Some columns of the mirror, by the first."""
    rows = depot.lake().ask_mirror(MIRROR, f"SELECT {columns} FROM {{mirror}} ORDER BY 1")
    return [tuple(row.values()) for row in rows]


def test_killed_between_rejects_and_commit(depot: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run folds more batches at once, under a newer number: the guard alone would let all in again."""
    assert ("done", "") == depot.row(id="1", n="1").run()
    write = commits.write

    def killed(*given: Any) -> bool:
        if depot.lake().exists("rejects"):
            raise RuntimeError("killed")
        return write(*given)

    monkeypatch.setattr(commits, "write", killed)
    with pytest.raises(RuntimeError):
        depot.row(id="2", n="A101").row(id="A102", n="2").run()
    monkeypatch.setattr(commits, "write", write)
    assert [(1, 1)] == cells(depot)
    assert ("done", "") == depot.row(id="3", n="A103").run()
    assert [(1, 1), (2, None), (3, None)] == cells(depot)
    found = Counter((row["kind"], row["key"], row["raw"]) for row in rejects(depot))
    assert {1} == set(found.values())
    assert Counter({"cell": 2, "change": 1}) == Counter(kind for kind, _, _ in found)


def test_one_reject_for_each_cell_and_change(depot: Depot) -> None:
    """Late changes fold a bad cell again: counted twice, and without a place, its message could not be found."""
    depot.row(id="1", n="1", m="1", at=100).row(id="2", n="A1", m="1", at=110).run(checked=True)
    assert [("2", "A1", 1, True)] == reject_states(depot)
    depot.row("UPDATE", id="2", n="5", m="5", at=105).run(checked=True)  # late: the bad cell wins again
    assert [("2", "A1", 1, True)] == reject_states(depot)
    depot.row("UPDATE", id="2", n="A1", m="2", at=120).run(checked=True)  # the same text in another change
    assert [("2", "A1", 1, False), ("2", "A1", 3, True)] == reject_states(depot)
    depot.row("UPDATE", id="2", n="7", m="2", at=130).run(checked=True)
    assert [("2", "A1", 1, False), ("2", "A1", 3, False)] == reject_states(depot)
    places = {(row["topic"], row["offset"]) for row in rejects(depot)}
    assert 2 == len(places)
    assert all(topic is not None and offset is not None for topic, offset in places)


def test_cells_of_rows_that_are_left_out(depot: Depot) -> None:
    """Only those that the condition needs are rejects, and the others when their row enters."""
    depot.rule = TableRule("yard.*", where="m = 1")
    assert ("done", "") == depot.row(id="1", n="1", m="1").row(id="2", n="A2", m="2").run()
    assert not depot.lake().exists("rejects")
    depot.row(id="3", n="1", m="A3").row(id="4", n="A4", m="4").run()
    assert [("3", "A3", 2, True)] == reject_states(depot)
    depot.row("UPDATE", id="2", n="A2", m="1").run()
    assert [("2", "A2", 3, True), ("3", "A3", 2, True)] == reject_states(depot)
    assert [(1, 1), (2, None)] == cells(depot)


def test_a_cell_that_does_not_fit_costs_the_others_nothing(depot: Depot) -> None:
    """One zero date started a Java and folded the batch twice; year 0 and a far zone did, too, and are values."""
    types = {"id": "int", "day": "date", "at": "timestamp", "price": "decimal(10,2)"}
    rows = [
        {"id": "1", "day": "0000-00-00", "at": "2024-01-01 00:00:00", "price": "1.10"},
        {"id": "2", "day": "0000-01-02", "at": "2024-01-01 00:00:00", "price": "1.234"},
        {"id": "3", "day": "2024-02-30", "at": "2024-01-01 00:00:00", "price": "3.00"},
        {"id": "4", "day": "2024-02-29", "at": "2024-01-01 00:00:00", "price": None},
    ]
    for row in rows:
        depot.say(isDdl=False, type="INSERT", data=[row], mysqlType=types, old=None, pkNames=["id"], sql="")
    depot.rule = TableRule("yard.*", columns={"day": "date"})
    assert ("done", "") == depot.run()
    assert "" == depot.why_merge
    shown = "id, CAST(day AS VARCHAR), CAST(price AS VARCHAR)"
    assert [
        (1, None, "1.10"), (2, "0001-01-02 (BC)", None), (3, None, "3.00"), (4, "2024-02-29", None),
    ] == cells(depot, shown)  # fmt: skip
    found = {(row["key"], row["column"], row["raw"]): row["detail"] for row in rejects(depot)}
    assert "not a day or time that exists; a column declared `string` under columns: keeps" in found.pop(
        ('{"id":1}', "day", "0000-00-00")
    )
    assert "more digits" in found.pop(('{"id":2}', "price", "1.234"))
    assert "not a day or time that exists" in found.pop(('{"id":3}', "day", "2024-02-30"))
    assert {} == found


def test_outgrown_columns_become_wider(depot: Depot) -> None:
    """Many sources send no UNSIGNED: the number would be NULL, and a key's whole row would be missing."""
    assert ("done", "") == depot.row(id="1", n="1").run()
    assert ("done", "") == depot.row(id="2", n="3000000000").row(id="3", n="A1").run()
    assert [(1, 1), (2, 3_000_000_000), (3, None)] == cells(depot)
    assert ("done", "") == depot.row(id="8000000000", n=str(1 << 63)).run()
    assert (8_000_000_000, 1 << 63) == cells(depot)[-1]
    assert [("3", "A1", 2, True)] == reject_states(depot)
    assert "" == depot.why_merge


def test_a_column_that_the_pipeline_file_declares_does_not_become_wider(depot: Depot) -> None:
    """Who reads the mirror relies on the type that was written down."""
    depot.rule = TableRule("yard.*", columns={"n": "int32"})
    assert ("done", "") == depot.row(id="1", n="3000000000").row(id="2", n="2").run()
    assert [(1, None), (2, 2)] == cells(depot)
    assert [("1", "3000000000", 1, True)] == reject_states(depot)


@pytest.mark.parametrize("parts", [False, True], ids=["tasks", "parts"])
def test_tasks_report_what_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, parts: bool
) -> None:
    """The driver writes it: what a task found, and did not say, would be a NULL that nobody knows of."""
    if parts:
        monkeypatch.setattr(planner, "CHANGES_AT_MOST", 2)
    depot = Depot(Cluster(), tmp_path, Warm(), TableRule("yard.*"), engine="spark")  # type: ignore[arg-type]
    for at in range(6):
        depot.row(id=f"{at}", n="A1" if at == 4 else "1")
    assert ("done", "") == depot.row(id="A9", n="1").row("UPDATE", id="3", n="A3").run()
    assert "" == depot.why_merge
    assert [(0, 1), (1, 1), (2, 1), (3, None), (4, None), (5, 1)] == cells(depot)
    assert [("3", "A3", 1, True), ("4", "A1", 1, True)] == [
        one for one in reject_states(depot) if one[0] != "A9"
    ]
    assert {("cell", "3"), ("cell", "4"), ("change", "A9")} == {
        (row["kind"], str(json.loads(row["key"])["id"])) for row in rejects(depot)
    }
    assert all(row["offset"] is not None for row in rejects(depot))


@pytest.mark.one_of(2)
@pytest.mark.parametrize("no_key", ["append", "full_row"])
def test_cells_of_tables_without_a_key(depot: Depot, no_key: str) -> None:
    """Their texts are all that is left of them."""
    depot.rule = TableRule("yard.*", no_key=no_key)
    row = {
        "data": [{"n": "A1"}, {"n": "2"}],
        "mysqlType": {"n": "int"},
        "old": None,
        "pkNames": None,
        "sql": "",
    }
    assert ("done", "") == depot.say(isDdl=False, type="INSERT", **row).run()
    assert [(2,), (None,)] == sorted(cells(depot, "n"), key=str)
    assert [(None, "n", "A1", 1)] == [
        (one["key"], one["column"], one["raw"], one["batch"]) for one in rejects(depot)
    ]
    assert ("done", "") == depot.say(isDdl=False, type="INSERT", **row | {"data": [{"n": "3"}]}).run()
    assert 1 == len(rejects(depot))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("after", ["null", "delete", "rebuild"])
def test_rejects_of_cells_that_are_over(spark: SparkSession, tmp_path: Path, after: str) -> None:
    """A warning about a cell that is long gone hides the next one."""
    from ingest.gold import rebuild
    from ingest.ledgers import rejects as listed

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
    waiting = listed.still_open(depot.lake())
    assert waiting is not None
    assert 1 == waiting.count()


def rejects(depot: Depot) -> list[dict[str, Any]]:
    """All rows of the table."""
    return depot.lake().ask("SELECT o.* FROM {rejects} AS o")


def reject_states(depot: Depot) -> list[tuple[str, str, int, bool]]:
    """Key, text and batch of each reject, and whether it is open; checks close those that are over."""
    from ingest.ledgers.rejects import open_sql

    waiting = depot.lake().ask(open_sql(depot.lake()))
    open_ones = {(row["key"], row["batch"]) for row in waiting}
    return sorted(
        (str(json.loads(row["key"])["id"]), row["raw"], row["batch"], (row["key"], row["batch"]) in open_ones)
        for row in rejects(depot)
    )
