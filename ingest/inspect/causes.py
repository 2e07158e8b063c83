"""The problems of a lake, one entry for each cause, as listed by `status`, `alerts`, the report and the pages.

Some causes come from the lake's present state, some from the checks of the last run; a cause of both is listed once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ingest.errors import command, counted
from ingest.lake import barriers, decoded_with, sealing
from ingest.lake import mirrors as known_mirrors
from ingest.lake.books import misdated
from ingest.lake.tables import Tables
from ingest.quality.catalogue import CHECKS, FOLD_FAILED, HELD, LAST_RUN, PASS, duration
from ingest.quality.report_model import STATEMENT, Facts, TableFact

if TYPE_CHECKING:
    from ingest.quality import report

ERROR, WARN = "error", "warn"
LONGEST = 500  # characters of a subject
_OLD = CHECKS["freshness"].fault
_DIGITS = re.compile(r"\d+")
_TITLES = {
    "held": HELD,
    "failed": FOLD_FAILED,
    "damaged": CHECKS["readable"].fault,
    "paused": "The table is paused",
}
_REJECTS = {
    "message": CHECKS["reject_rate"].fault,
    "cell": CHECKS["cell_rejects"].fault,
    "change": CHECKS["refused_changes"].fault,
}
_STATEMENTS = f"schema changes: {CHECKS['ddl_pending'].fault}"
_COVERED = {  # the check that names the tables or sources of something that is also counted for the whole lake
    f"rejects: {_REJECTS['message']}": "reject_rate",
    f"rejects: {_REJECTS['cell']}": "cell_rejects",
    f"rejects: {_REJECTS['change']}": "refused_changes",
    _STATEMENTS: "ddl_pending",
}
_VERBS = dict.fromkeys(("reject_rate", "cell_rejects", "refused_changes"), "rejects")
_VERBS |= {"ddl_pending": "ddl", "up_to_date": "retry"}


@dataclass(frozen=True, slots=True)
class Cause:
    """One problem: ``subject`` stays the same while it lasts."""

    subject: str
    severity: str  # error | warn
    text: str
    command: str = ""  # the command to type next
    alone: str = ""  # the text for places where the subject is not shown

    @property
    def sentence(self) -> str:
        """The text without the subject."""
        return self.alone or f"{self.subject}: {self.text}"

    def described(self) -> dict[str, str]:
        """The problem as `status` lists it."""
        return {
            "cause": self.subject, "severity": self.severity, "text": self.text, "sentence": self.sentence,
            "command": self.command,
        }  # fmt: skip


def causes(lake: Tables) -> dict[str, Cause]:
    """All present problems; the age of the newest change is as of now."""
    from ingest.inspect import status

    return merged(status.status(lake), gathered(lake))


def gathered(lake: Tables, **given: Any) -> Facts:
    """What the report knows of a lake (`ingest.quality.report_data`), with the statements that wait as `ingest ddl` has them."""
    from ingest.gold import approval
    from ingest.quality.report_data import gather

    facts = gather(lake, **given)
    waiting = {
        (one.mirror, one.statement.batch, one.statement.text[:STATEMENT])
        for one in approval.listed(lake)
        if one.pending
    }
    for table in facts.tables:
        for one in table.ddl:
            one.pending = one.pending or (table.name, one.batch, one.statement) in waiting
    return facts


def merged(found: Mapping[str, Any], facts: Facts) -> dict[str, Cause]:
    """The findings of `status` and of the last checks, each cause once, errors first."""
    state = [
        Cause(one["cause"], one["severity"], one["text"], one["command"], one["sentence"])
        for one in found["causes"]
    ]
    from ingest.quality import report

    problems = report.page(facts).problems
    there = {one.subject for one in state}
    # what the last run's checks counted may have been dismissed, replayed or decided since
    settled = {check for subject, check in _COVERED.items() if subject not in there}
    problems = [one for one in problems if one.check not in settled]
    covered = {one.check for one in problems}
    wrong = {one.subject: one for one in state if _COVERED.get(one.subject) not in covered}
    for one in problems:
        name = _DIGITS.sub("#", one.text) if one.subject == LAST_RUN else one.title
        if one.title != _OLD:
            subject = f"{one.subject}: {name}"[:LONGEST]
            verb = _VERBS.get(one.check, "")
            typed = command(verb, facts.file) if verb else ""
            # its own text says what is wrong
            whole = one.text and (one.subject == LAST_RUN or one.check in CHECKS)
            said = f"{one.subject}: {one.text}" if whole else ""
            wrong.setdefault(
                subject, Cause(subject, ERROR if one.light == "bad" else WARN, one.text, typed, said)
            )
    wrong |= {one.subject: one for table in facts.tables for one in _old(table)}
    last = found["last_run"]
    if last and last["failed"] and not any(one.severity == ERROR for one in wrong.values()):
        text = "it ended with a failure or an alarm"
        wrong[LAST_RUN] = Cause(LAST_RUN, ERROR, text, command("run", facts.file))
    return dict(sorted(wrong.items(), key=lambda item: item[1].severity))


def missing_from(made: report.Page, wrong: Mapping[str, Cause]) -> list[report.Problem]:
    """The additional causes that a report must list, too."""
    from ingest.quality import report

    listed = {f"{one.subject}: {one.title}"[:LONGEST] for one in made.problems}
    found = []
    for one in wrong.values():
        if one.subject not in listed and not one.subject.startswith(LAST_RUN):
            light = "bad" if one.severity == ERROR else "warn"
            subject, _, title = one.subject.rpartition(": ")
            advice, text = f"next: `{one.command}`" if one.command else "", without(one.text, one.command)
            found.append(report.Problem(light, subject, "tables", title, text, advice))
    return found


def without(text: str, typed: str) -> str:
    """A problem's text for places that also show its command."""
    return text.removesuffix(f": {typed}") if typed else text


def _old(table: TableFact) -> Iterable[Cause]:
    check = table.check("freshness")
    if check and check.state != PASS and check.limit is not None:
        sources = ", ".join(sorted({source for source, _ in table.lanes})) or "its source"
        text = (
            f"the newest change is {duration(check.observed)} old, and `freshness:` allows {duration(check.limit)}: "
            f"see whether {sources} still sends"
        )
        yield Cause(f"{table.name}: {_OLD}", str(check.severity), text, alone=f"{table.name}: {text}")


def of_state(
    lake: Tables, rows: Iterable[Mapping[str, Any]], rejects: Mapping[str, int], statements: int
) -> Iterable[Cause]:
    """Problems independent of the checks: mirrors that are not ok, and what waits for the operator.

    ``rows`` are the mirrors, with ``table``, ``state``, ``message`` and ``newest commit``; ``rejects`` counts the open ones by kind.
    """
    file = lake.pipeline.file
    for row in rows:
        if (state := row["state"]) != "ok":
            yield Cause(
                f"{row['table']}: {_TITLES.get(state, state)}", WARN if state == "paused" else ERROR, row["message"],
                resolving_command(lake, row), f"{row['table']} is {state}: {row['message']}",
            )  # fmt: skip
        if wrong := misdated(row["newest commit"]):
            yield Cause(f"{row['table']}: times of another unit"[:LONGEST], WARN, wrong)
    for kind, count in rejects.items():
        text = _rejected(kind, count)
        yield Cause(f"rejects: {_REJECTS.get(kind, kind)}", WARN, text, command("rejects", file), text)
    for mirror in known_mirrors.outdated(lake):
        text = known_mirrors.outdated_text(lake, mirror)
        yield Cause(
            f"{mirror.name}: folded from changes that were decoded again"[:LONGEST], WARN, text, "", text
        )
    if statements:
        text = (
            f"{counted(statements, 'statement')} {'waits' if statements == 1 else 'wait'} for a decision: "
            f"{command('ddl', file)}"
        )
        yield Cause(_STATEMENTS, WARN, text, command("ddl", file), text)
    if days := sealing.lost(lake):
        text = sealing.lost_text(lake, days)
        typed = command("maintain", file, "--drop-key", days[0])
        yield Cause("bronze: the key of sealed messages is lost", ERROR, text, typed, text)
    for begun in barriers.unfinished(lake):
        text = (
            f"an erasure of rows of {begun.value['table']} was interrupted, and some of their data is still there: "
            f"`{command('erase', file, '--resume')}` completes it"
        )
        subject = f"{begun.value['table']}: an erasure is not finished"[:LONGEST]
        yield Cause(subject, ERROR, text, command("erase", file, "--resume"), text)
    newest = lake.decoded()
    if mixed := decoded_with.mixed_masks(lake, newest):
        typed = command("rebuild", file, "--layer", "silver")
        yield Cause("masks: silver has others", ERROR, mixed, typed, mixed)
    for one in decoded_with.outdated(lake, newest):
        text = one.sentence(lake.pipeline, newest)
        yield Cause(f"source {one.source}: decoded by an older version", WARN, text, "", text)


def _rejected(kind: str, count: int) -> str:
    one = count == 1
    return {
        "message": f"{counted(count, 'message')} could not be decoded; "
        f"{'it' if one else 'each'} may belong to any table",
        "cell": f"{counted(count, 'cell')} did not fit {'its' if one else 'their'} column",
    }.get(kind, f"{counted(count, 'change')} {'was' if one else 'were'} refused")


def resolving_command(lake: Tables, row: Mapping[str, Any]) -> str:
    """The command that resolves a mirror's problem."""
    file = lake.pipeline.file
    if row["state"] == "paused":
        return command("resume", file, row["table"])
    if row["state"] == "damaged":
        return command("rebuild", file, row["table"])
    return row["command"] or command("retry", file)
