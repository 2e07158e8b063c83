"""Bronze and silver of files, written by this process or by tasks: the same rows, and no kill loses or doubles one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from ingest.bronze import land as bronze
from ingest.bronze.land import land
from ingest.bronze.positions import Positions
from ingest.silver.decode import Decoded, decode
from ingest.spark import tasks
from ingest.tables import delta
from ingest.tables.lake import Lake
from tests.lakes import Depot, change, touch
from tests.unstarted import unstarted

AUTO, SPARK = "engine: auto\n", "engine: spark\n"
TABLES = ("bronze", "changes", "ddl", "rejects", "books")
_NOT_THEIRS = {"ingested_at", "day"}  # when it was


class KilledError(BaseException):
    """Ends a run as a kill does."""


class Row(dict[str, Any]):
    """A row as Spark gives it."""

    def asDict(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Its cells by name."""
        return self


class Tasks:
    """A stand-in for a session: its tasks run here, each of them twice, and the second's report counts."""

    conf = SimpleNamespace(get=lambda *_given: "")

    def range(self, _start: int, count: int, _step: int, parts: int) -> Any:
        """The numbers of so many tasks."""
        assert count == parts
        numbers = [pa.RecordBatch.from_arrays([pa.array([n], pa.int64())], ["id"]) for n in range(count)]
        return SimpleNamespace(
            mapInArrow=lambda run, _ddl: SimpleNamespace(collect=lambda: self.run(run, numbers))
        )

    def run(self, run: Callable[[Iterator[Any]], Iterator[Any]], numbers: list[Any]) -> list[Any]:
        """Every task's report."""
        for number in numbers:
            list(run(iter([number])))
        return [Row(row) for number in numbers for page in run(iter([number])) for row in page.to_pylist()]


def lake_of(depot: Depot, spark: Any = None) -> Lake:
    """The depot's lake, without a session."""
    return Lake(spark, depot.pipeline)


def work(lake: Lake) -> Decoded:
    """Land what is new and decode what has landed, as a process that knows nothing yet."""
    land(lake, Positions(), 2)
    return decode(lake, bronze.last_batch(lake), 2)


def rows(lake: Lake, table: str) -> Counter[str]:
    """A table's rows, but for when they were landed."""
    found = lake.ask(f"SELECT * FROM {{{table}}}")
    return Counter(
        str({name: cell for name, cell in row.items() if name not in _NOT_THEIRS}) for row in found
    )


def everything(lake: Lake) -> dict[str, Counter[str]]:
    """The rows of all tables."""
    return {table: rows(lake, table) for table in TABLES}


@pytest.mark.parametrize("way", ["alone", "tasks"])
def test_every_message_is_accounted_for(tmp_path: Path, way: str) -> None:
    """Tasks may be run twice by Spark, and write twice: what counts is what one report names."""
    depot = Depot(tmp_path, SPARK if way == "tasks" else AUTO)
    for n in range(3):
        depot.grow()
        more = depot.folder / f"bins-{n + 2}.jsonl"
        more.write_text(change("INSERT", "casks", 7_000 + n, {"id": str(n), "word": "w"}), "utf-8")
        depot.lines += 1
        touch(more, 3600)
        done = work(lake_of(depot, Tasks() if way == "tasks" else None))
        assert [] == done.unbalanced
    lake = lake_of(depot)
    assert depot.lines == lake.ask("SELECT count(*) AS n FROM {bronze} WHERE kind = 'message'")[0]["n"]
    assert depot.lines == lake.ask("SELECT sum(messages) AS n FROM {books}")[0]["n"]
    assert {1} == {count for table in TABLES for count in rows(lake, table).values()}
    assert (3, 3) == (rows(lake, "ddl").total(), rows(lake, "rejects").total())
    if way == "tasks":  # what the first run of each task wrote lies there, and no commit names it
        named = {one.place for one in delta.snapshot(lake.path("changes")).files}
        there = [*Path(lake.path("changes")).rglob("*.parquet")]
        assert 2 * len(named) == len([one for one in there if "_delta_log" not in one.parts])


@pytest.mark.parametrize("session", ["waits", "has started"])
def test_a_larger_batch_does_not_start_a_session(tmp_path: Path, session: str) -> None:
    """Starting Java takes longer than decoding 16,000 messages; where it runs already, its tasks take turns on all cores."""
    depot, asked = Depot(tmp_path, AUTO), []
    texts = [change("INSERT", "casks", n, {"id": str(n), "word": "w" * 50}) for n in range(16_000)]
    depot.feed.write_text("".join(texts), "utf-8")
    touch(depot.feed, 3600)
    assert tasks.LIMITS["bronze"].size < depot.feed.stat().st_size
    assert tasks.LIMITS["silver"].rows < len(texts)

    class Counting(Tasks):
        def range(self, *given: Any) -> Any:
            asked.append(given)
            return super().range(*given)

    spark = Counting() if session == "has started" else unstarted(2)
    lake = lake_of(depot, spark)
    assert [] == work(lake).unbalanced
    assert 16_000 == lake.ask("SELECT sum(changes) AS n FROM {books}")[0]["n"]
    assert (2 if session == "has started" else 0) == len(asked)


def test_tasks_write_what_this_process_writes(tmp_path: Path) -> None:
    """Two ways through one function: a difference would be a batch's size in the mirrors."""
    depot = Depot(tmp_path, AUTO)
    depot.grow()
    depot.grow()
    work(lake_of(depot))
    alone = everything(lake_of(depot))
    by_tasks = depot.file.read_text("utf-8").replace("./lake", "./other").replace(AUTO, SPARK)
    depot.file.write_text(by_tasks, "utf-8")
    work(lake_of(depot, Tasks()))
    assert alone == everything(lake_of(depot))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("table", TABLES)
def test_a_kill_between_two_commits_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, after: bool
) -> None:
    """A kill before the commit leaves unreferenced files; one after it leaves the rest of the batch to the next run."""
    depot = Depot(tmp_path, AUTO)
    original = Lake.append
    killed: list[str] = []

    def append(self: Lake, given: Any, schema: Any, stage: str, batch: int) -> bool:
        if killed or schema.name != table or batch < 2:
            return original(self, given, schema, stage, batch)
        killed.append(table)
        assert not isinstance(given, list) or all(Path(self.path(table), one.path).is_file() for one in given)
        if after:
            original(self, given, schema, stage, batch)
        raise KilledError

    monkeypatch.setattr(Lake, "append", append)
    for n in range(3):
        depot.grow()
        if n == 1:
            with pytest.raises(KilledError):
                work(lake_of(depot))
        if n != 1:
            assert [] == work(lake_of(depot)).unbalanced
    monkeypatch.setattr(Lake, "append", original)
    assert [table] == killed
    lake = lake_of(depot)
    assert [] == decode(lake, bronze.last_batch(lake), 2).unbalanced
    assert {1} == {count for name in TABLES for count in rows(lake, name).values()}
    assert depot.lines == lake.ask("SELECT sum(messages) AS n FROM {books}")[0]["n"]
    assert depot.lines == lake.ask("SELECT count(*) AS n FROM {bronze} WHERE kind = 'message'")[0]["n"]
    assert (3, 3) == (rows(lake, "ddl").total(), rows(lake, "rejects").total())
