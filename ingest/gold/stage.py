"""The gold stage: decide what each mirror with new batches shall be, plan its part, and fold it by Arrow or by Spark.

One mirror's failure neither stops nor delays another. The next run tries the failed one again, because its progress is
in its own log.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from ingest import types
from ingest.config import matches
from ingest.errors import HeldError
from ingest.gold import apply_spark, collision, keyless, misfits, servers, shaped
from ingest.gold import ledger as ledgers
from ingest.gold.completed import folded
from ingest.gold.ledger import Ledger
from ingest.gold.planner import FoldPlan, fold_plan
from ingest.gold.rekeyed import ask
from ingest.gold.results import Folded, MirrorCommit
from ingest.gold.schema import RETYPED, Plan, decide, is_recomputed, recomputed
from ingest.gold.work import Books, Job, catch_up, incomplete, jobs, stated
from ingest.lake import decisions, faults, histories, mirrors, pauses
from ingest.lake.books import Line
from ingest.lake.decisions import FOLDED, Decision
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Mirror
from ingest.lake.names import folded as folded_name
from ingest.spark.deferred import has_started, start

THREADS = 3  # more threads do not help: a MERGE's cost is planning and commits (see benchmarks)
UNREAD = "statements_not_read"  # among a mirror's counts
Tell = Callable[[str, str], None]
Again = Callable[[Lake, Mirror, int, Tell], tuple[Folded, Mirror]]
"""Folds a mirror again from its first change up to a batch, and returns the mirror as decided then
(`ingest.gold.rebuild`)."""


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
    names = {job.path: str(job.table) for job in chosen} | {
        path: one.name for path, one in decided.items() if path in lagging and not lake.select
    }
    paused = lake.paused & names.keys()
    done = [Folded(names[path], path, "paused", message=pauses.PAUSED) for path in paused]
    done += [one for path, one in asleep.items() if path not in lake.paused]
    stage = _Stage(lake, books, ledger, decided, tell, again)
    made = [stage.decide(job, settled) for job in chosen if job.path not in resting]
    plans = [one for one in made if isinstance(one, Plan)]
    decisions.append(lake, [record for one in plans for record in stage.records(one)])
    done += [one for one in made if isinstance(one, Folded)]
    done += stage.fold(plans)
    return sorted(done, key=lambda one: one.mirror)


@dataclass(frozen=True, slots=True)
class _Stage:
    """What the mirrors of one batch share."""

    lake: Lake
    books: Books
    ledger: Ledger
    decided: dict[str, Mirror]  # by path; mirrors that come or change are put in
    tell: Tell
    again: Again | None

    # --- before -----------------------------------------------------------------------------------

    def decide(self, job: Job, settled: int) -> Plan | Folded:
        """What a mirror shall be with this batch; its result if that holds it or fails."""
        lake, books, known = self.lake, self.books, self.decided.get(job.path)
        try:
            servers.refuse_another(lake.pipeline, books, job)
            first = max(books.first_rows(job), settled)
            plan = decide(
                lake.pipeline, job, known, self.ledger, self._applied(job, known), first,
                partial(lake.exists, job.path),
                lambda name, last: ask(lake, *name, min(last or books.last, books.last)),
            )  # fmt: skip
        except HeldError as error:
            return Folded(str(job.table), job.path, "held", message=str(error))
        except Exception as error:  # a damaged log, for example: the others go on
            return Folded(
                str(job.table), job.path, "failed", message=self._why(str(job.table), job.path, error)
            )
        if job.rule.history and plan.mirror.keys:
            return replace(plan, mirror=histories.named(plan.mirror, known))
        return plan

    def records(self, plan: Plan) -> Iterator[Decision]:
        """What is decided of a mirror, for the table `decisions`: its columns, and what new statements do to it.

        The latter is recorded now, because the texts describe the schema before the statements are applied.
        """
        path, known = plan.mirror.path, self.decided.get(plan.mirror.path)
        has_rows = plan.mirror.keys or (plan.mirror.columns and (plan.job.has_changes or known is not None))
        if not plan.whole and plan.mirror != known and has_rows:
            self.decided[path] = plan.mirror
            yield mirrors.decision(plan.mirror, self.books.last, "columns seen")
        for one, verdict in plan.verdicts:
            if self.ledger.recorded.get((path, one.id)) != (verdict.state, verdict.does):
                value = {"statement": one.id, "state": verdict.state, "does": list(verdict.does)}
                yield Decision(FOLDED, path, value, one.batch, "folded")

    def _applied(self, job: Job, mirror: Mirror | None) -> int:
        """The last batch that a mirror has folded; its log is read only if a policy may need the answer."""
        asked = job.rule.on_schema_change == "freeze" or any(self.ledger.of(*name) for name in job.lines)
        if mirror is None or not asked:
            return self.books.applied(job.path)
        return max(folded(self.lake, mirror), self.books.applied(job.path))

    # --- the folds --------------------------------------------------------------------------------

    def fold(self, plans: list[Plan]) -> Iterable[Folded]:
        """Fold all mirrors: those that Arrow can first and together, then each of the others by Spark."""
        spark, done = self.lake.spark, []
        with ThreadPoolExecutor(THREADS, thread_name_prefix="mirror") as pool:
            # A session that has not started may start here, and must do so in this thread, which takes signals
            side_by_side = pool.map if has_started(spark) else map
            foreseen = [one for one in side_by_side(self._foreseen, plans) if one is not None]
            commits = self._by_arrow([one for one in foreseen if one.work and not one.why_spark])
            folds = {  # of a refused one, what was read earlier may be out of date
                path: one
                for one in foreseen
                if (path := one.plan.mirror.path) not in commits or not commits[path].refused
            }

            def fold_one(plan: Plan) -> Folded:
                return self._one(plan, folds.get(plan.mirror.path), commits.get(plan.mirror.path))

            if not has_started(spark):  # a mirror that is folded again may start it in this thread
                done = [fold_one(one) for one in plans if one.whole]
                plans = [one for one in plans if not one.whole]
            if any(_needs_spark(one, folds, commits) for one in plans):
                start(spark)
            done += pool.map(fold_one, plans)
        return done

    def _foreseen(self, plan: Plan) -> FoldPlan | None:
        """The plan for a mirror; None if the mirror's own fold must decide it, or must report the error."""
        if plan.whole or not (plan.mirror.keys or plan.is_keyless) or self.lake.stop():
            return None
        try:
            return self._fold_plan(plan)
        except Exception:
            return None

    def _fold_plan(self, plan: Plan) -> FoldPlan:
        return fold_plan(self.lake, self._until(plan), self.ledger, plan)

    def _until(self, plan: Plan) -> Books:
        """The books up to what holds the mirror, if anything does."""
        return self.books if plan.hold is None else self.books.before(plan.hold.batch)

    def _by_arrow(self, plans: list[FoldPlan]) -> dict[str, MirrorCommit]:
        if not plans:
            return {}
        from ingest.gold.apply_arrow import fold  # few need delta-rs

        return fold(self.lake, plans, self.tell)

    def _one(self, plan: Plan, fold: FoldPlan | None, commit: MirrorCommit | None) -> Folded:
        """Fold one mirror, or take what Arrow has committed."""
        started = time.monotonic() - (commit.seconds if commit else 0)
        result = Folded(plan.mirror.name, plan.mirror.path, "done", began=self.lake.now())
        if commit is None and self.lake.stop():
            result.state = "skipped"
            return result
        try:
            if plan.whole:
                self._fold_again(plan, result)
            elif plan.mirror.keys or plan.is_keyless:
                if commit is not None:
                    collision.refuse(commit.held, plan.mirror.table, plan.job.rule)
                    shaped.refuse(commit.held, plan.job.rule)
                if commit is not None and not commit.refused:
                    _take(result, commit)
                    result.counts |= keyless.not_applied(plan, fold.work) if fold else {}
                else:
                    plan = self._by_spark(plan, fold, commit, result)
                if plan.job.rule.history and plan.mirror.keys:
                    apply_spark.fold_history(self.lake, self._until(plan), self.ledger, plan, self.tell)
            else:
                result.state = "skipped"
            if plan.hold is not None and result.state in ("done", "skipped"):
                result.state, result.message, result.waits = "held", plan.hold.why, True
        except HeldError as error:
            result.state, result.message = "held", str(error)
        except Exception as error:  # a failure of one mirror does not stop the others
            result.state, result.message = "failed", self._why(plan.mirror.name, plan.mirror.path, error)
        if plan.left_out:
            result.counts["columns_left_out"] = len(plan.left_out)
        if plan.noticed:
            result.counts[UNREAD] = plan.noticed
        result.seconds = time.monotonic() - started
        return result

    def _by_spark(
        self, plan: Plan, fold: FoldPlan | None, commit: MirrorCommit | None, result: Folded
    ) -> Plan:
        """Fold a mirror by Spark; returns the plan with the columns that the values need."""
        fold = fold or self._fold_plan(plan)
        if commit is not None:
            fold = replace(fold, why_spark=commit.refused)
        try:
            apply_spark.fold(self.lake, fold, result, self.tell)
        except misfits.Outgrown as wider:
            wide = recomputed(plan.job.rule, wider.mirror)
            redone = fold.before.exists and is_recomputed(plan.mirror, wide)
            plan = replace(plan, mirror=wide, whole=RETYPED if redone else "")
            if plan.whole:
                self._fold_again(plan, result)
            else:
                self.decided[plan.mirror.path] = wide
                decisions.append(self.lake, [mirrors.decision(wide, self.books.last, "values seen")])
                apply_spark.fold(self.lake, self._fold_plan(plan), result, self.tell)
        return plan

    def _fold_again(self, plan: Plan, result: Folded) -> None:
        """Fold a mirror again from its first change, after its key or rules have changed, and publish it in one
        commit.
        """
        path = plan.mirror.path
        if self.again is None:
            raise HeldError(f"{plan.whole}, so that it must be folded again: `ingest run` does that.")
        last = self.books.last if plan.hold is None else plan.hold.batch - 1
        found, self.decided[path] = self.again(self.lake, self.decided[path], last, self.tell)
        result.state, result.message = found.state, found.message
        result.version, result.size, result.counts = found.version, found.size, found.counts
        result.why_spark = found.why_spark

    def _why(self, name: str, path: str, error: Exception) -> str:
        return faults.of_mirror(error, self.lake.pipeline.file, name, self.lake.path(path))


def _take(result: Folded, commit: MirrorCommit) -> None:
    """Take over what Arrow has committed."""
    commit.refuse()
    result.version, result.size, result.why_spark = commit.version, commit.size, ""
    result.counts = dict(commit.counts)
    if result.began is not None:
        result.began -= dt.timedelta(seconds=commit.seconds)


def _needs_spark(plan: Plan, folds: Mapping[str, FoldPlan], commits: Mapping[str, MirrorCommit]) -> bool:
    """True if something is left to do for a mirror after Arrow's part."""
    path = plan.mirror.path
    if not (plan.mirror.keys or plan.is_keyless):
        return False
    if path in commits and not commits[path].refused:
        return plan.job.rule.history and not commits[path].held
    return path not in folds or bool(folds[path].work)


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
    row or an expression needs, and for a column of another type or spelling; or if they name no key, which an earlier
    statement may have dropped.
    """
    keys = set(mirror.keys) - {job.rule.shard_column}
    known = {one.name: one.type for one in mirror.columns}
    spelt = {folded_name(name) for name in known}
    rekeys = not all(keys <= set(one) for one in line.keys)
    return (
        not keys
        or mirror.soft
        or bool(line.changes and not line.keys and not job.rule.keys)
        or bool(mirror.expressions or line.inherits)
        or bool(line.partials and rekeys)
        or any(
            types.delta(types.grown(known[name], one)) != types.delta(known[name])
            if name in known
            else folded_name(name) in spelt
            for name, one in line.columns.items()
        )
    )
