"""The quality stage: measure, judge, store. One append to ``checks`` per run, whatever the result."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ingest.change import TableId, lane_of
from ingest.config import Pipeline, matches
from ingest.config.entries import CELLS_CHECKED
from ingest.errors import command, counted
from ingest.ledgers.logged_statements import Statement
from ingest.ledgers.mirrors import Mirror
from ingest.ledgers.understood import understood
from ingest.quality import (
    byte_texts,
    cascades,
    cells,
    converted,
    counts,
    cut_digits,
    cut_transactions,
    ddl_ledger,
    judge,
    key_checks,
    lasting,
    ledgers,
    left_behind,
    left_out,
    mirror_questions,
    misread,
    null_values,
    obsolete_rejects,
    omitted_nulls,
    order_checks,
    source_counts,
    transactions,
    unknown_values,
    vanished,
)
from ingest.quality.catalogue import ERROR, FAIL, MAX_DETAIL, WARN, Checked, CheckResult, Metric, with_limit
from ingest.quality.expect import expected
from ingest.quality.mirror_questions import STAGE, Answer, Questions
from ingest.quality.subjects import CheckedMirror, StepsOf, Survey, survey
from ingest.tables.lake import Lake, Tell
from ingest.tables.schemas import CHECKS

_SAID = 20  # sentences of one kind
CHECKED = "checked"  # the mark that a check leaves in the log of `checks`


def check(
    lake: Lake,
    since: int = 0,
    also: Iterable[str] = (),
    decided: Mapping[str, Mirror] | None = None,
    tell: Tell = lambda _subject, _step: None,
    *,
    steps: StepsOf,
    deep: str = "",
    partly: bool = False,
    only: Collection[str] | None = None,
) -> Checked:
    """Check every mirror that has changes after batch ``since``, and the mirrors of the paths ``also``.

    Args:
        lake: the lake.
        since: the last batch checked before; 0 checks everything.
        also: mirrors to check although no new batch touched them, by path.
        decided: each mirror's schema as last decided, if known already.
        tell: called with what is being worked on.
        steps: returns the schema steps of a lane.
        deep: a pattern; every key of matching mirrors is compared cell by cell.
        only: the paths of the mirrors to check; None means all that ``since`` and ``also`` name.
        partly: not all mirrors were to be brought up to date, so the batches remain unchecked.
    """
    last = lake.decoded()
    checked, touched = Checked(since if partly else last), frozenset(also)
    if only is not None:
        checked.batch = last_checked(lake)
    scope_from = partial(_scope, lake, last=last, also=touched, decided=decided, only=only, steps=steps)
    with ThreadPoolExecutor(3, thread_name_prefix=STAGE) as pool:  # work that can be done while Spark counts
        imported = pool.submit(judge.great_expectations)
        lagging = pool.submit(ledgers.lagging, lake) if since > 0 else None
        tell(STAGE, "reading the books")
        scope = scope_from(since)
        lagging_since = lagging.result() if lagging else {}
        caught_up = [
            lagging_since.get(subject.name, since)
            for subject in scope.surveyed.subjects
            if subject.path in touched
        ]
        if (earlier := min([since, *caught_up])) < since:  # a mirror has caught up on batches that had failed
            scope = scope_from(earlier)
        every = partial(matches, deep) if deep else lambda _table: False
        asked = cells.Asked(partial(cells_checked, lake.pipeline), every)
        tell(STAGE, "comparing keys and cells")
        measured = _measured(lake, scope, asked)
        imported.result()
    tell(STAGE, "judging")
    checked.verdicts = (
        judge.judged(_limited(lake.pipeline, measured.subjects, measured.metrics)) + measured.broken
    )
    if others := lake.exists(CHECKS.name) and lasting.may_be_open(lake):
        sources = {metric.source for metric in measured.metrics if metric.source is not None}
        checked.verdicts, others = lasting.found_before(
            lake, measured.subjects, sources, checked.verdicts, measured.since
        )
    checked.open = others or lasting.are_left(checked.verdicts)
    checked.verdicts += expected(
        lake, [subject for subject in measured.subjects if not subject.damage], measured.since, tell
    )
    keep(lake, checked)
    return checked


def last_checked(lake: Lake) -> int:
    """The last batch that a run has checked; 0 before the first."""
    if not lake.exists(CHECKS.name):
        return 0
    if isinstance(marked := lake.last_marks(CHECKS.name).get(CHECKED), int):
        return marked
    return lake.ask("SELECT max(batch) AS batch FROM {checks}")[0]["batch"] or 0


def complaints(
    file: Path, checked: Checked, reported: Collection[tuple[str, str | None]] = ()
) -> tuple[list[str], list[str]]:
    """Failures and warnings of a pipeline file's checks, as sentences.

    ``reported`` are the checks, with mirror or source, that were reported already: as a failure for ``up_to_date`` and
    ``readable``, else as a warning, so that a failure caused by a limit is still reported.
    """
    failures: list[str] = []
    warnings: list[str] = []
    for verdict in checked.of(ERROR, FAIL, WARN):
        serious = verdict.metric.severity == "error" and not verdict.lasting
        spoken = (verdict.metric.check, verdict.metric.mirror or verdict.metric.source) in reported
        if spoken and (not serious or verdict.metric.check in ("up_to_date", "readable")):
            continue
        (failures if serious else warnings).append(verdict.sentence())
    return _bounded(failures, file), _bounded(warnings, file)


def _bounded(sentences: list[str], file: Path) -> list[str]:
    more = [
        f"{counted(len(sentences) - _SAID, 'more check complains', 'more checks complain')}: see `{command('quality', file, '--last')}`."
    ]
    return sentences[:_SAID] + (more if len(sentences) > _SAID else [])


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is to be checked: the batches from one on, what the books say of them, and the mirrors that they touched."""

    since: int
    last: int
    books: ledgers.Ledgers
    foreign_keys: list[cascades.ForeignKey]
    surveyed: Survey


@dataclass(frozen=True, slots=True)
class _Measured:
    """The measurements from one batch on, and what could not be measured."""

    since: int
    subjects: list[CheckedMirror]
    metrics: list[Metric]
    broken: list[CheckResult]


def _scope(
    lake: Lake,
    since: int,
    last: int,
    also: Collection[str],
    decided: Mapping[str, Mirror] | None,
    only: Collection[str] | None,
    steps: StepsOf,
) -> _Scope:
    """The mirrors that batches after ``since`` touched, and the sources that fed them."""
    books = ledgers.read(lake, since, last)
    keys = cascades.foreign_keys(books.statements)
    also = {*also, *cascades.mirrors_of(lake, keys, books.lanes)}
    surveyed = survey(lake, books.lanes, also, decided, only, steps=steps)
    cut_transactions.mark(lake, surveyed.subjects, since)
    return _Scope(since, last, books, keys, surveyed)


def _measured(lake: Lake, scope: _Scope, asked: cells.Asked) -> _Measured:
    """Measure the mirrors and the sources."""
    since, last, books, surveyed = scope.since, scope.last, scope.books, scope.surveyed
    subjects = surveyed.subjects
    sent = {lane_of(row) for row in books.lanes if row["changes_ever"] > row["truncates_ever"]}
    logged = understood(lake, sent)
    asked = replace(asked, stated=_stated(books, logged), rows=cells.rows_before(lake, since))
    began = key_checks.beginnings(lake, subjects, since, logged)
    answers = mirror_questions.answered(lake, subjects, Questions(since, last, began, asked))
    metrics = list(_of_mirrors(lake, subjects, since, logged, answers))
    sound = mirror_questions.sound(subjects, answers)
    metrics += unknown_values.of_mirrors(lake, sound, logged)
    metrics += left_behind.of_mirrors(lake, sound, logged)
    metrics += misread.of_mirrors(lake, sound, logged)
    metrics += cascades.of_mirrors(lake, sound, since, scope.foreign_keys)
    events = [row for row in books.statements if row["class"] != "none"]  # others only describe their tables
    metrics += order_checks.of_mirrors(lake, sound, since, events)
    rejected = counts.undecoded_messages(lake, surveyed.booked)
    metrics += counts.of_sources(surveyed.booked, books, rejected, since, last)
    metrics += transactions.missing(lake, surveyed.booked, since, last)
    metrics += null_values.not_deleted(lake, surveyed.booked, since, last)
    rows = left_out.source_rows(subjects, metrics, since)
    differing, broken = source_counts.compared(lake.pipeline, subjects, rows, surveyed.names)
    metrics += differing
    metrics += [metric for answer in answers.values() for metric in answer.cells]
    settled = {answer.path: set(answer.settled) for answer in answers.values()}
    undamaged = [subject for subject in subjects if not subject.damage]
    obsolete_rejects.close(lake, undamaged, settled)
    metrics += counts.rejects(lake, sound, since)
    metrics += [
        Metric("readable", float(bool(subject.damage)), subject.name, detail=subject.damage)
        for subject in subjects
    ]
    return _Measured(since, subjects, metrics, broken)


def _stated(books: ledgers.Ledgers, logged: Sequence[Statement]) -> dict[str, tuple[int, str]]:
    """The newest batch with a statement of each source, and the highest place of one."""
    stated: dict[str, tuple[int, str]] = {}
    placed = [(row["source"], row["batch"], row["order_key"]) for row in books.statements]
    placed += [(statement.source, statement.batch, statement.order) for statement in logged]
    for source, batch, order in placed:
        newest, place = stated.get(source, (0, ""))
        stated[source] = max(newest, batch), max(place, order)
    return stated


def _of_mirrors(
    lake: Lake,
    chosen: Sequence[CheckedMirror],
    since: int,
    logged: Sequence[Statement],
    answers: Mapping[str, Answer],
) -> Iterator[Metric]:
    yield from mirror_questions.of_keys(chosen, answers)
    sound = mirror_questions.sound(chosen, answers)
    yield from counts.of_mirrors(lake, sound)
    yield from counts.ddl_pending(chosen, ddl_ledger.pending(logged, lake.pipeline))
    yield from left_out.of_mirrors(lake, chosen, since)
    yield from vanished.of_mirrors(lake, sound, since, logged)
    yield from converted.of_mirrors(lake, sound, since, logged)
    yield from byte_texts.of_mirrors(lake, sound, since)
    yield from cut_digits.of_mirrors(lake, sound, since)
    yield from omitted_nulls.of_mirrors(lake, sound, since)


def _limited(pipeline: Pipeline, chosen: Iterable[CheckedMirror], metrics: Iterable[Metric]) -> list[Metric]:
    limits = {subject.name: pipeline.limits(subject.table) for subject in chosen}
    return [
        with_limit(
            metric, limits.get(metric.mirror or "") or pipeline.limits(TableId(None, None, metric.source))
        )
        for metric in metrics
    ]


def cells_checked(pipeline: Pipeline, table: TableId) -> int:
    """The number of touched keys of a mirror that are compared cell by cell."""
    rule = pipeline.quality_rule(table)
    return CELLS_CHECKED if rule is None else rule.cells_checked


def keep(lake: Lake, checked: Checked) -> None:
    """Append the verdicts to ``checks``."""
    now = lake.now()
    rows = [_row(lake, checked.batch, verdict, now) for verdict in checked.verdicts]
    marks = {lasting.OPEN: checked.open} | ({} if checked.batch is None else {CHECKED: checked.batch})
    lake.append_unguarded(rows, CHECKS, marks)


def _row(lake: Lake, batch: int | None, verdict: CheckResult, now: object) -> tuple[object, ...]:
    metric = verdict.metric
    return (
        lake.run, batch, metric.mirror, metric.check, metric.column, metric.severity, verdict.state, float(metric.observed),
        None if metric.limit is None else repr(metric.limit), metric.detail[:MAX_DETAIL], now,
        json.dumps(list(metric.failing), ensure_ascii=False) if metric.failing else None, metric.source,
        metric.statement or None, metric.command or None,
    )  # fmt: skip
