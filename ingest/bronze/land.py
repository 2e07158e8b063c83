"""Land one bronze batch: plan over all sources, read in Spark tasks, commit messages and receipts together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.bronze import files, kafka
from ingest.bronze.kafka import Look
from ingest.bronze.offsets import KafkaReceipt, Place, Position, reached
from ingest.bronze.reading import BLOCK, BrokenRange, Range, Record, before_broken, headers, read
from ingest.bronze.receipts import FileState, Receipt
from ingest.bronze.store import REPORT, storing, written_receipts
from ingest.config import Source
from ingest.errors import IngestError
from ingest.formats import ingest_snapshot
from ingest.lake import identity, sealing, snapshots
from ingest.lake.datafiles import Added
from ingest.lake.envelope import Seal
from ingest.lake.lake import Lake
from ingest.lake.pace import paced
from ingest.lake.schemas import BRONZE

STAGE = "bronze"
_GROUP_ROWS = 10_000
_SHORT = 200  # bytes of a message
_WRITERS = "spark.sql.maxConcurrentOutputFileWriters"
LITTLE = 4 << 20  # bytes that this process reads itself
_KINDS = 4  # and days: more than one batch covers

_ARROW = pa.schema(
    [
        ("kind", pa.string()),
        ("source", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
_SPARK = (
    "kind STRING, source STRING, topic STRING, `partition` INT, `offset` BIGINT, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


Row = tuple[Any, ...]  # the columns of `_ARROW`
Sealed = Callable[[Iterator[pa.RecordBatch], str], Iterator[pa.RecordBatch]]
"""Seals the messages of pages; the name of their source is given where the pages do not hold it."""
Receipts = list[tuple[str, int, bytes]]
"""Source, batch, and the columns of each receipt."""


@dataclass(slots=True)
class Landed:
    """What a bronze run did: its batch (None if there was nothing new), counts and alarms."""

    batch: int | None = None
    messages: int = 0
    by_source: dict[str, int] = field(default_factory=dict)
    alarms: list[tuple[str, str]] = field(default_factory=list)  # source, text
    warnings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Positions:
    """The read position of every source of a lake, kept between the ticks of one session."""

    batch: int = 0
    files: dict[str, dict[str, FileState]] = field(default_factory=dict)
    places: dict[str, dict[Place, Position]] = field(default_factory=dict)

    @property
    def sources(self) -> set[str]:
        """The names of the sources with landed messages."""
        return self.files.keys() | self.places.keys()

    def catch_up(self, lake: Lake, last: int) -> None:
        """Read the receipts of batches that are new to this session."""
        if last <= self.batch:
            return
        for source, batch, value in _receipts(lake, self.batch + 1, last):
            self.add(source, batch, value)
        self.batch = last

    def add(self, source: str, batch: int, value: bytes) -> Receipt | KafkaReceipt:
        """Add one receipt in the form that bronze stores."""
        members = json.loads(bytes(value))
        if "file" in members:
            receipt = Receipt.from_json(value)
            self.files.setdefault(source, {}).setdefault(receipt.file, FileState()).add(receipt)
            return receipt
        read = KafkaReceipt.from_members(members)
        known = self.places.setdefault(source, {})
        before = known.get(read.place)
        known[read.place] = before.after(read, batch) if before else reached(read, batch)
        return read


def last_batch(lake: Lake) -> int:
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
            looks.append(_look(lake, source, positions, landed))
        for one in _of_files(lake, source):
            planned = files.plan(one, rank, _known(positions, one), cores)
            work.extend(planned.ranges)
            landed.alarms.extend((alarm.source, alarm.text) for alarm in planned.alarms)
            landed.warnings.extend(f"source {source.name}: {text}" for text in planned.warnings)
    if not work and not any(one.plan.due for one in looks):
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


def _of_files(lake: Lake, source: Source) -> list[Source]:
    """The parts of a source that are read from files: its own files, and those of its snapshots."""
    own = [source] if source.kind == "files" else []
    read = snapshots.source_of(lake.pipeline, source)
    return [*own, read] if read is not None else own


def _known(positions: Positions, source: Source) -> dict[str, FileState]:
    """The files that a source has read; files of a snapshot belong to the snapshot source only."""
    of_snapshots = source.format == ingest_snapshot.MARK
    files = positions.files.get(source.name, {})
    return {path: state for path, state in files.items() if ingest_snapshot.holds(path) == of_snapshots}


def _append(
    lake: Lake, work: list[Range], looks: list[Look], landed: Landed, batch: int, cores: int
) -> Receipts:
    """Read and commit the batch, without the ranges after one that cannot be read."""
    commit = _by_files if lake.writes(BRONZE) else _by_spark
    while True:
        try:
            return commit(lake, work, looks, batch, cores)
        except (BrokenRange, *kafka.READ_ERRORS) as error:
            found = before_broken(work, str(error))
            if found is None:
                raise
            work, broken, fault = found
            source = lake.pipeline.sources[broken.source].name
            text = (
                f"{fault} What comes after it in source {source} was not read, to keep its order: run again."
            )
            landed.alarms.append((source, text))


def _by_files(lake: Lake, work: list[Range], looks: list[Look], batch: int, cores: int) -> Receipts:
    """Have tasks write the messages and report; write the receipts, and commit both together.

    A few messages in files are read and written by this process: starting a task would take longer.
    """
    now = lake.now()
    seal = sealing.begin(lake, batch, now.date())
    layout = lake.layout(BRONZE)
    names = [source.name for source in lake.pipeline.sources]
    rows = [row for one in looks for row in kafka.standing(one)]
    reports = [kafka.written(lake, one, cores, layout, batch, now, seal) for one in looks if one.plan.reads]
    if work and (reports or not _is_little(work)):
        tasks = _tasks(work, cores)
        numbers = lake.spark.range(0, len(tasks), 1, len(tasks))
        store = storing(layout, batch, now, read=_reader(tasks, names), seal=seal)
        reports.append(numbers.mapInArrow(store, REPORT))
    elif work:
        store = storing(layout, batch, now, seal=seal)
        rows += [row for page in store(_read_all(work, names)) for row in page.to_pylist()]
    if reports:
        with paced(lake.spark, _expected(work, looks)):
            rows += [row.asDict() for row in reduce(DataFrame.unionByName, reports).collect()]
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
    return _receipts(lake, batch, batch)


def _overtaken(batch: int) -> IngestError:
    return IngestError(f"Another run landed batch {batch} at the same time: nothing was read; run again.")


def _is_little(work: list[Range]) -> bool:
    """True for work that this process does as fast as Spark could start a task for it."""
    return not any(one.compressed for one in work) and sum(one.weight for one in work) <= LITTLE


def _receipts(lake: Lake, first: int, last: int) -> Receipts:
    """The receipts of some batches."""
    columns = ("source", "batch", "value")
    wanted = pa.schema([BRONZE.arrow.field(name) for name in columns])
    pages = lake.pages(BRONZE, wanted, "receipt", (first, last))
    return [row for page in pages for row in zip(*(page[name].to_pylist() for name in columns), strict=True)]


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
    offsets = sum(span.end - span.start for one in looks for span in one.plan.spans)
    return offsets + sum(one.weight for one in work) // _SHORT


def _look(lake: Lake, source: Source, positions: Positions, landed: Landed) -> Look:
    found = kafka.look(lake, source, positions.places.get(source.name, {}))
    landed.alarms.extend((source.name, text) for text in found.alarms())
    landed.warnings.extend(f"source {source.name}: {text}" for text in found.plan.warnings)
    return found


def _note_receipts(positions: Positions, landed: Landed, batch: int, receipts: Receipts) -> None:
    for source, _, value in receipts:
        receipt = positions.add(source, batch, value)
        landed.messages += receipt.count
        landed.by_source[source] = landed.by_source.get(source, 0) + receipt.count
        if isinstance(receipt, Receipt) and receipt.fault:
            landed.alarms.append((source, receipt.fault))
    positions.batch = batch
    landed.batch = batch


def _frame(lake: Lake, work: list[Range], looks: list[Look], batch: int, cores: int) -> DataFrame:
    now = lake.now()
    sealed = _sealing(sealing.begin(lake, batch, now.date()), batch)
    frames = [kafka.frame(lake, one, cores, sealed) for one in looks if one.plan.spans]
    if work:
        frames.append(_files(lake, work, cores, sealed))
    return reduce(DataFrame.unionByName, frames).select(
        "kind",
        F.lit(batch).cast("bigint").alias("batch"),
        "source",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "key",
        "value",
        "headers",
        F.lit(now).cast("timestamp").alias("ingested_at"),
        F.lit(now.date()).cast("date").alias("day"),
    )


def _sealing(seal: Seal | None, batch: int) -> Sealed:
    """The function that seals the messages of pages, if they are to be."""
    if seal is None:
        return lambda pages, _source: pages
    return lambda pages, source: seal.pages(pages, batch, source)


def _files(lake: Lake, work: list[Range], cores: int, sealed: Sealed) -> DataFrame:
    names = [source.name for source in lake.pipeline.sources]
    tasks = _tasks(work, cores)
    reader = _reader(tasks, names)
    numbers = lake.spark.range(0, len(tasks), 1, len(tasks))
    frame = numbers.mapInArrow(lambda batches: sealed(reader(batches), ""), _SPARK)
    return frame.select(
        "*",
        F.lit(None).cast("timestamp").alias("timestamp"),
        F.lit(None).cast("binary").alias("key"),
    )


def _tasks(work: list[Range], cores: int) -> list[list[Range]]:
    """Assign the ranges to tasks of about equal size, neighbours together."""
    total = sum(one.weight + 4096 for one in work)
    count = min(len(work), max(cores, total // files.MAX_SPLIT))
    share = total / count
    tasks: list[list[Range]] = [[]]
    filled = 0.0
    for one in work:
        if filled >= share * len(tasks) and len(tasks) < count:
            tasks.append([])
        tasks[-1].append(one)
        filled += one.weight + 4096
    return tasks


def _reader(
    tasks: list[list[Range]], names: list[str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from _read_all(tasks[index], names)

    return run


def _read_all(work: list[Range], names: list[str]) -> Iterator[pa.RecordBatch]:
    """The messages of all ranges, then their receipts; many small files fill one batch."""
    rows: list[Row] = []
    held = 0
    receipts: list[Row] = []
    for one in work:
        source = names[one.source]
        reading = read(one)
        while True:
            try:
                records = next(reading)
            except StopIteration as done:
                if done.value.fault and one.followed:
                    raise BrokenRange(one, done.value.fault) from None
                receipts.append(_receipt_row(one, source, done.value))
                break
            for record in records:
                rows.append(_message_row(one, source, record))
                held += record[2]
                if len(rows) >= _GROUP_ROWS or held > BLOCK:
                    yield _arrow(rows)
                    rows, held = [], 0
    yield _arrow(rows + receipts)


def _message_row(one: Range, source: str, record: Record) -> Row:
    offset, value, _ = record
    return "message", source, one.file, one.rank, offset, value, headers(record)


def _receipt_row(one: Range, source: str, receipt: Receipt) -> Row:
    return "receipt", source, one.file, one.rank, receipt.start, receipt.to_json(), None


def _arrow(rows: list[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, one.type) for column, one in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
