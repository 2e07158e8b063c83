"""Kafka to bronze on this machine: ``python -m benchmarks.kafka [MESSAGES] [PARTITIONS] [BYTES]``.

Starts a broker of its own on loopback, fills a topic, and lands it some times into new lakes; the first landings warm
the session, which is that of `ingest run --every`. The broker shares the machine's cores with the reading. Where other
work shares them, too, only the figure for a CPU-second says something.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import psutil

from benchmarks.tree import cpu
from ingest.bronze.land import land
from ingest.bronze.positions import Positions
from ingest.config.model import Pipeline, Source
from ingest.spark.session import session, stop
from ingest.tables.lake import Lake
from tests.e2e.broker import Broker
from tests.e2e.topics import Sent, Topics

ROUNDS = 4


def fill(topics: Topics, name: str, count: int, partitions: int, size: int) -> None:
    """Messages of a fixed size whose content does not repeat, as rows' texts do not."""
    topics.make(name, partitions)
    noise = os.urandom(size * 1000).hex().encode()
    topics.send(
        name,
        (Sent(noise[n * 61 % 100_000 :][:size], b"%d" % n, n % partitions) for n in range(count)),
    )


def measure(count: int, partitions: int, size: int) -> None:
    """Print messages per second of each landing, with its CPU seconds."""
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder) / "broker") as broker:
        started = time.monotonic()
        fill(Topics(broker.address), "load", count, partitions, size)
        print(f"filled {count:,} messages of {size} bytes in {time.monotonic() - started:.1f} s")
        assert broker.process is not None
        spent = partial(cpu, psutil.Process(), psutil.Process(broker.process.pid))  # without the broker's
        spark = session("benchmark", kafka=True, profile="batch")
        for number in range(ROUNDS):
            source = Source("load", "kafka", "canal", bootstrap_servers=broker.address, topics=("load",))
            pipeline = Pipeline("load", Path("load.yaml"), f"{folder}/lake{number}", (source,))
            before, started = spent(), time.monotonic()
            landed = land(Lake(spark, pipeline), Positions(), spark.sparkContext.defaultParallelism)
            seconds, busy = time.monotonic() - started, spent() - before
            assert landed.messages == count, landed
            print(
                f"{count / seconds:,.0f} messages/s ({seconds:.1f} s), {count / busy:,.0f} a CPU-second "
                f"({busy:.1f}), load {os.getloadavg()[0]:.1f}"
            )
        stop(spark)


if __name__ == "__main__":
    given = [int(one) for one in sys.argv[1:]]
    measure(*(given + [1_000_000, 4, 532][len(given) :]))
