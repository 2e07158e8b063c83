"""The problems of a lake: the one list that `status`, `alerts`, the report, the pages and the metrics read.

Some come from the lake's present state, some from the checks of the last run; a problem of both is listed once.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ingest.catalog import registrations
from ingest.change import TableId
from ingest.config import load
from ingest.errors import ConfigError, HeldError, IngestError, agreeing, command, counted, explain_command
from ingest.gold.plan import completed
from ingest.gold.plan.policy import PARTLY
from ingest.inspect.due import overdue
from ingest.inspect.gone_tables import departed
from ingest.inspect.problem_kinds import AGE, ERROR, OK, WARN, state_of, verb_of
from ingest.inspect.problem_kinds import OF_THE_LAKE as KINDS
from ingest.ledgers import (
    barriers,
    decisions,
    decoded_with,
    idle_rules,
    missing_inputs,
    sealing,
    targets,
    whole_files,
)
from ingest.ledgers import mirrors as known_mirrors
from ingest.ledgers.books import MISDATED, PRESENT_SQL, ahead_sql, misdated
from ingest.ledgers.decisions import ACKNOWLEDGE, Decision
from ingest.ledgers.logged_statements import approved_ahead
from ingest.quality.catalogue import (
    CHECKS,
    LAST_RUN,
    PASS,
    as_found,
    duration,
    key_cells,
)
from ingest.quality.report_model import STATEMENT, Facts, TableFact
from ingest.store import lock
from ingest.tables import duck, identity
from ingest.tables.tables import Tables

if TYPE_CHECKING:
    from ingest.gold.approval import Listed
    from ingest.quality import report
    from ingest.tables.lake import Lake

LONGEST = 500  # characters of a subject
_OLD = CHECKS[AGE].fault
_STATEMENTS = f"schema changes: {KINDS['ddl_pending'].title}"
_COVERED = {  # the check that names the tables or sources of something that is also counted for the whole lake
    f"rejects: {KINDS['message_rejects'].title}": "reject_rate",
    f"rejects: {KINDS['cell_rejects'].title}": "cell_rejects",
    f"rejects: {KINDS['change_rejects'].title}": "refused_changes",
    _STATEMENTS: "ddl_pending",
}
FAILING = frozenset(check.name for check in CHECKS.values())
"""The kinds of problems that a built-in check finds."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One open problem: ``subject`` stays the same while it lasts.

    Args:
        subject: the mirror, source or part of the lake, and what is wrong with it, in a few words.
        severity: error or warn.
        text: what was found.
        command: the command to type next, with every argument.
        alone: the text for places where the subject is not shown.
        kind: the check that found it, or the mirror's state, or another word for programs.
        mirror: its mirror; empty if it concerns several, or none.
        since: since when, in UTC; None if that is not known.
        acknowledged: the reason for which the operator wants to hear no more of it, until it changes.
    """

    subject: str
    severity: str
    text: str
    command: str = ""
    alone: str = ""
    kind: str = ""
    mirror: str = ""
    since: str | None = None
    acknowledged: str = ""

    @property
    def id(self) -> str:
        """A short name, the same while it lasts."""
        return _short(self.subject)

    @property
    def sentence(self) -> str:
        """The text without the subject."""
        return self.alone or f"{self.subject}: {self.text}"

    @property
    def state(self) -> str:
        """The state that it gives its mirror; ok if the mirror is right in spite of it."""
        return state_of(self.kind)

    @property
    def content(self) -> str:
        """What it says now: an acknowledgement ends if that changes.

        An age changes all the time, and with each batch a command that counts batches.
        """
        said = "" if self.kind == AGE else _TYPED.sub("", as_found(self.text))
        return _short(f"{self.severity} {said}")

    def described(self) -> dict[str, Any]:
        """The problem as `status` lists it."""
        return {
            "id": self.id, "cause": self.subject, "kind": self.kind, "mirror": self.mirror or None,
            "severity": self.severity, "since": self.since, "text": self.text, "sentence": self.sentence,
            "command": self.command, "acknowledged": self.acknowledged or None,
        }  # fmt: skip


def of_described(described: Mapping[str, Any]) -> Problem:
    """A problem that `Problem.described` has described."""
    return Problem(
        described["cause"], described["severity"], described["text"], described["command"], described["sentence"], described["kind"],
        described["mirror"] or "", described["since"], described["acknowledged"] or "",
    )  # fmt: skip


_TYPED = re.compile("`[^`]*`")  # commands, what to write, and what changes with each batch


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def with_acknowledged(lake: Tables, open_problems: Iterable[Problem]) -> list[Problem]:
    """Problems with the reason for which the operator wants to hear no more of them, if they are as they were then."""
    said = decisions.read(lake).newest(ACKNOWLEDGE)
    return [
        replace(problem, acknowledged=acknowledgement.reason)
        if (acknowledgement := said.get(problem.id)) and acknowledgement.value["content"] == problem.content
        else problem
        for problem in open_problems
    ]


def acknowledge(lake: Lake, open_problems: Iterable[Problem], wanted: str, reason: str) -> Problem:
    """Keep that the operator knows of a problem, given by its id, and wants to hear of it only when it changes.

    Raises:
        IngestError: there is no such problem.
    """
    by_id = {problem.id: problem for problem in open_problems}
    if wanted not in by_id:
        listed = command("alerts", lake.pipeline.file)
        raise IngestError(f"there is no open problem {wanted}: `{listed}` lists them with their ids.")
    problem = by_id[wanted]
    value = {"content": problem.content, "cause": problem.subject}
    decisions.append(lake, [Decision(ACKNOWLEDGE, wanted, value, reason=reason, by=decisions.user())])
    return replace(problem, acknowledged=reason)


def found_by_checks(lake: Tables, gone: Container[str], logged: Collection[Listed] = ()) -> Facts:
    """What the checks know of a lake as far as it may be a problem.

    Args:
        lake: the lake.
        gone: the mirrors whose source tables are.
        logged: the statements of the ledger.
    """
    from ingest.quality.report_data import gather_problems

    facts = gather_problems(lake)
    _let_grow_old(lake, facts, gone)
    _settle(lake, facts, logged)
    return facts


def _settle(lake: Tables, facts: Facts, logged: Collection[Listed]) -> None:
    """Take what a statement has left as accepted once it is decided: a run without changes checks nothing again."""
    decided = {entry.statement.id for entry in logged if entry.statement.decided}
    ahead = approved_ahead(lake)
    for table in facts.tables:
        table.checks = [
            replace(check, state=PASS, observed=0.0, detail="")
            if check.statement in decided and (table.path, check.statement) not in ahead
            else check
            for check in table.checks
        ]


def _let_grow_old(lake: Tables, facts: Facts, gone: Container[str]) -> None:
    """Judge no ages of tables that send nothing any more: those that the pipeline file leaves out, and those that are gone."""
    ageing = [table for table in facts.tables if table.is_to_be_fresh]
    left = known_mirrors.unfed(lake) if ageing else {}
    for table in ageing:
        if table.path in left or table.name in gone:
            table.may_grow_old()


def gathered(lake: Tables, **given: Any) -> Facts:
    """What the report knows of a lake (`ingest.quality.report_data`), with the statements that wait as `ingest ddl` has them."""
    from ingest.gold import approval
    from ingest.quality.report_data import gather

    facts = gather(lake, **given)
    logged = approval.listed(lake)
    _let_grow_old(lake, facts, departed(lake, logged))
    _settle(lake, facts, logged)
    waiting = {
        (entry.mirror, entry.statement.batch, entry.statement.text[:STATEMENT])
        for entry in logged
        if entry.pending
    }
    for table in facts.tables:
        for statement in table.ddl:
            statement.pending = (
                statement.pending or (table.name, statement.batch, statement.statement) in waiting
            )
    return facts


def merged(
    state: Iterable[Problem], facts: Facts, logged: Collection[Listed] = (), *, failed: bool = False
) -> list[Problem]:
    """The findings about the lake and of the last checks, each problem once, errors first.

    Args:
        state: the problems that need no check.
        facts: what the checks have found.
        logged: the statements of the ledger.
        failed: the last run ended with a failure or an alarm.
    """
    from ingest.quality import report

    state = list(state)
    in_state = {problem.subject for problem in state}
    # what the last run's checks counted may have been dismissed, replayed or decided since
    settled = {check for subject, check in _COVERED.items() if subject not in in_state}
    complaints = [complaint for complaint in report.page(facts).problems if complaint.check not in settled]
    with_rows = {complaint.statement for complaint in complaints if complaint.statement}
    state = _without(state, with_rows | over(facts, logged), logged, facts.file)
    covered = {complaint.check for complaint in complaints}
    by_subject = {
        problem.subject: problem for problem in state if _COVERED.get(problem.subject) not in covered
    }
    said = _Said.by(state, facts.file)
    alarms, is_listed = 0, False  # an alarm of the last run, as a problem of the state
    for complaint in complaints:
        # an age is as of now (see below), and a mirror of the state says itself what the run's alarm does
        is_said = said.has(complaint)
        is_listed |= is_said
        if complaint.title == _OLD or is_said:
            continue
        alarms += complaint.subject == LAST_RUN
        problem = _of_complaint(complaint, facts, f"alarm {alarms}")
        by_subject.setdefault(problem.subject, problem)
    by_subject |= {problem.subject: problem for table in facts.tables for problem in _old(table, facts.file)}
    if failed and not is_listed and not any(problem.severity == ERROR for problem in by_subject.values()):
        text, typed = KINDS["last_run"].title, command("run", facts.file)
        by_subject[LAST_RUN] = Problem(LAST_RUN, ERROR, text, typed, kind="last_run")
    return sorted(by_subject.values(), key=lambda problem: problem.severity)


class _Said(NamedTuple):
    """What the problems of the state say already: of which mirrors, in which words, and which mirrors a rebuild repairs."""

    mirrors: frozenset[str]
    texts: frozenset[str]
    rebuilt: frozenset[str]

    @classmethod
    def by(cls, state: Collection[Problem], file: str) -> _Said:
        """What these problems say; ``file`` is the pipeline file, as their commands name it."""
        rebuilt = (each.mirror for each in state if each.command == command("rebuild", file, each.mirror))
        texts = frozenset(problem.text for problem in state)
        return cls(frozenset(problem.mirror for problem in state) - {""}, texts - {""}, frozenset(rebuilt))

    def has(self, complaint: report.Complaint) -> bool:
        """True if a complaint, perhaps an alarm of the last run, is one of them."""
        is_damage = complaint.check == "readable" and complaint.subject in self.rebuilt
        return complaint.about in self.mirrors or complaint.text in self.texts or is_damage


def over(facts: Facts, logged: Iterable[Listed]) -> set[str]:
    """The statements that have left nothing open any more: all rows have come again, or are gone, as the last checks have found."""
    sound = {
        table.name
        for table in facts.tables
        if table.checked_at
        and not table.stale
        and not any(check.check in _OF_STATEMENTS and check.state != PASS for check in table.checks)
    }
    pending = [entry for entry in logged if entry.pending]
    left = {
        entry.statement.id
        for entry in pending
        if entry.verdict.state != PARTLY or entry.mirror not in sound or not entry.folded
    }
    return {entry.statement.id for entry in pending} - left


_OF_STATEMENTS = ("unknown_values", "ddl_pending")
"""The checks that say what undecided statements have left open."""


def _without(
    state: Iterable[Problem], explained: Collection[str], logged: Iterable[Listed], file: str
) -> list[Problem]:
    """Problems without statements that are explained: their rows are a problem already, with one way out, or none."""
    pending = {entry.statement.id for entry in logged if entry.pending}
    left = pending - {*explained}
    if left == pending:
        return list(state)
    problems = []
    for problem in state:
        if problem.subject != _STATEMENTS:
            problems.append(problem)
        elif left:
            problems.append(replace(_waiting(len(left), file), since=problem.since))
    return problems


def _waiting(statements: int, file: object) -> Problem:
    """Statements that wait for a decision, in a problem."""
    waits = f"{counted(statements, 'statement waits', 'statements wait')} for a decision"
    typed = command("ddl", file)
    return _of_kind("ddl_pending", f"{waits}: {typed}", typed)


def _of_complaint(complaint: report.Complaint, facts: Facts, alarm: str) -> Problem:
    """A complaint of the report as a problem; an alarm of the last run is called ``alarm``."""
    of_run = complaint.subject == LAST_RUN
    subject = f"{complaint.subject}: {alarm if of_run else complaint.title}"[:LONGEST]
    # its own text says what is wrong
    is_whole = complaint.text and (of_run or complaint.check in CHECKS)
    mirror = complaint.subject if any(table.name == complaint.subject for table in facts.tables) else ""
    return Problem(
        subject,
        ERROR if complaint.light == "bad" else WARN,
        complaint.text,
        _typed(complaint, mirror, facts),
        alone=f"{complaint.subject}: {complaint.text}" if is_whole else "",
        kind=complaint.check or ("last_run" if of_run else ""),
        mirror=mirror,
        since=_moment(complaint.since),
    )


def _moment(at: dt.datetime | None) -> str | None:
    """A moment in UTC as text; tables have it without a zone."""
    if at is None:
        return None
    aware = at if at.tzinfo else at.replace(tzinfo=dt.UTC)
    return aware.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _typed(complaint: report.Complaint, mirror: str, facts: Facts) -> str:
    """The command that leads on: what repairs it, the list of what waits, the life of a row that is wrong, or all about the check."""
    if complaint.command:
        return complaint.command
    if complaint.check == "wrong_cells":
        return command("rebuild", facts.file, mirror)
    if verb := "ddl" if complaint.statement else verb_of(complaint.check):
        return command(verb, facts.file)
    if complaint.subject == LAST_RUN:
        return command("run", facts.file)
    checks = next((table.checks for table in facts.tables if table.name == mirror), [])
    failing = next(
        (check.failing for check in checks if check.check == complaint.check and check.failing), ()
    )
    cells = list(key_cells(failing[0]).values()) if failing else []
    texts = [cell for cell in cells if cell is not None]
    if cells and texts == cells:  # `explain` takes no NULL
        return explain_command(facts.file, mirror, texts)
    return command("report", facts.file)


def missing_from(made: report.Page, wrong: Iterable[Problem]) -> list[report.Complaint]:
    """The additional problems that a report must list, too."""
    from ingest.quality import report

    listed = {f"{problem.subject}: {problem.title}"[:LONGEST] for problem in made.problems}
    complaints = []
    for problem in wrong:
        if problem.subject not in listed and not problem.subject.startswith(LAST_RUN):
            light = "bad" if problem.severity == ERROR else "warn"
            subject, _, title = problem.subject.rpartition(": ")
            advice, text = (
                f"next: `{problem.command}`" if problem.command else "",
                without(problem.text, problem.command),
            )
            complaints.append(report.Complaint(light, subject, "tables", title, text, advice))
    return complaints


def without(text: str, typed: str) -> str:
    """A problem's text for places that also show its command."""
    return text.removesuffix(f": {typed}") if typed else text


def _old(table: TableFact, file: str) -> Iterable[Problem]:
    check = table.check(AGE)
    if check and check.state != PASS and check.limit is not None:
        sources = ", ".join(sorted({source for source, _ in table.lanes})) or "its source"
        text = (
            f"the newest change is {duration(check.observed)} old, and `freshness:` allows {duration(check.limit)}: "
            f"see whether {sources} still sends"
        )
        yield Problem(
            f"{table.name}: {_OLD}", str(check.severity), text, command("plan", file), alone=f"{table.name}: {text}", kind=AGE,
            mirror=table.name, since=_moment(check.bad_since),
        )  # fmt: skip


def of_state(
    lake: Tables,
    rows: Collection[Mapping[str, Any]],
    rejects: Mapping[str, int],
    statements: int,
    since: Mapping[str, str | None] = MappingProxyType({}),
    gone: Container[str] = (),
) -> Iterable[Problem]:
    """Problems independent of the checks: mirrors that are not ok, and what waits for the operator.

    Args:
        lake: the lake.
        rows: the mirrors, with ``table``, ``state``, ``message``, ``since``, ``newest commit`` and ``ahead``.
        rejects: how many are open, by kind.
        statements: how many wait for a decision.
        since: since when the rejects of a kind, and statements (``ddl``), wait.
        gone: the mirrors whose source tables are.
    """
    file = lake.pipeline.file
    try:
        identity.check(lake, identity.Seen())
    except HeldError as error:
        yield _of_kind("rows_removed", str(error), error.command, since=error.since)
    except IngestError as error:
        yield _of_kind("lake", str(error), error.command, since=_last_look(lake))
    yield from _cut_off(lake)
    yield from _of_mirrors(lake, rows)
    for torn in whole_files.torn(lake):
        typed = command("rebuild", file, torn.mirror.name)
        yield _of_kind("damaged", torn.said, typed, torn.mirror.name, torn.since)
    for kind, count in rejects.items():
        problem = _of_kind(f"{kind}_rejects", _rejected(kind, count), command("rejects", file))
        yield replace(problem, since=since.get(kind))
    for mirror in known_mirrors.outdated(lake):
        text, typed = known_mirrors.outdated_text(lake, mirror), command("rebuild", file, mirror.name)
        yield _of_kind("outdated", text, typed, mirror.name, known_mirrors.outdated_since(lake, mirror))
    if statements:
        yield replace(_waiting(statements, file), since=since.get("ddl"))
    if (attempt := registrations.last_attempt(lake)) and (text := attempt.value["fault"]):
        yield _of_kind("catalog", text, command("catalog", "sync", file), since=attempt.decided_at)
    if days := sealing.lost(lake):
        typed = command("maintain", file, "--drop-key", days[0])
        yield _of_kind("key_lost", sealing.lost_text(lake, days), typed, since=sealing.lost_since(lake))
    for begun in barriers.unfinished(lake):
        table, typed = begun.value["table"], command("erase", file, "--resume")
        text = (
            f"an erasure of rows of {table} was interrupted, and some of their data is still there: "
            f"`{typed}` completes it"
        )
        yield _of_kind("erasure", text, typed, table, begun.decided_at)
    yield from _of_decoding(lake)
    for text in idle_rules.listed(lake):
        yield _of_kind("idle_rules", text, command("plan", file), since=decoded_with.edited_at(lake.pipeline))
    for lacks in missing_inputs.listed(lake):
        problem = _of_kind("missing_inputs", lacks.text, command("plan", file), since=lacks.since)
        yield _of_source(lacks.source, problem)
    for late in overdue(lake, gone):
        typed = command("reconcile", file, "--due", f"--source={late.source}")
        problem = _of_kind("not_compared", f"{late.sentence}: `{typed}`", typed, since=late.since)
        yield _of_source(late.source, problem)


def _of_mirrors(lake: Tables, rows: Iterable[Mapping[str, Any]]) -> Iterator[Problem]:
    """Mirrors that are not ok, or whose newest change has an impossible time."""
    too_early = cache(partial(_dated, lake, f"event_high < TIMESTAMP '{MISDATED}-01-01'"))
    in_future = cache(partial(_dated, lake, ahead_sql(dt.datetime.now(dt.UTC))))
    for row in rows:
        name, state = row["table"], row["state"]
        if state != OK:
            problem = _of_kind(state, row["message"], resolving_command(lake, row), name)
            yield replace(problem, alone=f"{name} is {state}: {row['message']}", since=row.get("since"))
        if wrong := misdated(row["newest commit"]):
            problem = _of_kind("misdated", wrong, mirror=name, since=too_early().get(name, _UNDATED).since)
            yield replace(problem, alone="")
        if row["ahead"]:
            yield _ahead(lake, name, row["ahead"], in_future().get(name, _UNDATED))


def _of_decoding(lake: Tables) -> Iterator[Problem]:
    """Batches that were decoded with other settings than today's, and mirrors of other types than are declared."""
    if mixed := decoded_with.mixed_masks(lake, lake.decoded()) or decoded_with.lost_masks(lake):
        typed = command("rebuild", lake.pipeline.file, "--layer", "silver")
        yield _of_kind("masks", mixed, typed, since=decoded_with.edited_at(lake.pipeline))
    wrong, batches = targets.of_other_settings(lake)
    edited = decoded_with.edited_at(lake.pipeline)
    for unlike in wrong:
        yield _of_kind(unlike.kind, unlike.sentence, unlike.command, unlike.mirror, edited)
    for outdated in batches:
        text, typed = outdated.sentence, outdated.command
        if outdated.left_out is None:
            yield _of_source(outdated.source, _of_kind("decoded_before", text, typed, since=outdated.since))
        else:
            for target in known_mirrors.names(lake.pipeline, outdated.left_out):
                yield _of_kind("left_out", text, typed, str(target), outdated.since)


def name_of(file: Path) -> str:
    """What a pipeline is called that cannot be looked at: its name, or its file as it was given where that says none."""
    with suppress(IngestError):
        return load(file, to_look=True).name
    return str(file)


def unusable(file: Path, fault: IngestError, verb: str) -> Problem:
    """That a pipeline's lake cannot be looked at; what no command repairs is to be looked at again by the same ``verb``."""
    again = "validate" if isinstance(fault, ConfigError) else verb
    return _of_kind("pipeline_file", str(fault), fault.command or command(again, file))


def _cut_off(lake: Tables) -> Iterator[Problem]:
    """That a run has recorded nothing: it was killed, or its disk was full; nothing while one is at work."""
    if not completed.unrecorded(lake) or lock.is_held(lake.pipeline.lake):
        return
    if not (batch := completed.unrecorded(lake)):  # a run has ended between the two
        return
    typed = command("run", lake.pipeline.file)
    text = f"a run did not come to its end: batch {batch} has landed, and what became of it is not recorded; `{typed}` goes on"
    yield _of_kind("interrupted", text, typed, since=completed.landed_at(lake, batch))


def _last_look(lake: Tables) -> dt.datetime | None:
    """When the last run that has recorded itself began: it found the lake whole."""
    with suppress(Exception):  # `runs` may be what is damaged
        [last] = lake.ask("SELECT max(started_at) AS moment FROM {runs}")
        return cast("dt.datetime | None", last["moment"])
    return None


def _ahead(lake: Tables, mirror: str, newest: str, dated: _Dated) -> Problem:
    """That a mirror's newest change has a time in the future: its content stays the same while such changes come."""
    moment = newest.rstrip("Z").replace("T", " ")
    tables = ", ".join(map(duck.text, sorted(dated.tables))) or "NULL"
    query = (
        f"SELECT c.event_time, c.topic, c.offset, c.after FROM changes AS c WHERE c.table IN({tables}) "
        f"AND c.event_time > {PRESENT_SQL}"
    )
    text = (
        f"the newest change is dated `{moment}` UTC, in the future: correct the clock of its source, or the `timezone:` of "
        "its options; lag and freshness are judged by the other changes, where there are any, complete_until leaves such "
        "times out, and `alerts ack` ends this for as long as they come"
    )
    typed = command("sql", lake.pipeline.file, query)
    return replace(_of_kind("ahead", text, typed, mirror, dated.since), alone="")


@dataclass(frozen=True, slots=True)
class _Dated:
    """Changes of a mirror with times of one kind: the names of their source tables, and when the run began that brought the first."""

    tables: frozenset[str] = frozenset()
    since: dt.datetime | None = None


_UNDATED = _Dated()


def _dated(lake: Tables, times: str) -> dict[str, _Dated]:
    """The changes of such times by mirror; ``times`` is a condition of book lines."""
    lanes = lake.ask(
        f"""SELECT "database", "schema", "table", min(batch) AS batch FROM {{books}}
        WHERE {times} AND "table" IS NOT NULL GROUP BY ALL"""
    )
    first: dict[str, int] = {}
    tables: dict[str, set[str]] = {}
    for row in lanes:
        for mirror in map(str, known_mirrors.names(lake.pipeline, TableId.of(row))):
            first[mirror] = min(row["batch"], first.get(mirror, row["batch"]))
            tables.setdefault(mirror, set()).add(row["table"])
    began = runs_began(lake, first.values())
    return {mirror: _Dated(frozenset(tables[mirror]), began.get(batch)) for mirror, batch in first.items()}


def runs_began(lake: Tables, batches: Iterable[int]) -> dict[int, dt.datetime]:
    """When the first run of each of some batches began, in UTC without a zone."""
    listed = ", ".join(map(str, sorted({*batches})))
    runs = listed and lake.ask(
        f"SELECT batch, min(started_at) AS moment FROM {{runs}} WHERE batch IN ({listed}) GROUP BY batch"
    )
    return {run["batch"]: run["moment"] for run in runs or ()}


def _of_kind(
    name: str, text: str, typed: str = "", mirror: str = "", since: dt.datetime | None = None
) -> Problem:
    """A problem that needs no check; its text says by itself what it is about."""
    kind = KINDS[name]
    subject = f"{kind.about or mirror or 'mirrors'}: {kind.title}"[:LONGEST]
    return Problem(subject, kind.severity, text, typed, text, kind.name, mirror, _moment(since))


def _of_source(name: str, problem: Problem) -> Problem:
    """The problem under the name of its source: others may have the same."""
    return replace(problem, subject=f"source {name}: {KINDS[problem.kind].title}")


def _rejected(kind: str, count: int) -> str:
    return {
        "message": f"{counted(count, 'message')} could not be decoded; "
        f"{agreeing(count, 'it', 'each')} may belong to any table",
        "cell": f"{counted(count, 'cell')} did not fit {agreeing(count, 'its', 'their')} column",
    }.get(kind, f"{counted(count, 'change was', 'changes were')} refused")


def resolving_command(lake: Tables, row: Mapping[str, Any]) -> str:
    """The command that resolves a mirror's problem."""
    file = lake.pipeline.file
    if row["state"] == "paused":
        return command("resume", file, row["table"])
    if row["state"] == "damaged":
        return command("rebuild", file, row["table"])
    return row["command"] or command("retry", file)
