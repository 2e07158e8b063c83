"""One bronze batch: plan over all sources, read in Spark tasks, commit messages and receipts at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.bronze import files
from ingest.bronze.reading import OVERSIZE, Range, Record, read
from ingest.bronze.receipts import FileState, Receipt
from ingest.lake.lake import Lake
from ingest.lake.schemas import BRONZE

STAGE = "bronze"
_GROUP_ROWS = 10_000

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
    """The files' states of a lake, kept between the ticks of one session."""

    batch: int = 0
    files: dict[str, dict[str, FileState]] = field(default_factory=dict)

    def catch_up(self, lake: Lake, last: int) -> None:
        """Read the receipts of batches that this session does not know yet."""
        if last <= self.batch:
            return
        rows = (
            lake.read(BRONZE.name)
            .where((F.col("kind") == "receipt") & (F.col("batch") > self.batch))
            .select("source", "value")
            .collect()
        )
        for source, value in rows:
            self.add(source, Receipt.from_json(value))
        self.batch = last

    def add(self, source: str, receipt: Receipt) -> None:
        """Take in one receipt."""
        self.files.setdefault(source, {}).setdefault(receipt.file, FileState()).add(receipt)


def last_batch(lake: Lake) -> int:
    """The newest landed batch; 0 before the first."""
    return max(0, lake.progress(STAGE, BRONZE.name))


def land(lake: Lake, positions: Positions, cores: int) -> Landed:
    """Land one batch over all file sources, if there is anything new."""
    landed = Landed()
    last = last_batch(lake)
    positions.catch_up(lake, last)
    work: list[Range] = []
    for rank, source in enumerate(lake.pipeline.sources):
        if source.kind != "files":
            continue
        planned = files.plan(source, rank, positions.files.get(source.name, {}), cores)
        work.extend(planned.ranges)
        landed.alarms.extend((alarm.source, alarm.text) for alarm in planned.alarms)
        landed.warnings.extend(f"source {source.name}: {text}" for text in planned.warnings)
    if not work:
        return landed
    batch = last + 1
    lake.append(_frame(lake, work, batch, cores), BRONZE, STAGE, batch)
    _note_receipts(lake, positions, landed, batch)
    return landed


def _note_receipts(lake: Lake, positions: Positions, landed: Landed, batch: int) -> None:
    rows = (
        lake.read(BRONZE.name)
        .where((F.col("kind") == "receipt") & (F.col("batch") == batch))
        .select("source", "value")
        .collect()
    )
    for source, value in rows:
        receipt = Receipt.from_json(value)
        positions.add(source, receipt)
        landed.messages += receipt.count
        landed.by_source[source] = landed.by_source.get(source, 0) + receipt.count
        if receipt.fault:
            landed.alarms.append((source, receipt.fault))
    positions.batch = batch
    landed.batch = batch


def _frame(lake: Lake, work: list[Range], batch: int, cores: int) -> DataFrame:
    names = [source.name for source in lake.pipeline.sources]
    tasks = _tasks(work, cores)
    now = lake.now()
    frame = lake.spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(_reader(tasks, names), _SPARK)
    return frame.select(
        "kind",
        F.lit(batch).cast("bigint").alias("batch"),
        "source",
        "topic",
        "partition",
        "offset",
        F.lit(None).cast("timestamp").alias("timestamp"),
        F.lit(None).cast("binary").alias("key"),
        "value",
        "headers",
        F.lit(now).cast("timestamp").alias("ingested_at"),
        F.lit(now.date()).cast("date").alias("day"),
    )


def _tasks(work: list[Range], cores: int) -> list[list[Range]]:
    """Deal the ranges to tasks of about equal size, neighbours together."""
    total = sum(one.end - one.start + 4096 for one in work)
    count = min(len(work), max(cores, total // files.MAX_SPLIT))
    share = total / count
    tasks: list[list[Range]] = [[]]
    filled = 0.0
    for one in work:
        if filled >= share * len(tasks) and len(tasks) < count:
            tasks.append([])
        tasks[-1].append(one)
        filled += one.end - one.start + 4096
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
    receipts = []
    for one in work:
        receipt = yield from _read_one(one, names[one.source])
        receipts.append((one, receipt))
    if receipts:
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(["receipt"] * len(receipts)),
                pa.array([names[one.source] for one, _ in receipts]),
                pa.array([one.file for one, _ in receipts]),
                pa.array([one.rank for one, _ in receipts], pa.int32()),
                pa.array([receipt.start for _, receipt in receipts], pa.int64()),
                pa.array([receipt.to_json() for _, receipt in receipts], pa.binary()),
                pa.nulls(len(receipts), _ARROW.field("headers").type),
            ],
            schema=_ARROW,
        )


def _read_one(one: Range, source: str) -> Iterator[pa.RecordBatch]:
    def emit(records: list[Record]) -> list[pa.RecordBatch]:
        return [
            _messages(one, source, records[at : at + _GROUP_ROWS])
            for at in range(0, len(records), _GROUP_ROWS)
        ]

    reading = read(one, emit)
    while True:
        try:
            yield from next(reading)
        except StopIteration as done:
            return done.value


def _messages(one: Range, source: str, records: list[Record]) -> pa.RecordBatch:
    count = len(records)
    oversize = [
        None if value is not None else [{"key": OVERSIZE, "value": str(length).encode()}]
        for _, value, length in records
    ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(["message"] * count),
            pa.array([source] * count),
            pa.array([one.file] * count),
            pa.array([one.rank] * count, pa.int32()),
            pa.array([offset for offset, _, _ in records], pa.int64()),
            pa.array([value for _, value, _ in records], pa.binary()),
            pa.array(oversize, _ARROW.field("headers").type),
        ],
        schema=_ARROW,
    )


