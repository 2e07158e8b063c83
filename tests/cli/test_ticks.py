"""The loop of `ingest run --every`: what it does with a pipeline file that changes while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ingest.cli import run_verbs
from ingest.config import Pipeline, load
from ingest.result import Result

PIPELINE = """pipeline: depot
lake: ./lake
sources:
  - {name: bins, kind: files, path: ./bins-*.jsonl, format: dts-canal}
tables:
  - {match: "depot.*", on_schema_change: lenient}
"""


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Run the loop with one edit of the file before each tick; gives the pipeline that each tick saw."""
    file = tmp_path / "depot.yaml"
    file.write_text(PIPELINE, "utf-8")
    monkeypatch.setattr(run_verbs, "usable", lambda _spark: True)

    def run(*edits: tuple[str, str]) -> list[Any]:
        seen: list[Any] = []
        stop, waiting = threading.Event(), list(edits)

        def tick(_spark: Any, pipeline: Pipeline, *_: Any) -> Result:
            seen.append(pipeline)
            return Result(pipeline.name, "run")

        def wait(_seconds: float) -> bool:
            if not waiting:
                stop.set()
                return True
            old, new = waiting.pop(0)
            file.write_text(file.read_text("utf-8").replace(old, new), "utf-8")
            return False

        monkeypatch.setattr(run_verbs, "_tick", tick)
        monkeypatch.setattr(stop, "wait", wait)
        code = run_verbs._ticks(None, [load(file)], [], "", 0.1, stop, "table")  # type: ignore[arg-type]
        return [*seen, code]

    return run


def test_a_changed_file_holds_from_the_next_tick(loop: Callable[..., list[Any]]) -> None:
    """A policy set during an incident must not wait for somebody to remember the process."""
    first, second, code = loop(("lenient", "freeze"))
    assert ("lenient", "freeze", 0) == (
        first.tables[0].on_schema_change,
        second.tables[0].on_schema_change,
        code,
    )


def test_a_file_with_faults_ends_ticks_not_the_loop(
    loop: Callable[..., list[Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    """A typing error is told with its line; the loop goes on when it is corrected, and its end says that it was red."""
    *seen, code = loop(("lenient", "lenint"), ("lenint", "evolve"))
    assert ["lenient", "evolve"] == [one.tables[0].on_schema_change for one in seen]
    assert 2 == code
    assert "lenint" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("./lake", "./other", "lake: was changed"),
        ("pipeline: depot", "pipeline: shed", "pipeline: was changed"),
    ],
)
def test_what_a_process_cannot_change_is_refused(
    loop: Callable[..., list[Any]], capsys: pytest.CaptureFixture[str], old: str, new: str, said: str
) -> None:
    """Another lake under a running loop would start from batch 1 with what the loop remembers of the first."""
    *seen, code = loop((old, new))
    assert (1, 2) == (len(seen), code)
    assert said in capsys.readouterr().err
