"""What MODIFY does to the values that exist: each rule is MySQL's, as its manual and its server have it."""

from __future__ import annotations

from itertools import product

import pytest

from ingest import types
from ingest.change import Change, Op
from ingest.fold import Placed, SchemaStep, fold
from ingest.order import Order
from ingest.values.conversions import KEEP, UNKNOWN, Conversion, conversion, named


@pytest.mark.parametrize(
    ("old", "new", "declared", "text", "expected"),
    [
        ("decimal(10,4)", "decimal(10,2)", "DECIMAL(10,2)", "1.2350", "1.24"),
        ("decimal(10,4)", "decimal(10,2)", "DECIMAL(10,2)", "-1.2350", "-1.24"),
        ("decimal(10,4)", "decimal(10,2)", "DECIMAL(10,2)", "-0.0010", "0.00"),
        ("decimal(10,4)", "int32", "INT", "2.5000", "3"),
        ("float32", "float64", "DOUBLE", "4.185", "4.184999942779541"),
        ("float32", "decimal(10,2)", "DECIMAL(10,2)", "4.185", "4.18"),
        ("float64", "decimal(10,2)", "DECIMAL(10,2)", "4.185", "4.19"),
        ("float64", "int32", "INT", "2.5", "2"),
        ("float64", "float32", "FLOAT", "0.1234567891", "0.12345679"),
        ("int64", "float64", "DOUBLE", "9007199254740993", "9007199254740992.0"),
        ("decimal(20,10)", "float64", "DOUBLE", "0.1000000000", "0.1"),
        ("int32", "decimal(10,2)", "DECIMAL(10,2)", "7", "7.00"),
        ("int32", "int8", "TINYINT", "300", "127"),
        ("int32", "int8", "TINYINT", "-300", "-128"),
        ("int32", "int8", "TINYINT", "-7", "-7"),
        ("uint8", "int8", "TINYINT", "200", "127"),
        ("decimal(10,4)", "int8", "TINYINT", "300.5000", "127"),
        ("string", "int16", "SMALLINT", "70000", "32767"),
        ("string", "int32", "INT", "007", "7"),
        ("string", "int32", "INT", "1.5", "2"),
        ("string", "int32", "INT", "A101", "0"),
        ("string", "int32", "INT", "12abc", "12"),
        ("string", "set", "SET('a','b','c')", '["a","c"]', "a,c"),  # as Maxwell sends it
        ("set", "set", "SET('a','b')", "[]", ""),
        ("set", "set", "SET('[\"a\"]','a')", '["a"]', '["a"]'),
        ("string", "int32", "INT", "", "0"),
        ("string", "int32", "INT", " +7", "7"),
        ("string", "int32", "INT", "99999999999999999999", "2147483647"),
        ("string", "uint32", "INT UNSIGNED", "-7", "0"),
        ("string", "decimal(10,2)", "DECIMAL(10,2)", "1e2x", "100.00"),
        ("string", "decimal(4,2)", "DECIMAL(4,2)", "1e9", "99.99"),
        ("string", "float64", "DOUBLE", "-.5x", "-0.5"),
        ("string", "float32", "FLOAT UNSIGNED", "-7", "0.0"),
        ("int32", "uint32", "INT UNSIGNED", "-5", "0"),
        ("int32", "int32", "MEDIUMINT", "12345678", "8388607"),
        ("int32", "decimal(4,2)", "DECIMAL(4,2)", "300", "99.99"),
        ("decimal(20,4)", "decimal(4,2)", "DECIMAL(4,2)", "-12345.6000", "-99.99"),
        ("decimal(20,4)", "decimal(4,2)", "DECIMAL(4,2)", "99.9960", "99.99"),
        ("decimal(10,2)", "decimal(10,2)", "DECIMAL(10,2) UNSIGNED", "-0.30", "0.00"),
        ("float64", "float32", "FLOAT", "1e300", "3.4028235e+38"),
        ("float64", "float64", "DOUBLE UNSIGNED", "-5.5", "0.0"),
        ("bit", "int8", "TINYINT", "200", "127"),
        ("int32", "bit", "BIT(4)", "-5", "15"),
        ("int32", "year", "YEAR", "300", "0"),
        ("string", "string", "VARCHAR(3)", "北京市区", "北京市"),
        ("string", "string", "CHAR(3)", "ab   ", "ab"),
        ("string", "string", "TINYTEXT", "x" * 300, "x" * 255),
        ("int32", "string", "VARCHAR(2)", "-12345", "-1"),
        ("decimal(20,4)", "string", "VARCHAR(4)", "12345.6789", "1234"),
        ("enum", "string", "VARCHAR(2)", "new", "ne"),
        ("date", "string", "VARCHAR(4)", "2024-01-02", "2024"),
        ("binary", "binary", "VARBINARY(2)", "YWJj", "YWI="),
        ("string", "binary", "BINARY(4)", "ab", "YWIAAA=="),
        ("string", "enum", "ENUM('new','old')", "x", ""),
        ("string", "enum", "ENUM('new','old')", "new ", "new"),
        ("enum", "enum", "ENUM('x','old')", "new", ""),
        ("enum", "enum", "ENUM('old','new','it''s, so')", "new", "new"),
        ("set", "set", "SET('c','a')", "a,b,c", "c,a"),
        ("decimal(10,2)", "string", "VARCHAR(20)", "1.1", "1.10"),
        ("float32", "string", "VARCHAR(20)", "-106.0", "-106"),
        ("float64", "string", "VARCHAR(20)", "1e10", "10000000000"),
        ("datetime(6)", "string", "VARCHAR(40)", "2024-01-02 03:04:05.5", "2024-01-02 03:04:05.500000"),
        ("time(0)", "string", "VARCHAR(40)", "03:04:05", "03:04:05"),
        ("year", "string", "VARCHAR(4)", "0", "0000"),
        ("int32", "year", "YEAR", "24", "2024"),
        ("int32", "year", "YEAR", "70", "1970"),
        ("string", "string", "CHAR(9)", "a  ", "a"),
        ("binary", "binary", "BINARY(4)", "YWI=", "YWIAAA=="),
        ("binary", "string", "VARCHAR(9)", "YWI=", "ab"),
        ("string", "binary", "VARBINARY(9)", "ab", "YWI="),
        ("datetime", "date", "DATE", "2024-01-02 03:04:05", "2024-01-02"),
        ("datetime", "date", "DATE", "1999-12-31 23:59:59.500", "2000-01-01"),
        ("datetime", "datetime", "DATETIME", "2024-01-02 23:59:59.5", "2024-01-03 00:00:00"),
        ("datetime", "datetime", "DATETIME(3)", "2024-01-02 03:04:05.123456", "2024-01-02 03:04:05.123"),
        ("datetime", "datetime", "DATETIME(3)", "2024-01-02 03:04:05.9995", "2024-01-02 03:04:06.000"),
        ("datetime", "datetime", "DATETIME(6)", "2024-01-02 03:04:05.123456", "2024-01-02 03:04:05.123456"),
        ("datetime", "datetime", "TIMESTAMP", "2024-01-02 03:04:05.6", "2024-01-02 03:04:05.6"),
        ("timestamp", "timestamp", "TIMESTAMP", "2024-01-02T03:04:05.6Z", "2024-01-02T03:04:06Z"),
        ("date", "datetime", "DATETIME", "2024-01-02", "2024-01-02 00:00:00"),
        ("datetime", "time", "TIME", "2024-01-02 03:04:05", "03:04:05"),
        ("time", "time", "TIME", "-838:59:58.5", "-838:59:59"),
        ("time", "int32", "INT", "-01:02:03", "-10203"),
        ("datetime", "int64", "BIGINT", "2024-01-02 03:04:05", "20240102030405"),
        ("unknown", "decimal(10,2)", "DECIMAL(10,2)", "1.235", "1.24"),
        ("string", "string", "VARCHAR(20) character set latin1", "北京 é€", "?? é€"),
        ("string", "string", "VARCHAR(3) character set latin1", "北京市区", "???"),
        ("unknown", "string", "VARCHAR(20) character set ascii", "naïve", "na?ve"),
        ("json", "string", "TEXT character set gbk", '{"a": "é中"}', '{"a": "é中"}'),
        ("string", "string", " character set utf8mb3", "中😀", "中?"),
        ("unknown", "string", " character set gbk", "é中한", "é中?"),
        ("decimal(4,2)", "string", " character set latin1", "1.5", "1.5"),
        ("uint32 zerofill 5", "string", "VARCHAR(9)", "7", "00007"),
        ("uint32 zerofill 5", "string", "VARCHAR(3)", "7", "000"),
        ("uint32 zerofill 5", "int64", "BIGINT", "7", "7"),
        ("decimal(8,2) zerofill 9", "string", "VARCHAR(20)", "7.5", "000007.50"),
        ("int32", "float32", "FLOAT ZEROFILL", "-7", "0.0"),
        ("float32", "decimal(9,2)", "DECIMAL(9,2) ZEROFILL", "-7.5", "0.00"),
    ],
)
def test_a_value_is_converted_as_the_source_does(
    old: str, new: str, declared: str, text: str, expected: str
) -> None:
    """No message sends the converted values: a mirror that keeps the old ones would be silently wrong."""
    rule = conversion(old, new, declared)
    assert expected == rule.of(text)


@pytest.mark.parametrize(
    ("old", "new", "text", "expected"),
    [
        ("boolean", "int32", "true", "1"),
        ("bit(1)", "int8", "true", "1"),
        ("bit(1)", "int64", "false", "0"),
        ("bit(1)", "decimal(4,2)", "true", "1.00"),
        ("bit(1)", "bit(8)", "true", "1"),
        ("bit(8)", "int8", "127", "127"),
        ("int8", "boolean", "0", "false"),
        ("int8", "boolean", "-1", "true"),
    ],
)
def test_truth_is_written_as_the_new_type_writes_it(old: str, new: str, text: str, expected: str) -> None:
    """A mirror that keeps texts would mix `true` and 1."""
    assert expected == conversion(old, new, new).of(text)


def test_truth_alone_is_no_other_value() -> None:
    """A large mirror is not folded again where only the spelling of texts would change."""
    for old, new in (("bit(1)", "int64"), ("int8", "boolean")):
        assert conversion(old, new, new).changes(texts=True)
        assert not conversion(old, new, new).changes(texts=False)


@pytest.mark.parametrize(
    ("old", "new", "declared"),
    [
        ("int32", "int64", "BIGINT"),
        ("uint32", "uint64", "BIGINT UNSIGNED"),
        ("decimal(10,2)", "decimal(10,2)", "DECIMAL(10,2)"),
        ("string(20)", "string", "VARCHAR(200)"),
        ("string(200)", "string", "TEXT"),
        ("string", "string", "LONGTEXT"),
        ("int32", "string", "VARCHAR(20)"),
        ("enum", "string", "LONGTEXT"),
        ("datetime", "datetime", "DATETIME(6)"),
        ("datetime(3)", "datetime", "DATETIME(3)"),
        ("date", "string", "VARCHAR(20)"),
        ("binary", "binary", "LONGBLOB"),
    ],
)
def test_most_statements_change_no_value(old: str, new: str, declared: str) -> None:
    """A conversion that does nothing must not fold a large mirror again."""
    assert KEEP == conversion(old, new, declared)


@pytest.mark.parametrize(
    ("old", "new", "declared"),
    [
        ("datetime", "timestamp", "TIMESTAMP"),
        ("timestamp", "datetime", "DATETIME"),
        ("time", "datetime", "DATETIME"),
        ("time", "date", "DATE"),
        ("float32", "string", "VARCHAR(20)"),
        ("float64", "string", "VARCHAR(20)"),
        ("enum", "int32", "INT"),
        ("enum", "enum", "ENUM"),
        ("bit", "string", "VARCHAR(20)"),
        ("datetime", "string", "VARCHAR(40)"),  # DATETIME(6) prints six digits
        ("time", "string", "VARCHAR(40)"),
        ("decimal(10,4)", "decimal", "DECIMAL"),
        ("unknown", "float64", "DOUBLE"),
    ],
)
def test_what_cannot_be_known_is_said(old: str, new: str, declared: str) -> None:
    """A session's zone, a label's number, a character set are in no message: a guess would be silently wrong."""
    assert not conversion(old, new, declared).certain


@pytest.mark.parametrize(
    ("old", "new", "declared", "sure", "doubted"),
    [
        ("enum", "enum", "ENUM('a','b')", "a", "1"),  # a label's number
        ("enum", "enum", "ENUM('a','b')", "c", "A"),  # the collation decides
        ("string", "enum", "ENUM('a','b')", "c", "2"),
        ("binary", "string", "VARCHAR(20)", "YWI=", "w7w="),  # the character set decides
        ("string", "binary", "VARBINARY(20)", "ab", "ü"),
        ("string", "string", "TINYTEXT", "x" * 300, "ü" * 200),
        ("string", "int32", "INT", "12abc", "1.5"),  # MariaDB does not read on, MySQL rounds
        ("string", "int32", "INT", "x", "1e2"),
        ("string", "uint64", "BIGINT UNSIGNED", "7", "99999999999999999999"),
        ("string", "date", "DATE", "2024-01-02", "2024-1-2"),
        ("string", "date", "DATE", "2024-02-29", "2023-02-29"),
        ("string", "datetime", "DATETIME", "2024-01-02 03:04:05", "x"),
        ("string", "year", "YEAR", "2024", "0"),
        ("float64", "year", "YEAR", "24.0", "23.5"),
        ("datetime", "date", "DATE", "2024-01-02 23:59:59.4", "2024-01-02 23:59:59.5"),  # MariaDB cuts
        ("datetime", "datetime", "DATETIME(3)", "2024-01-02 03:04:05.1234", "2024-01-02 03:04:05.1235"),
        ("time", "int32", "INT", "01:02:03.4", "01:02:03.5"),
        ("float64", "float32", "FLOAT(7,2)", "NaN", "1.234"),
        ("float64", "float64", "DOUBLE(8,2)", "-1234.5", "-1234.5678"),
        ("float32", "float32", "FLOAT(7,2)", "99999.99", "100000.5"),
        ("float64", "float64", "DOUBLE(255,30)", "1234567890123456789", "1e-31"),
        (
            "string",
            "json",
            "JSON",
            "[7]",
            '{"b": 1, "a": 2}',
        ),  # MySQL sorts the members, MariaDB keeps the text
        ("unknown", "int32", "INT", "12", "2024-01-02"),  # a date's digits, or a text's number
    ],
)
def test_what_depends_on_the_server_is_said_of_its_values_alone(
    old: str, new: str, declared: str, sure: str, doubted: str
) -> None:
    """A statement that concerns no such value must not ask the operator to load a table again."""
    rule = conversion(old, new, declared)
    assert rule.certain
    assert not rule.doubted(sure)
    assert rule.doubted(doubted)


@pytest.mark.parametrize(
    ("old", "new", "declared", "text"),
    [
        ("string", "string", "VARCHAR(200)", "ab"),
        ("string", "string", "TEXT", "ä" * 20_000),
        ("int32", "uint32", "INT UNSIGNED", "7"),
        ("int32", "decimal(4,2)", "DECIMAL(4,2)", "7"),
        ("decimal(10,2)", "decimal(12,4)", "DECIMAL(12,4)", "7.10"),
        ("enum", "enum", "ENUM('a','b')", "a"),
    ],
)
def test_what_fits_is_no_other_value(old: str, new: str, declared: str, text: str) -> None:
    """A mirror is folded again where a value changes, not where it might have."""
    assert not conversion(old, new, declared).alters(text, texts=False)


def test_every_pair_has_an_answer() -> None:
    """A type without a rule would raise in a worker and fail the mirror in every batch."""
    texts = (
        "", "0", "-1", "1.5", "NaN", "1e400", "2024-01-02", "0000-00-00 00:00:00", "9999-12-31 23:59:59.9",
        "-838:59:59.999999", "true", "AAAA", "x" * 3000,
    )  # fmt: skip
    for old, new in product([*types.LOGICAL, "decimal(10,2)", "decimal(50,40)", "bit(64)"], repeat=2):
        rule = conversion(old, new, new.upper())
        for text in texts:
            assert isinstance(rule.of(text), str), (old, new, text)
        if old == new and old not in ("enum", "set", "decimal"):
            assert rule.certain, (old, new)


@pytest.mark.parametrize(
    ("old", "new", "text", "expected"),
    [
        ("char(5)", "text", "a    ", "a"),
        ("char(5)", "varchar(3)", "abc  ", "abc"),
        ("text", "varchar(9)", "a ", "a "),
        ("json", "jsonb", '{"b":1,"a":[1,2],"b":2}', '{"a": [1, 2], "b": 2}'),
        ("text", "jsonb", "[1,2]", "[1, 2]"),
        ("jsonb", "text", "[1, 2]", "[1, 2]"),
        ("text", "uuid", "A0EEBC999C0B4EF8BB6D6BB9BD380A11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("inet", "text", "10.0.0.1", "10.0.0.1/32"),
        ("time", "time(0)", "10:00:00.6", "10:00:01"),
        ("time(0)", "time", "10:00:00", "10:00:00"),
        ("timestamp", "timestamp(1)", "2024-01-01 10:00:00.66", "2024-01-01 10:00:00.7"),
        ("varchar(9)", "varchar2(20)", "a ", "a "),
        ("char(5)", "varchar2(20)", "a    ", "a    "),
        ("timestamp", "date", "2024-01-02 23:59:59.9", "2024-01-02"),
        ("numeric(10,2)", "integer", "2.50", "3"),
        ("numeric(10,2)", "integer", "-2.50", "-3"),
        ("numeric", "bigint", "12345678901234567.4", "12345678901234567"),
    ],
)
def test_texts_of_one_type_as_another_prints_them(old: str, new: str, text: str, expected: str) -> None:
    """PostgreSQL's retypings between texts were taken for nothing: old rows kept what the source does not have."""
    logical = types.postgres(old) if old != "varchar2(20)" else "string"
    after = "string" if new.startswith("varchar2") else types.postgres(new)
    rule = conversion(named(logical, old, mysql=False), after, new, dialect="postgres")
    assert (True, False, expected) == (rule.certain, rule.doubted(text), rule.of(text))


def of_postgres(old: str, new: str) -> Conversion:
    """What PostgreSQL makes of values when a column gets another type."""
    logical = named(types.postgres(old), old, mysql=False)
    return conversion(logical, types.postgres(new), new, dialect="postgres")


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("timestamp", "date", "0044-03-15 10:00:00 BC"),
        ("timestamp", "date", "12024-05-06 10:00:00"),
        ("timestamp", "date", "-0044-03-15T10:00:00"),
        ("timestamp", "date", "2024-01-02T10:00:00Z"),
        ("date", "timestamp", "0044-03-15 BC"),
        ("date", "timestamp", "12024-05-06"),
        ("timestamp", "timestamp(0)", "0044-03-15 10:00:00.6 BC"),
        ("timestamptz", "timestamptz(1)", "12024-05-06 23:59:59.99+00"),
    ],
)
def test_a_date_far_away_is_not_cut(old: str, new: str, text: str) -> None:
    """A year before Christ became one after it, and a date of the year 12024 lost its last digit, without a word."""
    rule = of_postgres(old, new)
    assert (text, True) == (rule.of(text), rule.doubted(text))


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("timestamp", "date", "infinity"),
        ("timestamp", "date", "-infinity"),
        ("timestamp", "date", "2024-01-02"),
        ("date", "timestamp", "-infinity"),
        ("timestamp", "timestamp(0)", "0044-03-15 10:00:00 BC"),
    ],
)
def test_a_date_that_all_types_write_alike_is_sure(old: str, new: str, text: str) -> None:
    """A right row would be reported: a server keeps these as they are."""
    rule = of_postgres(old, new)
    said = rule.of(text).removesuffix(" 00:00:00")
    assert (text, False) == (said, rule.doubted(text))


@pytest.mark.parametrize(
    ("dialect", "old", "new"),
    [
        ("sqlserver", "CHAR(5)", "VARCHAR(10)"),
        ("sqlserver", "CHAR(5)", "VARCHAR(MAX)"),
        ("sqlserver", "CHAR(5)", "TEXT"),
        ("sqlserver", "NCHAR(5)", "NVARCHAR(10)"),
        ("sqlserver", "NCHAR(5)", "varchar(5)"),
        ("db2", "CHAR(5)", "VARCHAR(10)"),
        ("db2", "CHARACTER(5)", "CHARACTER VARYING(10)"),
        ("db2", "NCHAR(5)", "NVARCHAR(10)"),
        ("db2", "CHAR(5)", "CLOB(1K)"),
        ("db2", "GRAPHIC(5)", "VARGRAPHIC(10)"),
        ("oracle", "CHAR(5)", "VARCHAR(10)"),
        ("oracle", "CHAR(5)", "CHARACTER VARYING(10)"),
        ("oracle", "NCHAR(5)", "NCHAR VARYING(10)"),
        ("oracle", "", "VARCHAR(10)"),  # no statement has declared the old one
        ("sqlserver", "", "TEXT"),
        ("db2", "", "CHAR VARYING(10)"),
    ],
)
def test_blanks_of_char_are_stripped_by_postgresql_alone(dialect: str, old: str, new: str) -> None:
    """Mirrors lost blanks that the source keeps; where none had declared CHAR, values were reported that were right."""
    rule = conversion(named("string", old, mysql=False), "string", new, dialect=dialect)
    assert ("ab   ", True, False) == (rule.of("ab   "), rule.certain, rule.doubted("ab   "))


@pytest.mark.parametrize("words", ["NCHAR VARYING(10)", "NCHAR VARCHAR(10)", "NATIONAL CHAR VARYING(10)"])
def test_a_text_of_varying_length_is_not_cut_as_char(words: str) -> None:
    """``NCHAR VARYING`` was read as NCHAR without a length, so that one character was left of each value."""
    assert "ab  " == conversion("string", "string", words).of("ab  ")


def test_a_text_whose_type_nothing_has_declared() -> None:
    """It may have been CHAR, whose blanks go: then it is not sure; a text without blanks at its end is the same."""
    rule = conversion("string", "string", "text", dialect="postgres")
    assert (True, True, False) == (rule.doubted("a "), rule.doubted("10.0.0.1"), rule.doubted("a b"))
    assert not conversion("string", "string", "tsvector", dialect="postgres").certain


@pytest.mark.parametrize("dialect", ["oracle", "sqlserver", "db2"])
@pytest.mark.parametrize(
    ("old", "text", "filled", "doubted"),
    [
        ("", "ab   ", "ab      ", False),
        ("", "ab", "ab      ", True),  # the capture may strip blanks
        ("", "abcdefgh", "abcdefgh", False),
        ("CHAR(5)", "abcde", "abcde   ", False),
        ("CHAR(5)", "ab", "ab      ", True),
        ("", "北 ", "北       ", True),  # in bytes, of an unknown character set
    ],
)
def test_a_longer_char_is_filled_up(dialect: str, old: str, text: str, filled: str, *, doubted: bool) -> None:
    """All rows were unknown, though a text with blanks at its end shows that the capture sends them."""
    rule = conversion(named("string", old, mysql=False), "string", "CHAR(8)", dialect=dialect)
    assert (filled, doubted) == (rule.of(text), rule.doubted(text))


@pytest.mark.parametrize("dialect", ["oracle", "sqlserver", "db2"])
def test_a_shorter_char_is_asked_about(dialect: str) -> None:
    """Db2 cuts blanks at the end off, Oracle does by a setting, and kept values were taken for sure."""
    assert conversion("string", "string", "CHAR(5)", dialect=dialect).doubted("abc       ")


@pytest.mark.parametrize("dialect", ["sqlserver", "db2"])
def test_a_char_of_a_type_that_nothing_says_is_asked_about(dialect: str) -> None:
    """Other databases than Oracle make texts of numbers and times, in a form of their own."""
    assert not conversion("unknown", "string", "CHAR(19)", dialect=dialect).certain
    assert conversion("unknown", "string", "CHAR(19)", dialect="oracle").certain


@pytest.mark.parametrize(
    ("new", "declared"),
    [
        ("decimal(12,4)", "NUMBER(12,4)"),
        ("datetime(6)", "TIMESTAMP(6)"),
        ("binary", "RAW(40)"),
        ("float64", "FLOAT(20)"),
    ],
)
def test_oracle_changes_no_value_of_a_type_that_nothing_says(new: str, declared: str) -> None:
    """Its MODIFY refuses a column with values that it would have to change; each wider NUMBER was a failure."""
    assert KEEP == conversion("unknown", new, declared, dialect="oracle")
    assert not conversion("unknown", new, declared, dialect="sqlserver").certain


def test_oracle_converts_moments_to_the_zone_of_the_session() -> None:
    """Which that was, nothing says."""
    words = "TIMESTAMP(6) WITH LOCAL TIME ZONE"
    assert not conversion("unknown", "timestamp(6)", words, dialect="oracle").certain
    assert not conversion(
        "unknown", "datetime", "DATE", dialect="oracle"
    ).certain  # may have been one of these


@pytest.mark.parametrize(
    ("old", "declared", "text", "converted", "asked"),
    [
        ("datetime", "DATETIME", "2024-06-10 10:11:29.12345", "2024-06-10 10:11:29.123", False),
        ("datetime", "DATETIME", "2024-06-10 23:59:59.999", "2024-06-11 00:00:00", False),
        ("datetime", "DATETIME", "2024-06-10 10:11:29.005", "2024-06-10 10:11:29.007", False),
        ("datetime", "DATETIME", "9999-12-31 23:59:59.9979", "9999-12-31 23:59:59.997", False),
        ("datetime", "DATETIME", "9999-12-31 23:59:59.9999999", "9999-12-31 23:59:59.9999999", True),
        ("date", "DATETIME", "2024-06-10", "2024-06-10 00:00:00", False),
        ("date", "SMALLDATETIME", "2024-06-10", "2024-06-10 00:00:00", False),
        ("datetime", "SMALLDATETIME", "2024-06-10 10:11:00", "2024-06-10 10:11:00", False),
        ("datetime", "SMALLDATETIME", "2024-06-10 10:11:31", "2024-06-10 10:11:31", True),
        ("datetime", "DATETIME2(0)", "2024-06-10 10:11:29.5", "2024-06-10 10:11:30", False),
        ("datetime", "DATETIME2", "2024-06-10 10:11:29.1234567", "2024-06-10 10:11:29.1234567", False),
        ("datetime", "DATETIME2(3)", "2024-06-10 10:11:29.003", "2024-06-10 10:11:29.003", False),
        ("datetime", "DATETIME2", "2024-06-10 10:11:29.003", "2024-06-10 10:11:29.003", True),
        ("datetime", "DATETIME2", "2024-06-10 10:11:29.01", "2024-06-10 10:11:29.01", False),
    ],
)
def test_times_of_sql_server(old: str, declared: str, text: str, converted: str, asked: bool) -> None:
    """A DATETIME lost its milliseconds, as MySQL's has none, and a SMALLDATETIME kept its seconds."""
    rule = conversion(old, "datetime", declared, dialect="sqlserver")
    assert (converted, asked) == (rule.of(text), rule.doubted(text))


def test_what_no_document_says_is_asked_about() -> None:
    """Db2 was taken to round and to cut like MySQL; of SQL Server a number that is too long for its text was cut."""
    fits, loses = "1.50", "1.2345"
    rule = conversion("decimal(12,4)", "decimal(10,2)", "DECIMAL(10,2)", dialect="db2")
    assert (False, True) == (rule.doubted(fits), rule.doubted(loses))
    for dialect in ("sqlserver", "db2"):
        rule = conversion("int32", "string", "VARCHAR(2)", dialect=dialect)
        assert (False, True) == (rule.doubted("12"), rule.doubted("123"))
    moment = "2024-06-10 10:11:29.127456"
    assert (moment, False) == (
        (rule := conversion("datetime", "datetime", "TIMESTAMP(12)", dialect="db2")).of(moment),
        rule.doubted(moment),
    )


def test_other_databases_convert_only_what_all_do() -> None:
    """PostgreSQL prints numbers with other digits, and what others make of a date is not known."""
    assert UNKNOWN == conversion("datetime", "date", "date", dialect="oracle")
    assert UNKNOWN == conversion("decimal(10,2)", "int32", "int", dialect="sqlserver")
    rule = conversion("decimal(10,4)", "decimal(10,2)", dialect="postgres")
    assert rule.convert is not None
    assert rule.certain
    assert not conversion("string", "string", "char(9)", dialect="postgres").certain  # filled up with blanks
    assert KEEP == conversion("string(3)", "string", "varchar(3)", dialect="postgres")
    # refused if a value is longer
    assert KEEP == conversion("string", "string", "VARCHAR2(3 CHAR)", dialect="oracle")
    rule = conversion("timestamp", "timestamp", "timestamptz(3)", dialect="postgres")
    assert "2024-01-02T03:04:05.124Z" == rule.of("2024-01-02T03:04:05.1235Z")
    assert not rule.doubted("2024-01-02T03:04:05.1235Z")


@pytest.mark.parametrize(
    ("old", "text"), [("string", "北京市区"), ("unknown", "北京市区"), ("int32", "1234")]
)
def test_an_explicit_cast_of_postgresql_cuts(old: str, text: str) -> None:
    """``USING v::varchar(3)``: "an over-length value will be truncated to n characters without raising an error"."""
    rule = conversion(old, "string", "varchar(3)", dialect="postgres")
    assert (text[:3], False) == (rule.of(text), rule.doubted(text))


def at(place: int) -> Order:
    """A place."""
    return Order(0, 1, (place,), 0, (1,), 0)


def test_the_fold_converts_rows_that_exist_and_no_later_ones() -> None:
    """By the type that a row's own message names, if no statement has said it before."""
    step = SchemaStep(at(3), "retype_column", "v", type="decimal(10,2)", declared="DECIMAL(10,2)")
    rows = [
        Placed(at(1), Change(op=Op.INSERT, after={"id": "1", "v": "4.185"}, types={"v": "float32"})),
        Placed(at(2), Change(op=Op.INSERT, after={"id": "2", "v": "4.185"}, types={"v": "float64"})),
        Placed(at(4), Change(op=Op.INSERT, after={"id": "3", "v": "4.185"}, types={"v": "float32"})),
    ]
    values = [row.values["v"] for row in fold([*rows, step], ("id",)).values()]
    assert ["4.18", "4.19", "4.185"] == values
    widened = step._replace(old="float64")
    assert ["4.19", "4.19", "4.185"] == [row.values["v"] for row in fold([*rows, widened], ("id",)).values()]


def test_a_renamed_column_keeps_its_type() -> None:
    """CHANGE a b DOUBLE renames and converts in one statement."""
    steps = [
        SchemaStep(at(2), "rename_column", "a", "b"),
        SchemaStep(at(3), "retype_column", "b", type="float64", declared="DOUBLE"),
    ]
    row = Placed(at(1), Change(op=Op.INSERT, after={"id": "1", "a": "4.185"}, types={"a": "float32"}))
    [found] = fold([row, *steps], ("id",)).values()
    assert "4.184999942779541" == found.values["b"]


def test_null_becomes_a_zero_where_the_column_becomes_not_null() -> None:
    """In rows that are known whole; a row of which only a partial update was sent keeps an unknown cell."""
    step = SchemaStep(at(4), "retype_column", "v", type="int32", declared="INT", solid=True, zero="0")
    rows = [
        Placed(at(1), Change(op=Op.INSERT, after={"id": "1", "v": None})),
        Placed(at(2), Change(op=Op.INSERT, after={"id": "2"})),
        Placed(at(3), Change(op=Op.UPDATE, after={"id": "3"}, partial=True)),
        Placed(at(5), Change(op=Op.INSERT, after={"id": "4", "v": "7"})),
    ]
    values = [row.values.get("v") for row in fold([*rows, step], ("id",)).values()]
    assert ["0", "0", None, "7"] == values
    unknown = step._replace(zero=None)
    assert [None, None, None, "7"] == [
        row.values.get("v") for row in fold([*rows, unknown], ("id",)).values()
    ]
