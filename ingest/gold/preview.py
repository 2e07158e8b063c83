"""What gold would do next, mirror by mirror, decided by the same code as a run; nothing is written.

Book lines of messages that are not decoded yet may be added to those of the lake: then the answer holds for these
messages, and is as good as they are typical.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

from ingest.change import LaneId, TableId, lane_of
from ingest.config import Pipeline
from ingest.errors import HeldError, counted
from ingest.fold import Placed, fold
from ingest.gold.apply.planner import FoldPlan, budget, marking, whole_of, with_statements, work_of
from ingest.gold.plan import carried, failover, foreign_commits
from ingest.gold.plan.carried import Carried
from ingest.gold.plan.completed import complete
from ingest.gold.plan.ledger import Ledger
from ingest.gold.plan.mirror_schema import Plan, decide
from ingest.gold.plan.work import Books, Job, catch_up, jobs, last_batches, open_books, routes_of, stated
from ingest.ledgers import conditions, lanes, mirrors, pauses, targets
from ingest.ledgers.books import Line
from ingest.ledgers.former_names import Move
from ingest.ledgers.logged_statements import Statement, counting, decided
from ingest.ledgers.logged_statements import carried as carried_rows
from ingest.ledgers.mirrors import Column, Mirror
from ingest.ledgers.resolve import Came, Sent, resolved
from ingest.ledgers.stamps import change_of
from ingest.ledgers.understood import logged, understood
from ingest.order import order_of
from ingest.store import faults
from ingest.tables.delta import NO_TABLE, Snapshot
from ingest.tables.tables import Tables

AGAIN = "it is folded again from its first change"
CREATE, CHANGE, FOLD, HOLD, WAIT = "create", "change", "fold", "hold", "wait"


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What would happen to one mirror, and why."""

    mirror: str
    path: str
    action: str
    why: str = ""
    keys: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    added: tuple[Column, ...] = ()
    retyped: tuple[tuple[str, Column], ...] = ()  # the old Delta type, and the column's new definition
    dropped: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    changes: int = 0
    marks: bool = False  # Arrow deletes rows of its files by deletion vectors instead of rewriting the files
    size: int = 0  # bytes of its files
    why_merge: str = ""  # why a MERGE applies what Arrow has folded; empty if files do
    why_folded: str = ""  # why its statements fold its whole history; empty if they are a pass over its rows
    passes: bool = False  # its files are written again one after the other
    budget: int = 0  # the most bytes that these changes may rewrite without Spark
    command: str = ""  # that ends its hold, if one does


@dataclass(slots=True)
class LakeState:
    """What decides the next fold of a lake; the defaults are those of a lake that does not exist yet."""

    complete: int = 0
    last: int = 0
    books: Books = field(default_factory=lambda: Books(0, 0))
    logged: list[Statement] = field(
        default_factory=list
    )  # of messages; what they mean depends on what else has come
    announced: list[Statement] = field(default_factory=list)
    mirrors: dict[str, Mirror] = field(default_factory=dict)
    applied: dict[str, int] = field(default_factory=dict)
    snapshots: Mapping[str, Snapshot] = field(default_factory=dict)
    paused: frozenset[str] = frozenset()
    unread: dict[str, str] = field(default_factory=dict)  # why a mirror cannot be read, by path
    foreign: dict[str, str] = field(default_factory=dict)  # who else has changed a mirror's rows, by path
    # mirrors whose rules have changed, by path, each with the batch before its last
    again: Mapping[str, int] = field(default_factory=dict)


def states_by_view(lake: Tables) -> list[tuple[Pipeline, LakeState]]:
    """The views of a lake's pipeline, each with what decides its next fold."""
    seen = targets.views(lake)
    return [
        (view.pipeline, lake_state(view, targets.paths(view) if seen[1:] else frozenset())) for view in seen
    ]


def lake_state(lake: Tables, filled: AbstractSet[str] = frozenset()) -> LakeState:
    """Read everything that decides the next fold.

    Args:
        lake: a view of the lake.
        filled: paths of mirrors whose tables have sent rows, so that those not folded yet take all of them.
    """
    state = LakeState(last=lake.decoded())
    if not state.last:
        return state
    state.complete = complete(lake)
    state.books = open_books(lake, state.complete, state.last)
    state.logged = logged(lake, decided(lake), carried_rows(lake, state.last), state.last)
    statements = understood(lake, lanes.with_rows(lake))
    state.announced = [statement for statement in statements if statement.is_announced]
    state.mirrors = mirrors.known(lake)
    state.paused = pauses.paused(lake)
    states = dict[str, Snapshot]()
    for path, mirror in state.mirrors.items():
        try:
            states[path] = lake.snapshot(path)
            applied = mirrors.folded_until(lake, mirror, states[path])
            foreign_commits.last_batch(lake, mirror, states[path].version)
        except HeldError as error:
            state.foreign[path] = str(error)
        except Exception as error:  # a damaged log, for example: the others are planned
            state.unread[path], applied = faults.of_mirror(error, lake, mirror.name, path), -1
        state.applied[path] = max(applied, state.complete)
    state.snapshots = states
    added = dict.fromkeys(filled - state.mirrors.keys(), 0)
    if reshaped := mirrors.reshaped(lake, state.mirrors):
        routes = routes_of(lake.pipeline, state.books)
        last = last_batches((path, state.books.sums[name]) for name, (*_, path) in routes)
        state.again = {path: last[path] - 1 for path in reshaped & last.keys()}
    if lagging := {**added, **state.again}:
        state.books = catch_up(lake, state.books, lagging)
        state.applied |= added
    return state


def foresee(
    pipeline: Pipeline, state: LakeState, lines: Iterable[Line], statements: Iterable[Mapping[str, Any]],
    changes: Iterable[Mapping[str, Any]] = (), lake: Tables | None = None,
) -> list[Foreseen]:  # fmt: skip
    """Each mirror with something to do.

    Args:
        pipeline: the pipeline.
        state: what its lake has.
        lines: book lines of messages that are not decoded yet.
        statements: their statements, as rows of `ddl`.
        changes: their rows of `changes`, on which conditions and computed columns are tried.
        lake: what tables have sent: it decides what statements mean, and which rows a run carries over to new names.
    """
    lines = list(lines)
    more = [*state.books.lines, *lines]
    last = max((line.batch for line in more), default=state.last)
    books = replace(state.books, last=last, lines=more)
    of_messages = [*state.logged, *counting(statements, {})]
    came = _places(lines)
    asked = _asked(lake, came) if lake is not None and state.last else ()
    ledger = _ledger(of_messages, state.announced, books, asked)
    sent: dict[LaneId, list[Mapping[str, Any]]] = {}
    for row in changes:
        lane = lane_of(row)
        sent.setdefault(lane, []).append(row)
    made = _of_jobs(pipeline, state, books, ledger, sent)
    held = {path for path, foreseen in made.items() if foreseen.action == HOLD}
    if lake is None or not held:
        return list(made.values())
    for move, paths in carried.of_mirrors(lake, ledger, held):
        try:
            rows = carried.carried(lake, ledger, move)
        except carried.LackingError as error:
            why = carried.refused(move, error)
            made |= {path: replace(made[path], why=made[path].why + why) for path in paths}
            continue
        last += 1
        books = replace(books, last=last, lines=[*books.lines, *rows.lines(last)])
        of_messages = [_landed(statement, move, last) for statement in of_messages]
        ledger = _ledger(of_messages, state.announced, books, asked)
        again = _of_jobs(pipeline, state, books, ledger, sent)
        made |= {path: _carrying(again[path], rows, came) for path in paths}
    return list(made.values())


def _ledger(
    of_messages: Iterable[Statement],
    announced: Iterable[Statement],
    books: Books,
    asked: tuple[()] | tuple[Sent, Came],
) -> Ledger:
    """The statements as a run would understand them; ``asked`` tells what tables have sent, if a lake knows it."""
    statements = resolved(_in_order(of_messages), books.lanes, *asked)
    return Ledger(_in_order([*statements, *announced]))


def _in_order(statements: Iterable[Statement]) -> list[Statement]:
    return sorted(statements, key=lambda statement: statement.order)


_Places = Mapping[LaneId, Sequence[tuple[str, str]]]
"""The first and the last places of some lines with changes, by lane."""


def _places(lines: Iterable[Line]) -> _Places:
    places: dict[LaneId, list[tuple[str, str]]] = {}
    for line in lines:
        if line.changes:
            spans = places.setdefault((line.source, line.table_id), [])
            spans.append((line.order_low or "", line.order_high or ""))
    return places


def _asked(lake: Tables, pending: _Places) -> tuple[Sent, Came]:
    """Which columns tables have sent, and whether they have sent rows; those of ``pending`` may have sent some anywhere."""
    decoded = lanes.came_between(lake)

    def came(source: str, table: TableId, low: str, high: str, *until: Any, surely: bool = False) -> bool:
        spans = pending.get((source, table), ())
        of_pending = any(low < first and last < high for first, last in spans) if surely else bool(spans)
        return of_pending or decoded(source, table, low, high, *until, surely=surely)

    return lanes.sent_columns(lake), came


def _of_jobs(
    pipeline: Pipeline, state: LakeState, books: Books, ledger: Ledger, sent: Mapping[LaneId, Sequence[Mapping[str, Any]]]
) -> dict[str, Foreseen]:  # fmt: skip
    """Each mirror with something to do, by its path."""
    books = stated(pipeline, books, ledger.statements)
    made = {}
    for job in jobs(pipeline, books, state.mirrors):
        applied = state.applied.get(job.path, state.complete)
        if job.path in state.again or any(line.batch > applied for line in job.every_line):
            made[job.path] = _foreseen(pipeline, state, books, ledger, job, sent)
    return made


def _landed(statement: Statement, move: Move, batch: int) -> Statement:
    """A statement as it counts once the rows of a move are landed."""
    if statement.id != move.statement.id:
        return statement
    return replace(statement, carried={**statement.carried, move.table: batch})


def _carrying(foreseen: Foreseen, rows: Carried, came: Collection[LaneId]) -> Foreseen:
    """A mirror to which rows are carried over; ``came`` are the tables with changes that are not decoded yet."""
    if foreseen.action in (HOLD, WAIT):
        return foreseen
    names = rows.move.rows.tenures
    grows = any((rows.source, tenure.table) in came for tenure in names)
    count = "the rows" if grows else f"the {counted(len(rows.rows), 'row')}"
    why = f"{count} of {names[-1].table} would be carried over to it. {foreseen.why}"
    return replace(foreseen, why=why.strip())


def _foreseen(
    pipeline: Pipeline, state: LakeState, books: Books, ledger: Ledger, job: Job,
    sent: Mapping[LaneId, Sequence[Mapping[str, Any]]],
) -> Foreseen:  # fmt: skip
    mirror, applied = state.mirrors.get(job.path), state.applied.get(job.path, state.complete)
    count = sum(line.changes for line in job.every_line if line.batch > applied)
    waiting = Foreseen(str(job.table), job.path, HOLD, changes=count)
    if job.path in state.paused:
        return replace(waiting, action=WAIT, why=pauses.PAUSED)
    if why := state.unread.get(job.path):
        return replace(waiting, why=why)
    before = state.snapshots.get(job.path, NO_TABLE)
    applied = state.again.get(job.path, applied)
    try:
        failover.refuse_another(pipeline, books, job)
        reached = state.applied.get(job.path, -1) if before.exists else None
        plan = decide(pipeline, job, mirror, ledger, applied, job.first_rows, lambda: reached)
    except HeldError as error:
        return replace(waiting, why=str(error))
    foreseen = _planned(plan, mirror if before.exists else None, count)
    if foreseen.action in (HOLD, WAIT):
        return foreseen
    try:
        _try_rules(plan, sent)
    except HeldError as error:
        return replace(foreseen, action=HOLD, why=str(error))
    if plan.why_rebuilt:
        again = FoldPlan(plan, books, NO_TABLE, "", whole_of(pipeline, books, ledger, plan, applied))
        way = marking(pipeline, again)
        return replace(foreseen, why_merge=way.why_merge)
    if why := state.foreign.get(job.path):
        return replace(foreseen, action=HOLD, why=why)
    work = work_of(pipeline, books, ledger, plan, applied)
    way = marking(pipeline, with_statements(FoldPlan(plan, books, before, "", work), ledger))
    return replace(
        foreseen,
        why_merge=way.why_merge,
        why_folded=way.why_folded,
        passes=way.passes,
        marks=way.marks,
        size=before.known_size,
        budget=budget(pipeline, way),
    )


def _try_rules(plan: Plan, sent: Mapping[LaneId, Sequence[Mapping[str, Any]]]) -> None:
    """Evaluate a mirror's condition and computed columns on the rows that the sampled changes leave.

    Raises:
        HeldError: one of them fails on a row, as it would in a run.
    """
    mirror, shard = plan.mirror, plan.job.rule.shard_column
    if not mirror.expressions:
        return
    types = mirror.logical_types
    keys = mirror.keys_without(shard)
    for lane in plan.job.lines:
        events = [Placed(order_of(row["order_key"]), change_of(row)) for row in sent.get(lane, ())]
        cells = dict(mirror.shard_of(lane))
        rows = [{**row.values, **cells} for row in fold(events, keys, types).values()]
        try:
            conditions.check(mirror.where, mirror.computed, rows, types)
        except conditions.ConditionError as error:
            conditions.refuse(error, plan.job.rule)


def _planned(plan: Plan, before: Mirror | None, count: int) -> Foreseen:
    mirror = plan.mirror
    old = before.by_name if before else {}
    names = {*mirror.by_name}
    added = tuple(column for column in mirror.columns if column.name not in old)
    retyped = tuple(
        (old[column.name].delta, column)
        for column in mirror.columns
        if column.name in old and old[column.name].delta != column.delta
    )
    dropped = tuple(column.column for column in old.values() if column.name not in names)
    action, why = _action(plan, before, bool(added or retyped or dropped))
    return Foreseen(
        mirror.name, mirror.path, action, why, mirror.keys, mirror.columns, added, retyped, dropped,
        plan.left_out, count, command=plan.hold.command if plan.hold else "",
    )  # fmt: skip


def _action(plan: Plan, before: Mirror | None, changed: bool) -> tuple[str, str]:
    if plan.hold is not None:
        return HOLD, plan.hold.why
    action = CREATE if before is None else CHANGE if changed or plan.why_rebuilt else FOLD
    if plan.why_rebuilt:
        return action, f"{plan.why_rebuilt}: {AGAIN}."
    if plan.mirror.keys:
        return action, "its old states go into a table of their own." if plan.job.rule.history else ""
    if plan.is_keyless:
        return action, f"without a key, as no_key: {plan.job.rule.no_key} says."
    return WAIT, "its messages have shown no row yet, and no key."
