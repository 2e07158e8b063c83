"""What happened to one mirror in a batch."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

from ingest.errors import HeldError, command
from ingest.ledgers.decisions import Decision
from ingest.ledgers.mirrors import Mirror
from ingest.store import faults
from ingest.tables.tables import Tables


@dataclass(slots=True)
class Folded:
    """What happened to one mirror."""

    mirror: str
    path: str
    state: str  # done | failed | held | skipped | paused
    version: int = -1
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    message: str = ""
    command: str = ""  # the command that resolves what the message says; empty if it says what to do itself
    size: int = 0  # bytes of its table
    began: dt.datetime | None = None  # None if nothing was begun
    waits: bool = False  # held for a decision: no message can change that
    why_merge: str | None = (
        None  # why Delta's MERGE applied it; empty if files did, None if nothing was folded
    )
    why_folded: str = ""  # why new statements had its whole history folded, as part of a sentence
    lacking: str = ""  # why rows of a renamed table are not carried over to it
    rebuilt: bool = False  # folded again from its first change
    until: int = 0  # the last batch that it was folded up to, if that is not the run's
    verdicts: tuple[Decision, ...] = ()  # what its statements have done, for a rebuild to record

    def stop(self, lake: Tables, error: Exception) -> None:
        """Note why the mirror is not folded: what holds it, or its failure."""
        if isinstance(error, HeldError):
            self.state, self.message, self.command = "held", str(error), error.command
            return
        self.state, self.message = "failed", faults.of_mirror(error, lake, self.mirror, self.path)
        if faults.damaged(error):
            self.command = command("rebuild", lake.pipeline.file, self.mirror)


@dataclass(frozen=True, slots=True)
class MirrorCommit:
    """A mirror's commit, or why there is none."""

    held: str = ""
    command: str = ""  # that resolves what holds it; empty if the text says what to do
    failed: str = ""  # the next run tries again
    overtaken: bool = False  # another writer has committed meanwhile: it has to be planned again
    version: int = -1
    size: int = 0
    seconds: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)
    why_merge: str = ""  # why a MERGE has applied it; empty if files did
    wider: Mirror | None = (
        None  # with the columns that its values need: nothing is committed until they are decided
    )
