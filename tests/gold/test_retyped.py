"""What a statement does to the values of a column, and who folds it, without Spark."""

from __future__ import annotations

from typing import Any

from ingest.fold import SchemaStep
from ingest.gold.planner import FoldPlan, why_spark
from ingest.gold.retyped import ALTERED, OPEN, RESPELT, Retyped, effect, is_open, on_defaults
from ingest.order import Order

AT = Order(0, 1, (3,), 0, (1,), 0)


def retype(**parts: Any) -> SchemaStep:
    """A step that makes INT of a column."""
    return SchemaStep(AT, "retype_column", "v", type="int32", declared="INT", **parts)


def test_an_effect_is_of_the_value_and_not_of_the_type() -> None:
    """A mirror is folded again, and a person asked, where a value gives reason to."""
    step = retype(old="string")
    assert 0 == effect(step, "12", "")
    assert RESPELT == effect(step, "012", "")
    assert ALTERED | RESPELT == effect(step, "12abc", "")
    assert OPEN & effect(step, "1.5", "")
    assert 0 == effect(step, None, "")
    assert ALTERED | RESPELT == effect(retype(solid=True, zero="0"), None, "")
    assert OPEN == effect(retype(solid=True), None, "")


def test_a_key_that_changes_is_open() -> None:
    """Two rows may have one key then."""
    assert is_open(retype(), ALTERED | RESPELT, ("v",), set())
    assert not is_open(retype(), RESPELT, ("v",), set())
    assert is_open(retype(), RESPELT, ("v",), {"v"})


def test_values_that_rows_have_by_a_default_are_met() -> None:
    """No message holds them."""
    added = SchemaStep(AT._replace(sequence=(2,)), "add_column", "v", default="x")
    assert ALTERED | RESPELT == on_defaults(retype(old="string"), ["v"], [added])
    assert 0 == on_defaults(retype(old="string"), ["v"], [added._replace(order=AT._replace(sequence=(4,)))])


def test_spark_writes_what_cannot_be_known() -> None:
    """Folded by Arrow, a mirror's first batch would lose the reject that says so."""
    plan: Any = None
    fold = FoldPlan(plan, plan, plan, "", (), (Retyped(plan, retype(), OPEN),))
    assert "a statement converts its values" == why_spark(plan, fold)
