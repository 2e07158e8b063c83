"""Mirrors that Spark's tasks fold: a task may run twice, or end when its file is written and nothing names it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ingest.config.model import TableRule
from ingest.gold.apply import arrow_runs, planner
from ingest.run import Warm
from ingest.tables import delta
from tests.gold.depot import Depot
from tests.silver.test_without_spark import Tasks


class Cluster(Tasks):
    """Tasks of two cores."""

    sparkContext = SimpleNamespace(defaultParallelism=2)  # noqa: N815 - Spark's name


def mirror(depot: Depot) -> tuple[list[tuple[int, int]], int]:
    """The mirror's rows, and how many files of its folder no version names."""
    lake = depot.lake()
    rows = lake.ask_mirror("mirrors/yard/depot", "SELECT id, n FROM {mirror} ORDER BY id")
    folder = Path(lake.path("mirrors/yard/depot"))
    actions = [
        one
        for n in range(lake.snapshot("mirrors/yard/depot").version + 1)
        for one in delta.actions(str(folder), n)
    ]
    named = {one["add"]["path"] for one in actions if "add" in one}
    left = {one.name for one in folder.glob("*.parquet")} - named
    return [(row["id"], row["n"]) for row in rows], len(left)


@pytest.fixture
def depot(tmp_path: Path) -> Depot:
    """A mirror that tasks fold, each of them twice."""
    return Depot(Cluster(), tmp_path, Warm(), TableRule("yard.*"), engine="spark")  # type: ignore[arg-type]


def test_a_task_that_runs_twice_folds_once(depot: Depot) -> None:
    """Spark starts a slow task again while the first still runs: rows of both files would be there twice."""
    assert ("done", "") == depot.row(id="1", n="1").row(id="2", n="1").run()
    assert ([(1, 1), (2, 1)], 1) == mirror(depot)
    assert ("done", "") == depot.row("UPDATE", {"n": "1"}, id="1", n="2").row("DELETE", id="2", n="1").run()
    assert ([(1, 2)], 2) == mirror(depot)
    assert "" == depot.why_merge


def test_a_worker_that_ends_with_its_file_written_loses_nothing(
    depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt writes another file, and a run that gives up leaves the batch to the next one."""
    assert ("done", "") == depot.row(id="1", n="1").run()
    from ingest.gold.fold.arrow_files import make

    ends: list[Any] = []

    def ended(*given: Any) -> Any:
        ends.append(make(*given))
        raise KilledError

    monkeypatch.setattr(arrow_runs, "make", ended)
    with pytest.raises(KilledError):
        depot.row("UPDATE", {"n": "1"}, id="1", n="2").run()
    assert ([(1, 1)], 2) == mirror(depot)  # of the first batch's second attempt, and this one's
    monkeypatch.setattr(arrow_runs, "make", make)
    assert ("done", "") == depot.run()
    assert ([(1, 2)], 3) == mirror(depot)
    assert 1 == len(ends)


class KilledError(BaseException):
    """Ends a process as a kill does: nothing that catches errors catches it."""


# --- more changes than one process holds ------------------------------------------------------------


@pytest.fixture
def large(depot: Depot, monkeypatch: pytest.MonkeyPatch) -> Depot:
    """A mirror whose batches of more than three changes are folded in parts."""
    monkeypatch.setattr(planner, "CHANGES_AT_MOST", 3)
    return depot


def many(depot: Depot) -> Depot:
    """Ten rows; a repeated key has its last values."""
    for n in range(10):
        depot.row(id=str(n), n="1")
    return depot.row("UPDATE", {"n": "1"}, id="3", n="2")


def left(depot: Depot) -> list[Path]:
    """What was dealt to parts, and is still there."""
    folder = Path(depot.lake().path("mirrors/yard/depot"))
    return [one for one in folder.iterdir() if one.is_dir() and one.name != "_delta_log"]


def test_a_large_first_load_is_one_commit(large: Depot) -> None:
    """A reader must not see a part of the rows, and what is dealt must not fill the lake's disk."""
    assert ("done", "") == many(large).run()
    assert "" == large.why_merge
    rows, _ = mirror(large)
    assert [(n, 1 + (n == 3)) for n in range(10)] == rows
    state = large.lake().snapshot("mirrors/yard/depot")
    assert (0, 10) == (state.version, state.rows)
    assert 1 < len(state.files) <= 4
    assert [] == left(large)


@pytest.mark.parametrize("budget", [None, 1], ids=["files", "vectors"])
def test_many_changes_go_into_existing_rows(large: Depot, budget: int | None) -> None:
    """Each row is in one of several files: an old row that stays along with its new one is there twice."""
    large.budget = budget
    assert ("done", "") == many(large).run()
    for n in range(2, 9):
        large.row("UPDATE", {"n": "1"}, id=str(n), n="5")
    large.row("DELETE", id="4", n="5").row("DELETE", id="9", n="1").row(id="4", n="6").row(
        "DELETE", id="9", n="1"
    )
    assert ("done", "") == large.row(id="10", n="7").run()
    assert "" == large.why_merge
    rows, _ = mirror(large)
    assert [(0, 1), (1, 1), (2, 5), (3, 5), (4, 6), *((n, 5) for n in range(5, 9)), (10, 7)] == rows
    state = large.lake().snapshot("mirrors/yard/depot")
    assert (1, budget == 1) == (state.version, any(one.vector for one in state.files))
    assert [] == left(large)


def test_a_large_load_that_is_killed_is_done_again(large: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some parts are written then; without a commit they are not rows of the mirror."""
    from ingest.gold.fold import arrow_shares

    merged, calls = arrow_shares.merged, list[Any]()

    def ended(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == 4:
            raise KilledError
        return merged(*given)

    monkeypatch.setattr(arrow_shares, "merged", ended)
    with pytest.raises(KilledError):
        many(large).run()
    assert not large.lake().exists("mirrors/yard/depot")
    monkeypatch.setattr(arrow_shares, "merged", merged)
    assert ("done", "") == large.run()
    assert 10 == len(mirror(large)[0])
    assert 0 == large.lake().snapshot("mirrors/yard/depot").version
