"""Erasures of rows in mirrors of several tables and in sealed lakes: what goes, and what is stopped afterwards; without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ingest.change import TableId
from ingest.config.entries import Sealing
from ingest.config.model import TableRule
from ingest.erase import late, remove, replacements
from ingest.erase import plan as planning
from ingest.errors import IngestError
from ingest.ledgers import barriers, decisions, sealing
from ingest.ledgers.decisions import KEY_DROPPED, Decision
from ingest.store.envelope import SealError
from ingest.tables.lake import Lake
from tests.shops import Shops

MERGED = TableRule(r"shop_(\d+).item", into="shop.item")
SHARDED = TableRule(r"shop_(\d+).item", into="shop.item", shard_column="shard")


def planned(lake: Lake, *key: str) -> planning.Erasure:
    """What the erasure of one row removes."""
    planning.refuse(lake)
    return planning.plan(lake, "shop.item", [key], "asked", now=False)


def decided(lake: Lake, erasure: planning.Erasure) -> None:
    """From here on nothing of the rows is decoded again."""
    remove._decide(lake, erasure)  # the rest needs Spark


def places(erasure: planning.Erasure) -> list[tuple[str | None, int]]:
    """The table and the batch of each change that goes."""
    return sorted((one.database, one.batch) for one in erasure.changes)


def texts(shops: Shops) -> list[tuple[str, str]]:
    """What silver has of rows, by table."""
    rows = shops.lake.ask(
        """SELECT "database", "after" FROM {changes.change} WHERE batch = 2 ORDER BY order_key"""
    )
    return [(row["database"], row["after"]) for row in rows]


def test_the_row_of_one_shard_goes(tmp_path: Path) -> None:
    """The other shard's row with the same key is another person's."""
    shops = Shops(tmp_path, SHARDED).say(1, "INSERT", 1, "gone").say(2, "INSERT", 1, "stays")
    shops.say(1, "UPDATE", 1, "gone, too").say(1, "INSERT", 2, "stays")
    assert ("done", "") == shops.run()
    erasure = planned(shops.lake, "1", "shop_1.item")
    assert [("shop_1", 1), ("shop_1", 1)] == places(erasure)
    assert [("1", "shop_1.item")] == erasure.keys == erasure.rows == erasure.alone
    assert ["shop_1"] == [barriers.Barrier.from_value(one).table.database for one in erasure.barriers]
    decided(shops.lake, erasure)
    shops.say(1, "UPDATE", 1, "late", at=15).say(2, "UPDATE", 1, "stays 2").say(1, "INSERT", 1, "new")
    shops.run()
    assert ["stays 2", "new"] == [text.split('"')[-2] for _, text in texts(shops)]


def test_a_row_that_moved_goes_from_all_tables(tmp_path: Path) -> None:
    """A row that moved from one table to another has changes in both."""
    shops = Shops(tmp_path, MERGED).say(1, "INSERT", 1, "gone").say(1, "INSERT", 2, "stays")
    shops.say(1, "DELETE", 1, "gone").say(2, "INSERT", 1, "gone, too").say(2, "INSERT", 3, "stays")
    assert ("done", "") == shops.run()
    erasure = planned(shops.lake, "1")
    assert [("shop_1", 1), ("shop_1", 1), ("shop_2", 1)] == places(erasure)
    assert [("1",)] == erasure.keys == erasure.rows
    decided(shops.lake, erasure)
    shops.say(1, "UPDATE", 1, "late", at=15).say(2, "UPDATE", 1, "late, too", at=35).say(
        2, "INSERT", 1, "new"
    )
    shops.run()
    assert [("shop_2", "new")] == [(table, text.split('"')[-2]) for table, text in texts(shops)]


def test_a_row_goes_from_all_mirrors_of_its_table(tmp_path: Path) -> None:
    """A mirror with other rules would keep the row, under its own key's columns, or the row of another shard would go."""
    rule = replace(MERGED, into="", also=(replace(SHARDED, names={"id": "number"}, without=("text",)),))
    shops = Shops(tmp_path, rule).say(1, "INSERT", 1, "gone").say(2, "INSERT", 1, "stays")
    assert ("done", "") == shops.run()
    planning.refuse(shops.lake)
    erasure = planning.plan(shops.lake, "shop_1.item", [("1",)], "asked", now=False)
    assert [("shop_1", 1)] == places(erasure)
    key = [("1", "shop_1.item")]
    assert [planning.Share("shop.item", "mirrors/shop/item", key, key, key)] == erasure.others
    assert ["shop_1.item", "shop.item"] == [one.mirror for one in erasure.of_mirrors]
    back = planned(shops.lake, "1", "shop_1.item")
    assert [("shop_1.item", [("1",)])] == [(one.mirror, one.rows) for one in back.others]
    erasure.save(shops.lake)
    waiting = planning.unfinished(shops.lake)
    assert waiting is not None
    assert erasure.others == waiting.others


def test_a_mirror_in_which_the_row_cannot_be_identified_refuses(tmp_path: Path) -> None:
    """The row of another table would go, or stay, unnoticed."""
    rule = replace(MERGED, into="", also=(MERGED,))
    shops = Shops(tmp_path, rule).say(1, "INSERT", 1, "gone").say(2, "INSERT", 2, "stays")
    assert ("done", "") == shops.run()
    with pytest.raises(IngestError, match=r"`ingest erase .*x.yaml shop.item` with the key"):
        planning.plan(shops.lake, "shop_1.item", [("1",)], "asked", now=False)
    assert {"shop_1.item", "shop_2.item"} == {one.mirror for one in planned(shops.lake, "1").others}


KEY = "0f" * 32


def replaced(shops: Shops, erasure: planning.Erasure) -> list[tuple[int, bytes]]:
    """Each message's offset and what the erasure writes in its place, as bronze would hold it."""
    found = replacements.replaced(shops.lake, erasure)
    assert {None} == {row[-1] for row in found}, "the signature is within the sealed value"
    return [(row[3], bytes(row[6])) for row in found]


def test_sealed_messages_are_replaced_by_sealed_ones(tmp_path: Path) -> None:
    """A plain message among sealed ones is damage, and a sealed one with the row's values is not an erasure."""
    shops = (
        Shops(tmp_path, MERGED, seal=Sealing(KEY)).say(1, "INSERT", 1, "hidden").say(2, "INSERT", 2, "stays")
    )
    assert ("done", "") == shops.run()
    erasure = planned(shops.lake, "1")
    [(offset, value)] = replaced(shops, erasure)
    keys, place = sealing.opener(shops.lake), ("s", erasure.changes[0].topic, 0, offset)
    [(old,)] = [
        (row["value"],) for row in shops.lake.ask('SELECT value FROM {bronze.message} WHERE "offset" = 0')
    ]
    assert b"hidden" in (keys.open(1, place, old).value or b"")
    parts = keys.open(1, place, value)
    assert (None, False) == (parts.key, b"hidden" in (parts.value or b""))
    secret = barriers.Barriers(erasure.secret)
    headers = tuple((one["key"], one["value"]) for one in parts.headers or ())
    assert secret.is_replacement(headers, parts.value)
    left = barriers.left_of(parts.value or b"")
    assert (1, [], TableId("shop_1", None, "item")) == (left.erased, left.kept, left.table)
    with pytest.raises(SealError, match="changed or moved"):
        keys.open(1, (*place[:3], offset + 1), value)


def test_late_sealed_messages_are_replaced(tmp_path: Path) -> None:
    """Silver writes nothing of a late message, but bronze keeps its bytes until `ingest maintain`."""
    shops = (
        Shops(tmp_path, MERGED, seal=Sealing(KEY)).say(1, "INSERT", 1, "hidden").say(1, "INSERT", 2, "stays")
    )
    assert ("done", "") == shops.run()
    decided(shops.lake, planned(shops.lake, "1"))
    shops.say(1, "UPDATE", 1, "hidden, too", at=5).say(1, "UPDATE", 2, "stays 2")
    assert ("done", "") == shops.run()
    [row] = late._replaced(shops.lake, 2)
    parts = sealing.opener(shops.lake).open(2, row[:4], bytes(row[6]))
    assert (1, None) == (barriers.left_of(parts.value or b"").erased, row[-1])


def test_messages_that_cannot_be_read_are_left(tmp_path: Path) -> None:
    """The key of their day was dropped: that is their erasure, and no reason to refuse that of silver's rows."""
    shops = Shops(tmp_path, MERGED, seal=Sealing(KEY)).say(1, "INSERT", 1, "hidden")
    assert ("done", "") == shops.run()
    erasure = planned(shops.lake, "1")
    for file in (tmp_path / "lake" / sealing.FOLDER).iterdir():
        day, number = sealing._parsed(file.name)
        decisions.append(shops.lake, [Decision(KEY_DROPPED, day, {"ids": [number.hex()]})])
        file.unlink()
    assert [] == replacements.replaced(shops.lake, erasure)
