"""A small Spark cluster for tests: a master and two workers on loopback, of PySpark's own jars, stopped by process id.

Its workers' Python has the libraries but not this tree, which an editable install would give it: what a task
knows of the product came with the job.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Self

import pyspark

from ingest.spark import java
from tests.e2e.services import end, free_port
from tests.lakes import ROOT

_CLASS = "org.apache.spark.deploy"
_PYTHON = """\
#!/bin/sh
PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{libraries}" exec "{python}" -S "$@"
"""


class Cluster:
    """A standalone cluster in a folder of its own; ``with Cluster(folder) as cluster: cluster.master``."""

    def __init__(self, home: Path, workers: int = 2) -> None:
        self.home = home
        self.workers = workers
        self.port = free_port()
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        """What a pipeline file's ``master:`` says."""
        return f"spark://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a process that submits: one address, and the workers' Python."""
        plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return plain | {
            "JAVA_HOME": str(java.launcher(java.find())),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(self.home / "python"),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }

    @property
    def settings(self) -> dict[str, str]:
        """Settings of a session whose executors take the product from this tree, one for each worker."""
        return {
            "spark.executorEnv.PYTHONPATH": str(ROOT),
            "spark.executor.memory": "1g",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
        }

    def logs(self) -> str:
        """The ends of what the executors wrote, for a failed test."""
        return "\n".join(
            file.read_text("utf-8", "replace")[-2000:] for file in self.home.glob("work*/*/*/stderr")
        )

    def __enter__(self) -> Self:
        self.home.mkdir(parents=True, exist_ok=True)
        python = self.home / "python"
        python.write_text(
            _PYTHON.format(libraries=sysconfig.get_path("purelib"), python=sys.executable), "utf-8"
        )
        python.chmod(0o755)
        try:
            self._start("master.Master", "--port", str(self.port))
            self._wait()
            for number in range(self.workers):
                folder = str(self.home / f"work{number}")
                self._start("worker.Worker", "--cores", "1", "--memory", "1g", "-d", folder, self.master)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _start(self, name: str, *arguments: str) -> None:
        launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
        ports = ("--host", "127.0.0.1", "--webui-port", "0")
        environment = self.environment | {
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_HOME": str(launcher.parents[1]),
        }
        with (self.home / "output.log").open("ab") as log:
            self.processes.append(
                subprocess.Popen(
                    [str(launcher), f"{_CLASS}.{name}", *ports, *arguments],
                    cwd=self.home,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    def _wait(self) -> None:
        """Until the master listens; the workers come when they come, and a job waits for them."""
        deadline = time.monotonic() + 300
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
                return
            except OSError:
                if self.processes[0].poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self.home / "output.log").read_text("utf-8")[-2000:]) from None
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop the workers, then the master, and no other process; executors end with their workers."""
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            end(process)
        self.processes.clear()
