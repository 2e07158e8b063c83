"""The key checks of several mirrors of one table, from its changes read once and without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from ingest.config.model import TableRule
from ingest.gold.plan.steps import steps_of
from ingest.quality import key_checks, ledgers
from ingest.quality.catalogue import complains
from ingest.quality.subjects import survey
from tests.shops import Shops

MIRRORS = ["mirrors/all/item", "mirrors/eu/item", "mirrors/shop_1/item"]


def filled(folder: Path) -> Shops:
    """Three mirrors of one table, of two batches."""
    rule = TableRule("shop_1.item", plain_tables=True, also=tuple(
        TableRule("shop_1.item", into=name, plain_tables=True) for name in ("eu.item", "all.item")
    ))  # fmt: skip
    shops = Shops(folder, rule)
    for key in (1, 3):
        shops.say(1, "INSERT", key).say(1, "INSERT", key + 1)
        assert ("done", "") == shops.run()
    return shops


def sound(shops: Shops, since: int) -> list[str]:
    """The mirrors without faults."""
    lake = shops.lake
    subjects = survey(lake, ledgers.read(lake, since, lake.decoded()).lanes, steps=steps_of(lake)).subjects
    found = key_checks.count(lake, subjects, since)
    return sorted(
        path
        for path, one in found.items()
        if not any(n and complains(name) for name, n in one.numbers.items())
    )


@pytest.mark.parametrize("since", [0, 1])
def test_each_of_them_is_sound(since: int, tmp_path: Path) -> None:
    """A check of one that takes another's rows for its own reports faults that are not there."""
    assert MIRRORS == sound(filled(tmp_path), since)


@pytest.mark.parametrize("since", [0, 1])
@pytest.mark.parametrize("broken", MIRRORS)
def test_a_missing_row_of_any_of_them_is_a_fault(broken: str, since: int, tmp_path: Path) -> None:
    """A mirror to which no change is given has no fault, whatever it lacks."""
    shops = filled(tmp_path)
    DeltaTable(shops.lake.path(broken)).delete("id = 3")
    assert sorted({*MIRRORS} - {broken}) == sound(shops, since)
