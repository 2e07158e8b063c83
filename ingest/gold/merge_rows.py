"""Put what becomes of a table without a key into it by Delta: no column matches its rows, so that a MERGE compares all."""

from __future__ import annotations

from itertools import chain

from delta.tables import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.gold.merge import Guard, compared
from ingest.gold.staged import COPIES, GONE, sent_name
from ingest.lake import exact
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Mirror, Shard
from ingest.lake.names import literal, quoted
from ingest.lake.tables import Tables

CONTENT, TAKEN, STANDING = "%content", "%taken", "%standing"


def replaced(lake: Tables, mirror: Mirror, counts: DataFrame, guard: Guard) -> None:
    """Replace the table's rows and columns by these."""
    guard.replace(_each(mirror, counts), lake.path(mirror.path))


def cleared(lake: Tables, mirror: Mirror, counts: DataFrame, guard: Guard, shards: list[Shard]) -> None:
    """Replace the rows of some of the tables that share a mirror, or of all."""
    rows, path = _each(mirror, counts), lake.path(mirror.path)
    if () in shards:
        guard.write(rows, path, "overwrite")
        return
    names, texts = zip(*chain.from_iterable(shards), strict=True)
    column = mirror.by_name[names[0]].column
    values = ", ".join(map(literal, texts))
    guard.write(rows, path, "overwrite", replaceWhere=f"{quoted(column)} IN ({values})")


def appended(lake: Tables, mirror: Mirror, counts: DataFrame, guard: Guard) -> None:
    """Add rows."""
    guard.write(_each(mirror, counts), lake.path(mirror.path), "append")


def each(counts: DataFrame) -> DataFrame:
    """Each row as often as it exists, as an outcome of its own."""
    copies = F.explode(F.array_repeat(F.lit(False), F.col(quoted(COPIES)).cast("int")))
    return counts.select("*", copies.alias(GONE))


def _each(mirror: Mirror, counts: DataFrame) -> DataFrame:
    """Each row as often as it exists, with the table's columns."""
    names = [F.col(quoted(sent_name(i))).alias(column.column) for i, column in enumerate(mirror.columns)]
    return each(counts).select(*names)


def merged(lake: Lake, mirror: Mirror, counts: DataFrame, guard: Guard) -> None:
    """Set the number of each of these rows; rows that exist as often as they should are not touched."""
    sent = [quoted(sent_name(i)) for i in range(len(mirror.columns))]
    content = exact.content(
        (F.col(name), column.delta) for name, column in zip(sent, mirror.columns, strict=True)
    )
    existing = (
        lake.read(mirror.path)
        .groupBy(
            exact.content((F.col(quoted(column.column)), column.delta) for column in mirror.columns).alias(
                "%s"
            )
        )
        .agg(F.count("*").alias(STANDING))
    )
    joined = counts.withColumn(CONTENT, content).join(existing, F.col(CONTENT) == F.col("%s"), "left")
    n, m = F.col(quoted(COPIES)).cast("int"), F.coalesce(STANDING, F.lit(0))
    # Deletes are sent only if there is a row: for unmatched ones Delta 4.4 fails with "Unexpected row".
    taken = F.array_repeat(F.lit(True), F.when(m > 0, 1).otherwise(0))
    copies = F.concat(taken, F.array_repeat(F.lit(False), n))
    source = joined.where(n != m).select(*sent, F.explode(copies).alias(TAKEN))
    pairs = [(quoted(column.column), f"s.{name}") for name, column in zip(sent, mirror.columns, strict=True)]
    equal = " AND ".join(
        f"{compared(f't.{name}', column)} <=> {compared(value, column)}"
        for (name, value), column in zip(pairs, mirror.columns, strict=True)
    )
    guard.set_on(lake.spark)
    (
        DeltaTable.forPath(lake.spark, lake.opened_by_spark(mirror.path))
        .alias("t")
        .merge(source.alias("s"), f"s.{quoted(TAKEN)} AND {equal}")
        .whenMatchedDelete()
        .whenNotMatchedInsert(f"NOT s.{quoted(TAKEN)}", dict(pairs))
        .execute()
    )
