"""What it costs to ask: the wall time of each verb that only looks, and of the service's answers.

    python -m benchmarks.questions                       # a lake of the tests' own, made without Spark
    python -m benchmarks.questions --file shop.yaml --table shop.orders --key 5000    # yours, `run` with nothing to do included

Each verb is a process of its own, from its start to its end, as typed; the least and the median of some tries are
printed. The service is asked over loopback, once cold and then warm, about a lake of 500 tables.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.lakes import ROOT, change
from tests.serve.conftest import depot
from tests.written import Written

CHECKS = (
    "rows",
    "key_unique",
    "key_not_null",
    "missing_rows",
    "surplus_rows",
    "cell_rejects",
    "ddl_pending",
    "freshness",
)
RUNS = 8  # of which the lake of many tables has checks
PAGES = {
    "API status of one pipeline": "/api/status?pipeline=depot",
    "all pipelines": "/",
    "a pipeline": "/pipeline?pipeline=depot",
    "a table": "/table?pipeline=depot&table=depot.table_007",
    "metrics": "/metrics",
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
    parser.add_argument("--tries", type=int, default=5)
    options = parser.parse_args()
    print(f"load {', '.join(f'{one:.1f}' for one in os.getloadavg())} on {os.cpu_count()} processors\n")
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        file = options.file or depot(folder, batches=options.batches).file
        print("| question | least, s | median, s | processor, s |\n|---|---|---|---|")
        for verb, words in verbs(file, options.table, options.key, folder, run=options.file is not None):
            least, median, cpu = timed(words, options.tries)
            print(f"| `{verb}` | {least:.2f} | {median:.2f} | {cpu:.2f} |", flush=True)
        print(
            f"\n| answer of the service, {options.tables} tables | cold, ms | least warm, ms | median warm, ms |\n|---|---|---|---|"
        )
        with service(many(folder / "many", options.tables).file) as (url, process):
            before = memory(process)
            for page, address in PAGES.items():
                cold, *warm = (asked(url + address) for _ in range(options.tries + 1))
                print(
                    f"| {page} | {cold:.0f} | {min(warm):.0f} | {statistics.median(warm):.0f} |", flush=True
                )
            print(
                f"\nMemory of the service: {before:.0f} MB at its start, {memory(process):.0f} MB after all pages."
            )
    return 0


def verbs(file: Path, table: str, key: str, folder: Path, *, run: bool) -> Iterator[tuple[str, list[str]]]:
    """Each question as it is typed."""
    name = str(file)
    for verb in ("status", "tables", "rejects", "ddl", "alerts", "plan", "validate"):
        yield verb, [verb, name]
    yield "explain", ["explain", name, table, key]
    yield "report", ["report", name, "--out", str(folder / "report.html")]
    yield "sql", ["sql", name, f"SELECT count(*) FROM {table}"]
    yield "wait", ["wait", name, "--until", "2000-01-01", "--timeout", "0s"]
    if run:
        yield "run, with nothing to do", ["run", name]


def timed(words: list[str], tries: int) -> tuple[float, float, float]:
    """Wall seconds of a verb, the least and the median, and the least processor seconds."""
    seconds, cpu = [], []
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(tries):  # with compiled modules, as an installation has them
        began, before = time.monotonic(), _spent()
        done = subprocess.run(
            [sys.executable, "-m", "ingest", *words],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
            env=surroundings,
        )
        seconds.append(time.monotonic() - began)
        cpu.append(_spent() - before)
        if done.returncode not in (0, 1, 3):
            raise SystemExit(f"{' '.join(words)}: {done.stderr or done.stdout}")
    return min(seconds), statistics.median(seconds), min(cpu)


def _spent() -> float:
    """Processor seconds of the processes that have ended."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def many(folder: Path, tables: int) -> Written:
    """A lake of many tables, each with checks of some runs."""
    made = Written(folder)
    names = [f"table_{n:03}" for n in range(tables)]
    made.take([change("INSERT", name, n + 1, {"id": "1", "word": "x"}) for n, name in enumerate(names)])
    for _ in range(RUNS):
        made.product(
            "checks", [made.check(f"depot.{name}", check, 1.0) for name in names for check in CHECKS]
        )
    return made


@contextmanager
def service(file: Path) -> Iterator[tuple[str, psutil.Process]]:
    """`ingest serve` over a pipeline file, and where it answers."""
    words = [
        sys.executable,
        "-m",
        "ingest",
        "serve",
        str(file),
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
