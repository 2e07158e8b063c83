"""The ledger of decisions: its order and its names."""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.change import TableId
from ingest.config import load
from ingest.ledgers import condensed, decisions, epochs, mirrors, pauses, rejects
from ingest.ledgers.condensed import Condensed
from ingest.ledgers.decisions import APPROVE, DISMISS, Decision
from ingest.ledgers.logged_statements import decided, statement_id
from ingest.ledgers.mirrors import Mirror
from ingest.ledgers.starts import Start
from ingest.tables.lake import Lake
from ingest.tables.schemas import BRONZE, REJECTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ORDERS = Mirror(TableId("shop", None, "orders"), "mirrors/shop/orders", ("id",))
NOON = dt.datetime(2024, 5, 1, 12, 0, tzinfo=dt.UTC)
STATEMENT = {"batch": 4, "source": "s", "topic": "t", "partition": 0, "offset": 0, "row": 0}
REJECT = {
    "kind": "message",
    "batch": 4,
    "source": "s",
    "topic": "t",
    "partition": 0,
    "offset": 0,
    "reason": "bad-json",
}


def decision_on(lake: Lake, row: dict[str, Any]) -> str:
    """The decision on a statement's row."""
    return decided(lake).get((statement_id(row), row["batch"]), "")


def lake_in(spark: SparkSession, folder: Path) -> Lake:
    """An empty lake."""
    file = folder / "shop.yaml"
    file.write_text(
        "pipeline: shop\nlake: ./lake\nengine: auto\nsources: [{name: s, kind: files, path: ./x, format: dts-canal}]\n"
    )
    return Lake(spark, load(file))


def plant(lake: Lake, schema: Any, rows: list[dict[str, Any]]) -> None:
    """Append rows given by the columns that they have."""
    lake.append_unguarded([tuple(row.get(name) for name in schema.columns.names) for row in rows], schema)


def test_a_clock_that_steps_back_revives_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: Any
) -> None:
    """A pause that outlives its end, or an old schema, would come back with the clocks' hour in autumn."""
    lake = lake_in(spark, tmp_path)
    moments = iter(NOON - dt.timedelta(minutes=n) for n in range(20))
    monkeypatch.setattr(Lake, "now", lambda _lake: next(moments))
    start = Start(3)
    pauses.decide(lake, ORDERS, decisions.PAUSE, "")
    pauses.decide(lake, ORDERS, decisions.RESUME, "")
    epochs.record_start(lake, "s", start, "")
    epochs.record_start(lake, "s", start, "", valid=False)
    condensed.record(lake, Condensed(7, {}), "")
    condensed.record(lake, Condensed(), "")
    later = Mirror(ORDERS.table, ORDERS.path, ("id", "day"))
    decisions.append(lake, [mirrors.decision(ORDERS, 9, "seen"), mirrors.decision(later, 8, "rebuilt")])
    for verb in (APPROVE, DISMISS):
        decisions.append(lake, [Decision(verb, ORDERS.path, {"statement": statement_id(STATEMENT)}, 4)])

    assert frozenset() == pauses.paused(lake)
    assert {} == epochs.read(lake).starts
    assert Condensed() == condensed.read(lake)
    assert {ORDERS.path: later} == mirrors.known(lake)
    assert DISMISS == decided(lake)[statement_id(STATEMENT), 4]


def test_each_version_is_read_once(spark: SparkSession, tmp_path: Path, monkeypatch: Any) -> None:
    """Six readers of the decisions would be six Spark jobs in each tick."""
    lake = lake_in(spark, tmp_path)
    pauses.decide(lake, ORDERS, decisions.PAUSE, "")
    reads = []
    original = decisions._read
    monkeypatch.setattr(decisions, "_read", lambda lake: (reads.append(1), original(lake))[1])
    for look in (pauses.paused, epochs.read, condensed.read, mirrors.known, decided):
        look(lake)
    assert 1 == len(reads)
    pauses.decide(lake, ORDERS, decisions.RESUME, "")
    assert (frozenset(), 2) == (pauses.paused(lake), len(reads))


def test_a_topic_made_again_inherits_no_decision(spark: SparkSession, tmp_path: Path) -> None:
    """Its offsets start again: a new statement or reject at an old place would be settled unseen."""
    lake = lake_in(spark, tmp_path)
    decisions.append(lake, [Decision(DISMISS, ORDERS.path, {"statement": statement_id(STATEMENT)}, 4)])
    again = {**STATEMENT, "batch": 9}
    assert {(statement_id(STATEMENT), 4): DISMISS} == decided(lake)
    assert statement_id(STATEMENT) != statement_id(again)

    replayed = {**REJECT, "offset": 1}
    plant(lake, REJECTS, [REJECT, {**REJECT, "batch": 9}, replayed, {**replayed, "batch": 9}])
    plant(lake, BRONZE, [{**replayed, "kind": "replay", "batch": 5, "value": b'{"batch": 4}'}])
    found = lake.read(REJECTS.name)
    rejects.dismiss(lake, [found.where("batch = 4 AND offset = 0").collect()[0].asDict()], "known")
    waiting = rejects.still_open(lake)
    assert waiting is not None
    assert [(9, 0), (9, 1)] == sorted((row["batch"], row["offset"]) for row in waiting.collect())


def test_a_dismissed_cell_closes_no_later_one(spark: SparkSession, tmp_path: Path) -> None:
    """Every later misfit of that cell would be closed unseen."""
    lake = lake_in(spark, tmp_path)
    cell = {
        "kind": "cell",
        "batch": 4,
        "source": "s",
        "table": "t",
        "key": '{"id":"1"}',
        "column": "n",
        "raw": "x",
    }
    texts = [cell, {**cell, "raw": "y"}, {**cell, "batch": 5}, {**cell, "offset": 7, "topic": "t"}]
    plant(lake, REJECTS, texts)
    found = lake.read(REJECTS.name)
    rejects.dismiss(
        lake, [found.where("batch = 4 AND raw = 'x' AND topic IS NULL").collect()[0].asDict()], "known"
    )
    waiting = rejects.still_open(lake)
    assert waiting is not None
    assert [(4, "x", 7), (4, "y", None), (5, "x", None)] == sorted(
        (row["batch"], row["raw"], row["offset"]) for row in waiting.collect()
    )


def test_threads_that_need_a_table_first_create_it_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: Any
) -> None:
    """Two mirrors with a cell that does not fit would both create `rejects`, and one of them fail."""
    lake = lake_in(spark, tmp_path)
    meeting = threading.Barrier(2)
    original = Lake._writing

    def writing(self: Lake, *given: Any) -> Any:
        with contextlib.suppress(threading.BrokenBarrierError):
            meeting.wait(2)  # both have seen that there is no table
        return original(self, *given)

    monkeypatch.setattr(Lake, "_writing", writing)
    frame = spark.createDataFrame([("cell",)], "kind STRING")
    with ThreadPoolExecutor(2) as pool:
        done = [pool.submit(lake.append, frame, REJECTS, f"gold/{name}/0", 1) for name in "ab"]
    assert [True, True] == [one.result() for one in done]
    assert 2 == lake.read(REJECTS.name).count()
