"""Runs a contestant in a process of its own and measures its whole tree: wall, processor seconds, peak memory.

Memory is the resident size; of small processes the proportional one (each shared page counted once), where the system
tells it: Spark's Python workers share most of theirs, and of a large process it would take too long.  Processor time
includes processes that have ended and were waited for.  A step called ``cold`` is measured from the process' start.
"""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.contest.steps import Script

EVERY = 0.2  # seconds between two looks at the memory
LARGE = 256 * 2**20  # bytes
COLD = "cold"
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Step:
    """What one step cost."""

    name: str
    wall: float
    cpu: float
    peak: float  # GiB
    told: Any = None
    error: str = ""


class Failed(Exception):
    """A contestant's process ended early; the text is the end of what it said."""


class Watch:
    """A thread that looks at a tree's memory again and again."""

    def __init__(self, root: psutil.Process) -> None:
        self.root = root
        self.peak = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(EVERY):
            self.peak = max(self.peak, sum(map(_memory, _tree(self.root))))

    def reset(self) -> None:
        """Forget the peak: a step begins."""
        self.peak = sum(map(_memory, _tree(self.root)))

    def stop(self) -> None:
        """No more looking."""
        self._over.set()
        self._thread.join()


def _tree(root: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return [root, *root.children(recursive=True)]
    return []


def _memory(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        resident = int(process.memory_info().rss)
        return resident if resident > LARGE else _proportional(process.pid, resident)
    return 0


def _proportional(pid: int, resident: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return resident


def _cpu(root: psutil.Process) -> float:
    total = 0.0
    for one in _tree(root):
        with suppress(psutil.Error):
            total += sum(one.cpu_times()[:4])  # its own and those of children that it has waited for
    return total


def contest(module: str, script: Script, log: Path) -> list[Step]:
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
                steps = list(_steps(process, started))
            finally:
                _end(process)
    if process.returncode:
        raise Failed(f"{module} ended with {process.returncode}:\n{log.read_text('utf-8')[-2000:]}")
    return steps


def _steps(process: subprocess.Popen[str], started: float) -> Iterator[Step]:
    assert process.stdout is not None
    assert process.stdin is not None
    root = psutil.Process(process.pid)
    watch, wall, cpu = Watch(root), started, 0.0
    try:
        for line in process.stdout:
            mark = json.loads(line)
            if "end" in mark:
                spent, used = time.monotonic() - wall, _cpu(root) - cpu
                yield Step(
                    mark["end"], spent, used, watch.peak / 2**30, mark.get("told"), mark.get("error", "")
                )
            elif mark["begin"] != COLD:
                watch.reset()
                cpu, wall = _cpu(root), time.monotonic()
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
        for one in reversed(_tree(psutil.Process(process.pid))):
            one.kill()


def say(text: str) -> None:
    """Tell on standard error what is going on."""
    print(f"{dt.datetime.now(dt.UTC):%H:%M:%S} {text}", file=sys.stderr, flush=True)
