"""Rights that are missing, tables that go away and statements that take too long, at real databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ingest.config import load
from ingest.errors import IngestError
from ingest.source import mysql, postgres
from ingest.source import snapshot as reading
from ingest.source.database import connected
from ingest.source.known import KnownTable
from ingest.source.reconcile import ReconcileBounds
from ingest.source.snapshot import source_of
from tests.e2e.databases import PASSWORD, USER, Database
from tests.e2e.test_reconcile import compare, lake, table_of
from tests.e2e.test_source import Garden, node  # noqa: F401 - a fixture
from tests.source import made

READER = "reader"


@pytest.fixture
def garden(node: Database, tmp_path: Path) -> Iterator[Garden]:  # noqa: F811
    """A table of 30 rows, and a second user who may do nothing yet."""
    found = Garden(node, tmp_path)
    there = f"'{READER}'@'127.0.0.1'" if found.mysql else READER
    known = f"IDENTIFIED BY '{PASSWORD}'" if found.mysql else "LOGIN"
    if not found.mysql and found.rows(f"SELECT 1 FROM pg_roles WHERE rolname = '{READER}'"):
        found.execute(f"DROP OWNED BY {READER}")
    found.execute(
        f"DROP USER IF EXISTS {there}", "DROP TABLE IF EXISTS plot", f"CREATE USER {there} {known}",
        "CREATE TABLE plot (id int primary key, a varchar(9), b varchar(9))",
        "INSERT INTO plot VALUES " + ", ".join(f"({n}, 'a{n}', 'b{n}')" for n in range(30)),
    )  # fmt: skip
    yield found
    if found.mysql:
        found.execute("SET GLOBAL max_statement_time = 0")


def as_reader(garden: Garden, *rights: str) -> None:
    """Read as the second user from now on, with these rights on the table."""
    there = f"'{READER}'@'127.0.0.1'" if garden.mysql else READER
    garden.execute(*(f"GRANT {one} ON {garden.database}.plot TO {there}" for one in rights))
    text = garden.file.read_text("utf-8")
    garden.file.write_text(text.replace(f"user: {USER}", f"user: {READER}"), "utf-8")


def one_sentence(garden: Garden, said: str, **given: Any) -> None:
    """The reading ends with one line and without the password."""
    with pytest.raises(IngestError, match=said) as caught:
        garden.read("plot", **given)
    assert "\n" not in str(caught.value)
    assert PASSWORD not in str(caught.value)


def mirrored(garden: Garden) -> None:
    """A mirror that equals the table."""
    schema = pa.schema([("id", pa.int32()), ("a", pa.string()), ("b", pa.string())])
    rows = pa.table(
        {"id": range(30), "a": [f"a{n}" for n in range(30)], "b": [f"b{n}" for n in range(30)]}, schema
    )
    made.mirror(
        lake(garden), table_of(garden, "plot"), {"id": "int32", "a": "string", "b": "string"}, ["id"], rows
    )


# --- rights ---------------------------------------------------------------------------------------


def test_a_user_without_rights_reads_nothing(garden: Garden) -> None:
    """An empty answer would pass as an empty table, and the end mark would remove all rows."""
    as_reader(garden)
    one_sentence(
        garden, "no table .* grant SELECT on it" if garden.mysql else "permission denied for table plot"
    )
    assert [] == garden.told("plot")


@pytest.mark.parametrize("rule", ["", "exclude"])
def test_a_right_on_some_columns(garden: Garden, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """MySQL does not even name the other columns: each row would be read without them, and they would become NULL."""
    as_reader(garden, "SELECT (id, a)")
    if rule:
        rules = f"tables: [{{match: '{garden.database}.plot', columns: {{b: {rule}}}}}]\n"
        garden.file.write_text(garden.file.read_text("utf-8") + rules, "utf-8")
    streamed = KnownTable(1, None, 0, streamed=True, columns={"id": "int32", "a": "string", "b": "string"})
    monkeypatch.setattr(reading, "known", lambda *_: streamed)
    if rule and garden.mysql:
        garden.read("plot")
        assert [{"id", "a"}] * 30 == [set(row) for row in garden.images("plot")]
        return
    said = (
        "may not read all columns of garden.plot, and the stream has 'b'"
        if garden.mysql
        else "permission denied"
    )
    one_sentence(garden, said)
    assert [] == garden.told("plot")


@pytest.mark.parametrize("rule", ["", "exclude"])
def test_a_right_on_some_columns_of_a_table_without_a_mirror(garden: Garden, rule: str) -> None:
    """Nothing says how many columns are hidden: a mirror of the others would pass as the whole table."""
    if not garden.mysql:
        pytest.skip("it names the columns that it denies")
    as_reader(garden, "SELECT (id, a)")
    if rule:
        rules = f"tables: [{{match: '{garden.database}.plot', columns: {{b: {rule}}}}}]\n"
        garden.file.write_text(garden.file.read_text("utf-8") + rules, "utf-8")
        garden.read("plot")
        assert [{"id", "a"}] * 30 == [set(row) for row in garden.images("plot")]
        return
    one_sentence(garden, "may not read all columns of garden.plot: grant SELECT on the table")
    assert [] == garden.told("plot")


def test_rows_that_a_policy_hides_do_not_pass_as_deleted(garden: Garden) -> None:
    """The end mark would remove from the mirror each row that this user may not see."""
    if garden.mysql:
        pytest.skip("it has no policies")
    as_reader(garden, "SELECT")
    garden.execute("ALTER TABLE plot ENABLE ROW LEVEL SECURITY", "CREATE POLICY few ON plot USING (id < 10)")
    one_sentence(garden, "would be affected by row-level security policy")
    assert [] == garden.told("plot")


# --- tables that go away --------------------------------------------------------------------------


def test_a_table_that_vanishes_half_way(garden: Garden, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a table with an end mark would pass as the whole."""
    real = reading.TableReading._chunk

    def chunk(self: Any, number: int, span: Any) -> int:
        if number == 1:
            garden.execute("DROP TABLE plot")
        return real(self, number, span)

    monkeypatch.setattr(reading.TableReading, "_chunk", chunk)
    one_sentence(garden, r"plot vanished while it was read\.$", size=10, parallel=1)
    assert 10 == len(garden.told("plot"))  # and no end mark


@pytest.mark.parametrize("later", ["DROP TABLE plot", "ALTER TABLE plot ADD COLUMN c int"])
def test_a_table_that_changes_while_it_is_compared(garden: Garden, later: str) -> None:
    """Rows of a table that is gone would be listed as surplus, and a repair would delete them."""
    mirrored(garden)
    ranges = []

    def tell(_done: object) -> None:
        ranges.append(1)
        if len(ranges) == 1:
            garden.execute(later)

    said = (
        "plot" if "DROP" in later else "got other columns while it was compared: run the same command again"
    )
    with pytest.raises(IngestError, match=said) as caught:
        compare(garden, "plot", tell=tell, limits=ReconcileBounds(parallel=1, range_rows=10))
    assert "\n" not in str(caught.value)


# --- time -----------------------------------------------------------------------------------------


def test_a_chunk_that_takes_too_long_is_tried_again_and_then_left_for_later(
    garden: Garden, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit of the server must neither cost the chunks that were read, nor end a chunk as if it had no more rows."""
    slow = "(id < 20 OR SLEEP(0.05) = 0)" if garden.mysql else "(id < 20 OR pg_sleep(0.05) IS NOT NULL)"
    monkeypatch.setattr(reading, "bounds", lambda *_: iter([["9"], ["19"]]))

    def limited(seconds: float) -> None:
        """What a statement may take: PostgreSQL's session sets it itself."""
        monkeypatch.setitem(postgres._SETTINGS, "statement_timeout", f"{seconds * 1000:.0f}ms")
        if garden.mysql:
            garden.execute(f"SET GLOBAL max_statement_time = {seconds}")

    limited(0.2)
    monkeypatch.setattr(reading, "_TRIES", 2)
    one_sentence(
        garden,
        "failed: .*(time|timeout).* was read in part: run the same command again to go on",
        where=slow,
        parallel=1,
    )
    assert 20 == len(garden.images("plot"))
    limited(60)
    done = garden.read("plot", where=slow)
    assert (2, 3) == (done.resumed, done.chunks)
    assert 30 == len(garden.images("plot"))


def test_an_answer_that_never_comes(garden: Garden, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is neither cut nor answered would hold the verb for ever."""
    if not garden.mysql:
        pytest.skip("libpq has no limit of its own for an answer; its keepalives end a dead connection")
    monkeypatch.setattr(mysql, "READ_SECONDS", 1)
    database = source_of(load(garden.file)).database
    assert database
    with (
        pytest.raises(IngestError, match=r"failed: .*timed out"),
        connected(database) as (dialect, connection),
    ):
        dialect.values(connection, "SELECT SLEEP(5)")
