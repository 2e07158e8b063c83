"""Query a Kafka cluster through the admin client in Spark's JVM: topics, their ids, their offsets.

Ends are the last stable offsets unless the source reads uncommitted messages, so that a batch never
waits for a transaction that is still open.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from ingest.bronze.kafka_settings import client_settings, reads_committed, refused, topics_of
from ingest.bronze.offsets import Cluster, Offsets, Place
from ingest.config import Source

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
    listed = jvm.java.lang.String.join(" ", admin.listTopics().names().get())  # one call for all topics
    for topic in topics_of(source, str(listed).split()):
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
        found = admin.listOffsets(asked, options).all().get()
        return {place: int(found.get(partition).offset()) for place, partition in places.items()}

    begins, ends = ask(specs.earliest()), ask(specs.latest())
    return Cluster(cluster_id, topics, begins, ends, lambda moment: ask(specs.forTimestamp(moment)))
