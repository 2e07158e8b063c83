"""Judge metrics with Great Expectations: one suite over one small frame, for any number of mirrors.

Great Expectations runs two or three Spark jobs a check, so everything is measured at once
(`ingest.quality.key_checks`) and the suite judges the few resulting numbers. The library takes seconds to import, so only
functions import it, and the stage imports it while Spark is counting.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from threading import Lock
from typing import Any

from ingest.quality.catalogue import FAIL, PASS, WARN, CheckResult, Metric

FAILED = {"error": FAIL, "warn": WARN}
_WHICH = {
    "result_format": "COMPLETE",
    "unexpected_index_column_names": ["index"],
    "include_unexpected_rows": False,
}
_JUDGING = Lock()  # the library keeps the frame that it judges in what all runs of this process share


@cache
def great_expectations() -> Any:
    """The library, without analytics and without the warnings of its imports."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    with warnings.catch_warnings(), _missing("pyspark.ml.feature", "pyspark.sql.connect.dataframe"):
        warnings.simplefilter("ignore")
        _import_when_used("scipy.stats")  # one expectation's; its import takes a third of the library's
        library = importlib.import_module("great_expectations")
    spark: Any = importlib.import_module("great_expectations.compatibility.pyspark")
    spark.Bucketizer = _bucketizer
    return library


@contextmanager
def _missing(*names: str) -> Iterator[None]:
    """Have the library do without modules that it can do without: a sixth of the time that its import takes.

    One makes Spark's histograms (`_bucketizer`), the other knows frames of Spark Connect, which are never judged here.
    """
    modules: dict[str, Any] = sys.modules
    names = tuple(name for name in names if name not in modules)
    modules.update(dict.fromkeys(names))
    try:
        yield
    finally:
        for name in names:
            del modules[name]


def _bucketizer(**given: Any) -> Any:
    """What cuts a column into the bars of a histogram, imported when an expectation asks for one."""
    return importlib.import_module("pyspark.ml.feature").Bucketizer(**given)


def _import_when_used(name: str) -> None:
    """Let the next ``import`` of a module wait until one of its attributes is read."""
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    package, _, own = name.rpartition(".")
    setattr(sys.modules[package], own, module)


def context() -> Any:
    """A context that lives in memory, writes nothing and draws no progress bars."""
    gx = great_expectations()
    made = gx.get_context(mode="ephemeral")
    types = importlib.import_module("great_expectations.data_context.types.base")
    made.variables.progress_bars = types.ProgressBarsConfig(globally=False)
    return made


def judged(metrics: Sequence[Metric]) -> list[CheckResult]:
    """Each metric with its state: it passes unless it is above its limit."""
    excesses = [
        None if metric.limit is None else float(metric.observed) - float(metric.limit) for metric in metrics
    ]
    above = _above(frozenset(excess for excess in excesses if excess is not None))
    return [
        CheckResult(metric, FAILED[metric.severity] if excess in above else PASS)
        for metric, excess in zip(metrics, excesses, strict=True)
    ]


@cache
def _frames() -> Any:
    """What takes each frame of metrics, made once: to make it costs four times as much as to judge one."""
    asset = context().data_sources.add_pandas("metrics").add_dataframe_asset("metrics")
    return asset.add_batch_definition_whole_dataframe("all")


@lru_cache(maxsize=64)
def _above(excesses: frozenset[float]) -> frozenset[float]:
    """Those of some differences from limits that are too large, by one validation of one suite.

    Equal numbers are judged once. Most batches have only zeros, and the library takes a tenth of a small batch's time
    for each frame.
    """
    if not excesses:
        return excesses
    import pandas as pd

    gx = great_expectations()
    suite = gx.ExpectationSuite(  # one expectation for all metrics: one for each would cost more than all other work
        "built-in checks",
        expectations=[gx.expectations.ExpectColumnValuesToBeBetween(column="excess", max_value=0)],
    )
    numbers = sorted(excesses)
    frame = pd.DataFrame({"index": range(len(numbers)), "excess": numbers})
    with _JUDGING:
        result = _validated(_frames().get_batch({"dataframe": frame}), suite)
    return frozenset(  # by their places: the library rounds the numbers that it returns
        numbers[int(place["index"])]
        for judgement in result.results
        for place in judgement.result.get("unexpected_index_list") or ()
    )


def _validated(batch: Any, suite: Any) -> Any:
    """The result of a suite.

    Raises:
        RuntimeError: an expectation has failed to judge.
    """
    result = batch.validate(suite, result_format=dict(_WHICH))
    for judgement in result.results:
        complaint = judgement.exception_info or {}
        if complaint.get("raised_exception"):
            raise RuntimeError(f"Great Expectations cannot judge: {complaint.get('exception_message')}")
    return result
