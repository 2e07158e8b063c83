"""The schema steps of a mirror's lane, for code that folds it outside of the stage: the check of cells, and explain."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingest.change import TableId
from ingest.fold import SchemaStep
from ingest.gold import ledger as ledgers
from ingest.gold import policy
from ingest.gold.policy import Subject
from ingest.lake import lanes
from ingest.lake.mirrors import Mirror, rule_for
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
