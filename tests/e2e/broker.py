"""One real Kafka broker for tests: its jars by PySpark's Ivy, one KRaft node on loopback, stopped by process id."""

from __future__ import annotations

import base64
import os
import socket
import struct
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Self

from ingest.spark import cache, java
from tests.e2e.services import Service, fetch, free_port

VERSION = "4.3.0"
USER, PASSWORD = "gardener", "spade-and-rake"  # of the listener that asks for them, by PLAIN or SCRAM
_PACKAGE = "org.apache.kafka.common.security"
_SMALL = ("-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{guarded},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{guarded}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
listener.name.sasl_plaintext.plain.sasl.jaas.config={package}.plain.PlainLoginModule required user_{user}="{password}";
listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config={package}.scram.ScramLoginModule required;
log.dirs={data}
num.partitions=1
num.network.threads=1
num.io.threads=2
background.threads=2
log.cleaner.dedupe.buffer.size=4194304
log.cleaner.backoff.ms=200
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
auto.create.topics.enable=false
message.max.bytes=83886080
replica.fetch.max.bytes=83886080
log.segment.bytes=16777216
log.retention.ms=-1
file.delete.delay.ms=100
"""


def fetched() -> Path:
    """The folder of the broker's jars, filled on first use.

    Raises:
        Missing: no repository answers, or there is no Java.
    """
    asked = ("-dependency", "org.apache.kafka", "kafka_2.13", VERSION, "-confs", "default")
    return fetch(cache.folder() / f"kafka-{VERSION}", f"kafka_2.13-{VERSION}.jar", *asked)


def answers(port: int) -> bool:
    """True if a broker answers an ApiVersions request; an open port alone proves nothing."""
    body = struct.pack(">hhih2s", 18, 0, 7, 2, b"e2")
    try:
        with socket.create_connection(("127.0.0.1", port), 1.0) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            head = connection.recv(8, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(head) == 8 and struct.unpack(">ii", head)[1] == 7


def jaas(mechanism: str, password: str = PASSWORD) -> str:
    """What a client of the guarded listener puts into ``sasl.jaas.config``."""
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    return f'{_PACKAGE}.{module} required username="{USER}" password="{password}";'


class Broker(Service):
    """A node in a folder of its own; ``with Broker(folder) as broker: broker.address``."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._guarded = free_port()

    @property
    def guarded(self) -> str:
        """The listener that asks for user and password."""
        return f"127.0.0.1:{self._guarded}"

    @property
    def address(self) -> str:
        """What clients connect to."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        jar_folder = fetched()
        self._java = [str(java.find().executable), *_SMALL, "-cp", f"{jar_folder}{os.sep}*"]
        self.home.mkdir(parents=True, exist_ok=True)
        self._settings = self.home / "server.properties"
        text = _PROPERTIES.format(
            port=self.port, guarded=self._guarded, controller=free_port(), data=self.home / "data",
            package=_PACKAGE, user=USER, password=PASSWORD,
        )  # fmt: skip
        self._settings.write_text(text)
        number = base64.urlsafe_b64encode(b"e" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        scram = f"SCRAM-SHA-256=[name={USER},password={PASSWORD}]"
        self._run(
            "kafka.tools.StorageTool", "format", "-t", number, "-c", str(self._settings), "--add-scram", scram
        )
        self.start()
        return self

    def _run(self, *arguments: str) -> None:
        subprocess.run([*self._java, *arguments], check=True, capture_output=True, timeout=120)

    def start(self) -> None:
        """Start the node, also again after a stop, and wait until it answers."""
        self.launch([*self._java, "kafka.Kafka", str(self._settings)], lambda: answers(self.port))


if __name__ == "__main__":
    print(fetched(), file=sys.stderr)  # noqa: T201
