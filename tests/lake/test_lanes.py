"""What the books say of the tables that have sent rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ingest.change import TableId
from ingest.config.model import TableRule
from ingest.ledgers import lanes
from ingest.tables.lake import Lake
from tests.shops import Shops

if TYPE_CHECKING:
    from pathlib import Path

TABLES = [TableId(f"shop_{shop}", None, "item") for shop in range(lanes.APART + 3)]


def test_many_tables_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question for each table with statements made every batch of a lake with many tables wait for all of them."""
    shops = Shops(tmp_path, TableRule(), stages=("bronze", "silver"))
    for shop in range(len(TABLES)):
        shops.say(shop, "INSERT", 1, "a", **{f"c{shop}": "x"})
    shops.run()
    lake = shops.lake
    alone = {table: lanes.sent_columns(lake)("s", table) for table in TABLES}
    assert [{"id", "text", f"c{shop}"} for shop in range(len(TABLES))] == [set(one) for one in alone.values()]
    texts, ask = list[str](), Lake.ask
    monkeypatch.setattr(Lake, "ask", lambda lake, text, **more: texts.append(text) or ask(lake, text, **more))
    sent = lanes.sent_columns(lake)
    assert alone == {table: sent("s", table) for table in TABLES}
    assert {} == sent("s", TableId("other", None, "item")) == sent("t", TABLES[0])
    assert lanes.APART + 1 == len(texts)
