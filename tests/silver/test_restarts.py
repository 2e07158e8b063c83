"""Compressed transactions of MySQL: many events at one position, whose rows are counted from 0 in each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ingest.config.model import TableRule
from tests.shops import Shops

if TYPE_CHECKING:
    from pathlib import Path

RULE = TableRule(match="*", keys=("id",))
STAGES = ("bronze", "silver", "gold", "quality")
Row = dict[str, Any]


def changed(key: int, old: str | None, new: str | None, pos: int, row: int, flat: bool = False) -> str:
    """A change of a row's text; None where there is no row."""
    before = None if old is None else {"id": key, "v": old}
    after = None if new is None else {"id": key, "v": new}
    op = "c" if before is None else "d" if after is None else "u"
    place: Row = {"connector": "mysql", "db": "s", "table": "t", "file": "b.000012", "pos": pos, "row": row}
    if not flat:
        return json.dumps({"op": op, "before": before, "after": after, "source": place})
    marks = {f"__source_{name}": value for name, value in place.items()}
    return json.dumps(
        {**(after or before or {}), "__op": op, "__deleted": str(after is None).lower(), **marks}
    )


class Compressed(Shops):
    """One table of a MySQL that compresses transactions."""

    def end(self, *lines: str) -> tuple[Row, list[str]]:
        """The mirror's rows after one more batch, and what the checks complain about."""
        self.number += 1
        self.lines += lines
        self.run()
        assert self.result is not None
        found = self.lake.ask_mirror("mirrors/s/t", "SELECT id, v FROM {mirror}")
        rows = {str(row["id"]): row["v"] for row in found}
        return rows, [*self.result.failures, *self.result.warnings]


@pytest.fixture
def mine(tmp_path: Path) -> Compressed:
    return Compressed(tmp_path, RULE, dialect="debezium", stages=STAGES, budget=4 << 20)


START = [(1, None, "a", 500, 0), (2, None, "a", 500, 1)]
UPDATES = [(1, "a", "x", 900, 0), (2, "a", "x", 900, 1), (2, "x", "y", 900, 0)]


@pytest.mark.parametrize("flat", [False, True])
def test_the_last_statement_of_a_transaction_counts(mine: Compressed, flat: bool) -> None:
    """The update of the first statement undid that of the second one, with every check green."""
    lines = [changed(*one, flat=flat) for one in (*START, *UPDATES)]
    assert ({"1": "x", "2": "y"}, []) == mine.end(*lines)


def test_a_row_that_is_deleted_and_inserted_again(mine: Compressed) -> None:
    """The delete took the new row."""
    again = [(2, "a", None, 900, 1), (1, "a", "x", 900, 0), (2, None, "n", 900, 0), (2, "n", "m", 900, 0)]
    assert ({"1": "x", "2": "m"}, []) == mine.end(*(changed(*one) for one in (*START, *again)))


def test_a_transaction_that_comes_again(mine: Compressed) -> None:
    """A connector that starts again sends the last transactions again: they must be known as repeats."""
    lines = [changed(*one) for one in (*START, *UPDATES)]
    later = changed(2, "y", "z", 950, 0)
    assert {"1": "x", "2": "z"} == mine.end(*lines, later)[0]
    latest = changed(2, "z", "w", 990, 0)  # a second file of the same bytes would be warned of
    assert ({"1": "x", "2": "w"}, []) == mine.end(*lines, later, latest)


def test_a_key_that_changes_keeps_one_number(mine: Compressed) -> None:
    """Its delete and its create are two messages of one row."""
    moves = [(1, "a", None, 900, 0), (5, None, "a", 900, 0), (2, "a", None, 900, 1), (6, None, "a", 900, 1)]
    assert ({"5": "a", "6": "a"}, []) == mine.end(*(changed(*one) for one in (*START, *moves)))


def test_a_transaction_that_is_cut_between_two_batches_is_a_doubt(mine: Compressed) -> None:
    """The count of the batch before is not known: the row may have its older value."""
    mine.end(*(changed(*one) for one in (*START, *UPDATES[:2])))
    _, complaints = mine.end(changed(*UPDATES[2]))
    assert any("900" in one for one in complaints)
