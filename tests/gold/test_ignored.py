"""A mirror that has ignored statements for a while."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ingest.config.model import TableRule
from ingest.run import Warm
from tests.shops import Shops

if TYPE_CHECKING:
    from pathlib import Path

LENIENT = TableRule(match="shop_1.item")
IGNORE = replace(LENIENT, on_schema_change="ignore")
ADD = "ALTER TABLE item ADD COLUMN note varchar(9) DEFAULT 'new'"


def notes(mine: Shops, column: str = "note") -> dict[int, Any]:
    """A column of the mirror."""
    return {
        row["id"]: row.get(column)
        for row in mine.lake.ask_mirror("mirrors/shop_1/item", "SELECT * FROM {mirror}")
    }


@pytest.mark.one_of(2, "policy")
@pytest.mark.parametrize("policy", ["lenient", "evolve"])
@pytest.mark.parametrize("later", [True, False], ids=["with new rows", "with nothing new"])
def test_what_was_ignored_is_applied_later(later: bool, policy: str, tmp_path: Path) -> None:
    """Otherwise the new column was silently NULL in all rows of that time, though their messages carry it."""
    mine = Shops(tmp_path, LENIENT).say(1, "INSERT", 1, "a")
    assert ("done", "") == mine.run()
    mine.rule = IGNORE
    assert ("done", "") == mine.ddl(ADD).say(1, "INSERT", 2, "b", note="own").run()
    assert {1: None, 2: None} == notes(mine)
    mine.rule, mine.warm = replace(LENIENT, on_schema_change=policy), Warm()
    if later:
        mine.say(1, "INSERT", 3, "c", note=None)
    assert ("done", "") == mine.run()
    assert {1: "new", 2: "own"} | ({3: None} if later else {}) == notes(mine)
    compared = mine.compared(0)["shop_1.item"]
    assert ([], []) == (compared.wrong, compared.left_out)
    assert ("idle", "") == mine.run()  # once


def test_what_was_renamed_meanwhile_is_renamed_later(tmp_path: Path) -> None:
    """A rename is no less lost than a column."""
    mine = Shops(tmp_path, IGNORE).say(1, "INSERT", 1, "a", note="x")
    assert ("done", "") == mine.run()
    mine.ddl("ALTER TABLE item RENAME COLUMN note TO remark").say(1, "INSERT", 2, "b", remark="y")
    assert ("done", "") == mine.run()
    mine.rule = LENIENT
    assert ("done", "") == mine.say(1, "INSERT", 3, "c", remark="z").run()
    assert {1: "x", 2: "y", 3: "z"} == notes(mine, "remark")


def test_what_was_applied_stays_when_statements_are_ignored(tmp_path: Path) -> None:
    """Statements are ignored from then on; those before it have filled rows."""
    mine = Shops(tmp_path, LENIENT).say(1, "INSERT", 1, "a")
    assert ("done", "") == mine.run()
    assert ("done", "") == mine.ddl(ADD).say(1, "INSERT", 2, "b", note="own").run()
    mine.rule = IGNORE
    assert ("done", "") == mine.say(1, "INSERT", 3, "c", note="more").run()
    assert {1: "new", 2: "own", 3: "more"} == notes(mine)
