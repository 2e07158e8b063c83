"""`ingest run --every` as a user starts it, watched from outside: its ticks, its memory, its processor time."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.tree import cpu, memory

ROOT = Path(__file__).resolve().parent.parent
_BETWEEN = 3.0  # seconds between two looks at the memory


@dataclass(frozen=True, slots=True)
class Tick:
    """One run of the loop that had something to do; ``ended`` is a moment of the monotonic clock."""

    ended: float
    seconds: float
    read: int
    changes: int
    rejected: int
    failures: tuple[str, ...]


@dataclass(slots=True)
class Loop:
    """`ingest run --every` as a process of its own, its ticks as it prints them, its memory as time passes."""

    file: Path
    every: str
    process: subprocess.Popen[str] = field(init=False)
    ticks: list[Tick] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)  # moment, MiB
    cpu: float = 0.0  # seconds of the whole tree, at the last look

    def __post_init__(self) -> None:
        command = [sys.executable, "-m", "ingest", "run", str(self.file), "--every", self.every]
        with self.file.with_suffix(".log").open("w") as log:
            self.process = subprocess.Popen(
                [*command, "--output", "json"], cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True
            )
        for work in (self._listen, self._look):
            threading.Thread(target=work, daemon=True).start()

    @property
    def read(self) -> int:
        """Messages landed so far."""
        return sum(tick.read for tick in self.ticks)

    def until(self, read: int, patience: float) -> None:
        """Wait until a tick has ended that brought the messages landed to this number.

        Raises:
            RuntimeError: the loop has ended, or has not come so far in time.
        """
        deadline = time.monotonic() + patience
        while self.read < read:
            if self.process.poll() is not None or time.monotonic() > deadline:
                text = self.file.with_suffix(".log").read_text("utf-8", "replace")[-2000:]
                raise RuntimeError(f"{self.read:,} of {read:,} messages were landed\n{text}")
            time.sleep(0.2)

    def stop(self, patience: float = 300) -> int:
        """Ask it to end by SIGTERM; gives its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(patience)
        finally:
            self.process.kill()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            tick = json.loads(line)
            if tick["batch"] is not None or tick["failures"]:
                self.ticks.append(
                    Tick(
                        time.monotonic(), sum(tick["stages"].values()), tick["read"], tick["changes"],
                        tick["rejected"], tuple(tick["failures"]),
                    )
                )  # fmt: skip

    def _look(self) -> None:
        while self.process.poll() is None:
            try:
                root = psutil.Process(self.process.pid)
            except psutil.Error:  # it has ended meanwhile
                return
            held, busy = memory(root), cpu(root)
            if held:
                self.memory.append((time.monotonic(), held / (1 << 20)))
                self.cpu = max(self.cpu, busy)
            time.sleep(_BETWEEN)
