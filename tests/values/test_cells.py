"""Both folds compare keys as the same values: those of the plain fold are compared with Spark's casts."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, cast

import pytest

from ingest import types
from ingest.fold import KeyCellError, typed

if TYPE_CHECKING:
    from ingest.tables.lake import Lake

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


@pytest.mark.parametrize("logical", LOGICAL)
def test_the_check_of_keys_types_them_alike(logical: str) -> None:
    """A key that it reads in another way is a row that is missing, or one too many."""
    from ingest.quality.many_keys import KeyDatabase, KeyFunctions
    from ingest.tables import duck

    wanted, database = texts(), KeyFunctions()
    value = KeyDatabase(cast("Lake", None), database)._typed("t", logical)
    of = "hash(x::VARCHAR)" if types.delta(logical).startswith("DECIMAL") else "hash(x)"
    listed = ", ".join(f"({duck.text(text)})" for text in wanted)
    found = dict(
        database.base.execute(
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
            "the key column 'id' is not a day or time that exists; a column declared `string` under columns: keeps texts such as MySQL's zero dates: '2024-02-30'",
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
