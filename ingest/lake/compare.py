"""Compare two states of one table: missing rows, surplus rows, cells that differ, and a sample of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_, or_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.lake.exact import FLOATING
from ingest.lake.names import quoted

SAMPLE = 10
_BEFORE, _AFTER = "before", "after"
_NUMBER, _THERE = "%n", "%there"  # no column name of a mirror contains a percent sign


@dataclass(frozen=True, slots=True)
class Difference:
    """What a rebuild would change. ``missing`` and ``surplus`` describe the table as it is now.

    ``cells`` counts differing cells by column. Each sample has the row's key, and its columns as they are and as they
    would be.
    """

    rows: int  # as rebuilt
    missing: int = 0
    surplus: int = 0
    differing: int = 0
    cells: Mapping[str, int] = field(default_factory=dict)
    sample: tuple[dict[str, Any], ...] = ()

    @property
    def none(self) -> bool:
        """True if the table equals the rebuilt one."""
        return not (self.missing or self.surplus or self.differing)


def by_key(present: DataFrame, rebuilt: DataFrame, keys: Sequence[str]) -> Difference:
    """Compare the table as it is with the rebuilt one row by row under a key, which is unique in both."""
    names = list(dict.fromkeys([*rebuilt.columns, *present.columns]))
    rest = [name for name in names if name not in keys]
    equal = {name: F.col(f"b.{quoted(name)}").eqNullSafe(F.col(f"a.{quoted(name)}")) for name in names}
    sides = []
    for frame in _exact(present, rebuilt):
        absent = {name: F.lit(None) for name in names if name not in frame.columns}
        sides.append(frame.withColumns({**absent, _THERE: F.lit(1)}).select(*map(quoted, [*names, _THERE])))
    left, right = sides
    same = reduce(and_, (equal[key] for key in keys))
    joined = left.alias("b").join(right.alias("a"), same, "full_outer")
    missing, surplus = F.col(f"b.{_THERE}").isNull(), F.col(f"a.{_THERE}").isNull()
    differs = {name: ~missing & ~surplus & ~equal[name] for name in rest}
    any_cell = reduce(or_, differs.values(), F.lit(False))
    totals = joined.agg(
        F.count(f"a.{_THERE}").alias("rows"),
        F.count_if(missing).alias("missing"),
        F.count_if(surplus).alias("surplus"),
        F.count_if(any_cell).alias("differing"),
        *[F.count_if(flag).alias(f"c{i}") for i, flag in enumerate(differs.values())],
    ).collect()[0]
    cells = {name: totals[f"c{i}"] for i, name in enumerate(differs) if totals[f"c{i}"]}
    found = Difference(totals["rows"], totals["missing"], totals["surplus"], totals["differing"], cells)
    if found.none:
        return found
    sample = _sample(joined.where(missing | surplus | any_cell), names, keys)
    return replace(found, sample=sample)


def as_sets(present: DataFrame, rebuilt: DataFrame, columns: Sequence[str]) -> Difference:
    """Compare rows without a key, as multisets."""
    totals = _unequal(present, rebuilt, columns)
    found = totals.agg(
        F.sum(F.when(F.col(_NUMBER) > 0, F.col(_NUMBER))).alias("missing"),
        F.sum(F.when(F.col(_NUMBER) < 0, -F.col(_NUMBER))).alias("surplus"),
    ).collect()[0]
    rows = rebuilt.count()
    if not (found["missing"] or found["surplus"]):
        return Difference(rows)
    sample = [
        {
            (_AFTER if row[_NUMBER] > 0 else _BEFORE): {
                name: row[name] for name in columns if row[name] is not None
            }
        }
        for row in totals.select(*[F.col(quoted(name)).cast("string") for name in columns], _NUMBER)
        .limit(SAMPLE)
        .collect()
    ]
    return Difference(rows, found["missing"] or 0, found["surplus"] or 0, sample=tuple(sample))


def groups(present: DataFrame, rebuilt: DataFrame, columns: Sequence[str], by: Sequence[str]) -> list[Any]:
    """The values of some columns in the rows that `as_sets` would find missing or surplus."""
    return _unequal(present, rebuilt, columns).select(*map(quoted, by)).distinct().collect()


def _unequal(present: DataFrame, rebuilt: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Rows that one side has more often than the other, with the difference."""
    mine, theirs = (one.select(*map(quoted, columns)) for one in _exact(present, rebuilt))
    both = mine.withColumn(_NUMBER, F.lit(-1)).unionByName(theirs.withColumn(_NUMBER, F.lit(1)))
    sums = both.groupBy(*map(quoted, columns)).agg(F.sum(_NUMBER).alias(_NUMBER))
    return sums.where(F.col(_NUMBER) != 0)


def _exact(*frames: DataFrame) -> list[DataFrame]:
    """Compare as text: floating-point columns (SQL treats 0.0 and -0.0 as equal), and columns that are text on one side
    only.
    """
    kinds = [{one.name: one.dataType.simpleString().upper() for one in frame.schema} for frame in frames]
    texts = {
        name: F.col(quoted(name)).cast("string")
        for name in set.intersection(*map(set, kinds))
        if (found := {kind[name] for kind in kinds}) <= set(FLOATING)
        or (len(found) > 1 and "STRING" in found)
    }
    return [frame.withColumns(texts) for frame in frames]


def _sample(rows: DataFrame, names: Sequence[str], keys: Sequence[str]) -> tuple[dict[str, Any], ...]:
    cells: list[Column] = [F.col(f"b.{_THERE}").alias("was"), F.col(f"a.{_THERE}").alias("is")]
    for i, name in enumerate(names):
        cells.append(F.col(f"b.{quoted(name)}").cast("string").alias(f"b{i}"))
        cells.append(F.col(f"a.{quoted(name)}").cast("string").alias(f"a{i}"))
    found = []
    for row in rows.select(*cells).limit(SAMPLE).collect():
        side = "a" if row["is"] else "b"
        key = {name: row[f"{side}{i}"] for i, name in enumerate(names) if name in keys}
        rest = [
            (i, name) for i, name in enumerate(names) if name not in keys and row[f"a{i}"] != row[f"b{i}"]
        ]
        found.append(
            {
                "key": key,
                _BEFORE: {name: row[f"b{i}"] for i, name in rest} if row["was"] else None,
                _AFTER: {name: row[f"a{i}"] for i, name in rest} if row["is"] else None,
            }
        )
    return tuple(found)
