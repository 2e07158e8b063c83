"""One run of a pipeline: bronze, silver, gold and quality in one session, and its result.

A run is a list of stage results with one verdict; the command line and the jobs print it, the `runs`
table keeps it.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

from pyspark.sql import SparkSession

from ingest.bronze import carried_rows
from ingest.bronze.land import land, last_batch
from ingest.bronze.positions import Positions
from ingest.catalog import sync
from ingest.config import Pipeline
from ingest.config.model import SPARK
from ingest.errors import HeldError, IngestError, SetupError, StoppedError, command, counted
from ingest.gold import complete_until, feeds, rebuild
from ingest.gold.fold.unfit import COUNTED
from ingest.gold.plan import carried, completed
from ingest.gold.plan.batch import Backlog
from ingest.gold.plan.completed import Progress, progress
from ingest.gold.plan.results import Folded
from ingest.gold.plan.steps import steps_of
from ingest.gold.plan.work import open_books
from ingest.gold.stage import UNREAD, apply
from ingest.ledgers import (
    decisions,
    decoded_with,
    idle_rules,
    mirrors,
    missing_inputs,
    pauses,
    schedules,
    targets,
    whole_files,
)
from ingest.ledgers.feeds import table_of, wanted
from ingest.ledgers.mirrors import Mirror
from ingest.quality import stage as quality
from ingest.quality.catalogue import FAILED_CHECK
from ingest.result import STAGES, Failure, Result
from ingest.silver.decode import decode
from ingest.spark import jobs
from ingest.spark.deferred import Deferred, cores, deferred
from ingest.spark.pace import FEW, pace, paced
from ingest.store import faults, hadoop, lock
from ingest.store.envelope import SealError
from ingest.tables import commits, identity
from ingest.tables.identity import Seen
from ingest.tables.lake import Lake, Tell
from ingest.tables.lineage import Emitter, WrittenTable
from ingest.tables.schemas import BOOKS, CHANGES, DECISIONS, RUNS

UNFINISHED = ("failed", "held", "paused")  # states of a mirror that lacks batches
_NO_PLACE = (None,) * 4  # of rows of `runs` that are no stage's
PUT = ("inserted", "updated")  # counts of a mirror's commit: the rows that it wrote


LOOK_AGAIN = 60.0  # seconds between two looks whether the mirrors are there, where nothing comes


@dataclass(slots=True)
class Warm:
    """A session's cached state of a lake between ticks, so that an idle tick costs nearly nothing."""

    positions: Positions = field(default_factory=Positions)
    decided: dict[str, Mirror] | None = None
    progress: Progress | None = None  # how far gold is
    begun: bool = False  # gold has looked at the lake
    decoded: int = 0  # the last batch that silver has finished
    checked: int | None = None  # the last batch that quality has looked at
    resting: dict[str, Folded] = field(default_factory=dict)  # mirrors that are held or paused, by path
    # source tables with rows, when these were held: a further one may be what a statement names
    tables: int = 0
    decisions: int = -2  # the version of `decisions` that ``decided`` is of
    reported: frozenset[str] | None = None  # what failed in the last run of `runs` and is looked for again
    of_batch: bool = False  # whether that run has failures that are not looked for again
    recorded: int = 0  # the last batch that had landed when `runs` was asked, and held it
    looked: bool = False  # whether this process has looked for batches decoded with other settings
    next_look: float = (
        0.0  # when to look again whether the mirrors are there, by the clock of `time.monotonic`
    )
    # what to say of the inputs that the sources lack, by source and input, as bronze has just found
    missing_inputs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    next_sync: float = 0.0  # when to try the catalog again, by the same clock
    seen: Seen = field(default_factory=Seen)  # the lake, as the last tick left it
    kept: dict[str, tuple[object, object]] = field(default_factory=dict)  # see `Lake`

    def restarted(self) -> Warm:
        """A new state that keeps the identity of the lake."""
        return Warm(seen=self.seen)


def run(
    spark: SparkSession,
    pipeline: Pipeline,
    stages: Iterable[str] = STAGES,
    warm: Warm | None = None,
    tell: Tell = lambda _subject, _step: None,
    *,
    select: str = "",
    stop: Callable[[], bool] = lambda: False,
) -> Result:
    """Run the stages of one pipeline once, under the lake's lock.

    Args:
        spark: the session.
        pipeline: what to run.
        stages: which of `STAGES`.
        warm: what this session knows of the lake already.
        tell: called with each step.
        select: fold only mirrors whose name fits this pattern.
        stop: called between stages and mirrors; True ends the run after the commit in flight.

    Raises:
        LockedError: another live run holds the lake.
        SetupError: the lake cannot be written.
    """
    warm = warm if warm is not None else Warm()
    session = deferred(spark)
    lake = Lake(cast("SparkSession", session), pipeline, kept=warm.kept, select=select, stop=stop)
    result = Result(pipeline.name, lake.run, str(pipeline.file))
    pace(spark, 0)  # reads to find out what there is to do
    emitter = Emitter(lake)
    with lock.held(pipeline.lake, f"run of {pipeline.name}"):
        identity.check(lake, warm.seen)
        wanted = [stage for stage in STAGES if stage in set(stages)]
        for stage in wanted:
            if stop():
                result.stopped = result.stopped or stage
                break
            try:
                _run_stage(stage, session, lake, warm, result, tell)
            except Exception as error:
                said = f"{stage} stopped: {faults.said(error)}"
                emitter.end([said], result.messages, [])
                result.fail(said)
                with suppress(Exception):  # the cause that stopped the stage may prevent this write, too
                    _record(lake, warm, result)
                if isinstance(error, IngestError) or faults.fault(error) is None:
                    raise
                raise StoppedError(f"{said}.") from error
            if result.batch is not None:
                emitter.start()
        schedules.note(lake)
        missing_inputs.note(lake, warm.missing_inputs)
        warm.seen = identity.look(lake)
        if "gold" in wanted:
            _look_for_mirrors(lake, warm, result)
        result.warnings += _noticed(lake, warm, result)
        with _said("the run could not be recorded in runs"):
            is_recorded = _record(lake, warm, result)
        if is_recorded:
            emitter.end(result.failures, result.messages, _written(result))
    result.warnings.extend(emitter.warnings)
    if result.stopped:
        result.warnings.append(f"stopped before the end of {result.stopped}: the next run does the rest.")
    return result


def _run_stage(stage: str, session: Deferred, lake: Lake, warm: Warm, result: Result, tell: Tell) -> None:
    """Run one stage under its name in Spark's books, and note its times and where it ran."""
    started, result.began[stage] = time.monotonic(), lake.now()
    group = f"{lake.run}/{stage}"
    with session.named(f"ingest {lake.pipeline.name} {stage}", group):
        had_work = _STAGES[stage](lake, warm, result, tell)
    result.stages[stage] = time.monotonic() - started
    if (place := jobs.ran(lake.spark, group)) is not None and (had_work or place.jobs):
        result.ran[stage] = place


@contextmanager
def _said(what: str) -> Iterator[None]:
    """Say of a failure of the lake's files what it stopped.

    Raises:
        StoppedError: a full disk, a refused access, a damaged file.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, IngestError) or faults.fault(error) is None:
            raise
        raise StoppedError(f"{what}: {faults.said(error)}.") from error


def _look_for_mirrors(lake: Lake, warm: Warm, result: Result) -> None:
    """Say which mirrors are lost, of those that nothing was folded into; where there is nothing to fold, once a minute in a
    session that repeats its ticks.
    """
    now, is_idle = time.monotonic(), result.batch is None
    if is_idle and now < warm.next_look:
        return
    if is_idle:
        warm.next_look = now + LOOK_AGAIN
    whole_files.look(lake)
    for mirror in completed.lost(lake) if is_idle else completed.torn(lake):
        result.fail(mirror.said, mirror.name)


def _in_catalog(lake: Lake, warm: Warm, result: Result) -> list[str]:
    """Keep the catalog in step with the mirrors; a session that repeats its ticks asks one that failed once a minute."""
    touched = {mirror.path for mirror in result.mirrors if mirror.state == "done"}
    now = time.monotonic()
    may_try = now >= warm.next_sync
    warnings = sync.follow(lake, touched, try_again=may_try)
    if warnings and may_try:
        warm.next_sync = now + LOOK_AGAIN
    return warnings


def _unused_cluster(lake: Lake, result: Result) -> list[str]:
    """A warning if a cluster was asked for, and nothing of the run was done there."""
    master = jobs.unused_cluster(lake.spark, lake.pipeline.master, result.ran)
    if not master:
        return []
    way = "" if lake.pipeline.engine == SPARK else ": `engine: spark` in the pipeline file has it used"
    return [f"the cluster {master} ran no task of {', '.join(result.ran)}, which the driver did{way}."]


def _written_by_spark(lake: Lake) -> list[str]:
    """A warning if Spark starts for every batch, though the pipeline file asks for it only where it is worth it."""
    why = commits.why_no_commits(lake.pipeline.lake)
    if lake.pipeline.engine == SPARK or not why:
        return []
    said = f"Spark writes all tables, for Arrow does not reach {lake.pipeline.lake} ({why})"
    return [f"{said}: `engine: spark` in the pipeline file ends this warning."]


def _open_to_two(lake: Lake) -> list[str]:
    """A warning if neither the store nor Spark's commits keep two drivers from replacing each other's entries."""
    path = lake.pipeline.lake
    has_log_store = any(name.startswith("spark.delta.logStore.") for name in lake.pipeline.spark)
    if has_log_store or not hadoop.admits_two(path):
        return []
    said = f"the store of {path} lets a second writer replace a new file (it ignores If-None-Match)"
    return [
        f"{said}: let only one driver write this lake, or set a `spark.delta.logStore` as docs/cluster.md says."
    ]


def _noticed(lake: Lake, warm: Warm, result: Result) -> Iterator[str]:
    """What else is to be said of the lake after the stages; what no run changes, once in a session."""
    if "gold" in result.stages:
        yield from _in_catalog(lake, warm, result)
    if not warm.looked:
        yield from targets.settings_said(lake)
        yield from _written_by_spark(lake)
        yield from _open_to_two(lake)
        warm.looked = True
    yield from _unused_cluster(lake, result)


def _written(result: Result) -> list[WrittenTable]:
    """The mirrors that the run has written, with their numbers of rows."""
    return [
        WrittenTable(folded.mirror, folded.path, sum(folded.counts.get(name, 0) for name in PUT), folded.size)
        for folded in result.mirrors
        if folded.state == "done"
    ]


def _bronze(lake: Lake, warm: Warm, result: Result, tell: Tell) -> bool:
    """Land what is new; True if there was something."""
    tell("bronze", "reading what is new")
    try:
        landed = land(lake, warm.positions, cores(lake.spark))
    except SealError as error:  # nothing was landed: the sources keep the messages for the next run
        result.fail(f"nothing was read, because {error}")
        return False
    result.batch, result.read = landed.batch, landed.messages
    warm.missing_inputs = landed.missing_inputs
    for source, text in landed.alarms:
        result.fail(f"source {source}: {text}", source)
    result.warnings.extend(landed.warnings)
    return landed.batch is not None


def _silver(lake: Lake, warm: Warm, result: Result, tell: Tell) -> bool:
    """Decode what has landed; True if there was something."""
    last = last_batch(lake)
    if last <= warm.decoded:
        return False
    decoded_with.refuse_mixed_masks(lake, lake.decoded(), lake.progress("silver", CHANGES.name))
    tell("silver", "decoding")
    try:
        decoded = decode(lake, last, cores(lake.spark))
    except SetupError as error:  # a registry is down: bronze keeps the messages for the next run
        result.fail(str(error))
        return False
    if any(line.ddl for line in decoded.lines) and (lost := decoded_with.lost_masks(lake)):
        result.fail(lost)
    warm.decoded = last
    for line in decoded.lines:
        result.changes += line.changes
        result.ddl += line.ddl
        result.control += line.control
        result.routed_out += line.routed_out
        result.rejected += line.rejected
        if line.rejected:
            result.rejecting.add(line.source)
        place = line.source, line.topic
        result.messages[place] = result.messages.get(place, 0) + line.messages
    for text in decoded.unbalanced:
        result.fail(f"the books do not balance: {text}", of_batch=True)
    if decoded.batches:
        result.batch = decoded.batches[-1]
    if result.rejected:
        said = counted(result.rejected, "message was", "messages were")
        result.warnings.append(f"{said} rejected: see `{command('rejects', lake.pipeline.file)}`.")
    return bool(decoded.batches)


def _gold(lake: Lake, warm: Warm, result: Result, tell: Tell) -> bool:
    """Fold what was decoded; True if a mirror was brought up to date."""
    last, now = lake.decoded(), _waiting(lake, warm, result)
    if last <= now.complete and not now.lagging:
        return False
    tell("gold", "reading the books")
    result.incomplete = bool(lake.select)
    while _carry(lake, warm, result, tell, carried.overtaken(lake)):
        last = lake.decoded()  # what was landed again may belong to a table that has got yet another name
    result.mirrors = _folded(lake, warm, now, last, tell)
    while _carry(lake, warm, result, tell, carried.due(lake, _untried(result.mirrors))):
        # of those that the rows do not concern: nothing in the batch of these is theirs
        for folded in filter(lambda folded: folded.state == "done", result.mirrors):
            folded.until = folded.until or last
        now, last = _progress_after(result, now, last), lake.decoded()
        again = _folded(lake, warm, now, last, tell)
        result.mirrors = list({folded.path: folded for folded in [*result.mirrors, *again]}.values())
    for folded in result.mirrors:
        _report(folded, result, lake.pipeline.file)
    result.stopped = "gold" if lake.stop() else ""
    result.incomplete = bool(lake.select or result.stopped)
    warm.progress = _progress_after(result, now, last)
    if result.touched or warm.progress == Progress(last):
        result.batch = last
    return result.touched > 0


def _waiting(lake: Lake, warm: Warm, result: Result) -> Progress:
    """Up to which batch all mirrors are folded, and which lag; at first those count that no run has made or completed, too."""
    now = warm.progress = warm.progress or progress(lake)
    is_first, warm.begun = not warm.begun, True
    if is_first or lake.decoded() > now.complete:
        _report_outdated(lake, result)
    if not is_first:
        return now
    return Progress(now.complete, now.lagging | mirrors.not_created_yet(lake) | targets.unfinished(lake))


def _untried(results: Iterable[Folded]) -> list[Folded]:
    """The mirrors that are held for a decision, unless it is known already that no rows can be carried over to them."""
    return [folded for folded in results if folded.state == "held" and folded.waits and not folded.lacking]


def _carry(
    lake: Lake, warm: Warm, result: Result, tell: Tell, due: Iterable[carried.Carried | decisions.Decision]
) -> bool:
    """Land the rows of renamed tables under their new names, and decode them; True if there were some, and they are decoded.

    A run that is killed before the decision lands them once more. Nothing is landed after a batch that silver cannot decode
    yet, as while a registry does not answer: it would be landed again and again.
    """
    if lake.stop() or last_batch(lake) > lake.decoded():
        return False
    any_due = False
    for rows in due:
        any_due = True
        if isinstance(rows, carried.Carried):
            tell(f"gold {rows.move.table}", f"carrying over {counted(len(rows.rows), 'row')}")
            batch = last_batch(lake) + 1
            carried_rows.land(lake, batch, rows.source, rows.topic(batch), rows.messages(batch))
            decisions.append(lake, [rows.decision(batch)])
        else:
            decisions.append(lake, [rows])
    if any_due:
        _silver(lake, warm, result, tell)
    return any_due and lake.decoded() >= last_batch(lake)


def _report_outdated(lake: Lake, result: Result) -> None:
    """Add the mirrors that wait for a rebuild since changes were decoded again, and the folders that two mirrors claim."""
    for mirror in mirrors.outdated(lake):
        result.fail(mirrors.outdated_text(lake, mirror), mirror.name)
    for contested in targets.contested(lake):
        result.fail(
            contested.text, of_batch=True
        )  # a session that repeats its ticks does not look for it in each
    result.warnings += idle_rules.listed(lake)


def _progress_after(result: Result, before: Progress, last: int) -> Progress:
    """Up to which batch all mirrors are folded now, but for those that lag."""
    unfinished = frozenset(mirror.path for mirror in result.mirrors if mirror.state in UNFINISHED)
    if not result.incomplete:
        return Progress(last, unfinished)
    tried = {mirror.path for mirror in result.mirrors if mirror.state != "skipped"}
    return Progress(before.complete, (before.lagging - tried) | unfinished)  # what was not tried is unchanged


def _report(mirror: Folded, result: Result, file: Path) -> None:
    """Add what the fold of a mirror leaves to the operator."""
    if mirror.state in ("failed", "held"):
        result.fail(f"{mirror.mirror} {mirror.state}: {mirror.message}", mirror.mirror)
    elif mirror.state == "paused":
        result.warnings.append(f"{mirror.mirror} is paused: {mirror.message}")
    if unfit := mirror.counts.get(COUNTED):
        result.warnings.append(
            f"{mirror.mirror}: {counted(unfit, 'value does', 'values do')} not fit: "
            f"see `{command('rejects', file)}`."
        )
    if unread := mirror.counts.get(UNREAD):
        text = f"{counted(unread, 'statement')} could not be read, or the table's rows are elsewhere"
        result.warnings.append(f"{mirror.mirror}: {text}: see `{command('ddl', file)}`.")


def _folded(lake: Lake, warm: Warm, now: Progress, last: int, tell: Tell) -> list[Folded]:
    """Fold new batches; mirrors that wait for a decision are skipped at no cost until it is made."""
    version = lake.snapshot(DECISIONS.name).version
    if warm.decisions != version:
        warm.decisions = version
        warm.decided = None  # a rebuild by another process gives a mirror its next generation
        warm.resting = {}
    if last <= now.complete and not lake.select and now.lagging <= warm.resting.keys():
        return list(warm.resting.values())
    with paced(lake.spark, 0, lake.snapshot(BOOKS.name).known_size):
        books = open_books(lake, now.complete, last)
    if warm.tables != len(books.lanes):
        warm.tables, warm.resting = len(books.lanes), {}
    if warm.decided is None:
        warm.decided = mirrors.known(lake)
    results, paused = [], pauses.paused(lake)
    asleep = {path: resting for path, resting in warm.resting.items() if resting.waits and not lake.select}
    for view, lagging in targets.shared(lake, now.lagging | warm.resting.keys()):
        retried = {path: resting for path, resting in asleep.items() if path in lagging}
        backlog = Backlog(now.lagging & lagging, retried, paused)
        results += apply(
            view,
            books,
            warm.decided,
            lambda about, step: tell(about if about == "gold" else f"gold {about}", step),
            backlog=backlog,
            rebuild=rebuild.within_run,
        )
    _follow(lake, warm.decided, results, tell)
    if not lake.select:
        warm.resting = {result.path: result for result in results if result.state in ("held", "paused")}
        warm.decisions = lake.snapshot(DECISIONS.name).version  # its own decisions are known already
    return results


def _follow(lake: Lake, decided: Mapping[str, Mirror], results: list[Folded], tell: Tell) -> None:
    """Bring change feeds up to date, also of mirrors without new batches: a run may have been killed before."""
    states = {result.path: result for result in results}
    for mirror in (fed for view in targets.views(lake) for fed in wanted(view, decided)):
        if lake.stop() or not _can_be_followed(lake, mirror):
            continue
        tell(f"gold {mirror.name}", "change feed")
        result = states.get(mirror.path)
        try:
            feeds.follow(lake, mirror)
        except Exception as error:  # the other feeds go on
            if result is None:
                result = Folded(mirror.name, mirror.path, "failed")
                results.append(result)
            feed = table_of(mirror)
            is_said = isinstance(error, HeldError)
            why = str(error) if is_said else faults.of_mirror(error, lake, feed.name, feed.path)
            result.state, result.message = "failed", f"{result.message} The change feed: {why}".strip()
        else:
            if result is not None and result.state == "skipped" and result.version >= 0:
                result.state = "done"  # there is nothing to fold: it may have failed by its feed alone


def _can_be_followed(lake: Lake, mirror: Mirror) -> bool:
    """True of a mirror that is there; not of one whose log is damaged, which its fold says."""
    try:
        return lake.exists(mirror.path)
    except Exception:
        return False


def _quality(lake: Lake, warm: Warm, result: Result, tell: Tell) -> bool:
    """Check what was folded; True if there was something."""
    last = lake.decoded()
    if warm.checked is None:
        warm.checked = quality.last_checked(lake)
    done = {folded.path: folded.mirror for folded in result.mirrors if folded.state == "done"}
    if last <= warm.checked and not done:
        return False
    try:
        with paced(
            lake.spark, result.changes if done else FEW + 1, sum(mirror.size for mirror in result.mirrors)
        ):
            look = partial(quality.check, lake, decided=warm.decided, tell=tell, steps=steps_of(lake))
            checked = look(warm.checked, done, partly=result.incomplete)
            if rebuilt := {
                fold.path: fold.mirror for fold in result.mirrors if fold.rebuilt and fold.state == "done"
            }:
                # earlier batches have other rows now, too
                checked.take_over(look(only=rebuilt), rebuilt.values())
    except SealError as error:  # the next run checks these batches, too
        result.fail(f"nothing was checked, because {error}")
        return False
    result.checks = checked.counts()
    reported = set(_reported(result, lake.pipeline.file))
    failures, warnings = quality.complaints(lake.pipeline.file, checked, reported)
    result.failed.extend(Failure(text, is_check=True) for text in failures)
    result.warnings.extend(warnings)
    if not result.incomplete:
        warm.checked = last
    return True


def _reported(result: Result, file: Path) -> Iterator[tuple[str, str]]:
    """Checks, with mirror or source, whose problem the run has already reported."""
    yield from (("reject_rate", source) for source in result.rejecting)
    for folded in result.mirrors:
        if folded.state in ("failed", "held"):
            yield "up_to_date", folded.mirror
        if folded.command == command("rebuild", file, folded.mirror):  # its files are damaged
            yield "readable", folded.mirror
        if folded.counts.get(UNREAD):
            yield "ddl_pending", folded.mirror


_STAGES = {"bronze": _bronze, "silver": _silver, "gold": _gold, "quality": _quality}


def _record(lake: Lake, warm: Warm, result: Result) -> bool:
    """Append the run to `runs`; a run that did nothing leaves none if it found what the one before it did."""
    failures = frozenset(
        failure.text for failure in result.failed if not (failure.is_check or failure.of_batch)
    )
    is_whole = set(STAGES) <= result.stages.keys() and not (result.stopped or lake.select)
    if result.batch is None and is_whole and warm.recorded < (landed := last_batch(lake)):
        # the run that landed it did not come to its end, and left this one perhaps nothing to do
        result.batch, warm.recorded = completed.unrecorded(lake), landed
    if result.batch is None:
        if warm.reported is None:
            warm.reported, warm.of_batch = completed.alarms(lake), completed.has_alarms_of_batch(lake)
        # one that finds nothing wrong any more ends the alarms of the run before it, but for those of a batch's messages,
        # which are not looked for again
        if failures == warm.reported or not (failures or (is_whole and not warm.of_batch)):
            return False
    warm.reported = failures
    warm.of_batch = any(failure.of_batch for failure in result.failed)
    result.complete_until = _complete_until(lake, warm, result)
    marks = {} if warm.progress is None else warm.progress.marks
    lake.append_unguarded(list(_rows(lake, result)), RUNS, marks)
    return True


def _complete_until(lake: Lake, warm: Warm, result: Result) -> dt.datetime | None:
    """How far all mirrors are; errors on the way are reported elsewhere."""
    if warm.progress is None or "gold" not in result.stages:
        return None
    with suppress(Exception):
        known = mirrors.known(lake) if warm.decided is None else warm.decided
        seen = {folded.path: folded.mirror for folded in result.mirrors}
        return complete_until.of_run(lake, known, seen, warm.progress)
    return None


def _rows(lake: Lake, result: Result) -> Iterator[tuple[object, ...]]:
    """The rows of `runs`: one for each stage, each mirror and each alarm."""
    head = (result.run, lake.pipeline.name, result.batch)
    now = lake.now()
    yield from _rows_of_stages(head, result)
    for fold in result.mirrors:
        if fold.state != "skipped":
            about = (fold.began or now, fold.seconds, fold.version, json.dumps(fold.counts), fold.message)
            of_mirror = (*head[:2], fold.until or result.batch, "gold", fold.mirror, fold.state)
            yield (*of_mirror, *about, None, fold.command or None, *_NO_PLACE)
    for failure in result.failed:
        state = FAILED_CHECK if failure.is_check else "alarm"
        subject = failure.subject or None
        batch = result.batch if failure.is_check or failure.of_batch else None
        yield (
            *head[:2],
            batch,
            "alarm",
            subject,
            state,
            now,
            0.0,
            None,
            "{}",
            failure.text,
            None,
            None,
            *_NO_PLACE,
        )


def _rows_of_stages(head: tuple[str, str, int | None], result: Result) -> Iterator[tuple[object, ...]]:
    counts = {name: getattr(result, name) for name in ("read", "changes", "ddl", "control", "rejected")}
    unfinished = result.incomplete or any(mirror.state in UNFINISHED for mirror in result.mirrors)
    for stage, seconds in result.stages.items():
        state = "failed" if stage == "gold" and unfinished else "done"
        began = result.began[stage]
        until = result.complete_until if stage == "gold" else None
        moment = until and until.replace(tzinfo=dt.UTC)
        ran = result.ran.get(stage)
        place = (ran.where, ran.jobs, ran.tasks, ran.executors) if ran else _NO_PLACE
        yield (*head, stage, None, state, began, seconds, None, json.dumps(counts), "", moment, None, *place)
