"""What the service does apart from answering: runs on schedules, and the actions of its users, in one process of their own.

That process has the Spark session. It is started when something is to be done, ended when nothing was for a while, and
never takes the service with it.
"""

from __future__ import annotations

import json
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

from ingest.errors import IngestError, command
from ingest.inspect.idle import idle
from ingest.result import STAGES
from ingest.serve.fleet import Fleet

WORKER = (sys.executable, "-m", "ingest.cli.worker")
IDLE = 600.0  # seconds without a job after which the process is ended
KEPT = 200  # jobs
LOOK = 0.5  # seconds between two looks at what is due

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

    id: str
    pipeline: str
    words: tuple[str, ...]  # as they would be typed
    user: str = ""  # empty: the schedule
    state: str = "waits"  # waits, runs, done, failed
    step: str = ""
    text: str = ""
    code: int | None = None
    asked: float = field(default_factory=time.time)
    ended: float | None = None

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

    def described(self) -> dict[str, Any]:
        """The job as scripts read it."""
        return {
            "job": self.id, "pipeline": self.pipeline, "command": self.typed, "user": self.user, "state": self.state,
            "step": self.step, "code": self.code, "text": self.text,
        }  # fmt: skip


def words_of(do: str, file: Path, given: Mapping[str, str]) -> tuple[str, ...]:
    """The command line of an action.

    Raises:
        IngestError: there is no such action, or a field is missing.
    """
    if do not in ACTIONS:
        raise IngestError(f"There is no action {do!r}; there are {', '.join(ACTIONS)}.")
    verb, fields, reasoned = ACTIONS[do]
    missing = [name for name in fields if not given.get(name)]
    if missing:
        raise IngestError(f"{do} needs {', '.join(missing)}.")
    reason = (f"--reason={given['reason']}",) if reasoned and given.get("reason") else ()
    return (
        *verb,
        *reason,
        "--",
        str(file),
        *(given[name] for name in fields),
    )  # no value is taken for an option


class JobRunner:
    """Jobs, the process that does them, and the schedules."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        schedules: bool = True,
        worker: Sequence[str] = WORKER,
        idle_after: float = IDLE,
    ) -> None:
        self._fleet, self._schedules, self._command, self._idle_after = fleet, schedules, worker, idle_after
        self._jobs: OrderedDict[str, ServiceJob] = OrderedDict()
        self._keys: OrderedDict[str, ServiceJob] = OrderedDict()
        self._asked: deque[ServiceJob] = deque()
        self._runs: deque[ServiceJob] = deque()
        self._change = threading.Condition()
        self._process: subprocess.Popen[str] | None = None
        self._stop = threading.Event()
        self._due: dict[str, float] = {}
        self._threads = [threading.Thread(target=self._work, daemon=True)]
        if schedules:
            self._threads.append(threading.Thread(target=self._schedule, daemon=True))

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
            job = self._add(ServiceJob(secrets.token_hex(8), pipeline, words, user), self._asked)
            if key:
                self._keys[key] = job
                while len(self._keys) > KEPT:
                    self._keys.popitem(last=False)
        return job

    def _add(self, job: ServiceJob, line: deque[ServiceJob]) -> ServiceJob:
        self._jobs[job.id] = job
        over = [one.id for one in self._jobs.values() if one.is_over]
        for name in over[: max(0, len(self._jobs) - KEPT)]:
            del self._jobs[name]
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
        """What is done for a pipeline right now."""
        return next((one for one in self.of(pipeline) if one.state == "runs"), None)

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
                self._add(ServiceJob(secrets.token_hex(8), name, ("run", str(member.file))), self._runs)

    def _note(self, name: str, text: str) -> None:
        with self._change:
            job = ServiceJob(
                secrets.token_hex(8),
                name,
                ("run", str(self._fleet.members[name].file)),
                state="failed",
                text=text,
                code=2,
            )
            job.ended = time.time()
            self._jobs[job.id] = job
        self._due[name] = time.monotonic() + 60

    # --- what is done ---

    def start(self) -> None:
        """Begin to work."""
        for one in self._threads:
            one.start()

    def _work(self) -> None:
        """One job after the other, those of users first."""
        while not self._stop.is_set():
            with self._change:
                if not self._asked and not self._runs and not self._change.wait(self._idle_after):
                    job = None
                else:
                    line = self._asked or self._runs
                    job = line.popleft() if line else None
                if job is not None:
                    job.state = "runs"
            if job is None:
                if self._process is not None and not self._asked and not self._runs:
                    self._end()
                    self._closed(self._process)
                    self._process = None
                continue
            try:
                self._do(job)
            except Exception as error:
                self._over(job, 2, f"error: the process that runs pipelines could not be used: {error}")

    def _do(self, job: ServiceJob) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            if process is not None:
                self._closed(process)
            files = [str(one.file) for one in self._fleet.members.values()]
            process = self._process = subprocess.Popen(  # a session of its own: Ctrl-C is for the service
                [*self._command, *files],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
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

    def _over(self, job: ServiceJob, code: int, text: str) -> None:
        with self._change:
            job.code, job.text, job.ended, job.step = code, text, time.time(), ""
            job.state = "failed" if code else "done"
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

    def _closed(self, process: subprocess.Popen[str]) -> None:
        """Give back the pipes of a process that has ended."""
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()

    def close(self, said: Callable[[], None] = lambda: None) -> None:
        """Stop the schedules and the process, after the commit that is under way."""
        self._stop.set()
        with self._change:
            self._change.notify_all()
        if (
            self._process is not None
            and self._process.poll() is None
            and any(map(self.running, self._fleet.members))
        ):
            said()
        self._end()
        for one in self._threads:
            if one.is_alive():
                one.join(5)
        if self._process is not None:
            self._closed(self._process)

    def kill(self) -> None:
        """End the process at once; the next run takes up what it leaves."""
        if self._process is not None:
            self._process.kill()
