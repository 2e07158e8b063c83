"""What it costs to ask: the wall time of each verb that only looks, and of the service's answers.

    python -m benchmarks.questions                       # a lake of the tests' own, made without Spark
    python -m benchmarks.questions --file shop.yaml --table shop.orders --key 5000    # yours

Each verb is a process of its own, from its start to its end, as typed; the least and the median of some tries are
printed with the target, and `run` with nothing to do is one of them. The service is asked over loopback, once cold and
then warm, about a lake of 500 tables and then about that and 49 further pipelines.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.lakes import ROOT, change
from tests.serve.conftest import depot
from tests.serve.test_speed import CHECKS
from tests.timing import seconds_of_children
from tests.written_lake import WrittenLake

RUNS = 8  # of which the lake of many tables has checks
SECONDS = 1.0  # target of each verb
MEGABYTES = 300  # target of the service without a running batch
PAGES = {  # the address, and the target in milliseconds once it is warm
    "API status of one pipeline": ("/api/status?pipeline=depot", 100),
    "API status of all pipelines": ("/api/status", 100),
    "all pipelines": ("/", 300),
    "a pipeline": ("/pipeline?pipeline=depot", 300),
    "a table": ("/table?pipeline=depot&table=depot.table_007", 300),
    "DDL": ("/ddl?pipeline=depot", 300),
    "rejects": ("/rejects?pipeline=depot", 300),
    "metrics": ("/metrics", 300),
}


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.questions", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--file", type=Path, help="a pipeline file whose lake is there, instead of a lake of the tests' own"
    )
    parser.add_argument("--table", default="depot.bins", help="a mirror of it")
    parser.add_argument("--key", default="2", help="a key in that mirror")
    parser.add_argument("--batches", type=int, default=20, help="batches of the lake of the tests' own")
    parser.add_argument(
        "--tables", type=int, default=500, help="tables of the lake that the service is asked about"
    )
    parser.add_argument("--pipelines", type=int, default=50, help="pipelines that it is asked about then")
    parser.add_argument("--tries", type=int, default=5)
    options = parser.parse_args()
    print(f"load {', '.join(f'{one:.1f}' for one in os.getloadavg())} on {os.cpu_count()} processors\n")
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        file = options.file or depot(folder, batches=options.batches).file
        quiet = options.file or idle(folder / "idle").file
        missed = []
        print("| question | least, s | median, s | target, s | processor, s |\n|---|---|---|---|---|")
        for verb, words in verbs(file, quiet, options.table, options.key, folder):
            least, median, cpu = timed(words, options.tries)
            missed += [verb] if least > SECONDS else []
            print(f"| `{verb}` | {least:.2f} | {median:.2f} | {SECONDS:g} | {cpu:.2f} |", flush=True)
        large = many(folder / "many", options.tables).file
        others = [
            depot(folder / f"p{n}", batches=2, name=f"pipeline_{n:02}").file
            for n in range(options.pipelines - 1)
        ]
        for files in ([large], [large, *others]):
            missed += served(files, options.tables, options.tries)
        print(f"\nTargets missed: {', '.join(missed) or 'none'}.")
    return 0


def served(files: Sequence[Path], tables: int, tries: int) -> list[str]:
    """Ask a service over some pipelines for each page; gives what took longer than it may."""
    missed = []
    print(
        f"\n| answer of the service, {len(files)} pipelines, {tables} tables in one of them | cold, ms | least warm, ms "
        "| median warm, ms | target, ms |\n|---|---|---|---|---|"
    )
    with service(files) as (url, process):
        before = memory(process)
        for page, (address, target) in PAGES.items():
            cold, *warm = (asked(url + address) for _ in range(tries + 1))
            missed += [f"{page} of {len(files)}"] if min(warm) > target else []
            print(
                f"| {page} | {cold:.0f} | {min(warm):.0f} | {statistics.median(warm):.0f} | {target} |",
                flush=True,
            )
        after = memory(process)
    missed += [f"memory with {len(files)}"] if after > MEGABYTES else []
    print(
        f"\nMemory of the service: {before:.0f} MB at its start, {after:.0f} MB after all pages; target {MEGABYTES} MB."
    )
    return missed


def verbs(file: Path, quiet: Path, table: str, key: str, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Each question as it is typed; nothing waits in the lake of ``quiet``."""
    name = str(file)
    for verb in ("status", "tables", "rejects", "ddl", "alerts", "plan", "validate"):
        yield verb, [verb, name]
    yield "explain", ["explain", name, table, key]
    yield "report", ["report", name, "--out", str(folder / "report.html")]
    yield "sql", ["sql", name, f"SELECT count(*) FROM {table}"]
    yield "wait", ["wait", name, "--until", "2000-01-01", "--timeout", "0s"]
    yield "run, with nothing to do", ["run", str(quiet)]


def timed(words: list[str], tries: int) -> tuple[float, float, float]:
    """Wall seconds of a verb, the least and the median, and the least processor seconds."""
    seconds, cpu = [], []
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(tries):  # with compiled modules, as an installation has them
        began, before = time.monotonic(), seconds_of_children()
        done = subprocess.run(
            [sys.executable, "-m", "ingest", *words],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
            env=surroundings,
        )
        seconds.append(time.monotonic() - began)
        cpu.append(seconds_of_children() - before)
        if done.returncode not in (0, 1, 3):
            raise SystemExit(f"{' '.join(words)}: {done.stderr or done.stdout}")
    return min(seconds), statistics.median(seconds), min(cpu)


def idle(folder: Path) -> WrittenLake:
    """A lake in which nothing waits."""
    made = WrittenLake(folder)
    made.take([change("INSERT", "bins", 1, {"id": "1", "word": "x"})])
    return made


def many(folder: Path, tables: int) -> WrittenLake:
    """A lake of many tables, each with checks of some runs."""
    made = WrittenLake(folder)
    names = [f"table_{n:03}" for n in range(tables)]
    made.take([change("INSERT", name, n + 1, {"id": "1", "word": "x"}) for n, name in enumerate(names)])
    for _ in range(RUNS):
        made.product(
            "checks", [made.check(f"depot.{name}", check, 1.0) for name in names for check in CHECKS]
        )
    return made


@contextmanager
def service(files: Sequence[Path]) -> Iterator[tuple[str, psutil.Process]]:
    """`ingest serve` over pipeline files, and where it answers."""
    words = [
        sys.executable,
        "-m",
        "ingest",
        "serve",
        *map(str, files),
        "--no-run",
        "--listen",
        "127.0.0.1:0",
        "-o",
        "json",
    ]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    try:
        url = json.loads(process.stdout.readline())["listening"]
        yield url, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(20)


def asked(url: str) -> float:
    """Milliseconds of one answer."""
    began = time.monotonic()
    with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - our own service on loopback
        data = answer.read()
    seconds = time.monotonic() - began
    if "/api/" in url:
        assert json.loads(data)
    return seconds * 1000


def memory(process: psutil.Process) -> float:
    """Megabytes that the service holds."""
    return float(process.memory_info().rss) / 2**20


if __name__ == "__main__":
    sys.exit(main())
