"""Progress of a run: a live line with Spark's task counts on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ingest.cli import output
from ingest.errors import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PLAIN_EVERY = 10.0  # seconds between signs of life in a log
_NOTE_EVERY = 5.0


class ProgressLine:
    """Says what a run is doing, on stderr; use as a context."""

    def __init__(self, spark: SparkSession, pipeline: str) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._newest = "starting"
        self._done = threading.Event()
        self._console = output.console(stderr=True)
        self._live = self._console.is_terminal and not output.is_quiet()
        self._status: Any = None
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        if self._live:
            self._status = self._console.status(self._pipeline)
            self._status.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join(timeout=2)
        if self._status is not None:
            self._status.stop()

    def tell(self, subject: str, step: str) -> None:
        """A step begins."""
        self._newest = f"{output.short(subject)}: {step}"
        if not self._live:
            output.note(f"{time.strftime('%H:%M:%S')} {self._pipeline}: {self._newest}")

    def _watch(self) -> None:
        """Show the newest step with its tasks; in a log, only when a step takes long."""
        from rich.text import Text

        waited = 0.0
        while not self._done.wait(0.2):
            waited += 0.2
            if self._live:
                self._status.update(Text(f"{self._pipeline}: {self._line()}"))  # a name is not markup
            elif waited >= _PLAIN_EVERY:
                waited = 0.0
                output.note(f"{time.strftime('%H:%M:%S')} {self._pipeline}: {self._line()}")

    def _line(self) -> str:
        return self._newest + self._tasks()

    def _tasks(self) -> str:
        from ingest.spark.deferred import has_started

        done = total = 0
        if not has_started(self._spark):
            return ""
        try:
            tracker = self._spark.sparkContext.statusTracker()
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None:
                    done, total = done + info.numCompletedTasks, total + info.numTasks
        except Exception:  # the session may end under us; progress must never end a run
            return ""
        return f" ({done} of {counted(total, 'task')})" if total else ""


def silent(_subject: str, _step: str) -> None:
    """Instead of `ProgressLine.tell`, says nothing."""


class SpacedNotes:
    """Notes of threads at work, at most one in a few seconds."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._lock = threading.Lock()

    def say(self, text: str) -> None:
        """Print a note, unless the last one is too new."""
        with self._lock:
            if time.monotonic() - self._last < _NOTE_EVERY:
                return
            self._last = time.monotonic()
        output.note(text)
