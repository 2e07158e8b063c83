"""A primary key that a statement drops, and rows without it that come in a later batch than the statement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ingest.config.model import TableRule
from tests.shops import Shops

if TYPE_CHECKING:
    from pathlib import Path

DROP = "ALTER TABLE item DROP PRIMARY KEY"


def unnamed(shops: Shops, kind: str, key: int, text: str) -> Shops:
    """A change whose message names no key."""
    shops.say(1, kind, key, text)
    shops.lines[-1] = shops.lines[-1].replace('"pkNames": ["id"]', '"pkNames": null')
    return shops


def began(folder: Path, *statements: str, no_key: str = "hold") -> Shops:
    """A table with a key, and a batch that has nothing but statements."""
    mine = Shops(folder, TableRule(match="shop_1.item", no_key=no_key))
    assert ("done", "") == mine.say(1, "INSERT", 1, "a").run()
    for one in statements:
        mine.ddl(one)
    assert ("done", "") == mine.run()
    return mine


@pytest.mark.parametrize("text", ["a", "b"])
def test_rows_without_the_key_hold_the_mirror(text: str, tmp_path: Path) -> None:
    """Otherwise two rows of one number silently became one, or a delete of one of them removed both."""
    mine = began(tmp_path, DROP)
    state, why = unnamed(mine, "INSERT", 1, text).run()
    assert ("held", True) == (state, "has no primary key any more" in why)
    assert {1: "a"} == mine.rows("mirrors/shop_1/item")


def test_rows_without_the_key_are_counted_if_the_rule_says_so(tmp_path: Path) -> None:
    """Otherwise `no_key: full_row`, which the held mirror asks for, came too late for a table whose rows are equal."""
    mine = began(tmp_path, DROP, no_key="full_row")
    assert ("done", "") == unnamed(mine, "INSERT", 1, "a").run()
    found = mine.lake.ask_mirror("mirrors/shop_1/item", "SELECT id, text FROM {mirror}")
    assert [(1, "a"), (1, "a")] == [tuple(row.values()) for row in found]


def test_a_key_that_is_back_goes_on(tmp_path: Path) -> None:
    """Otherwise a table whose key was made again in one more statement would be held for rows that have it."""
    mine = began(tmp_path, DROP, "ALTER TABLE item ADD PRIMARY KEY (id)")
    assert ("done", "") == mine.say(1, "UPDATE", 1, "b", old=1).run()
    assert {1: "b"} == mine.rows("mirrors/shop_1/item")


def test_rows_with_the_key_go_on(tmp_path: Path) -> None:
    """A row from before the statement may be delivered again after it: it says nothing of the rows that have no key."""
    mine = began(tmp_path, DROP)
    assert ("done", "") == mine.say(1, "INSERT", 1, "a", at=10).run()
    assert "held" == unnamed(mine, "DELETE", 1, "a").run()[0]


def test_a_table_made_again_without_a_key(tmp_path: Path) -> None:
    """Otherwise the new table's rows were identified by the old table's key."""
    mine = began(tmp_path, "DROP TABLE item", "CREATE TABLE item (id bigint, text varchar(9))")
    assert "held" == unnamed(unnamed(mine, "INSERT", 1, "b"), "INSERT", 1, "b").run()[0]


def test_a_stream_that_goes_back_sends_the_statement_again(tmp_path: Path) -> None:
    """Rows from before it name the key, so the statement's first place is no longer the one after which none does."""
    mine = Shops(tmp_path, TableRule(match="shop_1.item"), dialect="canal")
    mine.say(1, "INSERT", 1, "a").ddl(DROP)
    again = mine.lines[:]
    assert ("done", "") == mine.run()
    mine.lines, mine.number = [*mine.lines, *again], mine.number + 1
    mine.ddl("ALTER TABLE item DROP COLUMN text")
    unnamed(mine, "INSERT", 2, "b").ddl("ALTER TABLE item RENAME COLUMN id TO no")
    assert "held" == mine.run()[0]
