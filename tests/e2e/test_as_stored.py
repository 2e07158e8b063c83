"""What real servers store for the literals of every type: a new column's default, in the rows that are there.

Each line is executed on a server; what `ingest.ddl` says of it must be what the server then has, or that it is not known.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from ingest.ddl import Effect, effects
from tests.e2e import databases
from tests.e2e.databases import Database

Start = Callable[[Database, str], Database]

MYSQL = [
    *(f"TINYINT DEFAULT {one}" for one in ("5", "-5", "'5'", "2.5", "'2.4'", "1e1", "0x10", "b'101'", "TRUE")),
    *(f"INT UNSIGNED DEFAULT {one}" for one in ("7", "'7'", "6.5")),
    *(f"DECIMAL(6,2) DEFAULT {one}" for one in ("1.555", "'1.5'", "-1.005", "1e2", ".5")),
    *(f"DOUBLE DEFAULT {one}" for one in ("1.5", "'1e3'", "-.25")),
    *(f"DOUBLE(8,2) DEFAULT {one}" for one in ("1.005", "1.5", "-2.25")), "FLOAT(7,3) DEFAULT 0.125",
    *(f"UUID DEFAULT '123{letter}4567-e89b-12d3-a456-426655440000'" for letter in "eE"),
    *(f"INET6 DEFAULT '{address}'" for address in ("::1", "::0001", "2001:DB8::1")), "VARCHAR(9) COMPRESSED DEFAULT 'x'",
    "CHAR(3) BYTE DEFAULT 'a'", "CHAR BYTE NOT NULL", "VARCHAR(3) BYTE DEFAULT 'a'",
    *(f"VARCHAR(9) DEFAULT {one}" for one in ("00012", ".5", "-00.50", "1e2", "-0.0", "x'C3A9'","'ab  '", "1.50", "0x4142", "x'41'", "'it''s'", "_utf8mb4'é'", "TRUE")),
    *(f"CHAR(5) DEFAULT {one}" for one in ("'ab  '", "'a'", "''")),
    *(f"VARCHAR(9) CHARACTER SET utf16 DEFAULT {one}" for one in ("0x0041", "0x41", "x'004100e9'", "b'0000000001000001'")),
    *(f"TEXT DEFAULT {one}" for one in ("_utf8mb4'é'", "_latin1'x'", "DATE '2024-1-2'", "TIME '-3:4:5'", "TIMESTAMP '2024-1-2 3:4:5.120'")),
    *(f"BINARY(4) DEFAULT {one}" for one in ("'ab'", "0x00FF", "''")),
    *(f"VARBINARY(4) DEFAULT {one}" for one in ("'ab'", "0x00FF", "''")),
    *(f"BIT(8) DEFAULT {one}" for one in ("'1'", "2.5", "TRUE","b'101'", "5", "0x0F")),
    *(f"DATE DEFAULT {one}" for one in ("'2024-2-9'", "20240209", "'20240209'", "DATE'2024-01-01'", "'2024.02.09'")),
    *(f"DATETIME DEFAULT {one}" for one in ("'2024-02-09 8:30'", "'20240209123000'", "'2024-02-09'", "'2024-02-09T01:02:03'")),
    *(f"DATETIME(3) DEFAULT {one}" for one in ("'2024-01-02 03:04:05.1234'", "'2024-01-02 03:04:05.1239'", "'2024-01-02 03:04:05.5'")),
    *(f"TIME DEFAULT {one}" for one in ("'8:00'", "83000", "130", "2024", "'1230'", "TRUE", "'-0'", "'-100:00:01'", "'10:11:12.4'")),
    *(f"YEAR DEFAULT {one}" for one in ("0", "'0'", "'0000'", "TRUE","24", "'24'", "1999", "'69'", "70")),
    *(f"ENUM('Red','b') DEFAULT {one}" for one in ("'red'", "'b '")),
    *(f"SET('a','b','c') DEFAULT {one}" for one in ("'c,A'", "''")),
    "JSON DEFAULT (JSON_OBJECT())", "TEXT DEFAULT ('x')",
    "INT NOT NULL", "VARCHAR(3) NOT NULL", "BINARY(2) NOT NULL", "ENUM('x','y') NOT NULL", "TIME NOT NULL", "BIT(3) NOT NULL",
    "UUID NOT NULL", "INET6 NOT NULL", "SET('a') NOT NULL", "YEAR NOT NULL", "DECIMAL(4,1) NOT NULL", "INT", "TIMESTAMP NULL",
    "TIMESTAMP", "TIMESTAMP NULL DEFAULT NULL", "TIMESTAMP NOT NULL", "TIMESTAMP(3)", "TIMESTAMP DEFAULT 0",
]  # fmt: skip

POSTGRES = [
    *(f"smallint DEFAULT {one}" for one in ("5", "2.5", "-2.5", "'7'", "1e2")),
    *(f"numeric(6,2) DEFAULT {one}" for one in ("1.555", "-1.005", "'1.5'", "1e2")),
    *(f"numeric(4,-2) DEFAULT {one}" for one in ("1250", "1249", "-1250")),
    *(f"numeric DEFAULT {one}" for one in ("1.50", ".5", "1e3", "'007.10'", "'NaN'")),
    *(f"double precision DEFAULT {one}" for one in ("1.5", "'1e3'", "'Infinity'")),
    *(f"boolean DEFAULT {one}" for one in ("'yes'", "'ON'", "'f'", "TRUE", "'0'", "' no '", "'of'", "'true'::boolean")),
    *(f"text DEFAULT {one}" for one in ("'a  '", "E'a\\\\tb'", "1.50", "'x'::text", "'abc'::varchar(2)")),
    *(f"varchar(3) DEFAULT {one}" for one in ("'abc   '", "'ab '", "'x'::character varying")),
    *(f"char(5) DEFAULT {one}" for one in ("'a'", "'a    '", "''", "'ab'::bpchar")),
    *(f"bpchar DEFAULT {one}" for one in ("'a  '",)),
    *(f"bytea DEFAULT {one}" for one in (r"'\x4142'", r"'ab'", r"'a\\b'", r"'\101\377'", r"'\x'", r"'\xDEad'::bytea")),
    *(f"jsonb DEFAULT {one}" for one in (
        """'{"b":1,"a":[1,2]}'""", """'{"aa":1,"b":1.50,"b":2e2,"c":"\\u00e9\\n/"}'""", "'[]'", "'null'", """'"x"'::jsonb""",
        """'{"a":-0.0,"é":true,"e":{}}'""")),
    *(f"json DEFAULT {one}" for one in ("""'{"b":1,"a":[1,2]}'""", "'{}'::json")),
    *(f"uuid DEFAULT {one}" for one in ("'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "'{a0eebc999c0b4ef8bb6d6bb9bd380a11}'")),
    *(f"int[] DEFAULT {one}" for one in ("'{1, 2}'", "'{}'", "'{}'::int[]", "'{1,NULL}'")),
    *(f"text[] DEFAULT {one}" for one in ("'{a, b}'", "'{}'", "'{\"a b\"}'")),
    *(f"inet DEFAULT {one}" for one in ("'10.0.0.1/32'", "'10.0.0.1'", "'10.0.0.1/8'", "'::1'", "'2001:DB8::1/64'")),
    *(f"cidr DEFAULT {one}" for one in ("'10.0.0.0/8'", "'10.0.0.1'")),
    *(f"macaddr DEFAULT {one}" for one in ("'08-00-2B-01-02-03'", "'08002b010203'")),
    *(f"int4range DEFAULT {one}" for one in ("'[1,3]'", "'(1,3)'", "'[1,1)'", "'empty'", "'[1,)'")),
    *(f"bit(3) DEFAULT {one}" for one in ("B'101'", "'101'")),
    *(f"varbit DEFAULT {one}" for one in ("B'10'", "X'1F'", "''")),
    *(f"date DEFAULT {one}" for one in ("'2024-01-01'", "'20240209'", "'2024-2-9'", "'infinity'", "DATE '2024-01-01'", "'2024-01-01'::date")),
    *(f"timestamp(0) DEFAULT {one}" for one in (
        "'2024-01-01 00:00:00.6'", "'2024-12-31 23:59:59.5'", "'1999-01-01 00:00:00.5'", "'1999-01-01 00:00:01.6'", "'2024-01-01'")),
    *(f"timestamp DEFAULT {one}" for one in (
        "'2024-01-01T10:00'", "'2024-01-01 10:00:00.123456'", "'2024-01-01 10:00:00.6'::timestamp(0)", "'epoch'", "TIMESTAMP '2024-01-01 1:02:03'")),
    *(f"timestamptz DEFAULT {one}" for one in ("'2024-01-01 00:00:00+00'", "'2024-01-01 00:00:00.25+05:30'", "'2024-01-01 00:00:00'")),
    *(f"timestamptz(0) DEFAULT {one}" for one in ("'2024-01-01 00:00:00.5+00'",)),
    *(f"time(0) DEFAULT {one}" for one in ("'10:00:00.6'", "'10:00'", "'23:59:59.4'")),
    *(f"time DEFAULT {one}" for one in ("'10:00:00.6'", "'103000'")),
    *(f"interval DEFAULT {one}" for one in ("'90 minutes'",)),
    "money DEFAULT 5", "tsvector DEFAULT 'b a'", "timetz DEFAULT '10:00+00'", "point DEFAULT '(1,2)'", "xml DEFAULT '<a/>'",
    "text DEFAULT ''", "int", "int DEFAULT NULL",
]  # fmt: skip


def said_of(column: str, dialect: str) -> Effect:
    """What is read of a column that is added."""
    [effect] = effects(f"ALTER TABLE t ADD COLUMN c {column}", dialect, "d", "public", "t").effects
    return effect


def same(effect: Effect, stored: Any) -> bool:
    """True if the text that was read is the value that the server has."""
    if effect.default is None or stored is None:
        return effect.default is stored
    logical = (effect.type or "").partition("(")[0]
    if logical == "binary":
        return base64.b64decode(effect.default) == bytes(stored)
    if isinstance(stored, bytes | memoryview):
        stored = int.from_bytes(bytes(stored), "big")
    if logical.startswith(("int", "uint", "decimal", "float", "bit", "year")) and effect.default != "NaN":
        return float(effect.default) == float(stored)
    if logical in ("datetime", "timestamp", "time"):
        return _clock(effect.default) == _clock(str(stored))
    return effect.default == str(stored)


def _clock(text: str) -> str:
    whole, _, fraction = text.replace("T", " ").removesuffix("Z").partition(".")
    return f"{whole}.{fraction.rstrip('0')}".rstrip(".")


def wrong(columns: list[str], dialect: str, stored: Callable[[str], Any]) -> list[str]:
    """The columns of which something else is read than the server stores; what it refuses is left out."""
    found = []
    for column in columns:
        try:
            value = stored(column)
        except Exception:
            continue
        effect = said_of(column, dialect)
        if effect.note != "expression" and not same(effect, value):
            found.append(f"{column}: read as {effect.default!r}, stored is {value!r}")
    return found


#: Literals whose stored text is read, and never called unknown: an alarm at each of them would be a false one.
READ = {"mysql": 70, "postgres": 80}


@pytest.mark.parametrize(
    "settings", ["explicit_defaults_for_timestamp=ON", "explicit_defaults_for_timestamp=OFF"]
)
def test_what_mariadb_stores(started: Start, settings: str) -> None:
    """Old rows of a mirror had another value than the server's."""
    with started(databases.MariaDB(), "pymysql").connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SET SESSION {settings}")

        def stored(column: str) -> Any:
            cursor.execute("CREATE OR REPLACE TABLE garden.t (id INT PRIMARY KEY)")
            cursor.execute("INSERT INTO garden.t VALUES (1)")
            cursor.execute(f"ALTER TABLE garden.t ADD COLUMN c {column}")
            cursor.execute(
                f"SELECT c, CAST(c{' + 0' if column.startswith('BIT') else ''} AS CHAR) FROM garden.t"
            )
            value, text = cursor.fetchone()
            is_bytes = column.startswith(("BINARY", "VARBINARY")) or " BYTE " in column
            return value if is_bytes or value is None else text

        assert [] == wrong(MYSQL, "mysql", stored)
    assert sum(said_of(column, "mysql").note != "expression" for column in MYSQL) >= READ["mysql"]


def test_what_postgresql_stores(started: Start) -> None:
    """The same, by the text that the server prints; an instant in UTC."""
    with started(databases.PostgreSQL(), "psycopg").connect() as connection:
        connection.autocommit = True
        connection.execute("SET timezone = 'UTC'")

        def stored(column: str) -> Any:
            connection.execute("DROP TABLE IF EXISTS t")
            connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
            connection.execute("INSERT INTO t VALUES (1)")
            connection.execute(f"ALTER TABLE t ADD COLUMN c {column}")
            # row messages have what the type prints; a cast to TEXT cuts CHAR(n), and adds /32 to an address
            printed = {"bytea": "c", "boolean": "c::text", "timestamptz": "left(concat(c), -3)"}
            kind = printed.get(column.partition(" ")[0].partition("(")[0], "concat(c)")
            return connection.execute(f"SELECT CASE WHEN c IS NOT NULL THEN {kind} END FROM t").fetchone()[0]

        assert [] == wrong(POSTGRES, "postgres", stored)
    assert sum(said_of(column, "postgres").note != "expression" for column in POSTGRES) >= READ["postgres"]
