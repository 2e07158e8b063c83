"""Statements that make the source convert a column's values: which mirrors they concern, and what cannot be known.

A mirror whose values change with a type is folded again as a whole. If the source's result cannot be known, its rows
keep their values, and a reject of the column says so until they are loaded again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

from ingest.fold import SchemaStep
from ingest.gold.gather import of_lane
from ingest.gold.lane import Lane, Steps
from ingest.lake.images import image
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Mirror
from ingest.lake.schemas import CHANGES, REJECTS

ACTION, REASON = "retype_column", "values-not-known"
RESPELT, ALTERED, OPEN = 1, 2, 4
"""What a step does to a value: gives it another text; another value; a value that no message contains."""


class Retyped(NamedTuple):
    """A new step, and all that it does to values."""

    lane: Lane
    step: SchemaStep
    does: int


def effect(step: SchemaStep, text: str | None, sent: str) -> int:
    """What a step does to a value of a row whose message says that the column's type is ``sent``."""
    if text is None:
        return 0 if not step.solid else OPEN if step.zero is None else ALTERED | RESPELT
    rule = step.conversion(sent)
    unsure = not rule.certain or rule.doubted(text) or (step.serial and text == "0")
    return RESPELT * rule.alters(text, texts=True) | ALTERED * rule.alters(text, texts=False) | OPEN * unsure


def found(lake: Lake, work: Iterable[tuple[Lane, Steps]]) -> list[Retyped]:
    """The new steps of all lanes that change existing values, with what they do to them."""
    return [
        one
        for lane, steps in work
        for one in _of_lane(
            lake,
            lane,
            [step for step in steps.new if step.action == ACTION],
            [step for step in steps.ever if step.action in ("rename_column", "add_column")],
        )
    ]


def former(name: str, renames: Iterable[SchemaStep]) -> list[str]:
    """A column's name and the earlier names under which its values were sent."""
    found = [name]
    for step in reversed(list(renames)):
        if step.to and step.to in found and step.column not in found:
            found.append(step.column)
    return found


def _of_lane(
    lake: Lake, lane: Lane, steps: Sequence[SchemaStep], others: Sequence[SchemaStep]
) -> Iterator[Retyped]:
    if not steps:
        return
    names = {step: former(step.column, others) for step in steps}
    every = list(dict.fromkeys(name for some in names.values() for name in some))
    rows = of_lane(lake.read(CHANGES.name), lane).where(F.col("op").isin("read", "insert", "update"))
    overlays = (F.col("op") == "update") & F.col("partial")
    values = []
    for i, step in enumerate(steps):
        text = F.coalesce(*[F.col("a")[name] for name in names[step]])
        sent = F.coalesce(*[F.col("t")[name] for name in names[step]], F.lit(""))
        told = F.lit(False)
        for name in names[step]:
            told |= F.array_contains("there", name)
        meets = text.isNotNull() | (F.lit(step.solid) & (told | ~overlays))
        does = F.when(meets & (F.col("order_key") < str(step.order)), _effect(step)(text, sent))
        values.append(F.bit_or(F.coalesce(does, F.lit(0))).alias(f"s{i}"))
    images = image("after", every).alias("a"), image("types", every).alias("t")
    there = F.coalesce(F.json_object_keys("after"), F.array()).alias("there")
    row = rows.select("order_key", "op", "partial", *images, there).agg(*values).first()
    assert row is not None
    for i, step in enumerate(steps):
        if met := (row[f"s{i}"] or 0) | on_defaults(step, names[step], others):
            yield Retyped(lane, step, met)


def on_defaults(step: SchemaStep, names: Collection[str], others: Iterable[SchemaStep]) -> int:
    """What a step does to values that come from a default and not from a message."""
    does = 0
    for one in others:
        if one.action == "add_column" and one.column in names and one.order < step.order:
            does |= effect(step, one.default, "")
    return does


def _effect(step: SchemaStep) -> Callable[..., Column]:
    # Without type hints: Spark would infer another kind of function from them.
    return F.udf(lambda text, sent: effect(step, text, sent or ""), IntegerType())


def changes_values(mirror: Mirror, retyped: Iterable[Retyped]) -> bool:
    """True if rows of the mirror get other values; in a text column another spelling counts."""
    texts = _texts(mirror)
    return any(_changes(one.step, one.does, texts) for one in retyped)


def _changes(step: SchemaStep, does: int, texts: Collection[str]) -> bool:
    return bool(does & (RESPELT if step.column in texts else ALTERED))


def _texts(mirror: Mirror) -> set[str]:
    return {one.name for one in mirror.columns if one.delta == "STRING"}


def keep(lake: Lake, mirror: Mirror, retyped: Iterable[Retyped], batch: int) -> int:
    """Write what cannot be known to `rejects`, guarded; returns the number of columns."""
    texts = _texts(mirror)
    rows = [
        _reject(mirror, one, batch)
        for one in retyped
        if not one.step.since and is_open(one.step, one.does, mirror.keys, texts)
    ]
    if not rows:
        return 0
    frame: DataFrame = lake.spark.createDataFrame(list(dict.fromkeys(rows)), REJECTS.columns)
    appended = lake.append(frame, REJECTS, f"gold/{mirror.path}/{mirror.generation}/retyped", batch)
    return len(set(rows)) if appended else 0


def is_open(step: SchemaStep, does: int, keys: Collection[str], texts: Collection[str]) -> bool:
    """True if no message contains the new values of existing rows, or the keys that they were given."""
    return bool(does & OPEN) or (step.column in keys and _changes(step, does, texts))


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
