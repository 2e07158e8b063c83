"""Sustained load: a broker, a producer that paces itself, and `ingest run --every` for as long as one likes.

    python -m benchmarks.load                    # 10 minutes, 1,000 tables, a million updates of one key
    python -m benchmarks.load --minutes 2 --tables 60

All tables share one topic of two partitions, in Canal JSON as DTS sends it. Most tables are rarely touched, as in
life: each gets its first row before the clock starts, and from then on one in turn is updated every five seconds.
Five are hot: ``meters``, whose key 0 gets four fifths of all messages, and four more whose rows are inserted, updated
and deleted. One message in a thousand is no JSON, and one is of 64 MiB: a row with one large text. Messages are sent
by the clock, whatever the reader does. What is measured is the process that a user would start, with its Java and its
Python workers; it is asked to end when it has read everything, and then its lake is compared with a plain fold of
what was sent. The exit code is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.feed import HOT, HOT_TABLE, LARGE_TABLE, LONG, PARTITIONS, Feed, Shape
from benchmarks.loop import Loop, Tick
from ingest.config import load
from ingest.spark.session import session, stop
from ingest.tables.lake import Lake
from tests.e2e.broker import Broker
from tests.e2e.topics import Topics
from tests.lakes import FORMAT

TOPIC = "load"
COMPARED = 50  # of the tables that are rarely touched


@dataclass(slots=True)
class Outcome:
    """What was sent, what the loop did with it, and from when to when the load lasted."""

    feed: Feed
    loop: Loop
    began: float
    ended: float
    code: int

    @property
    def ticks(self) -> list[Tick]:
        """The ticks that ended under load."""
        return [tick for tick in self.loop.ticks if tick.ended > self.began]

    @property
    def memory(self) -> list[tuple[float, float]]:
        """Minutes since the load began, and MiB."""
        return [
            ((moment - self.began) / 60, size)
            for moment, size in self.loop.memory
            if self.began <= moment <= self.ended
        ]


Tell = Callable[[str], None]


def loaded(
    folder: Path, address: str, shape: Shape, every: str = "2s", tell: Tell = lambda _: None
) -> Outcome:
    """Put a lake in ``folder`` under load; it is complete and its process has ended when this returns."""
    feed, topics = Feed(shape), Topics(address)
    topics.make(TOPIC, PARTITIONS, **{"segment.bytes": str(128 << 20)})  # no message is larger than a segment
    topics.send(TOPIC, feed.beginning())
    file = folder / "load.yaml"
    file.write_text(
        f"pipeline: load\nlake: ./lake\nengine: auto\nsources:\n  - {{name: all, kind: kafka, format: {FORMAT}, "
        f"bootstrap_servers: '{address}', topics: [{TOPIC}]}}\n"
    )
    started = time.monotonic()
    loop = Loop(file, every)
    try:
        loop.until(feed.sent, 1800)
        tell(f"{shape.tables:,} mirrors made in {time.monotonic() - started:.0f} s")
        began = time.monotonic()
        _send(topics, feed, tell)
        ended = time.monotonic()
        loop.until(feed.sent, 900)
        tell(f"all landed {time.monotonic() - ended:.0f} s after the last was sent")
    finally:
        code = loop.stop()
    return Outcome(feed, loop, began, ended, code)


def _send(topics: Topics, feed: Feed, tell: Tell) -> None:
    """Every second's messages at their second."""
    producer = topics.producer(**{"message.max.bytes": 80_000_000, "linger.ms": 20})
    began = time.monotonic()
    for number in range(feed.shape.seconds):
        for one in feed.second(number):
            topics.produce(producer, TOPIC, one)
        producer.poll(0)
        if number % 60 == 59:
            tell(f"{feed.sent:,} messages sent in {time.monotonic() - began:.0f} s")
        time.sleep(max(0.0, began + number + 1 - time.monotonic()))
    assert producer.flush(120) == 0


def differences(outcome: Outcome, spark: SparkSession) -> Iterator[str]:
    """What the lake or the loop says otherwise than the feed; nothing if all is right."""
    feed, loop = outcome.feed, outcome.loop
    lake = Lake(spark, load(loop.file))
    printed = [sum(getattr(tick, name) for tick in loop.ticks) for name in ("read", "changes", "rejected")]
    failures = [text for tick in loop.ticks for text in tick.failures]
    pairs: list[tuple[str, object, object]] = [
        ("exit code", 0, outcome.code),
        ("failures", [], failures),
        ("messages, changes and rejects printed", [feed.sent, feed.changes, feed.poisoned], printed),
        ("the same in the lake", [feed.sent, feed.sent, feed.changes, feed.poisoned], _counts(lake)),
    ]
    for what, expected, actual in pairs:
        if expected != actual:
            yield f"{what}: {expected} expected, {actual} found"
    for name in compared(feed):
        rows, found = feed.rows[name], _rows(lake, name)
        if rows != found:
            wrong = sum(found.get(key) != word for key, word in rows.items())
            extra = len(found.keys() - rows.keys())
            yield f"{name}: {len(rows)} rows expected, {wrong} missing or different, {extra} too many"


def compared(feed: Feed) -> list[str]:
    """The tables that are compared row for row: the hot ones, and some of the others."""
    some = feed.cold[:: max(1, len(feed.cold) // COMPARED)]
    return [HOT_TABLE, LARGE_TABLE, *HOT, *some]


def _counts(lake: Lake) -> list[int]:
    """Messages, different messages, changes, rejected messages."""
    place = "count(DISTINCT `partition`, `offset`)"
    asked = {"bronze": ("message", "count(*)", place), "changes": ("change", "count(*)")}
    asked["rejects"] = ("message", "count(*)")
    found: list[int] = []
    for name, (kind, *sums) in asked.items():
        if lake.exists(name):
            found += lake.read(name).where(f"kind = '{kind}'").selectExpr(*sums).collect()[0]
        else:
            found += [0] * len(sums)
    return found


def _rows(lake: Lake, name: str) -> dict[int, str]:
    word = f"CASE WHEN length(word) < {LONG} THEN word ELSE sha2(word, 256) END AS word"
    found: list[Any] = lake.read(f"mirrors/depot/{name}").selectExpr("id", word).collect()
    return {row["id"]: row["word"] for row in found}


# --- figures ------------------------------------------------------------------------------------


def figures(outcome: Outcome) -> Iterator[str]:
    """What to print."""
    feed, ticks = outcome.feed, outcome.ticks
    yield (
        f"messages: {feed.sent:,} produced, {outcome.loop.read:,} landed, {feed.changes:,} changes, "
        f"{feed.poisoned:,} rejects"
    )
    seconds = [tick.seconds for tick in ticks]
    first, _, last = _thirds(seconds)
    yield (
        f"ticks: {len(ticks)}, seconds: median {statistics.median(seconds):.1f}, "
        f"95 % {_quantile(seconds, 0.95):.1f}, first third {first:.1f}, last third {last:.1f}"
    )
    sizes = [size for _, size in outcome.memory]
    thirds = " ".join(f"{one:,.0f}" for one in _thirds(sizes))
    yield (
        f"memory, MiB: medians of the thirds {thirds}, most {max(sizes):,.0f}, "
        f"slope {slope(outcome.memory[len(sizes) // 5 :]):+.1f} a minute after the first fifth"
    )
    yield f"CPU: {outcome.loop.cpu:,.0f} s from start to end"
    yield f"hot key: {feed.shape.updates:,} updates"


def _thirds(values: list[float]) -> tuple[float, float, float]:
    """The median of each third."""
    cut = max(1, len(values) // 3)
    parts = values[:cut], values[cut:-cut] or values, values[-cut:]
    return statistics.median(parts[0]), statistics.median(parts[1]), statistics.median(parts[2])


def _quantile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def slope(points: list[tuple[float, float]]) -> float:
    """The least-squares line's rise."""
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def main() -> int:
    """Load, print, compare."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--tables", type=int, default=1_000)
    parser.add_argument("--every", default="2s")
    given = parser.parse_args()
    seconds = round(given.minutes * 60)
    shape = Shape(seconds, given.tables, 1_000_000 * seconds // 600)
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder) / "broker") as broker:
        outcome = loaded(
            Path(folder), broker.address, shape, given.every, lambda text: print(text, flush=True)
        )
        for line in figures(outcome):
            print(line, flush=True)
        spark = session("load", master="local[2]")
        try:
            wrong = list(differences(outcome, spark))
        finally:
            stop(spark)
    print("\n".join(wrong) or f"equal: every count, {len(compared(outcome.feed))} mirrors row for row")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
