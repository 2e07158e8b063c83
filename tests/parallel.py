"""Runs the tests in several processes, two by default and three in `make test`.

``python -m tests.parallel [--processes N] [--minutes N] [--record] [--order SEED] [pytest's own arguments]``

Each process is a whole pytest with its own Spark session; the first one begins with the files that need it and any other
with the rest, so that often one session is started and gets warm. All collect the same tests; a file is run by the process
that claims it first, by creating a file in a shared folder. Nothing is sent between the processes, and they write to
files, so a JVM that outlives its Python cannot keep the others waiting. With ``--minutes`` no file is begun after that
time: those that were not run are listed at the end, and fail nothing. So are the costliest tests: one of `make test` that
takes `COSTLY` seconds of processor time is named, unless its mark ``costly`` says why. The longest files come first; with ``--order``
files, and the tests of each, come in a random order, which a run with the same seed repeats: no test may depend on another.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote, unquote

import psutil
import pytest

FOLDER, DEADLINE, ORDER = "INGEST_TESTS_FOLDER", "INGEST_TESTS_DEADLINE", "INGEST_TESTS_ORDER"
NUMBER = "INGEST_TESTS_NUMBER"  # of the process: 0, 1, ...
CACHED = {"PYTHONDONTWRITEBYTECODE": ""}  # else each of a hundred processes compiles the whole product
SHARED = "shops"  # a session's fixture that takes a minute: one process runs all files that use it
ENDING = 60  # seconds for a process to end after its last test
SECONDS = Path(__file__).with_name("seconds.json")  # of each file, by a run on two cores: what to begin with
SLOWEST = 25  # files that are listed with their seconds
COSTLIEST = 10  # tests and shared fixtures that are listed with their seconds of processor time
COSTLY = 30.0  # seconds of processor time that a test of `make test` takes only for a reason; a busy machine adds some
OVERTIME = 240  # seconds for the tests that are running when the time is over
_SECTION = re.compile(r"=+ (ERRORS|FAILURES|warnings summary.*|slowest .*|short test summary info) =+")
_SUMS = re.compile(r"=+ .* in [0-9.]+s.* =+")
_seconds: dict[str, float] = {}  # of each file that this process has run
_costs: dict[str, float] = {}  # of each test and each shared fixture, in processor time
_remarks: list[str] = []  # tests of `make test` that took too much of it, or ended this process' Java
_ended_java: set[int] = set()  # each Java of this process that has ended before it
_FIXTURE = "the fixture "
_NAMES = ("failed", "passed", "skipped", "xfailed", "xpassed", "warnings", "error")


# --- in each process, as a plugin of pytest --------------------------------------------------------


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the files that this process claims; without a shared folder, run all as pytest does."""
    if FOLDER not in os.environ or session.config.option.collectonly or session.testsfailed:
        return None
    folder, parent = Path(os.environ[FOLDER]), os.getppid()
    groups = grouped(session.items, os.environ.get(ORDER, ""), int(os.environ[NUMBER]))
    (folder / f"all-{os.getpid()}").write_text(json.dumps(list(groups)), "utf-8")
    for name, items in groups.items():
        if time.time() > float(os.environ[DEADLINE]):
            break
        if not _claimed(folder, name):
            continue
        began = time.monotonic()
        # After a file's last test the session comes next: all but the session's fixtures are torn down.
        for item, following in pairwise([*items, session]):
            (folder / f"at-{os.getpid()}").write_text(item.nodeid, "utf-8")
            before, shared = used(), sum(_shared_costs().values())
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            _count(item, used() - before - sum(_shared_costs().values()) + shared)
            _look_at_java(item)
            if session.shouldfail or session.shouldstop or os.getppid() != parent:
                return True
        _seconds[name] = time.monotonic() - began
        (folder / f"ran-{quote(name, safe='')}").touch()
    return True


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
    """Count what many tests share apart from the first of them."""
    before = used()
    try:
        return (yield)
    finally:
        if FOLDER in os.environ and fixturedef.scope != "function":
            _costs[f"{_FIXTURE}{fixturedef.argname} of {fixturedef.baseid or 'all'}"] = used() - before


def _shared_costs() -> dict[str, float]:
    return {name: cost for name, cost in _costs.items() if name.startswith(_FIXTURE)}


def _count(item: pytest.Item, cost: float) -> None:
    """Keep what a test cost."""
    _costs[item.nodeid] = cost
    if cost > COSTLY and not any(map(item.get_closest_marker, ("costly", "e2e", "slow"))):
        _remarks.append(
            f"more than {COSTLY:.0f} s: make it cheaper, mark it e2e, or costly with a reason: {item.nodeid}"
        )


def used() -> float:
    """The processor time of this process, of its processes that have ended, and of the Java of its session."""
    times = os.times()
    ours = times.user + times.system + times.children_user + times.children_system
    with suppress(psutil.Error):
        if (java := _java()) is not None:
            spent = psutil.Process(java.pid).cpu_times()
            return ours + spent.user + spent.system
    return ours


def _look_at_java(item: pytest.Item) -> None:
    """Remark which test Java ended during: tests that ask it fail from then on, far from the cause."""
    if (java := _java()) is not None and java.poll() is not None and java.pid not in _ended_java:
        _ended_java.add(java.pid)
        _remarks.append(f"Java ended with exit code {java.returncode} during or before {item.nodeid}")


def _java() -> subprocess.Popen[bytes] | None:
    """The Java that this process has started, if any."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    process: subprocess.Popen[bytes] | None = getattr(getattr(context, "_gateway", None), "proc", None)
    return process


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, exitstatus: int) -> None:
    """Leave the counts for the process that prints them."""
    if FOLDER in os.environ:
        counts = {name: len(terminalreporter.stats.get(name, ())) for name in _NAMES}
        text = json.dumps(
            {
                "counts": counts,
                "exit": int(exitstatus),
                "seconds": _seconds,
                "costs": dict(Counter(_costs).most_common(COSTLIEST)),
                "remarks": _remarks,
            }
        )
        (Path(os.environ[FOLDER]) / f"done-{os.getpid()}").write_text(text, "utf-8")


def grouped(items: list[pytest.Item], order: str = "", number: int = 0) -> dict[str, list[pytest.Item]]:
    """The tests of each file, the longest file first: small files at the end fill all processes.

    The first process begins with the files that need Spark, any other with those that do not. With an ``order``, a seed,
    files and their tests are shuffled.
    """
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        name = SHARED if _is_shared(item) else item.nodeid.partition("::")[0]
        groups.setdefault(name, []).append(item)
    if order:
        return shuffled(groups, order)
    known = json.loads(SECONDS.read_text("utf-8"))
    with_spark = {
        name: sum(1 for item in tests if item.get_closest_marker("spark")) for name, tests in groups.items()
    }

    def place(name: str) -> tuple[bool, float]:
        return (with_spark[name] > 0) == (number > 0), -known.get(name, 10 * with_spark[name])

    return {name: groups[name] for name in sorted(groups, key=place)}


def shuffled(groups: Mapping[str, list[pytest.Item]], order: str) -> dict[str, list[pytest.Item]]:
    """Files in a random order, and the tests of each."""
    random = Random(order)
    names = sorted(groups)
    random.shuffle(names)
    return {name: random.sample(groups[name], len(groups[name])) for name in names}


def _is_shared(item: Any) -> bool:
    """True for a test that uses the session's fixture: files have fixtures of their own by the same name."""
    info = getattr(item, "_fixtureinfo", None)
    definitions = info.name2fixturedefs.get(SHARED, ()) if info is not None else ()
    return any(definition.scope == "session" for definition in definitions[-1:])


def _claimed(folder: Path, name: str) -> bool:
    """True for the first process that asks."""
    try:
        (folder / f"claim-{quote(name, safe='')}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


# --- in the process that starts them ---------------------------------------------------------------


@dataclass
class Worker:
    """One process, and what it has left in the shared folder."""

    process: subprocess.Popen[bytes]
    folder: Path
    output: Path
    printed: int = 0
    closing: bool = False  # at the failures and summaries, which are kept together until the end
    killed_at: float = float("inf")
    trouble: str = ""

    def progress(self) -> Iterator[str]:
        """The lines of the files that were run since the last call."""
        for line in self._lines():
            self.closing = self.closing or _SECTION.fullmatch(line.strip()) is not None
            if self.closing or not line.endswith("\n"):
                return
            self.printed += 1
            if not _SUMS.fullmatch(line.strip()):
                yield line.rstrip("\n")

    def rest(self) -> list[str]:
        """What it printed after them, but not its own sums."""
        lines = [line.rstrip("\n") for line in self._lines()]
        return [line for line in lines if not _SUMS.fullmatch(line)]

    def _lines(self) -> list[str]:
        return self.output.read_text("utf-8", "replace").splitlines(keepends=True)[self.printed :]

    @property
    def done(self) -> dict[str, Any] | None:
        """Its counts and exit code, once its tests are done."""
        try:
            counts: dict[str, Any] = json.loads((self.folder / f"done-{self.process.pid}").read_text("utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return counts

    @property
    def at(self) -> str:
        """The test that it began last."""
        file = self.folder / f"at-{self.process.pid}"
        return file.read_text("utf-8") if file.exists() else "the collection of the tests"

    def kill(self) -> None:
        """End it with all that it has started, servers of tests too."""
        if self.process.poll() is None:
            for each in [*(process := psutil.Process(self.process.pid)).children(recursive=True), process]:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
        self.process.wait()


def main(arguments: list[str]) -> int:
    """Run the tests and print what they print; the exit code is pytest's."""
    parser = ArgumentParser(prog="python -m tests.parallel", allow_abbrev=False)
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no file after this time")
    parser.add_argument(
        "--record", action="store_true", help=f"write the seconds of each file to {SECONDS.name}"
    )
    parser.add_argument("--order", metavar="SEED", default="", help="files and tests in a random order")
    given, words = parser.parse_known_args(arguments)
    how = f"the random order of seed {given.order}" if given.order else "the longest files first"
    print(f"order: {how}", flush=True)
    began, least = time.time(), psutil.virtual_memory().available
    deadline = began + 60 * given.minutes
    with tempfile.TemporaryDirectory(prefix="ingest-tests-") as name:
        workers: list[Worker] = []
        try:
            workers += [_start(Path(name), n, words, deadline, given.order) for n in range(given.processes)]
            while [worker for worker in workers if not _ended(worker, deadline)]:
                least = min(least, psutil.virtual_memory().available)
                time.sleep(0.2)
        finally:
            for worker in workers:
                worker.kill()
        if given.record:
            _record(workers)
        print(f"the least memory that was free: {least >> 20:,} MB")  # a system without any kills Java first
        return _conclude(Path(name), workers, began)


def _start(folder: Path, n: int, words: list[str], deadline: float, order: str) -> Worker:
    output = folder / f"output-{n}"
    shown = ["--tb=short", "-o", "console_output_style=classic"]
    command = [sys.executable, "-m", "pytest", "-p", "tests.parallel", *shown]
    with output.open("wb") as file:
        process = subprocess.Popen(
            [*command, *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=os.environ
            | CACHED
            | {FOLDER: str(folder), DEADLINE: str(deadline), ORDER: order, NUMBER: str(n)},
            start_new_session=True,
        )
    return Worker(process, folder, output)


def _ended(worker: Worker, deadline: float) -> bool:
    """Print what is new; True once a process has ended, of itself or because its time is over."""
    for line in worker.progress():
        print(line, flush=True)
    if worker.process.poll() is not None:
        return True
    if worker.done is not None:
        worker.killed_at = min(worker.killed_at, time.time() + ENDING)
    elif time.time() > deadline + OVERTIME and not worker.trouble:
        worker.trouble = f"interrupted, for the time was over: {worker.at}"
        worker.killed_at = time.time() + ENDING
        worker.process.send_signal(signal.SIGINT)  # pytest tears down its fixtures and reports
    if time.time() > worker.killed_at:
        print(f"process {worker.process.pid} did not end after {worker.at}, and was killed", flush=True)
        worker.kill()
    return worker.process.poll() is not None


def _conclude(folder: Path, workers: list[Worker], began: float) -> int:
    """Print failures, summaries and sums of all processes; gives the exit code."""
    counts: Counter[str] = Counter()
    slow: Counter[str] = Counter()
    costs: Counter[str] = Counter()
    remarks: list[str] = []
    codes = set()
    for worker in workers:
        print("\n".join(worker.rest()).strip())
        if (done := worker.done) is None:
            print(f"process {worker.process.pid} ended with {worker.process.returncode} at {worker.at}")
            done = {"counts": {}, "exit": int(pytest.ExitCode.INTERNAL_ERROR), "seconds": {}}
            done |= {"costs": {}, "remarks": []}
        if worker.trouble:
            print(worker.trouble)
            done["exit"] = int(pytest.ExitCode.OK)
        counts.update(done["counts"])
        slow.update(done["seconds"])
        costs.update(done["costs"])
        remarks += done["remarks"]
        codes.add(done["exit"])
    files = {name for file in folder.glob("all-*") for name in json.loads(file.read_text("utf-8"))}
    ran = {unquote(file.name.removeprefix("ran-")) for file in folder.glob("ran-*")}
    missed = [f"not run to its end: {name}" for name in sorted(files - ran)]
    spent = [f"{seconds:7.0f} s  {name}" for name, seconds in slow.most_common(SLOWEST)]
    print("the slowest files:", *spent, sep="\n")
    listed = [f"{cost:7.1f} s  {name}" for name, cost in costs.most_common(COSTLIEST)]
    print("the costliest tests and shared fixtures, in processor time:", *listed, sep="\n")
    print(*remarks, sep="\n", end="\n" if remarks else "")
    print(*missed, sep="\n", end="\n" if missed else "")
    seconds = time.time() - began
    sums = [f"{counts[name]} {name}" for name in _NAMES if counts[name]] or ["no tests ran"]
    sums += [f"{len(missed)} files not run"] if missed else []
    print(f" {', '.join(sums)} in {seconds:.2f}s ({timedelta(seconds=int(seconds))}) ".center(80, "="))
    if counts["failed"] or counts["error"]:
        codes.add(int(pytest.ExitCode.TESTS_FAILED))
    return min(codes - {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}, default=0)


def _record(workers: list[Worker]) -> None:
    """Keep the seconds of the files that were run; what takes less than five is not worth a line."""
    seconds: dict[str, float] = json.loads(SECONDS.read_text("utf-8"))
    for worker in workers:
        seconds |= (worker.done or {"seconds": {}})["seconds"]
    rounded = {name: round(seconds[name]) for name in sorted(seconds) if seconds[name] >= 5}
    SECONDS.write_text(json.dumps(rounded, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # which ends the processes, too
    sys.exit(main(sys.argv[1:]))
