"""Plan one mirror's part of a batch, once: what is folded, and how what becomes of it is applied."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ingest import types
from ingest.change import LaneId
from ingest.config import Pipeline, TableRule
from ingest.errors import counted
from ingest.fold import SchemaStep
from ingest.gold.plan import foreign_commits, forgotten, passes, ways
from ingest.gold.plan.completed import STAGE
from ingest.gold.plan.lane import Lane, Steps
from ingest.gold.plan.ledger import Ledger
from ingest.gold.plan.mirror_schema import Plan, subject_of
from ingest.gold.plan.passes import Fill
from ingest.gold.plan.steps import lane_steps
from ingest.gold.plan.work import Books, LaneKeys, lanes_of, pending_lane, whole_lane
from ingest.ledgers import condensed, histories, mirrors, rejects
from ingest.ledgers.mirrors import Mirror
from ingest.ledgers.stamps import stamps_of
from ingest.spark.pace import SMALL
from ingest.tables import commits, delta
from ingest.tables.delta import Snapshot, type_in_log, type_of_log

if TYPE_CHECKING:
    from ingest.gold.fold.retyped import Retyped
    from ingest.gold.plan.batch import Batch
    from ingest.tables.lake import Lake

Work = tuple[tuple[Lane, Steps], ...]
"""The lanes of one mirror that have new changes, each with its schema steps."""
# Bytes of a mirror that a batch may rewrite: at least, for each change if no vectors can mark its rows, and at most.
# Beyond the last a MERGE by Spark takes less processor time (see benchmarks/notes.md).
LEAST, EACH, MOST = 4 << 20, 4 << 10, 64 << 20
DELETED = 8  # files are written again when one row in this many would be deleted
CELLS_AT_MOST = 20_000_000  # rows times columns: some 600 MiB of memory
CHANGES_AT_MOST = 500_000  # of one mirror, all held by one process; of more, so many in each part
HISTORY_AT_MOST = 50_000  # changes of a lane that are folded again for late ones: two seconds
# those of one without a key, whose every batch needs them: five seconds
KEYLESS_AT_MOST = 100_000
SILVER_AT_MOST = 64 << 20  # bytes of `changes` in which those after a late one are not counted before


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """One mirror's part of a batch."""

    plan: Plan
    books: Books
    before: Snapshot
    writer: str
    work: Work
    applied: int = 0  # the last batch that it has folded
    retyped: tuple[Retyped, ...] = ()
    again: bool = False  # all rows are folded again
    why_merge: str = ""  # why a MERGE applies its outcomes; empty if files do
    marks: bool = False  # its files stay, and deletion vectors say which of their rows are gone
    fills: tuple[Fill, ...] = ()  # what new statements put into its rows
    why_folded: str = ""  # why new statements fold its whole history instead, as part of a sentence
    passes: bool = (
        False  # its files are written again one after the other, because they are too large to hold
    )

    @property
    def fresh(self) -> bool:
        """True if the table is created with its first rows."""
        return bool(self.plan.mirror.keys) and (self.again or not self.before.exists)

    @property
    def changes(self) -> int:
        """The new changes."""
        return sum(lane.changes for lane, _ in self.work)


def fold_plan(lake: Lake, batch: Batch, plan: Plan) -> FoldPlan:
    """Look at a mirror's table and decide.

    Raises:
        HeldError: the table contains foreign commits.
    """
    from ingest.gold.apply import mirror_table  # Spark's; a plan that is only shown does not need it
    from ingest.gold.fold import retyped  # Spark's; a plan that is only shown does not need it

    ledger, mirror, rule = batch.ledger, plan.mirror, plan.job.rule
    fold = opened(lake, batch, plan, mirror)
    before, work = fold.before, fold.work
    if not work:
        return fold
    keeps = bool(mirror.keys) or rule.no_key == "full_row"
    changed = retyped.found(lake, work, mirror) if keeps else []
    again = before.exists and (
        mirror_table.is_replaced(mirror, before.types)
        or retyped.changes_values(mirror, changed)
        or (bool(mirror.shape) and any(steps.new for _, steps in work))
        or any(steps.revised for _, steps in work)
        or not _meets(rule, mirror, before.types, stated=any(steps.new for _, steps in work))
    )
    if again:
        work = whole_of(lake.pipeline, fold.books, ledger, plan, fold.applied)
    elif before.exists:
        changed += retyped.unfit_defaults(mirror, work)
    fold = replace(fold, work=work, retyped=tuple(changed), again=again)
    altered = retyped.steps_that_alter(mirror, changed)
    fold = with_statements(fold, ledger, altered, lambda: rejects.columns_unfit(lake, mirror))
    fold = marking(lake.pipeline, fold)
    _refuse_forgotten(lake, fold)
    return in_its_way(lake, fold)


def opened(lake: Lake, batch: Batch, plan: Plan, table: Mirror) -> FoldPlan:
    """A mirror's part of a batch, or that of its table of old states, as far as the table's log says what is new to it.

    Raises:
        HeldError: the table contains foreign commits.
    """
    books, before = batch.until(plan), lake.snapshot(table.path)
    applied = mirrors.folded_until(lake, table, before)
    foreign_commits.refuse_past(lake, table, before.version, applied, books.last)
    work = work_of(lake.pipeline, books, batch.ledger, plan, applied)
    writer = lake.writer(STAGE, table.path, table.generation)
    return FoldPlan(replace(plan, mirror=table), books, before, writer, work, applied)


def with_statements(
    fold: FoldPlan,
    ledger: Ledger,
    altered: Collection[SchemaStep] = (),
    misfits: Callable[[], Collection[str]] = tuple,
) -> FoldPlan:
    """The plan with what its new statements put into the mirror's rows, or why they fold its whole history.

    The last two arguments are those of `passes.statement_pass`; without them it is what may be, as far as known without
    reading the lake.
    """
    if fold.again or not fold.before.exists or not any(steps.new for _, steps in fold.work):
        return fold
    lanes = [lane for lane, _ in fold.work]
    earlier = [
        statement
        for lane in lanes
        for statement in ledger.of(lane.source, lane.table, lane.last)
        if statement.batch < lane.first
    ]
    answer = passes.statement_pass(fold.plan, fold.before, fold.work, earlier, altered, misfits)
    if not answer.why_not and fold.changes > CHANGES_AT_MOST:
        answer = answer._replace(
            why_not=f"its {counted(fold.changes, 'change')} are too many to hold at once"
        )
    if answer.why_not:
        return replace(fold, why_folded=answer.why_not)
    work = tuple((lane, replace(steps, passes=True)) for lane, steps in fold.work)
    return replace(fold, work=work, fills=answer.fills)


def in_its_way(lake: Lake, fold: FoldPlan) -> FoldPlan:
    """The plan with what the lake's store allows.

    Raises:
        HeldError: the pipeline file says ``apply: files``, and files cannot be committed.
    """
    plan, no_commits = fold.plan, commits.why_no_commits(lake.pipeline.lake)
    why_no_files = ways.why_no_files(lake.pipeline, plan.job.rule, fold.before) or no_commits
    ways.refuse_files(lake.pipeline, plan.job.rule, plan.mirror, why_no_files)
    return replace(fold, why_merge=fold.why_merge or no_commits)


def _refuse_forgotten(lake: Lake, fold: FoldPlan) -> None:
    """Hold a mirror that needs changes which compaction of silver may have dropped.

    Raises:
        HeldError: it does.
    """
    mirror, shard = fold.plan.mirror, fold.plan.job.rule.shard_column
    for lane, _ in fold.work:
        if not lane.folded_high and condensed.ever(lake):
            keys = mirror.keys_without(shard)
            condensed.refuse_keys(lake, (lane.source, lane.table), lane.eras or ((("", keys)),))
    forgotten.refuse(lake, mirror, [lane for lane, _ in fold.work])


def late_from(lane: Lane, steps: Steps) -> str:
    """The place of a lane's first late change, if the folded ones after it tell which late ones count; else empty.

    They tell if no statement has changed the rows in between. Where changes carry parts of rows or change keys, a short
    history is folded whole: a late change that is overtaken may need it.
    """
    if not lane.late or lane.inherits or lane.truncates or lane.merged or lane.eras:
        return ""
    whole = not (lane.ever.partials or lane.ever.key_changes)
    low = lane.order_low if whole or lane.changes_ever > HISTORY_AT_MOST else ""
    return low if low and not any(str(step.order) > low for step in steps.ever) else ""


def _refolded(mirror: Mirror, work: Work) -> list[Lane]:
    """The lanes whose whole history is folded; all without a key, as only it shows which changes are repeated, and all of a
    table of old states.
    """
    every = not mirror.keys or histories.is_history(mirror)
    return [lane for lane, steps in work if every or refolds(lane, steps)]


def refolds(lane: Lane, steps: Steps) -> bool:
    """True if a lane's changes from its first new one on are not enough, so that its whole history is folded again."""
    rekeyed, late = bool(lane.eras) and not lane.folded_high, lane.late and not late_from(lane, steps)
    stated = bool(steps.new) and not steps.passes
    return lane.merged or late or bool(lane.inherits) or stated or rekeyed


def marking(pipeline: Pipeline, fold: FoldPlan) -> FoldPlan:
    """The plan with how the mirror is folded and how its outcomes are applied, as far as known without reading the lake."""
    plan = fold.plan
    large = too_large(pipeline, fold)
    marks = bool(large) and takes_vectors(fold)
    large = "" if marks else large or _too_many_cells(fold)
    passing = bool(large) and writes_all_rows(fold)
    merges = ways.why_merge(pipeline, plan.job.rule, fold.before, "" if passing else large)
    return replace(fold, why_merge=merges, marks=marks and not merges, passes=passing and not merges)


def _too_many_cells(fold: FoldPlan) -> str:
    rows = fold.before.rows
    if rows is not None and rows * len(fold.plan.mirror.columns) <= CELLS_AT_MOST:
        return ""
    return f"its {extent(fold.before)} bytes hold too many rows to hold at once"


def takes_vectors(fold: FoldPlan) -> bool:
    """True if some rows of a mirror's files can be deleted while the others stay as they are."""
    before, mirror = fold.before, fold.plan.mirror
    enabled = delta.is_on(before.configuration, delta.VECTORS)
    # a truncate ends states, and deletes none
    cleared = not histories.is_history(mirror) and _is_cleared(fold.work)
    return enabled and _rows_stay(fold) and bool(mirror.keys) and not fold.again and not cleared


def writes_all_rows(fold: FoldPlan) -> bool:
    """True if all rows of a mirror are written again because its columns change, and no row needs another one's file."""
    mirror = fold.plan.mirror
    alone = bool(mirror.keys) and not histories.is_history(mirror) and not fold.again and fold.before.exists
    few = fold.changes <= CHANGES_AT_MOST and goes_on(fold.work) and not _is_cleared(fold.work)
    return alone and few and not _rows_stay(fold)


def _rows_stay(fold: FoldPlan) -> bool:
    """True if rows that the batch does not concern are the same in the mirror's columns as they will be."""
    columns = {column.column: type_in_log(column.delta) for column in fold.plan.mirror.columns}
    return not fold.fills and all(columns.get(name) == kind for name, kind in fold.before.types.items())


def _is_cleared(work: Work) -> bool:
    return any(lane.truncates or steps.incarnations for lane, steps in work)


def extent(before: Snapshot) -> int:
    """Table size in bytes; an unknown size counts as large."""
    if before.size is None:
        return SMALL + 1 if before.exists else 0
    return before.size


def budget(pipeline: Pipeline, fold: FoldPlan) -> int:
    """The most bytes of a mirror's files that its batch rewrites.

    Vectors take half the time of new files, and leave deleted rows to each reader: only so many of them.
    """
    if pipeline.rewrite_budget is not None:
        return pipeline.rewrite_budget
    if takes_vectors(fold):
        can_be = LEAST < extent(fold.before) <= MOST and not _too_many_cells(fold)
        return MOST if can_be and _many_deleted(fold) else LEAST
    return min(MOST, max(LEAST, EACH * fold.changes))


def _many_deleted(fold: FoldPlan) -> bool:
    """True if vectors would mark many rows of a mirror's files, were each change to delete one."""
    files = fold.before.files  # none where only Hadoop reads the log
    rows, deleted = fold.before.rows if files else None, sum(file.deleted for file in files)
    return rows is not None and (deleted + fold.changes) * DELETED >= rows + deleted


def too_large(pipeline: Pipeline, fold: FoldPlan) -> str:
    """Why a mirror's files are not rewritten for its batch; empty if they may be."""
    size, most = extent(fold.before), budget(pipeline, fold)
    return (
        f"its {counted(size, 'byte')} are more than the {most:,} that {counted(fold.changes, 'change')} may rewrite"
        if size > most
        else ""
    )


def shared(mirror: Mirror, work: Work) -> int:
    """The changes that have to be folded key by key, if one process does not hold them all; else 0.

    Any number of new ones can be folded in pieces if the last one of each key tells its row.
    """
    again = _refolded(mirror, work)
    history, new = sum(lane.changes_ever for lane in again), sum(lane.changes for lane, _ in work)
    if history > (HISTORY_AT_MOST if mirror.keys else KEYLESS_AT_MOST):
        return history + sum(lane.changes for lane, _ in work if lane not in again)
    in_pieces = not (again or mirror.expressions) and all(_last_ones_tell(lane) for lane, _ in work)
    return new if new > CHANGES_AT_MOST and not in_pieces else 0


def _last_ones_tell(lane: Lane) -> bool:
    """True if the last new change of each key tells its row: it carries all of it, and no row leaves a key to which another one
    may have come before (`ingest.departures`).
    """
    may_meet = lane.new.key_changes or (lane.deletes and lane.inserts)
    return not (lane.new.partials or may_meet or lane.late)


def _meets(rule: TableRule, mirror: Mirror, present: Mapping[str, object], *, stated: bool) -> bool:
    """True if a table has the mirror's columns, or gets them when its file is rewritten.

    New statements require all rows again, with whatever columns next to the key. Otherwise columns come or become wider;
    without a key none is dropped, because its values may be those of a renamed one.
    """
    stays = kept(mirror, present)
    if stated and not rule.shard_column and (mirror.keys or rule.no_key == "full_row"):
        return all(stays[key] for key in mirror.keys)
    goes = not {column.column for column in mirror.columns} >= present.keys()
    return bool(mirror.keys or not goes) and all(stays.values())


def kept(mirror: Mirror, there: Mapping[str, object]) -> dict[str, bool]:
    """Whether a mirror's columns can hold what they hold in its table, by their names; one that the table lacks holds nothing."""
    return {
        column.name: column.column not in there
        or types.widens(type_of_log(there[column.column]), column.delta)
        for column in mirror.columns
    }


def goes_on(work: Work) -> bool:
    """True if the new changes are folded by themselves, without what silver holds of earlier batches."""
    return not any(lane.late or refolds(lane, steps) for lane, steps in work)


def work_of(pipeline: Pipeline, books: Books, ledger: Ledger, plan: Plan, applied: int) -> Work:
    """The lanes with new batches, each with its schema steps; all lanes of a mirror that merges them."""
    work = []
    merged, lines = plan.job.merged, dict(plan.job.lines)
    if merged and any(line.batch > applied for line in plan.job.every_line):
        lines = {name: lines.get(name, []) for name in lanes_of(pipeline, books, plan.mirror.path)}
    for name, lane_lines in lines.items():
        lane = pending_lane(books, name, lane_lines, applied, _keys_of(plan, name))
        if lane is not None:
            lane, steps = _by_rules(pipeline, ledger, plan, lane, applied)
            work.append((lane, steps))
    return tuple(work)


def whole_of(pipeline: Pipeline, books: Books, ledger: Ledger, plan: Plan, applied: int) -> Work:
    """All of the mirror's lanes from their first change, each with its schema steps."""
    names = lanes_of(pipeline, books, plan.mirror.path)
    lanes = (whole_lane(books, name, _keys_of(plan, name)) for name in names)
    return tuple(_by_rules(pipeline, ledger, plan, lane, applied) for lane in lanes)


def _keys_of(plan: Plan, name: LaneId) -> LaneKeys:
    mirror, rule = plan.mirror, plan.job.rule
    keys = mirror.keys_without(rule.shard_column)
    return LaneKeys(keys, mirror.eras_of(*name), bool(rule.keys), plan.job.merged)


def _by_rules(pipeline: Pipeline, ledger: Ledger, plan: Plan, lane: Lane, applied: int) -> tuple[Lane, Steps]:
    """The lane with what the mirror's rules need of it, and its schema steps; those of statements up to the batch ``applied``
    are what they were when the mirror folded them.
    """
    name = lane.source, lane.table
    stamped = replace(
        lane,
        shard=plan.mirror.shard_of(name),
        stamps=stamps_of(plan.mirror, *name),
        shared_reads=pipeline.shared_reads(lane.source),
    )
    lane = _needing_history(stamped, plan.mirror)
    subject = subject_of(plan.job, plan.mirror, name, plan.free_until)
    # there are no rows before the first change then
    begins = bool(lane.order_low) and not lane.folded_high
    statements = ledger.of(*name, lane.last)
    folded = ledger.states(plan.mirror.path, (each for each in statements if each.batch <= applied))
    steps = lane_steps(statements, replace(subject, recorded=folded), 0 if begins else lane.first)
    if begins:
        steps = steps.after(lane.order_low)
    return lane, steps


def _needing_history(lane: Lane, mirror: Mirror) -> Lane:
    """The lane; changes that need their key's history are counted as inheriting, which lets it be folded.

    If the mirror has a condition or computed columns, these are partial updates, because expressions are evaluated on
    whole rows, and a row that did not meet a condition is not in the mirror. If it keeps deleted rows, these are all
    changes that may delete a row, or leave out columns of a deleted one.
    """
    if mirror.soft:
        whole = lane.deletes or lane.truncates or lane.late or lane.new.partials or lane.new.key_changes
        return replace(lane, inherits=lane.inherits + bool(whole), inherits_ever=lane.inherits_ever + 1)
    if not mirror.expressions:
        return lane
    new, ever = lane.inherits + int(lane.new.partials), lane.inherits_ever + int(lane.ever.partials)
    return replace(lane, inherits=new, inherits_ever=ever)
