"""The process in which a service runs pipelines and verbs: one warm Spark session, one job after the other.

``python -m ingest.cli.worker FILE...`` reads a job a line from stdin and writes what becomes of it to stdout, as JSON. A verb
is the verb of the command line, with its words, so that nothing can be done here that cannot be typed. The end of
stdin, or SIGTERM, ends it: the commit in flight is finished first.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ingest.cli import output
from ingest.cli.stopping import StopRequest
from ingest.config import load
from ingest.errors import IngestError, LockedError, counted, unexpected
from ingest.operate.alerts import AlertSender
from ingest.result import STAGES
from ingest.spark.deferred import is_usable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ingest.config import Pipeline
    from ingest.run import Warm

MOST = 100_000  # characters of a verb's output


class Worker:
    """Does jobs until it is asked to stop."""

    def __init__(self, files: list[Path], answers: TextIO) -> None:
        self._files = files
        self._answers = answers
        self._spark: SparkSession | None = None
        self._warm: dict[Path, tuple[Pipeline, Warm]] = {}
        self._alarm = AlertSender(output.warning)
        self._ends = contextlib.ExitStack()
        self.stop = StopRequest()
        self.jobs: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

    def listen(self) -> None:
        """SIGTERM asks for the end; Ctrl-C is for the service, which passes it on."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, _number: int, _frame: object) -> None:
        self.stop.set()
        self.jobs.put(None)

    def read(self, requests: TextIO) -> None:
        """Take jobs from a stream until it ends."""
        for line in requests:
            self.jobs.put(json.loads(line))
        self.stop.set()
        self.jobs.put(None)

    def work(self) -> None:
        """Do one job after the other, until the service ends or the session is not usable any more."""
        with self._ends:
            while not self.stop.is_set() and (job := self.jobs.get()) is not None:
                answer = self._done(job)
                self._say({"job": job["job"], "done": answer})
                if self._spark is not None and not is_usable(self._spark):
                    return  # the next worker has a session that works

    def _say(self, message: dict[str, Any]) -> None:
        self._answers.write(json.dumps(message) + "\n")
        self._answers.flush()

    def _done(self, job: dict[str, Any]) -> dict[str, Any]:
        try:
            self._session()
            if "run" in job:
                return self._run(job["job"], Path(job["run"]))
            return _verb(job["verb"], job["user"])
        except LockedError as error:  # the next run finds what waits
            if "run" in job:
                return {"code": 0, "text": f"warning: {error}"}
            return {"code": 2, "text": _said(error)}
        except Exception as error:
            return {"code": getattr(error, "exit_code", 2), "text": _said(error)}
        finally:
            if "verb" in job:  # whatever it did, the next run looks again
                self._warm = {file: (before, warm.restarted()) for file, (before, warm) in self._warm.items()}

    def _session(self) -> SparkSession:
        if self._spark is None:
            from ingest.cli.spark import session_for

            readable = list(self._pipelines()) or [load(self._files[0])]  # which says what is wrong with it
            # Spark's start takes Ctrl-C for itself, so signals are listened to again after it
            session = session_for(readable, begun=self.listen)
            self._spark = self._ends.enter_context(session)
        return self._spark

    def _pipelines(self) -> Iterator[Pipeline]:
        """Those that can be read now; the session is made for their sources."""
        for file in self._files:
            with contextlib.suppress(IngestError):
                yield load(file)

    def _run(self, job: str, file: Path) -> dict[str, Any]:
        """One pipeline once, in this session and with what it remembers."""
        from ingest import run as running

        pipeline, spark = load(file), self._session()
        before, warm = self._warm.get(file, (pipeline, running.Warm()))
        if before != pipeline:
            warm = warm.restarted()
        self._warm[file] = pipeline, warm
        try:
            result = running.run(
                spark, pipeline, STAGES, warm,
                lambda subject, step: self._say({"job": job, "step": f"{subject}: {step}"}), stop=self.stop.is_set,
            )  # fmt: skip
        except Exception as error:
            self._warm[file] = pipeline, warm.restarted()
            if is_usable(spark) or not self.stop.is_set():  # who stops the service stops Java, too
                self._alarm.stopped(spark, pipeline, error)
            raise
        self._alarm.ran(spark, pipeline, result.batch)
        texts = [f"error: {text}" for text in result.failures]
        texts += [f"warning: {text}" for text in result.warnings]
        batch = "nothing new"
        if result.batch is not None:
            batch = f"batch {result.batch}: {result.read:,} read, {counted(result.changes, 'change')}"
        return {"code": result.exit_code, "text": "\n".join([batch, *texts])[:MOST], "batch": result.batch}


def _said(error: Exception) -> str:
    """What went wrong, as the command line would print it."""
    return f"error: {error if isinstance(error, IngestError) else unexpected(error)}"


def _verb(words: list[str], user: str) -> dict[str, Any]:
    """A verb with what it prints and its exit code, in the name of a user."""
    from ingest.cli.app import app

    data = io.BytesIO()
    out = io.TextIOWrapper(data, "utf-8", write_through=True)
    os.environ["INGEST_USER"] = user
    code: object = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            app(words, prog_name="ingest")
    except SystemExit as error:
        code = error.code
    finally:
        os.environ.pop("INGEST_USER", None)
    out.flush()
    text = data.getvalue().decode("utf-8", "replace")[-MOST:]
    return {"code": code if isinstance(code, int) else 2 if code else 0, "text": text}


def main() -> None:
    """The process."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else is printed is not an answer
    worker = Worker([Path(word) for word in sys.argv[1:]], answers)
    worker.listen()
    threading.Thread(target=worker.read, args=(sys.stdin,), daemon=True).start()
    try:
        worker.work()
    finally:
        if "pyspark" in sys.modules:
            from ingest.spark.session import end_java

            end_java()  # whoever waits for this process waits for Java, too


if __name__ == "__main__":
    main()
