"""Sample the keys of rows that fail expectations.

Great Expectations can name them only by collecting every failing row on the driver; here Spark evaluates the same
condition with a limit, for expectations that test one column row by row.
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
_PARTIAL = ("row_condition", "condition_parser")  # arguments that change which rows are tested
HEAD = "expect_column_values_to_"


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


def keys(frame: DataFrame, mirror: Mirror, wish: Expectation) -> tuple[str, ...]:
    """Keys as JSON under the source's names; none if they are not known.

    Args:
        frame: the tested rows.
        mirror: the mirror of these rows.
        wish: the expectation.
    """
    given = wish.arguments.get("column")
    column = next((one.column for one in mirror.columns if one.name == given), None)
    condition = UNEXPECTED.get(wish.type.removeprefix(HEAD))
    if condition is None or column is None or not mirror.keys or wish.arguments.keys() & set(_PARTIAL):
        return ()
    cells = [F.col(quoted(one.column)).alias(one.name) for one in mirror.key_columns]
    key = exact.key_json(cells)
    try:
        bad = frame.select(key.alias("key"), condition(F.col(quoted(column)), wish.arguments).alias("bad"))
        rows = bad.where("bad").limit(FAILING_KEYS).collect()
    except (PySparkException, KeyError, TypeError):  # Great Expectations supports more than this module
        return ()
    return tuple(sorted(row["key"] for row in rows))
