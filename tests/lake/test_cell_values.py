"""The rule by which cells are compared: a text's value, apart from the casts that fill the mirrors."""

from __future__ import annotations

import base64
import datetime as dt
import struct
from decimal import Decimal

import pyarrow as pa
import pytest

from ingest import types
from ingest.tables.cell_values import of_column, of_text, shown, text_of

# logical type, canonical text, the text of the mirror's cell; None where the text does not fit
FITS = [
    ("boolean", "true", "true"),
    ("boolean", "false", "false"),
    ("boolean", "1", None),
    ("int8", "-128", "-128"),
    ("int8", "128", None),
    ("int8", "007", "7"),
    ("uint8", "255", "255"),
    ("int16", "32768", None),
    ("int32", "-2147483648", "-2147483648"),
    ("uint32", "4294967295", "4294967295"),
    ("int64", "9223372036854775807", "9223372036854775807"),
    ("int64", "9223372036854775808", None),
    ("int64", "1.0", None),
    ("uint64", "18446744073709551615", "18446744073709551615"),
    ("bit(64)", "18446744073709551615", "18446744073709551615"),
    ("year", "0", "0"),
    ("bit", "5", "5"),
    ("decimal(10,2)", "1.10", "1.10"),
    ("decimal(10,2)", "1.1", "1.10"),
    ("decimal(10,2)", "1.100", "1.10"),
    ("decimal(10,2)", "1.239", None),
    ("decimal(10,2)", "-0", "0.00"),
    ("decimal(10,2)", "1.2e3", "1200.00"),
    ("decimal(10,2)", "1e-400", None),
    ("decimal(10,2)", "99999999.99", "99999999.99"),
    ("decimal(10,2)", "100000000", None),
    ("decimal(38,0)", "9" * 38, "9" * 38),
    ("decimal(38,38)", "0." + "1" * 38, "0." + "1" * 38),
    ("decimal(65,30)", "1.50", "1.50"),
    ("decimal", "1e5", "1e5"),
    ("float32", "0.1", "0.1"),
    ("float32", "1e39", None),
    ("float32", "16777217", "1.6777216E7"),
    ("float32", "NaN", "NaN"),
    ("float32", "-0.0", "-0.0"),
    ("float64", "1.7976931348623157e308", "1.7976931348623157E308"),
    ("float64", "1e309", None),
    ("float64", "1e-400", "0.0"),
    ("float64", "-Infinity", "-Infinity"),
    ("float64", "5e-324", "4.9E-324"),
    ("string", "", ""),
    ("string", "null", "null"),
    ("enum", "a", "a"),
    ("json", '{"a": 1}', '{"a": 1}'),
    ("time", "838:59:59.5", "838:59:59.5"),
    ("binary", "AAEC/w==", "AAEC/w=="),
    ("binary", "", ""),
    ("binary", "AAE", None),
    ("date", "2024-02-29", "2024-02-29"),
    ("date", "2023-02-29", None),
    ("date", "0000-00-00", None),
    ("date", "0001-01-01", "0001-01-01"),
    ("date", "9999-12-31", "9999-12-31"),
    ("datetime", "2024-02-29 23:59:59.123456789", "2024-02-29 23:59:59.123456"),
    ("datetime", "2024-02-29 23:59:59.100000", "2024-02-29 23:59:59.1"),
    ("datetime", "2024-02-29", "2024-02-29 00:00:00"),  # the column is or was a DATE
    ("datetime", "2024-02-30", None),
    ("datetime", "2024-02-29 24:00:00", None),
    ("datetime", "2024-02-29 23:59:60", None),
    ("datetime", "0001-01-01 00:00:00", "0001-01-01 00:00:00"),
    ("timestamp", "2024-02-29T23:59:59.5+08:00", "2024-02-29T15:59:59.5"),
    ("timestamp", "1970-01-01T00:00:00Z", "1970-01-01T00:00:00"),
    ("timestamp", "1969-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999999"),
    ("timestamp", "2024-02-30T00:00:00Z", None),
    ("timestamp", "2024-02-29T00:00:00+19:00", None),
    ("timestamp", "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999"),
    ("unknown", "anything", "anything"),
]


def of_cell(cell: str | None, delta: str) -> object:
    """A cell as it comes from a mirror's file."""
    kinds = {
        "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(), "BIGINT": pa.int64(), "BOOLEAN": pa.bool_(),
        "FLOAT": pa.float32(), "DOUBLE": pa.float64(), "STRING": pa.string(), "BINARY": pa.binary(), "DATE": pa.date32(),
        "TIMESTAMP": pa.timestamp("us", "UTC"), "TIMESTAMP_NTZ": pa.timestamp("us"),
    }  # fmt: skip
    if delta.startswith("DECIMAL"):
        kinds[delta] = pa.decimal128(*map(int, delta[8:-1].split(",")))
    if delta == "BINARY" and cell is not None:
        return of_column(pa.array([base64.b64decode(cell)], pa.binary()), delta)[0]
    if delta.startswith("TIMESTAMP") and cell is not None:
        value = dt.datetime.fromisoformat(cell)
        return of_column(
            pa.array([value.replace(tzinfo=dt.UTC if delta == "TIMESTAMP" else None)], kinds[delta]), delta
        )[0]
    return of_column(pa.array([cell]).cast(kinds[delta]), delta)[0]


@pytest.mark.parametrize(("logical", "text", "cell"), FITS)
def test_a_text_is_the_value_of_its_cell(logical: str, text: str, cell: str | None) -> None:
    """Two rules of what a text means: every cell of the type would be called wrong, or a wrong one right."""
    assert of_cell(cell, types.delta(logical)) == of_text(text, logical)


def test_another_cell_is_another_value() -> None:
    """A comparison that calls everything equal finds nothing."""
    by_type: dict[str, set[str]] = {}
    for logical, _text, cell in FITS:
        if cell is not None:
            by_type.setdefault(types.delta(logical), set()).add(cell)
    for logical, text, cell in FITS:
        for other in by_type[types.delta(logical)] - {cell}:
            assert of_cell(other, types.delta(logical)) != of_text(text, logical), (logical, text, other)


def test_a_single_is_rounded_once() -> None:
    """By way of a double, this text would be rounded to the neighbour of the nearest single."""
    text = "1.00000005960464477540"
    assert struct.pack(">f", 1.0000001192092896) == of_text(text, "float32")
    assert struct.pack(">f", 1.0) == of_text("1.00000005960464477538", "float32")


@pytest.mark.parametrize(("logical", "text", "cell"), FITS)
def test_a_cell_is_written_as_it_came(logical: str, text: str, cell: str | None) -> None:
    """Keys of rows are found by their texts: a text of another value is another key."""
    value = of_text(text, logical)
    if cell is not None:
        assert value == of_text(text_of(value, types.delta(logical)), logical)


def test_values_are_shown() -> None:
    """To repair a cell the operator needs both values."""
    assert ["NULL", "'1.10'", "0.5"] == [
        shown(None),
        shown(Decimal("1.10")),
        shown(of_text("0.5", "float64")),
    ]
