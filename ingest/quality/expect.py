"""The user's own expectations: Great Expectations on Spark, one at a time on each mirror.

One at a time, because a result that cannot be serialised (quantiles under numpy 2, VARIANT columns) would fail the
whole run. Results are requested without values, which may be private.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import VariantType

from ingest.config import Expectation, matches
from ingest.lake import faults
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Mirror
from ingest.quality import key_checks, unexpected
from ingest.quality.catalogue import ERROR, FAIL, MAX_DETAIL, PASS, WARN, CheckResult, Metric
from ingest.quality.judge import context
from ingest.quality.subjects import CheckedMirror

_COLUMN_ARGUMENTS = ("column", "column_A", "column_B", "column_list", "column_set")
_STATE = {"error": FAIL, "warn": WARN}


def expected(
    lake: Lake, chosen: Iterable[CheckedMirror], since: int, tell: Callable[[str, str], None]
) -> list[CheckResult]:
    """Evaluate the pipeline file's expectations for the chosen mirrors.

    ``since`` is the last batch checked before, for expectations on changed rows; ``tell`` is called with what is being
    worked on.
    """
    found: list[CheckResult] = []
    gx: Any = None
    for subject in chosen:
        if subject.mirror is None or not subject.exists:
            continue
        by_rows: dict[str, list[Expectation]] = {}
        for rule in lake.pipeline.quality:
            if rule.expect and matches(rule.table, subject.table):
                by_rows.setdefault(rule.on, []).extend(rule.expect)
        for on, wishes in by_rows.items():
            gx = gx or context()
            tell(f"quality {subject.name}", "expectations")
            try:
                found += _of_rows(lake, gx, subject, since, on, wishes)
            except Exception as error:  # one mirror's files must not hide the results of the others
                text = faults.of_mirror(error, lake, subject.name, subject.path)
                found.append(CheckResult(Metric(wishes[0].type, 0.0, subject.name, detail=text), ERROR))
    return found


def _of_rows(
    lake: Lake, gx: Any, subject: CheckedMirror, since: int, on: str, wishes: Iterable[Expectation]
) -> list[CheckResult]:
    assert subject.mirror is not None
    changed = key_checks.changed_rows(lake, subject, since) if on == "changed" else None
    frame = readable(lake.read(subject.path) if changed is None else changed).cache()
    try:
        name = f"{subject.name} {on}"
        source = gx.data_sources.add_or_update_spark(name)
        asset = source.add_dataframe_asset(name)
        batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
        return [_judged(batch, frame, subject.name, subject.mirror, wish) for wish in wishes]
    finally:
        frame.unpersist()


def readable(frame: DataFrame) -> DataFrame:
    """VARIANT columns as JSON text: Great Expectations cannot handle the values."""
    odd = [one.name for one in frame.schema.fields if isinstance(one.dataType, VariantType)]
    return frame.withColumns({name: F.to_json(F.col(f"`{name}`")) for name in odd}) if odd else frame


def _judged(batch: Any, frame: DataFrame, name: str, mirror: Mirror, wish: Expectation) -> CheckResult:
    given = wish.arguments.get("column")
    column = given if isinstance(given, str) else None
    metric = Metric(wish.type, 0.0, name, column=column, severity=wish.severity, detail=_words(wish))
    try:
        result = batch.validate(_expectation(wish, mirror), result_format="BASIC")
    except Exception as error:  # a failure of one expectation does not stop the others
        return _broken(metric, f"{type(error).__name__}: {error}")
    complaint = _complaint(result.exception_info)
    if complaint:
        return _broken(metric, complaint)
    verdict = _verdict(metric, result)
    if verdict.state == PASS:
        return verdict
    there = next((one.column for one in mirror.columns if one.name == column), column)
    return replace(
        verdict, metric=replace(verdict.metric, failing=unexpected.keys(frame, mirror, wish, there))
    )


def _expectation(wish: Expectation, mirror: Mirror) -> Any:
    """The library's own object, with source columns under their names in the mirror."""
    registry = importlib.import_module("great_expectations.expectations.registry")
    names = {one.name: one.column for one in mirror.columns}
    arguments: dict[str, Any] = dict(wish.arguments)
    for name in arguments.keys() & set(_COLUMN_ARGUMENTS):
        given = arguments[name]
        if isinstance(given, str):
            arguments[name] = names.get(given, given)
        else:
            arguments[name] = [names.get(one, one) if isinstance(one, str) else one for one in given]
    return registry.get_expectation_impl(wish.type)(**arguments)


def _complaint(info: Any) -> str:
    """The message of an exception that the library caught, flat or under each metric; else nothing."""
    if not isinstance(info, dict):
        return ""
    if "raised_exception" in info:
        return str(info.get("exception_message") or "it raised") if info["raised_exception"] else ""
    return next(filter(None, (_complaint(one) for one in info.values())), "")


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
        text = f"{text}: {bad:,} of {facts.get('element_count', 0):,} rows are not as expected"
    elif observed is not None:
        text = f"{text}: observed {observed}"
    number = bad if bad is not None else observed
    value = float(number) if isinstance(number, int | float) else 0.0
    return CheckResult(_found(metric, value, text), PASS if result.success else _STATE[metric.severity])


def _found(metric: Metric, observed: float, detail: str) -> Metric:
    return replace(metric, observed=observed, detail=detail[:MAX_DETAIL])


def _words(wish: Expectation) -> str:
    """``expect column values to be between (column "price", min_value 0)``."""
    arguments = ", ".join(
        f"{name} {json.dumps(value, ensure_ascii=False, default=str)}"
        for name, value in wish.arguments.items()
    )
    return wish.type.replace("_", " ") + (f" ({arguments})" if arguments else "")
