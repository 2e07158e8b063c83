"""The built-in checks as Great Expectations writes suites and validation results, without importing the library.

Its users have tools that read these documents. Each mirror and each source is a suite of its own; the batch that it is about is
one row of numbers, a column for each check, so that every check is `expect_column_max_to_be_between` with the check's limit.
Documents: `ExpectationSuite` and `ExpectationSuiteValidationResult` of Great Expectations 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata
from typing import Any

from ingest.quality.catalogue import CHECKS, ERROR, PASS, CheckResult

_TYPE = "expect_column_max_to_be_between"
_SEVERITY = {"error": "critical", "warn": "warning"}


def documents(pipeline: str, checked: Iterable[CheckResult]) -> dict[str, list[dict[str, Any]]]:
    """The suites and their results, in the order of the subjects; checks without a limit expect nothing.

    Args:
        pipeline: the pipeline's name, with which each suite's name begins.
        checked: the judged checks; the user's own expectations are left out, as they have a suite already.
    """
    subjects: dict[str, list[CheckResult]] = {}
    for result in checked:
        if result.metric.check in CHECKS and result.metric.limit is not None:
            subjects.setdefault(result.subject, []).append(result)
    version = {"great_expectations_version": metadata.version("great_expectations")}
    return {
        "suites": [_suite(f"{pipeline}: {name}", group, version) for name, group in subjects.items()],
        "results": [_result(f"{pipeline}: {name}", name, group, version) for name, group in subjects.items()],
    }


def _suite(name: str, checked: Iterable[CheckResult], version: dict[str, str]) -> dict[str, Any]:
    expectations = [_expectation(result) for result in checked]
    return {"name": name, "id": None, "expectations": expectations, "meta": version, "notes": None}


def _result(name: str, subject: str, checked: list[CheckResult], version: dict[str, str]) -> dict[str, Any]:
    passed = sum(result.state == PASS for result in checked)
    return {
        "success": passed == len(checked),
        "results": [_verdict(result) for result in checked],
        "suite_name": name,
        "suite_parameters": {},
        "statistics": {
            "evaluated_expectations": len(checked),
            "successful_expectations": passed,
            "unsuccessful_expectations": len(checked) - passed,
            "success_percent": 100.0 * passed / len(checked),
        },
        "meta": {**version, "active_batch_definition": {"data_asset_name": subject}},
        "id": None,
    }


def _expectation(result: CheckResult) -> dict[str, Any]:
    metric = result.metric
    about = {"claim": CHECKS[metric.check].title, "measured": CHECKS[metric.check].question}
    if metric.column:
        about["of_column"] = metric.column
    return {
        "type": _TYPE,
        "kwargs": {"column": metric.check, "max_value": metric.limit},
        "meta": about,
        "severity": _SEVERITY[metric.severity],
    }


def _verdict(result: CheckResult) -> dict[str, Any]:
    failed = result.state == ERROR  # it could not be judged
    return {
        "success": result.state == PASS,
        "expectation_config": _expectation(result),
        "result": {} if failed else {"observed_value": result.metric.observed},
        "meta": {} if result.state == PASS else {"found": result.said(), "keys": list(result.metric.failing)},
        "exception_info": {
            "raised_exception": failed,
            "exception_traceback": None,
            "exception_message": result.said() if failed else None,
        },
    }
