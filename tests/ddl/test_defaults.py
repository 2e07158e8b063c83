"""What a DEFAULT gives to the rows that are older than the column, as the source stores it."""

from __future__ import annotations

import pytest

from ingest.ddl import effects

MYSQL = [
    ("TIME DEFAULT '8:00'", "08:00:00"),
    ("TIME DEFAULT 83000", "08:30:00"),
    ("TIME DEFAULT 130", "00:01:30"),
    ("TIME(2) DEFAULT '-100:00:01.50'", "-100:00:01.5"),
    ("DATE DEFAULT '2024-2-9'", "2024-02-09"),
    ("DATE DEFAULT 20240209", "2024-02-09"),
    ("DATE DEFAULT DATE'2024-01-01'", "2024-01-01"),
    ("DATETIME DEFAULT '20240209123000'", "2024-02-09 12:30:00"),
    ("DATETIME DEFAULT '2024-02-09 8:30'", "2024-02-09 08:30:00"),
    ("DATETIME DEFAULT TIMESTAMP'2024-01-01 01:02:03'", "2024-01-01 01:02:03"),
    ("TIMESTAMP DEFAULT '2024-02-09 08:30:00+02:00'", "2024-02-09T06:30:00Z"),
    ("YEAR DEFAULT 24", "2024"),
    ("ENUM('Red','b') DEFAULT 'red'", "Red"),
    ("SET('a','b','c') DEFAULT 'c,A'", "a,c"),
    ("CHAR(5) DEFAULT 'ab  '", "ab"),
    ("VARCHAR(5) DEFAULT 'ab  '", "ab  "),
    ("DATETIME(3) DEFAULT '2024-01-02 03:04:05.1234'", "2024-01-02 03:04:05.123"),
    ("BINARY(4) DEFAULT 'ab'", "YWIAAA=="),
    ("BINARY(2) NOT NULL", "AAA="),
    ("CHAR(3) CHARACTER SET binary DEFAULT 'a'", "YQAA"),
    ("CHARACTER(3) CHARSET binary NOT NULL", "AAAA"),
    ("CHAR CHARACTER SET binary DEFAULT ''", "AA=="),
    ("VARCHAR(3) CHARACTER SET binary DEFAULT 'a'", "YQ=="),
    ("CHAR(3) BYTE DEFAULT 'a'", "YQAA"),
    ("VARCHAR(9) COMPRESSED DEFAULT 'x'", "x"),
    ("UUID DEFAULT '123E4567-E89B-12D3-A456-426655440000'", "123e4567-e89b-12d3-a456-426655440000"),
    ("INET6 DEFAULT '2001:db8::1'", "2001:db8::1"),
    ("CHAR BYTE DEFAULT ''", "AA=="),
    ("VARCHAR(3) BYTE DEFAULT 'a'", "YQ=="),
    ("DOUBLE(8,2) DEFAULT 1.5", "1.5"),
    ("FLOAT(7,3) DEFAULT '-0.125'", "-0.125"),
    ("VARBINARY(2) NOT NULL", ""),
    ("BLOB NOT NULL", ""),
    ("JSON DEFAULT (JSON_OBJECT())", "{}"),
    ("JSON DEFAULT (json_array())", "[]"),
    ("SET('a','b') NOT NULL", ""),
    ("VARCHAR(9) DEFAULT _UTF8MB4'x'", "x"),
    ("VARCHAR(9) DEFAULT _utf8mb4'é'", "é"),
    ("TEXT DEFAULT _latin1 'x'", "x"),
    ("VARCHAR(9) DEFAULT ('x')", "x"),
    ("VARCHAR(9) CHARACTER SET utf16 DEFAULT 0x0041", "A"),
    ("VARCHAR(9) COLLATE ucs2_bin DEFAULT x'004100e9'", "Aé"),
    ("VARCHAR(9) CHARACTER SET utf32 DEFAULT 0x41", "A"),
    ("CHAR(9) CHARACTER SET utf16 DEFAULT b'0000000001000001'", "A"),
    ("VARCHAR(9) CHARACTER SET latin1 DEFAULT 0xE9", "é"),
    ("VARCHAR(10) DEFAULT DATE '2024-1-2'", "2024-01-02"),
    ("TEXT DEFAULT TIME '-3:4:5'", "-03:04:05"),
    ("CHAR(30) DEFAULT TIMESTAMP '2024-1-2T3:4:5.120'", "2024-01-02 03:04:05.120"),
    ("VARBINARY(20) DEFAULT DATE '20240102'", "MjAyNC0wMS0wMg=="),
    ("ENUM('2024-01-02') DEFAULT DATE '2024-1-2'", "2024-01-02"),
    ("VARCHAR(4) DEFAULT x'4142'", "AB"),
    ("INT DEFAULT (-5)", "-5"),
    ("DOUBLE DEFAULT -0.0", "0.0"),
    ("FLOAT DEFAULT '-0'", "0"),
    ("INT DEFAULT 1e2", "100"),
    ("INT DEFAULT 2.5", "3"),
    ("BIGINT DEFAULT '-2.5'", "-3"),
    ("DECIMAL(6,2) DEFAULT 1.555", "1.56"),
    ("DECIMAL(6,2) DEFAULT '1.5'", "1.50"),
    ("VARCHAR(9) DEFAULT 1.50", "1.50"),
    ("BIT(4) DEFAULT b'101'", "5"),
    ("BIT(8) DEFAULT '1'", "49"),
    ("BIT(8) DEFAULT 2.5", "3"),
    ("ENUM('a ','b') DEFAULT 'A'", "a"),
    ("YEAR DEFAULT 0", "0"),
    ("YEAR DEFAULT '0'", "2000"),
    ("TIME DEFAULT 2024", "00:20:24"),
    ("TIME DEFAULT '1230'", "00:12:30"),
    ("TIME(1) DEFAULT 1234557.5", "123:45:57.5"),
    ("TIME DEFAULT '-0'", "00:00:00"),
    ("VARCHAR(9) DEFAULT 00012", "12"),
    ("VARCHAR(9) DEFAULT -.5", "-0.5"),
    ("VARBINARY(9) DEFAULT TRUE", "MQ=="),
    ("TINYINT(1) DEFAULT TRUE", "1"),
]
OTHERS = [
    ("oracle", "RAW(4) DEFAULT 'DEADBEEF'", "3q2+7w=="),
    ("oracle", "CHAR(5) DEFAULT 'a'", "a    "),
    ("oracle", "NUMBER(5,-2) DEFAULT 1250", "1300"),
    ("oracle", "TIMESTAMP(0) DEFAULT TIMESTAMP '2024-01-01 10:00:00.6'", "2024-01-01 10:00:01"),
    ("oracle", "VARCHAR2(9) DEFAULT 'a '", "a "),
    ("postgres", r"bytea DEFAULT '\x4142'", "QUI="),
    ("postgres", "timestamp(0) DEFAULT '2024-01-01 00:00:00.6'", "2024-01-01 00:00:01"),
    ("postgres", "time(0) DEFAULT '10:00:00.6'", "10:00:01"),
    ("postgres", "numeric(4,-2) DEFAULT 1250", "1300"),
    ("postgres", "char(5) DEFAULT 'a'", "a    "),
    ("postgres", "varchar(3) DEFAULT 'abc   '", "abc"),
    ("postgres", """jsonb DEFAULT '{"b":1,"a":[1,2]}'""", '{"a": [1, 2], "b": 1}'),
    ("postgres", "boolean DEFAULT 'yes'", "true"),
    ("oracle", "DATE DEFAULT DATE '2024-01-01'", "2024-01-01 00:00:00"),
    ("oracle", "TIMESTAMP DEFAULT TIMESTAMP '2024-01-01 00:00:00.5'", "2024-01-01 00:00:00.5"),
    ("oracle", "NUMBER(5) DEFAULT -1 NOT NULL", "-1"),
    ("oracle", "NUMBER DEFAULT 1e2", "100"),  # as rows have it; a mirror may keep texts
    ("oracle", "NUMBER DEFAULT -.5", "-0.5"),
    ("oracle", "NUMBER(10,2) DEFAULT 1e2", "100"),
    ("oracle", "NUMBER(10,2) DEFAULT 15E-1", "1.5"),
    ("postgres", "timestamptz DEFAULT '2024-01-01 00:00:00+00'", "2024-01-01T00:00:00Z"),
    ("postgres", "date DEFAULT '2024-01-01'::date", "2024-01-01"),
    ("postgres", "jsonb DEFAULT '{}'::jsonb", "{}"),
    ("sqlserver", "time(0) NOT NULL DEFAULT '23:59:59.4'", "23:59:59"),
    ("db2", "CHAR(5 CODEUNITS32) NOT NULL DEFAULT 'x'", "x    "),
    ("db2", "CHARACTER(3 octets) NOT NULL DEFAULT 'x'", "x  "),
    ("db2", "VARCHAR(9 OCTETS) NOT NULL DEFAULT 'x'", "x"),
    ("db2", "DECFLOAT NOT NULL DEFAULT 1.5", "1.5"),
    ("db2", "DECFLOAT(16) NOT NULL WITH DEFAULT", "0"),
    ("db2", "DECIMAL NOT NULL DEFAULT 5", "5"),
    ("sqlserver", "datetime2(0) NOT NULL DEFAULT '2024-12-31 23:59:59.9'", "2025-01-01 00:00:00"),
]


@pytest.mark.parametrize(("dialect", "column", "expected"), [*(("mysql", *case) for case in MYSQL), *OTHERS])
def test_literal(dialect: str, column: str, expected: str) -> None:
    """A literal that is not read as the source stores it leaves NULL, or another text, in all existing rows."""
    [found] = effects(f"ALTER TABLE t ADD c {column}", dialect, "d").effects  # type: ignore[arg-type]
    assert (expected, True) == (found.default, found.has_default)
    assert found.note in (None, "implicit")


@pytest.mark.parametrize(
    ("dialect", "column"),
    [
        ("mysql", "TIMESTAMP DEFAULT '2024-02-09 08:30:00'"),  # the session's zone is not known
        ("mysql", "DATETIME DEFAULT '0000-00-00 00:00:00'"),
        ("mysql", "DATE NOT NULL"),
        ("mysql", "TEXT DEFAULT _utf8mb4'é'"),  # the two servers differ
        ("mysql", "BLOB DEFAULT _utf8mb4'é'"),
        ("mysql", "VARCHAR(9) DEFAULT _latin1'é'"),  # the bytes that the client sent are not known
        ("mysql", "VARCHAR(9) DEFAULT _utf16'ab'"),
        ("mysql", "VARCHAR(9) DEFAULT 0x0041"),  # the table's character set is not known
        ("mysql", "VARCHAR(9) CHARACTER SET utf16le DEFAULT 0x41"),
        ("mysql", "VARCHAR(9) DEFAULT TIME '1 2:3:4'"),
        ("mysql", "DATE DEFAULT '2024-02-30'"),
        ("mysql", "DATE DEFAULT (CURDATE())"),
        ("mysql", "DATETIME(3) DEFAULT '2024-01-02 03:04:05.1239'"),  # MySQL rounds, MariaDB cuts
        ("mysql", "DOUBLE(8,2) DEFAULT 1.005"),  # its binary fraction is below the half
        ("mysql", "VARCHAR(9) DEFAULT 1e2"),  # the server prints the binary fraction
        ("mysql", "ENUM('a','1') DEFAULT 1"),  # the first label
        ("mysql", "VARCHAR(9) DEFAULT x'C3A9'"),  # the character set decides
        ("mysql", "INET6 DEFAULT '::0001'"),  # the server spells it in its own way
        ("mysql", "UUID NOT NULL"),  # MariaDB's zero is not an empty text
        ("mysql", "JSON NOT NULL"),  # null in MySQL, an empty text in MariaDB
        ("mysql", "GEOMETRY NOT NULL"),
        ("mysql", "TIMESTAMP"),  # this moment, if explicit_defaults_for_timestamp is OFF
        ("oracle", "DATE DEFAULT '2024-01-01'"),  # by the session's NLS_DATE_FORMAT
        ("oracle", "CHAR(5) DEFAULT 'é'"),  # two bytes or one
        ("postgres", "interval DEFAULT '90 minutes'"),
        ("postgres", "money DEFAULT 5"),
        ("postgres", "text DEFAULT 'abc'::my_type"),
        ("oracle", "DATE DEFAULT SYSDATE"),
        ("oracle", "DATE DEFAULT TO_DATE('2024', 'YYYY')"),
        ("postgres", "timestamptz DEFAULT now()"),
        ("postgres", "uuid DEFAULT gen_random_uuid()"),
        ("sqlserver", "time(0) NOT NULL DEFAULT '23:59:59.9'"),  # midnight is no time at the day's end
        ("db2", "CHAR(1 K) NOT NULL DEFAULT 'x'"),  # so many of a unit that is not known here
        ("db2", "DECFLOAT(16) NOT NULL DEFAULT 1234567890.1234567"),
        ("sqlserver", "[time](3) NOT NULL DEFAULT '23:59:59.9999'"),
    ],
)
def test_what_only_the_source_knows(dialect: str, column: str) -> None:
    """Such a default is not taken for NULL, so that the operator is warned."""
    [found] = effects(f"ALTER TABLE t ADD c {column}", dialect, "d").effects  # type: ignore[arg-type]
    assert (None, "expression") == (found.default, found.note)


@pytest.mark.parametrize(("dialect", "note"), [("mysql", "expression"), ("tidb", None), ("oceanbase", None)])
def test_a_bare_timestamp(dialect: str, note: str | None) -> None:
    """Asked of servers that have no such setting, the question would be a false alarm."""
    [found] = effects("ALTER TABLE t ADD c TIMESTAMP", dialect, "d").effects
    [made] = effects("ALTER TABLE t ADD c TIMESTAMP NULL", dialect, "d").effects
    assert (note, None) == (found.note, made.note)
    [changed] = effects("ALTER TABLE t MODIFY c TIMESTAMP", dialect, "d").effects
    assert (note is not None) == changed.solid, "NULL becomes this moment"


def test_an_empty_text_is_null_to_oracle() -> None:
    """Filled with an empty text, the rows would differ from the source's."""
    [found] = effects("ALTER TABLE t ADD c VARCHAR2(9) DEFAULT ''", "oracle", "d").effects
    assert (None, True, None) == (found.default, found.has_default, found.note)
