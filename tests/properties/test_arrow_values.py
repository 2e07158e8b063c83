"""Arrow's values of canonical texts against their definition."""

from __future__ import annotations

import datetime as dt
import math
from random import Random

import pyarrow as pa
import pytest

from ingest import types
from ingest.gold.arrow_values import NotPlain, values
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
    days = 719_163  # from the first year to 1970
    if kind == "float":
        value, number = found.as_py(), float(str(wanted))
        signed = math.copysign(1, value) == (-1 if text.startswith("-") else 1)
        return (math.isnan(value) and math.isnan(number)) or (value == number and (value != 0 or signed))
    if kind == "date":
        return bool(found.as_py().isoformat() == wanted)
    if kind == "datetime":
        day, micros = wanted  # type: ignore[misc]
        return bool(
            found.cast(pa.int64()).as_py()
            == (dt.date.fromisoformat(day).toordinal() - days) * 86_400_000_000 + micros
        )
    if kind == "timestamp":
        return bool(found.cast(pa.int64()).as_py() == wanted - days * 86_400_000_000)  # type: ignore[operator]
    return bool(found.as_py() == wanted)


@pytest.mark.parametrize(
    "logical",
    "boolean int8 int16 int32 int64 uint32 uint64 decimal(5,2) decimal(38,0) decimal(38,10) decimal(38,38) "
    "decimal(1,0) float32 float64 date datetime timestamp year bit bit(64) binary".split(),
)
def test_values_are_the_defined_ones_or_none(logical: str) -> None:
    """Arrow reads `0.00...01` (61 zeros) as 0.00 of a decimal(38,2) and `1e400` as an infinity: neither may pass."""
    random, kind, fitted = Random(logical), types.family(logical) or "", 0
    for _ in range(4000):
        text = _text(random, kind)
        try:
            wanted = value_of(logical, text)
        except (ValueError, ArithmeticError):
            with pytest.raises(NotPlain):
                values(pa.array([None, text]), logical)
            continue
        try:
            found = values(pa.array([text, None, text]), logical)
        except NotPlain:
            continue  # years before the first, zones at their ends: Spark's
        fitted += 1
        assert found[1].as_py() is None
        assert _same(found[0], wanted, text, kind), (text, found[0])
    assert fitted > 50
