"""Cells of columns that had other names, in SQL: each by the name that its column had where its row was sent.

After RENAME v TO v_old, w TO v an older row has the column's value as w, and in v that of another column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ingest.fold import SchemaStep, names_by_place
from ingest.tables import duck


def cell(column: str, steps: Sequence[SchemaStep], image: str) -> str:
    """A column's cell in an image of `changes`, as text."""
    return _by_place(column, steps, lambda names: duck.cells([names], image, image) if names else "NULL")


def has_cell(column: str, steps: Sequence[SchemaStep], image: str) -> str:
    """The condition that an image has a column, even if it is NULL there."""
    return _by_place(
        column,
        steps,
        lambda names: f"({' OR '.join(duck.has_member(image, name) for name in names) or 'false'})",
    )


def key(
    columns: Iterable[str], steps: Sequence[SchemaStep], first: str = "after", second: str = "before"
) -> str:
    """The key cells of a change in `changes` as a list, each from one image or else from the other.

    Rows stay apart by a key column that was dropped and added again.
    """

    def key_cell(column: str) -> str:
        return _by_place(column, steps, lambda names: duck.cells([names or [column]], first, second))

    return f"[{', '.join(map(key_cell, columns))}]"


def _by_place(column: str, steps: Sequence[SchemaStep], of_names: Callable[[Sequence[str]], str]) -> str:
    *earlier, (_, names) = names_by_place(column, steps)
    if not earlier:
        return of_names(names)
    cases = (f"WHEN order_key < {duck.text(str(place))} THEN {of_names(before)}" for place, before in earlier)
    return f"CASE {' '.join(cases)} ELSE {of_names(names)} END"
