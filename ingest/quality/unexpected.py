"""The keys of rows that are not as expected, a few of each.

Great Expectations can name them only by collecting every bad row on the driver; here the same condition is
asked of Spark with a limit, for the expectations that look at one column row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ingest.config import Expectation
from ingest.lake import exact
from ingest.lake.mirrors import Mirror
from ingest.lake.names import quoted
from ingest.quality.catalogue import FAILING_KEYS

Condition = Callable[[Column, Mapping[str, Any]], Column]
_PARTIAL = ("row_condition", "condition_parser")  # arguments after which other rows are looked at
_HEAD = "expect_column_values_to_"


def _outside(column: Column, given: Mapping[str, Any]) -> Column:
    low, high = given.get("min_value"), given.get("max_value")
    found = F.lit(False)
    if low is not None:
        found |= (column <= low) if given.get("strict_min") else (column < low)
    if high is not None:
        found |= (column >= high) if given.get("strict_max") else (column > high)
    return found


UNEXPECTED: Mapping[str, Condition] = {
    "be_null": lambda column, _given: column.isNotNull(),
    "not_be_null": lambda column, _given: column.isNull(),
    "be_unique": lambda column, _given: (
        column.isNotNull() & (F.count("*").over(Window.partitionBy(column)) > 1)
    ),
    "be_in_set": lambda column, given: ~column.isin(list(given["value_set"])),
    "not_be_in_set": lambda column, given: column.isin(list(given["value_set"])),
    "be_between": _outside,
    "match_regex": lambda column, given: ~column.rlike(given["regex"]),
    "not_match_regex": lambda column, given: column.rlike(given["regex"]),
}


def keys(frame: DataFrame, mirror: Mirror, wish: Expectation, column: str | None) -> tuple[str, ...]:
    """Keys as JSON under the source's names; none where they are not known.

    Args:
        frame: the rows that were looked at.
        mirror: whose rows they are.
        wish: what was expected of them.
        column: the expectation's column by its name in the mirror.
    """
    condition = UNEXPECTED.get(wish.type.removeprefix(_HEAD))
    if condition is None or column is None or not mirror.keys or wish.arguments.keys() & set(_PARTIAL):
        return ()
    cells = [F.col(quoted(one.column)).alias(one.name) for one in mirror.key_columns]
    key = exact.key_json(cells)
    try:
        bad = frame.select(key.alias("key"), condition(F.col(quoted(column)), wish.arguments).alias("bad"))
        rows = bad.where("bad").limit(FAILING_KEYS).collect()
    except (PySparkException, KeyError, TypeError):  # Great Expectations understood more than we do
        return ()
    return tuple(sorted(row["key"] for row in rows))
