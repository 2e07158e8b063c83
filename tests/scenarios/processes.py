"""Real runs as processes of their own, to be stopped or killed while they work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tests.lakes import ROOT
from tests.timing import PATIENCE


class Process:
    """One ``ingest`` command; what it writes to stderr is kept line by line."""

    def __init__(self, *arguments: object) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "ingest", *map(str, arguments)]
        self.popen = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.stderr: list[str] = []
        self.printed: list[str] = []
        self._readers = [
            threading.Thread(target=self._listen, args=(self.popen.stderr, self.stderr), daemon=True),
            threading.Thread(target=self._listen, args=(self.popen.stdout, self.printed), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _listen(self, stream: Any, into: list[str]) -> None:
        with stream:
            into.extend(iter(stream.readline, ""))

    def wait_for(self, ready: Callable[[], bool]) -> None:
        """Wait until something is so, or the process has ended."""
        deadline = time.monotonic() + PATIENCE
        while not ready() and self.popen.poll() is None:
            assert time.monotonic() < deadline, "".join(self.stderr)
            time.sleep(0.02)

    def jvm(self) -> psutil.Process | None:
        """The process' JVM."""
        try:
            children = psutil.Process(self.popen.pid).children(recursive=True)
        except psutil.Error:
            return None
        return next((child for child in children if child.name() == "java"), None)

    def end(self, number: int) -> int:
        """Send a signal and wait for the end; gives the exit code."""
        self.popen.send_signal(number)
        code = self.popen.wait(PATIENCE)
        for reader in self._readers:
            reader.join(10)
        return code


@contextmanager
def started(*arguments: object) -> Iterator[Process]:
    """A command that is killed if the test fails."""
    process = Process(*arguments)
    try:
        yield process
    finally:
        if process.popen.poll() is None:
            process.end(signal.SIGKILL)


Moment = Callable[[Process], bool]


def says(step: str) -> Moment:
    """The run has written on stderr that a step begins."""
    return lambda process: any(step in line for line in process.stderr)


def commits(table: Path) -> Moment:
    """A table's log has a commit more than when this was called."""
    before = _commits(table)
    return lambda _process: _commits(table) > before


def writes(table: Path) -> Moment:
    """A table's folder has a data file more than when this was called; the log need not name it yet."""
    before = _data_files(table)
    return lambda _process: _data_files(table) > before


def _data_files(table: Path) -> int:
    return sum(1 for _ in table.glob("**/part-*.parquet"))


def _commits(table: Path) -> int:
    return sum(1 for file in table.glob("_delta_log/*.json") if file.stem.isdecimal())


class Killed(NamedTuple):
    """What is known of a run that was killed: its last words, its exit code, and if its JVM ended with it."""

    last: str
    code: int
    alone: bool


def killed(file: Path, moment: Moment, pause: float = 0.0) -> Killed:
    """Start a run and kill -9 it at a moment, or so many seconds later."""
    with started("run", file) as process:
        process.wait_for(lambda: moment(process))
        time.sleep(pause)
        jvm = process.jvm()
        code = process.end(signal.SIGKILL)
        last = process.stderr[-1].strip() if process.stderr else ""
    return Killed(last, code, jvm is None or gone(jvm))


def gone(jvm: psutil.Process, seconds: float = 30) -> bool:
    """True once the JVM has ended."""
    try:
        jvm.wait(seconds)
    except psutil.TimeoutExpired:
        return False
    return True


def finished(file: Path, *arguments: object) -> dict[str, Any]:
    """One whole run; gives its result with the seconds from process to process."""
    before = time.monotonic()
    with started("run", file, "--output", "json", *arguments) as process:
        process.wait_for(lambda: False)
        code = process.end(0)
    text = "".join(process.printed)
    assert text, "".join(process.stderr)
    return {**json.loads(text), "code": code, "wall": time.monotonic() - before, "stderr": process.stderr}
