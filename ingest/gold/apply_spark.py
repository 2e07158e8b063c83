"""Fold mirrors by Spark: what Arrow does not take, each by a MERGE of its own."""

from __future__ import annotations

from collections import Counter
from functools import reduce

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from ingest.gold import (
    apply_merge,
    collision,
    keyless,
    mirror_table,
    misfits,
    retyped,
)
from ingest.gold import merge as merging
from ingest.gold.gather import Gathered, gather, gather_merged, one_of
from ingest.gold.lane import ChangeKinds, Lane, Steps, lane_name
from ingest.gold.mirror_schema import Plan
from ingest.gold.planner import FoldPlan, Work, extent, goes_on, rows_merged
from ingest.gold.results import Folded
from ingest.gold.shaped import judged, shaped
from ingest.gold.unfit import COUNTED
from ingest.lake import conditions
from ingest.lake.lake import Lake, Tell
from ingest.lake.mirrors import Mirror
from ingest.lake.names import literal, quoted
from ingest.lake.schemas import CHANGES
from ingest.spark.pace import narrow


def fold(lake: Lake, fold: FoldPlan, result: Folded, tell: Tell) -> None:
    """Fold and merge one mirror; its commit and its counts go into ``result``."""
    plan, before, work, again, fresh = fold.plan, fold.before, fold.work, fold.again, fold.fresh
    mirror, books = plan.mirror, fold.books
    result.version = before.version
    if not work:
        result.state = "skipped"
        apply_merge.finish(lake, mirror, before)
        return
    result.why_spark = fold.why_spark
    lake = apply_merge.with_session(lake, books, work, before)
    if mirror.keys and goes_on(work):
        narrow(lake.spark, _changes(work), extent(before))
    guard = merging.Guard(fold.writer, books.last, lake.metadata(books.last, landed=True))
    if again:
        mirror_table.allow_zoneless(lake, mirror, [one.delta for one in mirror.columns])
    if not fresh and not again:
        tell(mirror.name, "schema")
        fills = [] if plan.job.merged else [step for _, steps in work for step in steps.fills]
        apply_merge.prepare(lake, plan, before, fills)
    if open_columns := retyped.keep(lake, mirror, fold.retyped, books.last):
        result.counts[COUNTED] = open_columns
    tell(mirror.name, "load" if fresh else "merge")
    if mirror.keys:
        result.counts = dict(Counter(result.counts) + Counter(_merge(lake, plan, work, guard, fresh=fresh)))
    else:
        result.counts.update(keyless.fold(lake, plan, work, guard, again=again))
    after = lake.snapshot(mirror.path)
    if after.version > before.version:
        result.counts.update(apply_merge.counts_of(lake, mirror, after.version))
    guard.take_off(lake.spark)
    if mirror.keys and mirror_table.drop_columns(lake, mirror, after.columns):
        after = lake.snapshot(mirror.path)
    result.version, result.size = after.version, after.size or 0


def _changes(work: Work) -> int:
    return sum(one.changes for one, _ in work)


def _merge(lake: Lake, plan: Plan, work: Work, guard: merging.Guard, *, fresh: bool) -> dict[str, int]:
    """Fold, and count the cells and changes that did not fit.

    A ``fresh`` mirror has no table yet: one commit creates it with its first rows, and there are no rows to merge with.
    """
    mirror = plan.mirror

    def fold(tolerant: bool) -> None:
        gathered = _gathered(lake, mirror, work, tolerant=tolerant)
        folded, kinds = _together(gathered, mirror)
        if plan.job.merged:
            names = [lane_name(plan.job.lanes, (one.source, one.table)) for one, _ in work]
            folded = one_of(gathered, names, mirror)
        source = shaped(merging.typed(folded, mirror, kinds, tolerant), mirror)
        existing = [_standing(mirror, one, *pair) for one, pair in zip(gathered, work, strict=True)]
        guard.set_on(lake.spark)
        if fresh:
            mirror_table.load(lake, mirror, source, apply_merge.made_of(lake, plan))
        else:
            if plan.job.merged:  # every row has an outcome, or nothing has changed it
                existing = []
            news = (
                goes_on(work)
                and not any(one.reads for one, _ in work)
                and not apply_merge.made_of(lake, plan).change_feed
            )
            merging.merge(lake, mirror, source, kinds, existing, news=news)

    def keep() -> int:
        misfits.widen(lake.read(CHANGES.name), mirror, plan.job.rule, [one for one, _ in work])
        return _keep_misfits(lake, mirror, work, guard.batch)

    try:
        return misfits.meeting(fold, keep)
    except (PySparkException, Py4JJavaError) as error:
        conditions.refuse(error, plan.job.rule)
        collision.refuse(str(error), mirror.table, plan.job.rule)
        raise


def _standing(mirror: Mirror, gathered: Gathered, lane: Lane, steps: Steps) -> merging.Standing:
    mine = None
    if lane.shard is not None:
        [column] = [one.column for one in mirror.columns if one.name == lane.shard[0]]
        mine = f"t.{quoted(column)} = {literal(lane.shard[1])}"
    return merging.Standing(gathered.clears, steps.fills, mine)


def _gathered(lake: Lake, mirror: Mirror, work: Work, *, tolerant: bool) -> list[Gathered]:
    changes = lake.read(CHANGES.name)
    if rows_merged(work):
        return gather_merged(changes, mirror, work, tolerant)
    return [gather(changes, mirror, one, steps, tolerant) for one, steps in work]


def _together(gathered: list[Gathered], mirror: Mirror) -> tuple[DataFrame, ChangeKinds]:
    """The outcomes of all lanes with the same columns: if one lane is partial, the others mark every column as sent."""
    kinds = ChangeKinds(
        any(one.kinds.partials for one in gathered),
        any(one.kinds.key_changes for one in gathered),
        any(one.clears for one in gathered),
    )
    frames = [
        merging.whole(one.outcomes, mirror) if kinds.partials and not one.kinds.partials else one.outcomes
        for one in gathered
    ]
    return reduce(DataFrame.unionByName, frames), kinds


def _keep_misfits(lake: Lake, mirror: Mirror, work: Work, batch: int) -> int:
    """Write what does not fit to `rejects`, guarded, before the merge that omits it."""
    changes = lake.read(CHANGES.name)
    found = [misfits.changes(changes, mirror, one, steps) for one, steps in work]
    for gathered, (one, _) in zip(_gathered(lake, mirror, work, tolerant=True), work, strict=True):
        cells = misfits.cells(judged(gathered.outcomes, mirror), changes, mirror, one, batch)
        if cells is not None:
            found.append(cells)
    return misfits.keep(lake, mirror, found, batch)
