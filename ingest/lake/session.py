"""The Spark session: loopback, quiet, reproducible, quick to start; or the one that already runs.

Three ways in. Under plain ``python`` a JVM is started here, and every setting below applies. Under
``spark-submit`` the JVM runs already: what belongs to its start (memory, class path, Java options) is the
submitter's. Where a session is active (a notebook, Databricks) it is used, with its runtime settings only.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from ingest.errors import SetupError
from ingest.lake import archive, cache, jars
from ingest.lake.java import Java, find, launcher

Profile = Literal["tick", "batch"]

_NOTHING: Mapping[str, str] = MappingProxyType({})
_PROFILE = "spark.ingest.profile"  # marks a session as started here
_APPLIED = "spark.ingest.settings"  # the runtime settings of a session, for new_session
_PARTITIONS = "spark.sql.shuffle.partitions"
_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"

EVERYWHERE = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",  # an overflow is an error, never a silent NULL
    "spark.sql.parquet.compression.codec": "zstd",  # Delta 4.4 refuses it as a table property
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # other readers' INT96 ends in 2262
    # Spark weighs the growing batch at every row: 500 rows cost a third of 10,000 (benchmarks/notes.md)
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
}
# Spark compiles every query to Java.  For few rows that costs more than it saves: the first run of a small
# pipeline takes a third less when its queries are interpreted (benchmarks/notes.md).
COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
FEW = 5_000  # rows
SMALL = 1 << 19  # bytes of a table that may be read along with few rows
# Right for one small machine; on a cluster Spark's own defaults stand.
LOCAL = {
    **COMPILED,
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",  # each task of it compiles Delta's widest row anew
    "spark.databricks.delta.allFilesInCrc.enabled": "false",  # one Spark job less for a table's first commit
    "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
}
_DELTA = {
    "spark.sql.extensions": _EXTENSION,
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_LOCAL_START = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.python.worker.reuse": "true",
    "spark.sql.codegen.cache.maxEntries": "5000",  # of 100, a batch's own queries push each other out
    "spark.sql.catalogImplementation": "in-memory",  # Hive's would leave metastore_db in the current folder
}
_SECOND_COMPILER = {
    "InvocationThreshold": 20_000,
    "MinInvocationThreshold": 2_400,
    "CompileThreshold": 60_000,
    "BackEdgeThreshold": 160_000,
}
_MEMORY = {"tick": "2g", "batch": "3g"}
_COLLECTOR = ("-XX:+UseSerialGC",)  # for both, so that one class archive fits both
_JVM = {
    # A tick ends before the second compiler has paid for itself; its code cache must hold all of Spark.
    "tick": (*_COLLECTOR, "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=256m"),
    # What Spark runs often is soon compiled twice; at four times the usual counts the second compiler, which takes a
    # third of the first batches' processor time, leaves out what is not worth it (benchmarks/notes.md).
    "batch": (
        *_COLLECTOR,
        "-XX:ReservedCodeCacheSize=512m",
        *(f"-XX:Tier4{name}={count}" for name, count in _SECOND_COMPILER.items()),
    ),
}
_EARLY = ("spark.master", "spark.submit.", "spark.driver.", "spark.jars", "spark.files", "spark.archives")
# Joined, not replaced, where the pipeline file or spark-submit gives its own.
_JOINED = {
    "spark.sql.extensions": ",",
    "spark.jars": ",",
    "spark.driver.extraClassPath": os.pathsep,
    "spark.driver.extraJavaOptions": " ",
}
_TALKATIVE = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")  # they print what is raised anyway


def session(
    app_name: str,
    *,
    master: str = "",
    conf: Mapping[str, str] = _NOTHING,
    kafka: bool = False,
    profile: Profile = "tick",
) -> SparkSession:
    """The session to work with: the active one, else a new one.

    Args:
        app_name: the name Spark shows.
        master: Spark's master; empty is this machine, or what spark-submit says.
        conf: the pipeline file's own settings; they win over the ones here.
        kafka: True if a source is Kafka, which needs four more jars.
        profile: ``tick`` starts quickly, ``batch`` runs long work faster.

    Raises:
        SetupError: Java or a jar is missing, or Java does not start; the text says what mends it.
    """
    if running := _running():
        return _apply(running, {**EVERYWHERE, **conf})
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return _submitted(app_name, conf)
    return _started(app_name, master, conf, kafka, profile)


def new_session(spark: SparkSession) -> SparkSession:
    """A session beside this one, with its own settings and views and the same runtime settings to begin with."""
    fresh = spark.newSession()
    names = spark.conf.get(_APPLIED, "") or ""
    return _apply(fresh, {name: spark.conf.get(name) or "" for name in names.split() if name != _APPLIED})


def pace(spark: SparkSession, rows: int, size: int = 0) -> None:
    """Have what follows interpreted if it is little, compiled if it is much; in a session of our own on one machine.

    Args:
        spark: the session.
        rows: how many rows the next queries go through, about.
        size: bytes of the tables that they meet.
    """
    if _is_ours(spark):
        for name, value in (INTERPRETED if rows <= FEW and size <= SMALL else COMPILED).items():
            spark.conf.set(name, value)


def narrow(spark: SparkSession, rows: int, size: int) -> None:
    """Have few rows exchanged by one task, not by one for each core; in a session of our own on one machine.

    Args:
        spark: the session.
        rows: how many rows the next queries bring, about.
        size: bytes of the table that they meet: it is exchanged, too.
    """
    if rows <= FEW and size <= SMALL and _is_ours(spark):
        cores = str(spark.sparkContext.defaultParallelism)
        if spark.conf.get(_PARTITIONS) == cores:  # else they are the user's own
            spark.conf.set(_PARTITIONS, "1")


def _is_ours(spark: SparkSession) -> bool:
    """True for a session whose settings for one small machine were made here."""
    return is_set(spark, "spark.sql.codegen.factoryMode")


@contextmanager
def paced(spark: SparkSession, rows: int, size: int = 0) -> Iterator[None]:
    """`pace` for one query among others, which go on as they were."""
    before = {name: spark.conf.get(name) or "" for name in COMPILED} if _is_ours(spark) else {}
    pace(spark, rows, size)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def is_set(spark: SparkSession, name: str) -> bool:
    """True if a runtime setting came from the pipeline file or from the defaults here."""
    return name in (spark.conf.get(_APPLIED, "") or "").split()


def stop(spark: SparkSession) -> None:
    """Stop a session that was started here; leave any other to its owner."""
    if spark.conf.get(_PROFILE, ""):
        spark.stop()


def prepare(*, say: Callable[[str], None] = lambda _: None) -> bool:
    """Build the class archive that lets ticks start quickly; True if there is one afterwards."""
    file = _archive(find(), _class_path(kafka=False))
    if file.is_file():
        return True
    say("preparing Java's class archive, once, for about a minute")
    return archive.build(file)


def is_local(master: str) -> bool:
    """True if driver and executors are one process on this machine."""
    return master in {"", "local"} or master.startswith("local[")


def local_settings(
    master: str, conf: Mapping[str, str], java: Java, class_path: list[Path], profile: Profile
) -> dict[str, str]:
    """Every setting of a session on this machine, the user's own ones included."""
    archived = archive.options(_archive(java, class_path))
    ours = {
        **EVERYWHERE,
        **LOCAL,
        **_DELTA,
        **_LOCAL_START,
        _PARTITIONS: str(_cores(master)),
        "spark.sql.warehouse.dir": (cache.folder() / "warehouse").as_uri(),
        "spark.driver.extraClassPath": os.pathsep.join(map(str, class_path)),
        "spark.driver.extraJavaOptions": shlex.join([*_JVM[profile], *archived, *_java_options()]),
    }
    if "SPARK_DRIVER_MEMORY" not in os.environ:
        ours["spark.driver.memory"] = _MEMORY[profile]
    return _joined(ours, conf)


def cluster_settings(conf: Mapping[str, str], class_path: list[Path]) -> dict[str, str]:
    """The settings of a session whose executors run elsewhere: the jars travel, the rest is the cluster's."""
    ours = {
        **EVERYWHERE,
        **_DELTA,
        "spark.ui.showConsoleProgress": "false",
        "spark.jars": ",".join(path.as_uri() for path in class_path),
        "spark.driver.extraJavaOptions": shlex.join(_java_options()),
    }
    return _joined(ours, conf)


def _running() -> SparkSession | None:
    if active := SparkSession.getActiveSession():
        return active
    if SparkContext._active_spark_context or "DATABRICKS_RUNTIME_VERSION" in os.environ:
        return SparkSession.builder.getOrCreate()
    return None


def _submitted(app_name: str, conf: Mapping[str, str]) -> SparkSession:
    SparkContext._ensure_initialized()
    given = dict(SparkConf().getAll())
    own = LOCAL if is_local(given.get("spark.master", "")) else {}
    _check_delta()
    ours = _joined({**EVERYWHERE, **own, **_DELTA}, given)
    return _build(app_name, "", _joined(ours, conf), "submitted")


def _check_delta() -> None:
    jvm = SparkContext._jvm
    assert jvm is not None
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(_EXTENSION)
    except Exception as error:
        names = ",".join(jar.file for jar in jars.PINNED if jar.kind == "delta")
        raise SetupError(f"This Spark has no Delta Lake: give spark-submit --jars {names}.") from error


def _started(
    app_name: str, master: str, conf: Mapping[str, str], kafka: bool, profile: Profile
) -> SparkSession:
    java = find()
    class_path = _class_path(kafka)
    if not is_local(master):
        with _environment(_cluster_environment(java)):
            settings = cluster_settings(conf, class_path)
            _start_java({"spark.master": master, **settings})
            return _build(app_name, master, settings, profile)
    with _environment(_local_environment(java)):
        settings = local_settings(master, conf, java, class_path, profile)
        try:
            _start_java(settings)
        except SetupError:  # the class archive only saves time: without it Java may well start
            if not archive.discard(_archive(java, class_path)):
                raise
            settings = local_settings(master, conf, java, class_path, profile)
            _start_java(settings)
        return _build(app_name, master or "local[*]", settings, profile)


def _class_path(kafka: bool) -> list[Path]:
    """The jars needed, and Kafka's too if they are there: one class path is one class archive."""
    if kafka:
        return jars.require("delta", "kafka")
    with suppress(SetupError):
        return jars.require("delta", "kafka")
    return jars.require("delta")


def _archive(java: Java, class_path: list[Path]) -> Path:
    return archive.path(java, class_path, _COLLECTOR)


def _build(app_name: str, master: str, settings: Mapping[str, str], profile: str) -> SparkSession:
    builder = SparkSession.builder.appName(app_name)
    if master:
        builder = builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.config(_PROFILE, profile).config(_APPLIED, " ".join(_runtime(settings))).getOrCreate()


def _start_java(settings: Mapping[str, str]) -> None:
    """Start the JVM with what it must know at once.

    These settings become its command line, which every user of the machine can read; the others, passwords of
    object stores among them, reach it later, over the connection.
    """
    early = [(name, value) for name, value in settings.items() if name.startswith(_EARLY)]
    for name in _TALKATIVE:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        with _deaf(signal.SIGTERM):
            SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(early))
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise SetupError("Java ended before Spark had started: type `ingest doctor`.") from error


@contextmanager
def _deaf(number: signal.Signals) -> Iterator[None]:
    """What is started meanwhile ignores a signal.

    One sent to the whole process group must not end Java before Python has finished the commit in flight; Java
    ends with Python.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)


def _apply(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Set what may be set in a running session; the rest was fixed when it started."""
    done = []
    for name, value in settings.items():
        with suppress(PySparkException):
            spark.conf.set(name, value)
            done.append(name)
    spark.conf.set(_APPLIED, " ".join(done))
    return spark


def _runtime(settings: Mapping[str, str]) -> list[str]:
    fixed = {"spark.sql.extensions", "spark.sql.warehouse.dir", "spark.sql.catalogImplementation"}
    return [
        name
        for name in settings
        if name.startswith(("spark.sql.", "spark.databricks.")) and name not in fixed
    ]


def _joined(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """Theirs over ours; lists are joined, ours first, except Java options, where Java heeds the last."""
    both = {**ours, **theirs}
    for name, separator in _JOINED.items():
        if name in ours and name in theirs and ours[name] != theirs[name]:
            both[name] = separator.join([ours[name], theirs[name]])
    return both


def _java_options() -> list[str]:
    """Options of any JVM started here: our log settings, and no file left in the current folder."""
    log = Path(__file__).with_name("log4j2.properties")
    temporary = tempfile.gettempdir()
    return [
        "-Xlog:disable",
        "-XX:+DisplayVMOutputToStderr",  # stdout is for results
        "-XX:-UsePerfData",
        f"-XX:ErrorFile={temporary}/hs_err_%p.log",
        f"-Dlog4j2.configurationFile={log.as_uri()}",
        f"-Djava.io.tmpdir={temporary}",
        f"-Dderby.system.home={temporary}",
    ]


def _local_environment(java: Java) -> dict[str, str | None]:
    """This interpreter and its own PySpark, whatever the shell's variables say of others."""
    return {
        "JAVA_HOME": str(launcher(java)),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_REMOTE": None,
        "SPARK_CONNECT_MODE_ENABLED": None,
    }


def _cluster_environment(java: Java) -> dict[str, str | None]:
    python = os.environ.get("PYSPARK_PYTHON", sys.executable)  # the workers' may lie elsewhere
    return {
        "JAVA_HOME": str(launcher(java)),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


@contextmanager
def _environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Variables for the JVM that is started inside; None takes one away. All are put back afterwards."""
    before = {name: os.environ.get(name) for name in changes}
    try:
        _set_environment(changes)
        yield
    finally:
        _set_environment(before)


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _cores(master: str) -> int:
    if number := re.match(r"local\[(\d+)", master):
        return int(number[1])
    if master == "local":
        return 1
    with suppress(AttributeError):  # not every system knows which cores a process may use
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
