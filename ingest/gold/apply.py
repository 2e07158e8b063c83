"""The gold stage: fold and merge every mirror that has new batches, each on its own.

One mirror's failure neither stops nor delays another. The next run tries the failed one again, because its progress is
in its own log.
"""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from types import MappingProxyType
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest import types
from ingest.config import matches
from ingest.errors import HeldError
from ingest.fold import SchemaStep
from ingest.gold import collision, forgotten, history, keyless, misfits, retyped, servers, tables, watch
from ingest.gold import ledger as ledgers
from ingest.gold import merge as merging
from ingest.gold.completed import STAGE, folded
from ingest.gold.fold import has_name
from ingest.gold.gather import Gathered, gather, gather_merged, one_of
from ingest.gold.lane import Lane, Shape, Steps, lane_name
from ingest.gold.ledger import Ledger
from ingest.gold.planner import FoldPlan, Work, fold_plan, goes_on, rows_merged, whole_of, work_of
from ingest.gold.rekeyed import ask
from ingest.gold.schema import RETYPED, Plan, decide, is_recomputed, recomputed
from ingest.gold.shaped import refuse, shaped
from ingest.gold.work import Books, Job, catch_up, incomplete, jobs, stated
from ingest.lake import condensed, decisions, faults, histories, mirrors, pauses
from ingest.lake.books import Line
from ingest.lake.decisions import FOLDED, Decision
from ingest.lake.deferred import has_started, start
from ingest.lake.delta import Snapshot
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Mirror
from ingest.lake.names import folded as folded_name
from ingest.lake.pace import SMALL, extent, narrow, pace
from ingest.lake.schemas import CHANGES
from ingest.lake.session import new_session
from ingest.lake.settings import USER_METADATA, is_set

if TYPE_CHECKING:
    from ingest.gold.apply_arrow import MirrorCommit

THREADS = 3  # more threads do not help: a MERGE's cost is planning and commits (see benchmarks)
# A mirror that is small compared with its batch is rewritten, because deletion vectors cost some ten more Spark jobs.
# The old files stay on disk for the retention period: so at most this many bytes for each change, and at most `SMALL`.
REWRITTEN = 1 << 10  # bytes
_VECTORS = "spark.databricks.delta.merge.deletionVectors.persistent"
UNREAD = "statements_not_read"  # among a mirror's counts
Tell = Callable[[str, str], None]
Again = Callable[[Lake, Mirror, int, Tell], tuple["Folded", Mirror]]
"""Folds a mirror again from its first change up to a batch, and returns the mirror as decided then
(`ingest.gold.rebuild`)."""


@dataclass(slots=True)
class Folded:
    """What happened to one mirror."""

    mirror: str
    path: str
    state: str  # done | failed | held | skipped | paused
    version: int = -1
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    message: str = ""
    size: int = 0  # bytes of its table
    began: dt.datetime | None = None  # None if nothing was begun
    waits: bool = False  # held for a decision: no message can change that
    why_spark: str | None = None  # why Spark folded it; empty if Arrow did, None if nothing was folded


def apply(
    lake: Lake,
    books: Books,
    decided: dict[str, Mirror],
    tell: Tell = lambda _mirror, _step: None,
    *,
    lagging: Collection[str] = (),
    asleep: Mapping[str, Folded] = MappingProxyType({}),
    settled: int = 0,
    again: Again | None = None,
) -> list[Folded]:
    """Fold every mirror that has new batches, and those that lag.

    Args:
        lake: the lake.
        books: the work list.
        decided: each mirror's schema as last decided; new decisions are added.
        tell: called with the mirror and the step that it begins.
        settled: the last batch that all existing mirrors have folded, so that it is not looked at again.
        lagging: paths of mirrors that have not folded all batches that the books sum up.
        asleep: those of them that wait for a decision, each with its last result.
        again: folds a mirror again after its key has changed; without it such a mirror is held.
    """
    resting = lake.paused | asleep.keys()
    touched = {job.path for job in jobs(lake.pipeline, books)}
    books = catch_up(lake, books, incomplete(lake, books, decided, touched - resting, {*lagging} - resting))
    ledger = Ledger()
    if _needs_ledger(lake, books, decided):
        ledger = ledgers.read(lake, books.lanes, books.last)
        books = stated(lake.pipeline, books, ledger.statements)
    chosen = [job for job in jobs(lake.pipeline, books) if not lake.select or matches(lake.select, job.table)]
    todo = [job for job in chosen if job.path not in resting]
    wanted: list[Plan] = []
    names = {job.path: str(job.table) for job in chosen} | {
        path: one.name for path, one in decided.items() if path in lagging and not lake.select
    }
    done = [
        Folded(name, path, "paused", message=pauses.PAUSED)
        for path, name in names.items()
        if path in lake.paused
    ]
    done += [one for path, one in asleep.items() if path not in lake.paused]
    rows = []
    for job in todo:
        known = decided.get(job.path)
        try:
            servers.refuse_another(lake.pipeline, books, job)
            applied = _applied(lake, books, ledger, job, known)
            first = max(books.first_rows(job), settled)
            plan = decide(
                lake.pipeline, job, known, ledger, applied, first, partial(lake.exists, job.path),
                lambda name, last: ask(lake, *name, min(last or books.last, books.last)),
            )  # fmt: skip
        except HeldError as error:
            done.append(Folded(str(job.table), job.path, "held", message=str(error)))
            continue
        except Exception as error:  # a damaged log, for example: the others go on
            done.append(
                Folded(
                    str(job.table), job.path, "failed", message=_why(lake, str(job.table), job.path, error)
                )
            )
            continue
        if job.rule.history and plan.mirror.keys:
            plan = replace(plan, mirror=histories.named(plan.mirror, known))
        if (
            not plan.whole
            and plan.mirror != known
            and (plan.mirror.keys or (plan.mirror.columns and (plan.job.has_changes or known is not None)))
        ):
            rows.append(mirrors.decision(plan.mirror, books.last, "columns seen"))
            decided[job.path] = plan.mirror
        rows.extend(_records(ledger, plan))
        wanted.append(plan)
    decisions.append(lake, rows)
    with ThreadPoolExecutor(THREADS, thread_name_prefix="mirror") as pool:
        # A session that has not started may start here, and must do so in this thread, which takes signals
        side_by_side = pool.map if has_started(lake.spark) else map
        plans = side_by_side(lambda one: _foreseen(lake, books, ledger, one), wanted)
        folds = {one.plan.mirror.path: one for one in plans if one is not None}
        plain = [one for one in folds.values() if one.work and not one.why_spark]
        merged = _by_arrow(lake, plain, tell)
        for path, one in merged.items():
            if one.refused:  # what was read earlier may be out of date
                del folds[path]

        def folded_one(plan: Plan) -> Folded:
            path = plan.mirror.path
            return _one(lake, books, ledger, plan, tell, decided, again, folds.get(path), merged.get(path))

        started = has_started(lake.spark)  # if not, a mirror that is folded again may start it in this thread
        done.extend(folded_one(one) for one in wanted if one.whole and not started)
        rest = [one for one in wanted if started or not one.whole]
        if any(_needs_spark(one, folds, merged) for one in rest):
            start(lake.spark)
        done.extend(pool.map(folded_one, rest))
    return sorted(done, key=lambda one: one.mirror)


def _needs_spark(plan: Plan, folds: Mapping[str, FoldPlan], merged: Mapping[str, MirrorCommit]) -> bool:
    """True if something is left to do for a mirror after Arrow's part."""
    path = plan.mirror.path
    if not (plan.mirror.keys or plan.is_keyless):
        return False
    if path in merged and not merged[path].refused:
        return plan.job.rule.history and not merged[path].held
    return path not in folds or bool(folds[path].work)


def _by_arrow(lake: Lake, plain: list[FoldPlan], tell: Tell) -> dict[str, MirrorCommit]:
    if not plain:
        return {}
    from ingest.gold.apply_arrow import fold  # few need delta-rs

    return fold(lake, plain, tell)


def _foreseen(lake: Lake, books: Books, ledger: Ledger, plan: Plan) -> FoldPlan | None:
    """The plan for a mirror; None if the mirror's own fold must decide it, or must report the error."""
    if plan.whole or not (plan.mirror.keys or plan.is_keyless) or lake.stop():
        return None
    try:
        return fold_plan(lake, _until(books, plan), ledger, plan)
    except Exception:
        return None


def _until(books: Books, plan: Plan) -> Books:
    return books if plan.hold is None else books.before(plan.hold.batch)


def _records(ledger: Ledger, plan: Plan) -> Iterator[Decision]:
    """What new statements do to a mirror; recorded now, because the texts describe its schema before they are
    applied.
    """
    path = plan.mirror.path
    for one, verdict in plan.verdicts:
        if ledger.recorded.get((path, one.id)) != (verdict.state, verdict.does):
            value = {"statement": one.id, "state": verdict.state, "does": list(verdict.does)}
            yield Decision(FOLDED, path, value, one.batch, "folded")


def _needs_ledger(lake: Lake, books: Books, decided: dict[str, Mirror]) -> bool:
    """True if the mirror is new or lags, if there are new statements, if changes are older than a statement of their
    source, or if a mirror's earlier rows are folded again, which statements have changed.

    A statement may concern other tables than its message names.
    """
    if books.lagging or any(line.ddl for line in books.lines):
        return True
    highest: dict[str, str] = {}
    for (source, _), past in books.histories.items():
        if past.stated is not None:
            highest[source] = max(highest.get(source, ""), past.stated)
    lines = [line for line in books.lines if line.source in highest]
    if any((line.order_low or "") <= highest[line.source] for line in lines):
        return True
    return any(
        job.merged
        or job.path not in decided
        or any(_reads_history(job, decided[job.path], line) for line in mine if line.source in highest)
        for job in jobs(lake.pipeline, books)
        for mine in job.lines.values()
    )


def _reads_history(job: Job, mirror: Mirror, line: Line) -> bool:
    """True if the changes of a line may require earlier ones: without a key, for values that a changed key, a deleted
    row or an expression needs, and for a column of another type or spelling.
    """
    keys = set(mirror.keys) - {job.rule.shard_column}
    known = {one.name: one.type for one in mirror.columns}
    spelt = {folded_name(name) for name in known}
    rekeys = not all(keys <= set(one) for one in line.keys)
    return (
        not keys
        or mirror.soft
        or bool(mirror.expressions or line.inherits)
        or bool(line.partials and rekeys)
        or any(
            types.delta(types.grown(known[name], one)) != types.delta(known[name])
            if name in known
            else folded_name(name) in spelt
            for name, one in line.columns.items()
        )
    )


def _applied(lake: Lake, books: Books, ledger: Ledger, job: Job, mirror: Mirror | None) -> int:
    """The last batch that a mirror has folded; its log is read only if a policy may need the answer."""
    asked = job.rule.on_schema_change == "freeze" or any(ledger.of(*name) for name in job.lines)
    if mirror is None or not asked:
        return books.applied(job.path)
    return max(folded(lake, mirror), books.applied(job.path))


def _one(
    lake: Lake,
    books: Books,
    ledger: Ledger,
    plan: Plan,
    tell: Tell,
    decided: dict[str, Mirror],
    again: Again | None,
    fold: FoldPlan | None,
    merged: MirrorCommit | None,
) -> Folded:
    started = time.monotonic()
    result = Folded(plan.mirror.name, plan.mirror.path, "done", began=lake.now())
    if merged is None and lake.stop():
        result.state = "skipped"
        return result
    try:
        if plan.whole:
            _fold_again(lake, books, plan, decided, result, tell, again)
        elif plan.mirror.keys or plan.is_keyless:
            until = _until(books, plan)
            if merged is not None:
                collision.refuse(merged.held, plan.mirror.table, plan.job.rule)
            if merged is not None and not merged.refused:
                merged.refuse()
                result.version, result.size, result.why_spark = merged.version, merged.size, ""
                result.counts = dict(merged.counts) | (keyless.not_applied(plan, fold.work) if fold else {})
                started -= merged.seconds
                result.began = lake.now() - dt.timedelta(seconds=merged.seconds)
            else:
                fold = fold or fold_plan(lake, until, ledger, plan)
                if merged is not None:
                    fold = replace(fold, why_spark=merged.refused)
                try:
                    _fold(lake, fold, result, tell)
                except misfits.Outgrown as wider:
                    wide = recomputed(plan.job.rule, wider.mirror)
                    redone = fold.before.exists and is_recomputed(plan.mirror, wide)
                    plan = replace(plan, mirror=wide, whole=RETYPED if redone else "")
                    if plan.whole:
                        _fold_again(lake, books, plan, decided, result, tell, again)
                    else:
                        decided[plan.mirror.path] = wide
                        decisions.append(lake, [mirrors.decision(wide, books.last, "values seen")])
                        _fold(lake, fold_plan(lake, until, ledger, plan), result, tell)
            if plan.job.rule.history and plan.mirror.keys:
                _fold_history(lake, until, ledger, plan, tell)
        else:
            result.state = "skipped"
        if plan.hold is not None and result.state in ("done", "skipped"):
            result.state, result.message, result.waits = "held", plan.hold.why, True
    except HeldError as error:
        result.state, result.message = "held", str(error)
    except Exception as error:  # a failure of one mirror does not stop the others
        result.state, result.message = "failed", _why(lake, plan.mirror.name, plan.mirror.path, error)
    if plan.left_out:
        result.counts["columns_left_out"] = len(plan.left_out)
    if plan.noticed:
        result.counts[UNREAD] = plan.noticed
    result.seconds = time.monotonic() - started
    return result


def _why(lake: Lake, name: str, path: str, error: Exception) -> str:
    return faults.of_mirror(error, lake.pipeline.file, name, lake.path(path))


def _fold(lake: Lake, fold: FoldPlan, result: Folded, tell: Tell) -> None:
    """Fold by Spark."""
    plan, before, work, again, fresh = fold.plan, fold.before, fold.work, fold.again, fold.fresh
    mirror, books = plan.mirror, fold.books
    result.version = before.version
    if not work:
        result.state = "skipped"
        _finish(lake, mirror, before)
        return
    result.why_spark = fold.why_spark
    session = _session(lake, books, work, before)
    if mirror.keys and goes_on(work):
        narrow(session, _changes(work), extent(before))
    for one, _ in work:
        if one.folded_high is None and condensed.ever(lake):
            keys = tuple(key for key in mirror.keys if key != plan.job.rule.shard_column)
            condensed.refuse_keys(lake, (one.source, one.table), one.eras or ((("", keys)),))
    guard = merging.Guard(fold.writer, books.last, lake.metadata(books.last, landed=True))
    if again:
        tables.allow_zoneless(lake, session, mirror, [one.delta for one in mirror.columns])
    forgotten.refuse(replace(lake, spark=session), mirror, [one for one, _ in work])
    if not fresh and not again:
        tell(mirror.name, "schema")
        fills = [] if plan.job.merged else [step for _, steps in work for step in steps.fills]
        _prepare(lake, session, plan, before, fills)
    if open_columns := retyped.keep(lake, mirror, fold.retyped, books.last):
        result.counts[misfits.COUNTED] = open_columns
    tell(mirror.name, "load" if fresh else "merge")
    if mirror.keys:
        result.counts = dict(
            Counter(result.counts) + Counter(_merge(lake, session, plan, work, guard, fresh=fresh))
        )
    else:
        result.counts.update(keyless.fold(lake, session, plan, work, guard, again=again))
    after = lake.snapshot(mirror.path)
    if after.version > before.version:
        result.counts.update(_counts(lake, mirror, after.version))
    guard.take_off(session)
    if mirror.keys and tables.drop_columns(lake, session, mirror, after.columns):
        after = lake.snapshot(mirror.path)
    result.version, result.size = after.version, after.size or 0


def _fold_again(
    lake: Lake,
    books: Books,
    plan: Plan,
    decided: dict[str, Mirror],
    result: Folded,
    tell: Tell,
    again: Again | None,
) -> None:
    """Fold a mirror again from its first change, after its key or rules have changed, and publish it in one commit."""
    path = plan.mirror.path
    if again is None:
        raise HeldError(f"{plan.whole}, so that it must be folded again: `ingest run` does that.")
    last = books.last if plan.hold is None else plan.hold.batch - 1
    found, decided[path] = again(lake, decided[path], last, tell)
    result.state, result.message = found.state, found.message
    result.version, result.size, result.counts = found.version, found.size, found.counts
    result.why_spark = found.why_spark


def _fold_history(lake: Lake, books: Books, ledger: Ledger, plan: Plan, tell: Tell) -> None:
    """Bring the history table up to date; its progress is in its own log."""
    table = histories.table_of(plan.mirror)
    before, writer = lake.snapshot(table.path), lake.writer(STAGE, table.path, table.generation)
    applied = before.transactions.get(writer, -1)
    watch.refuse_past(lake, table, before.version, applied, books.last)
    work = work_of(lake.pipeline, books, ledger, plan, before, applied)
    if not work:
        return
    again = before.exists and tables.is_replaced(table, before.types)
    if again:
        work = whole_of(lake.pipeline, books, ledger, plan)
    session = _session(lake, books, work, before)
    tell(plan.mirror.name, "history")
    if again:
        tables.allow_zoneless(lake, session, table, [one.delta for one in table.columns])
    else:
        _prepare(lake, session, replace(plan, mirror=table), before, [])
    guard = merging.Guard(writer, books.last, lake.metadata(books.last, landed=True))
    history.fold(lake, session, plan.mirror, work, guard, again=again)


def _own_session(lake: Lake) -> SparkSession:
    """A session of the mirror's own: MERGE takes its identifier from the session's settings."""
    session = new_session(lake.spark)
    session.conf.set("spark.sql.caseSensitive", "true")  # columns that differ only in case are two
    session.conf.set(USER_METADATA, lake.metadata())  # all its commits are marked as ours
    return session


def _session(lake: Lake, books: Books, work: Work, before: Snapshot) -> SparkSession:
    """A mirror's own session, with settings for the sizes of its batch and table."""
    session = _own_session(lake)
    pace(session, books.changes, extent(before))
    small = extent(before) <= min(SMALL, _changes(work) * REWRITTEN)
    if before.exists and small and not is_set(session, _VECTORS):
        session.conf.set(_VECTORS, "false")
    return session


def _changes(work: Work) -> int:
    return sum(one.changes for one, _ in work)


def _prepare(
    lake: Lake, session: SparkSession, plan: Plan, before: Snapshot, steps: list[SchemaStep]
) -> None:
    """Do everything that must precede the guarded commit; all of it is safe to repeat."""
    mirror = plan.mirror
    if before.exists:
        tables.add_columns(lake, session, mirror, before.columns)
        tables.reshape(lake, session, mirror, before.columns, steps)
        return
    tables.create(lake, session, mirror, _made(lake, plan))


def _made(lake: Lake, plan: Plan) -> tables.Made:
    return tables.Made.of(lake.pipeline, plan.job.rule)


def _merge(
    lake: Lake, session: SparkSession, plan: Plan, work: Work, guard: merging.Guard, *, fresh: bool
) -> dict[str, int]:
    """Fold, and count the cells and changes that did not fit.

    A ``fresh`` mirror has no table yet: one commit creates it with its first rows, and there are no rows to merge with.
    """
    mirror = plan.mirror

    def fold(tolerant: bool) -> None:
        gathered = _gathered(lake, session, mirror, work, tolerant=tolerant)
        folded, shape = _together(gathered, mirror)
        if plan.job.merged:
            names = [lane_name(plan.job.lanes, (one.source, one.table)) for one, _ in work]
            folded = one_of(gathered, names, mirror)
        source = shaped(merging.typed(folded, mirror, shape, tolerant), mirror)
        existing = [_standing(mirror, one, *pair) for one, pair in zip(gathered, work, strict=True)]
        guard.set_on(session)
        if fresh:
            tables.load(lake, session, mirror, source, _made(lake, plan))
        else:
            if plan.job.merged:  # every row has an outcome, or nothing has changed it
                existing = []
            news = (
                goes_on(work) and not any(one.reads for one, _ in work) and not _made(lake, plan).change_feed
            )
            merging.merge(session, lake.path(mirror.path), mirror, source, shape, existing, news=news)

    def keep() -> int:
        changes = session.read.format("delta").load(lake.path(CHANGES.name))
        misfits.widen(changes, mirror, plan.job.rule, [one for one, _ in work])
        return _keep_misfits(lake, session, mirror, work, guard.batch)

    try:
        return misfits.meeting(fold, keep)
    except (PySparkException, Py4JJavaError) as error:
        refuse(error, plan.job.rule)
        collision.refuse(str(error), mirror.table, plan.job.rule)
        raise


def _standing(mirror: Mirror, gathered: Gathered, lane: Lane, steps: Steps) -> merging.Standing:
    shard = lane.shard
    if shard is not None:
        shard = next(one.column for one in mirror.columns if one.name == shard[0]), shard[1]
    return merging.Standing(gathered.clears, steps.fills, shard)


def _gathered(
    lake: Lake, session: SparkSession, mirror: Mirror, work: Work, *, tolerant: bool
) -> list[Gathered]:
    changes = session.read.format("delta").load(lake.path(CHANGES.name))
    if rows_merged(work):
        return gather_merged(changes, mirror, work, tolerant)
    return [gather(changes, mirror, one, steps, tolerant) for one, steps in work]


def _together(gathered: list[Gathered], mirror: Mirror) -> tuple[DataFrame, Shape]:
    """The outcomes of all lanes in one shape: if one lane is partial, the others mark every column as sent."""
    shape = Shape(
        any(one.shape.partials for one in gathered),
        any(one.shape.key_changes for one in gathered),
        any(one.clears for one in gathered),
    )
    flags = {has_name(i): F.lit(True) for i in range(len(mirror.columns))}
    frames = [
        one.outcomes.withColumns(flags) if shape.partials and not one.shape.partials else one.outcomes
        for one in gathered
    ]
    return reduce(DataFrame.unionByName, frames), shape


def _keep_misfits(lake: Lake, session: SparkSession, mirror: Mirror, work: Work, batch: int) -> int:
    """Write what does not fit to `rejects`, guarded, before the merge that omits it."""
    changes = session.read.format("delta").load(lake.path(CHANGES.name))
    found = [misfits.changes(changes, mirror, one) for one, _ in work]
    for gathered, (one, _) in zip(_gathered(lake, session, mirror, work, tolerant=True), work, strict=True):
        cells = misfits.cells(gathered.outcomes, changes, mirror, one, batch)
        if cells is not None:
            found.append(cells)
    return misfits.keep(replace(lake, spark=session), mirror, found, batch)


def _finish(lake: Lake, mirror: Mirror, before: Snapshot) -> None:
    """Finish what a run killed after its merge left undone: drop columns whose values the merge has carried to their
    new names.
    """
    if mirror.keys and before.exists and tables.left(mirror, before.columns):
        session = _own_session(lake)
        pace(session, 0, extent(before))
        tables.drop_columns(lake, session, mirror, before.columns)


def _counts(lake: Lake, mirror: Mirror, version: int) -> dict[str, int]:
    """The MERGE's counts, from its own commit."""
    for action in lake.actions(mirror.path, version):
        metrics = action.get("commitInfo", {}).get("operationMetrics", {})
        if metrics and "numTargetRowsInserted" not in metrics:  # the commit that made the table
            rows, size = int(metrics.get("numOutputRows", 0)), int(metrics.get("numOutputBytes", 0))
            return {"inserted": rows, "written": rows, tables.REWRITTEN: size}
        if metrics:
            return {
                tables.METRICS[name]: int(value) for name, value in metrics.items() if name in tables.METRICS
            }
    return {}
