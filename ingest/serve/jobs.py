"""The jobs of the service: what its users and its schedules ask for, from then to its end."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingest.errors import IngestError, command
from ingest.serve.fleet import Fleet

KEPT = 200  # jobs
COMPARE = "reconcile"
NOT_JUDGED = 3  # the exit code of a comparison with rows that may be on their way

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
        end = self.words.index("--") if "--" in self.words else len(self.words)
        rest = self.words[end + 1 :]
        needed = any(word.startswith("-") for word in rest)
        return command(*self.words[:end], *(("--",) if needed else ()), *rest)

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


class JobList:
    """The newest jobs of a service over a fleet; ``stop`` is set once it ends."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.stop = threading.Event()
        self.change = threading.Condition()
        self._jobs: OrderedDict[str, ServiceJob] = OrderedDict()

    def add(self, job: ServiceJob, line: deque[ServiceJob] | None = None) -> ServiceJob:
        """List a job, and put it into a line of those that wait; called with ``change`` held."""
        self._jobs[job.id] = job
        over = [job.id for job in self._jobs.values() if job.is_over]
        for name in over[: max(0, len(self._jobs) - KEPT)]:
            del self._jobs[name]
        if line is not None:
            line.append(job)
        self.change.notify_all()
        return job

    def over(self, job: ServiceJob, code: int, text: str) -> None:
        """Note a job's end."""
        with self.change:
            job.code, job.text, job.ended, job.step = code, text, time.time(), ""
            job.state = "failed" if code and not (job.is_comparison and code == NOT_JUDGED) else "done"
        self.fleet.forget(job.pipeline)

    def job(self, name: str) -> ServiceJob | None:
        """The job of that name, if it is still known."""
        return self._jobs.get(name)

    def of(self, pipeline: str) -> list[ServiceJob]:
        """A pipeline's jobs, the newest first."""
        with self.change:
            return [job for job in reversed(self._jobs.values()) if job.pipeline == pipeline]

    def running(self, pipeline: str) -> ServiceJob | None:
        """What is done for a pipeline right now, apart from comparisons."""
        return next((job for job in self.of(pipeline) if job.state == "runs" and not job.is_comparison), None)
