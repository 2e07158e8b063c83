"""Each mirror goes on from its own progress: one that waits slows no other, one that lost batches gets them back."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.config.model import TableRule
from tests.gold.depot import Depot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.e2e]


def other(depot: Depot, number: int) -> Depot:
    """A row of a second table."""
    row = {"data": [{"id": str(number)}], "mysqlType": {"id": "int"}, "pkNames": ["id"]}
    return depot.say(table="other", isDdl=False, type="INSERT", old=None, sql="", **row)


def test_a_held_mirror_costs_the_others_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every tick would read all lines since, and ask the log of every mirror touched since, without end."""
    from ingest.gold.approval import approve_or_dismiss, listed
    from ingest.gold.plan import work
    from ingest.run import Warm
    from ingest.tables.lake import Lake

    counted: Counter[str] = Counter()
    one_line, one_look = work._line, Lake.snapshot

    def line(row: dict[str, Any]) -> Any:
        counted["lines"] += 1
        return one_line(row)

    def look(lake: Lake, name: str) -> Any:
        counted["mirrors"] += name.startswith("mirrors/")
        return one_look(lake, name)

    monkeypatch.setattr(work, "_line", line)
    monkeypatch.setattr(Lake, "snapshot", look)
    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.*", on_schema_change="freeze"))
    other(depot.row(id="1", n="1"), 0).run()
    statement = depot.ddl("ALTER TABLE depot ADD COLUMN gate INT DEFAULT 7").row(id="2", n="2", gate="3")
    assert "held" == statement.run()[0]
    spent = []
    for number in range(1, 4):
        depot.row(id=str(2 + number), n="0", gate="0")
        counted.clear()
        assert "held" == other(depot, number).run()[0]
        spent.append(dict(counted))
    assert spent[:1] * 3 == spent
    assert 2 == spent[0]["lines"]
    assert [0, 1, 2, 3] == [row["id"] for row in depot.rows("other")]
    assert [1] == [row["id"] for row in depot.rows()]

    depot.warm = Warm()  # another process takes over
    approve_or_dismiss(depot.lake(), listed(depot.lake())[-1].statement.id, "approve", "agreed")
    assert ("done", "") == depot.run()
    assert [(1, 7), (2, 3), (3, 0), (4, 0), (5, 0)] == [(row["id"], row["gate"]) for row in depot.rows()]
    assert ("idle", "") == depot.run()


def test_a_mirror_that_lost_batches_gets_them_back(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that was deleted, or a fold that failed, would come back with the newest rows alone."""
    from ingest.gold.apply import merge
    from ingest.inspect import status as look
    from ingest.run import Warm

    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.*"), apply="merge")
    other(depot.row(id="1", n="1"), 0).run()
    with monkeypatch.context() as patch:
        patch.setattr(merge, "merge", lambda *_given, **_named: 1 / 0)
        assert "failed" == depot.row(id="2", n="2").run()[0]
    other(depot, 1).run()
    assert [1, 2] == [row["id"] for row in depot.rows()]
    assert ("idle", "") == depot.run()

    shutil.rmtree(tmp_path / "lake" / "mirrors" / "yard" / "depot")
    states = {one["table"]: (one["state"], one["message"]) for one in look.tables(depot.lake())}
    assert ("ok", "") == states["yard.other"]
    assert "failed" == states["yard.depot"][0]
    assert "`ingest retry" in states["yard.depot"][1]
    assert ("done", "") == depot.row(id="3", n="3").run()
    assert [(1, 1), (2, 2), (3, 3)] == [(row["id"], row["n"]) for row in depot.rows()]
