"""A run that could record nothing, because it was killed or the disk was full: the lake itself shows it."""

from __future__ import annotations

import errno
import shlex
from pathlib import Path
from typing import Any

import pytest

from ingest.config import load
from ingest.inspect import problems
from ingest.lake import lock
from ingest.lake.lake import Lake
from ingest.lake.schemas import CHECKS, RUNS, TableSchema
from ingest.lake.tables import LakeReader
from tests.fleet import Clock, Plant, typed
from tests.inspect.test_calm import begun, clock

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
    code, said = typed(problem["command"])
    assert 0 == code, said
    assert ([], set()) == (plant.problems(), plant.differences())


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
