"""The result of one run, for the command line, the jobs and the table `runs`."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ingest.gold.plan.results import Folded
    from ingest.spark.jobs import Ran


STAGES = ("bronze", "silver", "gold", "quality")
"""The stages of a run, in order."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What makes a run fail.

    Attributes:
        text: what went wrong, in a sentence.
        subject: the mirror or source that it is about; empty for the whole run.
        is_check: a check has found it, and it is a problem for as long as the check does.
        of_batch: it is about the messages of the run's batch: a later run does not look for it again.
    """

    text: str
    subject: str = ""
    is_check: bool = False
    of_batch: bool = False


@dataclass(slots=True)
class Result:
    """What one run did. What has ``failed`` makes exit code 1, ``warnings`` do not."""

    pipeline: str
    run: str
    file: str = ""
    batch: int | None = None
    read: int = 0
    changes: int = 0
    ddl: int = 0
    control: int = 0
    routed_out: int = 0
    rejected: int = 0
    rejecting: set[str] = field(default_factory=set)  # sources whose messages were rejected
    mirrors: list[Folded] = field(default_factory=list)
    stages: dict[str, float] = field(default_factory=dict)  # seconds
    ran: dict[str, Ran] = field(default_factory=dict)  # where the stages with something to do were done
    began: dict[str, dt.datetime] = field(default_factory=dict)  # by stage
    failed: list[Failure] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    checks: dict[str, int] = field(default_factory=dict)  # state -> count
    incomplete: bool = False  # some mirror was skipped on purpose
    stopped: str = ""  # the stage before whose end the run was asked to stop
    complete_until: dt.datetime | None = None  # of all mirrors, in UTC without a zone; None if unknown
    messages: dict[tuple[str, str | None], int] = field(default_factory=dict)  # by source and topic

    def fail(self, text: str, subject: str = "", *, of_batch: bool = False) -> None:
        """Add a failure, of a mirror or source if it is about one."""
        self.failed.append(Failure(text, subject, of_batch=of_batch))

    @property
    def failures(self) -> list[str]:
        """What has failed, in sentences."""
        return [failure.text for failure in self.failed]

    @property
    def seconds(self) -> float:
        """The time of all stages."""
        return sum(self.stages.values())

    @property
    def unfit(self) -> int:
        """Cells and changes that did not fit their mirrors."""
        if not self.mirrors:
            return 0
        from ingest.gold.fold.unfit import COUNTED

        return sum(mirror.counts.get(COUNTED, 0) for mirror in self.mirrors)

    @property
    def touched(self) -> int:
        """Mirrors that were merged."""
        return sum(mirror.state == "done" for mirror in self.mirrors)

    @property
    def exit_code(self) -> int:
        """0, or 1 if something failed, is held or does not balance."""
        return 1 if self.failed else 0
