"""What the service does apart from answering: runs on schedules, and the actions of its users, in one process of their own.

That process has the Spark session. It is started when something is to be done, ended when nothing was for a while, and
never takes the service with it. Comparisons with the sources need no Spark: each is a process of its own.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingest.config import Source
from ingest.errors import IngestError, command
from ingest.inspect.due import next_due
from ingest.inspect.idle import idle
from ingest.result import STAGES
from ingest.serve.fleet import Fleet

WORKER = (sys.executable, "-m", "ingest.cli.worker")
VERBS = (sys.executable, "-m", "ingest")
IDLE = 600.0  # seconds without a job after which the process is ended
KEPT = 200  # jobs
LOOK = 0.5  # seconds between two looks at what is due
COMPARE = "reconcile"
AGAIN = 10  # comparisons that failed, or could not judge, are repeated so many times in `reconcile_every:`,
SOONEST = 60.0  # but not sooner than after so many seconds
NOT_JUDGED = 3  # the exit code of a comparison with rows that may be on their way
SAID = 200  # lines of a comparison's output
LONG = 200  # characters of a step
REST = 30.0  # seconds that what an ended process has started may take to end

ACTIONS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...], bool]] = {
    "approve": (("ddl", "approve"), ("statement",), True),
    "dismiss": (("ddl", "dismiss"), ("statement",), True),
    "dismiss-reject": (("rejects", "dismiss"), ("number",), True),
    "replay": (("replay",), (), True),
    "retry": (("retry",), (), False),
    "pause": (("pause",), ("table",), True),
    "resume": (("resume",), ("table",), True),
    "run": (("run",), (), False),
}
"""What may be asked for: the verb, the fields that are its arguments after the file, and whether it takes a reason."""


@dataclass(slots=True)
class ServiceJob:
    """One run or verb, from when it was asked for to its end."""

    pipeline: str
    words: tuple[str, ...]  # as they would be typed
    user: str = ""  # empty: the schedule
    state: str = "waits"  # waits, runs, done, failed
    step: str = ""
    text: str = ""
    code: int | None = None
    asked: float = field(default_factory=time.time)
    ended: float | None = None
    id: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def typed(self) -> str:
        """The command that does the same."""
        at = self.words.index("--") if "--" in self.words else len(self.words)
        rest = self.words[at + 1 :]
        needed = any(word.startswith("-") for word in rest)
        return command(*self.words[:at], *(("--",) if needed else ()), *rest)

    @property
    def is_over(self) -> bool:
        """True if nothing more comes of it."""
        return self.state in ("done", "failed")

    @property
    def is_comparison(self) -> bool:
        """True if it runs at the same time as other jobs."""
        return self.words[0] == COMPARE

    def described(self) -> dict[str, Any]:
        """The job as scripts read it."""
        return {
            "job": self.id, "pipeline": self.pipeline, "command": self.typed, "user": self.user, "state": self.state,
            "step": self.step, "code": self.code, "text": self.text,
        }  # fmt: skip


def words_of(do: str, file: Path, given: Mapping[str, str]) -> tuple[str, ...]:
    """The command line of an action; an `IngestError` if there is no such action, or a field is missing."""
    if do not in ACTIONS:
        raise IngestError(f"There is no action {do!r}; there are {', '.join(ACTIONS)}.")
    verb, fields, reasoned = ACTIONS[do]
    missing = [name for name in fields if not given.get(name)]
    if missing:
        raise IngestError(f"{do} needs {', '.join(missing)}.")
    reason = (f"--reason={given['reason']}",) if reasoned and given.get("reason") else ()
    return (*verb, *reason, "--", str(file), *(given[name] for name in fields))  # no value is an option


@dataclass(frozen=True, slots=True)
class Comparison:
    """A source whose mirrors are compared with its database, and how long until the next time."""

    source: str
    seconds: float | None  # None if it has no table yet
    job: ServiceJob | None  # of the comparison that runs now


class JobRunner:
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
        self._fleet, self._schedules, self._command, self._idle_after = fleet, schedules, worker, idle_after
        self._verbs = verbs
        self._jobs: OrderedDict[str, ServiceJob] = OrderedDict()
        self._keys: OrderedDict[str, ServiceJob] = OrderedDict()
        self._asked: deque[ServiceJob] = deque()
        self._runs: deque[ServiceJob] = deque()
        self._change = threading.Condition()
        self._process: subprocess.Popen[str] | None = None
        self._stop = threading.Event()
        self._due: dict[str, float] = {}
        self._comparing: subprocess.Popen[str] | None = None
        self._compared: dict[tuple[str, str], float] = {}  # when the last comparison of a source was begun
        self._threads = [threading.Thread(target=self._work, daemon=True)]
        if schedules:
            self._threads.append(threading.Thread(target=self._schedule, daemon=True))
            self._threads.append(threading.Thread(target=self._compare_all, daemon=True))

    # --- what is asked for ---

    def ask(self, do: str, pipeline: str, given: Mapping[str, str], user: str, key: str = "") -> ServiceJob:
        """An action as a job; the same one if it was asked for with this key already.

        Raises:
            IngestError: it cannot be asked for so.
        """
        words = words_of(do, self._fleet.member(pipeline).file, given)
        with self._change:
            if key and key in self._keys:
                return self._keys[key]
            job = self._add(ServiceJob(pipeline, words, user), self._asked)
            if key:
                self._keys[key] = job
                while len(self._keys) > KEPT:
                    self._keys.popitem(last=False)
        return job

    def _add(self, job: ServiceJob, line: deque[ServiceJob] | None = None) -> ServiceJob:
        self._jobs[job.id] = job
        over = [one.id for one in self._jobs.values() if one.is_over]
        for name in over[: max(0, len(self._jobs) - KEPT)]:
            del self._jobs[name]
        if line is not None:
            line.append(job)
        self._change.notify_all()
        return job

    def job(self, name: str) -> ServiceJob | None:
        """The job of that name, if it is still known."""
        return self._jobs.get(name)

    def of(self, pipeline: str) -> list[ServiceJob]:
        """A pipeline's jobs, the newest first."""
        with self._change:
            return [one for one in reversed(self._jobs.values()) if one.pipeline == pipeline]

    def running(self, pipeline: str) -> ServiceJob | None:
        """What is done for a pipeline right now, apart from comparisons."""
        return next((one for one in self.of(pipeline) if one.state == "runs" and not one.is_comparison), None)

    def next_run(self, pipeline: str) -> float | None:
        """Seconds until the pipeline's next look for work; None without a schedule."""
        due = self._due.get(pipeline)
        return None if due is None else max(0.0, due - time.monotonic())

    # --- what is due ---

    def _schedule(self) -> None:
        while not self._stop.wait(LOOK):
            for name in self._fleet.members:
                try:
                    self._look(name)
                except Exception as error:  # one pipeline must not stop the schedules of the others
                    self._note(name, f"error: {error}")

    def _look(self, name: str) -> None:
        """Ask for a run if one is due and there is something to do."""
        member = self._fleet.member(name)
        pipeline = member.pipeline
        if pipeline is None or pipeline.every is None:
            self._due.pop(name, None)
            return
        now = time.monotonic()
        if now < min(self._due.get(name, now), now + pipeline.every):
            return
        if any(not one.is_over for one in self.of(name) if one.words[0] == "run"):
            return
        self._due[name] = now + pipeline.every
        try:
            nothing = idle(pipeline, STAGES)
        except Exception:
            nothing = None  # the run meets it, too, and says it as it always does
        if nothing is None:
            with self._change:
                self._add(ServiceJob(name, ("run", str(member.file))), self._runs)

    def _note(self, name: str, text: str) -> None:
        words = ("run", str(self._fleet.members[name].file))
        with self._change:
            self._add(ServiceJob(name, words, state="failed", text=text, code=2, ended=time.time()))
        self._due[name] = time.monotonic() + 60

    # --- comparisons with the sources ---

    def _sources(self, name: str) -> list[Source]:
        """The sources of a pipeline that are compared on a schedule."""
        pipeline = self._fleet.members[name].pipeline
        return [
            one
            for one in (pipeline.sources if pipeline else ())
            if one.enabled and one.database is not None and one.database.reconcile_every
        ]

    def comparisons(self, name: str) -> list[Comparison]:
        """A pipeline's comparisons that are scheduled."""
        if not self._schedules:
            return []
        found = []
        for source in self._sources(name):
            now = [
                one for one in self.of(name) if one.state == "runs" and one.words == self._words(name, source)
            ]
            found.append(Comparison(source.name, self._until_due(name, source), now[0] if now else None))
        return found

    def _words(self, name: str, source: Source) -> tuple[str, ...]:
        return COMPARE, "--due", f"--source={source.name}", "--", str(self._fleet.members[name].file)

    def _until_due(self, name: str, source: Source) -> float | None:
        """Seconds until a table of a source is to be compared; None if there is none yet."""
        try:
            lake = self._fleet.lake(name)
            due = self._fleet.kept(name, f"due {source.name}", lake, lambda lake: next_due(lake, source))
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

    def _compare_all(self) -> None:
        """Compare what is due, one source after the other."""
        while not self._stop.wait(LOOK):
            for name in self._fleet.members:
                with suppress(IngestError):
                    self._fleet.member(name)
                for source in self._sources(name):
                    if self._until_due(name, source) == 0.0 and not self._stop.is_set():
                        self._compared[name, source.name] = time.monotonic()
                        self._compare(ServiceJob(name, self._words(name, source), state="runs"))

    def _compare(self, job: ServiceJob) -> None:
        """One comparison, as a timer would start it."""
        said: deque[str] = deque(maxlen=SAID)
        try:
            with self._change:
                self._add(job)
                if self._stop.is_set():
                    self._over(job, 1, "error: it was stopped with the service")
                    return
                process = self._comparing = subprocess.Popen(
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
            self._over(job, 2, f"error: the comparison could not be started: {error}")
            return
        if code < 0:
            said.append(
                "error: it was stopped with the service"
                if self._stop.is_set()
                else f"error: it was ended by signal {-code}"
            )
        self._over(job, code, "".join(said))
        pipeline = self._fleet.members[job.pipeline].pipeline
        if code in (1, 2) and pipeline is not None and pipeline.alerts and not self._stop.is_set():
            # alerts are sent after runs; where one table could not be compared, others may differ
            with self._change:
                self._add(ServiceJob(job.pipeline, ("run", str(pipeline.file))), self._runs)

    # --- what is done ---

    def start(self) -> None:
        """Begin to work."""
        for one in self._threads:
            one.start()

    def _work(self) -> None:
        """One job after the other, those of users first."""
        while not self._stop.is_set():
            with self._change:
                self._change.wait_for(
                    lambda: self._asked or self._runs or self._stop.is_set(), self._idle_after
                )
                line = self._asked or self._runs
                job = line.popleft() if line else None
                if job is not None:
                    job.state = "runs"
            if job is not None:
                try:
                    self._do(job)
                except Exception as error:
                    self._over(job, 2, f"error: the process that runs pipelines could not be used: {error}")
            elif self._process is not None and not self._stop.is_set():
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
            self._over(job, 1, "error: it was stopped with the service")
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
                self._over(job, answer["done"]["code"], answer["done"]["text"])
                return
        code = process.wait()
        text = (
            "it was stopped with the service"
            if self._stop.is_set()
            else f"its process ended with code {code}: run again"
        )
        self._over(job, 1, f"error: {text}")

    def _started(self) -> subprocess.Popen[str] | None:
        """A process that does jobs; None at the end of the service, which would not wait for it."""
        files = [str(one.file) for one in self._fleet.members.values()]
        with self._change:
            if self._stop.is_set():
                return None
            self._process = subprocess.Popen(  # a session of its own: Ctrl-C is for the service
                [*self._command, *files],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            return self._process

    def _over(self, job: ServiceJob, code: int, text: str) -> None:
        with self._change:
            job.code, job.text, job.ended, job.step = code, text, time.time(), ""
            job.state = "failed" if code and not (job.is_comparison and code == NOT_JUDGED) else "done"
        self._fleet.forget(job.pipeline)

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
        with self._change:  # nothing is started from here on
            self._stop.set()
            self._change.notify_all()
        if (
            self._process is not None
            and self._process.poll() is None
            and any(map(self.running, self._fleet.members))
        ):
            said()
        if (comparing := self._comparing) is not None:  # it only reads
            comparing.terminate()
        self._end()
        for one in self._threads:
            if one.is_alive():
                one.join(5)
        if self._process is not None:
            self._closed(self._process)

    def kill(self) -> None:
        """End the process at once; the next run takes up what it leaves."""
        for process in (self._process, self._comparing):
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
