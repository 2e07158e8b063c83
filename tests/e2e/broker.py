"""One real Kafka broker for tests: its jars by PySpark's Ivy, one KRaft node on loopback, stopped by process id."""

from __future__ import annotations

import base64
import os
import socket
import struct
import subprocess
import sys
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from ingest.errors import SetupError
from ingest.lake import cache, jars, java

VERSION = "4.3.0"
_LAYOUT = "[artifact]-[revision].[ext]"
_SMALL = ("-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
num.partitions=1
num.network.threads=1
num.io.threads=2
background.threads=2
log.cleaner.dedupe.buffer.size=4194304
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


class Missing(Exception):
    """The broker cannot be had on this machine; the text is the reason for skipping."""


def fetched() -> Path:
    """The folder of the broker's jars, filled on first use.

    Raises:
        Missing: no repository answers, or there is no Java.
    """
    folder = cache.folder() / f"kafka-{VERSION}"
    if (folder / f"kafka_2.13-{VERSION}.jar").is_file():
        return folder
    try:
        command = [str(java.find().executable), *jars._proxy_options(), *_ivy(folder)]
    except SetupError as error:
        raise Missing(str(error)) from error
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if not (folder / f"kafka_2.13-{VERSION}.jar").is_file():
        raise Missing(f"the broker's jars cannot be fetched: {done.stdout[-300:]}")
    return folder


def _ivy(folder: Path) -> list[str]:
    settings = os.environ.get(jars.SETTINGS_VARIABLE, "")
    return [
        *("-cp", f"{jars._spark_jars()}{os.sep}*", "org.apache.ivy.Main"),
        *(("-settings", settings) if settings else ()),
        *("-cache", str(folder / "ivy")),
        *("-dependency", "org.apache.kafka", "kafka_2.13", VERSION),
        *("-confs", "default", "-types", "jar", "bundle"),
        *("-retrieve", f"{folder}{os.sep}{_LAYOUT}"),
    ]


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def answers(port: int) -> bool:
    """True if a broker answers an ApiVersions request; an open port alone is no proof."""
    body = struct.pack(">hhih2s", 18, 0, 7, 2, b"e2")
    try:
        with socket.create_connection(("127.0.0.1", port), 1.0) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            head = connection.recv(8, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(head) == 8 and struct.unpack(">ii", head)[1] == 7


class Broker:
    """A node in a folder of its own; ``with Broker(folder) as broker: broker.address``."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """What clients connect to."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        jar_folder = fetched()
        self._java = [str(java.find().executable), *_SMALL, "-cp", f"{jar_folder}{os.sep}*"]
        self.home.mkdir(parents=True, exist_ok=True)
        self._settings = self.home / "server.properties"
        text = _PROPERTIES.format(port=self.port, controller=_free_port(), data=self.home / "data")
        self._settings.write_text(text)
        number = base64.urlsafe_b64encode(b"e" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        self._run("kafka.tools.StorageTool", "format", "-t", number, "-c", str(self._settings))
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self, *arguments: str) -> None:
        subprocess.run([*self._java, *arguments], check=True, capture_output=True, timeout=120)

    def start(self) -> None:
        """Start the node, also again after a stop, and wait until it answers."""
        with (self.home / "output.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self._java, "kafka.Kafka", str(self._settings)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + 60
        while not answers(self.port):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError((self.home / "output.log").read_text()[-2000:])
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop this node and no other process."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
        self.process = None


if __name__ == "__main__":
    print(fetched(), file=sys.stderr)  # noqa: T201
