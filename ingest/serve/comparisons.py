"""Comparisons with the sources' databases when they are due. They need no Spark: each is a process of its own."""

from __future__ import annotations

import datetime as dt
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ingest.config import Source
from ingest.errors import IngestError
from ingest.inspect.due import next_due
from ingest.serve.jobs import COMPARE, JobList, ServiceJob

LOOK = 0.5  # seconds between two looks at what is due
AGAIN = 10  # comparisons that failed, or could not judge, are repeated so many times in `reconcile_every:`,
SOONEST = 60.0  # but not sooner than after so many seconds
SAID = 200  # lines of a comparison's output
LONG = 200  # characters of a step


@dataclass(frozen=True, slots=True)
class Comparison:
    """A source whose mirrors are compared with its database, and how long until the next time."""

    source: str
    seconds: float | None  # None if it has no table yet
    job: ServiceJob | None  # of the comparison that runs now


class SourceComparisons:
    """The comparisons of a service, one source after the other."""

    def __init__(self, jobs: JobList, verbs: Sequence[str], run: Callable[[str], None]) -> None:
        self._jobs, self._verbs = jobs, verbs
        self._run = run  # asks for a run of a pipeline
        self.process: subprocess.Popen[str] | None = None  # of the last one
        self._compared: dict[tuple[str, str], float] = {}  # when the last comparison of a source was begun

    def _sources(self, name: str) -> list[Source]:
        """The sources of a pipeline that are compared on a schedule."""
        pipeline = self._jobs.fleet.members[name].pipeline
        return [
            source
            for source in (pipeline.sources if pipeline else ())
            if source.enabled and source.database is not None and source.database.reconcile_every
        ]

    def of(self, name: str) -> list[Comparison]:
        """A pipeline's comparisons that are scheduled."""
        comparisons = []
        for source in self._sources(name):
            now = [
                job
                for job in self._jobs.of(name)
                if job.state == "runs" and job.words == self._words(name, source)
            ]
            comparisons.append(
                Comparison(source.name, self._until_due(name, source), now[0] if now else None)
            )
        return comparisons

    def _words(self, name: str, source: Source) -> tuple[str, ...]:
        return COMPARE, "--due", f"--source={source.name}", "--", str(self._jobs.fleet.members[name].file)

    def _until_due(self, name: str, source: Source) -> float | None:
        """Seconds until a table of a source is to be compared; None if there is none yet."""
        try:
            lake = self._jobs.fleet.lake(name)
            due = self._jobs.fleet.kept(name, f"due {source.name}", lake, lambda lake: next_due(lake, source))
        except Exception:
            return None  # the pages say why the lake cannot be read
        if due is None:
            return None
        assert source.database is not None
        seconds = (due - dt.datetime.now(dt.UTC).replace(tzinfo=None)).total_seconds()
        if (begun := self._compared.get((name, source.name))) is not None:
            pause = max(SOONEST, (source.database.reconcile_every or 0.0) / AGAIN)
            seconds = max(seconds, begun + pause - time.monotonic())
        return max(0.0, seconds)

    def keep_up(self) -> None:
        """Compare what is due, one source after the other."""
        while not self._jobs.stop.wait(LOOK):
            for name in self._jobs.fleet.members:
                with suppress(IngestError):
                    self._jobs.fleet.member(name)
                for source in self._sources(name):
                    if self._until_due(name, source) == 0.0 and not self._jobs.stop.is_set():
                        self._compared[name, source.name] = time.monotonic()
                        self.compare(ServiceJob(name, self._words(name, source), state="runs"))

    def compare(self, job: ServiceJob) -> None:
        """One comparison, as a timer would start it."""
        said: deque[str] = deque(maxlen=SAID)
        try:
            with self._jobs.change:
                self._jobs.add(job)
                if self._jobs.stop.is_set():
                    self._jobs.over(job, 1, "error: it was stopped with the service")
                    return
                process = self.process = subprocess.Popen(
                    [*self._verbs, *job.words],
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                    start_new_session=True,
                )  # fmt: skip
            with process:
                assert process.stdout is not None
                for line in process.stdout:
                    said.append(line)
                    job.step = line.strip()[:LONG]
                code = process.wait()
        except OSError as error:
            self._jobs.over(job, 2, f"error: the comparison could not be started: {error}")
            return
        if code < 0:
            said.append(
                "error: it was stopped with the service"
                if self._jobs.stop.is_set()
                else f"error: it was ended by signal {-code}"
            )
        self._jobs.over(job, code, "".join(said))
        pipeline = self._jobs.fleet.members[job.pipeline].pipeline
        if code in (1, 2) and pipeline is not None and pipeline.alerts and not self._jobs.stop.is_set():
            # alerts are sent after runs; where one table could not be compared, others may differ
            self._run(job.pipeline)
