"""Land one bronze batch: plan over all sources, read in Spark tasks, commit messages and receipts together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import repeat
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.bronze import files, kafka, moved
from ingest.bronze.offsets import Look
from ingest.bronze.positions import Positions, Receipts
from ingest.bronze.positions import receipts as receipts_of
from ingest.bronze.reading import BLOCK, BrokenRange, Range, Record, headers, hole, read
from ingest.bronze.receipts import Receipt
from ingest.bronze.store import REPORT, storing, written_receipts
from ingest.errors import IngestError, counted
from ingest.ledgers import sealing
from ingest.spark.pace import paced
from ingest.spark.tasks import ANY, Load, Work, dealt
from ingest.store.envelope import Seal
from ingest.tables import identity
from ingest.tables.datafiles import Added
from ingest.tables.lake import Lake
from ingest.tables.schemas import BRONZE
from ingest.tables.tables import Tables

STAGE = "bronze"
_GROUP_ROWS = 10_000
_SHORT = 200  # bytes of a message
_WRITERS = "spark.sql.maxConcurrentOutputFileWriters"
_KINDS = 4  # and days: more than one batch covers

_COLUMNS = ("kind", "source", "topic", "partition", "offset", "value", "headers")
_ARROW, _SPARK = BRONZE.part(*_COLUMNS), BRONZE.part_ddl(*_COLUMNS)

Row = tuple[Any, ...]  # the columns of `_ARROW`
Sealed = Callable[[Iterator[pa.RecordBatch], str], Iterator[pa.RecordBatch]]
"""Seals the messages of pages; the name of their source is given where the pages do not hold it."""


@dataclass(slots=True)
class Landed:
    """What a bronze run did: its batch (None if there was nothing new), counts and alarms."""

    batch: int | None = None
    messages: int = 0
    alarms: list[tuple[str, str]] = field(default_factory=list)  # source, text
    warnings: list[str] = field(default_factory=list)
    missing_inputs: dict[str, Mapping[str, str]] = field(
        default_factory=dict
    )  # what to say of each, by source


def last_batch(lake: Tables) -> int:
    """The newest landed batch; 0 before the first."""
    return max(0, lake.progress(STAGE, BRONZE.name))


def land(lake: Lake, positions: Positions, cores: int) -> Landed:
    """Land one batch over all sources, if there is anything new."""
    landed = Landed()
    last = last_batch(lake)
    positions.catch_up(lake, last)
    identity.refuse_missing_sources(lake, positions.sources)
    work: list[Range] = []
    looks: list[Look] = []
    for rank, source in enumerate(lake.pipeline.sources):
        if not source.enabled:
            continue
        if source.kind == "kafka":
            look = kafka.look(lake, source, positions.places.get(source.name, {}))
            landed.alarms.extend((source.name, text) for text in look.alarms(lake.pipeline.file))
            landed.warnings.extend(f"source {source.name}: {text}" for text in look.plan.warnings)
            if not look.trouble:  # a broker that is down says nothing of its topics
                landed.missing_inputs[source.name] = look.plan.missing
            looks.append(look)
        for part in files.parts(lake.pipeline, source):
            planned = files.plan(
                part,
                rank,
                files.known_of(part, positions.files.get(source.name, {})),
                cores,
                partial(moved.known_moves, lake, source.name),
            )
            moved.record(lake, source.name, planned.moves)
            work.extend(planned.ranges)
            if part is source and planned.missing is not None:
                landed.missing_inputs[source.name] = planned.missing
            landed.alarms.extend((source.name, text) for text in planned.alarms)
            landed.warnings.extend(f"source {source.name}: {text}" for text in planned.warnings)
    if not work and not any(look.plan.due for look in looks):
        return landed
    batch = last + 1
    try:
        receipts = _append(lake, work, looks, landed, batch, cores)
    except kafka.READ_ERRORS as error:
        if not (alarms := kafka.failed(looks, error)):
            raise
        landed.alarms.extend(alarms)
        return landed
    _note_receipts(positions, landed, batch, receipts)
    return landed


def _append(
    lake: Lake, work: list[Range], looks: list[Look], landed: Landed, batch: int, cores: int
) -> Receipts:
    """Read and commit the batch, without the ranges after one that cannot be read."""
    commit = _by_files if lake.writes(BRONZE) else _by_spark
    while True:
        try:
            return commit(lake, work, looks, batch, cores)
        except (BrokenRange, *kafka.READ_ERRORS) as error:
            unread = hole(work, error)
            if unread is None:
                raise
            work = unread.before
            source = lake.pipeline.sources[unread.broken.source].name
            text = f"{unread.fault} What comes after it in source {source} was not read, to keep its order: run again."
            landed.alarms.append((source, text))


def _by_files(lake: Lake, work: list[Range], looks: list[Look], batch: int, cores: int) -> Receipts:
    """Have the messages written and reported; write the receipts, and commit both together."""
    now = lake.now()
    seal = sealing.begin(lake, batch, now.date())
    layout = lake.layout(BRONZE)
    names = [source.name for source in lake.pipeline.sources]
    reached = [row for look in looks for row in kafka.reached_offsets(look)]
    of_kafka = [
        kafka.write_messages(lake, look, cores, layout, batch, now, seal) for look in looks if look.plan.reads
    ]
    store = storing(layout, batch, now, seal=seal)
    of_files = Work(
        STAGE,
        work,
        lambda ranges: store(_read_all(ranges, names)),
        REPORT,
        deal=partial(_tasks, cores=cores),
        load=Load(_expected(work, looks), _size(work)),
        batches=f"batch {batch}",
        about=", ".join(filter(None, (counted(len(work), "file range"), "topics" if of_kafka else ""))),
    )
    rows = [*reached, *lake.runner.rows(of_files, same_job=of_kafka)]
    files = [Added.from_json(row["value"]) for row in rows if row["kind"] == "file"]
    receipts = [row for row in rows if row["kind"] == "receipt"]
    files += written_receipts(layout, receipts, batch, now)
    if not lake.append(files, BRONZE, STAGE, batch):
        raise _overtaken(batch)
    return [(row["source"], batch, row["value"]) for row in receipts]


def _by_spark(lake: Lake, work: list[Range], looks: list[Look], batch: int, cores: int) -> Receipts:
    """The same if Spark writes everything."""
    with paced(lake.spark, _expected(work, looks)), _side_by_side(lake.spark):
        if not lake.append(_frame(lake, work, looks, batch, cores), BRONZE, STAGE, batch):
            raise _overtaken(batch)
    return receipts_of(lake, batch, batch)


def _overtaken(batch: int) -> IngestError:
    return IngestError(f"Another run landed batch {batch} at the same time: nothing was read; run again.")


def _size(work: list[Range]) -> int:
    """The bytes to read: more than any limit if some are compressed, whose plain length is not known."""
    return ANY if any(span.compressed for span in work) else sum(span.weight for span in work)


@contextmanager
def _side_by_side(spark: SparkSession) -> Iterator[None]:
    """Let a task write messages and receipts into two files at once; otherwise it would sort all rows by ``kind``."""
    before = spark.conf.get(_WRITERS, "0")
    spark.conf.set(_WRITERS, max(_KINDS, int(before or 0)))
    try:
        yield
    finally:
        spark.conf.set(_WRITERS, before or "0")


def _expected(work: list[Range], looks: list[Look]) -> int:
    """The approximate number of messages of a batch; those in files are assumed to be short."""
    offsets = sum(span.end - span.start for look in looks for span in look.plan.spans)
    return offsets + sum(span.weight for span in work) // _SHORT


def _note_receipts(positions: Positions, landed: Landed, batch: int, receipts: Receipts) -> None:
    for source, _, value in receipts:
        receipt = positions.add(source, batch, value)
        landed.messages += receipt.count
        if isinstance(receipt, Receipt) and receipt.fault:
            landed.alarms.append((source, receipt.fault))
    positions.batch = batch
    landed.batch = batch


def _frame(lake: Lake, work: list[Range], looks: list[Look], batch: int, cores: int) -> DataFrame:
    now = lake.now()
    sealed = _sealing(sealing.begin(lake, batch, now.date()), batch)
    frames = [kafka.frame(lake, look, cores, sealed) for look in looks if look.plan.spans]
    if work:
        frames.append(_files(lake, work, cores, sealed))
    added = {
        "batch": F.lit(batch).cast("bigint"),
        "ingested_at": F.lit(now).cast("timestamp"),
        "day": F.lit(now.date()).cast("date"),
    }
    return reduce(DataFrame.unionByName, frames).withColumns(added).select(*BRONZE.arrow.names)


def _sealing(seal: Seal | None, batch: int) -> Sealed:
    """The function that seals the messages of pages, if they are to be."""
    if seal is None:
        return lambda pages, _source: pages
    return lambda pages, source: (seal.page(page, batch, source) for page in pages)


def _files(lake: Lake, work: list[Range], cores: int, sealed: Sealed) -> DataFrame:
    names = [source.name for source in lake.pipeline.sources]
    reading = Work(
        STAGE,
        work,
        lambda ranges: sealed(_read_all(ranges, names), ""),
        _SPARK,
        deal=partial(_tasks, cores=cores),
        load=Load(size=_size(work)),
    )
    frame = lake.runner.frame(reading)
    nothing = F.lit(None)
    return frame.withColumns({"timestamp": nothing.cast("timestamp"), "key": nothing.cast("binary")})


def _tasks(work: Sequence[Range], cores: int) -> list[list[Range]]:
    """Assign the ranges to tasks of about equal size, neighbours together."""
    total = sum(map(_weight, work))
    return dealt(work, _weight, min(len(work), max(cores, total // files.MAX_SPLIT)))


def _weight(work: Range) -> int:
    return work.weight + 4096  # bytes; opening a file costs about as much as reading so many


def _read_all(work: Sequence[Range], names: list[str]) -> Iterator[pa.RecordBatch]:
    """The messages of all ranges, then their receipts; many small files fill one batch."""
    columns = _empty()
    held = 0
    receipts: list[Row] = []
    for span in work:
        source = names[span.source]
        reading = read(span)
        while True:
            try:
                records = next(reading)
            except StopIteration as done:
                if done.value.fault and span.followed:
                    raise BrokenRange(span, done.value.fault) from None
                receipt: Receipt = done.value
                place = (source, span.file, span.rank, receipt.start)
                receipts.append(("receipt", *place, receipt.to_json(), None))
                break
            for first in range(0, len(records), _GROUP_ROWS):
                part = records[first : first + _GROUP_ROWS]
                held += _add(columns, ("message", source, span.file, span.rank), part)
                if len(columns[0]) >= _GROUP_ROWS or held > BLOCK:
                    yield _arrow(columns)
                    columns, held = _empty(), 0
    for column, values in zip(columns, zip(*receipts, strict=True), strict=True):
        column.extend(values)
    yield _arrow(columns)


def _empty() -> list[list[Any]]:
    """The columns of no rows."""
    return [[] for _ in _ARROW]


def _add(columns: list[list[Any]], place: tuple[str, str, str, int], records: list[Record]) -> int:
    """Add the records of one range to the columns, one column after the other; their length in bytes."""
    offsets, values, lengths = zip(*records, strict=True)
    kept = [None] * len(records) if None not in values else map(headers, records)
    added = (*(repeat(part, len(records)) for part in place), offsets, values, kept)
    for column, cells in zip(columns, added, strict=True):
        column.extend(cells)
    return sum(lengths)


def _arrow(columns: list[list[Any]]) -> pa.RecordBatch:
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
