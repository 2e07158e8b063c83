"""The schema steps of a mirror's lane, for the stage and for code that folds outside of it: the check of cells, explain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ingest.change import TableId
from ingest.fold import SchemaStep
from ingest.gold import ledger as ledgers
from ingest.gold import policy
from ingest.gold.lane import Steps
from ingest.gold.policy import Subject
from ingest.lake import lanes
from ingest.lake.mirrors import Mirror, rule_for
from ingest.lake.statements import Statement
from ingest.lake.tables import Tables


def steps_of(lake: Tables) -> Callable[[Mirror, str, TableId, int], Sequence[tuple[SchemaStep, int]]]:
    """A function of mirror, source, source table and last batch that returns the steps in order, each with its batch.

    The ledger is read once, when first needed.
    """
    read: list[ledgers.Ledger] = []

    def steps(mirror: Mirror, source: str, table: TableId, last: int) -> Sequence[tuple[SchemaStep, int]]:
        if not read:
            read.append(ledgers.read(lake, lanes.with_rows(lake)))
        statements = read[0].of(source, table, last)
        if not statements:
            return ()
        rule = rule_for(lake.pipeline, table, mirror.path)
        return policy.steps(statements, Subject.of(rule, table, mirror, last))

    return steps


def lane_steps(statements: Iterable[Statement], subject: Subject, first: int) -> Steps:
    """The steps that change rows without row messages; ``first`` is the first batch not folded yet."""
    statements = list(statements)
    found = policy.steps(statements, subject)
    new = tuple(step for step, batch in found if batch >= first)
    return Steps(tuple(step for step, _ in found), new, revised=_revised(statements, subject, first, found))


def _revised(
    statements: Sequence[Statement], subject: Subject, first: int, found: Sequence[tuple[SchemaStep, int]]
) -> bool:
    """True if a late statement changes the steps of later ones that the mirror has folded.

    ADD COLUMN empties the column if a DROP COLUMN comes before it, and a MODIFY converts from the type of the last one.
    """
    folded = [one for one in statements if one.batch < first]
    newest = max((one.order or "" for one in folded), default="")
    if all((one.order or "") > newest for one in statements if one.batch >= first):
        return False
    return policy.steps(folded, subject) != [one for one in found if one[1] < first]
