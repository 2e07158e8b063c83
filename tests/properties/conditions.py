"""Conditions on the rows of random histories, in SQL and in Python."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

Cells = tuple[int | None, str | None, Decimal | None]  # n, s, d
Holds = Callable[[Cells], bool]


CONDITIONS: dict[str, Holds] = {
    "n % 3 <> 1": lambda row: row[0] is not None and row[0] % 3 != 1,
    "NOT (s LIKE 's1%')": lambda row: row[1] is not None and not row[1].startswith("s1"),
    "d IS NULL OR n BETWEEN 5 AND 12": lambda row: (
        row[2] is None or (row[0] is not None and 5 <= row[0] <= 12)
    ),
    "coalesce(n, 0) + 0.5 > 6.5 AND s IS DISTINCT FROM 's9'": lambda row: (
        (row[0] or 0) > 6 and row[1] != "s9"
    ),
}
