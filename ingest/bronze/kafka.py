"""Kafka sources: a bounded read of what their partitions hold after the receipts.

Spark's connector reads the messages; a pass-through in Python counts them without parsing, and adds a receipt for each
partition of its task. The cluster is queried through the admin client in Spark's JVM: topics, their ids, their offsets.
Ends are the last stable offsets unless the source reads uncommitted messages, so that a batch never waits for a transaction
that is still open.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.bronze import offsets
from ingest.bronze.kafka_settings import client_settings, reads_committed, refused, topics_of
from ingest.bronze.offsets import Cluster, KafkaReceipt, Look, Offsets, OffsetSpan, Place, Position
from ingest.bronze.store import REPORT, storing
from ingest.config import Source
from ingest.config.secrets import struck
from ingest.store import faults, stores
from ingest.store.envelope import Seal
from ingest.tables.datafiles import Layout
from ingest.tables.lake import Lake
from ingest.tables.schemas import BRONZE

READ_ERRORS = (PySparkException, Py4JJavaError)  # raised by a job whose tasks fail
_TASK_MESSAGES = 1_000_000
# Larger fetches than the client's defaults, which suit a slow stream.
_FETCH = {
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": str(16 * 1024 * 1024),
    "kafka.receive.buffer.bytes": str(1024 * 1024),
}
_COLUMNS = ("kind", "topic", "partition", "offset", "timestamp", "key", "value", "headers")
_ARROW, _SPARK = BRONZE.part(*_COLUMNS), BRONZE.part_ddl(*_COLUMNS)


def look(lake: Lake, source: Source, positions: Mapping[Place, Position]) -> Look:
    """Query the cluster of one source by Spark's client and plan what to read."""
    return offsets.look(lake, source, positions, partial(connected, lake.spark))


# --- reading ------------------------------------------------------------------------------------


def frame(
    lake: Lake,
    look: Look,
    cores: int,
    sealed: Callable[[Iterator[pa.RecordBatch], str], Iterator[pa.RecordBatch]] = lambda pages, _source: (
        pages
    ),
) -> DataFrame:
    """The messages of a plan and their receipts, with the columns of `_SPARK` and ``source``."""
    rows = [
        ("receipt", row["topic"], row["partition"], row["offset"], None, None, row["value"], None)
        for row in reached_offsets(look)
    ]
    both = lake.spark.createDataFrame(rows, _SPARK).coalesce(1)
    if look.plan.reads:
        name, counting = look.source.name, _counting(look.cluster, look.topics)
        read = _messages(lake, look, cores).mapInArrow(
            lambda batches: sealed(counting(batches), name), _SPARK
        )
        both = read.unionByName(both)
    return both.withColumn("source", F.lit(look.source.name))


def write_messages(
    lake: Lake,
    look: Look,
    cores: int,
    layout: Layout,
    batch: int,
    now: dt.datetime,
    seal: Seal | None = None,
) -> DataFrame:
    """Have tasks write the messages of a plan as files, and return their reports."""
    counting = _counting(look.cluster, look.topics)
    store = storing(layout, batch, now, source=look.source.name, read=counting, seal=seal)
    return _messages(lake, look, cores).mapInArrow(stores.carried(store, lake.pipeline.lake), REPORT)


def reached_offsets(look: Look) -> list[dict[str, Any]]:
    """A receipt for each span of a plan, in the form of a report: where it ends, with or without messages."""
    receipts = [
        KafkaReceipt(*span.place, span.start, span.end, 0, look.cluster, look.topics[span.place.topic])
        for span in look.plan.spans
    ]
    return [{**_row(receipt), "source": look.source.name} for receipt in receipts]


def _messages(lake: Lake, looked: Look, cores: int) -> DataFrame:
    spans = looked.plan.reads
    topics: dict[str, list[int]] = {}
    for span in spans:
        topics.setdefault(span.place.topic, []).append(span.place.partition)
    settings = {f"kafka.{name}": value for name, value in client_settings(looked.source).items()}
    read = (
        lake.spark.read.format("kafka")
        .options(**{**_FETCH, **settings})
        .option("assign", json.dumps(topics))
        .option("startingOffsets", json.dumps(_ends(spans, "start")))
        .option("endingOffsets", json.dumps(_ends(spans, "end")))
        .option("includeHeaders", "true")
        .option("failOnDataLoss", "true")
        .option("minPartitions", str(cores))
        .option("maxRecordsPerPartition", str(_TASK_MESSAGES))
        .load()
    )
    has_time = F.col("timestampType") >= 0  # a message without a timestamp comes with one of 1969
    return read.select(
        "topic",
        "partition",
        "offset",
        F.when(has_time, F.col("timestamp")).alias("timestamp"),
        "key",
        "value",
        "headers",
    )


def _ends(spans: list[OffsetSpan], end: str) -> dict[str, dict[str, int]]:
    """Offsets in the form that Spark reads."""
    topics: dict[str, dict[str, int]] = {}
    for span in spans:
        topics.setdefault(span.place.topic, {})[str(span.place.partition)] = getattr(span, end)
    return topics


def _counting(
    cluster: str, topics: Mapping[str, str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function that passes messages through, and ends with a receipt for each partition."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seen: dict[Place, list[int]] = {}  # first offset, last offset, count
        kinds = pa.array([], pa.string())
        for batch in batches:
            if len(kinds) != batch.num_rows:
                kinds = pa.repeat(pa.scalar("message"), batch.num_rows)
            _count(batch, seen)
            yield pa.RecordBatch.from_arrays([kinds, *batch.columns], schema=_ARROW)
        if seen:
            receipts = [
                KafkaReceipt(*place, first, last + 1, count, cluster, topics[place.topic])
                for place, (first, last, count) in seen.items()
            ]
            yield pa.RecordBatch.from_pylist(list(map(_row, receipts)), _ARROW)

    return run


def _count(batch: pa.RecordBatch, seen: dict[Place, list[int]]) -> None:
    """Add a batch to the counts."""
    for place, first, last, count in _shares(batch):
        entry = seen.setdefault(place, [first, last, 0])
        entry[0], entry[1], entry[2] = min(entry[0], first), max(entry[1], last), entry[2] + count


def _shares(batch: pa.RecordBatch) -> Iterator[tuple[Place, int, int, int]]:
    """Each partition of a batch with its first and last offset and its count; nearly always there is one."""
    if not batch.num_rows:
        return
    topics, partitions, offsets = (batch.column(name) for name in ("topic", "partition", "offset"))
    alike = pc.and_(pc.equal(topics, topics[0]), pc.equal(partitions, partitions[0]))
    if pc.all(alike).as_py():
        ends = pc.min_max(offsets).as_py()
        yield Place(topics[0].as_py(), partitions[0].as_py()), ends["min"], ends["max"], batch.num_rows
        return
    table = pa.Table.from_arrays([topics, partitions, offsets], ["topic", "partition", "offset"])
    groups = table.group_by(["topic", "partition"])
    for row in groups.aggregate([("offset", "min"), ("offset", "max"), ("offset", "count")]).to_pylist():
        place = Place(row["topic"], row["partition"])
        yield place, row["offset_min"], row["offset_max"], row["offset_count"]


def _row(receipt: KafkaReceipt) -> dict[str, Any]:
    """A receipt as a row of bronze."""
    return {
        "kind": "receipt",
        "topic": receipt.topic,
        "partition": receipt.partition,
        "offset": receipt.start,
        "value": msgspec.json.encode(receipt),
    }


def failed(looks: Iterable[Look], error: Exception) -> list[tuple[str, str]]:
    """The alarms of a read that failed in its tasks, by source; none if Kafka was not the cause.

    Brokers may fail, or delete messages, between the plan and the read. Then nothing was landed, and the next plan
    finds the state.
    """
    sources = [look.source for look in looks if look.plan.spans]
    reason = faults.of_kafka(error)
    if not reason:
        return []
    for source in sources:
        reason = struck(reason, source)
    text = f"reading failed ({reason[:300].rstrip('.')}): nothing was landed; run again."
    return [(source.name, text) for source in sources]


# --- the cluster ----------------------------------------------------------------------------------


_PATIENCE = {"default.api.timeout.ms": "20000", "request.timeout.ms": "10000"}


@contextmanager
def connected(spark: SparkSession, source: Source) -> Iterator[Cluster]:
    """The cluster of a source, queried for offsets by time while the body runs; a `BrokerError` if it does not answer."""
    jvm: Any = spark._jvm
    admin = None
    try:
        settings = jvm.java.util.HashMap()
        for name, value in {**_PATIENCE, **client_settings(source)}.items():
            settings.put(name, value)
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
        yield _described(jvm, admin, source)
    except Py4JJavaError as error:
        raise refused(source, reason(error)) from None
    finally:
        if admin is not None:
            admin.close(jvm.java.time.Duration.ofSeconds(5))


def reason(error: Py4JJavaError) -> str:
    """The innermost cause of a Java exception in one line."""
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return f"{cause.getClass().getSimpleName()}: {cause.getMessage()}".partition("\n")[0]


def _described(jvm: Any, admin: Any, source: Source) -> Cluster:
    cluster_id = str(admin.describeCluster().clusterId().get())
    wanted = jvm.java.util.ArrayList()
    seen = str(
        jvm.java.lang.String.join(" ", admin.listTopics().names().get())
    ).split()  # one call for all topics
    for topic in topics_of(source, seen):
        wanted.add(topic)
    described = admin.describeTopics(wanted).allTopicNames().get()
    topics: dict[str, str] = {}
    places: dict[Place, Any] = {}
    for topic in wanted:
        description = described.get(topic)
        topics[topic] = str(description.topicId().toString())
        for partition in range(description.partitions().size()):
            places[Place(topic, partition)] = jvm.org.apache.kafka.common.TopicPartition(topic, partition)
    specs = jvm.org.apache.kafka.clients.admin.OffsetSpec
    level = jvm.org.apache.kafka.common.IsolationLevel
    options = jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(
        level.READ_COMMITTED if reads_committed(source) else level.READ_UNCOMMITTED
    )

    def ask(spec: Any) -> Offsets:
        asked = jvm.java.util.HashMap()
        for partition in places.values():
            asked.put(partition, spec)
        listed = admin.listOffsets(asked, options).all().get()
        return {place: int(listed.get(partition).offset()) for place, partition in places.items()}

    begins, ends = ask(specs.earliest()), ask(specs.latest())
    return Cluster(
        cluster_id, topics, begins, ends, lambda moment: ask(specs.forTimestamp(moment)), tuple(seen)
    )
