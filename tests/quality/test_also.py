"""The key checks of several mirrors of one table, from its changes read once and without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyarrow import RecordBatch

from ingest.config.model import TableRule
from ingest.lake.lake import Lake
from ingest.quality import arrow_rows, ledgers, touched_keys
from ingest.quality.arrow_rows import Where
from ingest.quality.key_sql import Side
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


def sound(shops: Shops, since: int) -> dict[str, dict[str, int]]:
    """The numbers of the mirrors without faults."""
    lake = shops.lake
    found = survey(lake, ledgers.read(lake, since, lake.decoded()).lanes).subjects
    return touched_keys.sound(lake, [Side(lake, one, since, i) for i, one in enumerate(found)])


@pytest.mark.parametrize("since", [0, 1])
def test_each_of_them_is_sound(since: int, tmp_path: Path) -> None:
    """Else each run with ``also:`` starts Java to look for faults that are not there."""
    assert MIRRORS == sorted(sound(filled(tmp_path), since))


@pytest.mark.parametrize("since", [0, 1])
@pytest.mark.parametrize("broken", MIRRORS)
def test_a_missing_row_of_any_of_them_is_a_fault(broken: str, since: int, tmp_path: Path) -> None:
    """A mirror to which no change is given has no fault, whatever it lacks."""
    shops = filled(tmp_path)
    DeltaTable(shops.lake.path(broken)).delete("id = 3")
    assert sorted({*MIRRORS} - {broken}) == sorted(sound(shops, since))


def test_a_long_history_of_one_table_leaves_the_others_without_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late change needs the changes of its own table, not those of the others that the batch has touched."""
    shops = Shops(tmp_path, TableRule("shop_1.item"), more=(TableRule("shop_2.item"),))
    for key in range(1, 9):
        shops.say(1, "INSERT", key).say(2, "INSERT", key)
    assert ("done", "") == shops.run()
    shops.say(1, "DELETE", 3, at=25).say(2, "INSERT", 9)
    assert ("done", "") == shops.run()
    both = ["mirrors/shop_1/item", "mirrors/shop_2/item"]
    assert both == sorted(sound(shops, 1))
    read: list[int] = []

    def counted(lake: Lake, name: str, columns: Sequence[str], where: Where) -> list[RecordBatch]:
        pages = arrow_rows.read(lake, name, columns, where)
        read.extend(one.num_rows for one in pages)
        return pages

    monkeypatch.setattr(touched_keys, "read", counted)
    sound(shops, 1)
    assert 10 > sum(read)  # of the other table, the new change alone
    monkeypatch.setattr(touched_keys, "MOST", 4)
    assert both[1:] == sorted(sound(shops, 1))
