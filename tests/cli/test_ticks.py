"""The loop of `ingest run --every`: what it does with a pipeline file that changes while it runs."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ingest.cli import run_verbs
from ingest.config import Pipeline, load
from ingest.errors import IngestError, SetupError
from ingest.result import Result
from tests.lakes import ROOT
from tests.timing import PATIENCE

PIPELINE = """pipeline: depot
lake: ./lake
engine: auto
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
    monkeypatch.setattr(run_verbs, "is_usable", lambda _spark: True)

    def run(*edits: tuple[str, str]) -> list[Any]:
        seen: list[Any] = []
        stop, waiting = threading.Event(), list(edits)

        def tick(_ticks: Any, pipeline: Pipeline) -> Result:
            seen.append(pipeline)
            return Result(pipeline.name, "run")

        def wait(_seconds: float) -> bool:
            if not waiting:
                stop.set()
                return True
            old, new = waiting.pop(0)
            file.write_text(file.read_text("utf-8").replace(old, new), "utf-8")
            return False

        monkeypatch.setattr(run_verbs.Ticks, "tick", tick)
        monkeypatch.setattr(stop, "wait", wait)
        code = run_verbs.Ticks(None, [load(file)], [], "", 0.1, stop, "table").run()  # type: ignore[arg-type]
        return [*seen, code]

    return run


def test_a_changed_file_holds_from_the_next_tick(loop: Callable[..., list[Any]]) -> None:
    """A policy set during an incident must not wait until the process is restarted."""
    first, second, code = loop(("lenient", "freeze"))
    assert ("lenient", "freeze", 0) == (
        first.tables[0].on_schema_change,
        second.tables[0].on_schema_change,
        code,
    )


def test_a_file_with_faults_ends_ticks_not_the_loop(
    loop: Callable[..., list[Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    """A typing error is reported with its line; the loop goes on once it is corrected, and its exit code says so."""
    *seen, code = loop(("lenient", "lenint"), ("lenint", "evolve"))
    assert ["lenient", "evolve"] == [one.tables[0].on_schema_change for one in seen]
    assert 1 == code  # some ticks have run
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
    assert (1, 1) == (len(seen), code)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("pause", "said", "code"),
    [
        (None, ["depot: stopped before the end of gold", "shed: it was not run"], 1),
        (0.1, ["depot: stopped before the end of gold"], 0),
    ],
)
def test_a_run_that_was_stopped_is_not_done(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    pause: float | None,
    said: list[str],
    code: int,
) -> None:
    """A job that follows with `&&` would take the mirrors for up to date; a loop that is stopped has not failed."""
    pipelines = []
    for name in ("depot", "shed"):
        file = tmp_path / f"{name}.yaml"
        file.write_text(PIPELINE.replace("depot", name).replace("./lake", f"./{name}"), "utf-8")
        pipelines.append(load(file))
    stop = threading.Event()

    def tick(_ticks: Any, pipeline: Pipeline) -> Result:
        stop.set()
        text = "stopped before the end of gold: the next run does the rest."
        return Result(pipeline.name, "run", batch=1, stopped="gold", warnings=[text])

    monkeypatch.setattr(run_verbs.Ticks, "tick", tick)
    monkeypatch.setattr(run_verbs, "is_usable", lambda _spark: True)
    assert code == run_verbs.Ticks(None, pipelines, [], "", pause, stop, "json").run()  # type: ignore[arg-type]
    found = capsys.readouterr()
    assert '"state": "stopped"' in found.out or '"state":"stopped"' in found.out
    assert len(said) == found.err.count("warning: ")
    assert all(text in found.err for text in said)


@pytest.mark.parametrize(("failing", "code"), [({"shed"}, 1), ({"depot", "shed"}, 2)])
def test_the_exit_code_says_whether_anything_has_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: set[str], code: int
) -> None:
    """Code 2 says that nothing was done: a scheduler that starts all again would not look at what did run."""
    pipelines = []
    for name in ("depot", "shed"):
        file = tmp_path / f"{name}.yaml"
        file.write_text(PIPELINE.replace("depot", name).replace("./lake", f"./{name}"), "utf-8")
        pipelines.append(load(file))

    def tick(_ticks: Any, pipeline: Pipeline) -> Result:
        if pipeline.name in failing:
            raise SetupError("Java is missing.")
        return Result(pipeline.name, "run", batch=7)

    monkeypatch.setattr(run_verbs.Ticks, "tick", tick)
    monkeypatch.setattr(run_verbs, "is_usable", lambda _spark: True)
    stop = threading.Event()
    assert code == run_verbs.Ticks(None, pipelines, [], "", None, stop, "table").run()  # type: ignore[arg-type]


def test_a_file_with_a_slip_joins_the_others_when_it_is_corrected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One slip in one of eight files kept all eight from being read, and a loop would go on without it for ever."""
    files = {name: tmp_path / f"{name}.yaml" for name in ("depot", "shed")}
    for name, file in files.items():
        file.write_text(PIPELINE.replace("depot", name).replace("./lake", f"./{name}"), "utf-8")
    sound = files["shed"].read_text("utf-8")
    files["shed"].write_text(sound.replace("sources:", "sourcse:"), "utf-8")
    with pytest.raises(IngestError) as fault:
        load(files["shed"])
    said = str(fault.value)
    ran: list[list[str]] = [[]]
    contents = iter([sound.replace("sources:", "sourcse:"), sound.replace("format:", "fromat:"), sound, None])

    def tick(_ticks: Any, pipeline: Pipeline) -> Result:
        ran[-1].append(pipeline.name)
        return Result(pipeline.name, "run")

    def wait(_seconds: float) -> None:
        if (text := next(contents)) is None:
            stop.set()
        else:
            files["shed"].write_text(text, "utf-8")
            ran.append([])

    stop = threading.Event()
    monkeypatch.setattr(stop, "wait", wait)
    monkeypatch.setattr(run_verbs.Ticks, "tick", tick)
    monkeypatch.setattr(run_verbs, "is_usable", lambda _spark: True)
    ticks = run_verbs.Ticks(None, [load(files["depot"])], [], "", 0.1, stop, "table")  # type: ignore[arg-type]
    ticks.unusable = {files["shed"]: IngestError(said)}
    assert 0 == ticks.run()
    assert [["depot"], ["depot"], ["depot"], ["depot", "shed"]] == ran
    errors = capsys.readouterr().err
    assert (0, 1) == (errors.count("sourcse"), errors.count("fromat")), "each fault is said once"


@pytest.mark.parametrize("pause", [None, 0.1])
def test_each_of_several_pipelines_is_reported_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pause: float | None
) -> None:
    """The table comes when the last one has ended, which may take an hour; and a tick without its time is any tick."""
    pipelines, stop, errors = [], threading.Event(), ""
    for name in ("depot", "shed"):
        file = tmp_path / f"{name}.yaml"
        file.write_text(PIPELINE.replace("depot", name).replace("./lake", f"./{name}"), "utf-8")
        pipelines.append(load(file))

    def tick(_ticks: Any, pipeline: Pipeline) -> Result:
        nonlocal errors
        if pipeline.name == "shed":
            errors = capsys.readouterr().err
            stop.set()
        return Result(pipeline.name, "run", batch=7)

    monkeypatch.setattr(run_verbs.Ticks, "tick", tick)
    monkeypatch.setattr(run_verbs, "is_usable", lambda _spark: True)
    assert 0 == run_verbs.Ticks(None, pipelines, [], "", pause, stop, "table").run()  # type: ignore[arg-type]
    assert re.fullmatch(r"\d\d:\d\d:\d\d depot: done\n", errors)
    head, _, first, *_ = capsys.readouterr().out.strip("\n ").splitlines()
    assert (pause is not None) == head.startswith("time")
    assert (pause is not None) == bool(re.match(r"\d\d:\d\d:\d\d ", first.strip()))


LISTENING = """
import os, signal, threading, time, weakref
from ingest.cli import run_verbs

class Dropped:
    pass

def drop(_):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.1)  # Python sees the signal here, and forgets what it raises

stop = threading.Event()
run_verbs._listen(stop)
os.kill(os.getpid(), signal.SIGINT)
assert stop.wait(60)
dropped = Dropped()
seen = weakref.ref(dropped, drop)
try:
    del dropped
    time.sleep(30)
except KeyboardInterrupt:
    print("ended")
"""


def test_a_second_interrupt_is_not_lost(tmp_path: Path) -> None:
    """Objects of Java are cleared up all the time; a Ctrl-C in that moment would print a trace and do nothing."""
    done = subprocess.run(
        [sys.executable, "-c", LISTENING],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=PATIENCE,
        check=False,
    )
    assert (0, "ended\n") == (done.returncode, done.stdout)
    assert [
        "stopping after the commit under way; Ctrl-C again stops at once"
    ] == done.stderr.strip().splitlines()
