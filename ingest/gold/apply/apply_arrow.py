"""Fold the mirrors of a batch, and apply what becomes of each: by files, or by Delta's MERGE."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from ingest.errors import HeldError
from ingest.gold.apply import arrow_runs, cut_transactions, file_commits, targets
from ingest.gold.apply.planner import FoldPlan
from ingest.gold.fold.arrow_files import Written
from ingest.gold.fold.arrow_parts import Fragments
from ingest.gold.fold.arrow_values import MergeNeeded
from ingest.gold.fold.arrow_work import MirrorWork
from ingest.gold.fold.change_files import ChangeFiles, change_files
from ingest.gold.plan import ways
from ingest.gold.plan.completed import STAGE
from ingest.gold.plan.results import MirrorCommit
from ingest.spark.deferred import cores
from ingest.spark.tasks import Load
from ingest.store import faults
from ingest.tables import commits
from ingest.tables.lake import Lake, Tell

MERGES = 3  # at the same time: a MERGE's cost is planning and commits (see benchmarks)


def fold(lake: Lake, plans: Sequence[FoldPlan], tell: Tell) -> dict[str, MirrorCommit]:
    """Fold mirrors, and apply the outcomes of each; returns the result of each by its path.

    Files that would take more memory than a process has are not written: a MERGE applies the outcomes then.
    """
    began = time.monotonic()
    with (
        change_files(lake) as files,
        ThreadPoolExecutor(max(2, min(8, cores(lake.spark))), thread_name_prefix="arrow") as pool,
        ThreadPoolExecutor(MERGES, thread_name_prefix="merge") as merging,
    ):
        batch = _Batch(files, tell, pool, merging)
        batch.fold(plans)
        batch.fold(batch.large)
        results = batch.commits | {path: merge.result() for path, merge in batch.merges.items()}
    each = (time.monotonic() - began) / len(plans)
    return {path: replace(commit, seconds=each) for path, commit in results.items()}


@dataclass(slots=True)
class _Batch:
    """The folds of one batch, and what has become of them."""

    files: ChangeFiles
    tell: Tell
    pool: ThreadPoolExecutor
    merging: ThreadPoolExecutor
    commits: dict[str, MirrorCommit] = field(default_factory=dict)
    merges: dict[str, Future[MirrorCommit]] = field(default_factory=dict)
    large: list[FoldPlan] = field(default_factory=list)  # that only a MERGE can apply, as is known now

    def fold(self, plans: Sequence[FoldPlan]) -> None:
        """Fold some mirrors."""
        by_path = {fold_plan.plan.mirror.path: fold_plan for fold_plan in plans}
        opened: dict[str, MirrorWork] = {}
        look = partial(_target, self.files, targets.kept_fragments())
        for path, target in zip(by_path, self.pool.map(look, plans), strict=True):
            if isinstance(target, MirrorCommit):
                self.commits[path] = target
            else:
                opened[path] = target
        works = cut_transactions.whole_where_cut(self.files, list(opened.values()))
        load = Load(sum(work.changes for work in works))
        engine = commits.engine(by_spark=self.files.lake.runner.in_tasks(STAGE, load))
        for path, made in arrow_runs.each_made(self.files, works, self.pool):
            self._apply(by_path[path], opened[path], made, engine)

    def _apply(self, fold: FoldPlan, work: MirrorWork, made: Sequence[Written], engine: str) -> None:
        path, counts = work.path, Counter[str]()
        if why := next((part.refused for part in made if part.needs == MergeNeeded.needs), ""):
            self._merge_instead(fold, why)
            return
        self.tell(fold.plan.mirror.name, "load" if fold.fresh else "merge")
        stopped = file_commits.stopped(self.files, fold, work, made, counts)
        if stopped is not None:
            self.commits[path] = stopped
        elif fold.why_merge:
            from ingest.gold.apply import apply_merge  # Spark's, which a batch of files does without

            self.merges[path] = self.merging.submit(
                apply_merge.commit, self.files.lake, fold, work, made, counts
            )
        else:
            self.commits[path] = file_commits.committed(self.files.lake, fold, work, made, counts, engine)

    def _merge_instead(self, fold: FoldPlan, why: str) -> None:
        """Let a MERGE apply the outcomes, if files need not."""
        plan = fold.plan
        try:
            ways.refuse_files(self.files.lake.pipeline, plan.job.rule, plan.mirror, why)
        except HeldError as error:
            self.commits[plan.mirror.path] = MirrorCommit(held=str(error))
            return
        self.large.append(replace(fold, why_merge=why, marks=False, passes=False))


def _target(files: ChangeFiles, opened: Fragments, fold: FoldPlan) -> MirrorWork | MirrorCommit:
    """What a mirror's fold reads and writes, or why that is not known."""
    try:
        return targets.target(files, opened, fold)
    except Exception as error:  # whatever one mirror meets, the others go on
        return MirrorCommit(failed=faults.said(error))
