"""Row changes of messages that name no table: they are in no mirror, so they must not count as decoded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingest.config.model import TableRule
from ingest.tables.schemas import REJECTS
from tests.shops import Shops


def rejected(mine: Shops) -> list[str]:
    """Why each reject was refused, after a run."""
    mine.run()
    assert mine.result is not None
    if mine.result.rejected:
        assert [f"{mine.result.rejected} message" in one for one in mine.result.warnings] == [True]
    return (
        [row["reason"] for row in mine.lake.ask("SELECT reason FROM {rejects}")]
        if mine.lake.exists(REJECTS.name)
        else []
    )


@pytest.mark.parametrize("named", [None, ""])
@pytest.mark.parametrize("dialect", ["canal", "dts-canal", "drs-json", "oms-canal"])
@pytest.mark.parametrize("others", [1, 300])
def test_a_row_without_a_table_is_rejected(
    others: int, dialect: str, named: str | None, tmp_path: Path
) -> None:
    """It became a row of `changes` that no mirror reads: the run was done, without a reject, and all checks were green.

    With many messages before it they are read as columns.
    """
    mine = Shops(tmp_path, TableRule("*"), dialect=dialect)
    for key in range(others):
        mine.say(1, "INSERT", key, "a")
    mine.say(1, "INSERT", 999, "b")
    mine.lines[-1] = json.dumps({**json.loads(mine.lines[-1]), "table": named})
    assert ["no-table"] == rejected(mine)
    assert others == len(mine.rows("mirrors/shop_1/item"))


def test_a_table_that_is_emptied_without_its_name_is_rejected(tmp_path: Path) -> None:
    """Its rows would stay, and nothing would say why."""
    mine = Shops(tmp_path, TableRule("*", keys=("id",)), dialect="ogg")
    whole = {"op_ts": "2024-06-10 06:14:02.000000", "current_ts": "2024-06-10T06:14:03"}
    row = {"table": "SHOP.ITEM", "op_type": "I", "pos": "1", "after": {"id": 1, "text": "a"}, **whole}
    mine.lines += [json.dumps(row), json.dumps({"table": "", "op_type": "T", "pos": "2", **whole})]
    assert ["no-table"] == rejected(mine)
