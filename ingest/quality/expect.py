"""The user's own expectations: Great Expectations on each mirror, one expectation at a time.

The library judges a small mirror's rows in pandas if it means the same there as on Spark, so that Spark need not start.

One at a time, because a result that cannot be serialised (quantiles under numpy 2, VARIANT columns) would fail the
whole run. Results are requested without values, which may be private.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import VariantType

from ingest.config import Expectation, matches
from ingest.errors import counted
from ingest.ledgers.mirrors import Mirror
from ingest.quality import key_checks
from ingest.quality.arrow_rows import WHOLE, key_text, mirror_rows
from ingest.quality.catalogue import (
    ERROR,
    FAILING_KEYS,
    MAX_DETAIL,
    PASS,
    CheckResult,
    Metric,
)  # fmt: skip
from ingest.quality.cell_diff import key_of_row
from ingest.quality.judge import FAILED, context
from ingest.quality.subjects import CheckedMirror
from ingest.store import faults
from ingest.store.names import quoted
from ingest.tables import exact
from ingest.tables.cell_values import of_column
from ingest.tables.lake import Lake, Tell

_HEAD = "expect_column_values_to_"
_PARTIAL = ("row_condition", "condition_parser")  # arguments that change which rows are tested
_COLUMN_ARGUMENTS = ("column", "column_A", "column_B", "column_list", "column_set")
MOST = 20_000  # changed keys whose rows are looked up in this process
SMALL = 32 << 20  # bytes of a mirror that is read into this process
# equal if they are on Spark
_SAME = ("STRING", "BOOLEAN", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", *WHOLE)


def expected(lake: Lake, chosen: Iterable[CheckedMirror], since: int, tell: Tell) -> list[CheckResult]:
    """Evaluate the pipeline file's expectations for the chosen mirrors.

    ``since`` is the last batch checked before, for expectations on changed rows; ``tell`` is called with what is being
    worked on.
    """
    results: list[CheckResult] = []
    gx: Any = None
    for subject in chosen:
        if not subject.has_table:
            continue
        by_rows: dict[str, list[Expectation]] = {}
        for rule in lake.pipeline.quality:
            if rule.expect and matches(rule.table, subject.table):
                by_rows.setdefault(rule.on, []).extend(rule.expect)
        for on, wishes in by_rows.items():
            gx = gx or context()
            tell(f"quality {subject.name}", "expectations")
            try:
                results += _of_rows(lake, gx, subject, since, on, wishes)
            except Exception as error:  # one mirror's files must not hide the results of the others
                text = faults.of_mirror(error, lake, subject.name, subject.path)
                results.append(CheckResult(Metric(wishes[0].type, 0.0, subject.name, detail=text), ERROR))
    return results


def _of_rows(
    lake: Lake, gx: Any, subject: CheckedMirror, since: int, on: str, wishes: Sequence[Expectation]
) -> list[CheckResult]:
    name = f"{subject.name} {on}"
    if (rows := _few(lake, subject, since if on == "changed" else 0, wishes)) is not None:
        asset = gx.data_sources.add_or_update_pandas(name).add_dataframe_asset(name)
        batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": rows.frame})
        return [
            _judged(batch, "COMPLETE", lambda _, bad: rows.failing(bad), subject, wish) for wish in wishes
        ]
    changed = key_checks.changed_rows(lake, subject, since) if on == "changed" else None
    frame = readable(lake.read(subject.path) if changed is None else changed).cache()
    try:
        asset = gx.data_sources.add_or_update_spark(name).add_dataframe_asset(name)
        batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
        keys = partial(_failing_keys, frame, subject.decided)
        return [
            _judged(batch, "BASIC", lambda wish, _: keys(wish), subject, expectation)
            for expectation in wishes
        ]
    finally:
        frame.unpersist()


# --- in this process ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of a mirror as Python's values, in the columns of the key and of the expectations."""

    mirror: Mirror  # with these columns only
    kinds: Sequence[str]
    cells: Sequence[Sequence[object]]

    @property
    def frame(self) -> Any:
        """For Great Expectations."""
        import pandas as pd

        return pd.DataFrame(
            self.cells, columns=[column.column for column in self.mirror.columns], dtype=object
        )

    def failing(self, result: Any) -> tuple[str, ...]:
        """Some keys of rows that do not meet an expectation."""
        places = result.result.get("unexpected_index_list") or () if self.mirror.keys else ()
        names = self.mirror.keys
        return tuple(
            sorted(
                key_text(names, self.cells[place][: len(names)], self.kinds[: len(names)])
                for place in places[:FAILING_KEYS]
            )
        )


def _of_one_type(kind: str, given: Mapping[str, Any]) -> bool:
    wanted: type = {"STRING": str, **dict.fromkeys(WHOLE, int)}.get(kind, type(None))
    values = given.get("value_set")
    return isinstance(values, list) and bool(values) and all(type(value) is wanted for value in values)


def _by_whole_numbers(kind: str, given: Mapping[str, Any]) -> bool:
    bounds = [given[name] for name in ("min_value", "max_value") if given.get(name) is not None]
    return (kind in WHOLE or kind.startswith("DECIMAL")) and all(type(bound) is int for bound in bounds)


def _is_exact(kind: str, _given: Mapping[str, Any]) -> bool:
    return kind in _SAME or kind.startswith("DECIMAL")


_PLAIN: Mapping[str, tuple[Callable[[str, Mapping[str, Any]], bool], frozenset[str]]] = {
    "be_null": (_is_exact, frozenset()),
    "not_be_null": (_is_exact, frozenset()),
    "be_unique": (_is_exact, frozenset()),
    "be_in_set": (_of_one_type, frozenset({"value_set"})),
    "not_be_in_set": (_of_one_type, frozenset({"value_set"})),
    "be_between": (_by_whole_numbers, frozenset({"min_value", "max_value", "strict_min", "strict_max"})),
}  # expectations on one column, with the condition on its type and arguments, and the arguments


def _is_plain(wish: Expectation, kind: str) -> bool:
    """True if an expectation on a column of a Delta type means the same in pandas as on Spark."""
    name = wish.type.removeprefix(_HEAD)
    if name not in _PLAIN:
        return False
    fits, allowed = _PLAIN[name]
    return not wish.arguments.keys() - {"column", "mostly", *allowed} and fits(kind, wish.arguments)


def _few(lake: Lake, subject: CheckedMirror, since: int, wishes: Iterable[Expectation]) -> _Rows | None:
    """The rows that changed after a batch, all for 0, of a mirror that pandas can judge; None if Spark must."""
    mirror, types = subject.decided, subject.types
    by_name = mirror.by_name
    columns = {key_column.name: key_column for key_column in mirror.key_columns}
    for wish in wishes:
        column = by_name.get(str(wish.arguments.get("column")))
        if column is None or not _is_plain(wish, types.get(column.column, "")):
            return None
        columns[column.name] = column
    kinds = [types.get(column.column, "") for column in columns.values()]
    if subject.size > SMALL or not all(_is_exact(kind, {}) for kind in kinds):
        return None
    keys = None
    if since > 0:
        changed = key_checks.changed_keys(lake, subject, since)
        if changed is None or changed.num_rows > MOST:
            return None
        keyed = replace(mirror, columns=mirror.key_columns)
        of_keys = [key_column.delta for key_column in mirror.key_columns]
        cells = [of_column(column, kind) for column, kind in zip(changed.columns, of_keys, strict=True)]
        keys = {
            key for row in zip(*cells, strict=True) if (key := key_of_row(row, keyed, of_keys)) is not None
        }
    chosen = replace(mirror, columns=tuple(columns.values()))
    rows = mirror_rows(lake, chosen, kinds, keys)
    if keys is not None:
        rows = [row for row in rows if key_of_row(row, chosen, kinds) in keys]
    return _Rows(chosen, kinds, rows)


# --- by Spark ------------------------------------------------------------------------------------


def _outside(column: Column, given: Mapping[str, Any]) -> Column:
    low, high = given.get("min_value"), given.get("max_value")
    outside = F.lit(False)
    if low is not None:
        outside |= (column <= low) if given.get("strict_min") else (column < low)
    if high is not None:
        outside |= (column >= high) if given.get("strict_max") else (column > high)
    return outside


_UNEXPECTED: Mapping[str, Callable[[Column, Mapping[str, Any]], Column]] = {
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


def _failing_keys(frame: DataFrame, mirror: Mirror, wish: Expectation) -> tuple[str, ...]:
    """Some keys of rows that fail an expectation, as JSON under the source's names; none if they are not known.

    Great Expectations can name them only by collecting every failing row on the driver; here Spark evaluates the same
    condition with a limit, for expectations that test one column row by row.
    """
    given = wish.arguments.get("column")
    column = next((column.column for column in mirror.columns if column.name == given), None)
    condition = _UNEXPECTED.get(wish.type.removeprefix(_HEAD))
    if condition is None or column is None or not mirror.keys or wish.arguments.keys() & set(_PARTIAL):
        return ()
    cells = [F.col(quoted(key_column.column)).alias(key_column.name) for key_column in mirror.key_columns]
    key = exact.key_json(cells)
    try:
        bad = frame.select(key.alias("key"), condition(F.col(quoted(column)), wish.arguments).alias("bad"))
        rows = bad.where("bad").limit(FAILING_KEYS).collect()
    except (PySparkException, KeyError, TypeError):  # Great Expectations supports more than this function
        return ()
    return tuple(sorted(row["key"] for row in rows))


# --- by Great Expectations ------------------------------------------------------------------------


def readable(frame: DataFrame) -> DataFrame:
    """VARIANT columns as JSON text: Great Expectations cannot handle the values."""
    odd = [field.name for field in frame.schema.fields if isinstance(field.dataType, VariantType)]
    return frame.withColumns({name: F.to_json(F.col(f"`{name}`")) for name in odd}) if odd else frame


def _judged(
    batch: Any,
    form: str,
    failing: Callable[[Expectation, Any], tuple[str, ...]],
    subject: CheckedMirror,
    wish: Expectation,
) -> CheckResult:
    mirror, given = subject.decided, wish.arguments.get("column")
    column = given if isinstance(given, str) else None
    metric = Metric(wish.type, 0.0, subject.name, column=column, severity=wish.severity, detail=_words(wish))
    try:
        result = batch.validate(_expectation(wish, mirror), result_format=form)
    except Exception as error:  # a failure of one expectation does not stop the others
        return _broken(metric, f"{type(error).__name__}: {error}")
    complaint = _complaint(result.exception_info)
    if complaint:
        return _broken(metric, complaint)
    verdict = _verdict(metric, result)
    if verdict.state == PASS:
        return verdict
    return replace(verdict, metric=replace(verdict.metric, failing=failing(wish, result)))


def _expectation(wish: Expectation, mirror: Mirror) -> Any:
    """The library's own object, with source columns under their names in the mirror."""
    registry = importlib.import_module("great_expectations.expectations.registry")
    names = {column.name: column.column for column in mirror.columns}
    arguments: dict[str, Any] = dict(wish.arguments)
    for name in arguments.keys() & set(_COLUMN_ARGUMENTS):
        given = arguments[name]
        if isinstance(given, str):
            arguments[name] = names.get(given, given)
        else:
            arguments[name] = [
                names.get(argument, argument) if isinstance(argument, str) else argument for argument in given
            ]
    return registry.get_expectation_impl(wish.type)(**arguments)


def _complaint(info: Any) -> str:
    """The message of an exception that the library caught, flat or under each metric; else nothing."""
    if not isinstance(info, dict):
        return ""
    if "raised_exception" in info:
        return str(info.get("exception_message") or "it raised") if info["raised_exception"] else ""
    return next(filter(None, (_complaint(inner) for inner in info.values())), "")


def _broken(metric: Metric, text: str) -> CheckResult:
    first = text.strip().splitlines()[0] if text.strip() else "no reason given"
    return CheckResult(_found(metric, 0.0, f"{metric.detail} could not be judged: {first}"), ERROR)


def _verdict(metric: Metric, result: Any) -> CheckResult:
    """The number of unexpected values if there is one, else the observed value."""
    facts = result.result or {}
    bad = facts.get("unexpected_count")
    observed = facts.get("observed_value")
    text = metric.detail
    if bad is not None:
        text = f"{text}: not as expected in {bad:,} of {counted(facts.get('element_count', 0), 'row')}"
    elif observed is not None:
        text = f"{text}: observed {observed}"
    number = bad if bad is not None else observed
    value = float(number) if isinstance(number, int | float) else 0.0
    return CheckResult(_found(metric, value, text), PASS if result.success else FAILED[metric.severity])


def _found(metric: Metric, observed: float, detail: str) -> Metric:
    return replace(metric, observed=observed, detail=detail[:MAX_DETAIL])


def _words(wish: Expectation) -> str:
    """``expect column values to be between (column "price", min_value 0)``."""
    arguments = ", ".join(
        f"{name} {json.dumps(value, ensure_ascii=False, default=str)}"
        for name, value in wish.arguments.items()
    )
    return wish.type.replace("_", " ") + (f" ({arguments})" if arguments else "")
