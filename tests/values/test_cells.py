"""Both folds compare keys as the same values: those of the plain fold are compared with Spark's casts."""

from __future__ import annotations

import datetime as dt
from base64 import b64encode
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, cast

import pytest

from ingest import types
from ingest.fold import KeyCellError, typed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ingest.lake.lake import Lake

LOGICAL = (
    "boolean int8 int16 int32 int64 uint8 uint16 uint32 uint64 decimal(10,2) decimal(20,0) decimal(38,38) "
    "decimal(50,2) decimal float32 float64 string binary hex date time datetime timestamp year bit bit(64) unknown"
).split()
NEAR = (
    "true", "TRUE", "false", "0", "-0", "00", "7", "07", "+7", "7.0", "7.00", "1e0", "127", "128", "-129", "32768",
    "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "18446744073709551615",
    "99999999999999999999", "100000000000000000000", "1.5", "1.50", "1.500e0", "15E-1", "1.239", "12345678.99",
    "123456789", ".5", "5.", "-.5", "0.1", "0.10000000149011612", "1e39", "-1e39", "3.4028235e38", "1e308", "1e309",
    "1e-400", "1e-46", "NaN", "Infinity", "-Infinity", "inf", "-0.0", "0.0", "16777217", "1.00000017881393432617187499",
    "1.00000017881393432617187500", "1.00000017881393432617187501", "2024-01-02", "2024-02-30", "2024-1-2",
    "0000-01-01", "0000-02-29", "0001-01-01", "9999-12-31", "2023-02-29", "2024-02-29", "2024-13-01", "2024-00-10",
    "2024-01-02 00:00:00", "2024-01-02 03:04:05", "2024-01-02 03:04:05.1", "2024-01-02 03:04:05.100000",
    "2024-01-02 03:04:05.1000000", "2024-01-02 03:04:05.1234567", "2024-01-02 24:00:00", "2024-01-02 23:59:60",
    "2024-01-02T03:04:05Z", "2024-01-02T03:04:05.0Z", "2024-01-02T03:04:05+00:00", "2024-01-02T11:04:05+08:00",
    "2024-01-02T03:04:05-00:00", "2024-01-02T03:04:05+18:00", "2024-01-02T03:04:05+18:01", "2024-01-02T03:04:05+08:60",
    "2024-01-01T23:04:05-04:00", "0000-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "2024-01-02T03:04:05.1234560Z",
    "2024-01-02T03:04:05.1234567Z", "2024-01-02T03:04:05", "", " 7", "7 ", "AQ==", "AQI=", "AR==", "A===", "AQID",
    "AQ=", "=", "====", "A", "0x", "0xAf", "0Xaf0", "\\x00ff", "00ff", "\u0667", "1e400", "1e401", "0" * 41, "1" * 39, "12:30:00",
)  # fmt: skip


def texts() -> list[str]:
    """The near misses, and random neighbours of them."""
    random = Random(7)
    found = list(NEAR)
    for _ in range(600):
        text = random.choice(NEAR)
        at = random.randrange(len(text) + 1)
        found.append(text[:at] + random.choice("0123456789.-+eEZ: T=A") + text[at + random.randrange(2) :])
    return list(dict.fromkeys(found))


@pytest.mark.spark
def test_plain_and_spark_type_keys_alike(spark: SparkSession) -> None:
    """Two spellings that one fold takes for one key and the other for two give one target row two sources."""
    from pyspark.sql import functions as F

    from ingest.gold.cast import cast, key_is_exact

    wanted = texts()
    frame = spark.createDataFrame([(text,) for text in wanted], "text STRING")
    cells = []
    for i, logical in enumerate(LOGICAL):
        value, exact = cast(F.col("text"), logical), key_is_exact(F.col("text"), logical)
        value = value if exact is None else F.when(exact, value)
        # a hash takes -0.0 for 0.0, as joins do
        cells.append(F.when(value.isNotNull(), F.hash(value)).alias(f"h{i}"))
        cells.append(value.isNotNull().alias(f"f{i}"))
    rows = {row["text"]: row for row in frame.select("text", *cells).collect()}
    wrong = []
    for i, logical in enumerate(LOGICAL):
        by_value: dict[object, set[int]] = {}
        for text in wanted:
            try:
                value = typed(logical, text)
            except KeyCellError:
                fits = False
            else:
                fits = True
                by_value.setdefault(value, set()).add(rows[text][f"h{i}"])
            if fits != rows[text][f"f{i}"]:
                wrong.append((logical, text, "fits" if fits else "does not fit", "in the plain fold only"))
        wrong += [(logical, value, hashes) for value, hashes in by_value.items() if len(hashes) > 1]
        distinct = {rows[text][f"h{i}"] for text in wanted if rows[text][f"f{i}"]}
        if len(distinct) != len(by_value):
            wrong.append((logical, "values", len(by_value), "to Spark", len(distinct)))
    assert not wrong, wrong[:20]


@pytest.mark.spark
def test_values_under_another_columns_name_are_what_a_rebuild_gives(spark: SparkSession) -> None:
    """Spark alone takes any bytes for text and any text for bytes, 1 for true, and a time for one of today."""
    from pyspark.sql import functions as F

    from ingest.gold.cast import converted

    many = bytes(range(256))
    cases: list[tuple[str, str, str, object]] = [
        (f"unhex('{many.hex()}')", "BINARY", "string", b64encode(many).decode()),
        ("unhex('01ff')", "BINARY", "int32", None),
        ("'Af8='", "STRING", "binary", b"\x01\xff"),
        ("'new'", "STRING", "binary", None),
        ("'12:30:00'", "STRING", "timestamp", None),
        ("'1'", "STRING", "boolean", None),
        ("'1.239'", "STRING", "decimal(10,2)", None),
        ("5", "INT", "boolean", None),
        ("5", "INT", "decimal(10,2)", Decimal("5.00")),
        ("true", "BOOLEAN", "string", "true"),
        ("cast(0.1 as float)", "FLOAT", "float64", 0.1),
        ("cast(5 as decimal(20,0))", "DECIMAL(20,0)", "int64", 5),
        ("DATE'2016-05-14'", "DATE", "datetime", dt.datetime(2016, 5, 14)),  # noqa: DTZ001
        ("TIMESTAMP'2016-05-14 01:02:03.5Z'", "TIMESTAMP", "string", "2016-05-14T01:02:03.5Z"),
        ("TIMESTAMP_NTZ'2016-05-14 01:02:03.5'", "TIMESTAMP_NTZ", "string", "2016-05-14 01:02:03.5"),
    ]
    cells = [
        converted(F.expr(value), old, new).alias(str(at)) for at, (value, old, new, _) in enumerate(cases)
    ]
    (row,) = spark.range(1).select(*cells).collect()
    assert [wanted for *_, wanted in cases] == list(row)


@pytest.mark.parametrize("logical", LOGICAL)
def test_the_check_of_keys_types_them_alike(logical: str) -> None:
    """A key that it reads in another way is a row that is missing, or one too many."""
    from ingest.lake import duck
    from ingest.quality.many_keys import KeyDatabase

    wanted, base = texts(), duck.opened()
    value = KeyDatabase(cast("Lake", None), base)._typed("t", logical)
    of = "hash(x::VARCHAR)" if types.delta(logical).startswith("DECIMAL") else "hash(x)"
    listed = ", ".join(f"({duck.text(text)})" for text in wanted)
    found = dict(
        base.execute(
            f"SELECT t, CASE WHEN x IS NOT NULL THEN {of} END FROM (SELECT t, {value} AS x FROM (VALUES {listed}) v(t))"
        ).fetchall()
    )
    by_value: dict[object, set[int]] = {}
    wrong = []
    for text in wanted:
        try:
            key = typed(logical, text)
        except KeyCellError:
            if found[text] is not None:
                wrong.append((text, "fits"))
        else:
            by_value.setdefault(key, set()).add(found[text])
    assert not wrong
    assert {} == {key: hashes for key, hashes in by_value.items() if len(hashes) > 1}
    assert None not in set().union(*by_value.values())
    assert len(by_value) == len(set().union(*by_value.values()))


@pytest.mark.parametrize(
    ("logical", "text", "expected"),
    [
        ("int8", "200", "the key column 'id' is a number outside the range of TINYINT: '200'"),
        ("int8", "A1", "the key column 'id' is not a whole number: 'A1'"),
        ("float64", "1.8e308", "the key column 'id' is a number too large for DOUBLE: '1.8e308'"),
        (
            "decimal(10,2)",
            "1.239",
            "the key column 'id' is a number with more digits than DECIMAL(10,2) holds: '1.239'",
        ),
        (
            "date",
            "2024-02-30",
            "the key column 'id' is not a date (2024-01-31): there is no such day or time: '2024-02-30'",
        ),
    ],
)
def test_why_a_cell_does_not_fit(logical: str, text: str, expected: str) -> None:
    """The message "no float64" would not say what is wrong with a number."""
    with pytest.raises(KeyCellError) as caught:
        typed(logical, text, "id")
    assert expected == str(caught.value)


def test_a_single_is_rounded_once() -> None:
    """By way of a double, a text close to the middle of two singles would become the wrong one."""
    low, high = (
        typed("float32", "1.00000017881393432617187499"),
        typed("float32", "1.00000017881393432617187501"),
    )
    assert low != high
    assert types.delta("float32") == "FLOAT"
