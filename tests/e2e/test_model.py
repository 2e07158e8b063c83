"""The model of the source database against a real MariaDB: the same statements leave the same rows and columns."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import os
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from ingest import types
from ingest.change import TableId
from ingest.ddl.as_stored import Default
from ingest.ddl.columns import logical_type, zero
from ingest.ddl.effect_model import Effect
from ingest.values import charsets, conversions
from tests.e2e.databases import MariaDB, Nodes
from tests.model import values
from tests.model.checks import typed
from tests.model.histories import STEPS, history
from tests.model.parts import Life
from tests.model.tables import Table

HISTORIES = 60
SEED = os.environ.get("INGEST_SEED", "")
MODES = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,TIME_ROUND_FRACTIONAL"


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """A connection to a server in the model's zone."""
    with Nodes() as nodes, contextlib.closing(nodes.of(MariaDB).connect()) as connection:
        cursor = connection.cursor()
        cursor.execute(f"SET time_zone = '+08:00', sql_mode = '{MODES}', autocommit = 1")
        yield cursor


@pytest.fixture
def loose(server: Any) -> Iterator[Any]:
    """The server in an empty database, without strict mode."""
    server.execute("CREATE OR REPLACE DATABASE loose")
    server.execute("USE loose")
    server.execute("SET sql_mode = ''")
    yield server
    server.execute(f"SET sql_mode = '{MODES}'")


@pytest.mark.parametrize("number", range(HISTORIES))
def test_the_model_does_what_a_server_does(server: Any, number: int) -> None:
    """A model that is wrong would judge mirrors wrongly."""
    steps = {name: 6 if name in ("insert", "update") else 2 for name in STEPS if name != "reload"}
    source = history(number, Life(steps, length=30, cases=True), SEED).source
    server.execute(f"CREATE OR REPLACE DATABASE h{number}")
    server.execute(f"USE h{number}")
    server.execute(f"SET sql_mode = '{MODES if source.strict else ''}'")
    for second, sql in source.script:
        server.execute(f"SET TIMESTAMP = {second}")
        run(server, sql)
    if source.by_server:
        pytest.skip("a NULL became NOT NULL in a column with a default, which servers do in two ways")
    for table in source.known():
        assert shown(table) == found(server, table), "\n".join(sql for _, sql in source.script)
    server.execute(f"DROP DATABASE IF EXISTS h{number}")


_NUMBERS = ("0", "-5", "7", "99", "300", "12345", "-12345", "2147483647")
_TEXTS = (
    "", "x", "12abc", " 12", "12 ", "+7", "-7", "1.5", "-.5x", "1e2", "-", "\t5", "1,234", "007", "NaN", "abcdef",
    "ab   ", "北京市区", "99999999999999999999", "1e400", "new", "new ", "NEW", "1", "2024-01-02", "2024-1-2",
    "2024-02-30", "2024-01-02 03:04:05", "2024-01-02 03:04:05.6", "10:11:12", "2024", "x" * 300,
)  # fmt: skip
_DECIMALS = ("-5.5000", "0.5000", "2.5000", "0.4999", "99.9960", "12345.6789", "-12345.6000", "-0.3000")
_DOUBLES = ("-5.5", "0.5", "1.5", "2.5", "99.996", "1" + "0" * 300, "-1" + "0" * 300, "123456.0", "-0.25")
_TIMES = ("1900-01-01 00:00:00", "2024-01-02 23:59:59.9", "2024-01-02 03:04:05.4", "2050-01-01 00:00:00")
_INTO = (
    "tinyint", "mediumint", "int unsigned", "bigint unsigned", "decimal(4,2)", "decimal(10,2) unsigned", "double",
    "float unsigned", "varchar(3)", "char(3)", "varchar(20)", "tinytext", "varbinary(2)", "year", "bit(4)", "date",
    "datetime", "enum('new','old')",
)  # fmt: skip
_CHARSETS = (
    "ascii", "latin1", "latin2", "gbk", "gb2312", "big5", "sjis", "ujis", "euckr", "cp932", "eucjpms", "utf8", "ucs2", "swe7",
)  # fmt: skip
_FILLED = (
    "tinyint(5) zerofill",
    "smallint zerofill",
    "int(5) unsigned zerofill",
    "int zerofill",
    "bigint(7) zerofill",
)
CONVERTED = {
    "int": (_NUMBERS, (*_INTO, "int zerofill", "float zerofill", "decimal(9,2) zerofill")),
    "varchar(400)": (_TEXTS, (*_INTO, *(f"varchar(400) character set {one}" for one in _CHARSETS))),
    **dict.fromkeys(_FILLED, (("7", "12345", "0"), ("varchar(30)", "char(4)", "text", "bigint"))),
    "decimal(8,2) zerofill": (("7.50", "0.00"), ("varchar(30)", "char(4)", "int")),
    "decimal(20,4)": (_DECIMALS, _INTO),
    "double": (_DOUBLES, _INTO),
    "datetime(6)": (_TIMES, ("datetime", "date", "time", "year", "varchar(10)", "varchar(40)", "bigint")),
    "date": (("1900-01-01", "2024-01-02"), ("datetime", "time", "year", "int", "varchar(4)", "smallint")),
    "varbinary(40)": (("YWJjZGVm", "AP8A/w==", "", "YWI="), ("varbinary(3)", "binary(3)", "varchar(3)")),
    "bit(8)": (("200", "5"), ("tinyint", "tinyint unsigned", "bit(4)")),
    "year": (("2024", "0"), ("tinyint", "int", "varchar(4)")),
    "enum('new','old','x')": (("new", "x"), ("enum('x','new')", "enum('old')", "varchar(2)")),
    "set('a','b','c')": (("a,b", "c", ""), ("set('c','a')", "varchar(3)")),
}


@pytest.mark.parametrize("old", CONVERTED)
def test_values_are_converted_as_a_server_without_strict_mode_does(loose: Any, old: str) -> None:
    """No message says what such a server cuts, clips and makes zero, nor what NULL becomes."""
    texts, into = CONVERTED[old]
    wrong = [one for new in into for one in _wrongly(loose, old, new, texts)]
    assert wrong == []


def test_each_character_is_kept_or_lost_as_a_server_does(server: Any) -> None:
    """A character set is another one under Python's name for it: each difference would be a silently wrong text."""
    every = [chr(one) for one in range(1, 0x10000) if not 0xD800 <= one <= 0xDFFF] + [
        "\U0001f600",
        "\U00020001",
    ]
    server.execute("SELECT character_set_name FROM information_schema.character_sets")
    wrong = []
    for (charset,) in server.fetchall():
        if charset != "binary":
            server.execute(f"SELECT CONVERT(CONVERT(%s USING {charset}) USING utf8mb4)", ("".join(every),))
            kept = server.fetchone()[0]
            pairs = zip(every, kept, strict=True)
            wrong += [(charset, one) for one, found in pairs if not _as_found(one, found, charset)]
    assert wrong == []


def _as_found(text: str, found: str, charset: str) -> bool:
    return charsets.is_disputed(text, charset) or charsets.stored(text, charset) == found


@pytest.mark.parametrize("charset", ["latin1", "gbk", "utf8mb4"])
def test_a_table_is_converted_as_a_server_without_strict_mode_does(loose: Any, charset: str) -> None:
    """CONVERT TO names no column: it is every column of texts that loses what the set lacks."""
    loose.execute(
        "CREATE TABLE t (a VARCHAR(20), b TEXT, c CHAR(9) CHARACTER SET latin1, d ENUM('x','é')) CHARSET utf8mb4"
    )
    values = ("北京 é€😀", "日本語 ÿ", "é€", "é")
    loose.execute("INSERT INTO t VALUES (%s, %s, %s, %s)", values)
    loose.execute(f"ALTER TABLE t CONVERT TO CHARACTER SET {charset}")
    loose.execute("SELECT * FROM t")
    found = loose.fetchone()
    rules = [
        conversions.conversion(old, "string", conversions.in_charset("", charset))
        for old in ("string(20)", "string", "string(9)", "enum")
    ]
    pairs = list(zip(rules, values, found, strict=True))
    assert [rule.doubted(text) for rule, text, _ in pairs] == [False, False, False, charset != "utf8mb4"]
    assert [rule.of(text) for rule, text, _ in pairs[:3]] == [kept for *_, kept in pairs[:3]]


@pytest.mark.parametrize("charset", ["latin1", "gbk", "utf8mb4"])
def test_a_column_takes_the_character_set_of_its_table(loose: Any, charset: str) -> None:
    """What a MODIFY leaves out is not kept: the column's own set goes, and what the table's set lacks with it."""
    loose.execute(
        "CREATE TABLE t (a VARCHAR(20) CHARACTER SET utf8mb4, b ENUM('x', 'y') CHARACTER SET utf8mb4, "
        f"n INT(5) ZEROFILL, m MEDIUMINT ZEROFILL, d DECIMAL(8,2) ZEROFILL) CHARSET {charset}"
    )
    loose.execute("INSERT INTO t VALUES ('北京 é€', 'y', 7, 7, 7.5)")
    loose.execute("SHOW COLUMNS FROM t")
    sent = {row[0]: row[1] for row in loose.fetchall()}  # as capture tools write it into `mysqlType`
    loose.execute(
        "ALTER TABLE t MODIFY a VARCHAR(30), MODIFY b VARCHAR(9), MODIFY n VARCHAR(9), MODIFY m TEXT, MODIFY d VARCHAR(20)"
    )
    loose.execute("SELECT * FROM t")
    found = loose.fetchone()
    loose.execute(
        "SELECT DISTINCT character_set_name FROM information_schema.columns WHERE table_schema = 'loose'"
    )
    assert loose.fetchall() == ((charset,),)
    values = {"a": "北京 é€", "b": "y", "n": "7", "m": "7", "d": "7.5"}
    rules = [
        conversions.conversion(
            types.with_zeros(types.mysql(sent[name]), sent[name]),
            "string",
            conversions.in_charset("VARCHAR(30)", charset),
        )
        for name in values
    ]
    assert [rule.of(text) for rule, text in zip(rules, values.values(), strict=True)] == list(found)
    assert not any(rule.doubted(text) for rule, text in zip(rules, values.values(), strict=True))


def _wrongly(server: Any, old: str, new: str, texts: Iterable[str]) -> Iterator[str]:
    kinds = values.read(old), values.read(new)
    known = conversions.named(kinds[0].logical, old)
    rule = conversions.conversion(known, logical_type(new, "mysql"), new)
    server.execute(f"CREATE OR REPLACE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v {old})")
    for text in texts:
        server.execute(f"INSERT INTO t (v) VALUES ({values.literal(kinds[0], text)})")
    server.execute("INSERT INTO t (v) VALUES (NULL)")
    server.execute("SELECT v FROM t ORDER BY id")
    before = [canonical(kinds[0], row[0]) for row in server.fetchall()]
    server.execute(f"ALTER TABLE t MODIFY v {new} NOT NULL")
    server.execute("SELECT v FROM t ORDER BY id")
    after = [canonical(kinds[1], row[0]) for row in server.fetchall()]
    for text, found in zip(before, after, strict=True):
        if text is None:
            effect = Effect(
                "modify_column", TableId("loose", None, "t"), "v", type=kinds[1].logical, declared=new
            )
            made = zero(effect, Default())
        elif not rule.certain or rule.doubted(text):
            continue
        else:
            made = rule.of(text)
        if _shown(kinds[1], made) != _shown(kinds[1], found):
            yield f"{old} to {new}: {text!r} became {found!r}, not {made!r}"


def _shown(kind: values.Type, text: str | None) -> object:
    """A value as what it is; a client shows six digits of a single."""
    found = typed(logical_type(kind.declared, "mysql"), text)
    return float(f"{found:.6g}") if kind.name == "float" and isinstance(found, float) else found


def run(server: Any, sql: str) -> None:
    """Run a statement of the model; a dropped database is the session's own."""
    if sql.startswith("GRANT"):
        return  # the user may not
    try:
        server.execute(sql)
    except Exception as error:
        raise AssertionError(f"{sql}: {error}") from error
    if found := re.match(r"CREATE DATABASE `?(\w+)", sql):
        server.execute(f"USE {found[1]}")


def shown(table: Table) -> tuple[Any, Any]:
    """Columns, and rows with every value as what it is."""
    rows = [
        tuple(typed(table.shape[name].logical, value) for name, value in row.items())
        for row in table.rows.values()
    ]
    return list(table.shape), sorted(rows, key=str)


def found(server: Any, table: Table) -> tuple[Any, Any]:
    """The same of the server's table."""
    server.execute(f"SELECT * FROM `{table.database}`.`{table.name}`")
    names = [one[0] for one in server.description]
    columns = [table.column(name) for name in names]
    rows = [
        tuple(
            typed(column.type.logical, canonical(column.type, cell))
            for column, cell in zip(columns, row, strict=True)
        )
        for row in server.fetchall()
    ]
    return names, sorted(rows, key=str)


def canonical(kind: values.Type, cell: Any) -> str | None:
    """A cell of the client library as canonical text."""
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bytes):
        return str(int.from_bytes(cell)) if kind.name == "bit" else base64.b64encode(cell).decode()
    if isinstance(cell, Decimal):
        return f"{cell:f}"
    if isinstance(cell, dt.datetime):
        text = cell.isoformat(" ")
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return values.instant(text) if kind.name == "timestamp" else text
    if isinstance(cell, dt.timedelta):
        seconds, micros = divmod(cell // dt.timedelta(microseconds=1), 10**6)
        text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{micros:06d}"
        return text.rstrip("0").rstrip(".")
    return cell.isoformat() if isinstance(cell, dt.date) else repr(cell)
