"""Which key identified a table's rows when, by what messages, statements and the pipeline file say."""

from __future__ import annotations

import pytest

from ingest.change import TableId
from ingest.ddl import effects
from ingest.errors import HeldError
from ingest.gold import eras
from ingest.gold.eras import Evidence, Run, evidence, overlap
from ingest.order import Order, order_key

ITEM = TableId("shop", None, "item")
CHANGED = "ALTER TABLE item DROP PRIMARY KEY, ADD PRIMARY KEY (id, day)"
RENAMED = "ALTER TABLE item RENAME COLUMN id TO order_id"


def at(place: int, row: int = 0) -> str:
    """A place in history."""
    return order_key(Order(0, 1, (place,), 0, (1, 0, 0, place), row))


def run(low: int, high: int, *keys: str) -> Run:
    """Changes that name a key, from one place to another."""
    return Run(keys, at(low), at(high))


def told(
    *spans: Run,
    statements: dict[int, str] | None = None,
    declared: str = "",
    keyless: bool = False,
) -> list[tuple[str, str]]:
    """The eras: where each begins, and its key."""
    found = [
        (at(place), effects(sql, "mysql", "shop", None, "item").effects)
        for place, sql in sorted((statements or {}).items())
    ]
    keys = tuple(declared.split())
    return [
        (era.place, " ".join(era.keys)) for era in eras.eras(evidence(spans), found, keys, keyless=keyless)
    ]


@pytest.mark.parametrize(
    ("spans", "statements", "expected"),
    [
        ([run(1, 9, "id")], {}, [("", "id")]),
        ([run(1, 4, "id"), run(6, 9, "id")], {}, [("", "id")]),
        ([run(1, 4, "a", "b"), run(6, 9, "b", "a")], {}, [("", "a b")]),
        ([run(1, 4, "id"), run(6, 9, "id", "day")], {5: CHANGED}, [("", "id"), (at(5), "id day")]),
        ([run(1, 4, "id"), run(6, 9, "id", "day")], {}, [("", "id"), (at(6, -1), "id day")]),
        ([run(6, 9, "id", "day"), run(1, 4, "id")], {}, [("", "id"), (at(6, -1), "id day")]),
        ([run(1, 4, "id"), run(6, 9, "order_id")], {5: RENAMED}, [("", "id"), (at(5), "order_id")]),
        ([run(1, 4, "id")], {5: RENAMED}, [("", "id"), (at(5), "order_id")]),
        ([run(1, 4, "id")], {5: "ALTER TABLE item DROP PRIMARY KEY"}, [("", "id")]),
        (  # a row of before has come again after the statement
            [run(1, 1, "id"), run(6, 6, "id"), run(7, 9)],
            {5: "ALTER TABLE item DROP PRIMARY KEY"},
            [("", "id"), (at(6), "")],
        ),
        (  # a capture that stops naming keys
            [run(1, 6, "id"), run(7, 9)],
            {5: "ALTER TABLE item ADD c INT"},
            [("", "id")],
        ),
        (
            [run(1, 4, "id"), run(6, 6)],
            {5: "ALTER TABLE item DROP PRIMARY KEY"},
            [("", "id"), (at(5), "")],
        ),
        (
            [run(1, 2), run(6, 9, "id")],
            {4: "ALTER TABLE item ADD PRIMARY KEY (id)"},
            [("", ""), (at(4), "id")],
        ),
        ([run(1, 2), run(6, 9, "id")], {}, [("", "id")]),
        ([run(5, 9)], {1: "CREATE TABLE item (id int PRIMARY KEY, day int)"}, [("", "id")]),
        (
            [run(5, 9)],
            {1: "CREATE TABLE item (id int PRIMARY KEY, day int)", 7: CHANGED},
            [("", "id"), (at(7), "id day")],
        ),
        (
            [run(5, 9)],
            {1: "CREATE TABLE item (id int PRIMARY KEY)", 7: "ALTER TABLE item CHANGE id order_id bigint"},
            [("", "id"), (at(7), "order_id")],
        ),
        (
            [run(1, 4, "a"), run(6, 9, "b")],
            {5: "ALTER TABLE item RENAME COLUMN a TO b, RENAME COLUMN b TO a"},
            [("", "a"), (at(5), "b")],
        ),
        ([run(5, 9)], {}, []),
        (
            [run(1, 2, "id"), run(3, 4, "id", "day"), run(5, 6, "id")],
            {},
            [("", "id"), (at(3, -1), "id day"), (at(5, -1), "id")],
        ),
    ],
)
def test_eras(spans: list[Run], statements: dict[int, str], expected: list[tuple[str, str]]) -> None:
    """A change of the key that is not seen merges two source rows into one; one that is not there refolds for nothing."""
    assert expected == told(*spans, statements=statements)


@pytest.mark.parametrize(
    ("declared", "statements", "expected"),
    [
        ("id", {}, [("", "id")]),
        ("order_id", {5: RENAMED}, [("", "id"), (at(5), "order_id")]),
        ("id", {5: RENAMED}, [("", "id"), (at(5), "order_id")]),
        ("id", {5: RENAMED, 6: "ALTER TABLE item ADD COLUMN id int"}, [("", "id")]),
        ("id day", {5: "ALTER TABLE item ADD COLUMN day int DEFAULT 7"}, [("", "id"), (at(5), "id day")]),
        (
            "id day",
            {5: "ALTER TABLE item ADD COLUMN day int", 7: "ALTER TABLE item ADD COLUMN day int"},
            [("", "id"), (at(5), "id day")],
        ),
        ("day", {5: "ALTER TABLE item ADD COLUMN day int"}, [("", "day")]),
        ("id", {5: CHANGED}, [("", "id")]),
    ],
)
def test_a_declared_key(declared: str, statements: dict[int, str], expected: list[tuple[str, str]]) -> None:
    """The operator names the columns as they are now; the rows from before have them under their old names."""
    assert expected == told(run(1, 9, "id"), statements=statements, declared=declared)


def test_a_mirror_that_stands_without_a_key() -> None:
    """Its rows from before were told apart by all their cells, also where no statement gives the key."""
    assert [("", ""), (at(6, -1), "id")] == told(run(1, 2), run(6, 9, "id"), keyless=True)


def test_keys_named_by_turns() -> None:
    """A writer that names one unique index, then another, for ever, would fold the mirror again in each batch."""
    spans = [run(n, n, "ab"[n % 2]) for n in range(1, 2 * eras.MANY)]
    with pytest.raises(HeldError, match="by turns: write the one that every row has"):
        told(*spans)


def test_spans_that_lie_over_each_other() -> None:
    """Book lines know only the first and last place of a batch: which key came when must then be looked up."""
    assert overlap(evidence([run(1, 9, "id"), run(4, 6, "uid")]))
    assert not overlap(evidence([run(1, 3, "id"), run(4, 6, "uid"), run(1, 9)]))
    assert Evidence() == evidence([])
