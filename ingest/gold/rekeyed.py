"""A lane whose primary key has changed: rewrite its history under its last key.

The changes of earlier eras are folded under their own keys, era by era; the rows that exist where an era ends are
treated as inserts at that place. From there on it is a lane like any other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from itertools import pairwise

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.change import TableId
from ingest.errors import HeldError
from ingest.fold import Placed, SchemaStep, copies
from ingest.fold import Row as PlainRow
from ingest.gold import past_keys, refold
from ingest.gold.cast import cast, key_is_exact
from ingest.gold.lane import change_of
from ingest.lake.images import image
from ingest.lake.mirrors import Column as MirrorColumn
from ingest.lake.mirrors import Era, Mirror
from ingest.order import order_of

_LIVE = "number BIGINT, after STRING, types STRING"
Rows = Iterator[pa.RecordBatch]


# --- folding earlier eras -------------------------------------------------------------------------


def rebased(
    mine: DataFrame,
    mirror: Mirror,
    key_eras: tuple[Era, ...],
    steps: tuple[SchemaStep, ...],
    batch: int,
    *,
    links: bool,
    lane: tuple[str, TableId],
) -> DataFrame:
    """A lane's changes with its earlier eras folded: their last rows, then the changes of the last era.

    Args:
        mine: all changes of the lane.
        mirror: with its columns as decided.
        key_eras: the lane's eras.
        steps: its schema steps; their ``order`` is an order key.
        batch: the batch that rows of earlier eras are assigned to.
        links: True if key changes inherit values.
        lane: the lane's source and table, for the command in an error.

    Raises:
        HeldError: a row that exists where an era ends has no usable key in the next one, or two rows have the same.
    """
    base: DataFrame | None = None
    cleared = _cleared(mine, steps)
    for era, after in pairwise(key_eras):
        if after.place <= cleared:  # no row of it exists
            continue
        part = mine.where((F.col("order_key") > era.place) & (F.col("order_key") <= after.place))
        events = [step.after(era.place) for step in steps if era.place < str(step.order) <= after.place]
        rows = part.where(F.col("op") != "truncate")
        truncates = [
            row["order_key"] for row in part.where(F.col("op") == "truncate").select("order_key").collect()
        ]
        if base is not None:
            rows = rows.unionByName(base)
        within = _within(mirror, era.keys, steps)
        beyond = refold.Beyond(tuple(truncates), tuple(events))
        images = _live(rows, within, beyond, links) if era.keys else _copies(rows, beyond)
        base = _inserts(images, mine, after.place, batch).localCheckpoint()
        if after.keys:
            _refuse(base, _within(mirror, after.keys, steps), era, lane)
    rest = mine.where(F.col("order_key") > key_eras[-1].place)
    return rest if base is None else rest.unionByName(base)


def _cleared(mine: DataFrame, steps: tuple[SchemaStep, ...]) -> str:
    """The place of the newest truncate or new table; empty if there was none."""
    newest = mine.where(F.col("op") == "truncate").agg(F.max("order_key").alias("at")).collect()[0]["at"]
    created = (str(step.order) for step in steps if step.action == "new_incarnation")
    return max([*created, newest or ""])


def _within(mirror: Mirror, keys: tuple[str, ...], steps: tuple[SchemaStep, ...]) -> Mirror:
    """The mirror under an earlier key, whose columns may have other names by now."""
    known = past_keys.key_types({one.name: one.type for one in mirror.columns}, keys, steps)
    columns = tuple(MirrorColumn(key, key, logical) for key, logical in known.items())
    return replace(mirror, keys=keys, columns=columns)


def _live(rows: DataFrame, within: Mirror, beyond: refold.Beyond, links: bool) -> DataFrame:
    """The rows that exist after all changes, as images."""
    keyed = refold.keyed_rows(rows, within, refold.ROW)
    wanted = keyed.select("key").distinct()
    grouped = refold.grouped(keyed, wanted, links, refold.ROW)
    return grouped.mapInArrow(_folder(within, beyond), _LIVE)


def _folder(within: Mirror, beyond: refold.Beyond) -> Callable[[Rows], Rows]:
    types = {one.name: one.type for one in within.columns}

    def live(batches: Rows) -> Iterator[PlainRow]:
        events: list[Placed | SchemaStep] = beyond.events
        for rows in refold.groups(batches):
            for _, row in refold.states(rows, within.keys, types, events):
                if row is not None:
                    yield row

    return lambda batches: _numbered(live(batches))


def _copies(rows: DataFrame, beyond: refold.Beyond) -> DataFrame:
    """The rows at the end of an era without a key, each as often as it exists, folded in one piece."""
    whole = rows.select(F.lit(0).alias("group"), *refold.ROW).repartition(1).sortWithinPartitions("order_key")

    def run(batches: Rows) -> Rows:
        every = (row for rows in refold.groups(batches) for row in rows)
        changes = [Placed(order_of(row["order_key"]), change_of(row, ())) for row in every]
        return _numbered(copies([*changes, *beyond.events]))

    return whole.mapInArrow(run, _LIVE)


def _numbered(live: Iterator[PlainRow]) -> Rows:
    """Rows as JSON, each with its own number and the types of its values."""
    task = TaskContext.get()
    first = (task.partitionId() if task else 0) << 40
    rows = [(json.dumps(row.values, ensure_ascii=False), json.dumps(dict(row.types))) for row in live]
    numbers = pa.array(range(first, first + len(rows)), pa.int64())
    texts = [pa.array([row[at] for row in rows], pa.string()) for at in range(2)]
    yield pa.RecordBatch.from_arrays([numbers, *texts], names=["number", "after", "types"])


def _inserts(images: DataFrame, mine: DataFrame, place: str, batch: int) -> DataFrame:
    """Images as inserts just before a place, each with its own position."""

    def run(batches: Rows) -> Rows:
        for rows in batches:
            keys = [past_keys.inserted(place, number) for number in rows.column("number").to_pylist()]
            yield pa.RecordBatch.from_arrays(
                [pa.array(keys, pa.string()), rows.column("after"), rows.column("types")],
                names=["k", "after", "types"],
            )

    given: Mapping[str, Column] = {
        "kind": F.lit("change"),
        "batch": F.lit(batch),
        "op": F.lit("insert"),
        "order_key": F.col("k"),
        "after": F.col("after"),
        "types": F.col("types"),
        "partial": F.lit(False),
        "row": F.lit(0),
        "note": F.lit("the row as it was when the primary key changed"),
    }
    return images.mapInArrow(run, "k STRING, after STRING, types STRING").select(
        *[given.get(one.name, F.lit(None)).cast(one.dataType).alias(one.name) for one in mine.schema]
    )


def _refuse(base: DataFrame, within: Mirror, era: Era, lane: tuple[str, TableId]) -> None:
    parsed = base.select("after", image("after", within.keys).alias("a"))
    cells = []
    for one in within.key_columns:
        text = F.col("a")[one.name]
        exact = key_is_exact(text, one.type)
        cells.append(cast(text, one.type) if exact is None else F.when(exact, cast(text, one.type)))
    there = reduce(lambda a, b: a & b, [cell.isNotNull() for cell in cells])
    keyed = parsed.select(
        "after", there.alias("there"), *[cell.alias(f"k{i}") for i, cell in enumerate(cells)]
    )
    without = keyed.where("NOT there").select("after").limit(1).collect()
    if without:
        raise HeldError(past_keys.without_key(era.keys, within.keys, without[0]["after"], lane))
    twice = (
        keyed.groupBy(*[f"k{i}" for i in range(len(cells))])
        .agg(F.count("*").alias("n"), F.first("after").alias("after"))
        .where("n > 1")
        .limit(1)
        .collect()
    )
    if twice:
        raise HeldError(past_keys.same_key(era.keys, within.keys, twice[0]["n"], twice[0]["after"], lane))
