"""Read a Delta table's log through Spark: for stores that only Hadoop reaches, and for writers.

Every stage commit carries Delta's transaction identifier (``txnAppId``, ``txnVersion``), so progress
is stored with the data: nothing outside the tables can be lost or restored separately.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
from pyspark.sql import SparkSession

from ingest.spark.session import activate
from ingest.tables.delta import NO_TABLE, Snapshot


def snapshot(spark: SparkSession, path: str) -> Snapshot:
    """The newest state of the Delta table at ``path``; `NO_TABLE` if there is none."""
    activate(spark)  # Delta reads a checkpoint with the thread's session
    log = _class(spark, "org.apache.spark.sql.delta.DeltaLog").forTable(spark._jsparkSession, path)
    none = _class(spark, "scala.Option").empty()
    state = log.update(False, none, none)
    if state.version() < 0:
        return NO_TABLE
    checksum = state.checksumOpt()
    return Snapshot(
        state.version(),
        _transactions(state, checksum),
        {field["name"]: field["type"] for field in orjson.loads(state.schema().json())["fields"]},
        state.metadata().id(),
        int(checksum.get().tableSizeBytes()) if checksum.isDefined() else None,
    )


def checkpoint(spark: SparkSession, path: str) -> None:
    """Write a checkpoint of the newest version of the table at ``path``."""
    activate(spark)
    log = _class(spark, "org.apache.spark.sql.delta.DeltaLog").forTable(spark._jsparkSession, path)
    none = _class(spark, "scala.Option").empty()
    log.checkpoint(log.update(False, none, none), none)


def _class(spark: SparkSession, name: str) -> Any:
    """Get a Java class by full name: with chained access py4j would search every jar for each package."""
    return getattr(spark._jvm, name)


def _transactions(state: Any, checksum: Any) -> dict[str, int]:
    """Each writer's last number, from the checksum file that Delta writes with a commit if it contains them.

    Otherwise Delta must reconstruct the whole state, which takes a Spark job for every version of every table.
    """
    numbers = checksum.get().setTransactions() if checksum.isDefined() else None
    if numbers is not None and numbers.isDefined():
        entries = numbers.get().iterator()
        return {transaction.appId(): int(transaction.version()) for transaction in _each(entries)}
    return {transaction._1(): int(transaction._2()) for transaction in _each(state.transactions().iterator())}


def _each(entries: Any) -> Iterator[Any]:
    while entries.hasNext():
        yield entries.next()


def actions(spark: SparkSession, path: str, version: int) -> list[dict[str, Any]]:
    """The actions of one commit, read from its file in the table's log."""
    file = _class(spark, "org.apache.hadoop.fs.Path")(f"{path}/_delta_log/{version:020d}.json")
    fs = file.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    stream = fs.open(file)
    try:
        text = _class(spark, "org.apache.commons.io.IOUtils").toString(stream, "UTF-8")
    finally:
        stream.close()
    return [orjson.loads(line) for line in text.split("\n") if line]  # names may contain other line breaks
