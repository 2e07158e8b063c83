"""Runs a contestant in a process of its own and measures its whole tree: wall, processor seconds, peak memory.

A step called ``cold`` is measured from the process' start.
"""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.contest.steps import Script
from benchmarks.tree import Watch, cpu, tree

COLD = "cold"
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Step:
    """What one step cost."""

    name: str
    wall: float
    cpu: float
    peak: float  # GiB
    result: Any = None
    error: str = ""


class Failed(Exception):
    """A contestant's process ended early; the text is the end of what it said."""


Between = Callable[[Step], None]
"""What is done after each step while the contestant waits; nothing of it is measured."""


def nothing(_step: Step) -> None:
    """The next step begins at once."""


def contest(module: str, script: Script, log: Path, between: Between = nothing) -> list[Step]:
    """Run ``benchmarks.contest.MODULE`` with a script; its steps in order.

    Raises:
        Failed: the process ended with an error.
    """
    file = log.with_suffix(".json")
    file.write_text(json.dumps(asdict(script)), "utf-8")
    command = [sys.executable, "-m", f"benchmarks.contest.{module}", str(file)]
    with log.open("w", encoding="utf-8") as errors:
        started = time.monotonic()
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT
        ) as process:
            try:
                steps = []
                for step in _steps(process, started):  # the process goes on when the next step is asked for
                    steps.append(step)
                    between(step)
            finally:
                _end(process)
    if process.returncode:
        raise Failed(f"{module} ended with {process.returncode}:\n{log.read_text('utf-8')[-2000:]}")
    return steps


def _steps(process: subprocess.Popen[str], started: float) -> Iterator[Step]:
    assert process.stdout is not None
    assert process.stdin is not None
    root = psutil.Process(process.pid)
    watch, wall, busy = Watch(root), started, 0.0
    try:
        for line in process.stdout:
            mark = json.loads(line)
            if "end" in mark:
                spent, used = time.monotonic() - wall, cpu(root) - busy
                yield Step(
                    mark["end"], spent, used, watch.peak / 2**30, mark.get("result"), mark.get("error", "")
                )
            elif mark["begin"] != COLD:
                watch.reset()
                busy, wall = cpu(root), time.monotonic()
            process.stdin.write("\n")
            process.stdin.flush()
    finally:
        watch.stop()


def _end(process: subprocess.Popen[str]) -> None:
    """Wait for a process that has done its script; end one that has not, with all that it started."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(60)
        return
    with suppress(psutil.Error):
        for one in reversed(tree(psutil.Process(process.pid))):
            one.kill()


def say(text: str) -> None:
    """Tell on standard error what is going on."""
    print(f"{dt.datetime.now(dt.UTC):%H:%M:%S} {text}", file=sys.stderr, flush=True)
