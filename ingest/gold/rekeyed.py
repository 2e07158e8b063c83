"""A lane whose primary key has changed: rewrite its history under its last key.

The changes of earlier eras are folded under their own keys, era by era; the rows that exist where an era ends are
treated as inserts at that place. From there on it is a lane like any other. The rules are in `ingest.gold.past_keys`,
which does the same with a history that fits into memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from ingest.change import LaneId
from ingest.errors import HeldError
from ingest.fold import Placed, Row, SchemaStep, copies
from ingest.gold import past_keys, refold
from ingest.gold.past_keys import Ending
from ingest.lake.mirrors import Column as MirrorColumn
from ingest.lake.mirrors import Era, Mirror
from ingest.lake.stamps import change_of
from ingest.order import order_of

_LIVE = pa.schema([(name, pa.string()) for name in ("place", "after", "types", "key")])
Rows = Iterator[pa.RecordBatch]


def rebased(
    mine: DataFrame,
    mirror: Mirror,
    key_eras: tuple[Era, ...],
    steps: tuple[SchemaStep, ...],
    batch: int,
    *,
    links: bool,
    lane: LaneId,
    shared_reads: bool = False,
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
        shared_reads: rows of its snapshots share a position.

    Raises:
        HeldError: a row that exists where an era ends has no usable key in the next one, or two rows have the same.
    """
    rows, place = mine.where(F.col("op") != "truncate"), F.col("order_key")
    cleared = mine.where(F.col("op") == "truncate").select("order_key").collect()
    truncates = [row["order_key"] for row in cleared]
    logical = {one.name: one.type for one in mirror.columns}
    base: DataFrame | None = None
    for ending in past_keys.endings(key_eras, steps, truncates, logical):
        part = rows.where((place > ending.begins) & (place <= ending.ends))
        part = part if base is None else part.unionByName(base)
        beyond = refold.Beyond(tuple(filter(ending.has, truncates)), ending.steps)
        run = partial(_run, ending, beyond, shared_reads)
        live = _grouped(part, mirror, ending, links).mapInArrow(run, from_arrow_schema(_LIVE))
        live = live.localCheckpoint()
        _refuse(live, ending, lane)
        base = _inserts(live, mine, batch)
        if ending.keys:  # only the next key can identify the rows of changes without a usable one
            base = base.unionByName(refold.without_key(part, _mirror(mirror, ending)))
    rest = mine.where(place > key_eras[-1].place)
    return rest if base is None else rest.unionByName(base)


def _grouped(rows: DataFrame, mirror: Mirror, ending: Ending, links: bool) -> DataFrame:
    """The changes of each key, contiguous and in order; without a key all in one piece."""
    if not ending.keys:
        whole = rows.select(F.lit(0).alias("group"), *refold.ROW)
        return whole.repartition(1).sortWithinPartitions("order_key")
    keyed = refold.keyed_rows(rows, _mirror(mirror, ending), refold.ROW)
    return refold.grouped(keyed, keyed.select("key").distinct(), links, refold.ROW)


def _mirror(mirror: Mirror, ending: Ending) -> Mirror:
    columns = tuple(MirrorColumn(key, key, logical) for key, logical in ending.keys.items())
    return replace(mirror, keys=tuple(ending.keys), columns=columns)


def _run(ending: Ending, beyond: refold.Beyond, shared_reads: bool, batches: Rows) -> Rows:
    """For ``mapInArrow``: the rows that exist where an era ends, each with a place of its own and its next key."""
    task = TaskContext.get()
    first = (task.partitionId() if task else 0) << 40
    found = (
        (
            past_keys.inserted(ending.ends, number),
            json.dumps(row.values, ensure_ascii=False),
            json.dumps(dict(row.types)),
            None if (key := ending.next_key(row.values)) is None else repr(key),
        )
        for number, row in enumerate(_live(ending, beyond, shared_reads, batches), first)
    )
    return refold.batches_of(found, _LIVE)


def _live(ending: Ending, beyond: refold.Beyond, shared_reads: bool, batches: Rows) -> Iterable[Row]:
    keys, events = tuple(ending.keys), beyond.events
    if not keys:
        every = (row for rows in refold.groups(batches) for row in rows)
        placed = (Placed(order_of(row["order_key"]), change_of(row)) for row in every)
        return copies([*placed, *events], shared_reads=shared_reads)
    ends = (refold.states(rows, keys, ending.keys, events) for rows in refold.groups(batches))
    return (row for states in ends for _, row in states if row is not None)


def _refuse(live: DataFrame, ending: Ending, lane: LaneId) -> None:
    if not ending.next_keys:
        return
    if row := live.where("key IS NULL").first():
        raise HeldError(past_keys.without_key(ending, row["after"], lane))
    same = live.groupBy("key").agg(F.count("*").alias("n"), F.first("after").alias("after"))
    if row := same.where("n > 1").first():
        raise HeldError(past_keys.same_key(ending, row["n"], row["after"], lane))


def _inserts(live: DataFrame, mine: DataFrame, batch: int) -> DataFrame:
    """The rows as changes."""
    given: Mapping[str, Column] = {
        "kind": F.lit("change"),
        "batch": F.lit(batch),
        "op": F.lit("insert"),
        "order_key": F.col("place"),
        "after": F.col("after"),
        "types": F.col("types"),
        "partial": F.lit(False),
        "row": F.lit(0),
        "note": F.lit("the row as it was when the primary key changed"),
    }
    return live.select(
        *[given.get(one.name, F.lit(None)).cast(one.dataType).alias(one.name) for one in mine.schema]
    )
