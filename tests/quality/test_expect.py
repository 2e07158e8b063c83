"""Expectations in this process, which must come to the same results as on Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.config import Expectation, Pipeline
from ingest.config.entries import QualityRule
from ingest.config.model import Source, TableRule
from ingest.gold.plan.steps import steps_of
from ingest.quality import expect, ledgers
from ingest.quality.catalogue import CheckResult
from ingest.quality.subjects import survey
from ingest.run import run
from ingest.tables.lake import Lake
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES = {
    "id": "bigint", "code": "varchar(9)", "small": "int", "price": "decimal(12,2)", "day": "date",
    "at": "datetime(6)", "raw": "varbinary(9)", "ratio": "double",
}  # fmt: skip
FIRST: list[dict[str, str | None]] = [
    {"id": "1", "code": "new", "small": "5", "price": "1.50", "day": "2024-05-01", "at": "2024-05-01 01:02:03.000004", "raw": "AQ==", "ratio": "1.5"},
    {"id": "2", "code": "new", "small": "-7", "price": "1.5", "day": "2024-05-01", "at": None, "raw": "AQ==", "ratio": "0"},
    {"id": "3", "code": None, "small": None, "price": None, "day": None, "at": None, "raw": None, "ratio": None},
    {"id": "4", "code": "NaN", "small": "2147483647", "price": "-9999999999.99", "day": "0001-01-01", "at": "9999-12-31 23:59:59.999999", "raw": "", "ratio": "2"},
]  # fmt: skip
SECOND: list[dict[str, str | None]] = [
    {"id": "9", "code": "", "small": "0", "price": "0.00", "day": "2024-05-02", "at": None, "raw": "AA==", "ratio": "-1"}
]  # fmt: skip
WISHES: list[tuple[str, dict[str, Any]]] = [
    *(("not_be_null", {"column": name}) for name in TYPES if name != "ratio"),
    *(("be_null", {"column": name, "mostly": 0.5}) for name in ("code", "at", "raw")),
    *(("be_unique", {"column": name}) for name in TYPES if name != "ratio"),
    ("be_in_set", {"column": "code", "value_set": ["new", "NaN"]}),
    ("be_in_set", {"column": "code", "value_set": ["nothing"], "mostly": 0.1}),
    ("be_in_set", {"column": "small", "value_set": [5, -7]}),
    ("not_be_in_set", {"column": "small", "value_set": [0, 5]}),
    ("not_be_in_set", {"column": "code", "value_set": [""]}),
    ("be_between", {"column": "small", "min_value": -7, "max_value": 5}),
    ("be_between", {"column": "small", "min_value": -7, "strict_min": True}),
    ("be_between", {"column": "price", "min_value": 0}),
    ("be_between", {"column": "price", "max_value": 1, "strict_max": True}),
    ("be_between", {"column": "id", "min_value": 3, "max_value": 1}),
    ("be_between", {"column": "id"}),
]  # fmt: skip
ON_SPARK: list[tuple[str, dict[str, Any]]] = [
    ("not_be_null", {"column": "ratio"}),
    ("be_in_set", {"column": "small", "value_set": ["5"]}),
    ("be_between", {"column": "price", "min_value": 0.01}),
    ("be_between", {"column": "day", "min_value": "2024-05-01"}),
    ("not_be_null", {"column": "absent"}),
    ("not_be_null", {"column": "id", "row_condition": "id > 1"}),
    ("match_regex", {"column": "code", "regex": "^n"}),
]


def pipeline(folder: Path, keys: tuple[str, ...] = ("id",)) -> Pipeline:
    """One table, with or without a key."""
    source = Source("s", "files", "dts-canal", path=str(folder / "in-*.jsonl"), settle=0)
    rule = TableRule("d.t", keys=keys, no_key="hold" if keys else "full_row")
    return Pipeline("expected", folder / "x.yaml", str(folder / "lake"), (source,), (rule,), engine="auto")


def filled(folder: Path, keys: tuple[str, ...] = ("id",)) -> Pipeline:
    """Two batches."""
    found = pipeline(folder, keys)
    for n, rows in enumerate((FIRST, SECOND), 1):
        lines = [
            {
                "database": "d", "table": "t", "type": "INSERT", "isDdl": False, "sql": "", "old": None,
                "pkNames": list(keys), "es": 1714521600000, "ts": 1714521600000, "id": 10 * n + i,
                "mysqlType": TYPES, "data": [row],
            }
            for i, row in enumerate(rows)
        ]  # fmt: skip
        text = "".join(json.dumps(one) + "\n" for one in lines)
        (folder / f"in-{n}.jsonl").write_text(text)
        result = run(nothing(), found, ("bronze", "silver", "gold"))
        assert ["done"] == [one.state for one in result.mirrors]
    return found


def nothing() -> SparkSession:
    """A session that must not start."""
    return unstarted()


def judged(
    spark: SparkSession, of: Pipeline, wishes: list[tuple[str, dict[str, Any]]], on: str, since: int
) -> list[CheckResult]:
    """The results of some expectations."""
    listed = tuple(Expectation(f"expect_column_values_to_{name}", given) for name, given in wishes)
    lake = Lake(spark, replace(of, quality=(QualityRule("d.t", listed, on=on),)))
    books = ledgers.read(lake, since, lake.decoded())
    chosen = survey(lake, books.lanes, (), None, None, steps=steps_of(lake)).subjects
    return expect.expected(lake, chosen, since, lambda *_: None)


@pytest.mark.parametrize(("on", "since"), [("mirror", 1), ("changed", 1)])
def test_the_results_are_those_of_spark(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, on: str, since: int
) -> None:
    """Each state, number and text; the keys of rows that fail are compared as values."""
    of, wishes = filled(tmp_path), WISHES if on == "mirror" else WISHES[::9]  # each takes Spark a second
    here = judged(nothing(), of, wishes, on, since)
    monkeypatch.setattr(expect, "SMALL", 0)
    there = judged(spark, of, wishes, on, since)
    for one, other in zip(here, there, strict=True):
        assert (one.state, one.metric.observed, one.metric.detail) == (
            other.state, other.metric.observed, other.metric.detail,
        )  # fmt: skip
        if other.metric.failing:  # some conditions Spark's sample does not know
            assert keys(other) == keys(one)
    assert len(wishes) == len(here)
    assert on == "changed" or {"pass", "fail", "error"} == {one.state for one in here}


def keys(one: CheckResult) -> list[int]:
    """The keys of rows that fail."""
    return sorted(int(json.loads(text)["id"]) for text in one.metric.failing)


def test_a_table_without_a_key(tmp_path: Path) -> None:
    """Its rows are judged, but have no keys to name."""
    (found,) = judged(nothing(), filled(tmp_path, ()), [("not_be_null", {"column": "code"})], "mirror", 0)
    assert ("fail", 1, ()) == (found.state, found.metric.observed, found.metric.failing)


@pytest.mark.parametrize("wish", ON_SPARK, ids=lambda one: f"{one[0]}-{'-'.join(map(str, one[1].values()))}")
def test_what_could_differ_is_left_to_spark(tmp_path: Path, wish: tuple[str, dict[str, Any]]) -> None:
    """Floats, conversions, patterns and conditions have rules of their own there."""
    of = filled(tmp_path)
    with pytest.raises(pytest.fail.Exception, match="Spark was started"):
        judged(nothing(), of, [WISHES[0], wish], "mirror", 0)
