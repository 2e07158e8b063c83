"""Settings of a Spark session: on one small machine, on a cluster, and the user's own on top."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ingest.errors import SetupError
from ingest.spark import archive, cache
from ingest.spark.java import Java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Profile = Literal["tick", "batch"]

APPLIED = "spark.ingest.settings"  # the names of a session's runtime settings, for new_session
PACED = "spark.ingest.paced"  # true if `ingest.spark.pace` may change a session's settings
PARTITIONS = "spark.sql.shuffle.partitions"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"  # of all commits of a session
EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"

EVERYWHERE = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.variable.substitute": "false",  # otherwise a source's text could read the environment: ${env:PASSWORD}
    "spark.sql.ansi.enabled": "true",  # an overflow is an error, never a silent NULL
    "spark.sql.parquet.compression.codec": "zstd",  # Delta 4.4 refuses it as a table property
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # other readers' INT96 ends in 2262
    # Spark measures the growing batch at every row: 500 rows cost a third of what 10,000 cost (benchmarks/notes.md)
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
}
# Spark compiles every query to Java. For few rows into small tables that costs more than it saves; for mirrors above
# half a MiB it saves more (benchmarks/notes.md).
COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
# For one small machine; a cluster keeps Spark's own defaults.
LOCAL = {
    **COMPILED,
    PACED: "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",  # each task of it compiles Delta's widest row again
    "spark.databricks.delta.allFilesInCrc.enabled": "false",  # one Spark job less for a table's first commit
    "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
}
DELTA = {
    "spark.sql.extensions": EXTENSION,
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_LOCAL_START = {
    "spark.authenticate": "true",  # otherwise any local user could connect to the driver's port and send it objects
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.python.worker.reuse": "true",
    "spark.sql.codegen.cache.maxEntries": "5000",  # with 100, a batch's own queries evict each other
    "spark.sql.catalogImplementation": "in-memory",  # Hive would leave metastore_db in the current folder
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
    # A tick ends before the second compiler (C2) pays off; the code cache must hold all of Spark.
    "tick": (*_COLLECTOR, "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=256m"),
    # Hot code is soon compiled twice. With four times the usual thresholds the second compiler, which takes a third of
    # the first batches' processor time, skips code that is not worth it (benchmarks/notes.md).
    "batch": (
        *_COLLECTOR,
        "-XX:ReservedCodeCacheSize=512m",
        *(f"-XX:Tier4{name}={count}" for name, count in _SECOND_COMPILER.items()),
    ),
}
EARLY = ("spark.master", "spark.submit.", "spark.driver.", "spark.jars", "spark.files", "spark.archives")
# Joined with the values of the pipeline file or spark-submit, not replaced by them.
_JOINED = {
    "spark.sql.extensions": ",",
    "spark.jars": ",",
    "spark.driver.extraClassPath": os.pathsep,
    "spark.driver.extraJavaOptions": " ",
}


def is_local(master: str) -> bool:
    """True if driver and executors are one process on this machine."""
    return master in {"", "local"} or master.startswith("local[")


def local_defaults(master: str) -> dict[str, str]:
    """Runtime settings of any session on this machine."""
    return {**LOCAL, PARTITIONS: str(local_cores(master))}


def local_settings(
    master: str, conf: Mapping[str, str], java: Java, class_path: list[Path], profile: Profile
) -> dict[str, str]:
    """All settings of a session on this machine, including the user's own."""
    archived = archive.options(class_archive(java, class_path))
    ours = {
        **EVERYWHERE,
        **local_defaults(master),
        **DELTA,
        **_LOCAL_START,
        "spark.hadoop.fs.permissions.umask-mode": _umask(),
        "spark.sql.warehouse.dir": (cache.folder() / "warehouse").as_uri(),
        "spark.driver.extraClassPath": os.pathsep.join(map(str, class_path)),
        "spark.driver.extraJavaOptions": shlex.join([*_JVM[profile], *archived, *_java_options()]),
    }
    if "SPARK_DRIVER_MEMORY" not in os.environ:
        ours["spark.driver.memory"] = _MEMORY[profile]
    return joined(ours, conf)


def _umask() -> str:
    """This process' umask in octal digits; Hadoop has its own, 022, and gives every file its mode by that."""
    mask = os.umask(0o077)  # it can be read only by setting it
    os.umask(mask)
    return f"{mask:03o}"


def cluster_settings(conf: Mapping[str, str], class_path: list[Path]) -> dict[str, str]:
    """The settings of a session whose executors run elsewhere: the jars are sent, the rest is the cluster's."""
    ours = {
        **EVERYWHERE,
        **DELTA,
        "spark.ui.showConsoleProgress": "false",
        "spark.jars": ",".join(path.as_uri() for path in class_path),
        "spark.driver.extraJavaOptions": shlex.join(_java_options()),
    }
    return joined(ours, conf)


def is_set(spark: SparkSession, name: str) -> bool:
    """True if a runtime setting came from the pipeline file or from the defaults here."""
    return name in (spark.conf.get(APPLIED, "") or "").split()


def runtime(settings: Mapping[str, str]) -> list[str]:
    """The names of the settings that can be set in a running session and in sessions created from it."""
    fixed = {"spark.sql.extensions", "spark.sql.warehouse.dir", "spark.sql.catalogImplementation"}
    return [
        name
        for name in settings
        if name.startswith(("spark.sql.", "spark.databricks.", PACED)) and name not in fixed
    ]


def class_archive(java: Java, class_path: list[Path]) -> Path:
    """The path of the class archive for this Java and class path, whether or not it exists."""
    return archive.path(java, class_path, _COLLECTOR)


def joined(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """Their settings override ours; lists are joined, ours first, also Java options, of which Java uses the last.

    If the user sets any code-generation option, adaptive tuning (`ingest.spark.pace`) is turned off.
    """
    both = {**ours, **theirs}
    for name, separator in _JOINED.items():
        if name in ours and name in theirs and ours[name] != theirs[name]:
            both[name] = separator.join([ours[name], theirs[name]])
    if COMPILED.keys() & theirs.keys():
        both[PACED] = "false"
    return both


def _java_options() -> list[str]:
    """Options of any JVM started here: our log settings, and no files in the current folder."""
    log = Path(__file__).with_name("log4j2.properties")
    temporary = tempfile.gettempdir()
    return [
        "-Xlog:disable",
        "-XX:+DisplayVMOutputToStderr",  # stdout is reserved for results
        "-XX:-UsePerfData",
        f"-XX:ErrorFile={_crashes()}/hs_err_%p.log",
        f"-Dlog4j2.configurationFile={log.as_uri()}",
        f"-Djava.io.tmpdir={temporary}",
        f"-Dderby.system.home={temporary}",
    ]


def _crashes() -> Path:
    """The folder for the report of a crashed JVM: one of this user only, or the temporary folder if there is no
    cache.
    """
    with suppress(SetupError):
        return cache.writable("crashes")
    return Path(tempfile.gettempdir())


def local_cores(master: str) -> int:
    """The cores that Spark uses on this machine."""
    if number := re.match(r"local\[(\d+)", master):
        return int(number[1])
    if master == "local":
        return 1
    with suppress(AttributeError):  # not every system says which cores a process may use
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
