"""What the service does apart from answering: runs on schedules, and the actions of its users, in one process of their own.

That process has the Spark session. It is started when something is to be done, ended after a while without work, and
the service goes on without it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from ingest.inspect.idle import idle
from ingest.result import STAGES
from ingest.serve.comparisons import Comparison, SourceComparisons
from ingest.serve.fleet import Fleet
from ingest.serve.jobs import KEPT, JobList, ServiceJob, words_of

WORKER = (sys.executable, "-m", "ingest.cli.worker")
VERBS = (sys.executable, "-m", "ingest")
IDLE = 600.0  # seconds without a job after which the process is ended
LOOK = 0.5  # seconds between two looks at what is due
REST = 30.0  # seconds that what an ended process has started may take to end


class JobRunner(JobList):
    """Jobs, the process that does them, and the schedules."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        schedules: bool = True,
        worker: Sequence[str] = WORKER,
        verbs: Sequence[str] = VERBS,
        idle_after: float = IDLE,
    ) -> None:
        super().__init__(fleet)
        self._schedules, self._command, self._idle_after = schedules, worker, idle_after
        self._keys: OrderedDict[str, ServiceJob] = OrderedDict()
        self._asked: deque[ServiceJob] = deque()
        self._runs: deque[ServiceJob] = deque()
        self._process: subprocess.Popen[str] | None = None
        self._due: dict[str, float] = {}
        self.compared = SourceComparisons(self, verbs, self._ask_run)
        self._threads = [threading.Thread(target=self._work, daemon=True)]
        if schedules:
            self._threads.append(threading.Thread(target=self._schedule, daemon=True))
            self._threads.append(threading.Thread(target=self.compared.keep_up, daemon=True))

    # --- what is asked for ---

    def ask(self, do: str, pipeline: str, given: Mapping[str, str], user: str, key: str = "") -> ServiceJob:
        """An action as a job; the same one if it was asked for with this key already.

        Raises:
            IngestError: it cannot be asked for so.
        """
        words = words_of(do, self.fleet.member(pipeline).file, given)
        with self.change:
            if key and key in self._keys:
                return self._keys[key]
            job = self.add(ServiceJob(pipeline, words, user), self._asked)
            if key:
                self._keys[key] = job
                while len(self._keys) > KEPT:
                    self._keys.popitem(last=False)
        return job

    def next_run(self, pipeline: str) -> float | None:
        """Seconds until the pipeline's next look for work; None without a schedule."""
        due = self._due.get(pipeline)
        return None if due is None else max(0.0, due - time.monotonic())

    def comparisons(self, pipeline: str) -> list[Comparison]:
        """A pipeline's comparisons that are scheduled."""
        return self.compared.of(pipeline) if self._schedules else []

    # --- what is due ---

    def _schedule(self) -> None:
        while not self.stop.wait(LOOK):
            for name in self.fleet.members:
                try:
                    self._look(name)
                except Exception as error:  # one pipeline must not stop the schedules of the others
                    self._note(name, f"error: {error}")

    def _look(self, name: str) -> None:
        """Ask for a run if one is due and there is something to do."""
        member = self.fleet.member(name)
        pipeline = member.pipeline
        if pipeline is None or pipeline.every is None:
            self._due.pop(name, None)
            return
        now = time.monotonic()
        if now < min(self._due.get(name, now), now + pipeline.every):
            return
        if any(not job.is_over for job in self.of(name) if job.words[0] == "run"):
            return
        self._due[name] = now + pipeline.every
        try:
            nothing = idle(pipeline, STAGES, kept=member.kept)
        except Exception:
            nothing = None  # the run meets it, too, and says it as it always does
        if nothing is None:
            self._ask_run(name)

    def _ask_run(self, name: str) -> None:
        with self.change:
            self.add(ServiceJob(name, ("run", str(self.fleet.members[name].file))), self._runs)

    def _note(self, name: str, text: str) -> None:
        words = ("run", str(self.fleet.members[name].file))
        with self.change:
            self.add(ServiceJob(name, words, state="failed", text=text, code=2, ended=time.time()))
        self._due[name] = time.monotonic() + 60

    # --- what is done ---

    def start(self) -> None:
        """Begin to work."""
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        """One job after the other, those of users first."""
        while not self.stop.is_set():
            with self.change:
                self.change.wait_for(
                    lambda: self._asked or self._runs or self.stop.is_set(), self._idle_after
                )
                line = self._asked or self._runs
                job = line.popleft() if line else None
                if job is not None:
                    job.state = "runs"
            if job is not None:
                try:
                    self._do(job)
                except Exception as error:
                    self.over(job, 2, f"error: the process that runs pipelines could not be used: {error}")
            elif self._process is not None and not self.stop.is_set():
                self._end()
                self._closed(self._process)
                self._process = None

    def _do(self, job: ServiceJob) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            if process is not None:
                self._closed(process)
                _wait_for_rest(process)
            process = self._started()
        if process is None:
            self.over(job, 1, "error: it was stopped with the service")
            return
        assert process.stdin is not None
        assert process.stdout is not None
        what: dict[str, object] = (
            {"run": job.words[-1]} if job.words[0] == "run" else {"verb": job.words, "user": job.user}
        )
        process.stdin.write(json.dumps({"job": job.id, **what}) + "\n")
        process.stdin.flush()
        for line in process.stdout:
            answer = json.loads(line)
            if answer["job"] != job.id:
                continue
            if "step" in answer:
                job.step = answer["step"]
            else:
                self.over(job, answer["done"]["code"], answer["done"]["text"])
                return
        code = process.wait()
        text = (
            "it was stopped with the service"
            if self.stop.is_set()
            else f"its process ended with code {code}: run again"
        )
        self.over(job, 1, f"error: {text}")

    def _started(self) -> subprocess.Popen[str] | None:
        """A process that does jobs; None at the end of the service, which would not wait for it."""
        files = [str(member.file) for member in self.fleet.members.values()]
        with self.change:
            if self.stop.is_set():
                return None
            self._process = subprocess.Popen(  # a session of its own: Ctrl-C is for the service
                [*self._command, *files],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            return self._process

    # --- the end ---

    def _end(self) -> None:
        """Let the process end after what it is doing."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
        process.send_signal(signal.SIGTERM)
        process.wait()
        _wait_for_rest(process)

    def _closed(self, process: subprocess.Popen[str]) -> None:
        """Give back the pipes of a process that has ended."""
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()

    def close(self, said: Callable[[], None] = lambda: None) -> None:
        """Stop the schedules and the process, after the commit that is under way."""
        with self.change:  # nothing is started from here on
            self.stop.set()
            self.change.notify_all()
        if (
            self._process is not None
            and self._process.poll() is None
            and any(map(self.running, self.fleet.members))
        ):
            said()
        if (comparing := self.compared.process) is not None:  # it only reads
            comparing.terminate()
        self._end()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(5)
        if self._process is not None:
            self._closed(self._process)

    def kill(self) -> None:
        """End the process at once; the next run takes up what it leaves."""
        for process in (self._process, self.compared.process):
            if process is not None and process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # with the JVM


def _wait_for_rest(process: subprocess.Popen[str]) -> None:
    """Wait until the processes that an ended one has started are gone, too: Java ends after the process that started it.

    They are in its process group, which is its own; those that do not end are killed.
    """
    end = time.monotonic() + REST
    with suppress(ProcessLookupError):
        while (left := end - time.monotonic()) > -1:
            with suppress(ChildProcessError):  # the first process of a container inherits them
                os.waitpid(-process.pid, os.WNOHANG)
            os.killpg(process.pid, 0 if left > 0 else signal.SIGKILL)
            time.sleep(0.05)
