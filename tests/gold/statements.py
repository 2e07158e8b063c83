"""Statements about one small table, and what they do to its rows."""

from __future__ import annotations

from collections.abc import Iterable

from ingest import ddl
from ingest.change import TableId
from ingest.fold import SchemaStep
from ingest.gold.plan import declared
from ingest.gold.plan.declared import Declared
from ingest.gold.plan.policy import Subject, Timeline
from ingest.gold.plan.steps import steps
from ingest.ledgers.logged_statements import Statement

DEPOT = TableId("yard", None, "depot")
KNOWN = {"no": "int32", "site": "string", "load": "decimal(10,2)"}


def said(text: str, batch: int = 5, decided: str = "") -> Statement:
    """A statement of a MySQL source at the place of its batch."""
    found = ddl.effects(text, "mysql", "yard", None, "depot")
    return Statement(
        f"s{batch}", "src", DEPOT, batch, f"{batch:03}", text, found.kind, found.effects, decided
    )


def subject(policy: str = "lenient", free_until: int = 0) -> Subject:
    """The depot's mirror."""
    return Subject(DEPOT, policy, KNOWN, free_until)


def declared_by(statements: Iterable[Statement], subject: Subject, since: int = 0) -> Declared:
    """What those that the policy applies declare."""
    return declared.declared_by(Timeline.of(statements, subject), since)


def retyped_by(text: str, dialect: str = "mysql") -> list[SchemaStep]:
    """The steps of one statement that retypes columns."""
    found = ddl.effects(text, dialect, "yard", None, "depot")  # type: ignore[arg-type]
    statement = Statement("s", "src", DEPOT, 5, "005", text, found.kind, found.effects)
    return [step for step, _ in steps([statement], subject())]


def converted(texts: list[str], row: dict[str, str]) -> tuple[dict[str, str | None], set[str]]:
    """A row of texts after some statements, and the columns of which the result is doubted."""
    after: dict[str, str | None] = {**row}
    doubted = set()
    for step, _ in steps([said(text, 5 + at) for at, text in enumerate(texts)], subject()):
        if step.action == "retype_column" and (text := after.get(step.column)) is not None:
            rule = step.conversion()
            doubted |= {step.column} if not rule.certain or rule.doubted(text) else set()
            after[step.column] = rule.of(text)
    return after, doubted
