"""infer: a type for each untyped column, from its values, and careful."""

from __future__ import annotations

import pytest

from ingest.change import Change, Op, TableId
from ingest.infer import observe, propose

TABLE = TableId("depot", None, "parcels")


def proposed(*texts, **change):
    """The proposal for one column with these values."""
    changes = [Change(op=Op.INSERT, table=TABLE, after={"c": text}, **change) for text in texts]
    found = propose(observe(changes)[TABLE])
    return found[0] if found else None


@pytest.mark.parametrize(
    ("texts", "logical"),
    [
        (["1", "-20", None], "int64"),
        (["0"], "int64"),
        (["9223372036854775807", "-9223372036854775808"], "int64"),
        (["9223372036854775808"], "uint64"),
        (["9223372036854775808", "-1"], "decimal(38,0)"),
        (["1" * 38], "decimal(38,0)"),
        (["1" * 39], "string"),
        (["007", "8"], "string"),
        (["-0", "1"], "string"),
        (["+1"], "string"),
        (["1.10", "20"], "decimal(12,4)"),
        (["0." + "1" * 37], "decimal(38,37)"),
        (["1" * 20 + "." + "1" * 19], "string"),
        (["1.5", "1E400"], "float64"),
        (["NaN", "1"], "float64"),
        (["true", "false"], "boolean"),
        (["true", "1"], "string"),
        (["2024-02-29"], "date"),
        (["2024-02-30"], "string"),
        (["0000-00-00", "2024-01-01"], "string"),
        (["2024-01-01 10:00:00.5"], "datetime"),
        (["2024-01-01T10:00:00Z", "2024-01-01 10:00:00+08:00"], "timestamp"),
        (["2024-01-01 10:00:00", "2024-01-01T10:00:00Z"], "string"),
        (["2024-01-01", "2024-01-01 10:00:00"], "string"),
        (["-838:59:59"], "time"),
        (["", "x"], "string"),
        (["1", "x"], "string"),
        ([None], None),
    ],
)
def test_a_type_holds_every_value_that_was_seen(texts, logical):
    """A type that is too narrow or too clever damages the values that come later."""
    assert logical == proposed(*texts).type


def test_the_evidence_counts_values_and_nulls():
    """A person decides by it."""
    found = proposed("1", "22", None)
    assert "2 of 2 are integers, at most 2 digits; 1 NULL" == found.evidence
    assert (2, 1) == (found.values, found.nulls)


def test_head_room_is_stated():
    """The user would not know that the type is wider than the values seen."""
    assert "fit decimal(3,2); 6 digits of head-room before the point, 2 after" in proposed("1.10").evidence


def test_a_scale_that_all_values_share_is_kept():
    """Money of DECIMAL(12,2) that reads 0.1000 looks like a fault of the mirror."""
    cents = [f"{n}.{n % 10}0" for n in range(12)]
    assert "decimal(10,2)" == proposed(*cents).type
    assert "each with 2 digits after the point" in proposed(*cents).evidence
    assert "decimal(12,4)" == proposed(*cents, "7").type  # a value whose zeros were stripped
    assert "decimal(11,4)" == proposed(*cents[:3]).type


def test_numbers_that_may_be_moments_are_pointed_out():
    """Seconds since 1970 look like any other number."""
    assert "maybe a moment" in proposed("1714550399").evidence
    assert "maybe a moment" in proposed("1714550399.123").evidence
    assert "moment" not in proposed("171455").evidence


def test_what_the_messages_tell_is_not_proposed_again():
    """A guess must never override the source's own type."""
    assert proposed("1", types={"c": "int32"}) is None


def test_a_decimal_without_its_digits_is_proposed():
    """It would stay text in the mirror."""
    assert "decimal(11,4)" == proposed("1.10", types={"c": "decimal"}).type


def test_before_images_are_evidence_too():
    """A delete alone shows a column's values."""
    changes = [Change(op=Op.DELETE, table=TABLE, before={"c": "x"}), Change(op=Op.DDL, table=TABLE, ddl="x")]
    assert "string" == propose(observe(changes)[TABLE])[0].type
