"""Old changes that arrive again where only arrival orders them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ingest.config.model import TableRule
from ingest.quality import ledgers, order_checks
from ingest.quality.subjects import survey
from tests.shops import Shops

if TYPE_CHECKING:
    from pathlib import Path

    from ingest.config import Pipeline


class Weak(Shops):
    """Shops in a dialect without positions."""

    @property
    def pipeline(self) -> Pipeline:
        """Over the folder's files."""
        made = super().pipeline
        return replace(made, sources=(replace(made.sources[0], format="canal"),))


@pytest.fixture
def shops(tmp_path: Path) -> Weak:
    """A row that has changed twice, and another one."""
    mine = Weak(tmp_path, TableRule(match="shop_1.item"))
    assert ("done", "") == mine.say(1, "INSERT", 1, "a", at=10).say(1, "INSERT", 2, "b", at=11).run()
    assert ("done", "") == mine.say(1, "UPDATE", 1, "c", at=20).run()
    return mine


def found(shops: Shops, since: int) -> int:
    """How many rows are said to be set back."""
    if shops.lines:
        assert ("done", "") == shops.run()
    chosen = survey(shops.lake, ledgers.read(shops.lake, since, shops.lake.decoded()).lanes).subjects
    metrics = order_checks.of_mirrors(shops.lake, chosen, since, [])
    return sum(int(one.observed) for one in metrics if one.check == "rows_set_back")


def test_an_old_file_that_is_copied_is_told(shops: Weak) -> None:
    """Otherwise the row had its old value again, with every check green."""
    assert 1 == found(shops.say(1, "INSERT", 1, "a", at=10).say(1, "INSERT", 2, "b", at=11), 2)
    assert {1: "a", 2: "b"} == shops.rows("mirrors/shop_1/item")


def test_an_old_delete_is_told(shops: Weak) -> None:
    """Otherwise the row that came since then was missing."""
    assert 0 == found(shops.say(1, "DELETE", 1, "c", at=30), 2)
    assert 0 == found(shops.say(1, "INSERT", 1, "d", at=40), 3)
    assert 1 == found(shops.say(1, "DELETE", 1, "c", at=30), 4)


def test_a_stream_that_goes_back_and_forward_is_no_surprise(shops: Weak) -> None:
    """Every restart of Canal may do so, and all ends as it was."""
    again = (
        shops.say(1, "INSERT", 1, "a", at=10).say(1, "INSERT", 2, "b", at=11).say(1, "UPDATE", 1, "c", at=20)
    )
    assert 0 == found(again, 2)
    assert {1: "c", 2: "b"} == shops.rows("mirrors/shop_1/item")


def test_a_row_that_takes_its_old_value_is_no_surprise(shops: Weak) -> None:
    """The source may change it back, also by a clock that has stepped back."""
    assert 0 == found(shops.say(1, "UPDATE", 1, "a", at=30), 2)
    assert 0 == found(shops.say(1, "UPDATE", 1, "x", at=15), 3)
