"""Every kind of problem that a check finds, in one lake: each is listed as the catalogue says, and its command runs."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ingest.cli.app import app
from ingest.config import load
from ingest.inspect import problem_kinds, problems, status
from ingest.inspect.problem_kinds import OF_CHECKS, OF_THE_LAKE, OF_THRESHOLDS
from ingest.inspect.problems import Problem
from ingest.quality.catalogue import CHECKS, PASS
from ingest.quality.counts import REFUSED
from tests.serve.conftest import depot
from tests.written_lake import WrittenLake

KEY = '{"id":"2"}'
WITHOUT_REJECTS = {
    "cell_rejects",
    "refused_changes",
}  # listed only while such rejects wait: tests/test_ways_out.py has them
REPAIRS = ("run", "retry", "rebuild")  # typed after those that only look


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> WrittenLake:
    """A lake in which every check complains."""
    made = depot(tmp_path_factory.mktemp("every"))
    with made.file.open("a", encoding="utf-8") as file:
        file.write("quality:\n  - {table: depot.bins, freshness: 1s}\n")
    made.pipeline = load(made.file)
    rows = []
    for check in CHECKS.values():
        row = made.check("depot.bins", check.name, 2.0, "fail" if check.severity == "error" else "warn")
        row |= {"severity": check.severity, "failing": json.dumps([KEY])}
        given = (
            1 if check.name == problem_kinds.AGE else 0
        )  # by the pipeline file, where the check has no limit
        row |= {"threshold": str(given if check.limit is None else check.limit)}
        if check.subject == "source":
            row |= {"mirror": None, "source": "bins"}
        rows.append(row)
    made.product("checks", rows)
    return made


@pytest.fixture(scope="module")
def listed(lake: WrittenLake) -> list[Problem]:
    """All its problems."""
    return status.problems_of(lake.reader)


def test_every_complaint_of_a_check_is_a_problem(listed: list[Problem]) -> None:
    """A check that complains and is in no list fails runs, and nobody can see why."""
    every_kind = OF_CHECKS | OF_THRESHOLDS
    assert every_kind.keys() - WITHOUT_REJECTS == {one.kind for one in listed} & every_kind.keys()


def test_a_problem_is_as_the_catalogue_says(listed: list[Problem]) -> None:
    """The documented severity, state and command of a kind would be another's."""
    for problem in listed:
        kind = (OF_THRESHOLDS | OF_CHECKS).get(problem.kind) or OF_THE_LAKE[problem.kind]
        assert kind.severity == problem.severity, problem
        verb = shlex.split(problem.command)[1] if problem.command else ""
        assert verb in kind.verbs, problem


def test_a_status_reads_of_the_checks_what_may_be_a_problem(lake: WrittenLake) -> None:
    """`status` of many mirrors asks only for what is wrong: left out by that question, a fault would be in no list."""
    of_all, asked = problems.gathered(lake.reader, trend=1), problems.found_by_checks(lake.reader, ())
    assert problems.merged([], of_all) == problems.merged([], asked)
    passed = [check for table in asked.tables for check in table.checks if check.state == PASS]
    # rejects are counted as they wait now, also where the run's check failed
    assert {problem_kinds.AGE, *REFUSED.values()} >= {check.check for check in passed}


@pytest.mark.spark
def test_every_command_runs(
    listed: list[Problem], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    """A command that is copied from the screen and refused leaves the operator with nothing."""
    monkeypatch.chdir(tmp_path)  # where a report is written
    lines = dict.fromkeys(problem.command for problem in listed if problem.command)
    commands = sorted((shlex.split(line)[1:] for line in lines), key=lambda words: words[0] in REPAIRS)
    for words in commands:
        done = CliRunner().invoke(app, words)
        assert done.exit_code in (0, 1), (words, done.output)
    assert {"explain", "report", "rejects", "ddl", "plan", *REPAIRS} == {words[0] for words in commands}
