"""The user's own expectations: Great Expectations on Spark, one at a time on each mirror.

One at a time, for a result that cannot be serialised (quantiles under numpy 2, VARIANT columns) would
take the whole run with it; results are asked for without values, for those may be anybody's.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import VariantType

from ingest.config import Expectation, matches
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Mirror
from ingest.quality.catalogue import ERROR, FAIL, MAX_DETAIL, PASS, WARN, Metric, Verdict
from ingest.quality.judge import context
from ingest.quality.subjects import Subject

_COLUMN_ARGUMENTS = ("column", "column_A", "column_B", "column_list", "column_set")
_STATE = {"error": FAIL, "warn": WARN}


def expected(lake: Lake, chosen: Iterable[Subject], tell: Callable[[str, str], None]) -> list[Verdict]:
    """Judge what the pipeline file expects of the chosen mirrors."""
    found: list[Verdict] = []
    gx: Any = None
    for subject in chosen:
        wishes = [
            wish
            for rule in lake.pipeline.quality
            if matches(rule.table, subject.table)
            for wish in rule.expect
        ]
        if not wishes or subject.mirror is None or not subject.exists:
            continue
        gx = gx or context()
        tell(f"quality {subject.name}", "expectations")
        frame = readable(lake.read(subject.path)).cache()
        try:
            batch = _batch(gx, subject.name, frame)
            found += [_judged(batch, subject, subject.mirror, wish) for wish in wishes]
        finally:
            frame.unpersist()
    return found


def readable(frame: DataFrame) -> DataFrame:
    """VARIANT columns as their JSON text: Great Expectations cannot carry the values."""
    odd = [one.name for one in frame.schema.fields if isinstance(one.dataType, VariantType)]
    return frame.withColumns({name: F.to_json(F.col(f"`{name}`")) for name in odd}) if odd else frame


def _batch(gx: Any, name: str, frame: DataFrame) -> Any:
    source = gx.data_sources.add_or_update_spark(name)
    asset = source.add_dataframe_asset(name)
    return asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})


def _judged(batch: Any, subject: Subject, mirror: Mirror, wish: Expectation) -> Verdict:
    column = wish.arguments.get("column")
    metric = Metric(
        wish.type,
        0.0,
        subject.name,
        column=column if isinstance(column, str) else None,
        severity=wish.severity,
        detail=_words(wish),
    )
    try:
        result = batch.validate(_expectation(wish, mirror), result_format="BASIC")
    except Exception as error:  # whatever an expectation meets, the others are judged
        return _broken(metric, f"{type(error).__name__}: {error}")
    complaint = _complaint(result.exception_info)
    if complaint:
        return _broken(metric, complaint)
    return _verdict(metric, result)


def _expectation(wish: Expectation, mirror: Mirror) -> Any:
    """The library's own object, with source columns under their names in the mirror."""
    registry = importlib.import_module("great_expectations.expectations.registry")
    names = {one.name: one.column for one in mirror.columns}
    arguments = {
        name: _renamed(value, names) if name in _COLUMN_ARGUMENTS else value
        for name, value in wish.arguments.items()
    }
    return registry.get_expectation_impl(wish.type)(**arguments)


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, str):
        return names.get(value, value)
    return [names.get(one, one) if isinstance(one, str) else one for one in value]


def _complaint(info: Any) -> str:
    """The message of an exception that the library caught, flat or under each metric; else nothing."""
    if not isinstance(info, dict):
        return ""
    if "raised_exception" in info:
        return str(info.get("exception_message") or "it raised") if info["raised_exception"] else ""
    return next(filter(None, (_complaint(one) for one in info.values())), "")


def _broken(metric: Metric, text: str) -> Verdict:
    first = text.strip().splitlines()[0] if text.strip() else "no reason given"
    return Verdict(_with(metric, 0.0, f"{metric.detail} could not be judged: {first}"), ERROR)


def _verdict(metric: Metric, result: Any) -> Verdict:
    """The number of unexpected values where there is one, else what was observed."""
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
    return Verdict(_with(metric, value, text), PASS if result.success else _STATE[metric.severity])


def _with(metric: Metric, observed: float, detail: str) -> Metric:
    return Metric(
        metric.check,
        observed,
        metric.mirror,
        column=metric.column,
        severity=metric.severity,
        detail=detail[:MAX_DETAIL],
    )


def _words(wish: Expectation) -> str:
    """``expect column values to be between (column "price", min_value 0)``."""
    arguments = ", ".join(
        f"{name} {json.dumps(value, ensure_ascii=False, default=str)}"
        for name, value in wish.arguments.items()
    )
    return wish.type.replace("_", " ") + (f" ({arguments})" if arguments else "")
