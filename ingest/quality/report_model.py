"""The report's data as plain values: gathered by `ingest.quality.report_data`, rendered by `ingest.quality.report`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field

from ingest.change import NO_TABLE, LaneId, TableId
from ingest.quality.catalogue import ERROR, FAIL, PASS, WARN
from ingest.spark.jobs import Ran
from ingest.tables.schemas import CPU

TREND = 30  # runs that a sparkline shows


@dataclass(slots=True)
class CheckFact:
    """One check of one mirror or source: its newest verdict and its numbers over the last runs."""

    check: str
    state: str
    observed: float
    severity: str = "error"
    limit: float | None = None
    column: str | None = None
    detail: str = ""
    failing: tuple[str, ...] = ()
    trend: tuple[float, ...] = ()
    bad_since: dt.datetime | None = None  # the first of the consecutive verdicts that did not pass
    statement: str = ""  # the id of the statement whose decision settles it
    command: str = ""  # that repairs it; empty if there is none for just this
    asked: Callable[[], str] = str  # its query: most checks of most mirrors are on no page

    @property
    def sql(self) -> str:
        """The query that reproduces it; empty if there is none."""
        return self.asked()


@dataclass(slots=True)
class ColumnFact:
    """One column: its source's name, its name and type in the mirror, the reason for the type, and its losses."""

    name: str
    column: str
    type: str
    delta: str
    origin: str
    key: bool = False
    misfits: int = 0


STATEMENT = 2000  # characters of a statement that are kept


@dataclass(slots=True)
class DdlFact:
    """One schema change of a table, and whether it waits for the operator."""

    batch: int
    statement: str
    kind: str
    reason: str = ""
    at: dt.datetime | None = None
    pending: bool = False

    @property
    def is_idle(self) -> bool:
        """True if it changes no column and needs no decision."""
        return self.kind == "none" and not self.pending


@dataclass(slots=True)
class BatchFact:
    """What one batch did to one mirror."""

    batch: int
    state: str
    at: dt.datetime
    counts: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    version: int | None = None
    message: str = ""

    @property
    def cpu(self) -> float | None:
        """CPU seconds of the fold; None if not known: Spark did it, or an older version."""
        milliseconds = self.counts.get(CPU)
        return None if milliseconds is None else milliseconds / 1000

    @property
    def applied(self) -> int:
        """Rows that the merge changed."""
        return sum(self.counts.get(name, 0) for name in ("inserted", "updated", "deleted"))


@dataclass(slots=True)
class TableFact:
    """Everything about one mirror; ``batches`` and ``ddl`` hold the newest first."""

    name: str
    path: str = ""
    id: TableId = NO_TABLE
    lanes: list[LaneId] = field(default_factory=list)  # source, source table
    keys: tuple[str, ...] = ()
    columns: list[ColumnFact] = field(default_factory=list)
    checks: list[CheckFact] = field(default_factory=list)
    checked_at: dt.datetime | None = None
    ddl: list[DdlFact] = field(default_factory=list)
    batches: list[BatchFact] = field(default_factory=list)
    newest: dt.datetime | None = None  # source commit
    losses: tuple[str, ...] = ()  # documented for the source's dialect
    explain: str = ""  # the query that shows one row's history
    stale: bool = False  # the mirror was written after it was checked

    def check(self, name: str) -> CheckFact | None:
        return next((check for check in self.checks if check.check == name), None)

    @property
    def is_to_be_fresh(self) -> bool:
        """True if the age of its newest change has a limit."""
        check = self.check("freshness")
        return check is not None and check.limit is not None

    def may_grow_old(self) -> None:
        """Judge the age of the newest change no more: the table sends nothing any more."""
        check = self.check("freshness")
        if check is not None and check.state != ERROR:
            check.limit, check.state = None, PASS

    def judge_age(self, now: dt.datetime) -> None:
        """Judge the age of the newest change again: a stopped stream triggers no run that would."""
        check = self.check("freshness")
        if check is None or check.limit is None or self.newest is None or check.state == ERROR:
            return
        check.observed = (now - self.newest).total_seconds()
        bad = FAIL if check.severity == "error" else WARN
        check.state = bad if check.observed > check.limit else PASS
        if check.state == bad:
            check.bad_since = self.newest + dt.timedelta(seconds=check.limit)


@dataclass(slots=True)
class SourceFact:
    """One source with the checks of what was read from it."""

    name: str
    format: str
    checks: list[CheckFact] = field(default_factory=list)
    checked_at: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class AlarmFact:
    """What went wrong in a run, and the mirror or source that it is about; empty for the whole run."""

    text: str
    subject: str = ""


@dataclass(slots=True)
class RunFact:
    """One run: its numbers, the seconds of its stages, where these were done, and its alarms."""

    run: str
    at: dt.datetime
    batch: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    ran: dict[str, Ran] = field(default_factory=dict)  # where stages were done
    alarms: list[AlarmFact] = field(default_factory=list)


@dataclass(slots=True)
class BookFact:
    """Where the messages of one source went in one batch."""

    batch: int
    source: str
    messages: int
    changes: int  # messages that were row changes
    ddl: int
    control: int
    routed_out: int
    rejected: int

    @property
    def missing(self) -> int:
        """Messages that are in no column."""
        return self.messages - self.changes - self.ddl - self.control - self.routed_out - self.rejected


@dataclass(slots=True)
class RejectFact:
    """One reason for rejected messages or cells."""

    kind: str
    reason: str
    source: str
    table: str
    count: int
    example: str = ""
    place: str = ""


@dataclass(slots=True)
class Facts:
    """One pipeline at one moment. ``runs`` and ``books`` hold the newest first."""

    pipeline: str
    file: str
    lake: str
    now: dt.datetime
    tables: list[TableFact] = field(default_factory=list)
    sources: list[SourceFact] = field(default_factory=list)
    runs: list[RunFact] = field(default_factory=list)
    books: list[BookFact] = field(default_factory=list)
    rejects: list[RejectFact] = field(default_factory=list)
    batch: int | None = None  # the last one that a run has recorded: everything is as of its end

    def look(self) -> None:
        """Say of ages how they are now."""
        self.now = dt.datetime.now(dt.UTC)
        for table in self.tables:
            table.judge_age(self.now)
