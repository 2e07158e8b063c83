"""Tables that the source has no longer, as `ingest status` shows their mirrors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ingest.config.model import TableRule
from ingest.inspect import status
from tests.shops import Shops

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def shops(tmp_path: Path) -> Shops:
    """A table with one row."""
    mine = Shops(tmp_path, TableRule(match="shop_*"))
    assert ("done", "") == mine.say(1, "INSERT", 1, "a").run()
    return mine


def said(shops: Shops) -> str:
    """What status says of the mirror after one more batch."""
    shops.run()
    return next(
        row["message"] for row in status.status(shops.lake)["tables"] if row["table"] == "shop_1.item"
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("DROP TABLE item", "dropped shop_1.item"),
        ("DROP TABLE other, Item", "dropped shop_1.item"),
        ("DROP DATABASE shop_1", "dropped shop_1.item"),
        ("RENAME TABLE item TO archive", "renamed shop_1.item to shop_1.archive"),
        ("ALTER TABLE item RENAME TO shop_2.item", "renamed shop_1.item to shop_2.item"),
    ],
)
def test_a_table_that_is_gone_is_shown(text: str, what: str, shops: Shops) -> None:
    """Its mirror would look like that of a quiet table for ever."""
    shown = said(shops.ddl(text))
    assert shown.startswith(f"the source has {what} (statement ")
    stays = " of batch 2): its rows stay as they were"
    to = what.rpartition(" to ")[2]
    renamed = f", and {to} has no mirror until a row of it comes" if what.startswith("renamed") else ""
    assert shown.endswith(stays + renamed)


def test_a_table_with_rows_under_its_new_name_is_no_longer_unseen(shops: Shops) -> None:
    """Its mirror is there from its first row on."""
    shops.ddl("ALTER TABLE item RENAME TO shop_2.item")
    assert said(shops.say(2, "INSERT", 5, "x")).endswith("its rows stay as they were")


@pytest.mark.parametrize(
    "then",
    [
        ("DROP TABLE item", "CREATE TABLE item (id bigint primary key, text varchar(9))"),
        ("RENAME TABLE item TO _item_del, _item_gho TO item",),
        ("TRUNCATE TABLE item",),
    ],
)
def test_a_table_that_is_there_is_not(then: tuple[str, ...], shops: Shops) -> None:
    """A table that was made again, swapped or emptied goes on."""
    for text in then:
        shops.ddl(text)
    assert "" == said(shops)


def test_rows_after_the_statement_show_the_table(shops: Shops) -> None:
    """The CREATE may have been filtered out by the capture."""
    assert "" == said(shops.ddl("DROP TABLE item").say(1, "INSERT", 2, "b"))


def test_a_cascading_key_waits_for_a_decision(shops: Shops) -> None:
    """MySQL deletes the rows without a message, and the mirror keeps them for ever."""
    found = status.status(shops.lake)
    assert 0 == found["pending_statements"]
    shops.ddl("ALTER TABLE item ADD FOREIGN KEY (id) REFERENCES owner (id) ON DELETE CASCADE")
    assert ("done", "") == shops.run()
    assert 1 == status.status(shops.lake)["pending_statements"]
