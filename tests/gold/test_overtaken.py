"""Which late changes count, by the folded changes after the first of them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from ingest.change import TableId
from ingest.config.model import TableRule
from ingest.gold.apply import planner
from ingest.gold.fold import arrow_parts, overtaken
from ingest.gold.fold.arrow_values import NotPlain
from ingest.gold.fold.arrow_work import ColumnWork, LaneWork, MirrorWork
from ingest.ledgers.mirrors import Shard
from ingest.tables.schemas import CHANGES
from tests.gold.test_tasks import Cluster
from tests.shops import Shops

TABLE = TableId("yard", None, "depot")
Row = tuple[int, str, str, str | None, str | None]  # batch, place, operation, before, after


def _left(*rows: Row, shard: Shard = (), partial: bool = False) -> list[str]:
    """The places of the new changes, those of batch 2, that are left."""
    names = ("batch", "order_key", "op", "before", "after")
    cells = [dict(zip(names, row, strict=True)) | {"partial": partial and row[0] == 1} for row in rows]
    schema = pa.schema([CHANGES.arrow.field(name) for name in (*names, "partial")])
    changes = pa.Table.from_pylist(sorted(cells, key=lambda one: str(one["order_key"])), schema)
    keys = ("shard", "id") if shard else ("id",)
    columns = tuple(ColumnWork(name, name, "int64" if name == "id" else "string") for name in (*keys, "v"))
    lane = LaneWork("s", TABLE, 2, 2, images=True, shard=shard, late_from="2")
    work = MirrorWork("m", "m", keys, columns, (lane,))
    found: list[str] = overtaken.without(work, {lane.id: changes})[lane.id]["order_key"].to_pylist()
    return found


def _image(key: int | str, value: str = "x") -> str:
    return f'{{"id":"{key}","v":"{value}"}}'


@pytest.mark.parametrize("shard", [(), (("shard", "a"),)])
def test_a_late_change_counts_unless_a_folded_one_of_its_key_is_later(shard: Shard) -> None:
    """Folded again, an overtaken insert would bring back a row that was deleted, and an update the value before."""
    rows: list[Row] = [
        (2, "2", "insert", None, _image(1)),  # deleted later
        (2, "3", "update", None, _image(2)),  # updated later
        (2, "4", "insert", None, _image(3)),  # the last one of its key
        (2, "6", "delete", _image(2), None),  # late, but later than the update
        (2, "9", "insert", None, _image(1)),  # in order
        (1, "5", "update", None, _image("02")),  # a key is one however it is written
        (1, "7", "delete", _image(1), None),
        (1, "8", "insert", None, _image(4)),
    ]
    assert ["4", "6", "9"] == _left(*rows, shard=shard)


def test_a_change_that_is_delivered_again_counts() -> None:
    """It is the last one of its key, and folded twice it gives the same."""
    assert ["5"] == _left((1, "5", "insert", None, _image(1)), (2, "5", "insert", None, _image(1)))


def test_a_folded_truncate_ends_late_changes_before_it() -> None:
    """Their rows went with the others of the table."""
    rows: list[Row] = [
        (2, "2", "insert", None, _image(1)),
        (2, "4", "insert", None, _image(2)),
        (1, "3", "truncate", None, None),
        (1, "5", "insert", None, _image(3)),
    ]
    assert ["4"] == _left(*rows)


def test_an_overtaken_change_is_refused_where_later_ones_do_not_give_the_row() -> None:
    """A part of a row says nothing about the other columns; one that is not overtaken needs no more than the mirror."""
    late: Row = (2, "2", "insert", None, _image(1))
    with pytest.raises(NotPlain, match="whole row"):
        _left(late, (1, "5", "update", None, '{"id":"1"}'), partial=True)
    assert ["2"] == _left(late, (1, "5", "update", None, '{"id":"2"}'), partial=True)


def test_a_moved_row_is_a_change_of_both_keys() -> None:
    """Its old key has no row any more, whatever is late; a late move may count for one key and not for the other."""
    move = _image(1), _image(2)
    assert [] == _left((2, "2", "insert", None, _image(1)), (1, "5", "update", *move))
    assert [] == _left((2, "2", "insert", None, _image(2)), (1, "5", "update", '{"id":"1"}', _image(2)))
    assert ["2"] == _left((2, "2", "insert", None, _image(3)), (1, "5", "update", *move))
    assert ["2"] == _left((2, "2", "update", *move), (1, "5", "insert", None, _image(3)))
    for key in (1, 2):
        with pytest.raises(NotPlain, match="whole row"):
            _left((2, "2", "update", *move), (1, "5", "insert", None, _image(key)))


def test_a_change_without_a_usable_key_neither_overtakes_nor_is_overtaken() -> None:
    """It is left in, because the fold makes a reject of it."""
    assert ["2"] == _left((2, "2", "insert", None, _image("x")), (1, "5", "update", None, _image(1)))
    assert ["2"] == _left((2, "2", "insert", None, _image(1)), (1, "5", "update", None, _image("x")))
    assert ["2"] == _left((2, "2", "insert", None, _image("x")), (1, "5", "update", None, _image("y")))


@pytest.mark.parametrize("after", ['{"id":null,"v":"y"}', '{ "i\\u0064": null, "v": "y"}', _image("x")])
def test_a_change_that_sets_its_key_to_no_value_overtakes_nothing(after: str) -> None:
    """The fold refuses it, so a late change of the key that its row had before would be lost without a word."""
    late: Row = (2, "2", "insert", None, _image(1))
    assert ["2"] == _left(late, (1, "5", "update", _image(1), after))
    assert [] == _left(late, (1, "5", "update", _image(1), '{"v":"y"}')), "the row keeps its key"
    assert ["2"] == _left(late, (1, "5", "delete", after, None))


def test_the_footers_are_read_once_for_all_late_mirrors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a thousand late mirrors, each file of silver would be opened a thousand times."""
    opened: list[str] = []
    shops, fragment = Shops(tmp_path, TableRule("shop_*.*")), arrow_parts.fragment
    for shop in (1, 2, 3, 4):
        shops.say(shop, "INSERT", 1, "a", at=10).say(shop, "INSERT", 2, "b", at=30)
    assert "done" == shops.run()[0]
    monkeypatch.setattr(planner, "SILVER_AT_MOST", -1)
    monkeypatch.setattr(arrow_parts, "fragment", lambda file: (opened.append(file), fragment(file))[1])
    for shop in (1, 2, 3, 4):
        shops.say(shop, "UPDATE", 1, "c", at=20).say(shop, "UPDATE", 2, "late", at=25)
    assert "done" == shops.run()[0]
    assert [{1: "c", 2: "b"}] * 4 == [shops.rows(f"mirrors/shop_{shop}/item") for shop in (1, 2, 3, 4)]
    assert 2 == len(opened) == len(set(opened))


@pytest.mark.parametrize("engine", ["auto", "spark"])
def test_a_long_history_is_folded_in_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """Spark folded it: a late truncate, or a late move of a row in a table of a year, started a Java."""
    monkeypatch.setattr(planner, "HISTORY_AT_MOST", 4)
    if engine == "spark":
        monkeypatch.setattr("tests.shops.unstarted", Cluster)
    shops = Shops(tmp_path, TableRule("shop_*.*"), engine=engine)
    for key in range(1, 9):
        shops.say(1, "INSERT", key, f"{key}")
    assert ("done", "") == shops.run()
    shops.say(1, "UPDATE", 11, "moved", at=85, old=1).say(1, "UPDATE", 12, "moved", at=200, old=11)
    shops.say(1, "UPDATE", 13, "moved", at=210, old=2).say(1, "DELETE", 3, "3", at=220)
    assert ("done", "") == shops.run()
    moved = {12: "moved", 13: "moved"} | {key: f"{key}" for key in range(4, 9)}
    assert moved == shops.rows("mirrors/shop_1/item")
    shops.say(1, "INSERT", 20, "late", at=15).ddl("TRUNCATE TABLE item", at=45)
    assert ("done", "") == shops.run()
    assert {key: text for key, text in moved.items() if key != 4} == shops.rows("mirrors/shop_1/item")
    assert shops.result is not None
    assert [""] == [one.why_merge for one in shops.result.mirrors]
    for compared in shops.compared(0).values():
        assert ([], []) == (compared.wrong, compared.left_out)
    assert not list(tmp_path.glob("lake/mirrors/shop_1/item/parts-*")), "what the tasks wrote is removed"


def test_a_late_change_that_needs_more_is_folded_from_its_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its row has moved on is only seen when the changes after it have been read: Spark had to start then."""
    monkeypatch.setattr(planner, "HISTORY_AT_MOST", 4)
    shops = Shops(tmp_path, TableRule("shop_*.*"))
    for key in range(1, 7):
        shops.say(1, "INSERT", key, f"{key}")
    shops.say(1, "UPDATE", 16, "moved", at=80, old=6).say(1, "UPDATE", 5, "five", at=84)
    assert ("done", "") == shops.run()
    assert ("done", "") == shops.say(1, "UPDATE", 15, "late move", at=55, old=5).run()
    rows = {1: "1", 2: "2", 3: "3", 4: "4", 5: "five", 15: "late move", 16: "moved"}
    assert rows == shops.rows("mirrors/shop_1/item")
    assert shops.result is not None
    assert [""] == [one.why_merge for one in shops.result.mirrors]
    for compared in shops.compared(0).values():
        assert ([], []) == (compared.wrong, compared.left_out)
