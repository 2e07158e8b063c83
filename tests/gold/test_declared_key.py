"""A key that the pipeline file gives, or changes, while no new message comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ingest.config.model import TableRule
from ingest.ledgers import targets
from ingest.run import Warm
from tests.shops import Shops

if TYPE_CHECKING:
    from pathlib import Path

TEXT, ITEM = ("text",), "mirrors/shop_1/item"


def made(folder: Path) -> Shops:
    """Two rows with one text."""
    mine = Shops(folder, TableRule("shop_1.item"))
    assert ("done", "") == mine.say(1, "INSERT", 1, "a").say(1, "INSERT", 2, "a").run()
    return mine


def begun(mine: Shops, rule: TableRule) -> tuple[tuple[str, str], dict[int, str]]:
    """What the first run with another rule does, without new messages."""
    mine.rule, mine.warm = rule, Warm()
    result = mine.run()
    return result, mine.rows(ITEM)


def test_another_key_acts_at_once(tmp_path: Path) -> None:
    """Otherwise the mirror kept the old key until its table's next message, and the run said that all was done."""
    mine = made(tmp_path)
    assert targets.unfinished(mine.lake) == frozenset()
    assert (("done", ""), {2: "a"}) == begun(mine, TableRule("shop_1.item", keys=TEXT))
    assert (("done", ""), {1: "a", 2: "a"}) == begun(mine, TableRule("shop_1.item", keys=("id",)))
    assert targets.unfinished(mine.lake) == frozenset()


def test_the_same_key_is_left_alone(tmp_path: Path) -> None:
    """A key that the messages name, too, changes nothing when it is written into the file: nothing is folded again."""
    mine = made(tmp_path)
    version = mine.lake.snapshot(ITEM).version
    assert (("skipped", ""), {1: "a", 2: "a"}) == begun(mine, TableRule("shop_1.item", keys=("id",)))
    assert version == mine.lake.snapshot(ITEM).version
    assert targets.unfinished(mine.lake) == frozenset(), "it is noted that the file has been obeyed"


def test_a_declared_key_may_name_the_shard_column(tmp_path: Path) -> None:
    """No row has that column before the mirror gives it one, and the mirror was held for its lack."""
    rule = TableRule(r"shop_(\d+).item", into="shop.item", keys=("id", "shard"), shard_column="shard")
    shops = Shops(tmp_path, rule).say(1, "INSERT", 1, "a").say(2, "INSERT", 2, "b")
    assert ("done", "") == shops.run()
    assert {1: "a", 2: "b"} == shops.rows()


@pytest.mark.parametrize(
    ("statement", "is_held"),
    [
        ("ALTER TABLE item ADD COLUMN more int", False),
        ("CREATE TABLE item LIKE other", False),
        ("CREATE TABLE item (id bigint, text varchar(9))", False),
        ("CREATE TABLE item (ident bigint, text varchar(9))", True),
    ],
)
def test_a_declared_key_is_looked_for_where_all_columns_are_known(
    tmp_path: Path, statement: str, is_held: bool
) -> None:
    """A statement that adds a column came before the first row, and the mirror was held for lack of its key."""
    shops = Shops(tmp_path, TableRule("shop_1.item", keys=("id",)))
    state, why = shops.ddl(statement).run()
    assert (is_held, is_held) == (state == "held", "names id, and none of its rows has such a column" in why)
    if not is_held:
        assert ("done", "") == shops.say(1, "INSERT", 1, "a").run()
        assert {1: "a"} == shops.rows("mirrors/shop_1/item")
