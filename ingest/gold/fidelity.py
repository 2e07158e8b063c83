"""Conversion statistics of a mirror's columns: every cell of its changes, counted by its outcome.

A cell that is not NULL is one of four: *rejected* (not a value of the column's type: NULL in the mirror, its text
in ``rejects``), *truncated* (a time with more than six fraction digits: a declared loss), *widened* (the
message's own type is narrower than the column's: no loss) or *fit*.  They are counted from silver in one pass, so
nothing has to be kept up to date, and cells that later changes have overwritten count, too.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest import types
from ingest.change import LaneId
from ingest.gold import evidence
from ingest.gold.cast import cast, truncates
from ingest.gold.completed import folded
from ingest.lake import mirrors
from ingest.lake.images import image
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Column as MirrorColumn
from ingest.lake.mirrors import Mirror
from ingest.lake.names import of_table
from ingest.lake.schemas import CHANGES

COUNTS = ("fit", "widened", "truncated", "rejected", "nulls", "absent")


@dataclass(frozen=True, slots=True)
class Fidelity:
    """One column of a mirror: its types, and the number of sent cells with each outcome."""

    column: str
    type: str
    delta: str
    counts: Counter[str]


def described(lake: Lake, name: str) -> list[dict[str, object]]:
    """Conversion statistics of a mirror as plain values; empty for a table that is not a mirror."""
    return [
        {"column": one.column, "logical": one.type, "type": one.delta}
        | {count: one.counts[count] for count in COUNTS}
        for mirror in mirrors.known(lake).values()
        if mirror.name == name
        for one in of_mirror(lake, mirror)
    ]


def of_mirror(lake: Lake, mirror: Mirror, since: int = 0) -> list[Fidelity]:
    """Every column of a mirror with its cells, for the changes after a batch up to the last one folded."""
    applied = folded(lake, mirror)
    changes = lake.read(CHANGES.name).where(
        (F.col("kind") == "change") & (F.col("batch") > since) & (F.col("batch") <= applied)
    )
    lanes = [_of_lane(changes, lane) for lane in evidence.lanes(lake, mirror)]
    if not lanes:
        return [Fidelity(one.name, one.type, one.delta, Counter()) for one in mirror.sent]
    return count(reduce(DataFrame.unionByName, lanes), mirror.sent, mirror.keys)


def _of_lane(changes: DataFrame, lane: LaneId) -> DataFrame:
    return changes.where(F.col("source") == lane[0]).where(of_table(lane[1]))


def can_misfit(logical: str) -> bool:
    """True if some texts are not values of the type."""
    return bool(types.family(logical)) and types.delta(logical) != "STRING"


def count(changes: DataFrame, columns: Sequence[MirrorColumn], keys: Sequence[str] = ()) -> list[Fidelity]:
    """The cells of changes, by column.

    Args:
        changes: rows of ``changes`` of one mirror.
        columns: its columns.
        keys: its key columns, whose cells are never truncated: their change is rejected.
    """
    sending = changes.where(F.col("after").isNotNull()).select(
        "types",
        image("after", [column.name for column in columns]).alias("a"),
        F.json_object_keys("after").alias("sent"),
    )
    sums = [
        F.count_if(value).alias(f"{name}{i}")
        for i, column in enumerate(columns)
        for name, value in _tests(column, is_key=column.name in keys).items()
    ]
    groups = sending.groupBy("types").agg(F.count("*").alias("rows"), *sums).collect() if sums else []
    found = [Fidelity(column.name, column.type, column.delta, Counter()) for column in columns]
    for row in groups:
        sent_types = json.loads(row["types"] or "{}")
        for i, one in enumerate(found):
            whole = {name: row[f"{name}{i}"] for name in ("there", "sent", "rejected", "truncated")}
            sent = types.delta(sent_types.get(one.column, one.type))
            widened = sent != one.delta and types.widens(sent, one.delta)
            one.counts.update(_counts(row["rows"], whole, widened=widened))
    return found


def _tests(column: MirrorColumn, *, is_key: bool) -> dict[str, Column]:
    """The tests for each cell; one pass applies them to all columns."""
    text = F.col("a")[column.name]
    there, never = text.isNotNull(), F.lit(False)
    misfit = there & cast(text, column.type).isNull() if can_misfit(column.type) else never
    cut = truncates(text, column.type)
    loses = never if cut is None else there & ~misfit & cut
    return {
        "there": there,
        "sent": F.array_contains("sent", column.name),
        "rejected": misfit | loses if is_key else misfit,
        "truncated": never if is_key else loses,
    }


def _counts(rows: int, numbers: dict[str, int], *, widened: bool) -> dict[str, int]:
    exact = numbers["there"] - numbers["rejected"] - numbers["truncated"]
    return {
        "widened" if widened else "fit": exact,
        "truncated": numbers["truncated"],
        "rejected": numbers["rejected"],
        "nulls": numbers["sent"] - numbers["there"],
        "absent": rows - numbers["sent"],
    }
