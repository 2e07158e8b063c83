"""Properties of tables as other writers write them."""

from __future__ import annotations

import pytest

from ingest.tables import delta


@pytest.mark.parametrize(
    ("value", "expected"), [("true", True), ("TRUE", True), (" True ", True), ("false", False), ("1", False)]
)
def test_a_property_is_true_in_any_case(value: str, expected: bool) -> None:
    """Spark takes any: a mirror whose owner made it append-only in capitals would get removes."""
    assert expected == delta.is_on({"delta.appendOnly": value}, "delta.appendOnly")
    assert not delta.is_on({}, "delta.appendOnly")
