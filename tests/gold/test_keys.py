"""Keys in the fold against the plain one: cells that are absent, NULL or no value of their type, or equal by other texts."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ingest.change import Change, Op, TableId
from ingest.config.model import TableRule
from ingest.fold import KeyCellError, Placed, Table, fold, key_of_change, may_change_key, steps
from ingest.gold.apply import planner
from ingest.gold.fold import arrow_fold
from ingest.gold.fold.arrow_work import LaneWork
from ingest.ledgers.mirrors import Column, Mirror
from ingest.order import Order, order_key
from ingest.run import Warm
from tests.gold.depot import Depot
from tests.gold.test_tasks import Cluster
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TYPES = {"shelf": "int64", "id": "int64"}
MIRROR = Mirror(
    TableId("yard", None, "box"),
    "mirrors/yard/box",
    ("shelf", "id"),
    (Column("shelf", "shelf", "int64"), Column("id", "id", "int64"), Column("n", "n", "string")),
)
CELLS: tuple[dict[str, str | None], ...] = ({}, {"id": None}, {"id": "1"}, {"id": "2"}, {"id": "x"})
NO_IMAGE = None


def cases() -> list[list[Placed]]:
    """For each shelf two existing rows, then one change with every kind of key cell in its images."""
    ops = [(op, partial) for op in (Op.READ, Op.INSERT, Op.UPDATE, Op.DELETE) for partial in (False, True)]
    images = (NO_IMAGE, *CELLS)
    found = []
    chosen = [
        one for one in itertools.product(ops, images, images) if one[1] is not None or one[2] is not None
    ]
    for shelf, ((op, partial), before, after) in enumerate(chosen):
        own = {"shelf": str(shelf)}
        rows = [Change(op=Op.INSERT, after={**own, "id": key, "n": "old"}) for key in ("1", "2")]
        was = before if before is None else {**own, **before}
        now = after if after is None else {**own, **after, "n": "new"}
        rows.append(Change(op=op, before=was, after=now, partial=partial and op is Op.UPDATE))
        found.append([Placed(Order(0, 1, (i,), 0, (shelf, i), 0), row) for i, row in enumerate(rows)])
    return found


def frame(spark: SparkSession, events: list[Placed]) -> DataFrame:
    """Changes as `changes` holds them."""
    rows = [
        (
            order_key(event.order),
            str(event.change.op),
            event.change.partial,
            *(
                image if image is None else json.dumps(image)
                for image in (event.change.before, event.change.after)
            ),
            1,
            "t",
            0,
            i,
        )
        for i, event in enumerate(events)
    ]
    names = (
        "order_key STRING, op STRING, partial BOOLEAN, before STRING, after STRING, row INT, topic STRING, "
    )
    return spark.createDataFrame(rows, names + "`partition` INT, `offset` BIGINT")


def rejected(events: list[Placed]) -> set[str]:
    """The order keys of the changes that the plain fold rejects."""
    table = Table(MIRROR.keys, TYPES)
    return {
        order_key(step.event.order)
        for step in steps(table, events)
        if isinstance(step.event, Placed) and step.why.startswith("rejected")
    }


def arrow(events: list[Placed]) -> pa.Table:
    """Changes as the fold reads them."""
    sides = [
        [None if image is None else json.dumps(image) for image in (one.change.before, one.change.after)]
        for one in events
    ]
    return pa.table(
        {
            "order_key": [order_key(event.order) for event in events],
            "transaction": pa.array([None] * len(events), pa.string()),
            "op": [str(event.change.op) for event in events],
            "partial": [event.change.partial for event in events],
            "before": pa.array([before for before, _ in sides], pa.string()),
            "after": pa.array([after for _, after in sides], pa.string()),
            "batch": [1] * len(events),
        }
    )


@pytest.mark.parametrize("whole", [True, False], ids=["history", "news"])
def test_both_folds_agree_on_keys(whole: bool) -> None:
    """A NULL in the new image is not a missing cell: read from the old image, the change moves another row."""
    placed = [event for case in cases() for event in case]
    if not whole:  # such values are in the history only
        placed = [one for one in placed if not (one.change.partial and moves(one.change))]
    lane = LaneWork("s", MIRROR.table, 1, 1, whole=whole)
    found = arrow_fold.fold(arrow(placed), lane, MIRROR.keys, {**TYPES, "n": "string"})
    made, unusable = found.outcomes, found.rejected
    keys = [tuple(map(int, map(str, texts))) for texts in made.keys]
    rows = {key: row.get("n") for key, row in zip(keys, made.images, strict=True) if row is not None}
    plain = {key: row.values.get("n") for key, row in fold(placed, MIRROR.keys, TYPES).items()}
    assert plain == rows
    assert rejected(placed) == set(unusable["order_key"].to_pylist())
    assert len(rejected(placed)) > 50


def moves(change: Change) -> bool:
    """True if the change leaves another key."""
    try:
        return key_of_change(change, MIRROR.keys, TYPES).left is not None
    except KeyCellError:
        return False


@pytest.mark.parametrize("by_tasks", [False, True], ids=["process", "parts"])
def test_numbers_with_a_point_and_truths_are_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_tasks: bool
) -> None:
    """-0.0 is 0.0 and NaN is NaN to the definition: told apart, an update would add a second row of its key."""
    monkeypatch.setattr(planner, "CHANGES_AT_MOST", 3 if by_tasks else 500_000)
    rule = TableRule("yard.*", keys=("id", "on"), columns={"id": "float64", "on": "boolean"})
    engine = "spark" if by_tasks else "auto"
    depot = Depot(Cluster() if by_tasks else unstarted(), tmp_path, Warm(), rule, engine=engine)  # type: ignore[arg-type]
    for number in ("0", "-0.0", "NaN", "1.5"):
        depot.row(id=number, on="true", n="1").row(id=number, on="false", n="2")
    assert ("done", "") == depot.run()
    depot.row("UPDATE", id="-0.0", on="true", n="3").row("UPDATE", id="NaN", on="true", n="4")
    depot.row("DELETE", id="1.50", on="false", n="2").row("INSERT", id="1e400", on="true", n="9")
    assert ("done", "") == depot.run()
    assert "" == depot.why_merge
    shown = 'SELECT CAST(id AS VARCHAR) AS i, "on" AS t, n FROM {mirror} ORDER BY ALL'
    rows = [tuple(row.values()) for row in depot.lake().ask_mirror("mirrors/yard/depot", shown)]
    assert [
        ("0.0", False, 2), ("0.0", True, 3), ("1.5", True, 1), ("nan", False, 2), ("nan", True, 4),
    ] == rows  # fmt: skip
    assert ["1e400"] == [
        json.loads(one["key"])["id"] for one in depot.lake().ask("SELECT key FROM {rejects}")
    ]


def concerned(change: Change) -> tuple[Any, ...] | None:
    """The keys of a change by the plain rule, as texts; None if it is rejected."""
    try:
        found = key_of_change(change, MIRROR.keys, {})
    except KeyCellError:
        return None
    return found.key, found.before


@pytest.mark.spark
def test_every_reader_of_changes_asks_one_rule(spark: SparkSession) -> None:
    """Compaction, checks and the fold would silently lose rows if their keys differed for NULL or absent cells."""
    from pyspark.sql import functions as F

    from ingest.tables.images import image
    from ingest.tables.keys import key_texts

    placed = [event for case in cases() for event in case]
    parsed = frame(spark, placed).withColumns(
        {"a": image("after", MIRROR.keys), "b": image("before", MIRROR.keys)}
    )
    own, left = (F.array(*texts) for texts in key_texts(MIRROR.keys))
    rows = parsed.select(own.alias("own"), left.alias("left")).collect()
    actual = [
        None if None in (*row["own"], *row["left"]) else (tuple(row["own"]), tuple(row["left"]))
        for row in rows
    ]
    expected = [concerned(event.change) for event in placed]
    assert expected == actual
    assert {True, False} == {pair is not None and pair[0] != pair[1] for pair in actual}


def test_the_books_count_every_change_that_may_leave_its_key() -> None:
    """Gold folds without looking at the image before where the books count no changed key."""
    for case in cases():
        change = case[-1].change
        keys = concerned(change)
        if change.before is not None and change.after is not None and keys is not None and keys[0] != keys[1]:
            assert may_change_key(change.before, change.after, MIRROR.keys)
            assert may_change_key(change.before, change.after, ())
