"""The questions about mirrors that read many rows: are their keys and their cells as the changes say?

They are a stage's work like any other (`ingest.spark.tasks`): each item is a mirror, each task answers for its share of
them by DuckDB and Arrow, and the driver gets numbers and evidence. A table that only Spark can read is asked about in the
driver's process, which has a session.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec
import pyarrow as pa

from ingest.change import LaneId, TableId
from ingest.errors import counted
from ingest.fold import SchemaStep
from ingest.ledgers.mirrors import Mirror
from ingest.quality import cells, key_checks, obsolete_rejects
from ingest.quality.catalogue import Metric
from ingest.quality.cells import Asked
from ingest.quality.key_checks import EXPLAINED, Began, Counted
from ingest.quality.subjects import CheckedMirror, StepsOf, no_steps
from ingest.spark.deferred import NoSession, cores
from ingest.spark.tasks import Load, Work, dealt
from ingest.tables.lake import Lake

STAGE = "quality"
_A_CHANGE = 200  # bytes of a mirror that take as long to read as a change
_COLUMNS = "answer STRING"


@dataclass(frozen=True, slots=True)
class Questions:
    """What to ask about mirrors.

    Attributes:
        since: the changes of later batches are compared; 0 compares all.
        last: the last batch to check, for who reads Spark's pages.
        began: where tables began again.
        cells: what to compare cell by cell.
    """

    since: int
    last: int
    began: Began
    cells: Asked


@dataclass(slots=True)
class Answer:
    """What is known of one mirror afterwards.

    Attributes:
        path: of the mirror.
        keys: its numbers; None if it has no table, or no known key.
        cells: what was measured of its cells.
        settled: the names of its rejected cells that have values since.
        damage: why it cannot be read; empty if it can.
        key_damage: the same of its keys alone, which is all that most checks of it need.
    """

    path: str
    keys: Counted | None = None
    cells: list[Metric] = field(default_factory=list)
    settled: list[str] = field(default_factory=list)
    damage: str = ""
    key_damage: str = ""


def answered(lake: Lake, subjects: Sequence[CheckedMirror], questions: Questions) -> dict[str, Answer]:
    """What is known of each mirror, by its path; mirrors that turn out to be damaged are marked."""
    askable = [subject for subject in subjects if subject.is_readable]
    answers = {answer.path: answer for answer in _by_runner(lake, askable, questions)}
    rest = [subject for subject in askable if subject.path not in answers]
    answers |= {answer.path: answer for answer in _answers(lake, rest, questions)}
    for subject in askable:
        subject.damage = answers[subject.path].damage
    return {subject.path: answers[subject.path] for subject in askable}


def sound(subjects: Iterable[CheckedMirror], answers: Mapping[str, Answer]) -> list[CheckedMirror]:
    """The mirrors whose keys could be read, if they have any: a file that is damaged elsewhere must not end their other checks."""
    return [
        subject
        for subject in subjects
        if not (answers[subject.path].key_damage if subject.path in answers else subject.damage)
    ]


def of_keys(subjects: Sequence[CheckedMirror], answers: Mapping[str, Answer]) -> Iterator[Metric]:
    """The numbers of the mirrors' keys, with examples for the first complaints of all mirrors together."""
    left = EXPLAINED  # each task has looked up as many
    for subject in subjects:
        counted_keys = answers[subject.path].keys if subject.path in answers else None
        for check, number in counted_keys.numbers.items() if counted_keys else ():
            failing = counted_keys.failing.get(check, ()) if counted_keys and left > 0 else ()
            left -= bool(failing)
            yield Metric(check, number, subject.name, failing=failing)


def _by_runner(lake: Lake, subjects: Sequence[CheckedMirror], questions: Questions) -> Iterator[Answer]:
    """The answers of the stage's work; without those for which a task would have needed a session."""
    load = Load(sum(map(_changes, subjects)), sum(subject.size for subject in subjects))
    if not lake.is_local:
        return  # only Spark reads its tables
    if lake.runner.in_tasks(STAGE, load):
        subjects, asked = _for_tasks(subjects, questions.cells)
        questions = replace(questions, cells=asked)
    work = Work(
        STAGE,
        subjects,
        partial(_pages, lake=lake, questions=questions),
        _COLUMNS,
        partial(dealt, weight=_weight, count=cores(lake.spark)),
        load,
        f"batch {questions.last}",
        counted(len(subjects), "mirror"),
    )
    for row in lake.runner.rows(work):
        yield msgspec.convert(json.loads(row["answer"]), Answer)


def _pages(
    subjects: Sequence[CheckedMirror], *, lake: Lake, questions: Questions
) -> Iterator[pa.RecordBatch]:
    """The answers about some mirrors; none if one of them cannot be read without a session and there is none."""
    try:
        answers = list(_answers(lake, subjects, questions))
    except Exception:
        if not _needs_session(lake):
            raise
    if not _needs_session(lake):
        texts = [json.dumps(msgspec.to_builtins(answer)) for answer in answers]
        yield pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], names=["answer"])


def _needs_session(lake: Lake) -> bool:
    return isinstance(lake.spark, NoSession) and lake.spark.asked


def _answers(lake: Lake, subjects: Sequence[CheckedMirror], questions: Questions) -> Iterator[Answer]:
    """Ask about some mirrors in this process."""
    keys = key_checks.count(lake, subjects, questions.since, questions.began)
    answers = {
        subject.path: Answer(subject.path, keys.get(subject.path), key_damage=subject.damage)
        for subject in subjects
    }
    for subject, compared in cells.compare(lake, subjects, questions.since, questions.cells):
        answers[subject.path].cells = list(cells.metrics(lake, subject, compared))
        answers[subject.path].settled = obsolete_rejects.settled_by(lake, subject, compared)
    for subject in subjects:
        answers[subject.path].damage = subject.damage
        yield answers[subject.path]


def _for_tasks(subjects: Sequence[CheckedMirror], asked: Asked) -> tuple[list[CheckedMirror], Asked]:
    """The same for tasks, which read neither the DDL ledger nor the rules of ``quality:``."""
    limits = {subject.table: asked.limit(subject.table) for subject in subjects}
    recorded = [
        replace(subject, steps_of=_recorded(subject) if asked.compares(subject.table) else no_steps)
        for subject in subjects
    ]
    return recorded, replace(asked, limit=limits.__getitem__)


def _recorded(subject: CheckedMirror) -> StepsOf:
    """A mirror's schema steps as they are now."""
    return partial(_of_lane, {lane.id: tuple(subject.steps(lane)) for lane in subject.lanes})


def _of_lane(
    steps: Mapping[LaneId, Sequence[tuple[SchemaStep, int]]],
    _mirror: Mirror,
    source: str,
    table: TableId,
    _last: int,
) -> Sequence[tuple[SchemaStep, int]]:
    return steps.get((source, table), ())


def _changes(subject: CheckedMirror) -> int:
    return sum(lane.changes for lane in subject.lanes)


def _weight(subject: CheckedMirror) -> int:
    return 1 + _changes(subject) + subject.size // _A_CHANGE
