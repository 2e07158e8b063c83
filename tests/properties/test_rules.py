"""Mirrors under random rules, against the rules applied to the source tables in plain Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.config.model import MadeColumn, TableRule
from tests.properties import ruled_lakes
from tests.properties.ruled_lakes import differences, subjects
from tests.shops import Shops


@pytest.mark.parametrize("seed", [7])
def test_no_history_under_rules_is_wrong(seed: int, tmp_path: Path) -> None:
    """A row that a rule lets through, holds back or changes otherwise than the pipeline file says is wrong for its reader."""
    with ruled_lakes.parsed():
        _, rows, _, wrong = ruled_lakes.checked(seed, tmp_path)
    assert [] == wrong
    assert rows > 100


def test_rules_of_every_kind_are_drawn() -> None:
    """A generator that draws no masks judges none."""
    made = [one for seed in range(12) for one in subjects(seed, 100, 10)]
    entries = [one.entry for one in made]
    for name in ("where", "mask", "deletes", "changes_of", "shard_column", "columns"):
        assert sum(name in one for one in entries) > 5, name
    columns = [rule for one in entries for rule in one.get("columns", {}).values()]
    for name in ("rename", "type", "compute", "constant", "meta"):
        assert sum(name in one for one in columns if isinstance(one, dict)) > 5, name
    assert sum(one == "exclude" for one in columns) > 5
    assert {how for one in entries for how in one.get("mask", {}).values()} >= {
        "hmac",
        "last4",
        "tokenize",
        None,
    }
    assert any(name.casefold() == "k0" for one in entries for name in one.get("mask", {}))
    assert any(one.collides for one in made)


def test_a_difference_is_seen() -> None:
    """A judge that finds every mirror right finds nothing."""
    made = next(one for one in subjects(7, 100, 10) if len(one.expected()) > 3)
    rows = made.expected()
    assert [] == list(differences(made, rows, rows))
    assert [] != list(differences(made, rows, rows[1:]))
    assert [] != list(differences(made, rows[1:], rows))
    assert [] != list(differences(made, rows, [*rows, rows[0]]))
    assert [] != list(differences(made, rows, [{**rows[0], "h": 99}, *rows[1:]]))


def test_a_late_truncate_ends_rows_earlier(tmp_path: Path) -> None:
    """The newest truncate is known; an older one that comes after it still says when rows were deleted."""
    soft = {
        "_deleted": MadeColumn("deletes", "soft", "boolean"),
        "_deleted_at": MadeColumn("deletes", "soft", "timestamp"),
    }
    shops = Shops(
        tmp_path, TableRule(match="shop_1.item", into="shop.item", made=soft, places=dict.fromkeys(soft, "x"))
    )
    shops.say(1, "INSERT", 1, "a", at=10).say(1, "TRUNCATE", 0, at=30)
    assert ("done", "") == shops.run()
    for late, second in ((20, 20), (25, 20), (15, 15)):
        shops.say(1, "TRUNCATE", 0, at=late)
        assert "done" == shops.run()[0]
        [row] = shops.lake.ask_mirror(
            "mirrors/shop/item", "SELECT _deleted_at - TIMESTAMPTZ '2024-05-01 00:00:00Z' AS at FROM {mirror}"
        )
        assert second == row["at"].total_seconds()
