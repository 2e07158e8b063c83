"""Mirrors compared with tables of real databases: what differs is found, whatever its type, and nothing else."""

from __future__ import annotations

import datetime as dt
import struct
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from ingest.change import TableId
from ingest.cli.app import app
from ingest.config import load
from ingest.source import reconcile as comparing
from ingest.source.reconcile import repair
from ingest.source.reconciled import Reconciled, ReconcileOptions
from ingest.source.snapshot import source_of
from ingest.tables.tables import LakeReader
from tests.e2e.databases import Database
from tests.e2e.test_source import Garden, node  # noqa: F401 - a fixture
from tests.e2e.test_source_writers import DRAWN, Writers
from tests.source import made


@pytest.fixture
def garden(node: Database, tmp_path: Path) -> Garden:  # noqa: F811
    """A pipeline of its own for each test."""
    return Garden(node, tmp_path)


def table_of(garden: Garden, name: str) -> TableId:
    """The table's identity."""
    return TableId(garden.database, None, name)


def compare(
    garden: Garden,
    name: str,
    passed: Callable[[str], dt.datetime | None] = lambda _mirror: None,
    tell: Callable[[Reconciled], None] = lambda _done: None,
    **given: Any,
) -> Reconciled:
    """Compare a table with its mirror, the stream being settled."""
    pipeline = load(garden.file)
    return comparing.reconcile(
        LakeReader(pipeline), source_of(pipeline), table_of(garden, name),
        ReconcileOptions(**{"settled": True, **given}), passed=passed, tell=tell,
    )  # fmt: skip


def lake(garden: Garden) -> Path:
    """The pipeline's lake."""
    return Path(load(garden.file).lake)


INSTANT = dt.datetime(2024, 2, 29, 15, 59, 59, 250000, tzinfo=dt.UTC)
LOCAL = dt.datetime.fromisoformat("2024-02-29 23:59:59.000001")
_KINDS: dict[str, tuple[str, str, str, str, pa.DataType, list[Any]]] = {
    # column: MySQL's type, PostgreSQL's type, values of both, logical type, the mirror's, its values
    "a": ("bigint", "bigint", "-9223372036854775808", "int64", pa.int64(), [-(2**63)]),
    "b": ("decimal(30,5)", "numeric(30,5)", "1234567890123456789012345.50000", "decimal(30,5)", pa.decimal128(30, 5), [Decimal("1234567890123456789012345.5")]),
    "c": ("decimal(9,2)", "numeric(9,2)", "1.50", "decimal(12,4)", pa.decimal128(12, 4), [Decimal("1.5")]),
    "d": ("double", "double precision", "0.1", "float64", pa.float64(), [0.1]),
    "e": ("double", "double precision", "1e300", "float64", pa.float64(), [1e300]),
    "f": ("float", "real", "1.1", "float32", pa.float32(), [struct.unpack(">f", struct.pack(">f", 1.1))[0]]),
    "g": ("varchar(50)", "text", "'ä, 🚚 ''q'' ~ 1:x'", "string", pa.string(), ["ä, 🚚 'q' ~ 1:x"]),
    "h": ("date", "date", "'2024-02-29'", "date", pa.date32(), [dt.date(2024, 2, 29)]),
    "i": ("datetime(6)", "timestamp", "'2024-02-29 23:59:59.000001'", "datetime", pa.timestamp("us"), [LOCAL]),
    "j": ("timestamp(3) NULL", "timestamptz", "'2024-02-29 23:59:59.250+08:00'", "timestamp", pa.timestamp("us", "UTC"), [INSTANT]),
    "k": ("time(3)", "time", "'23:59:58.500'", "time", pa.string(), ["23:59:58.5"]),
    "l": ("varbinary(9)", "bytea", "bytes", "binary", pa.binary(), [b"\x00\xff~"]),
    "m": ("varchar(9)", "text", "''", "string", pa.string(), [""]),
    "o": ("bigint unsigned", "numeric(20,0)", "18446744073709551615", "decimal(20,0)", pa.decimal128(20, 0), [Decimal(2**64 - 1)]),
    "p": ("bit(64)", "bit(12)", "bits", "bit(64)", pa.decimal128(20, 0), [Decimal(2561)]),
    "q": ("json", "jsonb", "'{\"a\": 1.10}'", "json", pa.string(), ['{"a": 1.10}']),
    "r": ("year", "smallint", "1999", "int32", pa.int32(), [1999]),
    "s": ("enum('x','y')", "uuid", "enum", "string", pa.string(), ["enum"]),
    "t": ("tinyint(1)", "boolean", "true", "boolean", pa.bool_(), [True]),
    "n": ("date", "date", "'2024-03-01'", "datetime", pa.timestamp("us"), [dt.datetime.fromisoformat("2024-03-01")]),
}  # fmt: skip


def test_equal_values_of_every_type_are_equal_and_each_change_is_seen(garden: Garden) -> None:
    """A value whose text differs on the two sides would be found wrong for ever; one left out would never be."""
    at = 0 if garden.mysql else 1
    given = {name: kind[2] for name, kind in _KINDS.items()}
    given["l"] = "X'00ff7e'" if garden.mysql else "'\\x00ff7e'"
    given["p"] = "2561" if garden.mysql else "B'101000000001'"
    label = "y" if garden.mysql else "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    given["s"] = f"'{label}'"
    if garden.mysql:
        given["j"] = "'2024-02-29 15:59:59.250'"  # of a session in UTC
    garden.execute(
        "DROP TABLE IF EXISTS kinds",
        f"CREATE TABLE kinds (id int primary key, {', '.join(f'{name} {kind[at]}' for name, kind in _KINDS.items())})",
        f"INSERT INTO kinds VALUES (1, {', '.join(given.values())})",
        "INSERT INTO kinds (id) VALUES (2)",
    )
    schema = pa.schema([("id", pa.int32()), *((name, kind[4]) for name, kind in _KINDS.items())])
    columns = {"id": "int32"} | {name: kind[3] for name, kind in _KINDS.items()}
    cells = {"id": [1, 2]} | {name: [*kind[5], None] for name, kind in _KINDS.items()} | {"s": [label, None]}
    made.mirror(lake(garden), table_of(garden, "kinds"), columns, ["id"], pa.table(cells, schema))
    done = compare(garden, "kinds")
    assert [] == done.differences
    assert (2, 2, ()) == (done.rows, done.mirror_rows, done.lacking)
    for name in _KINDS:
        both = cells | {name: [None, cells[name][0]]}
        made.mirror(lake(garden), table_of(garden, "kinds"), columns, ["id"], pa.table(both, schema))
        found = compare(garden, "kinds").differences
        assert [("1",), ("2",)] == [one.key for one in found], name
        assert [{name}, {name}] == [set(one.cells) for one in found]


def _doubles(random: Random) -> list[float]:
    """Doubles of every size, each once."""
    edges = [
        0.1,
        1e20,
        1e-5,
        -1.5,
        1e300,
        3.0,
        2.0**53,
        1 / 3,
        1e15,
        1e16,
        1e-4,
        9.999e-5,
        123456789012345678.0,
        5e-324 * 2**60,
    ]
    powers = [random.choice((-1, 1)) * random.random() * 10.0**power for power in range(-300, 300, 2)]
    whole = [float(10**power) for power in range(14, 24)] + [
        float(random.randrange(2**80)) for _ in range(50)
    ]
    return list(dict.fromkeys([*edges, *powers, *whole]))


@pytest.mark.parametrize("keys", [("k",), ()], ids=["as the key", "without a key"])
def test_floating_numbers_of_any_size_are_matched_by_their_value(
    garden: Garden, keys: tuple[str, ...]
) -> None:
    """A row known by two texts would be deleted by the repair of a right mirror."""
    numbers = _doubles(Random(5))
    double = "double" if garden.mysql else "double precision"
    key = "primary key" if keys else ""
    garden.execute(
        "DROP TABLE IF EXISTS far",
        f"CREATE TABLE far (k {double} {key}, v int, f {'float' if garden.mysql else 'real'})",
    )
    values = ", ".join(
        f"({number!r}e0, {place}, 1.1)" if "e" not in repr(number) else f"({number!r}, {place}, 1.1)"
        for place, number in enumerate(numbers)
    )
    garden.execute(f"INSERT INTO far VALUES {values}")
    if not keys:
        garden.file.write_text(
            garden.file.read_text("utf-8")
            + f"tables: [{{match: {garden.database}.far, no_key: full_row}}]\n",
            "utf-8",
        )
    schema = pa.schema([("k", pa.float64()), ("v", pa.int32()), ("f", pa.float32())])
    columns = {"k": "float64", "v": "int32", "f": "float32"}

    def mirrored(places: list[int], value: Callable[[int], int] = int) -> Reconciled:
        cells = {"k": [numbers[place] for place in places], "v": [value(place) for place in places]}
        rows = pa.table(cells | {"f": [1.1] * len(places)}, schema)
        made.mirror(lake(garden), table_of(garden, "far"), columns, keys, rows)
        return compare(garden, "far")

    every = list(range(len(numbers)))
    done = mirrored(every)
    assert ([], {}, len(numbers)) == (done.differences, done.unkeyed, done.rows)
    done = mirrored(every[3:], lambda place: place + 1 if place in (7, 200) else place)
    if keys:
        assert {"missing": 3, "different": 2, "surplus": 0} == {
            kind: done.count(kind) for kind in ("missing", "different", "surplus")
        }
        pipeline = load(garden.file)
        source, table = source_of(pipeline), table_of(garden, "far")
        mirror = comparing.mirror_of(LakeReader(pipeline), source, table)
        _, read, gone = repair(pipeline, source, table, mirror, done.differences)
        assert (5, 0) == (read, gone)
    else:
        assert {"missing": 5, "surplus": 2} == done.unkeyed


def test_a_text_that_changes_by_a_space_is_another_value(garden: Garden) -> None:
    """Spaces within the texts of a document are its content; those between its members are how it is printed."""
    if garden.mysql:
        pytest.skip("MariaDB keeps a document as it was written")
    garden.execute(
        "DROP TABLE IF EXISTS papers", "CREATE TABLE papers (id int primary key, j json, b jsonb)",
        """INSERT INTO papers VALUES (1, '{"t":"a,b:c"}', '{"t": "a,b:c"}')""",
    )  # fmt: skip
    schema = pa.schema([("id", pa.int32()), ("j", pa.string()), ("b", pa.string())])
    columns = {"id": "int32", "j": "json", "b": "json"}
    for text, binary, wrong in (
        ('{"t":"a,b:c"}', '{"t": "a,b:c"}', set()),
        ('{"t":"a, b: c"}', '{"t": "a,b:c"}', {"j"}),
        ('{"t":"a,b:c"}', '{"t": "a, b:c"}', {"b"}),
    ):
        rows = pa.table({"id": [1], "j": [text], "b": [binary]}, schema)
        made.mirror(lake(garden), table_of(garden, "papers"), columns, ["id"], rows)
        assert wrong == {name for one in compare(garden, "papers").differences for name in one.cells}


def test_values_of_domains_and_addresses_are_those_of_the_stream(garden: Garden) -> None:
    """A netmask that only a cast adds makes each right row a wrong one; a domain that is not known cannot be read at all."""
    if garden.mysql:
        pytest.skip("it has neither")
    garden.execute(
        "DROP TABLE IF EXISTS hosts", "DROP DOMAIN IF EXISTS posint", "CREATE DOMAIN posint AS int CHECK (VALUE > 0)",
        "CREATE TABLE hosts (ip inet primary key, n posint, net cidr)",
        "INSERT INTO hosts VALUES ('10.0.0.1', 1, '10.0.0.0/8'), ('::1', 2, '::/0'), ('10.0.0.2/24', 3, NULL)",
    )  # fmt: skip
    schema = pa.schema([("ip", pa.string()), ("n", pa.int32()), ("net", pa.string())])
    cells = {"ip": ["10.0.0.1", "::1", "10.0.0.2/24"], "n": [1, 2, 3], "net": ["10.0.0.0/8", "::/0", None]}
    columns = {"ip": "string", "n": "int32", "net": "string"}
    made.mirror(lake(garden), table_of(garden, "hosts"), columns, ["ip"], pa.table(cells, schema))
    done = compare(garden, "hosts")
    assert ([], ()) == (done.differences, done.left_out)
    cells["n"] = [1, 2, 4]
    made.mirror(lake(garden), table_of(garden, "hosts"), columns, ["ip"], pa.table(cells, schema))
    assert [("10.0.0.2/24",)] == [one.key for one in compare(garden, "hosts").differences]
    assert 3 == garden.read("hosts").rows


def test_a_date_of_zeros_is_shown_as_it_is(garden: Garden) -> None:
    """The mirror has NULL for it; where it has something else, both sides shown as NULL and a date explain nothing."""
    if not garden.mysql:
        pytest.skip("it has no such dates")
    zeros = {"d": "0000-00-00", "t": "0000-00-00 00:00:00", "s": "0000-00-00T00:00:00Z", "h": "2024-00-00"}
    garden.execute(
        "DROP TABLE IF EXISTS kinds",
        "CREATE TABLE kinds (id int primary key, d date, t datetime, s timestamp NULL, h date)",
        f"INSERT INTO kinds VALUES (1, '0000-00-00', '0000-00-00', '0000-00-00', '2024-00-00'), (2, {', '.join(['NULL'] * 4)})",
    )
    kinds = {"d": pa.date32(), "t": pa.timestamp("us"), "s": pa.timestamp("us", "UTC"), "h": pa.date32()}
    columns = {"id": "int32", "d": "date", "t": "datetime", "s": "timestamp", "h": "date"}

    def mirror(filled: Any) -> None:
        cells = {"id": pa.array([1, 2], pa.int32())} | {
            name: pa.array([filled if filled is None or kind != pa.date32() else filled.date()] * 2, kind)
            for name, kind in kinds.items()
        }
        made.mirror(lake(garden), table_of(garden, "kinds"), columns, ["id"], pa.table(cells))

    mirror(None)
    assert not compare(garden, "kinds").differs
    mirror(dt.datetime(2024, 1, 1))  # noqa: DTZ001 - a column without a zone
    first, second = compare(garden, "kinds").differences
    assert zeros == {name: source for name, (source, _) in first.cells.items()}
    assert dict.fromkeys(zeros) == {name: source for name, (source, _) in second.cells.items()}


KEYS = {
    "whole numbers": ("id bigint primary key", "id bigint primary key", "int64", pa.int64(), int),
    "bits": ("id bit(16) primary key", "id bit(16) primary key", "bit", pa.int64(), int),
    "texts of any case": ("id varchar(20) COLLATE utf8mb4_general_ci primary key", 'id varchar(20) COLLATE "en_US" primary key', "string", pa.string(), lambda n: f"K {n}"),
    "texts as bytes": ("id varchar(20) primary key", 'id varchar(20) COLLATE "C" primary key', "string", pa.string(), lambda n: f"k{n * 7919 % 3001}"),
    "blanks that do not count": ("id varchar(20) primary key", 'id varchar(20) COLLATE "C" primary key', "string", pa.string(), lambda n: f"k{n // 3}" + ("", "\t", "\x01 x")[n % 3]),
}  # fmt: skip


@pytest.mark.parametrize("kind", KEYS)
def test_planted_differences_are_found_whatever_orders_the_key(garden: Garden, kind: str) -> None:
    """A row that no range holds, or that another range holds on the other side, would be missed or invented."""
    mysql, postgres, logical, arrow, key = KEYS[kind]
    if not garden.mysql and "en_US" in postgres:
        postgres = 'id varchar(20) COLLATE "und-x-icu" primary key'
    garden.execute(
        "DROP TABLE IF EXISTS planted",
        f"CREATE TABLE planted ({mysql if garden.mysql else postgres}, v varchar(20))",
    )
    rows = {key(n): f"v{n}" for n in range(3000)}
    connection = garden.node.connect()
    with connection.cursor() as cursor:
        sent = "{:016b}".format if logical == "bit" and not garden.mysql else key
        numbered = [(sent(n), rows[key(n)]) for n in range(3000)]
        cursor.executemany("INSERT INTO planted VALUES (%s, %s)", numbered)
    connection.commit()
    connection.close()
    random = Random(1)
    mine = dict(rows)
    planted = random.sample(sorted(rows, key=str), 30)
    for one in planted[:10]:
        mine[one] += "!"
    for one in planted[10:20]:
        del mine[one]
    extra = [key(n) for n in range(5000, 5010)] if kind != "texts as bytes" else [f"x{n}" for n in range(10)]
    mine |= dict.fromkeys(extra, "surplus")
    schema = pa.schema([("id", arrow), ("v", pa.string())])
    made.mirror(
        lake(garden), table_of(garden, "planted"), {"id": logical, "v": "string"}, ["id"],
        pa.table({"id": list(mine), "v": list(mine.values())}, schema),
    )  # fmt: skip
    done = compare(garden, "planted", range_rows=500)
    assert {(str(one),) for one in planted[:10]} == {
        one.key for one in done.differences if one.kind == "different"
    }
    assert {(str(one),) for one in planted[10:20]} == {
        one.key for one in done.differences if one.kind == "missing"
    }
    assert {(str(one),) for one in extra} == {one.key for one in done.differences if one.kind == "surplus"}
    assert 3000 == done.rows


def test_types_that_each_connector_prints_otherwise_are_named_and_left_out(garden: Garden) -> None:
    """An array would differ in every row, and hide what does; a padded text would be found wrong for ever."""
    if garden.mysql:
        pytest.skip("its types have one text each")
    garden.execute(
        "DROP TABLE IF EXISTS odd", "CREATE TABLE odd (id int primary key, a int[], i interval, c char(5))",
        "INSERT INTO odd VALUES (1, '{1,2}', '1 day', 'ab')",
    )  # fmt: skip
    schema = pa.schema([("id", pa.int32()), ("a", pa.string()), ("i", pa.string()), ("c", pa.string())])
    rows = pa.table({"id": [1], "a": ["[1,2]"], "i": ["P1D"], "c": ["ab   "]}, schema)
    columns = {"id": "int32", "a": "json", "i": "interval", "c": "string"}
    made.mirror(lake(garden), table_of(garden, "odd"), columns, ["id"], rows)
    done = compare(garden, "odd")
    assert ([], ("a", "i")) == (done.differences, done.left_out)
    garden.read("odd")
    assert ["ab   "] == [row["c"] for row in garden.images("odd")]


def test_the_rows_that_differ_are_read_again(garden: Garden) -> None:
    """A repair that reads other rows than those, or forgets the surplus one, leaves the mirror wrong."""
    garden.execute(
        "DROP TABLE IF EXISTS healed", "CREATE TABLE healed (b varchar(9), a int, v varchar(9), primary key (a, b))",
        "INSERT INTO healed VALUES ('x', 1, 'one'), ('y', 2, 'two'), ('z', 3, 'three')",
    )  # fmt: skip
    schema = pa.schema([("b", pa.string()), ("a", pa.int32()), ("v", pa.string())])
    rows = pa.table({"b": ["x", "y", "q"], "a": [1, 2, -4], "v": ["one", "2", "four"]}, schema)
    made.mirror(
        lake(garden),
        table_of(garden, "healed"),
        {"b": "string", "a": "int32", "v": "string"},
        ["a", "b"],
        rows,
    )
    found = compare(garden, "healed").differences
    assert {("2", "y"), ("3", "z"), ("-4", "q")} == {one.key for one in found}
    pipeline = load(garden.file)
    source, table = source_of(pipeline), table_of(garden, "healed")
    mirror = comparing.mirror_of(LakeReader(pipeline), source, table)
    _, read, gone = repair(pipeline, source, table, mirror, found)
    assert (2, 1) == (read, gone)
    changes = garden.changes("healed")
    assert {("read", "two"), ("read", "three"), ("delete", None)} == {
        (one.op.value, one.after["v"] if one.after else None) for one in changes
    }
    assert [{"b": "q", "a": "-4"}] == [dict(one.before) for one in changes if one.before is not None]
    assert {("a", "b")} == {one.keys for one in changes}


def test_a_key_of_another_scale_is_deleted_as_the_mirror_writes_it(garden: Garden) -> None:
    """A mirror keeps a number without a declared scale as its text: a delete of ``2`` leaves the row ``2.00``."""
    if garden.mysql:
        pytest.skip("each DECIMAL has a scale")
    garden.execute(
        "DROP TABLE IF EXISTS prices", "CREATE TABLE prices (k numeric primary key, v int)",
        "INSERT INTO prices VALUES (1.50, 1), (3, 3), (4.0, 4)",
    )  # fmt: skip
    rows = pa.table(
        {"k": ["1.5", "2.00", "4.0"], "v": [7, 2, 7]}, pa.schema([("k", pa.string()), ("v", pa.int32())])
    )
    made.mirror(lake(garden), table_of(garden, "prices"), {"k": "decimal", "v": "int32"}, ["k"], rows)
    found = compare(garden, "prices").differences
    assert {("1.5", "different"), ("2", "surplus"), ("3", "missing"), ("4", "different")} == {
        (*one.key, one.kind) for one in found
    }
    pipeline = load(garden.file)
    source, table = source_of(pipeline), table_of(garden, "prices")
    repair(pipeline, source, table, comparing.mirror_of(LakeReader(pipeline), source, table), found)
    changes = garden.changes("prices")
    assert {"1.50", "3", "4.0"} == {one.after["k"] for one in changes if one.after is not None}
    assert {"1.5", "2.00"} == {one.before["k"] for one in changes if one.before is not None}


def test_a_repair_of_keys_of_another_scale_leaves_one_row_of_each(garden: Garden) -> None:
    """The row of ``1.50`` beside that of ``1.5`` would be two of one, and the next comparison would find neither wrong."""
    if garden.mysql:
        pytest.skip("each DECIMAL has a scale")

    def typed(verb: str, *words: str) -> None:
        done = CliRunner().invoke(app, [verb, str(garden.file), *words])
        assert 0 == done.exit_code, done.output

    garden.execute(
        "DROP TABLE IF EXISTS prices", "CREATE TABLE prices (k numeric primary key, v int)",
        "INSERT INTO prices VALUES (1.5, 1), (2.00, 2), (4.0, 4)",
    )  # fmt: skip
    typed("snapshot", "public.prices", "--alone")
    typed("run")
    garden.execute("UPDATE prices SET k = 1.50, v = 7 WHERE k = 1.5", "DELETE FROM prices WHERE k = 2")
    garden.execute("INSERT INTO prices VALUES (2, 8)", "DELETE FROM prices WHERE k = 4")
    typed("reconcile", "--settled", "--repair", "--run")
    mirror = LakeReader(load(garden.file)).ask_mirror("mirrors/public/prices", "SELECT k, v FROM {mirror}")
    assert {("1.50", 7), ("2", 8)} == {(row["k"], row["v"]) for row in mirror}
    assert 2 == len(mirror)


def test_a_row_that_changes_between_the_looks_is_not_judged(garden: Garden) -> None:
    """Otherwise changes that are on their way would be reported as lost."""
    garden.execute(
        "DROP TABLE IF EXISTS busy", "CREATE TABLE busy (id int primary key, v int)",
        "INSERT INTO busy VALUES (1, 1), (2, 2), (3, 3)",
    )  # fmt: skip
    schema = pa.schema([("id", pa.int32()), ("v", pa.int32())])

    def mirrored(*values: int) -> None:
        rows = pa.table({"id": [1, 2, 3], "v": list(values)}, schema)
        made.mirror(lake(garden), table_of(garden, "busy"), {"id": "int32", "v": "int32"}, ["id"], rows)

    mirrored(9, 9, 9)
    assert 3 == len(compare(garden, "busy", settled=False).not_judged)

    def passed(_mirror: str) -> dt.datetime:
        garden.execute("UPDATE busy SET v = 20 WHERE id = 2")
        mirrored(9, 9, 3)
        return dt.datetime.now(dt.UTC).replace(tzinfo=None)

    done = compare(garden, "busy", settled=False, passed=passed, wait=5.0)
    assert [("1",)] == [one.key for one in done.differences]
    assert 2 == done.on_the_way
    assert [] == done.not_judged


@pytest.mark.parametrize("seed", DRAWN)
def test_with_writers_at_work_what_was_planted_is_found_and_nothing_is_invented(
    garden: Garden, seed: int
) -> None:
    """A change in flight that counts as a difference hides the true ones among hundreds."""
    writers = Writers(garden, seed)
    quiet = {1000 + n: (f"a{n}", f"b{n}") for n in range(120)}  # no writer touches these
    garden.execute(
        "INSERT INTO bed VALUES " + ", ".join(f"({key}, '{a}', '{b}')" for key, (a, b) in quiet.items())
    )
    random = Random(seed)
    missing, changed, cleared, swapped, blank = (set(random.sample(sorted(quiet), 6)) for _ in range(5))
    surplus = {-3, 5000, 5001}

    def mirrored() -> None:
        """What a stream without faults would have made of the table by now, with the faults."""
        rows = {key: [a, b] for key, a, b in garden.rows("SELECT id, a, b FROM bed") if key not in missing}
        rows |= {key: ["surplus", None] for key in surplus}
        for key in rows:
            if key in changed:
                rows[key][0] = "changed"
            if key in cleared:
                rows[key][1] = None
            if key in swapped:
                rows[key].reverse()
            if key in blank:
                rows[key][0] = f"{rows[key][0]} "
        schema = pa.schema([("id", pa.int32()), ("a", pa.string()), ("b", pa.string())])
        cells = {
            "id": list(rows),
            "a": [one[0] for one in rows.values()],
            "b": [one[1] for one in rows.values()],
        }
        columns = {"id": "int32", "a": "string", "b": "string"}
        made.mirror(lake(garden), table_of(garden, "bed"), columns, ["id"], pa.table(cells, schema))

    def passed(_mirror: str) -> dt.datetime:
        mirrored()
        return dt.datetime.now(dt.UTC).replace(tzinfo=None)

    def written() -> set[tuple[object, ...]]:
        return {tuple(row) for row in garden.rows("SELECT id, a, b FROM bed")}

    with writers:
        mirrored()
        before = written()
        until = time.monotonic() + 60  # writers that wait for each other's locks write nothing for a second
        while len(before ^ written()) < 10:
            assert time.monotonic() < until, "the writers have stopped"
            time.sleep(0.05)
        done = compare(
            garden, "bed", settled=False, passed=passed, wait=5.0, range_rows=10
        )  # fmt: skip
    planted = missing | changed | cleared | swapped | blank | surplus
    assert planted == {int(one.key[0]) for one in done.differences}
    assert missing == {int(one.key[0]) for one in done.differences if one.kind == "missing"}
    assert surplus == {int(one.key[0]) for one in done.differences if one.kind == "surplus"}
    assert done.on_the_way
    assert [] == done.not_judged
