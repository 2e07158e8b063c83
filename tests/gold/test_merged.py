"""Tables that share a mirror without a shard column: their union, rows that move, keys that collide; without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ingest.change import TableId
from ingest.config.model import TableRule
from ingest.errors import HeldError
from ingest.gold.explain import explain
from ingest.gold.fold import collision
from ingest.gold.plan.rule_faults import refuse_unordered
from ingest.gold.plan.work import Books, LaneSums, jobs
from ingest.ledgers import mirrors
from ingest.ledgers.books import Line
from ingest.run import Warm
from tests.shops import Shops

RULE = TableRule(r"shop_(\d+).item", into="shop.item")
MIRROR = TableId("shop", None, "item")


def test_a_row_moves_with_its_delete_first(tmp_path: Path) -> None:
    """Re-sharding is a delete in one table and an insert in another; both positions are each table's own."""
    shops = Shops(tmp_path, RULE).say(1, "INSERT", 1, "a").say(1, "INSERT", 2, "b").say(2, "INSERT", 3, "c")
    assert ("done", "") == shops.run()
    shops.say(1, "DELETE", 1, "a", at=900).say(2, "INSERT", 1, "moved", at=5)
    assert ("done", "") == shops.run()
    assert {1: "moved", 2: "b", 3: "c"} == shops.rows()
    shops.check()


def test_a_row_moves_with_its_insert_first(tmp_path: Path) -> None:
    """Both rows exist until the delete arrives: the mirror waits for it, and holds the earlier state until then."""
    shops = Shops(tmp_path, RULE).say(1, "INSERT", 1, "a").say(2, "INSERT", 3, "c")
    assert ("done", "") == shops.run()
    shops.say(2, "INSERT", 1, "moved").say(1, "INSERT", 4, "d")
    state, why = shops.run()
    assert "held" == state
    assert "shop_1.item and shop_2.item both have a row with id = 1" in why
    assert {1: "a", 3: "c"} == shops.rows()
    assert "held" == shops.run()[0], "nothing new has come"
    shops.say(1, "DELETE", 1, "a")
    assert ("done", "") == shops.run()
    assert {1: "moved", 3: "c", 4: "d"} == shops.rows()
    shops.check()
    story = explain(shops.lake, "shop.item", ["1"])
    assert story.equal
    assert ["set", "delete", "set"] == [one.effects[0].effect for one in story.events]
    assert [1, 2, 3] == [one.number for one in story.events]


def test_a_row_comes_back(tmp_path: Path) -> None:
    """A delete that is older than the row's return, by the table's own positions, must not remove it."""
    shops = Shops(tmp_path, RULE).say(1, "INSERT", 1, "a", at=10).say(1, "DELETE", 1, "a", at=20)
    shops.say(2, "INSERT", 1, "b", at=30).say(2, "DELETE", 1, "b", at=40).say(1, "INSERT", 1, "back", at=35)
    assert ("done", "") == shops.run()
    assert {1: "back"} == shops.rows()
    shops.say(2, "UPDATE", 1, "b2", at=33).say(1, "UPDATE", 1, "late", at=34)
    assert ("done", "") == shops.run()
    assert {1: "back"} == shops.rows()
    shops.check()


def test_only_the_own_rows_are_truncated(tmp_path: Path) -> None:
    """A truncate of one table would take the others' rows along."""
    shops = Shops(tmp_path, RULE).say(1, "INSERT", 1, "a").say(2, "INSERT", 2, "b").say(1, "INSERT", 3, "c")
    assert ("done", "") == shops.run()
    shops.say(1, "TRUNCATE", 0).say(2, "DELETE", 3, "c").say(1, "INSERT", 4, "d")
    assert ("done", "") == shops.run()
    assert {2: "b", 4: "d"} == shops.rows()
    shops.say(1, "TRUNCATE", 0)
    assert ("done", "") == shops.run()
    assert {2: "b"} == shops.rows()
    shops.check()


def test_the_rows_of_a_key_that_collides_are_deleted_at_the_source(tmp_path: Path) -> None:
    """One of the ways that the message names; the other one, a shard_column, folds the mirror again."""
    shops = Shops(tmp_path, RULE).say(1, "INSERT", 1, "a").say(2, "INSERT", 1, "b").say(1, "INSERT", 2, "c")
    assert "held" == shops.run()[0]
    assert not shops.lake.snapshot("mirrors/shop/item").exists
    shops.say(2, "DELETE", 1, "b")
    assert ("done", "") == shops.run()
    assert {1: "a", 2: "c"} == shops.rows()


def test_the_words_name_the_entry_and_survive_another_engine() -> None:
    """Spark wraps an error's text in its own words."""
    error = collision.CollisionError({"id": "7", "n": "ä"}, ["b.t", "a.t"])
    with pytest.raises(HeldError) as caught:
        collision.refuse(f"[USER_RAISED_EXCEPTION] {error.fault} SQLSTATE: P0001 ...", MIRROR, RULE)
    assert (
        "shop.item merges tables by their key alone, and a.t and b.t both have a row with id = 7, n = ä: "
        in str(caught.value)
    )
    assert r"write `shard_column: shard` (or another name) into the entry `match: shop_(\d+).item`" in str(
        caught.value
    )
    collision.refuse("another error", MIRROR, RULE)


def test_tables_meet_in_different_batches(tmp_path: Path) -> None:
    """Each batch shows one of two tables: folded by itself, one overwrites the other's rows silently."""
    pipeline, second = Shops(tmp_path, RULE).pipeline, TableId("shop_2", None, "item")
    first = TableId("shop_1", None, "item")
    books = Books(1, 2, {("s", first): LaneSums(changes=1)}, [Line(2, "s", None, None, *second, changes=1)])
    [job] = jobs(pipeline, books)
    assert job.merged
    books.sums.clear()
    [job] = jobs(pipeline, books)
    assert not job.merged


def test_sources_meet_in_different_batches(tmp_path: Path) -> None:
    """Two sources of one table need no `into:` to meet; a source that has been replaced feeds nothing more."""
    shops = Shops(tmp_path, RULE)
    sources = (shops.pipeline.sources[0], replace(shops.pipeline.sources[0], name="t"))
    pipeline = replace(shops.pipeline, sources=sources, tables=())
    books = Books(1, 2, {("s", MIRROR): LaneSums(changes=1)}, [Line(2, "t", None, None, *MIRROR, changes=1)])
    [job] = jobs(pipeline, books)
    assert job.merged
    [job] = jobs(replace(pipeline, sources=(sources[1], replace(sources[1], name="u"))), books)
    assert not job.merged


@pytest.mark.parametrize("rule", [replace(RULE, history=True), replace(RULE, no_key="append")])
def test_rows_without_a_key_stay_apart(tmp_path: Path, rule: TableRule) -> None:
    """Nothing shows which table an old state, or a row without a key, is from."""
    books = Books(1, 2, {("s", TableId("shop_1", None, "item")): LaneSums(changes=1)})
    books.lines = [Line(2, "s", None, None, "shop_2", None, "item", changes=1)]
    [job] = jobs(replace(Shops(tmp_path, RULE).pipeline, tables=(rule,)), books)
    with pytest.raises(HeldError, match=r"shop_1.item and shop_2.item, whose positions cannot be compared"):
        refuse_unordered(job)


@pytest.mark.parametrize("said", [False, True], ids=["without messages", "with messages"])
def test_a_shard_column_comes_and_goes(tmp_path: Path, said: bool) -> None:
    """Rows of one rule's key would stay along with the other's, and a column that nothing fills any more."""

    def run(rule: TableRule) -> tuple[str, str]:
        shops.rule, shops.warm = rule, Warm()
        if said:
            shops.say(1, "UPDATE", 1, "a")
        return shops.run()

    sharded = replace(RULE, shard_column="shard")
    shops = Shops(tmp_path, sharded).say(1, "INSERT", 1, "a").say(2, "INSERT", 2, "b")
    assert ("done", "") == shops.run()
    generation = next(iter(mirrors.known(shops.lake).values())).generation
    assert ("done", "") == run(RULE)
    [mirror] = mirrors.known(shops.lake).values()
    assert (("id",), ["id", "text"], generation + 1) == (
        mirror.keys, [one.name for one in mirror.columns], mirror.generation,
    )  # fmt: skip
    assert ["id", "text"] == list(shops.lake.snapshot(mirror.path).columns)
    assert {1: "a", 2: "b"} == shops.rows()
    assert ("done", "") == run(replace(RULE, shard_column="origin"))
    [mirror] = mirrors.known(shops.lake).values()
    assert ("id", "origin") == mirror.keys
    shops.say(2, "INSERT", 1, "too")
    assert ("done", "") == run(replace(RULE, shard_column="origin"))
    state, why = run(RULE)
    assert ("held", True) == (state, "both have a row with id = 1" in why), "the rows by the former rule stay"
