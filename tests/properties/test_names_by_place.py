"""The names that a column's values had at each place, against the fold of rows that were sent there."""

from __future__ import annotations

from itertools import combinations, permutations, product
from typing import Any

from ingest.fold import Row, SchemaStep, names_by_place

NAMES = "abc"
KINDS = [("rename_column", *pair) for pair in permutations(NAMES, 2)] + [
    ("drop_column", name) for name in NAMES
]
ROWS = [dict.fromkeys(names) for n in range(len(NAMES) + 1) for names in combinations(NAMES, n)]


def looked_up(name: str, steps: list[SchemaStep], place: int, sent: dict[str, Any]) -> str | None:
    """The name in a row, sent at a place, of what a column has today."""
    until = names_by_place(name, steps)
    names = next(names for end, names in until if end is None or place < int(str(end)))
    return next((name for name in names if name in sent), None)


def test_the_names_are_those_of_the_fold() -> None:
    """All steps on three columns, three in a row, also two at one place; a row is older than a step at its own place."""
    wrong = []
    for kinds, shared in product(product(KINDS, repeat=3), (False, True)):
        orders: list[Any] = ["1", "1" if shared else "2", "3"]
        steps = [SchemaStep(order, *kind) for order, kind in zip(orders, kinds, strict=True)]
        for sent, place in product(ROWS, range(4)):
            row = Row({name: name for name in sent})
            for step in steps:
                if place < int(str(step.order)):
                    step.apply(row)
            names = {name: looked_up(name, steps, place, sent) for name in NAMES}
            if {name: names[name] for name in NAMES if names[name]} != row.values:
                wrong.append((kinds, orders, sent, place))
    assert [] == wrong[:3]
