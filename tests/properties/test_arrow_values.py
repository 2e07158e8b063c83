"""Arrow's values of canonical texts against their definition."""

from __future__ import annotations

import datetime as dt
import math
from random import Random

import pyarrow as pa
import pytest

from ingest import types
from ingest.gold.fold.arrow_values import values
from ingest.values.typed_values import value_of


def _text(random: Random, kind: str) -> str:
    """A text that is, nearly is or is no value of a type."""

    def digits(count: int) -> str:
        return "".join(random.choice("0123456789") for _ in range(count))

    if kind in ("integer", "decimal", "float"):
        whole = [
            digits(random.randint(1, 5)),
            digits(random.randint(1, 41)),
            "0" * random.randint(1, 40) + digits(2),
            "",
        ]
        text = random.choice(["", "-", "-", "+"]) + random.choice(whole)
        if kind != "integer" or random.random() < 0.1:
            zeros = "0" * random.randint(1, 60)
            text += random.choice(
                ["", ".", "." + digits(4), "." + digits(random.randint(1, 60)), f".{zeros}1"]
            )
            power = random.choice([0, 1, 2, 5, 30, 38, 45, 300, 308, 309, 324, 400])
            text += random.choice(
                [""] * 4 + [random.choice("eE") + random.choice(["", "+", "-"]) + str(power)]
            )
        return random.choice([text] * 20 + ["NaN", "Infinity", "-Infinity"])
    year, month, last = (
        random.choice(some.split())
        for some in ("0000 0001 0999 1582 1900 2023 2024 9999", "01 02 10 12 13", "01 15 28 29 30 31")
    )
    day = f"{year}-{month}-{last}"
    clock = ":".join(random.choice(some.split()) for some in ("00 12 23 24", "00 59 60", "00 59 60"))
    clock += random.choice(["", ".1", ".000001", ".123456", ".1234560", ".1234567", ".999999"])
    zone = random.choice("Z +00:00 -08:30 +17:59 +18:00 -18:00 +19:00 +05:61".split())
    return {
        "date": day,
        "datetime": random.choice([day, f"{day} {clock}"]),
        "timestamp": f"{day}T{clock}{zone}",
        "boolean": random.choice("true false True 1".split()),
        "binary": random.choice(["", "YQ==", "YWI=", "YWJj", "YQ", "Y===", "ab+/"]),
    }[kind]


def _same(found: pa.Scalar, wanted: object, text: str, kind: str) -> bool:
    """Is an Arrow value the defined one?"""
    if kind == "float":
        value, number = found.as_py(), float(str(wanted))
        signed = math.copysign(1, value) == (-1 if text.startswith("-") else 1)
        return (math.isnan(value) and math.isnan(number)) or (value == number and (value != 0 or signed))
    if kind == "date":  # as text: Python has no year 0
        return bool(found.cast(pa.string()).as_py() == wanted)
    if kind == "datetime":
        day, micros = wanted  # type: ignore[misc]
        return bool(found.cast(pa.int64()).as_py() == _days(day[:10]) * 86_400_000_000 + micros)
    if kind == "timestamp":
        days = 719_163  # from the first year to 1970
        return bool(found.cast(pa.int64()).as_py() == wanted - days * 86_400_000_000)  # type: ignore[operator]
    return bool(found.as_py() == wanted)


def _days(day: str) -> int:
    """Days since 1970, by way of the same day 400 years later: there are always as many days between the two."""
    year, month, rest = day.split("-")
    later = dt.date(int(year) + 400, int(month), int(rest)) if int(year) < 9600 else None
    if later is None:
        return (dt.date.fromisoformat(day) - dt.date(1970, 1, 1)).days
    return (later - dt.date(1970, 1, 1)).days - 146_097


@pytest.mark.parametrize(
    "logical",
    "boolean int8 int16 int32 int64 uint32 uint64 decimal(5,2) decimal(38,0) decimal(38,10) decimal(38,38) "
    "decimal(1,0) float32 float64 date datetime timestamp year bit bit(64) binary".split(),
)
def test_values_are_the_defined_ones_and_the_others_are_marked(logical: str) -> None:
    """Arrow reads `0.00...01` (61 zeros) as 0.00 of a decimal(38,2) and `1e400` as an infinity: neither may pass. A text
    that does not fit must not cost the others their values.
    """
    random, kind = Random(logical), types.family(logical) or ""
    texts = [_text(random, kind) for _ in range(500)]
    wanted: list[object] = []
    for text in texts:
        try:
            wanted.append(value_of(logical, text))
        except (ValueError, ArithmeticError):
            wanted.append(None)
    found, unfit = values(pa.array([None, *texts]), logical)
    assert unfit is not None
    assert [None, *[one is None for one in wanted]] == [None, *unfit.to_pylist()[1:]]
    assert not unfit[0].as_py()
    assert not found[0].is_valid
    assert [one is not None for one in wanted] == found.is_valid().to_pylist()[1:]
    for text, value, cell in zip(texts, wanted, found[1:], strict=True):
        if value is not None:
            assert _same(cell, value, text, kind), (text, cell)
            assert _same(values(pa.array([text]), logical).cells[0], value, text, kind), text
    assert 50 < found.null_count < len(texts)


def test_year_0_and_the_ends_of_zones() -> None:
    """The source's rows have them, and a time that only some zone puts beyond a year of four digits."""
    days, unfit = values(pa.array(["0000-02-29", "0000-01-01", "0001-01-01"]), "date")
    assert unfit is None
    assert [-719_469, -719_528, -719_162] == days.cast(pa.int32()).to_pylist()
    moments, unfit = values(pa.array(["9999-12-31T23:59:59-18:00", "0000-01-01T00:00:00+18:00"]), "timestamp")
    assert unfit is None
    assert [253_402_365_599_000_000, -62_167_284_000_000_000] == moments.cast(pa.int64()).to_pylist()
