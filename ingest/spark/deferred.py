"""A Spark session that starts when it is first needed; questions to it that do not start it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, cast

from ingest.spark.settings import local_cores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GROUP, _DESCRIPTION = "spark.jobGroup.id", "spark.job.description"


class Deferred:
    """A session that starts when something asks it for the first time: many small runs need no Spark at all.

    It has the attributes of the session. Attributes are asked in any thread; the first one waits for the start. Jobs
    that a thread starts afterwards have the group and the description of the stage (`named`), whatever thread it is.
    """

    def __init__(
        self, start: Callable[[], SparkSession], master: str, started: SparkSession | None = None
    ) -> None:
        self._start, self._lock = start, threading.Lock()
        self._started = started
        self._names: tuple[str | None, str | None] = (None, None)  # group and description of jobs
        self._of_thread = threading.local()  # these, as the thread's jobs have them
        self._beginning: threading.Thread | None = None
        self.cores = local_cores(master)

    def __getattr__(self, name: str) -> Any:
        session = self.now()
        self._name(session)
        return getattr(session, name)

    def now(self) -> SparkSession:
        """The session, started if it is not yet."""
        with self._lock:
            if self._started is None:
                self._started = self._start()
        return self._started

    def begin(self) -> None:
        """Begin to start it, and go on: who needs it first waits for the rest, and meets the error if there is one."""

        def start() -> None:
            with suppress(Exception):
                self.now()

        if self._started is None and self._beginning is None:
            self._beginning = threading.Thread(target=start, name="spark", daemon=True)
            self._beginning.start()

    def settle(self) -> None:
        """Wait until a start that has begun has ended."""
        if self._beginning is not None:
            self._beginning.join()

    @property
    def started(self) -> SparkSession | None:
        """The session, if it has started."""
        return self._started

    @contextmanager
    def named(self, description: str, group: str | None = None) -> Iterator[None]:
        """Give the jobs that are started in this block a description that a person reads in Spark's pages, and a group, if
        not that of the block around it.
        """
        before, self._names = self._names, (group or self._names[0], description)
        try:
            self._name_jobs()
            yield
        finally:
            self._names = before
            self._name_jobs()

    def _name_jobs(self) -> None:
        if self._started is not None:
            self._name(self._started)

    def _name(self, session: SparkSession) -> None:
        if getattr(self._of_thread, "names", (None, None)) == self._names:
            return
        self._of_thread.names = self._names
        with suppress(
            Exception
        ):  # a session of Spark Connect has no context; the work does not need the names
            context = session.sparkContext
            for key, value in zip((_GROUP, _DESCRIPTION), self._names, strict=True):
                context.setLocalProperty(key, cast("str", value))


class NoSession(Deferred):
    """The session of a lake where none can start, in a task or after the end of Java: whoever asks for it fails, and ``asked``
    says so afterwards.
    """

    def __init__(self) -> None:
        super().__init__(self._refuse, "local[1]")
        self.asked = False

    def _refuse(self) -> SparkSession:
        self.asked = True
        raise RuntimeError("there is no Spark session here")


def deferred(spark: SparkSession) -> Deferred:
    """The same session, whose jobs can be named."""
    if isinstance(spark, Deferred):
        return spark
    return Deferred(lambda: spark, "", started=spark)


def named(spark: SparkSession, description: str) -> AbstractContextManager[None]:
    """As `Deferred.named`; nothing for a session whose jobs have no names."""
    return spark.named(description) if isinstance(spark, Deferred) else nullcontext()


def has_started(spark: SparkSession) -> bool:
    """False for a session that nothing has needed yet."""
    return not isinstance(spark, Deferred) or spark.started is not None


def begin(spark: SparkSession) -> None:
    """Begin to start a session that has not started, and go on meanwhile."""
    if isinstance(spark, Deferred):
        spark.begin()


def cores(spark: SparkSession) -> int:
    """The tasks that run at the same time."""
    if isinstance(spark, Deferred) and spark.started is None:
        return spark.cores
    return max(1, spark.sparkContext.defaultParallelism)


def is_usable(spark: SparkSession) -> bool:
    """False once the JVM is gone, or its context stopped: nothing further can succeed."""
    try:
        return not has_started(spark) or not spark.sparkContext._jsc.sc().isStopped()
    except Exception:
        return False
