"""Gold's work list: what each mirror lacks, whatever state the others are in."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ingest.change import TableId
from ingest.config import Pipeline
from ingest.config.model import TableRule
from ingest.gold.plan.work import Books, LaneSums, incomplete
from ingest.gold.preview import foresee, lake_state
from ingest.ledgers import decisions, mirrors, pauses
from ingest.ledgers.books import Line
from ingest.ledgers.mirrors import Column, Mirror
from ingest.tables.delta import Snapshot, UnreadableError
from ingest.tables.lake import Lake
from tests.shops import Shops


def test_a_damaged_log_does_not_keep_the_other_mirrors_from_their_batches() -> None:
    """Gold stopped at the first log that could not be read: no mirror had anything new until it was repaired."""
    pipeline = Pipeline("yard", Path("yard.yaml"), "/lake", (), (TableRule("yard.*"),))
    names = {name: TableId("yard", None, name) for name in ("depot", "torn")}
    books = Books(5, 6, {("s", table): LaneSums("9", 5, changes=1) for table in names.values()})
    known = {
        f"mirrors/yard/{name}": Mirror(table, f"mirrors/yard/{name}", ("id",), (Column("id", "id", "int64"),))
        for name, table in names.items()
    }

    def snapshot(name: str) -> Snapshot:
        if name.endswith("torn"):
            raise UnreadableError("the table's log is damaged")
        return Snapshot(3, {"yard/gold/mirrors/yard/depot/0": 2})

    lake: Any = SimpleNamespace(
        pipeline=pipeline, snapshot=snapshot, writer=lambda *parts: "/".join(map(str, ("yard", *parts)))
    )
    assert {"mirrors/yard/depot": 2} == incomplete(lake, books, known, known.keys(), ())


def test_a_paused_mirror_waits_and_catches_up(tmp_path: Path) -> None:
    """What came meanwhile is folded by the first run after the pause, and nothing of it before."""
    mine = Shops(tmp_path, TableRule(match="shop_1.item"))
    assert ("done", "") == mine.say(1, "INSERT", 1, "a").run()
    [mirror] = mirrors.known(mine.lake).values()
    pauses.decide(mine.lake, mirror, decisions.PAUSE, "")
    for key in (2, 3):
        assert ("paused", pauses.PAUSED) == mine.say(1, "INSERT", key, "b").run()
    assert ("paused", pauses.PAUSED) == mine.run(), "without anything new"
    assert {1: "a"} == mine.rows(mirror.path)
    pauses.decide(mine.lake, mirror, decisions.RESUME, "")
    assert ("done", "") == mine.run()
    assert {1: "a", 2: "b", 3: "b"} == mine.rows(mirror.path)


def test_a_mirror_that_cannot_be_read_does_not_keep_the_others_from_being_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ingest plan` ended with that mirror's error, and said nothing of the tables that a run would fold."""
    mine = Shops(tmp_path, TableRule("*"))
    mine.say(1, "INSERT", 1, "a").say(2, "INSERT", 1, "a").run()
    lines = [
        Line(2, "s", None, None, f"shop_{shop}", None, "item", changes=1, messages=1, columns={"id": "int64"})
        for shop in (1, 2)
    ]
    read = Lake.snapshot

    def snapshot(self: Lake, name: str) -> Snapshot:
        if name == "mirrors/shop_1/item":
            raise UnreadableError("the table's log is damaged at 7.json")
        return read(self, name)

    monkeypatch.setattr(Lake, "snapshot", snapshot)
    torn, good = foresee(mine.pipeline, lake_state(mine.lake), lines, ())
    assert ("shop_1.item", "hold") == (torn.mirror, torn.action)
    assert "the table's log is damaged at 7.json" in torn.why
    assert ("shop_2.item", "fold") == (good.mirror, good.action)


def test_a_mirror_that_another_server_would_hold_is_planned_so(tmp_path: Path) -> None:
    """`ingest plan` said that the change would be folded, and the run held it."""
    mine = Shops(tmp_path, TableRule("*", keys=("id",)))
    lines = [
        Line(1, "s", "t", part, "shop_1", None, "item", changes=1, messages=1, columns={"id": "int64"},
             servers={f"0 server {server}": 7})
        for part, server in enumerate("ab")
    ]  # fmt: skip
    [same] = foresee(mine.pipeline, lake_state(mine.lake), lines[:1], ())
    [held] = foresee(mine.pipeline, lake_state(mine.lake), lines, ())
    assert ("create", "hold") == (same.action, held.action), same.why
    assert "were counted by server a and are now counted by server b" in held.why
