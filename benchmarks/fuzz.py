"""Search for messages that kill a worker, hang it or pass wrongly: ``python -m benchmarks.fuzz [COUNT]``.

Two million damaged messages over all formats, one of a hundred with 100 KB to 1 MB, in two processes: each must
be decoded or refused with a reason, none in more than a second, in flat memory. Exit 1 if one is not.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

from ingest import formats
from tests.formats.fuzzing import Outcome, corpus, tried

CHUNK = 2_000
SECONDS = 1.0  # more than this is a hang, also for a message of 1 MB
GROWTH = 64  # megabytes that a worker may grow by
_PATIENCE = 600.0  # seconds without any chunk: then a worker hangs in a loop that never ends


class Done(NamedTuple):
    """One chunk's outcome, and what its worker holds in memory."""

    name: str
    outcome: Outcome
    process: int
    megabytes: float


def main() -> int:
    """Run the search and print what became of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=2_000_000, help="how many messages")
    parser.add_argument("--first", type=int, default=0, help="the first chunk: others give other messages")
    parser.add_argument("--processes", type=int, default=2, help="how many processes share the work")
    parser.add_argument("--only", nargs="*", default=list(formats.names()), help="these formats")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after so long")
    options = parser.parse_args()
    names = options.only
    chunks = -(-options.count // (CHUNK * len(names)))
    work = [(name, options.first + chunk) for chunk in range(chunks) for name in names]
    for name in names:
        corpus(name)  # made once, inherited by the workers
    try:
        return _report(list(_results(work, options.processes, options.seconds)))
    except BrokenProcessPool:
        print("a worker died: run the formats one by one to see which message killed it")
        return 1
    except TimeoutError:
        print(f"no chunk was finished in {_PATIENCE:.0f} s: a worker hangs")
        return 1


def _results(work: list[tuple[str, int]], processes: int, seconds: float):  # noqa: ANN202 - an iterator of Done
    started = time.monotonic()
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(max_workers=processes, mp_context=fork) as pool:
        waiting = [pool.submit(_chunk, name, number) for name, number in work]
        for future in as_completed(waiting, timeout=_PATIENCE * len(work)):
            if not future.cancelled():
                yield future.result()
            if time.monotonic() - started > seconds:
                for each in waiting:
                    each.cancel()


def _chunk(name: str, number: int) -> Done:
    import os

    outcome = tried(name, number, CHUNK)
    return Done(name, outcome, os.getpid(), _resident())


def _resident() -> float:
    """Megabytes that this process holds now; its peak where /proc is missing."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * 4096 / 2**20
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def _report(done: list[Done]) -> int:
    total = Outcome()
    print(f"{'format':24}{'decoded':>10}{'refused':>10}{'slowest ms':>12}{'of 1 MB':>9}{'escapes':>9}")
    for name in sorted({each.name for each in done}):
        found = Outcome()
        for each in done:
            if each.name == name:
                found.add(each.outcome)
        total.add(found)
        _line(name, found)
    _line("all", total)
    grown = _memory(done)
    for escape in total.escapes[:20]:
        print(escape[:400])
    return int(bool(total.escapes) or max(total.slowest, total.slowest_large) > SECONDS or grown > GROWTH)


def _line(name: str, found: Outcome) -> None:
    slowest, large = found.slowest * 1000, found.slowest_large * 1000
    print(
        f"{name:24}{found.decoded:>10,}{found.refused:>10,}{slowest:>12.1f}{large:>9.1f}{len(found.escapes):>9}"
    )


def _memory(done: list[Done]) -> float:
    """Print each worker's memory at the end of its first tenth and at its end; the largest growth."""
    grown = 0.0
    for process in sorted({each.process for each in done}):
        held = [each.megabytes for each in done if each.process == process]
        start, end = max(held[: max(1, len(held) // 10)]), held[-1]
        grown = max(grown, end - start)
        print(f"memory of a worker: {start:.0f} MB, then {end:.0f} MB")
    return grown


if __name__ == "__main__":
    sys.exit(main())
