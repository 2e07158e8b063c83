"""History tables (``history: true``): every state of every row, as SCD type 2, next to the mirror.

``histories/<database>/<table>``, in queries ``<table>__history``, has the mirror's columns, also former ones, and
``valid_from``, ``valid_to``, ``is_current``.  It has a folder of its own: among the mirrors, a source table of that
name would have the same path. States follow the fold's order. The times are the changes' event times and are only
shown: if two states have the same time, the order decides which is current. A state that a statement ended, or whose
change names no time, has no ``valid_to``. Each batch folds the touched keys again from their whole history and replaces
their states in one guarded commit, so late changes need no special case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from ingest.change import Image
from ingest.fold import Key, Placed, SchemaStep, Table, steps
from ingest.gold.cast import cast
from ingest.gold.gather import of_lane
from ingest.gold.lane import Lane, Steps
from ingest.gold.merge import Guard
from ingest.gold.planner import Work
from ingest.gold.refold import ROW, Beyond, batches_of, grouped, groups, keyed_rows, of_group
from ingest.gold.spark_fold import key_name, value_name
from ingest.gold.staged import sent_name
from ingest.lake.histories import CURRENT, FROM, TAKEN, TO, states_of, table_of
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Mirror
from ingest.lake.names import quoted
from ingest.lake.schemas import CHANGES, DDL
from ingest.order import Order, order_of


def fold(lake: Lake, mirror: Mirror, work: Work, guard: Guard, *, again: bool) -> None:
    """Fold the new batches into the history table, whose columns are there already.

    If it is folded ``again``, ``work`` holds everything, and the table is replaced, columns included.
    """
    changes, table, mirror = lake.read(CHANGES.name), table_of(mirror), states_of(mirror)
    found_states = [_states(lake, changes, mirror, *pair) for pair in work]
    source = _typed(reduce(DataFrame.unionByName, found_states), mirror)
    sent = {one.column: f"s.{quoted(sent_name(i))}" for i, one in enumerate(table.columns)}
    on = " AND ".join(f"t.{quoted(one.column)} = {sent[one.column]}" for one in table.key_columns)
    if again:
        names = [F.col(quoted(sent_name(i))).alias(one.column) for i, one in enumerate(table.columns)]
        guard.replace(source.where(~F.col(TAKEN)).select(*names), lake.path(table.path))
        return
    guard.set_on(lake.spark)
    (
        DeltaTable.forPath(lake.spark, lake.path(table.path))
        .alias("t")
        .merge(source.alias("s"), f"s.{quoted(TAKEN)} AND {on}")
        .whenMatchedDelete()
        .whenNotMatchedInsert(f"NOT s.{quoted(TAKEN)}", {quoted(name): value for name, value in sent.items()})
        .execute()
    )


def _states(lake: Lake, changes: DataFrame, mirror: Mirror, lane: Lane, applied: Steps) -> DataFrame:
    """All states of the keys that a lane's new batches touch, as texts, with one marker row for each key."""
    mine = of_lane(changes, lane).withColumn("moment", F.unix_micros("event_time"))
    keyed = keyed_rows(mine, mirror, (*ROW, "batch", "moment"))
    everything = bool(lane.truncates or applied.new)
    wanted = (keyed if everything else keyed.where(F.col("batch") >= lane.first)).select("key").distinct()
    rows = grouped(keyed, wanted, bool(lane.inherits_ever), (*ROW, "moment"))
    truncates = _moments(mine.where(F.col("op") == "truncate")) if lane.truncates_ever else {}
    logged = F.col("order_key").isin(*(str(step.order) for step in applied.ever))
    statements = _moments(lake.read(DDL.name).where(logged)) if applied.ever else {}
    beyond = Beyond(tuple(truncates), applied.ever)
    schema = _schema(mirror)
    run = partial(_run, mirror, beyond, {**statements, **truncates}, schema)
    return rows.mapInArrow(run, from_arrow_schema(schema))


def _moments(rows: DataFrame) -> dict[str, int | None]:
    return dict(map(tuple, rows.select("order_key", F.unix_micros("event_time")).collect()))


def _schema(mirror: Mirror) -> pa.Schema:
    keys = [key_name(i) for i in range(len(mirror.keys))]
    texts = keys + [value_name(i) for i in range(len(mirror.columns))]
    kinds = {FROM: pa.int64(), TO: pa.int64(), CURRENT: pa.bool_(), TAKEN: pa.bool_()}
    return pa.schema(dict.fromkeys(texts, pa.string()) | kinds)


def _typed(found_states: DataFrame, mirror: Mirror) -> DataFrame:
    """The states with every column in its Delta type, as the MERGE names it."""
    keys = {name: key_name(i) for i, name in enumerate(mirror.keys)}
    columns = [
        cast(F.col(keys.get(one.name, value_name(i))), one.type) for i, one in enumerate(mirror.columns)
    ]
    columns += [*[F.timestamp_micros(name) for name in (FROM, TO)], F.col(CURRENT)]
    return found_states.select(*[value.alias(sent_name(i)) for i, value in enumerate(columns)], TAKEN)


# --- in the workers -----------------------------------------------------------------------------


def _run(
    mirror: Mirror,
    beyond: Beyond,
    moments: Mapping[str, int | None],
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    others = beyond.events
    times = {order_of(place): moment for place, moment in moments.items()}
    found = (state for rows in groups(batches) for state in _of_group(rows, mirror, others, dict(times)))
    return batches_of(found, schema)


def _of_group(
    rows: list[dict[str, Any]],
    mirror: Mirror,
    others: list[Placed | SchemaStep],
    times: dict[Order, int | None],
) -> Iterator[tuple[Any, ...]]:
    """The states of every key of one group, each key's after a marker row that clears its existing states."""
    table = Table(mirror.keys, mirror.key_types)
    events, texts = of_group(rows, table)
    times |= {order_of(row["order_key"]): row["moment"] for row in rows}
    states: dict[Key, list[list[Any]]] = {key: [] for key in texts}
    for step in steps(table, [*events, *others]):
        if step.key in states and step.effect != "nothing":
            _note(states[step.key], step.row, times.get(step.event.order))
    for key, text in texts.items():
        yield (*text, *[None] * len(mirror.columns), None, None, None, True)
        for values, since, until, current in states[key]:
            yield (*text, *(values.get(one.name) for one in mirror.columns), since, until, current, False)


def _note(states: list[list[Any]], row: Image | None, moment: int | None) -> None:
    """Apply one step of a key: end its open state, and begin another unless the row is deleted."""
    current = states[-1] if states and states[-1][3] else None
    if current is not None:
        if current[0] == row:
            return
        current[2:] = [moment, False]
    if row is not None:
        states.append([dict(row), moment, None, True])
