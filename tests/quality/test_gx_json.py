"""The built-in checks as Great Expectations' own documents: its classes read them and agree."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ingest.cli.app import app
from ingest.quality import gx_json
from ingest.quality.catalogue import ERROR, FAIL, PASS, WARN, CheckResult, Metric
from ingest.quality.judge import great_expectations
from tests.serve.conftest import depot

CHECKED = [
    CheckResult(
        Metric("missing_rows", 2.0, "s.t", limit=0.0, failing=('{"id":1}',), detail="2 rows are missing"),
        FAIL,
    ),
    CheckResult(Metric("key_unique", 0.0, "s.t", limit=0.0), PASS),
    CheckResult(Metric("rows", 7.0, "s.t", severity="warn"), PASS),
    CheckResult(Metric("cell_rejects", 3.0, "s.t", column="price", limit=0.0, severity="warn"), WARN),
    CheckResult(Metric("gaps", 0.0, source="orders", limit=0.0, detail="the books are damaged"), ERROR),
    CheckResult(Metric("expect_column_values_to_not_be_null", 0.0, "s.t", column="id", limit=0.0), PASS),
]


@pytest.fixture(scope="module")
def found() -> dict[str, list[dict[str, Any]]]:
    """The documents as text brings them."""
    made: dict[str, list[dict[str, Any]]] = json.loads(json.dumps(gx_json.documents("shop", CHECKED)))
    return made


def test_the_library_reads_its_suites(found: dict[str, list[dict[str, Any]]]) -> None:
    """A suite that its own class refuses is of no use to anybody."""
    gx = great_expectations()
    suites = [gx.ExpectationSuite(**one) for one in found["suites"]]
    assert ["shop: s.t", "shop: source orders"] == [one.name for one in suites]
    bounds = {one.column: (one.max_value, str(one.severity.value)) for one in suites[0].expectations}
    assert {
        "missing_rows": (0, "critical"), "key_unique": (0, "critical"), "cell_rejects": (0, "warning"),
    } == bounds  # fmt: skip


def test_the_library_reads_its_results(found: dict[str, list[dict[str, Any]]]) -> None:
    """A check that fails would pass where its users look, or the other way round."""
    great_expectations()
    from great_expectations.core.expectation_validation_result import expectationSuiteValidationResultSchema

    mirror, source = (expectationSuiteValidationResultSchema.load(one) for one in found["results"])
    assert {"missing_rows": False, "key_unique": True, "cell_rejects": False} == {
        one["expectation_config"]["kwargs"]["column"]: one["success"] for one in mirror["results"]
    }
    assert (False, 3, 1) == (
        mirror["success"], mirror["statistics"]["evaluated_expectations"], mirror["statistics"]["successful_expectations"],
    )  # fmt: skip
    assert ["2 rows are missing"] == [
        one["meta"]["found"] for one in mirror["results"] if one["result"].get("observed_value") == 2.0
    ]
    [broken] = source["results"]
    assert (False, True) == (broken["success"], broken["exception_info"]["raised_exception"])


def test_the_last_checks_are_shown_without_the_library(tmp_path: Path) -> None:
    """Its import takes seconds, and nothing is judged here."""
    made = depot(tmp_path)
    made.now += dt.timedelta(hours=1)
    row = made.check("depot.bins", "missing_rows", 2.0, "fail", "2 rows are missing")
    made.product("checks", [row | {"threshold": "0"}])
    done = CliRunner().invoke(app, ["quality", str(made.file), "--last", "-o", "gx"])
    assert 1 == done.exit_code, done.output  # rows are missing
    shown = json.loads(done.stdout)
    [wrong] = [one for one in shown["results"] if one["suite_name"] == "depot: depot.bins"]
    assert not wrong["success"]
    code = (
        "import sys; from typer.testing import CliRunner; from ingest.cli.app import app; "
        f"CliRunner().invoke(app, ['quality', {str(made.file)!r}, '--last', '-o', 'gx']); "
        "sys.exit('great_expectations' in sys.modules)"
    )
    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode
