"""The keys of a ``quality:`` entry: suites, the rows that are looked at, the source's counts."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ingest.config import Expectation, QualityRule, load, scalars
from ingest.errors import ConfigError
from ingest.quality import judge
from ingest.quality.catalogue import CHECKS, FAIL, PASS, Metric

HEAD = "pipeline: yard\nlake: ./lake\nengine: auto\nsources:\n  - {name: y, kind: files, path: ./*.jsonl, format: canal}\nquality:\n"
RULE = "  - table: yard.crates\n    suite: crates.json\n"
FILLED = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "id"}}


def rules(folder: Path, more: str, suite: object = None) -> tuple[QualityRule, ...]:
    """The rules of a pipeline file with such an entry."""
    if suite is not None:
        (folder / "crates.json").write_text(suite if isinstance(suite, str) else json.dumps(suite), "utf-8")
    file = folder / "yard.yaml"
    file.write_text(HEAD + more, "utf-8")
    return load(file).quality


def test_a_suite_joins_the_expectations_next_to_it(tmp_path: Path) -> None:
    """An expectation that is lost on the way is a check that always passes."""
    old = {
        "expectation_type": "expect_column_values_to_be_unique",
        "kwargs": {"column": "id", "batch_id": "x"},
    }
    suite = {"name": "crates", "expectations": [FILLED | {"severity": "warning", "id": "1"}, old]}
    own = "    expect:\n      - {type: expect_table_row_count_to_be_between, min_value: 1}\n"
    expected = (
        Expectation("expect_table_row_count_to_be_between", {"min_value": 1}),
        Expectation("expect_column_values_to_not_be_null", {"column": "id"}, "warn"),
        Expectation("expect_column_values_to_be_unique", {"column": "id"}),
    )
    assert expected == rules(tmp_path, RULE + own, suite)[0].expect


@pytest.mark.parametrize(
    ("suite", "message"),
    [
        (None, "cannot be read: No such file or directory"),
        ("{", "is not JSON"),
        ([], "holds no list `expectations`"),
        ({"expectations": []}, "holds no list `expectations`"),
        ({"expectations": [{"kwargs": {}}]}, "expectation 1 of the suite"),
        ({"expectations": [FILLED, FILLED | {"severity": "loud"}]}, "expectation 2 of the suite"),
        ({"expectations": [FILLED | {"kwargs": []}]}, "needs `kwargs`"),
    ],
)
def test_a_bad_suite_is_a_fault_of_its_line(tmp_path: Path, suite: object, message: str) -> None:
    """A bad suite would be found only at night, after all stages."""
    with pytest.raises(ConfigError) as caught:
        rules(tmp_path, RULE, suite)
    (problem,) = caught.value.problems
    assert message in problem
    assert problem.startswith(f"{tmp_path / 'yard.yaml'}:8:")


def test_counts_and_rows_to_look_at(tmp_path: Path) -> None:
    """Paths are taken from the file's own folder; all rows are looked at unless the file says otherwise."""
    first, second = rules(
        tmp_path, '  - {table: "*", source_counts: counts.csv, on: changed}\n  - {table: yard.crates}\n'
    )
    assert (str(tmp_path / "counts.csv"), "changed") == (first.source_counts, first.on)
    assert ("", "mirror") == (second.source_counts, second.on)


def test_rows_to_look_at_are_one_of_two_words(tmp_path: Path) -> None:
    """A word that means nothing would quietly mean all rows."""
    with pytest.raises(ConfigError, match="mirror"):
        rules(tmp_path, "  - {table: yard.crates, on: new}\n")


def test_the_pipeline_file_knows_every_check() -> None:
    """A limit for a check that the file's reader does not know could not be set."""
    assert list(CHECKS) == list(scalars.CHECKS)


def test_what_judges_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of small batches would spend a fifth of its time on what takes the numbers; the numbers are each batch's own."""
    context, made = judge.context, []
    monkeypatch.setattr(judge, "context", lambda: made.append(context()) or made[-1])
    judge._frames.cache_clear()
    numbers = [(2.0, 1.0), (1.0, 1.0), (9.0, None), (0.1 + 0.2, 0.3)]
    for turned in (numbers, numbers[::-1]):
        found = judge.judged(
            [Metric("gaps", observed, "yard.crates", limit=limit) for observed, limit in turned]
        )
        assert [FAIL if limit and observed > limit else PASS for observed, limit in turned] == [
            one.state for one in found
        ]
    assert 1 == len(made)


def test_a_large_module_is_imported_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The statistics that one expectation needs are a third of what the library takes to import."""
    monkeypatch.delitem(sys.modules, "wsgiref.headers", raising=False)
    judge._import_when_used("wsgiref.headers")
    module = sys.modules["wsgiref.headers"]
    assert type(module) is not ModuleType
    assert [("a", "b")] == module.Headers([("a", "b")]).items()
    assert type(module) is ModuleType
    judge._import_when_used("wsgiref.headers")
    assert module is importlib.import_module("wsgiref.headers")


def test_a_module_that_is_left_out_is_there_again() -> None:
    """Spark's own machine learning would be missing for whoever shares the process with a run."""
    assert importlib.import_module("wsgiref.headers")
    del sys.modules["wsgiref.headers"]
    with judge._missing("wsgiref.headers", "wsgiref"), pytest.raises(ImportError):
        importlib.import_module("wsgiref.headers")
    assert importlib.import_module("wsgiref.headers")
    with judge._missing("wsgiref.headers"):
        assert importlib.import_module("wsgiref.headers"), "what is there already stays"


def test_a_histogram_finds_what_cuts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An expectation of a distribution, on Spark, would end in an import error."""
    made: Any = ModuleType("pyspark.ml.feature")
    made.Bucketizer = dict
    monkeypatch.setitem(sys.modules, "pyspark.ml.feature", made)
    judge.great_expectations()
    histogram = importlib.import_module("great_expectations.compatibility.pyspark")
    assert {"splits": [0, 1], "inputCol": "a"} == histogram.Bucketizer(splits=[0, 1], inputCol="a")
