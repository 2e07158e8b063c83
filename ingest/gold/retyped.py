"""Statements that make the source convert a column's values: which mirrors that concerns, and what cannot be known.

A mirror whose values change with a type is folded again whole.  Where the source's result cannot be known, its rows
keep their values, and a reject of the column says so until somebody has loaded them again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.fold import SchemaStep
from ingest.gold.gather import Lane, Steps, of_lane
from ingest.lake.images import image
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Mirror
from ingest.lake.schemas import CHANGES, REJECTS
from ingest.values.conversions import Conversion

ACTION, REASON = "retype_column", "values-not-known"


class Retyped(NamedTuple):
    """A new step with the rule for one of the types that its column had before."""

    lane: Lane
    step: SchemaStep
    rule: Conversion


def found(lake: Lake, work: Iterable[tuple[Lane, Steps]]) -> list[Retyped]:
    """The new steps of all lanes that meet values, with their rules."""
    return [
        one
        for lane, steps in work
        for one in _of_lane(
            lake,
            lane,
            [step for step in steps.new if step.action == ACTION],
            [step for step in steps.ever if step.action == "rename_column"],
        )
    ]


def former(name: str, renames: Iterable[SchemaStep]) -> list[str]:
    """A column's name and those that its values were sent under before."""
    found = [name]
    for step in reversed(list(renames)):
        if step.to in found and step.column not in found:
            found.append(step.column)
    return found


def _of_lane(
    lake: Lake, lane: Lane, steps: Sequence[SchemaStep], renames: Sequence[SchemaStep]
) -> Iterator[Retyped]:
    if not steps:
        return
    names = {step: former(step.column, renames) for step in steps}
    every = list(dict.fromkeys(name for some in names.values() for name in some))
    rows = of_lane(lake.read(CHANGES.name), lane).where(F.col("op").isin("read", "insert", "update"))
    values = []
    for i, step in enumerate(steps):
        there = F.coalesce(*[F.col("a")[name] for name in names[step]]).isNotNull()
        sent = F.coalesce(*[F.col("t")[name] for name in names[step]], F.lit(""))
        values.append(
            F.collect_set(F.when(there & (F.col("order_key") < str(step.order)), sent)).alias(f"s{i}")
        )
    images = image("after", every).alias("a"), image("types", every).alias("t")
    row = rows.select("order_key", *images).agg(*values).first()
    assert row is not None
    for i, step in enumerate(steps):
        rules = {step.conversion(sent): None for sent in row[f"s{i}"]}
        yield from (Retyped(lane, step, rule) for rule in rules)


def changes_values(mirror: Mirror, retyped: Iterable[Retyped]) -> bool:
    """True if rows of the mirror get other values; in a column of texts another spelling is one."""
    texts = _texts(mirror)
    return any(one.rule.changes(texts=one.step.column in texts) for one in retyped)


def _texts(mirror: Mirror) -> set[str]:
    return {one.name for one in mirror.columns if one.delta == "STRING"}


def keep(lake: Lake, mirror: Mirror, retyped: Iterable[Retyped], batch: int) -> int:
    """Write what cannot be known to `rejects`, guarded; returns how many columns it is."""
    texts = _texts(mirror)
    rows = [
        _reject(mirror, one, batch)
        for one in retyped
        if not one.step.since and is_open(one.step, one.rule, mirror.keys, texts)
    ]
    if not rows:
        return 0
    frame: DataFrame = lake.spark.createDataFrame(list(dict.fromkeys(rows)), REJECTS.columns)
    appended = lake.append(frame, REJECTS, f"gold/{mirror.path}/{mirror.generation}/retyped", batch)
    return len(set(rows)) if appended else 0


def is_open(step: SchemaStep, rule: Conversion, keys: Collection[str], texts: Collection[str]) -> bool:
    """True if no message tells the values of existing rows, or the keys that they have been given."""
    return not rule.certain or (step.column in keys and rule.changes(texts=step.column in texts))


def _reject(mirror: Mirror, one: Retyped, batch: int) -> tuple[object, ...]:
    step = one.step
    new = step.declared or step.type
    values = {
        "stage": "gold",
        "kind": "cell",
        "source": one.lane.source,
        "batch": batch,
        "database": mirror.table.database,
        "schema": mirror.table.schema,
        "table": mirror.table.table,
        "column": step.column,
        "reason": REASON,
        "detail": (
            f"no message says how the source has converted existing rows to {new}: they keep their old values "
            f"until {mirror.name} is loaded again; dismiss this then"
        ),
    }
    return tuple(values.get(name) for name in REJECTS.columns.names)
