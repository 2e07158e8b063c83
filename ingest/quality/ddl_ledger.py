"""The DDL ledger for the checks: which statements wait for the operator, and where a table began again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ingest.change import TableId
from ingest.config import Pipeline, TableRule, target
from ingest.ddl.effect_model import Effect
from ingest.ledgers import lanes
from ingest.ledgers.cleared import Cleared
from ingest.ledgers.decisions import DISMISS
from ingest.ledgers.logged_statements import Statement, effects_on
from ingest.ledgers.resolve import (
    is_pinned,
    leaves_open,
    leaves_values,
    renamed_into,
)
from ingest.ledgers.timeline import LEAVES_NAME, events
from ingest.ledgers.understood import understood
from ingest.store.names import mirror_path
from ingest.tables.tables import Tables


def counting_statements(lake: Tables) -> list[Statement]:
    """All statements that count, in order."""
    return understood(lake, lanes.with_rows(lake))


def pending(statements: Sequence[Statement], pipeline: Pipeline) -> dict[str, list[str]]:
    """Undecided statements that left something open, by the mirror's path.

    They left rows in another mirror, let rows change that no message shows, or outgrow a type that the file declares. What could not be read, and values that no
    message contains, are counted by `ingest.quality.unknown_values`.
    """
    by_mirror: dict[str, list[str]] = {}
    left = {
        (
            statement.source,
            effect.table if effect.action in LEAVES_NAME else effect.other_table,
        ): statement.order
        for statement in statements
        for effect in statement.effects
        if effect.action in (*LEAVES_NAME, "swap_table")
    }
    for statement in statements:
        for table in statement.tables:
            first = pipeline.rule(table)
            # if a later statement takes the name away again, no table has it
            keeps_name = left.get((statement.source, table), "") < statement.order
            is_open = any(_is_open(effect, table, first, keeps_name) for effect in statement.effects)
            if statement.decided or statement.kind == "none" or first.exclude or not is_open:
                continue
            for rule in (first, *first.also):
                if not rule.ignores:
                    by_mirror.setdefault(mirror_path(target(rule, table)), []).append(statement.said)
    return by_mirror


def _is_open(effect: Effect, table: TableId, rule: TableRule, keeps_name: bool) -> bool:
    """True if an effect left rows of a table, or its column's type, open; ``keeps_name`` if the table still has its name."""
    return (
        (leaves_open(effect, table) and not leaves_values(effect, table))
        or (keeps_name and renamed_into(effect, table))
        or (effect.table == table and is_pinned(effect, rule.declared))
    )


def beginning(
    about: Iterable[Statement], rule: TableRule, table: TableId, last: int, did: Mapping[str, str]
) -> Cleared | None:
    """Place and batch of the newest of the statements about a table that empties it or begins a new one, in one of its mirrors.

    Args:
        about: the statements about the table, in order.
        rule: the mirror's.
        table: the source table.
        last: the last batch that the mirror has folded.
        did: the states by which it has folded statements, by their names.
    """
    counting = (
        each for each in about if each.batch <= last and not _is_ignored(each, rule, did.get(each.id, ""))
    )
    happened = events(effects_on(table, counting), table)
    cleared = [Cleared(event.place, event.statement.batch) for event in happened if event.empties]
    return cleared[-1] if cleared else None


def _is_ignored(statement: Statement, rule: TableRule, did: str) -> bool:
    """True if a statement has done nothing to the rows of a mirror; ``did`` is the state by which it was folded, if that is known:
    by then the rule may have been another one.
    """
    if did and statement.decided != DISMISS:
        return did == "logged"
    return statement.decided == DISMISS or (rule.ignores and not statement.decided)
