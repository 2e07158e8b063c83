"""A statement that comes late can change what a later one does that the mirror has folded already."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ingest.config.model import TableRule
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
    """Otherwise values of the old column stayed in the new one, and the new one's default was missing, without a word."""
    mine = Shops(tmp_path, TableRule(match="shop_1.item"))
    mine.say(1, "INSERT", 1, "a", note="long").say(1, "INSERT", 2, "b", note="12.34").run()
    mine.ddl(folded, at=900).run()
    mine.ddl(f"ALTER TABLE item {late}", at=800).run()
    assert ("done", "") == mine.say(1, "INSERT", 3, "c", at=990, note="own").run()
    found = mine.lake.ask_mirror("mirrors/shop_1/item", "SELECT id, note FROM {mirror}")
    assert expected | {3: "own"} == {row["id"]: row["note"] for row in found}
    compared = mine.compared(0)["shop_1.item"]
    assert ([], []) == (compared.wrong, compared.left_out)
