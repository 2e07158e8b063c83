"""Kills processes that work for a run under ``engine: spark``, at random moments, and proves that nothing is lost or doubled.

    python -m benchmarks.part_kills 100                                # driver, JVM, daemon and workers of Python
    python -m benchmarks.part_kills 20 --parts executor --cluster      # a cluster on this machine

One session runs again and again while messages come; whatever a kill (SIGKILL) has ended is started again.  Ends with the
mirrors compared with what they must hold, and with exit code 1 if anything is missing, doubled or different, if a run hung,
or ended without a sentence.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.kills import verdict
from tests.e2e.cluster import Cluster
from tests.lakes import Depot
from tests.scenarios.processes import Process, finished, started

PATIENCE = 180.0  # seconds in which a run that has lost a process goes on, or ends
_BARE = ("Traceback", "something unexpected")


def _children(process: psutil.Process | None, word: str) -> list[psutil.Process]:
    """The processes below one whose command line has a word."""
    chosen = []
    with suppress(psutil.Error):
        for child in process.children(recursive=True) if process else ():
            with suppress(psutil.Error):
                if word in " ".join(child.cmdline()):
                    chosen.append(child)
    return chosen


def _driver(run: Process, _cluster: Cluster | None) -> list[psutil.Process]:
    return [psutil.Process(run.popen.pid)]


def _java(run: Process, _cluster: Cluster | None) -> list[psutil.Process]:
    jvm = run.jvm()
    return [jvm] if jvm else []


def _daemon(run: Process, _cluster: Cluster | None) -> list[psutil.Process]:
    return _children(run.jvm(), "pyspark.daemon")[:1]


def _worker(run: Process, _cluster: Cluster | None) -> list[psutil.Process]:
    return _children(run.jvm(), "pyspark.daemon")[1:]


def _executor(_run: Process, cluster: Cluster | None) -> list[psutil.Process]:
    assert cluster is not None, "--parts executor needs --cluster"
    roots = [psutil.Process(process.pid) for process in cluster.processes]
    return [each for root in roots for each in _children(root, "CoarseGrainedExecutorBackend")]


PARTS: dict[str, Callable[[Process, Cluster | None], list[psutil.Process]]] = {
    "driver": _driver, "java": _java, "daemon": _daemon, "worker": _worker, "executor": _executor,
}  # fmt: skip


@dataclass
class Attack:
    """What was killed, and what became of the runs."""

    rng: random.Random
    parts: list[str]
    cluster: Cluster | None
    done: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def strike(self, run: Process) -> None:
        """Kill a process at a random moment of a run, and wait until the run has gone on or ended."""
        part = self.rng.choice(self.parts)
        began = time.monotonic()
        while not (victims := PARTS[part](run, self.cluster)) and run.popen.poll() is None:
            if time.monotonic() > began + PATIENCE:  # nothing of the kind works for it
                return
            time.sleep(0.05)
        if not victims:
            return
        time.sleep(self.rng.random() * self.rng.choice([0, 1, 5]))
        lines = len(run.stderr), len(run.printed)
        with suppress(psutil.Error):
            self.rng.choice(victims).kill()
            self.done[part] += 1
        began, is_over = time.monotonic(), False
        while not is_over and time.monotonic() < began + PATIENCE:
            time.sleep(0.1)
            is_over = run.popen.poll() is not None or len(run.printed) > lines[1]
        time.sleep(0.3)  # until its last words are read
        said, code = "".join(run.stderr[lines[0] :]), run.popen.poll()
        if not is_over:
            self.faults.append(
                f"{part}: the run neither went on nor ended in {PATIENCE:.0f} s: {said[-500:]}"
            )
        if code is not None:
            self.ended[part] += 1
        if any(word in said for word in _BARE) or (
            code is not None and part != "driver" and not said.strip()
        ):
            self.faults.append(f"{part}, exit code {code}: {said[-3000:]}")
        words = " / ".join(said.strip().splitlines()[-2:])[-300:]
        print(
            f"{self.done.total()} {part}: {'goes on' if code is None else f'exit code {code}'}; {words}",
            flush=True,
        )

    def outlived(self, jvm: psutil.Process) -> None:
        """Wait for the JVM of a run that has ended: the next run would wait for it, too."""
        try:
            jvm.wait(PATIENCE)
        except psutil.TimeoutExpired:
            self.faults.append(f"java: it lives {PATIENCE:.0f} s after its run")


def main() -> int:
    """Kill, then look."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kills", type=int, nargs="?", default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parts", default="driver,java,daemon,worker", help=f"by commas: {', '.join(PARTS)}")
    parser.add_argument("--cluster", action="store_true", help="with executors of a cluster on this machine")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="kill nothing after so long")
    options = parser.parse_args()
    rng = random.Random(options.seed)  # noqa: S311 - to be repeatable
    with tempfile.TemporaryDirectory() as folder, _cluster(Path(folder), wanted=options.cluster) as cluster:
        attack = Attack(rng, options.parts.split(","), cluster)
        depot = Depot(Path(folder) / "depot", f"engine: spark\n{_settings(cluster)}")
        stops = time.monotonic() + options.seconds
        while attack.done.total() < options.kills and time.monotonic() < stops:
            with started("run", depot.file, "--every", "1s", "--output", "json") as run:
                while (
                    attack.done.total() < options.kills
                    and time.monotonic() < stops
                    and run.popen.poll() is None
                ):
                    depot.grow()
                    attack.strike(run)
                jvm = run.jvm()
            if jvm is not None:
                attack.outlived(jvm)
        last = finished(depot.file)
        attack.faults += [f"the last run: {text}" for text in last["failures"]]
        kills = ", ".join(
            f"{count} of {part} ({attack.ended[part]} ended the run)" for part, count in attack.done.items()
        )
        print(f"killed: {kills}")
        for fault in attack.faults:
            print(f"FAULT {fault}")
        return max(verdict(depot, attack.done.total(), 0), int(bool(attack.faults)))


@contextmanager
def _cluster(folder: Path, *, wanted: bool) -> Iterator[Cluster | None]:
    if not wanted:
        yield None
        return
    with Cluster(folder / "cluster", workers=1) as running:
        yield running


def _settings(cluster: Cluster | None) -> str:
    """The keys of the pipeline file for it."""
    if cluster is None:
        return ""
    settings = "".join(f"  {name}: {json.dumps(value)}\n" for name, value in cluster.settings.items())
    return f"master: {cluster.master}\nspark:\n{settings}"


if __name__ == "__main__":
    sys.exit(main())
