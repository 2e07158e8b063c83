"""Random histories, counted: `plain` through the fold in Python, `spark` through real Delta merges.

    python -m benchmarks.histories plain                  # 1,000,000 histories on all cores
    python -m benchmarks.histories spark                  # 10,000 histories, then all mirrors rebuilt
    python -m benchmarks.histories arrow                  # the same, small mirrors by Arrow as in a run
    python -m benchmarks.histories plain --from 41 --histories 1

A wrong history is printed with its number and its events, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from multiprocessing import Pool
from pathlib import Path
from typing import TYPE_CHECKING

from tests.properties.checks import Wrong, checked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARE = 5_000  # histories that a process takes at a time
SHOWN = 5


def main() -> int:
    """Run what the command line asks for; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.histories", description=__doc__.splitlines()[0]
    )
    parser.add_argument("fold", choices=("plain", "spark", "arrow"))
    parser.add_argument("--histories", type=int, default=0, help="1,000,000 plain, 10,000 in Spark")
    parser.add_argument(
        "--from", type=int, default=0, dest="first", help="the first history's number (plain)"
    )
    parser.add_argument("--batches", type=int, default=16, help="batches that carry them all (Spark)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="processes (plain)")
    asked = parser.parse_args()
    if asked.fold == "plain":
        return plain(asked.first, asked.histories or 1_000_000, asked.processes)
    return spark(asked.histories or 10_000, asked.batches, None if asked.fold == "arrow" else 0)


# --- in plain Python ---


def plain(first: int, count: int, processes: int) -> int:
    """Fold ``count`` histories in as many processes."""
    started = time.monotonic()
    ends = range(first, first + count, SHARE)
    shares = [(start, min(start + SHARE, first + count)) for start in ends]
    changes, wrong = 0, 0
    with Pool(processes) as pool:
        for folded, found in pool.imap_unordered(_share, shares):
            changes += folded
            for one in found:
                wrong += 1
                if wrong <= SHOWN:
                    print(one)
    seconds = time.monotonic() - started
    print(
        f"{count:,} histories, {changes:,} changes delivered, {wrong:,} wrong; "
        f"{seconds:.0f} s with {processes} processes, {count / seconds:,.0f} histories/s"
    )
    return 1 if wrong else 0


def _share(bounds: tuple[int, int]) -> tuple[int, list[Wrong]]:
    changes = 0
    found = []
    for number in range(*bounds):
        folded, wrong = checked(number)
        changes += folded
        if wrong:
            found.append(wrong)
    return changes, found


# --- in Spark ---


def spark(count: int, batches: int, budget: int | None) -> int:
    """Fold ``count`` histories batch by batch, then all over again in one go."""
    from ingest.lake.session import session, stop

    started = session("histories", profile="batch")
    try:
        with tempfile.TemporaryDirectory(prefix="histories-") as folder:
            return _spark(started, Path(folder), count, batches, budget)
    finally:
        stop(started)


def _spark(session: SparkSession, folder: Path, count: int, batches: int, budget: int | None) -> int:
    from tests.properties import lakes

    clock = time.monotonic()
    lake, feeds = lakes.lake_of(session, folder / "lake", budget), lakes.feeds(count, batches)
    total = sum(len(feed.histories) for feed in feeds)
    print(f"{total:,} histories in {len(feeds)} tables, {time.monotonic() - clock:.0f} s to make", flush=True)
    merges = lakes.batch_by_batch(lake, feeds, batches, tell=lambda text: print(text, flush=True))
    wrong = [one for feed in feeds for one in lakes.wrong(lake, feed)]
    seconds = time.monotonic() - clock
    print(f"{total:,} histories, {merges} merges, {len(wrong):,} wrong; {seconds:.0f} s", flush=True)
    rebuilt = lakes.rebuilt(lake, folder / "again")
    different = [feed.table for feed in feeds if lakes.content(lake, feed) != lakes.content(rebuilt, feed)]
    seconds = time.monotonic() - clock
    print(f"rebuilt in one go: {len(feeds)} mirrors, {len(different)} different; {seconds:.0f} s")
    for one in wrong[:SHOWN]:
        print(one)
    return 1 if wrong or different else 0


if __name__ == "__main__":
    sys.exit(main())
