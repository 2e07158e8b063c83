"""Conditions on rows: what one may contain, and the columns that it needs."""

from __future__ import annotations

import pytest

from ingest.config import conditions

GOOD = {
    "region = 'EU'": ("region",),
    'NOT "Order No" IN (1, 2) OR price / 2 > 3.5': ("Order No", "price"),
    "at >= DATE '2024-01-01' AND at IS NOT NULL": ("at",),
    "CASE WHEN a BETWEEN 1 AND 2 THEN b LIKE 'x%' ELSE coalesce(c, 0) = 0 END": ("a", "b", "c"),
    "TRY_CAST(a AS INT) > 4 AND lower(trim(b)) IS DISTINCT FROM substring(c, 1, 2)": ("a", "b", "c"),
}
BAD = (
    "d > now()", "d = current_date", "random() < a", "a IN (SELECT 1)", "EXISTS (SELECT 1)", "sum(a) > 1", "count(*) > a",
    "sum(a) OVER () > 1", "a = 1; DROP TABLE b", "a = ?", "a = $1", "uuid() = a", "nextval('s') = a", "t.a = 1", "a = ANY(b)",
    "getenv('HOME') = a", "read_text('/etc/passwd') = a", "a > INTERVAL 1 DAY", "", "a =", "'x' = 'x'", "a = 'x",
)  # fmt: skip


@pytest.mark.parametrize("text", GOOD)
def test_conditions_name_their_columns(text: str) -> None:
    """A column that is overlooked is not there when the condition is judged."""
    assert sorted(GOOD[text]) == sorted(conditions.columns(conditions.condition(text)))


@pytest.mark.parametrize("text", BAD)
def test_what_the_row_alone_does_not_settle_is_refused(text: str) -> None:
    """A row would be in the mirror today, and not tomorrow, although no message came."""
    with pytest.raises(ValueError, match=r"condition|column"):
        conditions.condition(text)
