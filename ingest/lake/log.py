"""What a Delta table's own log knows: its version, and how far each writer's identifier has come.

Every stage commit carries Delta's transaction identifier (``txnAppId``, ``txnVersion``), so progress
lives with the data: nothing beside the tables can be lost or restored out of step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A Delta table as its log stands now."""

    version: int  # -1: no table
    transactions: dict[str, int]
    types: Mapping[str, object] = field(default_factory=dict)  # of its columns, as the log writes them
    table_id: str = ""
    size: int | None = None  # bytes of its data files, where the log tells it at once

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns, in order."""
        return tuple(self.types)

    @property
    def exists(self) -> bool:
        """True if the table has been created."""
        return self.version >= 0


NO_TABLE = Snapshot(-1, {})


def snapshot(spark: SparkSession, path: str) -> Snapshot:
    """The newest state of the Delta table at ``path``; `NO_TABLE` where there is none."""
    log = _class(spark, "org.apache.spark.sql.delta.DeltaLog").forTable(spark._jsparkSession, path)
    none = _class(spark, "scala.Option").empty()
    state = log.update(False, none, none)
    if state.version() < 0:
        return NO_TABLE
    checksum = state.checksumOpt()
    return Snapshot(
        state.version(),
        _transactions(state, checksum),
        {one["name"]: one["type"] for one in orjson.loads(state.schema().json())["fields"]},
        state.metadata().id(),
        int(checksum.get().tableSizeBytes()) if checksum.isDefined() else None,
    )


def _class(spark: SparkSession, name: str) -> Any:
    """A Java class by its whole name: asked for part by part, each package is looked for in every jar."""
    return getattr(spark._jvm, name)


def progress(spark: SparkSession, path: str, writer: str) -> int:
    """The last batch that ``writer`` has committed to the table, or -1."""
    return snapshot(spark, path).transactions.get(writer, -1)


def _transactions(state: Any, checksum: Any) -> dict[str, int]:
    """Each writer's last number: from the checksum that Delta writes beside a commit, if it tells them.

    Otherwise Delta must put the whole state together, which takes a Spark job for every version of every table.
    """
    told = checksum.get().setTransactions() if checksum.isDefined() else None
    if told is not None and told.isDefined():
        entries = told.get().iterator()
        return {one.appId(): int(one.version()) for one in _each(entries)}
    return {one._1(): int(one._2()) for one in _each(state.transactions().iterator())}


def _each(entries: Any) -> Iterator[Any]:
    while entries.hasNext():
        yield entries.next()


def commit_metadata(spark: SparkSession, path: str, version: int) -> dict[str, Any]:
    """The ``userMetadata`` that a commit carries, as a mapping; empty if it is none of ours."""
    return metadata_of(actions(spark, path, version))


def run_of(spark: SparkSession, path: str, version: int, batch: int) -> str | None:
    """The run whose commit wrote a batch, looked for from ``version`` back; None if the log does not hold it."""
    for number in range(version, -1, -1):
        try:
            found = commit_metadata(spark, path, number)
        except Py4JJavaError:  # older than the log goes back
            return None
        if found.get("batch", batch + 1) <= batch:
            return found.get("run") if found["batch"] == batch else None
    return None


def metadata_of(commit: list[dict[str, Any]]) -> dict[str, Any]:
    """The ``userMetadata`` among a commit's actions, as a mapping; empty if it is none of ours."""
    for action in commit:
        info = action.get("commitInfo")
        if info is not None:
            try:
                found = orjson.loads(info.get("userMetadata") or "{}")
            except orjson.JSONDecodeError:
                return {}
            return found if isinstance(found, dict) else {}
    return {}


def actions(spark: SparkSession, path: str, version: int) -> list[dict[str, Any]]:
    """The actions of one commit, read from its own file in the table's log."""
    file = _class(spark, "org.apache.hadoop.fs.Path")(f"{path}/_delta_log/{version:020d}.json")
    fs = file.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    stream = fs.open(file)
    try:
        text = _class(spark, "org.apache.commons.io.IOUtils").toString(stream, "UTF-8")
    finally:
        stream.close()
    return [orjson.loads(line) for line in text.split("\n") if line]  # names may hold other line ends
