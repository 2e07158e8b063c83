"""Parts of a lake that are gone are said by whoever looks, and by a run that has nothing else to do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ingest import run as runs
from ingest.config.model import TableRule
from ingest.gold import completed
from ingest.inspect import status
from ingest.lake.lake import Lake, Tell
from ingest.lake.tables import LakeReader
from ingest.result import STAGES, Result
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


def test_an_alarm_ends_with_the_run_that_finds_its_cause_repaired(shops: Shops) -> None:
    """`status` named the alarm of a mirror that was there again until the next message came, and `ingest run` ended nothing."""
    mirror = shops.folder / "lake" / "mirrors" / "shop_1" / "item"
    shops.stages = STAGES
    shops.run()
    away = mirror.rename(mirror.with_name("away"))
    shops.warm = Warm()
    shops.run()
    assert shops.result is not None
    assert 1 == len(shops.result.failures)
    away.rename(mirror)
    assert ["last_run"] == [one["kind"] for one in status.status(LakeReader(shops.pipeline))["causes"]]
    assert completed.alarms(LakeReader(shops.pipeline))
    shops.warm = Warm()
    shops.run()
    assert [] == shops.result.failures
    assert [] == status.status(LakeReader(shops.pipeline))["causes"]
    before = LakeReader(shops.pipeline).snapshot("runs").version
    shops.run()
    assert before == LakeReader(shops.pipeline).snapshot("runs").version


def test_an_alarm_of_a_batch_is_not_ended_by_a_run_without_one(
    shops: Shops, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was wrong with a batch's messages is not looked for again: a run with nothing to read knows nothing of it."""
    shops.stages = STAGES
    shops.run()
    stage = runs._STAGES["silver"]

    def alarmed(lake: Lake, warm: Warm, result: Result, tell: Tell) -> bool:
        done = stage(lake, warm, result, tell)
        result.fail("messages are unaccounted for")
        return done

    with monkeypatch.context() as patch:
        patch.setitem(runs._STAGES, "silver", alarmed)
        shops.say(2, "INSERT", 2, "b").run()
    for warm in (shops.warm, Warm()):
        shops.warm = warm
        shops.run()
        assert shops.result is not None
        assert (None, []) == (shops.result.batch, shops.result.failures)
        assert ["last_run"] == [one["kind"] for one in status.status(LakeReader(shops.pipeline))["causes"]]


def test_a_run_with_nothing_new_looks_whether_its_mirrors_can_be_read(shops: Shops) -> None:
    """`status` called the mirror damaged, and a scheduler that watches exit codes was told that all is well."""
    folder = shops.folder / "lake" / "mirrors" / "shop_1" / "item"
    for log in (folder / "_delta_log").glob("*.json"):
        log.write_text("{", "utf-8")
    [lost] = completed.lost(LakeReader(shops.pipeline))
    assert lost.said.startswith("shop_1.item: ")
    assert (
        f"move the folder {folder} away, and `ingest rebuild {shops.pipeline.file} shop_1.item` makes"
        in lost.said
    )
    assert ["damaged"] == [one["state"] for one in status.status(LakeReader(shops.pipeline))["tables"]]


def test_silver_that_is_gone_is_a_problem(shops: Shops) -> None:
    """All mirrors were called up to date while no run could go on."""
    shutil.rmtree(shops.folder / "lake" / "changes")
    found = status.status(shops.lake)
    [problem] = [one for one in found["causes"] if one["kind"] == "lake"]
    assert "is incomplete" in problem["text"]
    assert f"ingest rebuild {shops.pipeline.file} --layer silver" == problem["command"]
