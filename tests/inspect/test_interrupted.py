"""A run that could record nothing, because it was killed or the disk was full: the lake itself shows it."""

from __future__ import annotations

import errno
import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ingest.config import load
from ingest.gold.fold import arrow_files
from ingest.inspect import problems
from ingest.store import lock
from ingest.tables.lake import Lake
from ingest.tables.schemas import CHECKS, RUNS, TableSchema
from ingest.tables.tables import LakeReader
from tests.fleet import Clock, Plant, typed
from tests.inspect.test_calm import begun, clock
from tests.lakes import ROOT
from tests.timing import PATIENCE

__all__ = ["clock"]  # a fixture


def fill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the disk be full once the checks are to be kept."""
    real = Lake.append_unguarded

    def append(lake: Lake, rows: Any, schema: TableSchema, *given: Any, **named: Any) -> Any:
        if schema in (CHECKS, RUNS):
            raise OSError(errno.ENOSPC, "No space left on device", lake.path(schema.name))
        return real(lake, rows, schema, *given, **named)

    monkeypatch.setattr(Lake, "append_unguarded", append)


def test_a_full_disk_is_said_until_the_next_run(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run had failed and could not say so in the lake: `status` was green, and its exit code 0, until somebody came."""
    plant = begun(Plant("oms-canal", tmp_path / "p", clock), "bins")
    run = f"ingest run {shlex.quote(str(plant.file))}"
    with monkeypatch.context() as patch:
        fill(patch)
        plant.ordinary(1)
        plant.deliver()
        code, said = typed(run)
    assert (1, True) == (code, "the disk is full" in said)
    [problem] = plant.problems()
    assert ("interrupted", "error", run) == (problem["kind"], problem["severity"], problem["command"])
    assert problem["since"]
    code, said = typed(problem["command"])
    assert 0 == code, said
    assert ([], set()) == (plant.problems(), plant.differences())


def paused(plant: Plant, _patch: pytest.MonkeyPatch) -> None:
    """The operator has paused a mirror."""
    assert 0 == typed(f"ingest pause {shlex.quote(str(plant.file))} depot.bins")[0]


def failed(_plant: Plant, patch: pytest.MonkeyPatch) -> None:
    """The fold of a mirror meets what nobody has foreseen."""
    real = arrow_files.outcomes_of

    def outcomes(work: Any, rows: Any) -> Any:
        if work.path.endswith("/bins"):
            raise pa.ArrowInvalid("a text that no one expected")
        return real(work, rows)

    patch.setattr(arrow_files, "outcomes_of", outcomes)


def held(plant: Plant, _patch: pytest.MonkeyPatch) -> None:
    """A mirror is to have a key whose column does not come."""
    plant.rewrite("tables:\n", "tables:\n  - {match: depot.bins, keys: [label]}\n")


def cut(plant: Plant, run: str, patch: pytest.MonkeyPatch) -> None:
    """The disk is full."""
    with patch.context() as during:
        fill(during)
        assert 1 == typed(run)[0]


def killed(plant: Plant, run: str, patch: pytest.MonkeyPatch) -> None:
    """The run is killed when it has checked its mirrors, and is to be recorded."""
    dies = (
        "import os, signal, sys, ingest.run; from ingest.cli.app import app; "
        "ingest.run._record = lambda *_: os.kill(os.getpid(), signal.SIGKILL); app(sys.argv[1:])"
    )
    words = [sys.executable, "-c", dies, *shlex.split(run)[1:]]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert -signal.SIGKILL == done.returncode, done.stderr


@pytest.mark.parametrize(
    ("lags", "ends"),
    [(paused, killed), (paused, cut), (failed, cut), (held, cut)],
)
def test_the_next_run_ends_it(
    lags: Callable[[Plant, pytest.MonkeyPatch], None],
    ends: Callable[[Plant, str, pytest.MonkeyPatch], None],
    clock: Clock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It found nothing to read and no mirror to touch, kept no row, and the problem's own command never ended the problem."""
    plant = begun(Plant("oms-canal", tmp_path / "p", clock), "bins", "parts")
    run = f"ingest run {shlex.quote(str(plant.file))}"
    lags(plant, monkeypatch)
    plant.ordinary(1)
    plant.deliver()
    ends(plant, run, monkeypatch)
    assert [run] == [
        one["command"] for one in plant.problems() if one["kind"] == "interrupted" and one["since"]
    ]
    assert " as of batch 1, and batch 2 has landed;" in plant.status()["headline"]
    code, said = typed(f"{run} --output json")
    assert (True, 2) == (code in (0, 1), json.loads(said)["batch"])
    assert "interrupted" not in {one["kind"] for one in plant.problems()}
    typed(run)  # which has the failure of a mirror to record
    rows = LakeReader(load(plant.file)).count(RUNS.name)
    typed(run)
    assert rows == LakeReader(load(plant.file)).count(RUNS.name), "a run without work leaves no row"


def test_a_run_at_work_is_no_problem(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look during a batch would raise an alarm."""
    plant = begun(Plant("oms-canal", tmp_path / "p", clock), "bins")
    real = LakeReader.progress
    landed = {"bronze": 2}
    monkeypatch.setattr(
        LakeReader, "progress", lambda lake, stage, table: landed.get(stage) or real(lake, stage, table)
    )
    lake = LakeReader(load(plant.file))
    assert ["interrupted"] == [problem.kind for problem in problems.of_state(lake, [], {}, 0)]
    with lock.held(lake.pipeline.lake, "a run"):
        assert [] == list(problems.of_state(lake, [], {}, 0))
