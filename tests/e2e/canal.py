"""Real Canal in a process of its own: its server, its instances and its own connector send to the real broker.

The folder ``canal-server`` has the list of its jars and what else Canal's deployer brings, for the deployer
is in no repository of jars; so this file is also the launcher that the process runs.  The settings are Canal's
own: ``canal.properties``, and an ``instance.properties`` for each instance.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from ingest.spark import cache, java
from tests.e2e.databases import Database
from tests.e2e.services import Service, end, fetch

HERE = Path(__file__).parent / "canal-server"
VERSION = "1.1.7"
ZONE = "Asia/Shanghai"  # of Canal's Java, in which it writes TIMESTAMP
_JAVA = (
    "-Xmx512m",
    "-Xms64m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xrs",
    "-Dfile.encoding=UTF-8",
)
_SERVER = {
    "canal.serverMode": "kafka",
    "canal.mq.flatMessage": "true",
    "canal.mq.canalBatchSize": "50",
    "canal.mq.canalGetTimeout": "100",
    "canal.file.flush.period": "3600000",  # positions are kept at a stop alone; a kill repeats all since
    "kafka.acks": "all",
    "kafka.max.request.size": "20971520",
    "kafka.max.in.flight.requests.per.connection": "1",
}
_INSTANCE = {
    "canal.instance.dbUsername": "capture",
    "canal.instance.dbPassword": "capture",
    "canal.instance.filter.regex": r"garden\..*",
    "canal.mq.partition": "0",
}


def fetched() -> Path:
    """The folder of Canal's jars, filled on first use.

    Raises:
        Missing: no repository answers, or there is no Java.
    """
    where = cache.folder() / f"canal-{VERSION}"
    asked = ("-ivy", str(HERE / "jars.xml"), "-confs", "default")
    return fetch(where, f"connector.kafka-{VERSION}.jar", *asked)


class Canal(Service):
    """A server and its instances: ``with Canal(folder, broker.address, node, {name: settings}) as canal``.

    An instance that is new begins at the end of the binary log: Canal takes no snapshot.
    """

    def __init__(
        self, home: Path, broker: str, node: Database, instances: Mapping[str, Mapping[str, str]]
    ) -> None:
        super().__init__(home)
        self.broker = broker
        self.node = node
        self.instances = instances

    def __enter__(self) -> Self:
        jar_folder = fetched()
        conf = self.home / "conf"
        shutil.copytree(HERE, conf)
        for n, (name, settings) in enumerate(self.instances.items(), 6601):
            address = {"canal.instance.master.address": f"127.0.0.1:{self.node.port}"}
            (conf / name).mkdir()
            given = _INSTANCE | address | {"canal.instance.mysql.slaveId": str(n)} | settings
            _write(conf / name / "instance.properties", given)
        own = {
            "canal.destinations": ",".join(self.instances),
            "canal.file.data.dir": str(conf),
            "kafka.bootstrap.servers": self.broker,
        }
        _write(conf / "canal.properties", _SERVER | own)
        self._command = [sys.executable, "-m", __name__, str(conf), *map(str, jar_folder.glob("*.jar"))]
        self.start()
        return self

    def start(self) -> None:
        """Start the server, also again after a stop, and wait until every instance reads the binary log."""
        paths = {"JAVA_HOME": str(java.find().home), "PYTHONPATH": str(HERE.parents[2])}
        self.launch(self._command, self._reads, env=os.environ | paths)

    def kill(self) -> None:
        """End it in the middle: what was sent since it was started will be sent again."""
        assert self.process is not None
        end(self.process, signal.SIGKILL)
        self.process = None

    def check(self) -> None:
        """Fail with the server's own words if it has ended by itself."""
        if self.process is None or self.process.poll() is not None:
            raise AssertionError(
                "Canal ended: " + (self.home / "output.log").read_text("utf-8", "replace")[-3000:]
            )

    def lost(self) -> str | None:
        """The line in which Canal says that it cannot read on, for a kill took a table's structure from its store.

        It tries again for ever: what remains to its operators is another place to begin from.
        """
        lines = (self.home / "output.log").read_text("utf-8", "replace").splitlines()
        return next((line for line in lines if "column size is not match" in line), None)

    def _reads(self) -> bool:
        connection = self.node.connect()
        with connection, connection.cursor() as cursor:
            cursor.execute("SHOW PROCESSLIST")
            return sum("Binlog Dump" in str(row) for row in cursor.fetchall()) >= len(self.instances)


def _write(file: Path, settings: Mapping[str, str]) -> None:
    file.write_text("".join(f"{name} = {value}\n".replace("\\", "\\\\") for name, value in settings.items()))


# --- the process -----------------------------------------------------------------------------------


def main(conf: str, *jar_files: str) -> None:
    """Do as Canal's own launcher until SIGTERM: the producer, the instances, and the loop between them."""
    import jpype

    # for all threads, so that only sigwait sees it
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    jpype.startJVM(*_JAVA, f"-Duser.timezone={ZONE}", classpath=[conf, *jar_files])
    properties = _loaded(f"{conf}/canal.properties")
    canal = jpype.JPackage("com").alibaba.otter.canal
    producer = canal.connector.kafka.producer.CanalKafkaProducer()
    producer.init(properties)
    generator = canal.instance.spring.SpringCanalInstanceGenerator()
    generator.setSpringXml("classpath:instance.xml")
    server = canal.server.embedded.CanalServerWithEmbedded.instance()
    server.setCanalInstanceGenerator(generator)
    server.start()
    destinations = str(properties.getProperty("canal.destinations"))
    for name in destinations.split(","):
        server.start(name)
    starter = canal.server.CanalMQStarter(producer)
    starter.start(destinations)
    signal.sigwait([signal.SIGTERM])
    starter.destroy()
    for name in destinations.split(","):
        server.stop(name)
    server.stop()
    os._exit(0)  # Canal's own threads would keep the process alive


def _loaded(file: str) -> Any:
    from jpype import JClass

    properties = JClass("java.util.Properties")()
    with JClass("java.io.FileReader")(file) as reader:
        properties.load(reader)
    return properties


if __name__ == "__main__":
    main(*sys.argv[1:])
