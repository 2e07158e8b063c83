"""Random histories, counted: `plain` through the fold in Python, `spark` through real Delta merges.

    python -m benchmarks.histories plain                  # 1,000,000 histories on all cores
    python -m benchmarks.histories spark                  # 10,000 histories, then all mirrors rebuilt
    python -m benchmarks.histories spark --histories 2000 --cluster    # the same on executors, two workers on this machine
    python -m benchmarks.histories arrow                  # the same, small mirrors by Arrow as in a run
    python -m benchmarks.histories plain --from 41 --histories 1
    python -m benchmarks.histories rules                  # 10,000 histories under random rules, in 100 lakes
    python -m benchmarks.histories rules --erase 10       # and rows erased in every tenth lake
    python -m benchmarks.histories secrets                # 20 lakes with masks: every file searched for planted values
    python -m benchmarks.histories erasures               # 20 lakes with rows erased at once: the same
    python -m benchmarks.histories faults                 # 50 faults in each dialect's messages, and as many right histories
    python -m benchmarks.histories faults --histories 44 --seed a      # others, 2,000 in all

A wrong history is printed with its number and its events, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from multiprocessing import Pool
from operator import add
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
    parser.add_argument("fold", choices=("plain", "spark", "arrow", "rules", "secrets", "erasures", "faults"))
    parser.add_argument(
        "--histories",
        type=int,
        default=0,
        help="1,000,000 plain, 20 with planted values, 50 of each dialect with faults, 10,000 else",
    )
    parser.add_argument(
        "--from", type=int, default=0, dest="first", help="the first history's or lake's number"
    )
    parser.add_argument("--batches", type=int, default=16, help="batches that carry them all (Spark)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="processes (plain)")
    parser.add_argument(
        "--erase", type=int, default=0, help="erase rows in every so many lakes, by Spark (rules)"
    )
    parser.add_argument("--seed", default="", help="makes other histories (faults)")
    parser.add_argument("--cluster", action="store_true", help="on a cluster on this machine (spark, arrow)")
    asked = parser.parse_args()
    if asked.fold == "rules":
        return rules(asked.first, asked.histories or 10_000, asked.processes, asked.erase)
    if asked.fold in ("secrets", "erasures"):
        return planted(asked.fold, asked.first, asked.histories or 20)
    if asked.fold == "faults":
        return faults(asked.first, asked.histories or 50, asked.processes, asked.seed)
    if asked.fold == "plain":
        return plain(asked.first, asked.histories or 1_000_000, asked.processes)
    apply = "files" if asked.fold == "arrow" else ""
    return spark(asked.histories or 10_000, asked.batches, apply, on_cluster=asked.cluster)


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


# --- with a fault ---


def faults(first: int, count: int, processes: int, seed: str = "") -> int:
    """Plant a fault in so many histories of each dialect, and count those that are named and when, and false alarms."""
    from tests.model.checks import CAPTURES

    def line(name: str, counts: Iterable[object]) -> None:
        print(f"{name:<38}{''.join(f'{count:>8}' for count in counts)}", flush=True)

    line("dialect", ("planted", "at once", "next", "unsaid", "hidden", "loaded", "missed", "right", "wrong"))
    failed, sums = 0, [0] * 9
    with Pool(processes) as pool:
        asked = [(number, first, count, seed) for number in range(len(CAPTURES))]
        for number, counts, found in pool.imap(_faulty, asked):
            line(CAPTURES[number].name, counts)
            sums = list(map(add, sums, counts))
            failed += len(found)
            for text in found[:SHOWN]:
                print(text)
    line("all", sums)
    print(
        "at once: named by the messages of the fault itself; next: by the row's next change. Never are: unsaid, as that change says "
        "nothing of the column; hidden, as its NULL may stand for a large value; loaded, as the row was loaded just before; missed. "
        "wrong: right histories that are silently wrong or falsely named"
    )
    return 1 if failed else 0


def _faulty(asked: tuple[int, int, int, str]) -> tuple[int, list[int], list[str]]:
    from tests.model import checks, planting

    number, first, count, seed = asked
    capture, numbers = checks.CAPTURES[number], range(first, first + count)
    tally = planting.planted(numbers, capture, seed)
    ordered = capture.name in checks.BY_SECOND
    wrong = checks.checked(numbers, capture, checks.sure(capture), seed, ordered=ordered)
    counts = [
        tally.planted,
        tally.at_once,
        sum(tally.named.values()) - tally.at_once,
        tally.unsaid,
        tally.hidden,
        tally.loaded,
        len(tally.missed),
    ]
    return number, [*counts, count, len(wrong)], [*tally.missed, *map(str, wrong)]


# --- under rules ---

LAKE = 100  # histories of a lake


def rules(first: int, count: int, processes: int, erase: int) -> int:
    """Run lakes of histories under random rules, and judge their mirrors by the rules applied to the sources."""
    started = time.monotonic()
    lakes = range(first, first + -(-count // LAKE))
    found: Iterable[tuple[int, int, int, list[str]]]
    if erase:
        from ingest.spark.session import session, stop

        spark = session("histories", profile="batch")
        try:
            found = [_ruled(seed, spark if seed % erase == 0 else None) for seed in lakes]
        finally:
            stop(spark)
        changes, rows, erased, wrong = _summed(found)
    else:
        with Pool(processes) as pool:
            changes, rows, erased, wrong = _summed(pool.imap_unordered(_ruled, lakes))
    print(
        f"{len(lakes) * LAKE:,} histories under rules in {len(lakes)} lakes, {changes:,} messages, {rows:,} rows, "
        f"{erased:,} erased, {wrong:,} wrong; {time.monotonic() - started:.0f} s"
    )
    return 1 if wrong else 0


def _ruled(seed: int, spark: SparkSession | None = None) -> tuple[int, int, int, list[str]]:
    from tests.properties import ruled_lakes

    with tempfile.TemporaryDirectory(prefix="histories-") as folder, ruled_lakes.parsed():
        return ruled_lakes.checked(seed, Path(folder), LAKE, spark)


def _summed(found: Iterable[tuple[int, int, int, list[str]]]) -> tuple[int, int, int, int]:
    """The sums, with what is wrong printed as it comes."""
    changes = rows = erased = bad = 0
    for one in found:
        changes, rows, erased, bad = changes + one[0], rows + one[1], erased + one[2], bad + len(one[3])
        for text in one[3]:
            print(text, flush=True)
    return changes, rows, erased, bad


# --- with planted values ---


def planted(what: str, first: int, count: int) -> int:
    """Run lakes in random dialects, one history each, and search every file for what was planted in them."""
    from tests.properties import planted_lakes

    begun = time.monotonic()
    values = files = size = rows = wrong = 0
    dialects = set[str]()
    with planted_lakes.made(erases=what == "erasures") as make:
        for seed in range(first, first + count):
            found = make(seed)
            values, files, size = values + found.values, files + found.files, size + found.size
            rows, wrong = rows + found.rows, wrong + len(found.wrong)
            dialects.add(found.dialect)
            for text in found.wrong:
                print(text, flush=True)
            print(f"{seed}: {found.dialect}, {found.files} files, {len(found.wrong)} wrong", flush=True)
    print(
        f"{count} lakes in {len(dialects)} dialects, {rows:,} rows, {values:,} planted values looked for in {files:,} files "
        f"of {size / 1e6:.0f} MB, {wrong} wrong; {time.monotonic() - begun:.0f} s"
    )
    return 1 if wrong else 0


# --- in Spark ---


def spark(count: int, batches: int, apply: str, *, on_cluster: bool = False) -> int:
    """Fold ``count`` histories batch by batch, then all over again in one go."""
    from ingest.spark.session import session, stop
    from tests.e2e.cluster import Cluster

    with tempfile.TemporaryDirectory(prefix="histories-") as name, ExitStack() as stack:
        folder = Path(name)
        if on_cluster:
            cluster = stack.enter_context(Cluster(folder / "cluster"))
            os.environ.update(cluster.environment)
            started = session("histories", master=cluster.master, conf=cluster.settings)
        else:
            started = session("histories", profile="batch")
        stack.callback(stop, started)
        return _spark(started, folder, count, batches, apply)


def _spark(session: SparkSession, folder: Path, count: int, batches: int, apply: str) -> int:
    from tests.properties import lakes

    clock = time.monotonic()
    lake, feeds = lakes.lake_of(session, folder / "lake"), lakes.feeds(count, batches)
    total = sum(len(feed.histories) for feed in feeds)
    print(f"{total:,} histories in {len(feeds)} tables, {time.monotonic() - clock:.0f} s to make", flush=True)
    merges = lakes.batch_by_batch(
        lake,
        feeds,
        batches,
        tell=lambda text: print(text, flush=True),
        ways=(apply,) if apply else lakes.WAYS,
    )
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
