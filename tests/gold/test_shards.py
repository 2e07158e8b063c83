"""Statements and truncates of one of several tables that share a mirror by a shard column; without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingest.config.model import TableRule
from ingest.gold.apply import planner
from ingest.run import Warm
from tests.gold.test_tasks import Cluster
from tests.shops import Shops

RULE = TableRule(r"shop_(\d+).item", into="shop.item", shard_column="shard")
ONE, TWO = "shop_1.item", "shop_2.item"


def shops(folder: Path, keys: tuple[str, ...] = ("id",), **given: Any) -> Shops:
    """Two shops with two rows each."""
    mine = Shops(folder, replace(RULE, **given), keys=keys)
    for shop in (1, 2):
        mine.say(shop, "INSERT", 1, "a").say(shop, "INSERT", 2, "b")
    assert ("done", "") == mine.run()
    return mine


def rows(mine: Shops, columns: str = "shard, id, text") -> list[tuple[Any, ...]]:
    """Some columns of all rows."""
    found = mine.lake.ask_mirror("mirrors/shop/item", f"SELECT {columns} FROM {{mirror}} ORDER BY ALL")
    return [tuple(row.values()) for row in found]


def agree(mine: Shops) -> None:
    """The check of cells folds the changes by itself."""
    compared = mine.compared(0).values()
    assert [([], [])] == [(one.wrong, one.left_out) for one in compared]


@pytest.mark.parametrize("parts", [False, True], ids=["at once", "in parts"])
def test_a_truncate_of_one_table_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: bool
) -> None:
    """The rows of the other tables would be deleted with those of the one, even without changes in the batch."""
    mine = shops(tmp_path)
    assert ("done", "") == mine.ddl("TRUNCATE TABLE item", shop=1).run()
    assert [(TWO, 1, "a"), (TWO, 2, "b")] == rows(mine)
    if parts:
        mine.engine = "spark"
        monkeypatch.setattr(planner, "CHANGES_AT_MOST", 2)
        monkeypatch.setattr("tests.shops.unstarted", Cluster)
        mine.warm = Warm()
    mine.say(1, "INSERT", 3, "c").say(2, "INSERT", 3, "d").ddl("TRUNCATE TABLE item", shop=2)
    assert ("done", "") == mine.say(2, "INSERT", 4, "e").run()
    assert [(ONE, 3, "c"), (TWO, 4, "e")] == rows(mine)
    assert mine.result is not None
    assert [""] == [one.why_merge for one in mine.result.mirrors]
    agree(mine)


def test_a_table_that_is_created_again_leaves_the_others(tmp_path: Path) -> None:
    """A new table has none of the old one's rows, and nothing to do with other shops."""
    mine = shops(tmp_path)
    mine.ddl("DROP TABLE item", shop=1).ddl(
        "CREATE TABLE item (id bigint primary key, text varchar(9))", shop=1
    )
    assert ("done", "") == mine.say(1, "INSERT", 2, "new").run()
    assert [(ONE, 2, "new"), (TWO, 1, "a"), (TWO, 2, "b")] == rows(mine)
    agree(mine)


def test_a_statement_fills_the_rows_of_its_table(tmp_path: Path) -> None:
    """The other tables' rows have not been filled by their sources yet."""
    mine = shops(tmp_path)
    assert ("done", "") == mine.ddl("ALTER TABLE item ADD COLUMN c varchar(9) DEFAULT 'x'", shop=1).run()
    assert [(ONE, 1, "x"), (ONE, 2, "x"), (TWO, 1, None), (TWO, 2, None)] == rows(mine, "shard, id, c")
    assert ("done", "") == mine.ddl("ALTER TABLE item ADD COLUMN c varchar(9) DEFAULT 'y'", shop=2).run()
    assert [(ONE, 1, "x"), (ONE, 2, "x"), (TWO, 1, "y"), (TWO, 2, "y")] == rows(mine, "shard, id, c")
    agree(mine)


@pytest.mark.parametrize("no_key", ["append", "full_row"])
def test_without_a_key(tmp_path: Path, no_key: str) -> None:
    """What one table loses may be a row of the other one, cell by cell."""
    mine = shops(tmp_path, keys=(), no_key=no_key)
    assert ("done", "") == mine.ddl("TRUNCATE TABLE item", shop=1).say(1, "INSERT", 9, "z").run()
    assert [(ONE, 9, "z"), (TWO, 1, "a"), (TWO, 2, "b")] == rows(mine)


def test_by_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is not told which table was emptied empties all."""
    mine = shops(tmp_path)
    mine.engine = "spark"
    monkeypatch.setattr("tests.shops.unstarted", Cluster)
    mine.warm = Warm()
    assert ("done", "") == mine.ddl("TRUNCATE TABLE item", shop=2).say(1, "UPDATE", 1, "new").run()
    assert [(ONE, 1, "new"), (ONE, 2, "b")] == rows(mine)
