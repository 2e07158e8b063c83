"""The Spark session: what it sets, what it leaves alone, and what it does to the machine."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark import SparkContext

from ingest.errors import SetupError
from ingest.spark import archive, session, settings
from ingest.spark.java import Java
from tests.timing import PATIENCE

JAVA = Java(Path("/java"), "17.0.15", "PATH")
JARS = [Path("/jars/one.jar"), Path("/jars/two.jar")]
ROOT = Path(__file__).parents[2]


def run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run Python code from a folder of its own, as people do."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_secrets_stay_off_the_command_line(monkeypatch):
    """Everyone on the machine can read a process's arguments."""
    seen = {}
    monkeypatch.setattr(SparkContext, "_ensure_initialized", lambda conf: seen.update(conf.getAll()))
    monkeypatch.setattr(SparkContext, "_jvm", None)
    session._start_java({"spark.hadoop.fs.s3a.secret.key": "hush", "spark.driver.memory": "2g"})
    assert {"spark.driver.memory": "2g"} == seen


def test_environment_is_put_back(monkeypatch):
    """A library that starts Spark must not leave the caller's variables changed."""
    monkeypatch.setenv("JAVA_HOME", "/before")
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    with session._environment({"JAVA_HOME": None, "SPARK_LOCAL_IP": "127.0.0.1"}):
        assert (None, "127.0.0.1") == (os.environ.get("JAVA_HOME"), os.environ.get("SPARK_LOCAL_IP"))
    assert ("/before", None) == (os.environ.get("JAVA_HOME"), os.environ.get("SPARK_LOCAL_IP"))


@pytest.mark.parametrize(
    "other",
    [
        archive.path(Java(Path("/java"), "21.0.1", "PATH"), JARS, ["-XX:+UseSerialGC"]),
        archive.path(JAVA, JARS[:1], ["-XX:+UseSerialGC"]),
        archive.path(JAVA, JARS, ["-XX:+UseG1GC"]),
    ],
)
def test_archive_has_its_own_name(other):
    """An archive of another Java, class path or collector is useless, and would never be replaced."""
    assert other != archive.path(JAVA, JARS, ["-XX:+UseSerialGC"])


def test_no_archive_no_option(tmp_path):
    """Naming an archive that does not exist makes Java look for it at every start."""
    assert [] == archive.options(tmp_path / "none.jsa")


def test_failed_practice_leaves_nothing(monkeypatch, tmp_path):
    """Half an archive would be used from then on."""
    monkeypatch.setenv("INGEST_CACHE", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert not archive.build(tmp_path / "classes" / "a.jsa")
    assert [] == list((tmp_path / "classes").iterdir())


@pytest.mark.parametrize("survives", [True, False])
def test_java_that_does_not_start(monkeypatch, tmp_path, survives):
    """A damaged archive must cost time only; without one the failure is a sentence."""
    monkeypatch.setenv("INGEST_CACHE", str(tmp_path))
    monkeypatch.setattr(session, "find", lambda: JAVA)
    monkeypatch.setattr(session, "_class_path", lambda kafka: JARS)
    damaged = settings.class_archive(JAVA, JARS)
    if survives:
        damaged.parent.mkdir()
        damaged.write_bytes(b"damaged")
    starts = []

    def start(settings):
        starts.append("SharedArchiveFile" in settings["spark.driver.extraJavaOptions"])
        if len(starts) == 1:
            raise SetupError("Java ended")

    monkeypatch.setattr(session, "_start_java", start)
    monkeypatch.setattr(session, "_build", lambda *rest: "a session")
    if survives:
        assert "a session" == session._started("a", "", {}, False, "tick")
        assert [True, False] == starts
        assert not damaged.exists()
    else:
        with pytest.raises(SetupError, match="Java ended"):
            session._started("a", "", {}, False, "tick")


def test_java_that_was_killed_is_started_again(monkeypatch):
    """Killed before its session had started, it would be asked again by each tick of a loop, for ever."""
    java = subprocess.Popen([sys.executable, "-c", "exit(1)"])
    java.wait()
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=java))
    monkeypatch.setattr(SparkContext, "_jvm", "dead")
    asked = []
    monkeypatch.setattr(SparkContext, "_ensure_initialized", lambda conf: asked.append(SparkContext._gateway))
    session._start_java({})
    assert [None] == asked


@pytest.mark.spark
@pytest.mark.e2e
def test_delta_lake_works(spark, tmp_path):
    """The session is there for Delta: write, merge, read."""
    path = str(tmp_path / "table")
    spark.range(5).write.format("delta").save(path)
    new = "(SELECT id FROM range(3, 8))"
    spark.sql(f"MERGE INTO delta.`{path}` t USING {new} s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *")
    assert list(range(8)) == sorted(row.id for row in spark.read.format("delta").load(path).collect())


@pytest.mark.spark
@pytest.mark.e2e
def test_the_drivers_port_asks_for_the_secret(spark):
    """Any user of the machine could send objects to the driver, which unpacks them."""
    assert "true" == spark.sparkContext.getConf().get("spark.authenticate")
    body = b"any message"
    request = bytes([3]) + struct.pack(">qi", 1, len(body)) + body  # an RPC request: kind, number, length
    address = ("127.0.0.1", int(spark.sparkContext.getConf().get("spark.driver.port")))
    with socket.create_connection(address, timeout=30) as peer:
        peer.sendall(struct.pack(">q", 8 + len(request)) + request)
        answer = peer.recv(1 << 16)
    assert 5 == answer[8]  # a failure
    assert b"SaslMessage" in answer


@pytest.mark.spark
@pytest.mark.e2e
def test_a_session_fetches_large_results_from_itself(spark):
    """Results above 1 MB go over the block manager's port, which asks for the secret, too."""
    found = spark.range(4, numPartitions=2).selectExpr("repeat('x', 1500000) AS text").collect()
    assert [1_500_000] * 4 == [len(row.text) for row in found]


@pytest.mark.spark
@pytest.mark.e2e
def test_workers_use_this_interpreter(spark):
    """Spark's default is the first python3 on PATH, which need not have pyarrow."""
    import pyarrow as pa

    def interpreter(batches):
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"path": [sys.executable]})

    (row,) = spark.range(1).coalesce(1).mapInArrow(interpreter, "path STRING").collect()
    assert sys.executable == row.path


@pytest.mark.spark
@pytest.mark.e2e
def test_new_session_inherits_runtime_settings(spark):
    """Spark's own newSession forgets what was set at run time, time zone included; so would one of a session that a
    second run in the same process uses again.
    """
    assert spark == session.session("again")
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    sibling = session.new_session(spark)
    names = [*settings.EVERYWHERE, *settings.LOCAL]
    try:
        assert [spark.conf.get(name) for name in names] == [sibling.conf.get(name) for name in names]
    finally:
        spark.conf.set("spark.sql.codegen.wholeStage", "true")


@pytest.mark.spark
@pytest.mark.e2e
def test_a_running_session_is_used(spark):
    """Under a notebook a second session would be a second lake of settings."""
    again = session.session("again", conf={"spark.sql.shuffle.partitions": "7", "spark.driver.memory": "1g"})
    try:
        assert (spark, "7") == (again, again.conf.get("spark.sql.shuffle.partitions"))
    finally:
        again.conf.set("spark.sql.shuffle.partitions", "2")


@pytest.mark.spark
@pytest.mark.e2e
def test_a_session_for_one_step_is_not_used_again(spark):
    """Spark calls the session active that has made a frame last; it has the settings of one step of a run."""
    session.new_session(spark).createDataFrame([(1,)], "id INT")
    assert spark == session.session("again")


@pytest.mark.spark
@pytest.mark.e2e
def test_start_is_silent_and_leaves_no_files(tmp_path):
    """A cron job's mail, a JSON reader and the user's folder: none of them wants Spark's traces."""
    code = "from ingest.spark.session import session, stop; s = session('x'); s.sql('select 1').collect(); stop(s)"
    done = run(tmp_path, code)
    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
    assert [] == list(tmp_path.iterdir())


LISTENING = """
import signal, time
from pyspark import SparkContext
from ingest.spark.session import session, stop
spark = session("x")
signal.signal(signal.SIGTERM, signal.default_int_handler)
try:
    print(SparkContext._gateway.proc.pid, flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print(spark.range(3).count(), flush=True)
    stop(spark)
"""


@pytest.mark.one_of(2)
@pytest.mark.spark
@pytest.mark.e2e
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_java_outlives_a_call_to_stop_but_not_python(tmp_path, how):
    """After Ctrl-C or a service's stop a run closes its books through Java; the JVM of a killed run must end, too."""
    process = subprocess.Popen(
        [sys.executable, "-c", LISTENING],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stdout
        java = int(process.stdout.readline())
        if how == signal.SIGKILL:
            process.kill()
        else:
            os.killpg(process.pid, how)  # a terminal, or what stops a service, sends it to Java as well
        rest = process.stdout.read()
    assert ("" if how == signal.SIGKILL else "3\n") == rest
    assert gone(java)


@pytest.mark.spark
def test_folders_that_spark_looks_for_elsewhere_are_refused(spark, monkeypatch):
    """Arrow would write the lake here and Spark read another one there, both as if it were the whole."""
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    usual = settings.get("fs.defaultFS")
    session.refuse_other_folders(spark)
    settings.set("fs.defaultFS", "hdfs://namenode:8020")
    try:
        with pytest.raises(SetupError, match="looks for folders in hdfs://namenode:8020: give `lake:` a URI"):
            session.refuse_other_folders(spark)
        monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17")
        session.refuse_other_folders(spark)
    finally:
        settings.set("fs.defaultFS", usual)


def gone(pid: int) -> bool:
    """True if the process has ended within a time that is long for any machine."""
    for _ in range(300):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False
