"""History tables (``history: true``): every state of every row, as SCD type 2, next to the mirror.

``histories/<database>/<table>``, in queries ``<table>__history``, has the mirror's columns, also former ones, and
``valid_from``, ``valid_to``, ``is_current``.  It has a folder of its own: among the mirrors, a source table of that
name would have the same path. States follow the fold's order. The times are the changes' event times and are only
shown: if two states have the same time, the order decides which is current. A state that a statement ended, or whose
change names no time, has no ``valid_to``. Its progress is in its own log, and it is folded and committed as a mirror is:
`ingest.gold.fold.arrow_states` folds each touched key's whole history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ingest.gold.apply import mirror_table, planner
from ingest.gold.apply.planner import FoldPlan, Work
from ingest.gold.fold.arrow_work import LaneWork
from ingest.gold.plan.batch import Batch
from ingest.gold.plan.mirror_schema import Plan
from ingest.ledgers import histories
from ingest.ledgers.stamps import micros
from ingest.tables.duck import text
from ingest.tables.lake import Lake
from ingest.tables.tables import Tables


def states_plan(lake: Lake, batch: Batch, plan: Plan) -> FoldPlan:
    """The part of a batch that a mirror's history table has.

    Raises:
        HeldError: the table contains foreign commits.
    """
    table = histories.table_of(plan.mirror)
    fold = planner.opened(lake, batch, plan, table)
    if not fold.work:
        return fold
    before = fold.before
    keeps = all(planner.kept(table, before.types).values())
    if before.exists and (mirror_table.is_replaced(table, before.types) or not keeps):
        work = planner.whole_of(lake.pipeline, fold.books, batch.ledger, plan, fold.applied)
        fold = replace(fold, work=work, again=True)
    return planner.in_its_way(lake, planner.marking(lake.pipeline, fold))


def with_history(lake: Tables, lanes: Sequence[LaneWork], work: Work) -> tuple[LaneWork, ...]:
    """The lanes of a history table: the whole history of each is read, and its event times.

    All keys are folded if all are new, or if a new truncate or statement may concern all.
    """
    return tuple(
        replace(
            lane_work,
            whole=True,
            late_from="",
            everything=bool(not lane.folded_high or lane.truncates or steps.new),
            moments=_moments(lake, [str(step.order) for step in steps.ever]),
        )
        for lane_work, (lane, steps) in zip(lanes, work, strict=True)
    )


def _moments(lake: Tables, places: Sequence[str]) -> tuple[tuple[str, int | None], ...]:
    """When some statements were, by their places."""
    if not places:
        return ()
    listed = ", ".join(map(text, places))
    rows = lake.ask(f"SELECT order_key, event_time FROM {{ddl}} WHERE order_key IN ({listed})")
    return tuple((row["order_key"], micros(row["event_time"])) for row in rows)
