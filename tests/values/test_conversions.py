"""What MODIFY does to the values that exist: each rule is MySQL's, as its manual and its server have it."""

from __future__ import annotations

from itertools import product

import pytest

from ingest import types
from ingest.change import Change, Op
from ingest.fold import Placed, SchemaStep, fold
from ingest.order import Order
from ingest.values.conversions import KEEP, UNKNOWN, conversion


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
        ("string", "int32", "INT", "A101", "A101"),
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
    ],
)
def test_a_value_is_converted_as_the_source_does(
    old: str, new: str, declared: str, text: str, expected: str
) -> None:
    """No message tells of these values: a mirror that keeps the old ones is wrong without a word."""
    rule = conversion(old, new, declared)
    assert expected == rule.of(text)


@pytest.mark.parametrize(
    ("old", "new", "declared"),
    [
        ("int32", "int64", "BIGINT"),
        ("int32", "uint32", "INT UNSIGNED"),
        ("decimal(10,2)", "decimal(10,2)", "DECIMAL(10,2)"),
        ("string", "string", "VARCHAR(200)"),
        ("string", "string", "TEXT"),
        ("int32", "string", "VARCHAR(20)"),
        ("enum", "string", "VARCHAR(20)"),
        ("datetime", "datetime", "DATETIME(6)"),
        ("datetime(3)", "datetime", "DATETIME(3)"),
        ("date", "string", "VARCHAR(20)"),
        ("boolean", "int8", "TINYINT"),
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
        ("enum", "enum", "ENUM('a','b')"),
        ("binary", "string", "VARCHAR(20)"),
        ("bit", "string", "VARCHAR(20)"),
        ("datetime", "string", "VARCHAR(40)"),  # DATETIME(6) prints six digits
        ("time", "string", "VARCHAR(40)"),
        ("string", "json", "JSON"),
        ("decimal(10,4)", "decimal", "DECIMAL"),
        ("unknown", "float64", "DOUBLE"),
    ],
)
def test_what_cannot_be_known_is_said(old: str, new: str, declared: str) -> None:
    """A session's zone, a label's number, a character set are in no message: a guess would be silently wrong."""
    assert not conversion(old, new, declared).certain


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


def test_other_databases_convert_only_what_all_do() -> None:
    """PostgreSQL truncates a date where MySQL rounds, and prints numbers with other digits."""
    assert UNKNOWN == conversion("datetime", "date", "date", mysql=False)
    rule = conversion("decimal(10,4)", "decimal(10,2)", mysql=False)
    assert rule.convert is not None
    assert rule.certain


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
    told = step._replace(old="float64")
    assert ["4.19", "4.19", "4.185"] == [row.values["v"] for row in fold([*rows, told], ("id",)).values()]


def test_a_renamed_column_keeps_its_type() -> None:
    """CHANGE a b DOUBLE renames and converts in one statement."""
    steps = [
        SchemaStep(at(2), "rename_column", "a", "b"),
        SchemaStep(at(3), "retype_column", "b", type="float64", declared="DOUBLE"),
    ]
    row = Placed(at(1), Change(op=Op.INSERT, after={"id": "1", "a": "4.185"}, types={"a": "float32"}))
    [found] = fold([row, *steps], ("id",)).values()
    assert "4.184999942779541" == found.values["b"]
