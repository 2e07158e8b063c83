"""Found in the tables' files: two rows of the source under one key, and rows that an update of some columns has begun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingest.quality.cells import REACH
from tests.quality.shop import Shop

pytestmark = pytest.mark.usefixtures("without_spark")


def test_a_repetition_across_batches_is_no_second_insert(tmp_path: Path) -> None:
    """A stream that goes back in the middle of a row's life sends an insert whose like only earlier batches have."""
    shop = Shop(tmp_path).say(1, 1, "insert", 1, a="x", n=None).say(1, 2, "delete", 1)
    shop.say(2, 3, "insert", 1, a="y", n=None)
    assert set() == shop.check([(1, "y", None)], since=1, ever=REACH + 1).twice
    shop.say(2, 4, "insert", 1, a="x", n=None)
    assert set() == shop.check([(1, "x", None)], since=1, ever=REACH + 1).twice
    shop.say(2, 5, "insert", 1, a="z", n=None)
    assert {(1,)} == shop.check([(1, "z", None)], since=1, ever=REACH + 1).twice


def test_an_insert_that_meets_a_row_of_an_earlier_batch(tmp_path: Path) -> None:
    """Two rows of the source whose key a dialect shortens seldom come in one batch; the mirror lacks one row."""
    shop = Shop(tmp_path).say(1, 1, "insert", 1, a="x", n=None).say(1, 2, "insert", 2, a="x", n=None)
    shop.say(1, 3, "insert", 4, a="x", n=None).say(2, 4, "delete", 4).say(2, 5, "insert", 4, a="y", n=None)
    shop.say(2, 6, "insert", 3, a="x", n=None)
    rows: list[Any] = [(1, "x", None), (2, "x", None), (3, "x", None), (4, "y", None)]
    assert set() == shop.check(rows, since=1, ever=REACH + 1, before=3).twice
    shop.say(2, 7, "insert", 2, a="x", n=None)  # a repetition
    assert set() == shop.check(rows, since=1, ever=REACH + 1, before=3).twice
    found = shop.say(2, 8, "insert", 1, a="y", n=None).check(
        [(1, "y", None), *rows[1:]], since=1, ever=REACH + 1, before=3
    )
    assert ({(1,)}, ("1",)) == (found.twice, found.texts[(1,)])


def test_a_row_read_in_a_later_batch_of_a_load(tmp_path: Path) -> None:
    """Two rows of a full load whose key a dialect shortens came in two batches, and no run said so."""
    shop = Shop(tmp_path).say(1, 1, "read", 1, a="x", n=None).say(1, 2, "read", 2, a="x", n=None)
    rows: list[Any] = [(1, "y", None), (2, "x", None), (3, "x", None)]
    shop.say(2, 3, "read", 1, a="y", n=None)
    found = shop.check(rows[:2], since=1, ever=REACH + 1, before=2)
    assert (set(), {(1,)}) == (found.twice, found.reread)  # all that was read again: a second load, perhaps
    shop.say(2, 4, "read", 3, a="x", n=None)
    found = shop.check(rows, since=1, ever=REACH + 1, before=2)
    assert ({(1,)}, set(), ("1",)) == (found.twice, found.reread, found.texts[(1,)])
    shop.say(2, 5, "read", 2, a="x", n=None)  # unchanged: a second load
    found = shop.check(rows, since=1, ever=REACH + 1, before=2)
    assert (set(), {(1,)}) == (found.twice, found.reread)


def test_a_key_of_several_rows_is_chosen_among_many(tmp_path: Path) -> None:
    """Otherwise one of a few such keys among thousands is found by chance alone."""
    shop = Shop(tmp_path)
    for key in range(900):
        shop.say(1, key, "insert", key, a="x", n=None)
    shop.say(1, 5000, "insert", 700, a="y", n=None)
    rows = [(key, "y" if key == 700 else "x", None) for key in range(900)]
    assert {(700,)} == shop.check(rows, limit=5).twice


@pytest.mark.parametrize("ever", [0, REACH + 1], ids=["few changes", "many changes"])
def test_an_update_of_some_columns_that_begins_a_row(tmp_path: Path, ever: int) -> None:
    """PostgreSQL leaves a large text out of a row with a new key, as does a stream whose rows were never loaded."""
    shop = Shop(tmp_path).say(1, 1, "insert", 1, a="x", n=None).say(1, 2, "insert", 2, a="x", n=None)
    shop.say(1, 3, "insert", 3, a="x", n=None).say(1, 4, "insert", 5, a="x", n=None).say(1, 5, "delete", 5)
    shop.say(2, 6, "update", 3, partial=True, n="1").say(2, 7, "delete", 1)
    rows: list[Any] = [(2, "x", None), (3, "x", "1"), (4, None, "1"), (5, None, "1")]
    assert set() == shop.check(rows[:2], since=1, ever=ever, before=3).begun
    shop.say(2, 8, "update", 4, partial=True, n="1").say(2, 9, "update", 5, partial=True, n="1")
    found = shop.check(rows, since=1, ever=ever, before=3)
    assert ({(4,), (5,)}, ("4",)) == (found.begun, found.texts[(4,)])
    moved = shop.say(2, 10, "update", 6, was=2, partial=True, n="2").say(2, 11, "update", 4, a="y", n="1")
    rows = [(3, "x", "1"), (4, "y", "1"), (5, None, "1"), (6, "x", "2")]
    assert {(5,)} == moved.check(
        rows, since=1, ever=ever, before=3
    ).begun  # others came whole, or from their old key
