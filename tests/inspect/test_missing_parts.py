"""Parts of a lake that are gone are said by whoever looks, and by a run that has nothing else to do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ingest.config.model import TableRule
from ingest.inspect import status
from ingest.run import Warm
from tests.shops import Shops


@pytest.fixture
def shops(tmp_path: Path) -> Shops:
    """A lake with one mirror."""
    mine = Shops(tmp_path, TableRule(match="shop_1.item"))
    assert ("done", "") == mine.say(1, "INSERT", 1, "a").run()
    return mine


def test_a_run_with_nothing_new_looks_for_its_mirrors(shops: Shops) -> None:
    """A quiet table stayed broken for days for those who watch exit codes."""
    shops.warm = Warm()
    shops.run()
    assert shops.result is not None
    assert [] == shops.result.failures
    shutil.rmtree(shops.folder / "lake" / "mirrors" / "shop_1" / "item")
    shops.warm = Warm()
    shops.run()
    [failure] = shops.result.failures
    assert failure.startswith("shop_1.item: its table ")
    assert f"`ingest retry {shops.pipeline.file}` folds it again" in failure
    found = status.status(shops.lake)
    assert ["failed"] == [one["state"] for one in found["tables"]]
    assert ["shop_1.item"] == [one["mirror"] for one in found["causes"]]


def test_silver_that_is_gone_is_a_problem(shops: Shops) -> None:
    """All mirrors were called up to date while no run could go on."""
    shutil.rmtree(shops.folder / "lake" / "changes")
    found = status.status(shops.lake)
    [problem] = [one for one in found["causes"] if one["kind"] == "lake"]
    assert "is incomplete" in problem["text"]
    assert f"ingest rebuild {shops.pipeline.file} --layer silver" == problem["command"]
