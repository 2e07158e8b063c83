"""A Spark session that starts when it is first needed; questions to it that do not start it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ingest.spark.settings import local_cores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Deferred:
    """A session that starts when something asks it for the first time: many small runs need no Spark at all.

    It has the attributes of the session. Attributes are asked in any thread; the first one waits for the start.
    """

    def __init__(self, start: Callable[[], SparkSession], master: str) -> None:
        self._start, self._lock = start, threading.Lock()
        self._started: SparkSession | None = None
        self.cores = local_cores(master)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.now(), name)

    def now(self) -> SparkSession:
        """The session, started if it is not yet."""
        with self._lock:
            if self._started is None:
                self._started = self._start()
        return self._started

    @property
    def started(self) -> SparkSession | None:
        """The session, if it has started."""
        return self._started


def has_started(spark: SparkSession) -> bool:
    """False for a session that nothing has needed yet."""
    return not isinstance(spark, Deferred) or spark.started is not None


def patience(spark: SparkSession) -> int:
    """How many times as much work as usual this process does itself: more as long as no session has started, because
    the start takes longer than the work.
    """
    return 1 if has_started(spark) else 8


def start(spark: SparkSession) -> None:
    """Start a session in this thread, if it has not started."""
    if isinstance(spark, Deferred):
        spark.now()


def cores(spark: SparkSession) -> int:
    """The tasks that run at the same time."""
    if isinstance(spark, Deferred) and spark.started is None:
        return spark.cores
    return max(1, spark.sparkContext.defaultParallelism)
