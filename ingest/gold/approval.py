"""The DDL ledger as shown: each statement's verdict, and the decisions that settle it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ingest.change import LaneId
from ingest.config import target
from ingest.errors import IngestError, command
from ingest.gold.plan import completed, policy
from ingest.gold.plan import ledger as ledgers
from ingest.gold.plan.policy import Subject, Verdict
from ingest.ledgers import decisions, lanes, mirrors
from ingest.ledgers.decisions import APPROVE, DISMISS, Decision
from ingest.ledgers.logged_statements import Statement, approved_ahead
from ingest.ledgers.mirrors import Mirror
from ingest.ledgers.resolve import hides_rows
from ingest.store.names import mirror_path
from ingest.tables.tables import Tables

if TYPE_CHECKING:
    from ingest.tables.lake import Lake


NO_EFFECT = "of no effect here"
"""The reason in the command that dismisses a statement, which says what dismissing means; the operator may write another."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A statement with its verdict for one mirror; ``folded`` if the mirror is past its batch."""

    statement: Statement
    mirror: str
    path: str
    verdict: Verdict
    folded: bool

    @property
    def state(self) -> str:
        """The verdict's word; `waits` for a statement that is not folded yet and needs no decision."""
        if self.verdict.state in (policy.APPLIED, policy.PARTLY) and not self.folded:
            return "approved" if self.statement.decided else "waits"
        return self.verdict.state

    @property
    def pending(self) -> bool:
        """True if it waits for the operator's decision."""
        asks = (policy.HELD, policy.NOTICED, policy.PARTLY)
        return self.verdict.state in asks and not self.statement.decided

    @property
    def holds(self) -> bool:
        """True if the mirror is held until the operator decides."""
        return self.verdict.state == policy.HELD and not self.statement.decided

    def described(self) -> dict[str, Any]:
        """The statement for JSON output."""
        statement = self.statement
        return {
            "id": statement.id,
            "batch": statement.batch,
            "source": statement.source,
            "table": str(statement.table),
            "mirror": self.mirror,
            "class": statement.kind,
            "state": self.state,
            "pending": self.pending,
            "statement": statement.text,
            "does": list(self.verdict.does),
        }


def listed(lake: Tables) -> list[Listed]:
    """Every statement of the ledger, in order, once for each mirror that it concerns."""
    mirrors_by_path, sent = mirrors.known(lake), lanes.with_rows(lake)
    ledger = ledgers.read(lake, sent)
    entries = [
        entry
        for statement in ledger.statements
        for entry in _of_statement(lake, statement, mirrors_by_path, sent)
    ]
    return list(
        _repeated(
            _as_folded(entry, ledger.recorded.get((entry.path, entry.statement.id))) for entry in entries
        )
    )


def _as_folded(entry: Listed, record: tuple[str, tuple[str, ...]] | None) -> Listed:
    """What the statement did when it was folded; today's schema of the mirror does not matter, but rows that came since
    do, if it would have asked because of them.
    """
    if record is None or not entry.folded:
        return entry
    state, does = record
    if entry.verdict.state in policy.ASKS_AGAIN.get(state, ()):
        return entry
    return replace(entry, verdict=Verdict(entry.verdict.state if entry.statement.decided else state, does))


def _repeated(entries: Iterable[Listed]) -> Iterator[Listed]:
    """Statements; one that was delivered again and does nothing further names its first delivery."""
    first: dict[tuple[object, ...], str] = {}
    for entry in entries:
        statement = entry.statement
        mark = (entry.path, statement.source, statement.table, statement.text, statement.event_time)
        first_id = first.setdefault(mark, statement.id)
        if first_id != statement.id and statement.event_time is not None and not entry.verdict.does:
            yield replace(entry, verdict=replace(entry.verdict, does=(f"repeats {first_id}",)))
        else:
            yield entry


def _of_statement(
    lake: Tables, statement: Statement, mirrors_by_path: dict[str, Mirror], sent: set[LaneId]
) -> Iterator[Listed]:
    rules = [
        (table, rule)
        for table in statement.tables or [statement.table]
        for rule in (lake.pipeline.rule(table), *lake.pipeline.rule(table).also)
        if not rule.exclude
    ]
    for table, rule in rules:
        name = target(rule, table)
        path = mirror_path(name)
        mirror = mirrors_by_path.get(path)
        try:
            folded = completed.folded(lake, mirror)
        except Exception:  # one damaged table must not hide the statements of the others
            folded = completed.recorded(lake, path)
        rows = (statement.source, table) in sent or bool(mirror and mirror.sent)
        subject = Subject.of(rule, table, mirror, sys.maxsize if mirror is None else folded, rows=rows)
        yield Listed(statement, str(name), path, policy.judge(statement, subject), statement.batch <= folded)


def approve_or_dismiss(lake: Lake, wanted: str, verb: str, reason: str) -> list[Listed]:
    """Approve or dismiss one statement; returns what was decided, by mirror, as it was before.

    A statement that was decided so already is left as it is, unless a mirror has folded it only since: what it has left is
    accepted then.

    Raises:
        IngestError: there is no such statement, or this decision is no longer possible.
    """
    entries = [entry for entry in listed(lake) if entry.statement.id == wanted]
    if not entries:
        raise IngestError(
            f"There is no statement {wanted!r}: `{command('ddl', lake.pipeline.file)}` lists them."
        )
    able = [entry for entry in entries if verb != APPROVE or entry.verdict.state != policy.LOGGED]
    for entry in able or entries:
        if text := refusal(entry, verb):
            raise IngestError(text)
    by = decisions.user()
    ahead = approved_ahead(lake) if verb == APPROVE else ()
    entries = [
        replace(entry, statement=replace(entry.statement, decided=""))
        if (entry.path, wanted) in ahead
        else entry
        for entry in entries
    ]
    new = [entry for entry in entries if entry.statement.decided != verb]
    decisions.append(lake, [_decision(entry, verb, reason, by) for entry in new])
    return entries


def refusal(entry: Listed, verb: str) -> str:
    """Why a statement cannot be approved or dismissed for a mirror; empty if it can."""
    what = f"Statement {entry.statement.id}"
    if verb == APPROVE and any(map(hides_rows, entry.statement.effects)):
        return (
            f"{what} cannot be approved: no message shows which rows of {entry.mirror} were in the partition; "
            "dismiss the statement, and after the next run reconcile the mirror with its source."
        )
    if verb == APPROVE and entry.verdict.state == policy.LOGGED:
        return f"{what} does nothing to {entry.mirror}, which has on_schema_change: ignore, or no rows yet."
    settled = {APPROVE: policy.DISMISSED, DISMISS: policy.APPLIED}[verb]
    if entry.folded and entry.verdict.state == settled:
        return f"{what} is {entry.verdict.state} and {entry.mirror} is past batch {entry.statement.batch}: what is done stays."
    return ""


def _decision(entry: Listed, verb: str, reason: str, by: str) -> Decision:
    value: dict[str, Any] = {
        "statement": entry.statement.id,
        "text": entry.statement.text,
        "does": list(entry.verdict.does),
    }
    if entry.verdict.state == policy.HELD:
        value["held"] = True
    return Decision(verb, entry.path, value, entry.statement.batch, reason, by)
