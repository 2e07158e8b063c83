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
from ingest.source.place import KnownTable
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
        garden,
        "may not read garden.plot: grant SELECT on it"
        if garden.mysql
        else "permission denied for table plot",
    )
    assert [] == garden.changes("plot")


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
    assert [] == garden.changes("plot")


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
    assert [] == garden.changes("plot")


def test_rows_that_a_policy_hides_do_not_pass_as_deleted(garden: Garden) -> None:
    """The end mark would remove from the mirror each row that this user may not see."""
    if garden.mysql:
        pytest.skip("it has no policies")
    as_reader(garden, "SELECT")
    garden.execute("ALTER TABLE plot ENABLE ROW LEVEL SECURITY", "CREATE POLICY few ON plot USING (id < 10)")
    one_sentence(garden, "would be affected by row-level security policy")
    assert [] == garden.changes("plot")


def test_doctor_sees_rights_on_some_columns_and_tables_that_are_gone(garden: Garden) -> None:
    """The next comparison would find it, at night."""
    from ingest.operate.doctor import examine

    def found() -> tuple[str, str]:
        one = next(one for one in examine(load(garden.file)) if one.check == "database of shop")
        return one.state, one.found

    mirrored(garden)
    assert "ok" == found()[0]
    as_reader(garden, "SELECT (id, a)")
    state, said = found()
    assert "wrong" == state
    assert (
        "may not read all columns of garden.plot" if garden.mysql else "permission denied for table plot"
    ) in said
    garden.execute("DROP TABLE plot")
    state, said = found()
    assert "wrong" == state
    gone = f"has no table {garden.database}.plot" in said
    assert gone or (garden.mysql and "may not read garden.plot" in said)  # it need not tell this user more


def test_a_table_that_is_not_there_is_not_a_missing_right(garden: Garden) -> None:
    """Advice to grant SELECT would hide that the name has a typing error."""
    for name in ("nope", "nope'`\""):
        with pytest.raises(IngestError, match=r"has no table (garden|public)\.nope.*: look at its name"):
            garden.read(name)


def test_a_snapshot_goes_on_after_a_statement_in_between(
    garden: Garden, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of two shapes in one snapshot are wrong in half of their columns, and an hour of reading again needs a reason."""
    real = reading.TableReading._chunk

    def chunk(self: Any, number: int, span: Any) -> int:
        if number == 1:
            raise IngestError("killed")
        return real(self, number, span)

    with monkeypatch.context() as once:
        once.setattr(reading.TableReading, "_chunk", chunk)
        one_sentence(garden, "killed", size=10, parallel=1)
    garden.execute("ALTER TABLE plot ADD COLUMN c int", "ALTER TABLE plot DROP COLUMN b")
    done = garden.read("plot", size=10)
    assert (0, 4, 30) == (done.resumed, done.chunks, done.rows)
    [warning] = done.warnings
    assert (
        "plot has changed since a part of it was read: c is new, b is gone. It is read again from its beginning."
        in warning
    )
    garden.execute("ALTER TABLE plot DROP COLUMN c", "ALTER TABLE plot ADD COLUMN b varchar(9)")
    again = garden.read("plot", size=10)
    assert (0, []) == (again.resumed, again.warnings)  # nor goes the first one on


def test_a_statement_in_the_middle_is_reported(garden: Garden, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate halves for no visible reason."""
    real, seen = reading.TableReading._chunk, []

    def chunk(self: Any, number: int, span: Any) -> int:
        if not seen:
            seen.append(garden.execute("ALTER TABLE plot ADD COLUMN c int"))
        return real(self, number, span)

    monkeypatch.setattr(reading.TableReading, "_chunk", chunk)
    [warning] = garden.read("plot", size=10, parallel=1).warnings
    assert "plot changed while it was read: c is new. It is read again from its beginning." in warning


# --- keys -----------------------------------------------------------------------------------------


def test_a_table_without_a_key_says_what_becomes_of_its_mirror(garden: Garden) -> None:
    """The rows wait in a held mirror, and otherwise nothing says so until it is looked at."""
    garden.execute(
        "DROP TABLE IF EXISTS loose",
        "CREATE TABLE loose (a int, b int)",
        "INSERT INTO loose VALUES (1, NULL), (2, 2)",
    )
    [warning] = garden.read("loose").warnings
    assert f"{garden.database}.loose has no key, so its mirror is held: write `keys: [...]`" in warning
    assert "`no_key: full_row`" in warning
    rules = f"tables: [{{match: '{garden.database}.loose', no_key: full_row}}]\n"
    garden.file.write_text(garden.file.read_text("utf-8") + rules, "utf-8")
    assert [] == garden.read("loose").warnings


def test_a_null_in_the_mirrors_key_is_reported_before_its_row_is_a_reject(garden: Garden) -> None:
    """A stream takes a unique index for the key, and a unique index may hold NULL as often as it likes."""
    garden.execute(
        "DROP TABLE IF EXISTS loose", "CREATE TABLE loose (a int unique, b int)",
        "INSERT INTO loose VALUES (1, NULL), (NULL, 2), (NULL, 2)",
    )  # fmt: skip
    rows = pa.table({"a": pa.array([1], pa.int32()), "b": pa.array([None], pa.int32())})
    made.mirror(lake(garden), table_of(garden, "loose"), {"a": "int32", "b": "int32"}, ["a"], rows)
    [warning] = garden.read("loose").warnings
    assert f"2 rows of {garden.database}.loose with NULL in (a), its mirror's key" in warning
    assert "key-does-not-fit" in warning
    garden.execute("DELETE FROM loose WHERE a IS NULL")
    assert [] == garden.read("loose").warnings


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
    assert 10 == len(garden.changes("plot"))  # and no end mark


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
        compare(garden, "plot", tell=tell, parallel=1, range_rows=10)
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
    monkeypatch.setattr(*((mysql, "READ_SECONDS") if garden.mysql else (postgres, "ANSWER_SECONDS")), 1)
    database = source_of(load(garden.file)).database
    assert database
    with (
        pytest.raises(IngestError, match=r"failed: .*(timed out|no answer came for 1 seconds)"),
        connected(database) as (dialect, connection),
    ):
        dialect.values(connection, "SELECT SLEEP(5)" if garden.mysql else "SELECT pg_sleep(5)")
