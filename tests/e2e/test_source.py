"""Tables read from real databases, together with the stream of their changes, while writers work."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest

from ingest.change import Change, Hints, Image, Message, Op
from ingest.config import load
from ingest.errors import IngestError
from ingest.formats import ingest_snapshot
from ingest.source import digest
from ingest.source import snapshot as reading
from ingest.source.database import connected
from ingest.source.snapshot import snapshot, source_of
from tests.e2e.databases import PASSWORD, USER, Database, MariaDB, Nodes, PostgreSQL, Replica, Standby

SEEDS = int(os.environ.get("SOURCE_SEEDS", "2"))


@pytest.fixture(scope="module", params=[MariaDB, PostgreSQL], ids=["mariadb", "postgresql"])
def node(request: pytest.FixtureRequest) -> Iterator[Database]:
    """One database of each kind."""
    with Nodes() as nodes:
        yield nodes.of(request.param)


class Garden:
    """A database, asked in its own SQL, and a pipeline over it; the database may be a replica, whose primary gets all statements."""

    def __init__(self, node: Database, folder: Path) -> None:
        self.node = node
        self.written = node.primary if isinstance(node, Replica | Standby) else node
        self.mysql = isinstance(node, MariaDB)
        self.database = "garden" if self.mysql else "public"
        where = self.address(node)
        self.file = folder / "shop.yaml"
        self.file.write_text(
            "pipeline: shop\nlake: ./lake\nengine: auto\nsources:\n"
            f"  - {{name: shop, path: ./in/*.jsonl, format: dts-canal, database: {{url: '{where}', user: {USER}, "
            f"password: {PASSWORD}}}}}\n",
            "utf-8",
        )
        if node is not self.written:
            self.name_primary(self.written)

    def address(self, node: Database) -> str:
        """What a pipeline file calls a database of this one's kind."""
        where = f"127.0.0.1:{node.port}"
        return f"mysql://{where}" if self.mysql else f"postgresql://{where}/postgres"

    def name_primary(self, primary: Database) -> None:
        """Say in the pipeline file whose replica the database is."""
        text, address = self.file.read_text("utf-8"), self.address(primary)
        self.file.write_text(text.replace("user: capture", f"primary: '{address}', user: capture"), "utf-8")

    def execute(self, *statements: str) -> None:
        """Statements, each committed."""
        connection = self.written.connect()
        with connection.cursor() as cursor:
            for one in statements:
                cursor.execute(one)
                connection.commit()
        connection.close()

    def rows(self, query: str, *, written: bool = False) -> list[tuple[Any, ...]]:
        """The rows of a query; ``written`` asks the database that gets statements."""
        connection = (self.written if written else self.node).connect()
        with connection.cursor() as cursor:
            cursor.execute(query)
            found = list(cursor.fetchall())
        connection.close()
        return found

    def land(self, number: int, messages: Iterable[Mapping[str, Any]]) -> None:
        """A file of messages, which has its name once it is whole."""
        here = self.file.parent / "in"
        here.mkdir(exist_ok=True)
        (here / ".part").write_text("".join(f"{json.dumps(message)}\n" for message in messages), "utf-8")
        (here / ".part").rename(here / f"{number:09d}.jsonl")

    def read(self, table: str, **given: Any) -> reading.SnapshotProgress:
        """One snapshot."""
        pipeline = load(self.file)
        return snapshot(pipeline, source_of(pipeline), f"{self.database}.{table}", **{"alone": True, **given})

    def changes(self, table: str) -> list[Change]:
        """All changes of the files of a table's snapshots."""
        return [
            change
            for file in sorted(self.file.parent.glob(f"lake/snapshots/shop/*{table}-*/*.jsonl"))
            for line in file.read_bytes().splitlines()
            for change in ingest_snapshot.parse(Message(line), Hints())
        ]

    def images(self, table: str) -> list[Image]:
        """The rows of its snapshots."""
        return [change.after for change in self.changes(table) if change.after is not None]


@pytest.fixture
def garden(node: Database, tmp_path: Path) -> Garden:
    """A pipeline of its own for each test."""
    return Garden(node, tmp_path)


# --- values ---------------------------------------------------------------------------------------

_MYSQL_VALUES = {
    "a": ("tinyint(1)", "1", "1", "int8"),
    "b": ("bigint unsigned", "18446744073709551615", "18446744073709551615", "uint64"),
    "c": ("int(8) unsigned zerofill", "42", "42", "uint32"),
    "d": ("decimal(38,10)", "1234567890123456789012345678.0000000010", "1234567890123456789012345678.0000000010", "decimal(38,10)"),
    "d0": ("decimal(9,4) unsigned zerofill", "1.5", "1.5000", "decimal(9,4)"),
    "e": ("float", "1.1", 1.1, "float32"),
    "f": ("double", "0.1", "0.1", "float64"),
    "f0": ("double zerofill", "1.5", "1.5", "float64"),
    "g": ("char(3)", "'ä北'", "ä北", "string"),
    "h": ("longtext", "'🚚 \"q\" \\\\ back\\nline\\ttab'", '🚚 "q" \\ back\nline\ttab', "string"),
    "i": ("varbinary(300)", f"X'{'00ff' * 60}'", base64.b64encode(bytes.fromhex("00ff" * 60)).decode(), "binary"),
    "j": ("bit(64)", "18446744073709551615", "18446744073709551615", "bit(64)"),
    "k": ("date", "'2024-02-29'", "2024-02-29", "date"),
    "l": ("time(6)", "'-838:59:58.500000'", "-838:59:58.5", "time"),
    "m": ("datetime(6)", "'2024-02-29 23:59:59.000001'", "2024-02-29 23:59:59.000001", "datetime"),
    "n": ("timestamp(3) NULL", "'2024-02-29 23:59:59.250'", "2024-02-29T23:59:59.25Z", "timestamp"),
    "o": ("year", "1999", "1999", "year"),
    "p": ("enum('x','it''s')", "'it''s'", "it's", "enum"),
    "q": ("set('x','y','z')", "'x,z'", "x,z", "set"),
    "r": ("int GENERATED ALWAYS AS (c + 1) STORED", None, "43", "int32"),
    "s": ("varchar(9) CHARACTER SET latin1", "'é'", "é", "string"),
    "t": ("datetime", "'2024-01-01 00:00:00'", "2024-01-01 00:00:00", "datetime"),
    "u": ("point", "ST_GeomFromText('POINT(1 2)')", "POINT(1 2)", "geometry"),
    "v": ("varchar(9)", "''", "", "string"),
    "w": ("json", "'{\"a\": [1.10]}'", '{"a": [1.10]}', "string"),
    "x": ("varchar(9) CHECK (json_valid(x))", "'null'", "null", "string"),
}  # fmt: skip
_POSTGRES_VALUES = {
    "a": ("boolean", "true", "true", "boolean"),
    "b": ("bigint", "-9223372036854775808", "-9223372036854775808", "int64"),
    "d": ("numeric(38,10)", "1234567890123456789012345678.0000000010", "1234567890123456789012345678.0000000010", "decimal(38,10)"),
    "e": ("real", "1.1", "1.1", "float32"),
    "f": ("double precision", "'-Infinity'", "-Infinity", "float64"),
    "h": ("text", "E'🚚 \"q\" \\\\ back\\nline\\ttab\\x01'", '🚚 "q" \\ back\nline\ttab\x01', "string"),
    "i": ("bytea", f"'\\x{'00ff' * 60}'", base64.b64encode(bytes.fromhex("00ff" * 60)).decode(), "binary"),
    "j": ("bit(12)", "B'101000000001'", "2561", "bit"),
    "k": ("date", "'2024-02-29'", "2024-02-29", "date"),
    "l": ("time", "'23:59:58.5'", "23:59:58.5", "time"),
    "m": ("timestamp", "'2024-02-29 23:59:59.000001'", "2024-02-29 23:59:59.000001", "datetime"),
    "n": ("timestamptz", "'2024-02-29 23:59:59.25+08'", "2024-02-29T15:59:59.25Z", "timestamp"),
    "o": ("jsonb", "'{\"a\": 1.10}'", '{"a": 1.10}', "json"),
    "p": ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "string"),
    "r": ("int GENERATED ALWAYS AS (1 + 1) STORED", None, "2", "int32"),
    "q": ("inet", "'10.0.0.1'", "10.0.0.1", "string"),
    "s": ("inet", "'2001:db8::1/64'", "2001:db8::1/64", "string"),
    "t": ("cidr", "'10.1.0.0/16'", "10.1.0.0/16", "string"),
    "u": ("small_price", "7.50", "7.50", "decimal(10,2)"),
    "v": ("varchar(9)", "''", "", "string"),
    "w": ("short_code", "'ab'", "ab   ", "string"),
}  # fmt: skip
_POSTGRES_DOMAINS = (
    "DROP TABLE IF EXISTS kinds",
    "DROP DOMAIN IF EXISTS small_price",
    "DROP DOMAIN IF EXISTS price",
    "DROP DOMAIN IF EXISTS short_code",
    "CREATE DOMAIN price AS numeric(10,2) CHECK (VALUE > 0)",
    "CREATE DOMAIN small_price AS price CHECK (VALUE < 100)",
    "CREATE DOMAIN short_code AS char(5)",
)


def test_every_type_is_read_as_its_exact_text(garden: Garden) -> None:
    """A value that the stream writes otherwise would differ from itself, or be damaged for good."""
    kinds = _MYSQL_VALUES if garden.mysql else _POSTGRES_VALUES
    declared = ", ".join(f"{name} {kind[0]}" for name, kind in kinds.items())
    given = {name: kind[1] for name, kind in kinds.items() if kind[1] is not None}
    garden.execute(*(() if garden.mysql else _POSTGRES_DOMAINS))
    garden.execute(
        "DROP TABLE IF EXISTS kinds",
        f"CREATE TABLE kinds (id int primary key, {declared})",
        f"INSERT INTO kinds (id, {', '.join(given)}) VALUES (1, {', '.join(given.values())})",
        "INSERT INTO kinds (id) VALUES (2)",
    )
    assert garden.read("kinds").rows == 2
    read = garden.changes("kinds")
    [first, second] = garden.images("kinds")
    for name, (_, _, wanted, logical) in kinds.items():
        found = first[name]
        if isinstance(wanted, float):  # a FLOAT comes as the double that it is
            assert (name, pytest.approx(wanted, rel=1e-7)) == (name, float(found or ""))
        else:
            assert (name, wanted) == (name, found)
        assert (name, logical) == (name, read[0].types[name])
        if name not in ("r", "o"):
            assert (name, None) == (name, second[name])
    assert read[-1].op is Op.TRUNCATE


def test_a_table_of_many_columns(garden: Garden) -> None:
    """A function of PostgreSQL takes 100 arguments: such tables could be neither read nor compared."""
    kind = "varchar(9)"
    garden.execute(
        "DROP TABLE IF EXISTS wide",
        f"CREATE TABLE wide (id int primary key, {', '.join(f'c{n} {kind}' for n in range(150))})",
        "INSERT INTO wide (id, c0, c149) VALUES (1, 'a', 'b')",
    )
    garden.read("wide")
    [row] = garden.images("wide")
    assert (151, "a", None, "b") == (len(row), row["c0"], row["c75"], row["c149"])
    pipeline = load(garden.file)
    database = source_of(pipeline).database
    assert database
    with connected(database) as (dialect, connection):
        parts = [f"COALESCE(CHAR_LENGTH(c{n}), -1), ':', COALESCE(c{n}, '')" for n in range(150)]
        there = dialect.number(digest.source_text(dialect, parts))
        [(number,)] = dialect.values(connection, f"SELECT {there} FROM {garden.database}.wide")
    cells = ", ".join(
        f"'{'a' if n == 0 else 'b'}' AS c{n}" if n in (0, 149) else f"NULL::VARCHAR AS c{n}"
        for n in range(150)
    )
    here = digest.mirror_number(digest.mirror_text([one.replace("CHAR_LENGTH", "length") for one in parts]))
    assert duckdb.sql(f"SELECT {here} FROM (SELECT {cells})").fetchall() == [(int(number),)]


@pytest.mark.parametrize("size", [7, 1000])
def test_ranges_hold_every_row_once(garden: Garden, size: int) -> None:
    """A row between two ranges is lost, one in both is read twice."""
    text = "varchar(20) COLLATE utf8mb4_general_ci" if garden.mysql else "varchar(20)"
    garden.execute(
        "DROP TABLE IF EXISTS cut",
        f"CREATE TABLE cut (a {text}, b decimal(20,4), c int, primary key (a, b))",
    )
    random = Random(size)
    keys = {
        (
            random.choice(("Ab", "b'c", "ä", "\\", "z%", "A\tc")),
            f"{random.randint(-9, 9)}.{random.randint(0, 9999):04d}",
        )
        for _ in range(300)
    }
    connection = garden.node.connect()
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO cut VALUES (%s, %s, 1)", sorted(keys))
    connection.commit()
    connection.close()
    progress = garden.read("cut", size=size, parallel=3)
    found = [(row["a"], row["b"]) for row in garden.images("cut")]
    assert len(found) == len(set(found)) == progress.rows
    assert {(a, str(b)) for a, b, _ in garden.rows("SELECT * FROM cut")} == set(found)


def test_a_table_without_a_key_and_a_condition(garden: Garden) -> None:
    """Rows that do not meet the condition would land; an end mark after some rows would take all others away."""
    garden.execute("DROP TABLE IF EXISTS plain", "CREATE TABLE plain (n int)")
    garden.execute(*(f"INSERT INTO plain VALUES ({n % 3})" for n in range(9)))
    garden.read("plain", where="n % 3 = 1", size=2)
    assert [{"n": "1"}] * 3 == garden.images("plain")
    assert {Op.READ} == {change.op for change in garden.changes("plain")}


# --- faults ---------------------------------------------------------------------------------------


def test_a_wrong_password_is_one_sentence_without_it(garden: Garden) -> None:
    """A password in a log is a password lost."""
    if not garden.mysql:
        pytest.skip("this PostgreSQL trusts every user on loopback")
    garden.file.write_text(
        garden.file.read_text("utf-8").replace(f"password: {PASSWORD}", "password: hunter2-x")
    )
    with pytest.raises(IngestError, match="does not let user") as caught:
        garden.read("kinds")
    assert "hunter2-x" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_table_that_is_not_there_and_a_null_in_the_key(garden: Garden) -> None:
    """A missing table must not pass as an empty one, nor rows without a key as no rows."""
    with pytest.raises(IngestError, match="no table"):
        garden.read("nowhere")
    garden.execute(
        "DROP TABLE IF EXISTS loose", "CREATE TABLE loose (n int)", "INSERT INTO loose VALUES (NULL)"
    )
    garden.file.write_text(
        garden.file.read_text("utf-8") + f"tables: [{{match: {garden.database}.loose, keys: [n]}}]\n", "utf-8"
    )
    with pytest.raises(IngestError, match="NULL in a column of its key"):
        garden.read("loose")


def test_nothing_is_read_before_the_stream_has_begun(garden: Garden) -> None:
    """What changes between the reading and the stream's beginning would be lost for ever."""
    with pytest.raises(IngestError, match="Nothing of source shop"):
        garden.read("kinds", alone=False)


def test_columns_that_change_half_way_begin_the_table_again(
    garden: Garden, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of two shapes in one snapshot would say that a column was NULL."""
    garden.execute("DROP TABLE IF EXISTS moving", "CREATE TABLE moving (id int primary key, v int)")
    garden.execute(*(f"INSERT INTO moving VALUES ({n}, {n})" for n in range(30)))
    real, calls = reading.TableReading._chunk, []

    def chunk(self: Any, number: int, span: Any) -> int:
        calls.append(number)
        if len(calls) == 2:
            garden.execute("ALTER TABLE moving ADD COLUMN w int DEFAULT 7")
        return real(self, number, span)

    monkeypatch.setattr(reading.TableReading, "_chunk", chunk)
    assert garden.read("moving", size=10, parallel=1).rows == 30
    assert sum(row.get("w") == "7" for row in garden.images("moving")) == 30
    ends = [change for change in garden.changes("moving") if change.op is Op.TRUNCATE]
    assert len(ends) == 1


def test_a_connection_that_breaks_is_made_again(garden: Garden, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short cut of the network must not cost what was read, nor a row."""
    garden.execute("DROP TABLE IF EXISTS cutoff", "CREATE TABLE cutoff (id int primary key)")
    garden.execute("INSERT INTO cutoff VALUES " + ", ".join(f"({n})" for n in range(100)))
    real, calls = reading.write, []

    def write(file: Path, lines: Iterator[bytes]) -> None:
        if file.name.startswith("chunk"):
            calls.append(file.name)
            if len(calls) == 2:
                next(lines)
                raise ConnectionResetError("cut")
        real(file, lines)

    monkeypatch.setattr(reading, "write", write)
    assert garden.read("cutoff", size=20, parallel=1).rows == 100
    assert sorted(str(n) for n in range(100)) == sorted(str(row["id"]) for row in garden.images("cutoff"))


def test_a_killed_reading_goes_on_where_it_was(garden: Garden) -> None:
    """Hours of reading would begin again, or a chunk would land in halves."""
    garden.execute(
        "DROP TABLE IF EXISTS lengthy", "CREATE TABLE lengthy (id int primary key, v varchar(100))"
    )
    for first in range(0, 20_000, 1000):
        garden.execute(
            "INSERT INTO lengthy VALUES " + ", ".join(f"({n}, 'v{n}')" for n in range(first, first + 1000))
        )
    code = (
        "import sys, time; from ingest.config import load; from ingest.source import snapshot as s\n"
        "real = s.write\n"
        "def write(file, lines):\n    time.sleep(0.1); real(file, lines)\n"
        "s.write = write\n"
        f"p = load({str(garden.file)!r}); s.snapshot(p, s.source_of(p), '{garden.database}.lengthy', size=500, "
        "parallel=2, alone=True)"
    )
    child = subprocess.Popen([sys.executable, "-c", code])
    until = time.monotonic() + 60
    while not list(garden.file.parent.glob("lake/snapshots/shop/*/chunk-*5*.jsonl")):
        assert time.monotonic() < until
        assert child.poll() is None
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    progress = garden.read("lengthy", size=500)
    assert 0 < progress.resumed < progress.chunks == 41
    found = [row["id"] for row in garden.images("lengthy")]
    assert len(found) == len(set(found)) == 20_000
