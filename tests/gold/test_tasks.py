"""Mirrors that Spark's tasks fold: a task may run twice, or end when its file is written and nothing names it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ingest.config.model import TableRule
from ingest.gold import apply_arrow
from ingest.lake import delta
from ingest.run import Warm
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
def depot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Depot:
    """A mirror that tasks fold, each of them twice."""
    monkeypatch.setattr(apply_arrow, "FEW", -1)
    return Depot(Cluster(), tmp_path, Warm(), TableRule("yard.*"))  # type: ignore[arg-type]


def test_a_task_that_runs_twice_folds_once(depot: Depot) -> None:
    """Spark runs a slow task a second time beside the first: rows of both files would be there twice."""
    assert ("done", "") == depot.row(id="1", n="1").row(id="2", n="1").run()
    assert ([(1, 1), (2, 1)], 1) == mirror(depot)
    assert ("done", "") == depot.row("UPDATE", {"n": "1"}, id="1", n="2").row("DELETE", id="2", n="1").run()
    assert ([(1, 2)], 2) == mirror(depot)
    assert "" == depot.why_spark


def test_a_worker_that_ends_with_its_file_written_loses_nothing(
    depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt writes another file, and a run that gives up leaves the batch to the next one."""
    assert ("done", "") == depot.row(id="1", n="1").run()
    from ingest.gold.arrow_files import make

    ends: list[Any] = []

    def ended(*given: Any) -> Any:
        ends.append(make(*given))
        raise KilledError

    monkeypatch.setattr(apply_arrow, "make", ended)
    with pytest.raises(KilledError):
        depot.row("UPDATE", {"n": "1"}, id="1", n="2").run()
    assert ([(1, 1)], 2) == mirror(depot)  # of the first batch's second attempt, and this one's
    monkeypatch.setattr(apply_arrow, "make", make)
    assert ("done", "") == depot.run()
    assert ([(1, 2)], 3) == mirror(depot)
    assert 1 == len(ends)


class KilledError(BaseException):
    """Ends a process as a kill does: nothing that catches errors catches it."""
