"""The quality stage: measure, judge, keep. One append to ``checks`` a run, whatever was found."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from pyspark.sql import functions as F

from ingest.change import TableId
from ingest.config import Pipeline, QualityRule, matches
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Mirror
from ingest.lake.schemas import BOOKS, CHECKS, RUNS
from ingest.quality import counts, judge, keys, statements
from ingest.quality.catalogue import ERROR, FAIL, MAX_DETAIL, WARN, Checked, Metric, Verdict, with_limit
from ingest.quality.expect import expected
from ingest.quality.subjects import Subject, Survey, survey

STAGE = "quality"
Tell = Callable[[str, str], None]


def check(
    lake: Lake,
    since: int = 0,
    also: Iterable[str] = (),
    decided: Mapping[str, Mirror] | None = None,
    tell: Tell = lambda _subject, _step: None,
    *,
    partly: bool = False,
) -> Checked:
    """Check every mirror that has changes behind batch ``since``, and the mirrors of the paths ``also``.

    Args:
        lake: the lake.
        since: the last batch checked before; 0 checks everything there is.
        also: mirrors to check although no new batch touched them, by path.
        decided: each mirror's schema as last decided, if known already.
        tell: is told what is being worked on.
        partly: not all mirrors were meant to be brought up to date, so the batches stay unchecked.
    """
    checked = Checked(since if partly else max(0, lake.progress("silver", BOOKS.name)))
    known = survey(lake, since, also, decided)
    chosen = known.subjects
    loading = judge.warm_up()  # while Spark counts
    tell(STAGE, "counting")
    metrics = list(_measured(lake, known, since))
    loading.join()
    tell(STAGE, "judging")
    checked.verdicts = judge.judged(_limited(lake.pipeline, chosen, metrics))
    checked.verdicts += expected(lake, chosen, tell)
    keep(lake, checked)
    return checked


def last_checked(lake: Lake) -> int:
    """The last batch that a run has checked; 0 before the first."""
    if not lake.exists(CHECKS.name):
        return 0
    found = lake.read(CHECKS.name).agg(F.max("batch").alias("batch")).first()
    return (found["batch"] if found else None) or 0


def since(lake: Lake, checked: int, mirrors: Iterable[str]) -> int:
    """From which batch on to check: earlier where a mirror has caught up on batches it had failed."""
    names = list(mirrors)
    if not names or not lake.exists(RUNS.name):
        return checked
    rows = (
        lake.read(RUNS.name)
        .where((F.col("stage") == "gold") & F.col("subject").isin(names))
        .groupBy("subject")
        .agg(
            F.max(F.when(F.col("state") == "done", F.col("batch"))).alias("done"),
            F.max(F.when(F.col("state").isin("failed", "held"), F.col("batch"))).alias("failed"),
        )
        .where(F.col("failed") > F.coalesce("done", F.lit(0)))
        .collect()
    )
    return min([checked, *(row["done"] or 0 for row in rows)])


def complaints(checked: Checked, told: Collection[str] = ()) -> tuple[list[str], list[str]]:
    """Failures and warnings as sentences; of the mirrors ``told`` it is known that they are behind."""
    failures: list[str] = []
    warnings: list[str] = []
    for one in checked.of(ERROR, FAIL, WARN):
        if one.metric.check == "up_to_date" and one.metric.mirror in told:
            continue
        serious = one.metric.severity == "error"
        (failures if serious else warnings).append(one.sentence())
    return _bounded(failures), _bounded(warnings)


def _bounded(sentences: list[str], most: int = 20) -> list[str]:
    if len(sentences) <= most:
        return sentences
    return [*sentences[:most], f"{len(sentences) - most} more checks complain: see `ingest quality`."]


def _measured(lake: Lake, known: Survey, since: int) -> Iterator[Metric]:
    chosen = known.subjects
    logged = statements.read(lake)
    counted = keys.count(lake, chosen, since, logged)
    for subject in chosen:
        found = counted.get(subject.path)
        if found is not None:
            for name, n in found.numbers.items():
                yield Metric(name, n, subject.name, failing=found.failing.get(name, ()))
    yield from counts.of_mirrors(lake, chosen)
    yield from counts.cell_rejects(lake, chosen, since)
    yield from counts.ddl_pending(chosen, statements.pending(logged, lake.pipeline))
    yield from counts.of_sources(lake, known.booked, since)


def _limited(pipeline: Pipeline, chosen: Iterable[Subject], metrics: Iterable[Metric]) -> list[Metric]:
    limits = {subject.name: limits_of(pipeline, subject.table) for subject in chosen}
    return [
        with_limit(one, limits.get(one.mirror or "") or limits_of(pipeline, TableId(None, None, one.source)))
        for one in metrics
    ]


def limits_of(pipeline: Pipeline, table: TableId) -> dict[str, float]:
    """The limits that the pipeline file sets for a mirror, or for a source by its name."""
    rule = rule_of(pipeline, table)
    if rule is None:
        return {}
    found = dict(rule.thresholds)
    if rule.freshness is not None:
        found.setdefault("freshness", rule.freshness)
    return found


def rule_of(pipeline: Pipeline, table: TableId) -> QualityRule | None:
    """The first ``quality:`` entry that fits."""
    return next((rule for rule in pipeline.quality if matches(rule.table, table)), None)


def keep(lake: Lake, checked: Checked) -> None:
    """Append the verdicts to ``checks``."""
    now = lake.now()
    lake.append_unguarded([_row(lake, checked.batch, one, now) for one in checked.verdicts], CHECKS)


def _row(lake: Lake, batch: int | None, verdict: Verdict, now: object) -> tuple[object, ...]:
    one = verdict.metric
    return (
        lake.run, batch, one.mirror, one.check, one.column, one.severity, verdict.state, float(one.observed),
        None if one.limit is None else repr(one.limit), one.detail[:MAX_DETAIL], now,
        json.dumps(list(one.failing), ensure_ascii=False) if one.failing else None, one.source,
    )  # fmt: skip
