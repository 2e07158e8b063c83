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
import hashlib
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

from ingest.config import load
from ingest.lake.lake import Lake
from ingest.lake.session import session, stop
from tests.e2e.broker import Broker
from tests.e2e.topics import Sent, Topics
from tests.lakes import FORMAT, change

ROOT = Path(__file__).resolve().parent.parent
TOPIC, PARTITIONS = "load", 2
HOT_TABLE, HOT_KEY = "meters", 0
HOT = ("orders", "lines", "visits", "stock")
LARGE_TABLE = "letters"
COMPARED = 50  # of the tables that are rarely touched
_POISON = b'{"data":[{"id":"1","word":"cut off'
_LONG = 1_000  # characters; longer texts are compared by their hash
_BETWEEN = 3.0  # seconds between two looks at the memory


@dataclass(frozen=True, slots=True)
class Shape:
    """How much load."""

    seconds: int = 600
    tables: int = 1_000
    updates: int = 1_000_000  # of the hot key
    others: float = 0.25  # messages of other keys for each of these
    poison: float = 0.001
    rarely: int = 5  # seconds between two updates of tables that are not hot
    large: int = 64 << 20  # bytes of the one large message
    seed: int = 1


class Feed:
    """What is sent, and what the mirrors must hold afterwards."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.rng = random.Random(shape.seed)  # noqa: S311 - to be repeatable
        self.rows: dict[str, dict[int, str]] = {HOT_TABLE: {}, LARGE_TABLE: {}}
        self.rows |= {name: {} for name in HOT}
        self.cold = [f"t{n:04}" for n in range(shape.tables - len(self.rows))]
        self.rows |= {name: {} for name in self.cold}
        self.sent = self.changes = self.poisoned = self.serial = 0
        self._next = dict.fromkeys(self.rows, 1)

    def beginning(self) -> Iterator[Sent]:
        """The first row of every table."""
        for name in self.rows:
            yield self._put("INSERT", name, HOT_KEY, f"first of {name}")

    def second(self, number: int) -> Iterator[Sent]:
        """The messages of one second of load."""
        shape = self.shape
        before, after = (shape.updates * n // shape.seconds for n in (number, number + 1))
        for update in range(before, after):
            yield self._put("UPDATE", HOT_TABLE, HOT_KEY, f"reading {update}")
            if self.rng.random() < shape.others:
                yield self._other(self.rng.choice(HOT))
            if self.rng.random() < shape.poison * (1 + shape.others):
                yield self._poison()
        if self.cold and number % shape.rarely == 0:
            name = self.cold[number // shape.rarely % len(self.cold)]
            yield self._put("UPDATE", name, HOT_KEY, f"seen in second {number}")
        if number == shape.seconds // 3:
            yield self._put("INSERT", LARGE_TABLE, 1, "m" * (shape.large - _around()))

    def _other(self, name: str) -> Sent:
        """An insert, update or delete of a hot table."""
        rows, dice = self.rows[name], self.rng.random()
        key = self.rng.randrange(self._next[name])
        if dice < 0.25:
            key, self._next[name] = self._next[name], self._next[name] + 1
        if key not in rows:
            return self._put("INSERT", name, key, f"new {self.serial}")
        if dice < 0.90:
            return self._put("UPDATE", name, key, f"changed {self.serial}")
        del rows[key]
        return self._message("DELETE", name, key, "gone")

    def _put(self, kind: str, name: str, key: int, word: str) -> Sent:
        self.rows[name][key] = word if len(word) < _LONG else hashlib.sha256(word.encode()).hexdigest()
        return self._message(kind, name, key, word)

    def _message(self, kind: str, name: str, key: int, word: str) -> Sent:
        self.serial += 1
        self.sent += 1
        self.changes += 1
        line = change(kind, name, self.serial, {"id": str(key), "word": word}).rstrip().encode()
        place = b"%s/%d" % (name.encode(), key)
        return Sent(line, place, zlib.crc32(place) % PARTITIONS)

    def _poison(self) -> Sent:
        self.sent += 1
        self.poisoned += 1
        return Sent(_POISON, None, self.poisoned % PARTITIONS)


def _around() -> int:
    """Bytes of a message around its text."""
    return len(change("INSERT", LARGE_TABLE, 1_000_000, {"id": "1", "word": ""}))


# --- the run that is measured -------------------------------------------------------------------


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
        """Ask it to end, as a person would; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(patience)
        finally:
            self.process.kill()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told = json.loads(line)
            if told["batch"] is not None or told["failures"]:
                self.ticks.append(
                    Tick(
                        time.monotonic(), sum(told["stages"].values()), told["read"], told["changes"],
                        told["rejected"], tuple(told["failures"]),
                    )
                )  # fmt: skip

    def _look(self) -> None:
        while self.process.poll() is None:
            try:
                root = psutil.Process(self.process.pid)
                tree = [root, *root.children(recursive=True)]
                self.memory.append((time.monotonic(), sum(one.memory_info().rss for one in tree) / (1 << 20)))
                self.cpu = sum(sum(one.cpu_times()[:2]) for one in tree)
            except psutil.Error:  # a worker has ended meanwhile
                continue
            finally:
                time.sleep(_BETWEEN)


# --- the whole ----------------------------------------------------------------------------------


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
        f"pipeline: load\nlake: ./lake\nsources:\n  - {{name: all, kind: kafka, format: {FORMAT}, "
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
    told = [sum(getattr(tick, name) for tick in loop.ticks) for name in ("read", "changes", "rejected")]
    failures = [text for tick in loop.ticks for text in tick.failures]
    pairs: list[tuple[str, object, object]] = [
        ("exit code", 0, outcome.code),
        ("failures", [], failures),
        ("messages, changes and rejects told", [feed.sent, feed.changes, feed.poisoned], told),
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
    word = f"CASE WHEN length(word) < {_LONG} THEN word ELSE sha2(word, 256) END AS word"
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
