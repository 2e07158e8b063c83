"""Source tables that the pipeline file sends into a mirror, or away from it, after it has rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.config.model import TableRule
from ingest.ledgers import targets
from ingest.run import Warm
from tests.shops import Shops

ITEM, BOTH = "mirrors/shop/item", {1: "a", 2: "b"}


def rule(shop: int, into: str = "shop.item", shard: str = "") -> TableRule:
    """Where a shop's rows go."""
    return TableRule(f"shop_{shop}.item", into=into, shard_column=shard or None)


def edited(mine: Shops, *rules: TableRule) -> tuple[str, str]:
    """The first run with other rules, without new messages."""
    (mine.rule, *mine.more), mine.warm = rules, Warm()
    mine.run()
    assert mine.result is not None
    states = {(one.state, one.message) for one in mine.result.mirrors if one.state != "skipped"}
    assert targets.unfinished(mine.lake) == frozenset()
    return max(states, default=("skipped", ""))


def begun(folder: Path, *rules: TableRule, batches: int = 1) -> Shops:
    """Two shops with one row each, in one batch or in two."""
    mine = Shops(folder, rules[0], more=rules[1:]).say(1, "INSERT", 1, "a")
    if batches == 2:
        mine.run()
    mine.say(2, "INSERT", 2, "b").run()
    return mine


@pytest.mark.one_of(2, "batches")
@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("shard", ["", "shard"])
def test_a_table_that_joins_brings_its_earlier_rows(shard: str, batches: int, tmp_path: Path) -> None:
    """Only its later rows came: the mirror lacked the others, and every check was green."""
    mine = begun(tmp_path, rule(1, shard=shard), batches=batches)
    assert {1: "a"} == mine.rows(ITEM)
    assert ("done", "") == edited(mine, rule(1, shard=shard), rule(2, shard=shard))
    assert BOTH == mine.rows(ITEM)
    assert ("done", "") == mine.say(2, "UPDATE", 2, "c", old=2).run()
    assert {1: "a", 2: "c"} == mine.rows(ITEM)


@pytest.mark.one_of(2, "batches")
@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("shard", ["", "shard"])
def test_a_table_that_leaves_takes_its_rows_along(shard: str, batches: int, tmp_path: Path) -> None:
    """They stayed, and nothing updated or deleted them any more."""
    mine = begun(tmp_path, rule(1, shard=shard), rule(2, shard=shard), batches=batches)
    assert BOTH == mine.rows(ITEM)
    assert ("done", "") == edited(mine, rule(1, shard=shard))
    assert {1: "a"} == mine.rows(ITEM)


def test_tables_that_exchange_their_mirrors(tmp_path: Path) -> None:
    """Each mirror mixed the rows of both."""
    mine = begun(tmp_path, rule(1, "x.item"), rule(2, "y.item"))
    assert ("done", "") == edited(mine, rule(1, "y.item"), rule(2, "x.item"))
    assert ({2: "b"}, {1: "a"}) == (mine.rows("mirrors/x/item"), mine.rows("mirrors/y/item"))


def test_a_table_joins_the_mirror_of_another_ones_name(tmp_path: Path) -> None:
    """Also a mirror without any rule of its own, and back again."""
    mine = begun(tmp_path, TableRule("*"))
    assert ("done", "") == edited(mine, rule(2, "shop_1.item"))
    assert BOTH == mine.rows("mirrors/shop_1/item")
    assert ("done", "") == edited(mine, TableRule("*"))
    assert ({1: "a"}, {2: "b"}) == (mine.rows("mirrors/shop_1/item"), mine.rows("mirrors/shop_2/item"))


def test_a_new_table_just_comes(tmp_path: Path) -> None:
    """One more shop a day must not fold all others again each day."""
    mine = Shops(tmp_path, TableRule(r"shop_(\d+).item", into="shop.item", shard_column="shard"))
    mine.say(1, "INSERT", 1, "a").run()
    mine.warm = Warm()
    assert ("done", "") == mine.say(2, "INSERT", 2, "b").run()
    assert mine.result is not None
    assert [False] == [one.rebuilt for one in mine.result.mirrors]
    assert BOTH == mine.rows(ITEM)
    assert targets.unfinished(mine.lake) == frozenset()


def test_a_new_table_comes_with_the_batch_that_is_held(tmp_path: Path) -> None:
    """Its rows wait, too: the mirror failed, because none of them was among those that it may fold."""
    mine = Shops(tmp_path, TableRule(r"shop_(\d+).item", into="shop.item", on_schema_change="freeze"))
    mine.say(1, "INSERT", 1, "a").run()
    mine.say(1, "INSERT", 3, "c").run()
    mine.ddl("ALTER TABLE item ADD COLUMN more int").say(2, "INSERT", 2, "b")
    state, why = mine.run()
    assert ("held", True) == (state, "waits for a decision" in why)
    assert {1: "a", 3: "c"} == mine.rows(ITEM)
    assert targets.unfinished(mine.lake) == frozenset()
