"""The gold stage: decide what each mirror with new batches shall be, plan its part, and fold it by Arrow or by Spark.

One mirror's failure neither stops nor delays another. The next run tries the failed one again, because its progress is
in its own log.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from ingest.errors import HeldError, StoreError, command, counted
from ingest.gold import apply_spark, collision, history, keyless, misfits
from ingest.gold.batch import NO_BACKLOG, Backlog, Batch, plan_batch
from ingest.gold.mirror_schema import RETYPED, Plan, is_recomputed, recomputed
from ingest.gold.planner import FoldPlan, fold_plan
from ingest.gold.results import Folded, MirrorCommit
from ingest.gold.work import Books
from ingest.lake import conditions, decisions, mirrors
from ingest.lake.lake import Lake, Tell
from ingest.lake.mirrors import Mirror

THREADS = 3  # more threads do not help: a MERGE's cost is planning and commits (see benchmarks)
UNREAD = "statements_not_read"  # among a mirror's counts
Rebuild = Callable[[Lake, Mirror, int, Tell], tuple[Folded, Mirror]]
"""Folds a mirror again from its first change up to a batch, and returns the mirror as decided then
(`ingest.gold.rebuild`)."""


def apply(
    lake: Lake,
    books: Books,
    decided: dict[str, Mirror],
    tell: Tell = lambda _mirror, _step: None,
    *,
    backlog: Backlog = NO_BACKLOG,
    rebuild: Rebuild | None = None,
) -> list[Folded]:
    """Fold every mirror that has new batches, and those that lag: plan all of them, record the plan, execute it.

    Args:
        lake: the lake.
        books: the work list.
        decided: each mirror's schema as last decided; new decisions are added.
        tell: called with the mirror and the step that it begins.
        backlog: the mirrors that lag, wait for a decision or are paused.
        rebuild: folds a mirror again after its key has changed; without it such a mirror is held.
    """
    batch = plan_batch(lake, books, decided, backlog)
    decisions.append(lake, list(batch.records(decided)))
    decided |= batch.renewed(decided)
    done = _Stage(lake, batch, decided, tell, rebuild).fold(batch.plans)
    return sorted([*batch.results, *done], key=lambda one: one.mirror)


@dataclass(frozen=True, slots=True)
class _Stage:
    """Executes the plans of one batch."""

    lake: Lake
    batch: Batch
    decided: dict[str, Mirror]  # by path; mirrors that come or change are put in
    tell: Tell
    rebuild: Rebuild | None
    followed: dict[str, Plan] = field(default_factory=dict)  # mirrors whose history tables come next, by path

    def fold(self, plans: list[Plan]) -> Iterable[Folded]:
        """Fold all mirrors: those that Arrow can first and together, then each of the others by Spark."""
        with ThreadPoolExecutor(THREADS, thread_name_prefix="mirror") as pool:
            foreseen = [one for one in pool.map(self._foreseen, plans) if one is not None]
            commits = self._by_arrow(foreseen)
            if any(one.wider for one in commits.values()):
                plans, foreseen = self._widened(plans, foreseen, commits)
            folds = {  # of a refused one, what was read earlier may be out of date
                path: one
                for one in foreseen
                if (path := one.plan.mirror.path) not in commits or not commits[path].refused
            }

            def fold_one(plan: Plan) -> Folded:
                return self._one(plan, folds.get(plan.mirror.path), commits.get(plan.mirror.path))

            done = list(pool.map(fold_one, plans))
        self._fold_histories(done)
        return done

    def _by_arrow(self, folds: Iterable[FoldPlan]) -> dict[str, MirrorCommit]:
        """Fold the mirrors that Arrow can; the result of each by its path."""
        plain = [one for one in folds if one.work and not one.why_spark]
        if not plain:
            return {}
        from ingest.gold.apply_arrow import fold  # few batches need delta-rs

        self.tell("gold", f"folding {counted(len(plain), 'mirror')}")
        return fold(self.lake, plain, self.tell)

    def _widened(
        self, plans: Iterable[Plan], folds: Iterable[FoldPlan], commits: dict[str, MirrorCommit]
    ) -> tuple[list[Plan], list[FoldPlan]]:
        """The plans with the columns that values need, which are decided now and folded; ``commits`` get their results."""
        before = {one.plan.mirror.path: one for one in folds}
        chosen = {plan.mirror.path: plan for plan in plans}
        for path, commit in list(commits.items()):
            if commit.wider is None:
                continue
            plan = chosen[path] = self._decided(chosen[path], commit.wider, redoes=before[path].before.exists)
            del commits[path], before[path]
            if not plan.why_rebuilt and (fold := self._foreseen(plan)) is not None:
                before[path] = fold
                commits |= self._by_arrow([fold])
        return list(chosen.values()), list(before.values())

    def _decided(self, plan: Plan, wider: Mirror, *, redoes: bool) -> Plan:
        """The plan with wider columns: decided, or to be folded again where a rule computes other values of them."""
        wide = recomputed(plan.job.rule, wider)
        if redoes and is_recomputed(plan.mirror, wide):
            return replace(plan, mirror=wide, why_rebuilt=RETYPED)
        self.decided[plan.mirror.path] = wide
        decisions.append(self.lake, [mirrors.decision(wide, self.batch.books.last, "values seen")])
        return replace(plan, mirror=wide)

    def _foreseen(self, plan: Plan) -> FoldPlan | None:
        """The plan for a mirror; None if the mirror's own fold must decide it, or must report the error."""
        if plan.why_rebuilt or not (plan.mirror.keys or plan.is_keyless) or self.lake.stop():
            return None
        try:
            return fold_plan(self.lake, self.batch, plan)
        except Exception:
            return None

    def _one(self, plan: Plan, fold: FoldPlan | None, commit: MirrorCommit | None) -> Folded:
        """Fold one mirror, or take what Arrow has committed."""
        started = time.monotonic() - (commit.seconds if commit else 0)
        result = Folded(plan.mirror.name, plan.mirror.path, "done", began=self.lake.now())
        result.verdicts = tuple(self.batch.verdicts(plan))
        if commit is None and self.lake.stop():
            result.state = "skipped"
            return result
        try:
            if plan.why_rebuilt:
                self._rebuild(plan, result)
            elif plan.mirror.keys or plan.is_keyless:
                if commit is not None:
                    collision.refuse(commit.held, plan.mirror.table, plan.job.rule)
                    conditions.refuse(commit.held, plan.job.rule)
                if commit is not None and not commit.refused:
                    _take(result, commit)
                    result.counts |= keyless.not_applied(plan, fold.work) if fold else {}
                else:
                    plan = self._by_spark(plan, fold, commit, result)
                if plan.job.rule.history and plan.mirror.keys:
                    self.followed[plan.mirror.path] = plan
            else:
                result.state = "skipped"
            if plan.hold is not None and result.state in ("done", "skipped"):
                result.state, result.message, result.waits = "held", plan.hold.why, True
                result.command = plan.hold.command
        except Exception as error:  # a failure of one mirror does not stop the others
            result.stop(self.lake, error)
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
        fold = fold or fold_plan(self.lake, self.batch, plan)
        if commit is not None:
            fold = replace(fold, why_spark=commit.refused)
        try:
            apply_spark.fold(self.lake, fold, result, self.tell)
        except misfits.Outgrown as wider:
            plan = self._decided(plan, wider.mirror, redoes=fold.before.exists)
            if plan.why_rebuilt:
                self._rebuild(plan, result)
            else:
                apply_spark.fold(self.lake, fold_plan(self.lake, self.batch, plan), result, self.tell)
        return plan

    def _fold_histories(self, results: Iterable[Folded]) -> None:
        """Bring history tables up to date, all together; a failure is that of the mirror."""
        by_path, folds = {one.path: one for one in results}, dict[str, FoldPlan]()
        for path, plan in self.followed.items():
            try:
                if fold := history.states_plan(self.lake, self.batch, plan):
                    self.tell(by_path[path].mirror, "history")
                    folds[path] = fold
            except Exception as error:
                by_path[path].stop(self.lake, error)
        if not folds:
            return
        from ingest.gold.apply_arrow import fold as fold_all

        commits = fold_all(self.lake, list(folds.values()), self.tell)
        for path, fold in folds.items():
            commit, result = commits[fold.plan.mirror.path], by_path[path]
            result.seconds += commit.seconds
            try:
                if commit.refused and not fold.why_merge:  # what files cannot be made of, a MERGE may take
                    again = history.states_plan(self.lake, self.batch, self.followed[path]) or fold
                    [commit] = fold_all(
                        self.lake, [replace(again, why_merge=commit.refused)], self.tell
                    ).values()
                _refuse_stopped(replace(commit, held=commit.held or commit.refused))
            except Exception as error:
                result.stop(self.lake, error)

    def _rebuild(self, plan: Plan, result: Folded) -> None:
        """Fold a mirror again from its first change, after its key or rules have changed, and publish it in one
        commit.
        """
        path = plan.mirror.path
        if self.rebuild is None:
            typed = command("run", self.lake.pipeline.file)
            raise HeldError(
                f"{plan.why_rebuilt}, so that it must be folded again: `{typed}` does that.", typed
            )
        last = self.batch.until(plan).last
        found, self.decided[path] = self.rebuild(self.lake, self.decided[path], last, self.tell)
        result.state, result.message, result.command = found.state, found.message, found.command
        result.version, result.size, result.counts = found.version, found.size, found.counts
        result.why_spark, result.rebuilt = found.why_spark, True


def _refuse_stopped(commit: MirrorCommit) -> None:
    """Raise what kept outcomes from being committed, if something did."""
    if commit.held:
        raise HeldError(commit.held, commit.command)
    if commit.failed:
        raise StoreError(commit.failed)


def _take(result: Folded, commit: MirrorCommit) -> None:
    """Take over what Arrow has committed."""
    _refuse_stopped(commit)
    result.version, result.size, result.why_spark = commit.version, commit.size, commit.why_merge
    result.counts = dict(commit.counts)
    if result.began is not None:
        result.began -= dt.timedelta(seconds=commit.seconds)
