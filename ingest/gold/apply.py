"""The gold stage: every mirror with new batches folded and merged, each on its own.

One mirror's failure neither stops nor delays another; the failed one is tried again by the next run,
for its progress is in its own log.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import reduce

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.config import matches
from ingest.errors import HeldError
from ingest.gold import ledger as ledgers
from ingest.gold import merge as merging
from ingest.gold.fold import MISFIT, Shape, key_name
from ingest.gold.gather import Lane, Steps, gather
from ingest.gold.ledger import Ledger
from ingest.gold.schema import decide
from ingest.gold.work import Books, Job, jobs, lane
from ingest.lake import log, mirrors
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Mirror
from ingest.lake.schemas import CHANGES, DECISIONS, REJECTS
from ingest.lake.session import new_session

STAGE = "gold"
THREADS = 3  # more do not help: a MERGE's cost is planning and commits (see benchmarks)


@dataclass(slots=True)
class Folded:
    """What happened to one mirror."""

    mirror: str
    path: str
    state: str  # done | failed | held | skipped
    version: int = -1
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    message: str = ""


def apply(
    lake: Lake,
    books: Books,
    decided: dict[str, Mirror],
    tell: Callable[[str, str], None] = lambda _mirror, _step: None,
) -> list[Folded]:
    """Fold every mirror that has new batches.

    Args:
        lake: the lake.
        books: the work list.
        decided: each mirror's schema as last decided; new decisions are added.
        tell: is told the mirror and the step that it begins.
    """
    todo = [job for job in jobs(lake, books) if not lake.select or matches(lake.select, job.table)]
    wanted: list[tuple[Job, Mirror]] = []
    done: list[Folded] = []
    rows = []
    ledger = ledgers.read(lake) if any(_needs_ledger(books, job, decided) for job in todo) else Ledger()
    for job in todo:
        try:
            mirror = decide(job, decided.get(job.path), ledger)
        except HeldError as error:
            done.append(Folded(str(job.table), job.path, "held", message=str(error)))
            continue
        if mirror != decided.get(job.path):
            rows.append(mirrors.decision(lake, mirror, books.last, "columns seen"))
            decided[job.path] = mirror
        wanted.append((job, mirror))
    lake.append_unguarded(rows, DECISIONS)
    with ThreadPoolExecutor(THREADS, thread_name_prefix="mirror") as pool:
        done.extend(pool.map(lambda one: _one(lake, books, ledger, one[0], one[1], tell), wanted))
    return sorted(done, key=lambda one: one.mirror)


def _needs_ledger(books: Books, job: Job, decided: dict[str, Mirror]) -> bool:
    """True for a new mirror, new statements, or late changes where there were statements before."""
    if job.path not in decided:
        return True
    lanes = [lane(books, name, lines, books.complete) for name, lines in job.lines.items()]
    return any(
        one is not None and one.ddl_ever and (one.late or any(line.ddl for line in lines))
        for one, lines in zip(lanes, job.lines.values(), strict=True)
    )


def _one(
    lake: Lake, books: Books, ledger: Ledger, job: Job, mirror: Mirror, tell: Callable[[str, str], None]
) -> Folded:
    started = time.monotonic()
    result = Folded(mirror.name, mirror.path, "done")
    if lake.stop() or not mirror.keys:
        result.state = "skipped"
        return result
    try:
        _fold(lake, books, ledger, job, mirror, result, tell)
    except HeldError as error:
        result.state, result.message = "held", str(error)
    except Exception as error:  # whatever one mirror meets, the others go on
        result.state, result.message = "failed", _sentence(error)
    result.seconds = time.monotonic() - started
    return result


def _sentence(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:500] if text else ''}"


def _fold(
    lake: Lake,
    books: Books,
    ledger: Ledger,
    job: Job,
    mirror: Mirror,
    result: Folded,
    tell: Callable[[str, str], None],
) -> None:
    path = lake.path(mirror.path)
    writer = lake.writer(STAGE, mirror.path, mirror.generation)
    before = log.snapshot(lake.spark, path)
    lanes = _lanes(books, job, before.transactions.get(writer, -1))
    result.version = before.version
    if not lanes:
        result.state = "skipped"
        return
    session = new_session(lake.spark)
    session.conf.set("spark.sql.caseSensitive", "true")  # columns that differ only in case are two
    tell(mirror.name, "schema")
    _prepare(lake, session, job, mirror, before)
    guard = merging.Guard(writer, books.last, lake.metadata(books.last))
    tell(mirror.name, "merge")
    work = [
        (one, ledgers.steps(ledger.of(one.source, one.table), job.rule, one.first)) for one in lanes
    ]
    _merge(lake, session, mirror, work, guard)
    after = log.snapshot(lake.spark, path)
    result.version = after.version
    if after.version > before.version:
        result.counts = _counts(lake, path, after.version)


def _lanes(books: Books, job: Job, applied: int) -> list[Lane]:
    found = (lane(books, name, lines, applied) for name, lines in job.lines.items())
    return [one for one in found if one is not None]


def _prepare(lake: Lake, session: SparkSession, job: Job, mirror: Mirror, before: log.Snapshot) -> None:
    """Whatever must go before the guarded commit; all of it may be run again."""
    if before.exists:
        merging.add_columns(lake, session, mirror, before.columns)
        merging.widen(lake, session, mirror)
        return
    plain = job.rule.plain_tables or lake.pipeline.plain_tables
    merging.create(lake, session, mirror, plain=plain, change_feed=job.rule.change_feed)


Work = list[tuple[Lane, Steps]]


def _merge(lake: Lake, session: SparkSession, mirror: Mirror, work: Work, guard: merging.Guard) -> None:
    """Merge as if every cell fitted; where one does not, keep the misfits first and merge again."""
    new_steps = [step for _, steps in work for step in steps.new]
    for tolerant in (False, True):
        try:
            if tolerant:
                _keep_misfits(lake, session, mirror, work, guard.batch)
            folded, shape = _outcomes(lake, session, mirror, work, tolerant=tolerant)
            source = merging.typed(folded, mirror, shape, tolerant)
            guard.set_on(session)
            merging.merge(session, lake.path(mirror.path), mirror, source, shape, new_steps)
        except PySparkException as error:
            if tolerant or MISFIT not in str(error):
                raise
        else:
            return


def _outcomes(
    lake: Lake, session: SparkSession, mirror: Mirror, work: Work, *, tolerant: bool
) -> tuple[DataFrame, Shape]:
    changes = session.read.format("delta").load(lake.path(CHANGES.name))
    gathered = [gather(changes, mirror, one, steps, tolerant) for one, steps in work]
    shape = Shape(
        any(one.shape.partials for one in gathered),
        any(one.shape.key_changes for one in gathered),
        any(one.clears for one in gathered),
    )
    folded = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), [one.outcomes for one in gathered])
    return (folded.where(_has_key(mirror)) if tolerant else folded), shape


def _has_key(mirror: Mirror) -> Column:
    return reduce(lambda a, b: a & b, [F.col(key_name(i)).isNotNull() for i in range(len(mirror.keys))])


def _keep_misfits(lake: Lake, session: SparkSession, mirror: Mirror, work: Work, batch: int) -> None:
    """Write the texts that do not fit to `rejects`, guarded, before the merge that leaves them out."""
    folded, _ = _outcomes(lake, session, mirror, work, tolerant=True)
    found = merging.misfits(folded, mirror)
    if found is None:
        return
    database, schema, table = mirror.table
    nothing = F.lit(None)
    rows = found.select(
        F.lit(work[0][0].source).alias("source"),
        nothing.cast("string").alias("topic"),
        nothing.cast("int").alias("partition"),
        nothing.cast("bigint").alias("offset"),
        F.lit(batch).cast("bigint").alias("batch"),
        F.lit(STAGE).alias("stage"),
        F.lit("cell").alias("kind"),
        F.lit(database).cast("string").alias("database"),
        F.lit(schema).cast("string").alias("schema"),
        F.lit(table).cast("string").alias("table"),
        "key",
        "column",
        F.lit("does-not-fit").alias("reason"),
        F.concat(F.lit("no "), F.col("type")).alias("detail"),
        "raw",
        nothing.cast("string").alias("decoder"),
    )
    own = replace(lake, spark=session)
    own.append(rows, REJECTS, f"{STAGE}/{mirror.path}/{mirror.generation}", batch)


def _counts(lake: Lake, path: str, version: int) -> dict[str, int]:
    """What the MERGE says it did, from its own commit."""
    names = {
        "numTargetRowsInserted": "inserted",
        "numTargetRowsUpdated": "updated",
        "numTargetRowsDeleted": "deleted",
        "numOutputRows": "written",
    }
    for action in log.actions(lake.spark, path, version):
        metrics = action.get("commitInfo", {}).get("operationMetrics", {})
        if metrics:
            return {names[name]: int(value) for name, value in metrics.items() if name in names}
    return {}


