"""The gold stage: decide what each mirror with new batches shall be, plan its part, fold it, and apply what becomes of it.

One mirror's failure neither stops nor delays another. The next run tries the failed one again, because its progress is
in its own log.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from ingest.errors import HeldError, StoreError, command, counted
from ingest.gold.apply import history
from ingest.gold.apply.planner import FoldPlan, Work, fold_plan
from ingest.gold.fold import collision
from ingest.gold.plan.batch import NO_BACKLOG, Backlog, Batch, plan_batch
from ingest.gold.plan.mirror_schema import RETYPED, Plan, is_recomputed, recomputed
from ingest.gold.plan.results import Folded, MirrorCommit
from ingest.gold.plan.work import Books
from ingest.ledgers import conditions, decisions, mirrors
from ingest.ledgers.mirrors import Mirror
from ingest.tables.lake import Lake, Tell

THREADS = 3  # more threads do not help: a MERGE's cost is planning and commits (see benchmarks)
TRIES = 5  # to commit to a mirror that other writers commit to
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
    decisions.append(lake, batch.records(decided))
    decided |= batch.renewed(decided)
    done = _Stage(lake, batch, decided, tell, rebuild).fold(batch.plans)
    return sorted([*batch.results, *done], key=lambda result: result.mirror)


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
        """Fold all mirrors: together, then each of those again that another writer or its own values have overtaken."""
        with ThreadPoolExecutor(THREADS, thread_name_prefix="mirror") as pool:
            foreseen = [fold for fold in pool.map(self._foreseen, plans) if fold is not None]
            commits = self._committed(foreseen)
            folds = {fold.plan.mirror.path: fold for fold in foreseen}

            def fold_one(plan: Plan) -> Folded:
                return self._one(plan, folds.get(plan.mirror.path), commits.get(plan.mirror.path))

            done = list(pool.map(fold_one, plans))
        self._fold_histories({result.path: result for result in done})
        return done

    def _look(self, plan: Plan) -> FoldPlan:
        return fold_plan(self.lake, self.batch, plan)

    def _committed(self, folds: Iterable[FoldPlan]) -> dict[str, MirrorCommit]:
        """Fold mirrors with new changes; the result of each by its path."""
        new = [fold for fold in folds if fold.work]
        if not new:
            return {}
        from ingest.gold.apply.apply_arrow import fold  # few batches need delta-rs

        self.tell("gold", f"folding {counted(len(new), 'mirror')}")
        for pending in new:
            if pending.why_folded:
                self.tell(
                    pending.plan.mirror.name, f"folding its whole history, because {pending.why_folded}"
                )
        return fold(self.lake, new, self.tell)

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
            return self._look(plan)
        except Exception:
            return None

    def _one(self, plan: Plan, fold: FoldPlan | None, commit: MirrorCommit | None) -> Folded:
        """Fold one mirror, or take what was committed."""
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
                plan = self._fold(plan, fold, commit, result, self._look)
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

    def _fold(
        self,
        plan: Plan,
        fold: FoldPlan | None,
        commit: MirrorCommit | None,
        result: Folded,
        look: Callable[[Plan], FoldPlan],
    ) -> Plan:
        """Take what was committed of a mirror, or fold it until it is; returns the plan with the columns that its values need.

        Args:
            plan: what the mirror shall be.
            fold: its part of the batch, if it was planned.
            commit: what has become of that, if something has.
            result: gets what becomes of the mirror.
            look: plans it again.
        """
        tries = 0
        while commit is None or commit.wider or commit.overtaken:
            if commit is not None and commit.wider and fold is not None:
                plan = self._decided(plan, commit.wider, redoes=fold.before.exists)
                if plan.why_rebuilt:
                    self._rebuild(plan, result)
                    return plan
            tries = _next_try(tries, plan.mirror)
            if commit is not None or fold is None:  # what was read earlier may be out of date
                fold = look(plan)
            if not fold.work:
                _skip(self.lake, fold, result)
                return plan
            commit = self._committed([fold])[plan.mirror.path]
        _take(result, commit, plan)
        if fold is not None:
            result.counts |= not_applied(plan, fold.work)
            result.why_folded = fold.why_folded
        return plan

    def _fold_histories(self, results: Mapping[str, Folded]) -> None:
        """Bring history tables up to date, all together; a failure is that of the mirror, whose result is given by its path."""
        folds: dict[str, FoldPlan] = {}
        for path, plan in self.followed.items():
            try:
                if (fold := history.states_plan(self.lake, self.batch, plan)).work:
                    self.tell(results[path].mirror, "history")
                    folds[path] = fold
            except Exception as error:
                results[path].stop(self.lake, error)
        commits = self._committed(folds.values())
        for path, fold in folds.items():
            result, states = results[path], fold.plan.mirror
            commit = commits[states.path]
            began = time.monotonic() - commit.seconds

            def look(_: Plan, plan: Plan = self.followed[path]) -> FoldPlan:
                return history.states_plan(self.lake, self.batch, plan)

            try:
                self._fold(fold.plan, fold, commit, Folded(states.name, states.path, "done"), look)
            except Exception as error:
                result.stop(self.lake, error)
            result.seconds += time.monotonic() - began

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
        again, self.decided[path] = self.rebuild(self.lake, self.decided[path], last, self.tell)
        result.state, result.message, result.command = again.state, again.message, again.command
        result.version, result.size, result.counts = again.version, again.size, again.counts
        result.why_merge, result.rebuilt = again.why_merge, True


def _next_try(tries: int, table: Mirror) -> int:
    """Count a fold that another writer, or the table's own values, have made necessary once more.

    Raises:
        StoreError: there were too many.
    """
    if tries > TRIES:
        raise StoreError(f"another writer has committed to {table.name} {tries} times meanwhile")
    return tries + 1


def _skip(lake: Lake, fold: FoldPlan, result: Folded) -> None:
    """Note that a mirror has no new changes, and finish what a run killed after its merge left undone."""
    from ingest.gold.apply import apply_merge  # Spark's

    result.state, result.version = "skipped", fold.before.version
    apply_merge.finish(lake, fold.plan.mirror, fold.before)


def not_applied(plan: Plan, work: Work) -> dict[str, int]:
    """The number of updates and deletes that rows which are only appended ignore."""
    if plan.mirror.keys or plan.job.rule.no_key != "append":
        return {}
    first = {(lane.source, lane.table): lane.first for lane, _ in work}
    lines = [
        line for name, lines in plan.job.lines.items() for line in lines if line.batch >= first.get(name, 0)
    ]
    ignored = {
        "updates_not_applied": sum(line.updates for line in lines),
        "deletes_not_applied": sum(line.deletes for line in lines),
    }
    return {name: count for name, count in ignored.items() if count}


def _refuse_stopped(commit: MirrorCommit, plan: Plan) -> None:
    """Raise what kept outcomes from being committed, if something did."""
    if commit.held:
        collision.refuse(commit.held, plan.mirror.table, plan.job.rule)
        conditions.refuse(commit.held, plan.job.rule)
        raise HeldError(commit.held, commit.command)
    if commit.failed:
        raise StoreError(commit.failed)


def _take(result: Folded, commit: MirrorCommit, plan: Plan) -> None:
    """Take over what Arrow has committed."""
    _refuse_stopped(commit, plan)
    result.version, result.size, result.why_merge = commit.version, commit.size, commit.why_merge
    result.counts = dict(commit.counts)
    if result.began is not None:
        result.began -= dt.timedelta(seconds=commit.seconds)
