"""Mirrors without a key, compared as multisets, without Spark."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from ingest.change import TableId
from ingest.fold import SchemaStep
from ingest.ledgers.mirrors import Column, Mirror
from ingest.order import Order, order_key
from ingest.quality.cell_diff import KeyHistory
from ingest.quality.keyless_diff import differences, folded

MIRROR = Mirror(
    TableId("shop", None, "log"),
    "mirrors/shop/log",
    (),
    (Column("a", "a", "datetime"), Column("n", "n", "int32")),
)
AT, LATER = "2024-01-01 00:00:00.123456", "2024-01-01 00:00:00.123789"


def place(at: int, arrival: int | None = None, *, weak: bool = False, half: int = 0) -> str:
    return order_key(
        Order(0, 1, () if weak else (at,), half, (1, 0, 0, at if arrival is None else arrival), 0)
    )


def row(
    key: str, op: str, after: dict[str, Any] | None = None, before: dict[str, Any] | None = None
) -> dict[str, Any]:
    images = {"before": before, "after": after}
    return {"op": op, "order_key": key, "partial": False, "types": None} | {
        name: None if image is None else json.dumps(image) for name, image in images.items()
    }


def rows(history: KeyHistory, *, appends: bool = False) -> Counter[tuple[object, ...]]:
    """The folded rows, with their moments as microseconds of the second."""
    found = folded(history, MIRROR, appends=appends)
    return Counter(
        {(a % 1_000_000 if isinstance(a, int) else a, n): count for (a, n), count in found.items()}
    )


def test_rows_come_and_go() -> None:
    """Rows that differ below a millisecond are two rows."""
    story = [
        row(place(1), "insert", {"a": AT, "n": "1"}),
        row(place(2), "insert", {"a": LATER, "n": "1"}),
        row(place(3), "insert", {"a": LATER, "n": "1"}),
        row(place(4), "delete", None, {"a": LATER, "n": "1"}),
        row(place(5), "update", {"a": AT, "n": "2"}, {"n": "1"}),
        row(place(6), "delete", None, {"a": AT, "n": "9"}),
    ]
    assert {(123456, 2): 1, (123789, 1): 1} == rows(KeyHistory(story))
    assert {(123456, 1): 1, (123789, 1): 2} == rows(KeyHistory(story), appends=True)


def test_an_update_in_two_messages() -> None:
    """The image after would take away a row that is equal to it, and that another insert has brought."""
    story = [
        row(place(1), "insert", {"n": "1"}),
        row(place(2), "insert", {"n": "2"}),
        row(place(3), "delete", None, {"n": "1"}),
        row(place(3, half=1), "update", {"n": "2"}),
    ]
    assert {(None, 2): 2} == rows(KeyHistory(story))


def test_statements_and_truncates() -> None:
    """A fill changes the rows that are there, and no later one."""
    story = [
        row(place(1), "insert", {"a": AT}),
        row(place(3), "insert", {"a": AT}),
        row(place(4), "delete", None, {"a": AT, "n": "7"}),
    ]
    step = SchemaStep(place(2), "add_column", "n", default="7")
    assert {(123456, None): 1} == rows(KeyHistory(story, [step]))
    story.append(row(place(5), "truncate"))
    assert {} == rows(KeyHistory(story, [step]))


@pytest.mark.parametrize(("weak", "count"), [(False, 1), (True, 2)])
def test_repetitions(weak: bool, count: int) -> None:
    """One change delivered twice is one row where the dialect has positions, and two where it has none."""
    story = [row(place(1, arrival, weak=weak), "insert", {"a": AT}) for arrival in (1, 2)]
    assert {(123456, None): count} == rows(KeyHistory(story))


@pytest.mark.parametrize(("shared", "count"), [(False, 1), (True, 2)])
@pytest.mark.parametrize("others", [0, 1])
def test_equal_rows_of_a_snapshot(shared: bool, count: int, others: int) -> None:
    """All rows of a snapshot may have one place: then they count by arrival, whether or not another row shares it."""
    story = [row(place(1, arrival), "read", {"a": AT, "n": "1"}) for arrival in (1, 2)]
    story += [row(place(1, 3 + at), "read", {"a": LATER, "n": "1"}) for at in range(others)]
    expected = {(123456, 1): count} | ({(123789, 1): 1} if others else {})
    for appends in (False, True):
        assert expected == rows(KeyHistory(story, shared_reads=shared), appends=appends)


def test_differences_are_said() -> None:
    """To repair the mirror the operator needs the row and both counts."""
    wanted = folded(KeyHistory([row(place(1), "insert", {"n": "1"})]), MIRROR, appends=False)
    assert [] == list(differences(wanted, [[None, 1]], ["TIMESTAMP_NTZ", "INT"]))
    messages = list(differences(wanted, [[None, 1], [None, 1], [None, 2]], ["TIMESTAMP_NTZ", "INT"]))
    assert [
        "the row (NULL, '1') occurs 2 times, the changes give 1",
        "the row (NULL, '2') occurs 1 time, the changes give 0",
    ] == messages
