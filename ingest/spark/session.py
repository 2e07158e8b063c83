"""The Spark session: loopback, quiet, reproducible, quick to start; or the one that already runs.

Three ways in. Under plain ``python`` a JVM is started here, and every setting of `ingest.spark.settings` applies. Under
``spark-submit`` the JVM runs already: the submitter decides its start-up settings (memory, class path, Java options).
An active session (a notebook, Databricks) is used as it is, and only its runtime settings are set.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyspark
from pyspark import SparkConf, SparkContext, accumulators, java_gateway
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from ingest.errors import SetupError
from ingest.spark import archive, jars
from ingest.spark.deferred import has_started
from ingest.spark.java import Java, find, launcher
from ingest.spark.settings import (
    APPLIED,
    DELTA,
    EARLY,
    EVERYWHERE,
    EXTENSION,
    Profile,
    class_archive,
    cluster_settings,
    is_local,
    joined,
    local_defaults,
    local_settings,
    runtime,
)

_NOTHING: Mapping[str, str] = MappingProxyType({})
_PROFILE = "spark.ingest.profile"  # marks a session as started here
_DERIVED = "spark.ingest.derived"  # marks a session that was made from another one
_LAST = 30.0  # seconds that a JVM may take to end
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
        conf: the pipeline file's settings; they override the ones here.
        kafka: True if a source is Kafka, which needs four more jars.
        profile: ``tick`` starts quickly, ``batch`` runs long work faster.

    Raises:
        SetupError: Java or a jar is missing, or Java does not start; the text says how to fix it.
    """
    if running := _running():
        return _apply(running, {**EVERYWHERE, **conf})
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return _submitted(app_name, conf)
    return _started(app_name, master, conf, kafka, profile)


def can_wait(master: str) -> bool:
    """True if a session would be started here, on this machine, so that it need not start before it is needed."""
    return is_local(master) and "PYSPARK_GATEWAY_PORT" not in os.environ and _running() is None


def new_session(spark: SparkSession) -> SparkSession:
    """Another session of the same process, with its own settings and views; it starts with the same runtime
    settings.
    """
    fresh = spark.newSession()
    fresh.conf.set(_DERIVED, "true")
    names = spark.conf.get(APPLIED, "") or ""
    return _apply(fresh, {name: spark.conf.get(name) or "" for name in names.split() if name != APPLIED})


def activate(spark: SparkSession) -> None:
    """Make a session the active one of this thread, which is where Delta looks for it."""
    SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


def stop(spark: SparkSession) -> None:
    """Stop a session that was started here; leave any other to its owner."""
    if has_started(spark) and spark.conf.get(_PROFILE, ""):
        spark.stop()


def refuse_other_folders(spark: SparkSession) -> None:
    """Raise a `SetupError` if Spark looks for a path without a scheme elsewhere than in this machine's folders."""
    default = spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS") or "file:///"
    # Databricks has another default, and /Volumes works
    knows_volumes = "DATABRICKS_RUNTIME_VERSION" in os.environ
    if not default.startswith("file:") and not knows_volumes:
        raise SetupError(
            f"The lake is a folder, and this Spark looks for folders in {default}: give `lake:` a URI there, or write "
            "`spark: {spark.hadoop.fs.defaultFS: 'file:///'}` in the pipeline file if every node has the folder."
        )


def end_java() -> None:
    """End the JVM that this process has started, if any, and wait until it is gone: no session can start afterwards.

    A JVM ends with its pipe, but not at once: without this it may outlive the process.
    """
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(_LAST)
    except subprocess.TimeoutExpired:  # whatever it does, nothing waits for its result
        process.kill()
        process.wait()


def how_java_ended(patience: float = 0) -> str:
    """How the JVM that this process has started has ended, in words; empty if it still runs after so many seconds."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return ""
    try:
        code = process.wait(patience)
    except subprocess.TimeoutExpired:
        return ""
    return f"with exit code {code}" if code >= 0 else f"by signal {-code} ({signal.Signals(-code).name})"


def prepare(*, say: Callable[[str], None] = lambda _: None) -> bool:
    """Build the class archive that lets ticks start quickly; True if there is one afterwards."""
    file = class_archive(find(), _class_path(kafka=False))
    if archive.options(file):
        return True
    say("preparing Java's class archive, once, for about a minute")
    return archive.build(file)


def _running() -> SparkSession | None:
    active = SparkSession.getActiveSession()
    if active and not active.conf.get(_DERIVED, ""):
        return active
    if SparkContext._active_spark_context or "DATABRICKS_RUNTIME_VERSION" in os.environ:
        return SparkSession.builder.getOrCreate()
    return None


def _submitted(app_name: str, conf: Mapping[str, str]) -> SparkSession:
    SparkContext._ensure_initialized()
    given = dict(SparkConf().getAll())
    master = given.get("spark.master", "")
    defaults = local_defaults(master) if is_local(master) else {}
    _check_delta()
    ours = joined({**EVERYWHERE, **defaults, **DELTA}, given)
    return _build(app_name, "", joined(ours, conf), "submitted")


def _check_delta() -> None:
    jvm = SparkContext._jvm
    assert jvm is not None
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(EXTENSION)
    except Exception as error:
        names = ",".join(jar.file for jar in jars.PINNED if jar.kind == "delta")
        raise SetupError(f"This Spark has no Delta Lake: give spark-submit --jars {names}.") from error


def _started(
    app_name: str, master: str, conf: Mapping[str, str], kafka: bool, profile: Profile
) -> SparkSession:
    java = find()
    class_path = _class_path(kafka)
    if not is_local(master):
        # the workers' Python may be elsewhere
        with _environment(
            {**_python(java), "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}
        ):
            settings = cluster_settings(conf, class_path)
            _start_java({"spark.master": master, **settings})
            return _build(app_name, master, settings, profile)
    with _environment(_local_environment(java)):
        settings = local_settings(master, conf, java, class_path, profile)
        try:
            _start_java(settings)
        except SetupError:  # the class archive only saves time: Java may start without it
            if not archive.discard(class_archive(java, class_path)):
                raise
            settings = local_settings(master, conf, java, class_path, profile)
            _start_java(settings)
        return _build(app_name, master or "local[*]", settings, profile)


def _class_path(kafka: bool) -> list[Path]:
    """The required jars, and Kafka's if they are present: each class path needs its own class archive."""
    if kafka:
        return jars.require("delta", "kafka")
    with suppress(SetupError):
        return jars.require("delta", "kafka")
    return jars.require("delta")


def _build(app_name: str, master: str, settings: Mapping[str, str], profile: str) -> SparkSession:
    builder = SparkSession.builder.appName(app_name)
    if master:
        builder = builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.config(_PROFILE, profile).config(APPLIED, " ".join(runtime(settings))).getOrCreate()


def _start_java(settings: Mapping[str, str]) -> None:
    """Start the JVM with the settings that it needs at its start.

    These become its command line, which every user of the machine can read; the others, such as passwords of object
    stores, are sent later over the connection.
    """
    early = [(name, value) for name, value in settings.items() if name.startswith(EARLY)]
    for name in _TALKATIVE:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_is_not_of_py4j)
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        setattr(server, "handle_error", _hung_up)  # noqa: B010 - for mypy, a method
    if how_java_ended():  # before its session had started; a loop tries again
        SparkContext._gateway = SparkContext._jvm = None
    try:
        with _java_ignores(signal.SIGTERM):
            SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(early))
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise SetupError("Java ended before Spark had started: type `ingest doctor`.") from error


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """False for the traces of each caller that Java has hung up on: what they raise is reported in a sentence."""
    return record.module != "java_gateway"


def _hung_up(_server: object, _request: object, _client: object) -> None:
    """Java, which reports the counts of tasks to this server, has ended; whoever needs it says so."""


@contextmanager
def _java_ignores(number: signal.Signals) -> Iterator[None]:
    """Java, if it is started in this block, ignores a signal; this process keeps its own handler.

    A signal to the whole process group must not end Java before Python has finished the commit in flight; Java ends
    with Python.
    """
    gateway: Any = java_gateway
    start = gateway.Popen

    def started(command: Any, **given: Any) -> Any:
        if others := given.get("preexec_fn"):  # not on Windows

            def prepare() -> None:
                others()
                signal.signal(number, signal.SIG_IGN)

            given["preexec_fn"] = prepare
        return start(command, **given)

    gateway.Popen = started
    try:
        yield
    finally:
        gateway.Popen = start


def _apply(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Set the runtime settings of a running session; all others were fixed at its start. What was applied before
    stays in the list: a session that is used again still has it.
    """
    done = dict.fromkeys((spark.conf.get(APPLIED, "") or "").split())
    for name, value in settings.items():
        with suppress(PySparkException):
            spark.conf.set(name, value)
            done[name] = None
    spark.conf.set(APPLIED, " ".join(done))
    return spark


def _local_environment(java: Java) -> dict[str, str | None]:
    """Use this interpreter and its own PySpark, whatever the shell's variables say."""
    return {
        **_python(java),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_REMOTE": None,
        "SPARK_CONNECT_MODE_ENABLED": None,
    }


def _python(java: Java) -> dict[str, str | None]:
    python = sys.executable
    return {"JAVA_HOME": str(launcher(java)), "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}


@contextmanager
def _environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Environment variables for the JVM started in this block; None removes one. All are restored afterwards."""
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
