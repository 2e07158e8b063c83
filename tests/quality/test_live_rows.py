"""The rows that changes leave, as the checks ask for them in SQL: a wrong one is a false alarm, or hides a lost row."""

from __future__ import annotations

import pytest

from ingest.lake import duck
from ingest.quality.live_rows import live_rows


def live(*changes: tuple[str, int, str, str, str]) -> dict[str, str]:
    """The value of each key after changes: op, place, key after, key before, value."""
    values = ", ".join(f"('{op}', {place}, ['{k}'], ['{left}'], '{v}')" for op, place, k, left, v in changes)
    query = f"SELECT * FROM (VALUES {values}) AS c(op, place, k, left_key, v)"
    return {
        row["k"][0]: row["v"]
        for row in duck.rows(f"WITH {live_rows(query, 'v')} SELECT k, v FROM live ORDER BY k")
    }


def test_the_newest_change_of_a_key_counts() -> None:
    """An older value would be compared, and a deleted row would be one that is missing."""
    changes = [("insert", 1, "a", "a", "x"), ("update", 3, "a", "a", "z"), ("update", 2, "a", "a", "y")]
    assert {"a": "z"} == live(*changes)
    assert {} == live(*changes, ("delete", 4, "a", "a", ""))


@pytest.mark.parametrize(
    ("op", "rows"), [("update", {"b": "y"}), ("insert", {"b": "y"}), ("read", {"a": "x", "b": "y"})]
)
def test_a_row_that_comes_from_another_key_leaves_it(op: str, rows: dict[str, str]) -> None:
    """As the fold has it: an upsert may have moved its row, too; a row of a snapshot has not."""
    assert rows == live(("insert", 1, "a", "a", "x"), (op, 2, "b", "a", "y"))


def test_a_truncate_leaves_what_comes_after_it() -> None:
    """Rows from before would be counted as if they were still there."""
    assert {"b": "y"} == live(
        ("insert", 1, "a", "a", "x"), ("truncate", 2, "", "", ""), ("insert", 3, "b", "b", "y")
    )
