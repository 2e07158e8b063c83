"""Tables without any key: rows appended (``no_key: append``) or kept as a multiset (``full_row``).

``append``: each insert or read adds a row; updates and deletes are counted, not applied.  A truncate empties the table;
new columns have no values in existing rows.

``full_row``: an insert or read adds one row, a delete takes one row equal to its image, an update does
both.  A row that is not there cannot be removed. For equal rows this is a sequence of +1 and -1 that never goes below
zero; its end is the last running sum minus the lowest one (if below zero), so plain SQL computes it.

A repetition (equal place, equal content) counts once if the dialect has positions; without them, and in a snapshot with
one place for all its rows, it cannot be distinguished from a second equal row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from ingest.fold import SchemaStep
from ingest.gold import misfits
from ingest.gold.cast import cast
from ingest.gold.gather import clearing, history_of, of_lane
from ingest.gold.keyless_arrow import ADDING, halves_of
from ingest.gold.merge import Guard, compared
from ingest.gold.past_keys import LaneEvent
from ingest.gold.planner import Work
from ingest.gold.refold import ROW, batches_of
from ingest.gold.spark_fold import MISFIT, value_name
from ingest.gold.staged import GONE, sent_name
from ingest.lake import exact
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Mirror
from ingest.lake.names import literal, quoted
from ingest.lake.schemas import CHANGES
from ingest.lake.stamps import change_of
from ingest.order import place_sql

if TYPE_CHECKING:
    from ingest.gold.mirror_schema import Plan

# Next to a mirror's columns, whose names cannot contain a percent sign.
ADDS, PART, BATCH, ORDER, CONTENT, TAKEN = "%adds", "%part", "%batch", "%order", "%content", "%taken"
COPIES, STANDING, NUMBER, PLACE = "%n", "%m", "%number", "%place"


def fold(lake: Lake, plan: Plan, work: Work, guard: Guard, *, again: bool) -> dict[str, int]:
    """Fold a mirror without key in one guarded commit; returns counts of what was not applied.

    If it is folded ``again``, ``work`` holds everything, and the table is replaced, columns included.
    """
    unfit = misfits.meeting(
        lambda tolerant: _fold(lake, plan, work, guard, tolerant=tolerant, again=again),
        lambda: _keep_misfits(lake, plan, work, guard.batch),
    )
    return not_applied(plan, work) | unfit


def _fold(lake: Lake, plan: Plan, work: Work, guard: Guard, *, tolerant: bool, again: bool) -> None:
    mirror, appends = plan.mirror, _appends(plan)
    floors = [clearing(of_lane(lake.read(CHANGES.name), one), one, steps) for one, steps in work]
    from_scratch = (
        again or any(new for _, new in floors) or (not appends and any(steps.new for _, steps in work))
    )
    path = lake.path(mirror.path)
    happened = _happened(lake, plan, work, [floor for floor, _ in floors], tolerant)
    if appends:
        first = min(one.first for one, _ in work)
        rows = happened if from_scratch else happened.where(F.col(BATCH) >= first)
    elif from_scratch:
        rows = _counted(happened, mirror).select("*", F.explode(F.array_repeat(F.lit(True), F.col(COPIES))))
    else:
        _merge(lake, mirror, happened, work, guard)
        return
    rows = rows.select(*[quoted(one.column) for one in mirror.columns])
    if again:
        guard.replace(rows, path)
    elif from_scratch:
        lanes = _of_lanes(mirror, work)
        guard.write(rows, path, "overwrite", **({} if lanes == "true" else {"replaceWhere": lanes}))
    else:
        guard.write(rows, path, "append")


def _appends(plan: Plan) -> bool:
    return plan.job.rule.no_key == "append"


def _of_lanes(mirror: Mirror, work: Work) -> str:
    """A SQL condition that holds only for the rows of these lanes."""
    shards = [one.shard for one, _ in work if one.shard is not None]
    if not shards:
        return "true"
    column = next(one.column for one in mirror.columns if one.name == shards[0][0])
    return f"{quoted(column)} IN ({', '.join(literal(value) for _, value in shards)})"


def not_applied(plan: Plan, work: Work) -> dict[str, int]:
    """The number of updates and deletes that rows which are only appended ignore."""
    if plan.mirror.keys or not _appends(plan):
        return {}
    first = {(one.source, one.table): one.first for one, _ in work}
    lines = [
        line for name, lines in plan.job.lines.items() for line in lines if line.batch >= first.get(name, 0)
    ]
    found = {
        "updates_not_applied": sum(x.updates for x in lines),
        "deletes_not_applied": sum(x.deletes for x in lines),
    }
    return {name: count for name, count in found.items() if count}


# --- what happened --------------------------------------------------------------------------------


def _happened(lake: Lake, plan: Plan, work: Work, floors: Sequence[str | None], tolerant: bool) -> DataFrame:
    """Rows inserted (+1) or deleted (-1), typed, of all batches, without repetitions."""
    frames = []
    for (one, lane_steps), floor in zip(work, floors, strict=True):
        mine, own = history_of(lake.read(CHANGES.name), plan.mirror, one, lane_steps)
        mine = mine.where(F.col("op") != "truncate")
        if floor is not None:
            mine = mine.where(F.col("order_key") > floor)
        texts = _texts(_once(mine, shared_reads=one.shared_reads), plan, () if _appends(plan) else own.ever)
        frames.append(texts.select(ADDS, PART, BATCH, ORDER, *_typed(plan.mirror, tolerant)))
    return reduce(DataFrame.unionByName, frames)


def _once(mine: DataFrame, *, shared_reads: bool) -> DataFrame:
    """Each change once, as first delivered: `ingest.fold.identity` in SQL."""
    key = F.col("order_key")
    by_arrival = (F.col("op") == "read") & F.lit(shared_reads)
    place = F.when(~by_arrival, F.expr(place_sql("order_key")))
    placed = mine.withColumn(PLACE, F.coalesce(place, key))
    same = Window.partitionBy(PLACE, "row", "op", "before", "after").orderBy("batch", key)
    return placed.withColumn(NUMBER, F.row_number().over(same)).where(F.col(NUMBER) == 1)


def _texts(mine: DataFrame, plan: Plan, steps: Sequence[SchemaStep]) -> DataFrame:
    """Rows inserted or deleted, with every column's text after all schema steps; inserted ones alone if rows are appended."""
    names = [one.name for one in plan.mirror.columns]
    schema = pa.schema(
        {ORDER: pa.string(), PART: pa.int32(), BATCH: pa.int64(), ADDS: pa.int32()}
        | {value_name(i): pa.string() for i in range(len(names))}
    )

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in batch.to_pylist())
        events = (LaneEvent(row["order_key"], row["batch"], change_of(row)) for row in rows)
        halves = ((*half[:4], *half.texts) for half in halves_of(events, names, steps))
        return batches_of(halves, schema)

    wanted = mine.where(F.col("op").isin(*map(str, ADDING))) if _appends(plan) else mine
    return wanted.select(*ROW, "batch").mapInArrow(run, from_arrow_schema(schema))


def _typed(mirror: Mirror, tolerant: bool) -> list[Column]:
    found = []
    for i, one in enumerate(mirror.columns):
        text = F.col(value_name(i))
        value = cast(text, one.type)
        if not tolerant and misfits.can_misfit(one.type):
            value = F.when(text.isNotNull() & value.isNull(), F.raise_error(F.lit(MISFIT))).otherwise(value)
        found.append(value.alias(one.column))
    return found


# --- what becomes of it ---------------------------------------------------------------------------


def _content(mirror: Mirror) -> Column:
    """What distinguishes a row from every other: the exact texts of its cells."""
    return exact.content((F.col(quoted(one.column)), one.delta) for one in mirror.columns)


def _counted(happened: DataFrame, mirror: Mirror, first: int = 0) -> DataFrame:
    """How often each content exists at the end, if batches from ``first`` on concern it: its last running sum minus the
    lowest one, if below zero.
    """
    walk = Window.partitionBy(CONTENT).orderBy(ORDER, PART)
    sums = happened.withColumn(CONTENT, _content(mirror)).withColumn(NUMBER, F.sum(ADDS).over(walk))
    columns = [F.first(quoted(one.column)).alias(one.column) for one in mirror.columns]
    ended = F.max_by(NUMBER, F.struct(ORDER, PART)) - F.least(F.lit(0), F.min(NUMBER))
    counted = sums.groupBy(CONTENT).agg(*columns, ended.cast("int").alias(COPIES), F.max(BATCH).alias(BATCH))
    return counted.where(F.col(BATCH) >= first)


def _merge(lake: Lake, mirror: Mirror, happened: DataFrame, work: Work, guard: Guard) -> None:
    """Set each touched content's number of rows; contents with the right number are not touched."""
    names = [quoted(one.column) for one in mirror.columns]
    wanted = _counted(happened, mirror, min(one.first for one, _ in work))
    rows = lake.read(mirror.path)
    existing = rows.groupBy(_content(mirror).alias("%s")).agg(F.count("*").alias(STANDING))
    joined = wanted.join(existing, F.col(CONTENT) == F.col("%s"), "left")
    n, m = F.col(COPIES), F.coalesce(STANDING, F.lit(0))
    # Deletes are sent only if there is a row: for unmatched ones Delta 4.4 fails with "Unexpected row".
    taken = F.array_repeat(F.lit(True), F.when(m > 0, 1).otherwise(0))
    copies = F.concat(taken, F.array_repeat(F.lit(False), n))
    sent = [sent_name(i) for i in range(len(names))]
    source = joined.where(n != m).select(*names, F.explode(copies).alias(TAKEN)).toDF(*sent, TAKEN)
    pairs = [(name, f"s.{quoted(one)}") for name, one in zip(names, sent, strict=True)]
    equal = " AND ".join(
        f"{compared(f't.{name}', one)} <=> {compared(value, one)}"
        for (name, value), one in zip(pairs, mirror.columns, strict=True)
    )
    guard.set_on(lake.spark)
    (
        DeltaTable.forPath(lake.spark, lake.path(mirror.path))
        .alias("t")
        .merge(source.alias("s"), f"s.{quoted(TAKEN)} AND {equal}")
        .whenMatchedDelete()
        .whenNotMatchedInsert(f"NOT s.{quoted(TAKEN)}", dict(pairs))
        .execute()
    )


def _keep_misfits(lake: Lake, plan: Plan, work: Work, batch: int) -> int:
    misfits.widen(lake.read(CHANGES.name), plan.mirror, plan.job.rule, [one for one, _ in work])
    found = []
    for one, _ in work:
        new = of_lane(lake.read(CHANGES.name), one).where(
            (F.col("batch") >= one.first) & (F.col("op") != "truncate")
        )
        texts = _texts(new, plan, ()).where(F.col(ADDS) == 1).withColumn(GONE, F.lit(False))
        cells = misfits.cells(texts, lake.read(CHANGES.name), plan.mirror, one, batch)
        if cells is not None:
            found.append(cells)
    return misfits.keep(lake, plan.mirror, found, batch)
