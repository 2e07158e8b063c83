"""Apache Spark's AUTO CDC (declarative pipelines of PySpark 4.2): a view and a flow for each table, into Delta tables.

As shipped, AUTO CDC refuses Delta 4.4 (``AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE``).  So this is an experiment, not a
product that anybody can have: the one method that refuses, `GATE`, is replaced by an empty one in a class file that lies before
Spark's own on the driver's class path.  Everything else is Spark's, called as ``spark-pipelines run`` calls it, in a
session that is kept.  Like the recipe it keeps no messages and no changes, and each table's schema is written by hand.
"""

from __future__ import annotations

import json
import os
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.contest.recipe import delta_settings, pairs
from benchmarks.contest.steps import Fold, Script, perform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DATABASE = "bench"
CATALOG = "spark_catalog"
OWN = "__spark_autocdc_"  # begins the names of its own tables and of the column that it adds
CLASS = "org/apache/spark/sql/pipelines/graph/AutoCdcMergeWriteBase.class"
GATE = "requireDestinationSupportsRowLevelOps"
RETURN = b"\xb1"
EMPTY = (
    struct.pack(">I", 1) + RETURN + struct.pack(">HH", 0, 0)
)  # code of one byte, no handlers, no attributes
# The bytes after the tag of each entry of a class file's pool of constants (Java Virtual Machine Specification, 4.4).
_CONSTANTS = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}  # fmt: skip
_TWO_PLACES = (5, 6)  # long and double take two places of the pool


@lru_cache(maxsize=1)
def session(settings: str) -> Any:
    """A session of Spark Connect on this machine's loopback, with Delta and without the gate."""
    import pyspark
    from pyspark.sql import SparkSession

    jar = next(Path(pyspark.__file__).parent.glob("jars/spark-pipelines_*.jar"))
    folder = Path(tempfile.mkdtemp(prefix="auto-cdc-"))
    with zipfile.ZipFile(jar) as classes:
        (folder / CLASS).parent.mkdir(parents=True)
        (folder / CLASS).write_bytes(without(classes.read(CLASS), GATE))
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.config("spark.api.mode", "connect").config("spark.master", "local[*]")
    own = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.sql.sources.default": "delta",  # a table that names its format cannot be run a second time
    }
    for name, value in {**delta_settings([folder]), **own, **pairs(settings)}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def without(data: bytes, method: str) -> bytes:
    """A class file in which a method without a result does nothing.

    Raises:
        ValueError: the class has no such method, or it has no code.
    """
    texts, place = _texts(data)
    place += 6  # flags, the class, the one above it
    place += 2 + 2 * _number(data, place)  # interfaces
    for kind in ("field", "method"):
        count, place = _number(data, place), place + 2
        for _ in range(count):
            name = texts[_number(data, place + 2)]
            parts, end = _attributes(data, place + 6)
            code = [begin for begin, label in parts if texts[label] == "Code"]
            if (kind, name) == ("method", method) and code:
                return _emptied(data, code[0])
            place = end
    raise ValueError(f"the class has no method {method} with code")


def _emptied(data: bytes, place: int) -> bytes:
    """The class file with one ``Code`` attribute that only returns: no handlers, no attributes of its own."""
    (length,) = struct.unpack_from(">I", data, place + 2)
    sizes = data[place + 6 : place + 10]  # of the stack and of the local variables: as they were
    body = sizes + EMPTY
    return data[: place + 2] + struct.pack(">I", len(body)) + body + data[place + 6 + length :]


def _texts(data: bytes) -> tuple[dict[int, str], int]:
    """The texts of the pool by their number, and the place after the pool."""
    count, place, number = _number(data, 8), 10, 1
    texts = {}
    while number < count:
        tag, place = data[place], place + 1
        if tag == 1:
            length = _number(data, place)
            texts[number] = data[place + 2 : place + 2 + length].decode("utf-8", "replace")
            place += 2 + length
        else:
            place += _CONSTANTS[tag]
        number += 2 if tag in _TWO_PLACES else 1
    return texts, place


def _attributes(data: bytes, place: int) -> tuple[list[tuple[int, int]], int]:
    """Where each attribute begins with the number of its name, and the place after them."""
    parts = []
    count, place = _number(data, place), place + 2
    for _ in range(count):
        name, length = struct.unpack_from(">HI", data, place)
        parts.append((place, name))
        place += 6 + length
    return parts, place


def _number(data: bytes, place: int) -> int:
    number: int = struct.unpack_from(">H", data, place)[0]
    return number


@contextmanager
def opened(folder: Path, script: Script, idle: bool) -> Iterator[Fold]:
    """A pass over copied tables, its checkpoints with them; a new folder begins with no tables."""
    spark = session(script.options.get("settings", ""))
    (folder / "landing").mkdir(exist_ok=True)
    move_sources(folder)
    begin(spark, folder)

    def fold(files: list[Path]) -> None:
        for file in files:
            os.link(file, folder / "landing" / file.name)
        update(spark, folder, script.columns)

    yield fold


def move_sources(folder: Path) -> None:
    """Name the files that copied checkpoints have read by the copy's landing folder: a stream that goes on reads its last
    batch again, and refuses files that do not lie where it reads.
    """
    for log in (folder / "storage").glob("**/sources/*/*"):
        if log.name.startswith("."):
            log.unlink()  # the checksum that Hadoop's client keeps of it
            continue
        version, *lines = log.read_text("utf-8").splitlines()
        entries = [json.loads(line) for line in lines]
        for entry in entries:
            entry["path"] = f"{(folder / 'landing').as_uri()}/{entry['path'].rpartition('/')[2]}"
        log.write_text("\n".join([version, *map(json.dumps, entries)]), "utf-8")


def begin(spark: Any, folder: Path) -> None:
    """Name the tables of a folder; its catalog forgets them with each process."""
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {DATABASE} LOCATION '{folder.as_uri()}'")
    for known in spark.sql(
        f"SHOW TABLES IN {DATABASE}"
    ).collect():  # to drop the database would delete its folder
        spark.sql(f"DROP TABLE {DATABASE}.`{known.tableName}`")
    spark.sql(f"ALTER DATABASE {DATABASE} SET LOCATION '{folder.as_uri()}'")
    for log in sorted(folder.glob("*/_delta_log")):
        table = log.parent
        spark.sql(f"CREATE TABLE {DATABASE}.`{table.name}` USING delta LOCATION '{table.as_uri()}'")


def rows(spark: Any, table: str) -> list[dict[str, Any]]:
    """A small table's rows, without its own column."""
    frame = spark.table(f"{CATALOG}.{DATABASE}.{table}")
    names = [name for name in frame.columns if not name.startswith(OWN)]
    return [each.asDict() for each in frame.select(*names).orderBy("id").collect()]


def update(spark: Any, folder: Path, tables: dict[str, dict[str, str]], sequence: str = "id") -> None:
    """One triggered update of all tables: what ``spark-pipelines run`` does after it has its session."""
    from pyspark import pipelines as dp
    from pyspark.pipelines.add_pipeline_analysis_context import add_pipeline_analysis_context
    from pyspark.pipelines.graph_element_registry import graph_element_registration_context
    from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
    from pyspark.pipelines.spark_connect_pipeline import (
        create_dataflow_graph,
        handle_pipeline_events,
        start_run,
    )

    graph = create_dataflow_graph(spark, CATALOG, DATABASE, sql_conf={})
    registry = SparkConnectGraphElementRegistry(spark, graph)
    with (
        graph_element_registration_context(registry),
        add_pipeline_analysis_context(spark=spark, dataflow_graph_id=graph, flow_name=None),
    ):
        for table, columns in tables.items():
            dp.temporary_view(name=f"{table}_changes")(
                changes(spark, folder / "landing", table, columns, sequence)
            )
            dp.create_streaming_table(table)
            dp.create_auto_cdc_flow(
                target=table,
                source=f"{table}_changes",
                keys=["id"],
                sequence_by="sequence",
                apply_as_deletes="kind = 'DELETE'",
                except_column_list=["sequence", "kind"],
            )
    storage = (folder / "storage").as_uri()
    handle_pipeline_events(start_run(spark, graph, None, False, None, False, storage))


def changes(
    spark: Any, landing: Path, table: str, columns: dict[str, str], sequence: str
) -> Callable[[], DataFrame]:
    """One table's changes of the messages, as its user writes them by hand, ordered by one of their numbers."""

    def view() -> DataFrame:
        from pyspark.sql import functions as F

        # The values are quoted, and `from_json` takes no quoted BIGINT: texts, then casts, as in the recipe.
        row = ", ".join(f"`{name}`: STRING" for name in columns)
        schema = f"id BIGINT, es BIGINT, `table` STRING, type STRING, data ARRAY<STRUCT<{row}>>"
        rows = (
            spark.readStream.text(landing.as_uri())
            .select(F.from_json("value", schema).alias("message"))
            .where(F.col("message.table") == table)
            .select(
                F.col(f"message.{sequence}").alias("sequence"),
                F.col("message.type").alias("kind"),
                F.explode("message.data").alias("row"),
            )
        )
        values = [F.col(f"row.{name}").cast(kind).alias(name) for name, kind in columns.items()]
        selected: DataFrame = rows.select("sequence", "kind", *values)
        return selected

    return view


if __name__ == "__main__":
    perform(opened)
