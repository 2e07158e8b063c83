"""Rows that are kept in memory are those of the table's files, whatever is done to these meanwhile."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from ingest.tables import delta, duck, small_tables
from ingest.tables.schemas import ALL
from ingest.tables.small_tables import Inquiry, SmallTables
from ingest.tables.tables import columns_of, scan
from tests.lakes import change
from tests.serve.conftest import depot
from tests.timing import PATIENCE
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

    def count(state: delta.Snapshot) -> int:
        with small.asked() as question:
            rows = question.rows(
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


@pytest.mark.parametrize("limits", [{"LARGE": 10}, {"FEW": 0, "HEAVY": 10}], ids=["files", "rows"])
def test_a_large_table_is_read_where_it_is(
    tmp_path: Path, small: SmallTables, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    """Memory is for what is small, and what was small goes."""
    made = depot(tmp_path, batches=2)
    same(made, COUNT)
    assert len(kept(small)) == 1
    for name, limit in limits.items():
        monkeypatch.setattr(small_tables, name, limit)
    made.take([change("INSERT", "bins", 9500, {"id": "77", "word": "x"})])
    same(made, COUNT)
    assert [] == kept(small)


def test_what_was_used_longest_ago_goes_when_nobody_asks(
    tmp_path: Path, small: SmallTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that looks at a hundred lakes must not keep them all, nor drop what a running query reads."""
    monkeypatch.setattr(small_tables, "TABLES", 2)
    made = depot(tmp_path, batches=2)
    names = ("runs", "books", "checks", "rejects")
    counts = ", ".join(f"(SELECT count(*) FROM {{{name}}}) AS {name}" for name in names)
    same(made, f"SELECT {counts}")
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


class Folder:
    """The files of one small table, each with one row."""

    def __init__(self, folder: Path, small: SmallTables) -> None:
        self.folder, self.small = str(folder), small
        folder.mkdir(exist_ok=True)

    def file(self, query: str, rows: int = 1) -> delta.DataFile:
        """A new file with the rows of a query."""
        name = f"{len(list(Path(self.folder).iterdir()))}.parquet"
        self.small.base.cursor().execute(f"COPY ({query}) TO '{self.folder}/{name}' (COMPRESSION zstd)")
        size = Path(self.folder, name).stat().st_size
        return delta.DataFile(name, size, {}, json.dumps({"numRecords": rows}))

    def state(self, *files: delta.DataFile, **types: str) -> delta.Snapshot:
        """The table with some files."""
        return delta.Snapshot(1, {}, types=types or {"a": "integer"}, files=files)

    def rows(self, question: Inquiry, state: delta.Snapshot, **more: str) -> str:
        """The table as a part of a query, with columns that it may lack."""
        reads = partial(scan, self.folder, expected=more)
        return question.rows(self.folder, state, columns_of(state, more), reads, None)

    def ask(self, state: delta.Snapshot, **more: str) -> list[dict[str, Any]]:
        """All rows from memory."""
        with self.small.asked() as question:
            return duck.rows(f"FROM {self.rows(question, state, **more)} ORDER BY a", self.small.base)


def test_few_bytes_with_many_texts_are_not_kept(tmp_path: Path, small: SmallTables) -> None:
    """A file holds a text that all rows have once, and memory holds it with every row."""
    folder = Folder(tmp_path / "x", small)
    row = "SELECT 1 AS a, repeat('some text ', 200) AS text"
    state = folder.state(folder.file(f"{row} FROM range(10000)", 10_000), a="integer", text="string")
    assert state.files[0].size < 10_000
    with small.asked() as question:
        assert "" == folder.rows(question, state)
        assert "" == folder.rows(question, replace(state, files=(*state.files, folder.file(row))))
        assert "" != folder.rows(question, replace(state, files=(folder.file(row),)))


def test_tables_are_dropped_while_others_are_asked(tmp_path: Path, small: SmallTables) -> None:
    """A page that many look at has always some query that runs."""
    folder = Folder(tmp_path / "x", small)
    states = [folder.state(folder.file(f"SELECT {n} AS a")) for n in range(2)]
    with small.asked() as question:
        held = folder.rows(question, states[0])
        for n in range(6):
            assert [{"a": n % 2}] == folder.ask(states[n % 2])
        assert [{"a": 0}] == duck.rows(f"FROM {held}", small.base), "the first question still has its table"
        assert len(kept(small)) == 2
    assert len(kept(small)) == 1


class Failing:
    """A database whose queries of one kind end in an error, before or after they have done their work."""

    def __init__(self, small: SmallTables, kind: str, error: BaseException, *, after: bool = False) -> None:
        self.base, self.kind, self.error, self.after = small.base, kind, error, after

    def cursor(self) -> Failing:
        """One that fails alike."""
        return self

    def execute(self, query: str) -> object:
        """Do it, or not."""
        fails = query.startswith(self.kind)
        if fails and not self.after:
            raise self.error
        done = self.base.cursor().execute(query)
        if fails:
            raise self.error
        return done


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", [duckdb.OutOfMemoryException("no"), KeyboardInterrupt()])
def test_a_drop_that_failed_breaks_no_later_question(
    tmp_path: Path, small: SmallTables, monkeypatch: pytest.MonkeyPatch, error: BaseException, after: bool
) -> None:
    """A process that serves pages for weeks had to be started anew."""
    folder = Folder(tmp_path / "x", small)
    states = [folder.state(folder.file(f"SELECT {n} AS a")) for n in range(2)]
    failing = Failing(small, "DROP", error, after=after)
    with monkeypatch.context() as patched:
        patched.setattr(small, "base", failing)
        with suppress(type(error)), small.asked() as question:
            for state in states * 2:
                folder.rows(question, state)
        with suppress(type(error)):
            folder.ask(states[1])
    assert [{"a": 1}] == folder.ask(states[1])
    assert len(kept(small)) == 1


def test_columns_that_a_table_gets_in_another_order(tmp_path: Path, small: SmallTables) -> None:
    """Rows are taken in by position, and another version may have added the last of the columns first."""
    folder, more = Folder(tmp_path / "x", small), {"a": "INTEGER", "b": "VARCHAR", "c": "VARCHAR"}
    old, new = folder.file("SELECT 1 AS a"), folder.file("SELECT 2 AS a, 'is c' AS c")
    first = {"a": 1, "b": None, "c": None}
    assert [first] == folder.ask(folder.state(old), **more)
    expected = [first, {"a": 2, "b": None, "c": "is c"}]
    assert expected == folder.ask(folder.state(old, new, a="integer", c="string"), **more)


def test_a_slow_file_stops_no_question_to_another_table(tmp_path: Path, small: SmallTables) -> None:
    """A store may take seconds for one file."""
    slow, quick = Folder(tmp_path / "slow", small), Folder(tmp_path / "quick", small)
    of_slow, of_quick = (folder.state(folder.file("SELECT 1 AS a")) for folder in (slow, quick))
    reads, goes_on = threading.Event(), threading.Event()

    def read(state: delta.Snapshot) -> str:
        reads.set()
        assert goes_on.wait(PATIENCE)
        return scan(slow.folder, state)

    with ThreadPoolExecutor(2) as pool, small.asked() as question:
        waits = pool.submit(question.rows, slow.folder, of_slow, {"a": "INTEGER"}, read, None)
        assert reads.wait(PATIENCE)
        try:
            assert [{"a": 1}] == pool.submit(quick.ask, of_quick).result(10)
        finally:
            goes_on.set()
        assert waits.result()


def test_rows_are_not_doubled_by_an_interruption(
    tmp_path: Path, small: SmallTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between the rows and the note that they are there."""
    folder = Folder(tmp_path / "x", small)
    files = [folder.file(f"SELECT {n} AS a") for n in range(2)]
    assert [{"a": 0}] == folder.ask(folder.state(files[0]))
    stopped = Failing(small, "INSERT", KeyboardInterrupt(), after=True)
    with monkeypatch.context() as patched:
        patched.setattr(small, "base", stopped)
        with pytest.raises(KeyboardInterrupt):
            folder.ask(folder.state(*files))
    assert [{"a": 0}, {"a": 1}] == folder.ask(folder.state(*files))
