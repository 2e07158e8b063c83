"""Query a Kafka cluster without Java, by librdkafka: topics, their ids, their offsets, and first messages.

It is used only where `ingest.bronze.kafka_settings.why_java` has no reason against it; its answers are those of
`ingest.bronze.kafka`. It changes nothing in the cluster: no topic is made, no consumer group is joined.
"""

from __future__ import annotations

import base64
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ingest.bronze.kafka_settings import native_settings, reads_committed, refused, topics_of
from ingest.bronze.offsets import Cluster, Offsets, OffsetSpan, Place
from ingest.config import Source

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_SECONDS = 10.0  # for one answer
_LONGER = 15.0  # so that the client's own reason comes first
_AT_ONCE = 500  # messages


@contextmanager
def connected(source: Source) -> Iterator[Cluster]:
    """The cluster of a source, which can be queried for offsets by time while the body runs.

    Raises:
        BrokerError: no broker answers, or it refuses.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    heard: list[str] = []
    admin = AdminClient(_client(source, heard))
    try:
        yield _described(admin, source)
    except (KafkaException, TimeoutError) as error:
        admin.poll(0)  # why no broker could be reached comes apart from the answers
        raise refused(source, heard[0] if heard else _reason(error)) from None


def first_messages(source: Source, spans: Sequence[OffsetSpan], count: int) -> Iterator[tuple[Any, ...]]:
    """The first messages of spans: topic, partition, offset, key, value and headers, ``count`` at most.

    Raises:
        BrokerError: no broker answers, or it refuses.
    """
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    heard: list[str] = []
    settings = {"group.id": "ingest-plan", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer(_client(source, heard) | settings | {"auto.offset.reset": "error"})
    try:
        places = [TopicPartition(span.place.topic, span.place.partition, span.start) for span in spans]
        consumer.assign(places)
        yield from _taken(consumer, {span.place: span.end for span in spans}, count)
    except (KafkaException, TimeoutError) as error:
        raise refused(source, heard[0] if heard else _reason(error)) from None
    finally:
        consumer.close()


def _taken(consumer: Any, ends: dict[Place, int], count: int) -> Iterator[tuple[Any, ...]]:
    from confluent_kafka import KafkaError, KafkaException

    deadline = time.monotonic() + _SECONDS
    while ends and count:
        for message in consumer.consume(min(count, _AT_ONCE), timeout=1.0):
            place = Place(message.topic(), message.partition())
            if message.error() is not None and message.error().code() != KafkaError._PARTITION_EOF:
                raise KafkaException(message.error())
            if message.error() is not None or message.offset() >= ends.get(place, 0):
                ends.pop(place, None)
            elif count:
                count -= 1
                headers = [{"key": key, "value": value} for key, value in message.headers() or ()]
                yield *place, message.offset(), message.key(), message.value(), headers or None
            deadline = time.monotonic() + _SECONDS
        if time.monotonic() > deadline:
            raise TimeoutError("no message came")


def _client(source: Source, heard: list[str]) -> dict[str, Any]:
    return {
        **native_settings(source),
        "error_cb": lambda error: heard.append(error.str()),
        "log_level": 0,  # what is wrong is in the error, not on the terminal
        "socket.timeout.ms": int(_SECONDS * 1000),
    }


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return str(reason.str() if hasattr(reason, "str") else reason) or "no answer in time"


def _described(admin: AdminClient, source: Source) -> Cluster:
    from confluent_kafka import IsolationLevel, TopicCollection, TopicPartition

    specs: Any = import_module("confluent_kafka.admin").OffsetSpec  # which has no types
    cluster = admin.list_topics(timeout=_SECONDS)
    described = {}
    if names := topics_of(source, cluster.topics):
        asked = admin.describe_topics(TopicCollection(names), request_timeout=_SECONDS)
        described = {name: asked[name].result(_LONGER) for name in names}
    places = {
        Place(name, partition.id): TopicPartition(name, partition.id)
        for name, topic in described.items()
        for partition in topic.partitions
    }
    level = IsolationLevel.READ_COMMITTED if reads_committed(source) else IsolationLevel.READ_UNCOMMITTED

    def ask(spec: Any) -> Offsets:
        if not places:
            return {}
        asked = dict.fromkeys(places.values(), spec)
        answers = admin.list_offsets(asked, isolation_level=level, request_timeout=_SECONDS)
        return {place: answers[partition].result(_LONGER).offset for place, partition in places.items()}

    ids = {name: _id(topic.topic_id) for name, topic in described.items()}
    begins, ends = ask(specs.earliest()), ask(specs.latest())
    return Cluster(
        str(cluster.cluster_id),
        ids,
        begins,
        ends,
        lambda moment: ask(specs.for_timestamp(moment)),
        tuple(cluster.topics),
    )


def _id(topic_id: Any) -> str:
    """A topic's id as Java's client writes it: receipts hold that form."""
    halves = (
        (topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()) if topic_id else (0, 0)
    )
    return base64.urlsafe_b64encode(struct.pack(">qq", *halves)).decode().rstrip("=")
