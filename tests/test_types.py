"""Widening: one table of pairs, asked by every layer, compared with the values that the types can hold."""

from __future__ import annotations

from decimal import Decimal
from itertools import product

import pytest

from ingest import types
from ingest.change import TableId
from ingest.config.model import TableRule
from ingest.ddl import Effect
from ingest.gold.plan import policy
from ingest.ledgers.logged_statements import Statement
from ingest.ledgers.mirrors import Column, Mirror, grown

LOGICAL = [
    *(one for one in types.LOGICAL if one != "decimal"),
    *(
        "decimal decimal(3,0) decimal(5,2) decimal(10,2) decimal(15,4) decimal(19,0) decimal(20,0) "
        "decimal(38,0) decimal(38,10) decimal(50,2) bit(64) datetime(6)"
    ).split(),
]
DELTA = sorted({types.delta(one) for one in LOGICAL})
INTEGERS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}


def exact(delta: str, value: Decimal) -> bool:
    """True if an exact number is a value of a Delta type."""
    if delta in INTEGERS:
        half = 1 << INTEGERS[delta] - 1
        return value == value.to_integral() and -half <= value < half
    if delta in ("FLOAT", "DOUBLE"):  # whole numbers that no neighbour is rounded to
        return value == value.to_integral() and abs(value) <= 1 << {"FLOAT": 24, "DOUBLE": 53}[delta]
    parts = types.decimal_parts(delta.lower())
    assert parts is not None
    scaled = value.scaleb(parts[1])
    return scaled == scaled.to_integral() and abs(scaled) < Decimal(10) ** parts[0]


def extremes(delta: str) -> list[Decimal]:
    """The ends of an exact numeric type, and its smallest step."""
    if delta in INTEGERS:
        half = Decimal(1 << INTEGERS[delta] - 1)
        return [-half, half - 1, Decimal(1)]
    parts = types.decimal_parts(delta.lower())
    if parts is None:
        return []
    high = (Decimal(10) ** parts[0] - 1).scaleb(-parts[1])
    return [high, -high, Decimal(1).scaleb(-parts[1])]


NUMBERS = [one for one in DELTA if extremes(one)]


@pytest.mark.parametrize("old", NUMBERS)
def test_a_wider_number_holds_every_value(old: str) -> None:
    """A type called wider that rounds or refuses one value would silently damage a mirror."""
    for new in (*NUMBERS, "FLOAT", "DOUBLE"):
        fits = all(exact(new, value) for value in extremes(old))
        to_integer = new in INTEGERS and old not in INTEGERS  # its texts may be written 5.0 or 5E0
        to_float = new in ("FLOAT", "DOUBLE") and old not in INTEGERS
        if old != new and not (to_integer or to_float):
            assert fits == types.widens(old, new), (old, new)


def test_common_holds_both() -> None:
    """A column whose messages name two types must hold the values of both, whichever came first."""
    for left, right in product(LOGICAL, repeat=2):
        new = types.common(left, right)
        nothing = {"unknown", "decimal"} & {left, right}
        for old in () if nothing else (left, right):
            wide = types.delta(new)
            assert types.widens(types.delta(old), wide) or (types.delta(old), wide) == ("BINARY", "STRING")
            assert types.family(new) in (types.family(old), "decimal", "float", "datetime", None)
        assert types.delta(new) == types.delta(types.common(right, left)), (left, right)


def test_common_does_not_depend_on_the_batches() -> None:
    """Three types in one batch or in three must give one Delta type, or a rebuild changes the mirror."""
    known = {types.delta(one): one for one in LOGICAL if one not in ("unknown", "decimal")}.values()
    for one, two, three in product(known, repeat=3):
        left = types.common(types.common(one, two), three)
        right = types.common(one, types.common(two, three))
        assert types.delta(left) == types.delta(right), (one, two, three)


@pytest.mark.parametrize(
    ("known", "new", "expected"),
    [
        ("int8", "uint8", "uint8"),
        ("int64", "decimal(10,2)", "decimal(21,2)"),
        ("uint64", "int8", "uint64"),
        ("uint64", "decimal(10,0)", "decimal(20,0)"),
        ("date", "datetime", "datetime"),
        ("datetime", "date", "datetime"),
        ("float64", "decimal(30,10)", "string"),
        ("float32", "decimal(5,2)", "string"),
        ("int32", "float64", "float64"),
        ("int32", "float32", "float64"),
        ("int64", "float64", "string"),
        ("datetime", "timestamp", "string"),
        ("binary", "string", "string"),
        ("decimal(10,2)", "decimal", "decimal(10,2)"),
        ("decimal(10,2)", "unknown", "decimal(10,2)"),
        ("float64", "decimal", "string"),
        ("decimal", "decimal(10,2)", "decimal(10,2)"),
        ("int32", "decimal", "int32"),
        ("boolean", "int8", "string"),
    ],
)
def test_common(known: str, new: str, expected: str) -> None:
    """The pairs that real captures mix: unsigned flags, bare decimals, types changed by MODIFY."""
    left = types.common(known, new)
    assert (types.delta(expected), types.family(expected)) == (types.delta(left), types.family(left))


def test_the_ledger_says_what_the_mirror_does() -> None:
    """`ingest ddl` promised a widening that the mirror did not do, and rejects where it became text."""
    table = TableId("shop", None, "t")
    for old, new in product(LOGICAL, repeat=2):
        mirror = Mirror(
            table, "mirrors/shop/t", ("id",), (Column("id", "id", "int64"), Column("a", "a", old))
        )
        after = grown(mirror, table, TableRule("shop.t"), ("id",), {"a": new}).columns[1].delta
        effect = Effect("modify_column", table, "a", type=new)
        [said] = policy.judge(
            Statement("1", "s", table, 1, "001", "", "safe", (effect,)),
            policy.Subject(table, "lenient", {"a": old}),
        ).does
        if after == types.delta(old):
            assert said.startswith(("leaves column a as it is", f"keeps column a as {after}")), (old, new)
        elif types.widens(types.delta(old), after) and after == types.delta(new):
            assert said == f"widens column a to {after}"
        else:
            assert said.startswith(f"changes column a to {after}"), (old, new, said)


@pytest.mark.parametrize(
    ("number", "least", "expected"),
    [
        (100, "int8", "int8"),
        (200, "int8", "uint8"),
        (-129, "int8", "int16"),
        (3_000_000_000, "int32", "uint32"),
        (-3_000_000_000, "int32", "int64"),
        (1 << 63, "int64", "uint64"),
        (1 << 64, "int64", "decimal(38,0)"),
    ],
)
def test_a_number_names_the_type_that_holds_it(number: int, least: str, expected: str) -> None:
    """DTS's type codes do not say UNSIGNED: a value beyond the signed range was lost."""
    assert expected == types.integer(number, least)


def test_a_mirrors_column_has_no_zerofill() -> None:
    """Digits for display are no part of a type: it would be another one in every comparison."""
    filled = types.with_zeros("uint32", "INT(5) UNSIGNED ZEROFILL")
    assert "uint32 zerofill 5" == filled
    assert ("uint32", "BIGINT", "integer") == (types.base(filled), types.delta(filled), types.family(filled))
    decimal = types.with_zeros("decimal(8,2)", "decimal(8,2) zerofill")
    assert ("decimal", "DECIMAL(8,2)") == (types.base(decimal), types.delta(decimal))
    assert (
        "uint32"
        == types.common("unknown", filled)
        == types.common(filled, filled)
        == types.common("uint8", filled)
    )
    assert not types.is_logical(filled)
    assert not types.is_logical(decimal)


def test_long_type_names_are_cut() -> None:
    """A type's name is the source's text, of any length: it is read as far as a name can mean something."""
    labels = ",".join(f"'{one}'" for one in range(types.LONGEST))
    assert ("enum", "enum") == (types.mysql(f"enum({labels})"), types.mysql("enum('0')"))
    assert "decimal(10,2)" == types.mysql("decimal(10,2)" + " comment" * types.LONGEST)
    assert types.mysql("varchar") == types.mysql("varchar(" + "9" * types.LONGEST + ")")
