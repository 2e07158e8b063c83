"""Keys in the Spark fold against the plain one: cells that are absent, NULL or no value of their type."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.change import Change, Op, TableId
from ingest.fold import Key, KeyCellError, Placed, Table, fold, key_of_change, may_change_key, steps
from ingest.lake.mirrors import Column, Mirror
from ingest.order import Order, order_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

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


def test_both_folds_agree_on_keys(spark: SparkSession, tmp_path: Path) -> None:
    """A NULL in the new image is not a missing cell: read from the old image, the change moves another row."""
    from ingest.gold.lane import ChangeKinds
    from ingest.gold.spark_fold import GONE, events, key_cells, key_name, outcomes, value_name

    placed = [event for case in cases() for event in case]
    frame(spark, placed).write.parquet(str(tmp_path / "c"))
    changes = spark.read.parquet(str(tmp_path / "c"))
    kinds = ChangeKinds()
    happened = outcomes(events(changes, MIRROR, kinds, tolerant=True), MIRROR, kinds)
    rows: dict[Key, Any] = {
        (row[key_name(0)], row[key_name(1)]): row[value_name(2)]
        for row in happened.where(f"NOT `{GONE}`").collect()
    }
    plain = {key: row.values.get("n") for key, row in fold(placed, MIRROR.keys, TYPES).items()}
    assert plain == rows
    parsed, fits, _ = key_cells(changes, MIRROR)
    bad = parsed.where(~fits | fits.isNull()).select("order_key").collect()
    assert rejected(placed) == {row["order_key"] for row in bad}
    assert len(rejected(placed)) > 50


def concerned(change: Change) -> tuple[Any, ...] | None:
    """The keys of a change by the plain rule, as texts; None if it is rejected."""
    try:
        found = key_of_change(change, MIRROR.keys, {})
    except KeyCellError:
        return None
    return found.key, found.left or found.key


def test_every_reader_of_changes_asks_one_rule(spark: SparkSession) -> None:
    """Compaction, checks and the fold would silently lose rows if their keys differed for NULL or absent cells."""
    from pyspark.sql import functions as F

    from ingest.lake.images import image
    from ingest.lake.keys import key_texts

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
