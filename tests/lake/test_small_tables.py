"""Rows that are kept in memory are those of the table's files, whatever is done to these meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from ingest.lake import delta, duck, small_tables
from ingest.lake.schemas import ALL
from ingest.lake.small_tables import SmallTables
from tests.lakes import change
from tests.serve.conftest import depot
from tests.written_lake import WrittenLake

COUNT = "SELECT count(*) AS n, max(batch) AS last FROM {runs}"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallTables]:
    """A database that keeps nothing yet, in place of the process'."""
    base = duck.opened()
    made = SmallTables(base)
    monkeypatch.setattr(small_tables, "of_database", lambda _base: made)
    yield made
    base.close()


def kept(small: SmallTables) -> list[str]:
    """The tables in memory."""
    found = (
        small.base.cursor().execute("SELECT table_name FROM duckdb_tables() ORDER BY table_name").fetchall()
    )
    return [name for (name,) in found]


def same(lake: WrittenLake, query: str) -> list[dict[str, Any]]:
    """The answer from memory, which must be that of the files."""
    answer = lake.reader.ask(query)
    assert duck.rows(lake.reader.sql(query)) == answer
    return answer


def test_all_rows_of_all_tables_are_those_of_the_files(tmp_path: Path, small: SmallTables) -> None:
    """Every question of a run goes through here; the second version adds the rows of its new files alone."""
    made = depot(tmp_path, batches=2)
    for n in range(2):
        for schema in ALL:
            same(made, f"SELECT * FROM {{{schema.name}}} AS t ORDER BY ALL")
            same(made, f"SELECT count(*) AS n FROM {{{schema.name}}}")
        assert len(kept(small)) == sum(
            schema.name not in ("bronze", "changes")
            for schema in ALL
            if made.reader.snapshot(schema.name).files
        )
        made.take([change("INSERT", "bins", 9500 + n, {"id": "77", "word": "x"})])


def test_only_new_files_are_read(tmp_path: Path, small: SmallTables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading all files for each question is what is avoided."""
    made = depot(tmp_path, batches=2)
    same(made, COUNT)
    folder = made.reader.path("runs")
    old = {file.place for file in delta.snapshot(folder).files}
    made.take([change("INSERT", "bins", 9500, {"id": "77", "word": "x"})])
    new = {file.place for file in delta.snapshot(folder).files} - old
    ran: list[str] = []

    class Cursor:
        def execute(self, query: str) -> object:
            ran.append(query)
            return small.base.cursor().execute(query)

    watched = SmallTables(small.base)
    watched._kept = small._kept
    watched.base = type("Base", (), {"cursor": lambda _self: Cursor()})()
    monkeypatch.setattr(small_tables, "of_database", lambda _base: watched)
    made.reader.ask(COUNT)
    texts = "\n".join(ran)
    assert new
    assert all(name in texts for name in new)
    assert not any(name in texts for name in old)


def test_files_that_became_one_count_once(tmp_path: Path, small: SmallTables) -> None:
    """The rows of files that are no longer the table's must not stay beside those of the file that replaced them."""
    made = depot(tmp_path, batches=3)
    before = same(made, COUNT)
    DeltaTable(made.reader.path("runs")).optimize.compact()
    assert before == same(made, COUNT)


def test_an_older_version_is_asked_between_two_newer_ones(tmp_path: Path, small: SmallTables) -> None:
    """A thread that has looked at the log before another one's commit must not see the rows of that commit."""
    made = depot(tmp_path, batches=2)
    folder = made.reader.path("runs")
    old = delta.snapshot(folder)
    made.take([change("INSERT", "bins", 9500, {"id": "77", "word": "x"})])
    new = delta.snapshot(folder)
    from ingest.lake.tables import columns_of, scan

    def count(state: delta.Snapshot) -> int:
        with small.asked():
            rows = small.rows(
                folder, state, columns_of(state, {}), lambda part: scan(folder, part), ["batch"]
            )
            return int(duck.rows(f"SELECT count(*) AS n FROM {rows}", small.base)[0]["n"])

    expected = [old.rows, new.rows, old.rows, new.rows]
    assert expected == [count(state) for state in (old, new, old, new)]
    assert old.rows != new.rows


@pytest.mark.parametrize(
    "damage", [Path.unlink, lambda file: file.write_bytes(b"PAR1")], ids=["lost", "torn"]
)
def test_a_file_that_is_damaged_later_is_not_answered_from_memory(
    tmp_path: Path, small: SmallTables, damage: Callable[[Path], object]
) -> None:
    """A process that runs for weeks says what a new one would."""
    made = depot(tmp_path, batches=2)
    same(made, COUNT)
    folder = made.reader.path("runs")
    damage(Path(folder, delta.snapshot(folder).files[0].place))
    with pytest.raises(Exception, match=r"No files found|too small|[Pp]arquet"):
        made.reader.ask(COUNT)


def test_a_large_table_is_read_where_it_is(
    tmp_path: Path, small: SmallTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is for what is small."""
    monkeypatch.setattr(small_tables, "LARGE", 10)
    same(depot(tmp_path, batches=2), COUNT)
    assert [] == kept(small)


def test_what_was_used_longest_ago_goes_when_nobody_asks(
    tmp_path: Path, small: SmallTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that looks at a hundred lakes must not keep them all, nor drop what a running query reads."""
    monkeypatch.setattr(small_tables, "TABLES", 2)
    made = depot(tmp_path, batches=2)
    names = ("runs", "books", "checks", "rejects")
    with small.asked():
        for name in names:
            same(made, f"SELECT count(*) AS n FROM {{{name}}}")
        assert len(names) == len(kept(small))
    same(made, COUNT)
    assert len(kept(small)) in (2, 3)  # the one that has gone last is dropped by the next question
    same(made, COUNT)
    assert len(kept(small)) == 2


def test_many_threads_ask_at_once(
    tmp_path: Path, small: SmallTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quality asks from three threads, and pages from as many as there are readers."""
    monkeypatch.setattr(small_tables, "TABLES", 1)
    made = depot(tmp_path, batches=2)
    names = [
        name
        for name in ("runs", "books", "checks", "rejects", "ddl", "decisions")
        if made.reader.exists(name)
    ]
    expected = {name: made.reader.count(name) for name in names}

    def ask(i: int) -> None:
        name = names[i % len(names)]
        assert [{"n": expected[name], "i": i}] == made.reader.ask(
            f"SELECT count(*) AS n, {i} AS i FROM {{{name}}}"
        )

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(ask, range(120)))
