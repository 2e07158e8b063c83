"""Statements that come late, or again: they can change what later ones do that the mirror has folded already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ingest.config.model import TableRule
from ingest.gold.apply import planner
from tests.shops import Shops

if TYPE_CHECKING:
    from pathlib import Path

ADD = "ALTER TABLE item ADD COLUMN note varchar(9) DEFAULT 'new'"


@pytest.mark.parametrize(
    ("late", "folded", "expected"),
    [
        ("DROP COLUMN note", ADD, {1: "new", 2: "new"}),
        ("RENAME COLUMN note TO remark", ADD, {1: "new", 2: "new"}),
        ("MODIFY note varchar(2)", "ALTER TABLE item MODIFY note text", {1: "lo", 2: "12"}),
        ("MODIFY note decimal(9,1)", "ALTER TABLE item MODIFY note varchar(9)", {1: "0.0", 2: "12.3"}),
        ("ADD COLUMN note varchar(9)", ADD.replace("COLUMN", "COLUMN IF NOT EXISTS"), {1: "long", 2: "12.34"}),
    ],
)  # fmt: skip
def test_rows_are_as_if_the_statements_had_come_in_order(
    late: str, folded: str, expected: dict[int, str], tmp_path: Path
) -> None:
    """Otherwise, silently, values of the old column stayed in the new one, and the new one's default was missing."""
    mine = Shops(tmp_path, TableRule(match="shop_1.item"))
    mine.say(1, "INSERT", 1, "a", note="long").say(1, "INSERT", 2, "b", note="12.34").run()
    mine.ddl(folded, at=900).run()
    mine.ddl(f"ALTER TABLE item {late}", at=800).run()
    assert ("done", "") == mine.say(1, "INSERT", 3, "c", at=990, note="own").run()
    found = mine.lake.ask_mirror("mirrors/shop_1/item", "SELECT id, note FROM {mirror}")
    assert expected | {3: "own"} == {row["id"]: row["note"] for row in found}
    compared = mine.compared(0)["shop_1.item"]
    assert ([], []) == (compared.wrong, compared.left_out)


@pytest.mark.one_of(4, "cut", "policy")
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("policy", ["lenient", "evolve"])
def test_a_stream_that_goes_back_beyond_the_create(tmp_path: Path, policy: Any, cut: bool) -> None:
    """What followed the CREATE when it came first follows it again, even what gave the table another name."""
    shops = Shops(tmp_path, TableRule("shop_1.item", on_schema_change=policy), dialect="canal")
    shops.ddl("CREATE TABLE item (id BIGINT PRIMARY KEY, text VARCHAR(9))").say(1, "INSERT", 1, "a")
    for text in (
        "CREATE TABLE _item_gho LIKE item",
        "ALTER TABLE _item_gho DROP COLUMN text",
        "RENAME TABLE item TO _item_del, _item_gho TO item",
    ):
        shops.ddl(text)
    again = shops.lines[:]
    if cut:
        assert ("done", "") == shops.run()
    shops.lines += again
    shops.ddl("ALTER TABLE item ADD COLUMN text VARCHAR(9) DEFAULT 'x'")
    assert ("done", "") == shops.run()
    assert {1: "x"} == shops.rows("mirrors/shop_1/item")


@pytest.mark.one_of(4, "cut", "policy")
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("most", [1, planner.HISTORY_AT_MOST])
@pytest.mark.parametrize("policy", ["lenient", "evolve"])
@pytest.mark.parametrize(
    ("statement", "column", "expected"),
    [
        ("RENAME COLUMN note TO remark", "remark", {1: "long", 2: "12.34", 3: "own"}),
        ("MODIFY note varchar(2)", "note", {1: "lo", 2: "12", 3: "own"}),
        ("ADD COLUMN more varchar(9) DEFAULT 'new'", "more", {1: "new", 2: "new", 3: "own"}),
    ],
)
def test_a_stream_that_goes_back_beyond_another_key(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    statement: str,
    column: str,
    expected: dict[int, str],
    policy: Any,
    most: int,
    cut: bool,
) -> None:
    """Rows that had come again under the earlier key silently kept their old values, or lost them: later statements that
    came again, too, were not applied to them.
    """
    monkeypatch.setattr(planner, "HISTORY_AT_MOST", most)
    shops = Shops(tmp_path, TableRule("shop_1.item", on_schema_change=policy), dialect="canal")
    shops.say(1, "INSERT", 1, "a", note="long").say(1, "INSERT", 2, "b", note="12.34")
    shops.ddl("ALTER TABLE item RENAME COLUMN id TO no").ddl(f"ALTER TABLE item {statement}")
    again = shops.lines[1:]
    if cut:
        assert ("done", "") == shops.run()
    shops.lines += again
    shops.say(1, "INSERT", 3, "c", **{column: "own"})
    shops.lines[-1] = shops.lines[-1].replace('"id": "3"', '"no": "3"').replace('"id"]', '"no"]')
    assert ("done", "") == shops.run()
    rows = shops.lake.ask_mirror("mirrors/shop_1/item", f"SELECT no, {column} AS cell FROM {{mirror}}")
    assert expected == {row["no"]: row["cell"] for row in rows}
    assert [] == shops.compared(0)["shop_1.item"].wrong
