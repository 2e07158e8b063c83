"""A mirror's Delta table: create it, add columns, change types, and drop columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ingest import types
from ingest.config import Pipeline, TableRule
from ingest.gold.fold.outcomes import GONE
from ingest.gold.fold.staged import sent_name
from ingest.ledgers import histories
from ingest.ledgers.mirrors import Column as MirrorColumn
from ingest.ledgers.mirrors import Mirror
from ingest.store.names import folded, literal, quoted
from ingest.tables import delta
from ingest.tables.delta import Snapshot
from ingest.tables.lake import Lake
from ingest.tables.tables import Tables

REWRITTEN = "rewritten_bytes"
METRICS = {
    "numTargetRowsInserted": "inserted",
    "numTargetRowsUpdated": "updated",
    "numTargetRowsDeleted": "deleted",
    "numOutputRows": "written",
    "numTargetBytesAdded": REWRITTEN,
}
"""A commit's metrics: the names that MERGE uses in the log, and those of a mirror's counts."""


def is_plain(pipeline: Pipeline, rule: TableRule) -> bool:
    """True for a table without deletion vectors, for readers that do not support them."""
    return rule.plain_tables or pipeline.plain_tables


def properties(pipeline: Pipeline, rule: TableRule) -> dict[str, str]:
    """A mirror's Delta properties; history is kept for the retention period."""
    return {
        delta.VECTORS: str(not is_plain(pipeline, rule)).lower(),
        delta.CHANGE_FEED: str(rule.change_feed).lower(),
        "delta.deletedFileRetentionDuration": f"interval {pipeline.horizon_days} days",
        "delta.logRetentionDuration": f"interval {max(30, pipeline.horizon_days)} days",
    }


def create(lake: Lake, mirror: Mirror, rule: TableRule) -> None:
    """Create the mirror's table without rows; keys come first, because Delta keeps statistics of the first columns."""
    columns = ", ".join(map(_defined, mirror.columns))
    lake.spark.sql(
        f"CREATE TABLE IF NOT EXISTS {lake.named(mirror.path)} ({columns}) {_head(lake, mirror, rule)}"
    )


def load(lake: Lake, mirror: Mirror, source: DataFrame, rule: TableRule) -> None:
    """Create the mirror's table with typed outcomes as its first rows, in one commit; the lake's session carries the guard.

    There is no table to replace, but a plain CREATE fails on files that a failed or killed write has left there.
    """
    columns = [
        F.col(quoted(sent_name(i))).alias(column.column, metadata=_metadata(column))
        for i, column in enumerate(mirror.columns)
    ]
    source.where(~F.col(GONE)).select(*columns).createOrReplaceTempView("first_rows")
    lake.spark.sql(
        f"CREATE OR REPLACE TABLE {lake.named(mirror.path)} {_head(lake, mirror, rule)} AS SELECT * FROM first_rows"
    )


def comment_of(column: MirrorColumn) -> str:
    """A column's comment in the table: the source's comment, its name there if different, its type; or its rule."""
    if column.name in histories.MEANINGS:
        return histories.MEANINGS[column.name]
    if column.made is not None:
        return column.origin
    name = f"source column {column.name}" if column.column != column.name else ""
    logical = f"source type {column.type}" if column.type != "unknown" else ""
    return "; ".join(part for part in (column.comment, name, logical) if part)


def _metadata(column: MirrorColumn) -> dict[str, str]:
    return {"comment": comment} if (comment := comment_of(column)) else {}


def _defined(column: MirrorColumn) -> str:
    comment = comment_of(column)
    return f"{quoted(column.column)} {column.delta}" + (f" COMMENT {literal(comment)}" if comment else "")


def _head(lake: Tables, mirror: Mirror, rule: TableRule) -> str:
    given = properties(lake.pipeline, rule).items()
    listed = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in given)
    return f"USING delta COMMENT {literal(description(mirror))} TBLPROPERTIES ({listed})"


def description(mirror: Mirror) -> str:
    """What a mirror's table says of itself."""
    if histories.is_history(mirror):
        return f"history of {mirror.name.removesuffix(histories.SUFFIX)}"
    return f"mirror of {mirror.name}"


def add_columns(lake: Lake, mirror: Mirror, present: tuple[str, ...]) -> None:
    """Add the columns that the table lacks; idempotent."""
    missing = [column for column in mirror.columns if column.column not in present]
    if missing:
        allow_zoneless(lake, mirror, [column.delta for column in missing])
        columns = ", ".join(map(_defined, missing))
        lake.spark.sql(f"ALTER TABLE {lake.named(mirror.path)} ADD COLUMNS ({columns})")


def turn_feed_on(lake: Lake, mirror: Mirror, before: Snapshot) -> None:
    """Turn Delta's change data feed on, from the next commit on; idempotent."""
    is_on = delta.is_on(before.configuration, delta.CHANGE_FEED)
    if not is_on and not histories.is_history(mirror):
        lake.spark.sql(
            f"ALTER TABLE {lake.named(mirror.path)} SET TBLPROPERTIES ('{delta.CHANGE_FEED}' = 'true')"
        )


def allow_zoneless(lake: Lake, mirror: Mirror, new: Sequence[str]) -> None:
    """Enable TIMESTAMP_NTZ: a table created without it refuses a column of that type until the feature is on."""
    if "TIMESTAMP_NTZ" in new:
        lake.spark.sql(
            f"ALTER TABLE {lake.named(mirror.path)} "
            "SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')"
        )


def reshape(lake: Lake, mirror: Mirror, present: tuple[str, ...]) -> None:
    """Rewrite the mirror if a type has changed; idempotent.

    Columns that no longer belong to it are dropped after the MERGE (`drop_columns`). Values of a column whose name was
    reused with another type need not be kept: all its rows have an outcome then.
    """
    frame = lake.read(mirror.path)
    have = column_types(frame.schema)
    narrow = [column for column in mirror.columns if have.get(column.column, column.delta) != column.delta]
    if not narrow:
        _comment(lake, mirror, frame.schema)
        return
    allow_zoneless(lake, mirror, [column.delta for column in narrow])
    columns = [
        _widened(column, have[column.column]).alias(column.column, metadata=_metadata(column))
        for column in mirror.columns
    ]
    staying = [F.col(quoted(name)) for name in left(mirror, present)]
    _rewrite(frame.select(*columns, *staying), lake.path(mirror.path))


def _widened(column: MirrorColumn, old: str) -> Column:
    """A column's values in its type, through their texts where only these are exact: FLOAT 0.1 is DOUBLE 0.1; NULL if its
    name was reused.
    """
    value = F.col(quoted(column.column))
    if old == column.delta:
        return value
    if not types.widens(old, column.delta):
        return F.lit(None).cast(column.delta)
    return (value.cast("string") if old == "FLOAT" else value).cast(column.delta)


def is_replaced(mirror: Mirror, present: Mapping[str, object]) -> bool:
    """True if no ALTER can turn the table's columns into the mirror's, so that all rows are folded again.

    A column that becomes STRING takes the source's own texts, which only silver has. Delta cannot distinguish an old
    and a new name that differ only in case.

    Args:
        mirror: with its columns as decided.
        present: the table's columns with their types, in the form of its log.
    """
    present_names = {folded(name) for name in present}
    return any(
        folded(column.column) in present_names
        if column.column not in present
        else column.delta == "STRING" and present[column.column] != "string"
        for column in mirror.columns
    )


def column_types(schema: StructType) -> dict[str, str]:
    """A table's columns with their Delta types."""
    return {field.name: field.dataType.simpleString().upper() for field in schema.fields}


def drop_columns(lake: Lake, mirror: Mirror, present: tuple[str, ...]) -> bool:
    """Rewrite the table without the columns that no longer belong to the mirror; False if there are none."""
    if not left(mirror, present):
        return False
    frame = lake.read(mirror.path)
    _rewrite(frame.select(*[quoted(column.column) for column in mirror.columns]), lake.path(mirror.path))
    return True


def left(mirror: Mirror, present: Iterable[str]) -> list[str]:
    """Columns of the table that no longer belong to the mirror."""
    wanted = {column.column for column in mirror.columns}
    return [name for name in present if name not in wanted]


def _rewrite(frame: DataFrame, path: str) -> None:
    frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(path)


def _comment(lake: Lake, mirror: Mirror, schema: StructType) -> None:
    """Update the comments of existing columns to what the source has said since."""
    comments = {field.name: field.metadata.get("comment") for field in schema.fields}
    for column in mirror.columns:
        if column.comment and comments.get(column.column) != comment_of(column):
            comment = literal(comment_of(column))
            lake.spark.sql(
                f"ALTER TABLE {lake.named(mirror.path)} ALTER COLUMN {quoted(column.column)} COMMENT {comment}"
            )
