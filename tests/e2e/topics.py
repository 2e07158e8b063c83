"""Topics of the test broker: made, filled, trimmed and deleted through librdkafka."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.timing import until

Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Sent:
    """One message to send."""

    value: bytes | None = None
    key: bytes | None = None
    partition: int = 0
    headers: Headers | None = None
    timestamp: int = 0  # milliseconds; 0 is now


class Topics:
    """The broker's topics as a test wants them."""

    def __init__(self, address: str) -> None:
        from confluent_kafka.admin import AdminClient

        self.address = address
        self.admin = AdminClient({"bootstrap.servers": address, "log_level": 0})

    def make(self, name: str, partitions: int = 1, **settings: str) -> str:
        """A new topic; one that is being deleted is waited for."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        deadline = time.monotonic() + 20
        while True:
            topic = NewTopic(name, partitions, 1, config=settings)
            try:
                self.admin.create_topics([topic])[name].result(20)
                return name
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def grow(self, name: str, partitions: int) -> None:
        """More partitions."""
        from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

        self.admin.create_partitions([NewPartitions(name, partitions)])[name].result(20)
        until(lambda: len(self.admin.list_topics(name, 10).topics[name].partitions) == partitions)

    def delete(self, name: str) -> None:
        """Delete a topic and wait until it is gone."""
        self.admin.delete_topics([name])[name].result(20)
        until(lambda: name not in self.admin.list_topics(timeout=10).topics)

    def trim(self, name: str, partition: int, offset: int) -> None:
        """Take away everything before an offset, as retention does."""
        from confluent_kafka import TopicPartition

        for done in self.admin.delete_records([TopicPartition(name, partition, offset)]).values():
            done.result(20)

    def send(self, name: str, messages: Iterable[Sent]) -> None:
        """Send messages and wait until all are there."""
        producer = self.producer()
        for one in messages:
            self.produce(producer, name, one)
        assert producer.flush(60) == 0

    def keys(self, name: str) -> bytes:
        """The keys of a topic's messages, one after another; its first partition's."""
        from confluent_kafka import Consumer, TopicPartition

        reader = Consumer({"bootstrap.servers": self.address, "group.id": "keys", "log_level": 0})
        try:
            first, end = reader.get_watermark_offsets(TopicPartition(name, 0), 20)
            reader.assign([TopicPartition(name, 0, first)])
            return b"".join(one.key() or b"" for one in reader.consume(end - first, 10) if not one.error())
        finally:
            reader.close()

    def values(self, name: str, offset: int = 0) -> list[bytes]:
        """The values of a topic's first partition, from an offset on."""
        return [value or b"" for _, _, value in self.held(name, offset)]

    def held(self, name: str, offset: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
        """Offset, key and value of what a topic's first partition still has, from an offset on."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        asked = {"bootstrap.servers": self.address, "group.id": "held", "enable.partition.eof": True}
        reader = Consumer({**asked, "log_level": 0})
        found: list[tuple[int, bytes | None, bytes | None]] = []
        try:
            reader.assign([TopicPartition(name, 0, offset)])
            while (one := reader.poll(20)) is not None:
                if error := one.error():
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    return found
                found.append((one.offset(), one.key(), one.value()))
        finally:
            reader.close()
        raise AssertionError(f"the end of {name} was not reached")

    def transactions(self, name: str, *parts: tuple[list[Sent], bool]) -> None:
        """Send each list in a transaction of its own: committed, or aborted where the flag is False."""
        producer = self.producer(**{"transactional.id": f"tx-{name}-{time.monotonic_ns()}"})
        producer.init_transactions(20)
        for messages, commit in parts:
            producer.begin_transaction()
            for one in messages:
                self.produce(producer, name, one)
            assert producer.flush(20) == 0
            (producer.commit_transaction if commit else producer.abort_transaction)(20)

    def producer(self, **settings: Any) -> Any:
        """A producer of one's own."""
        from confluent_kafka import Producer

        return Producer({"bootstrap.servers": self.address, "linger.ms": 5, "log_level": 0, **settings})

    def produce(self, producer: Any, name: str, one: Sent) -> None:
        """Hand one message to a producer, waiting while its queue is full."""
        while True:
            try:
                producer.produce(
                    name, one.value, one.key, one.partition,
                    on_delivery=_delivered, headers=one.headers, timestamp=one.timestamp,
                )  # fmt: skip
                return
            except BufferError:
                producer.poll(0.5)


def _delivered(error: Any, message: Any) -> None:
    """A message that the broker refuses is the test's own fault: what sends or flushes raises it."""
    assert error is None, f"{message.topic()}: {error}"
