"""One MERGE per mirror: apply outcomes under the mirror's own identifier, changing only rows that differ or may
differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.gold.arrow_values import typed_column
from ingest.gold.passes import Fill
from ingest.gold.staged import GONE, has_name, sent_name
from ingest.lake.exact import FLOATING
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Column as MirrorColumn
from ingest.lake.mirrors import Mirror
from ingest.lake.names import literal, quoted
from ingest.spark.settings import USER_METADATA

TXN_APP = "spark.databricks.delta.write.txnAppId"
TXN_VERSION = "spark.databricks.delta.write.txnVersion"


@dataclass(frozen=True, slots=True)
class Guard:
    """The identifier under which a mirror's batch is committed."""

    writer: str
    batch: int
    metadata: str

    def set_on(self, session: SparkSession) -> None:
        """MERGE takes the identifier from session settings, so each mirror has a session of its own."""
        session.conf.set(TXN_APP, self.writer)
        session.conf.set(TXN_VERSION, str(self.batch))
        session.conf.set(USER_METADATA, self.metadata)

    def write(self, rows: DataFrame, path: str, mode: str, **options: str) -> None:
        """Append or overwrite rows under the identifier, which a plain write takes from its options."""
        writer = rows.write.format("delta").mode(mode).options(**options)
        (
            writer.option("txnAppId", self.writer)
            .option("txnVersion", self.batch)
            .option("userMetadata", self.metadata)
            .save(path)
        )

    def replace(self, rows: DataFrame, path: str) -> None:
        """Replace a table's rows and columns."""
        self.write(rows, path, "overwrite", overwriteSchema="true")

    def take_off(self, session: SparkSession) -> None:
        """Remove the identifier: later writes of the session are not part of the batch, and Delta would skip them as
        done.
        """
        for name in (TXN_APP, TXN_VERSION):
            session.conf.unset(name)


def whole(outcomes: DataFrame, mirror: Mirror) -> DataFrame:
    """Outcomes of which each carries every column, next to others that do not."""
    flags = {has_name(number): F.lit(True) for number in range(len(mirror.columns))}
    return outcomes.withColumns(flags)


def merge(
    lake: Lake,
    mirror: Mirror,
    source: DataFrame,
    cleared: Sequence[str | None],
    *,
    partial: bool,
    fills: Sequence[Fill] = (),
) -> None:
    """MERGE outcomes into a mirror; the lake's session carries the guard. A row is rewritten only if a column differs.

    Args:
        lake: the lake.
        mirror: with its columns as decided.
        source: the outcomes, with the names of `ingest.gold.staged`.
        cleared: conditions in SQL of rows that are deleted unless they have an outcome; None: all of them.
        partial: some outcomes do not carry every column.
        fills: what new statements put into the rows.
    """
    sent = {column.column: f"s.{quoted(sent_name(i))}" for i, column in enumerate(mirror.columns)}
    on = " AND ".join(
        f"t.{quoted(key_column.column)} = {sent[key_column.column]}" for key_column in mirror.key_columns
    )
    kept = {column.column: f"t.{quoted(column.column)}" for column in mirror.columns} | _filled(mirror, fills)
    rest = [
        (column, _new_value(i, kept[column.column], partial=partial))
        for i, column in enumerate(mirror.columns)
        if column.name not in mirror.keys
    ]
    builder = (
        DeltaTable.forPath(lake.spark, lake.opened_by_spark(mirror.path))
        .alias("t")
        .merge(source.alias("s"), on)
    )
    builder = builder.whenMatchedDelete(condition=f"s.{quoted(GONE)}")
    if rest:
        update: dict[str, Column | str] = {quoted(column.column): value for column, value in rest}
        builder = builder.whenMatchedUpdate(condition=_differ(rest), set=update)
    values: dict[str, Column | str] = {quoted(name): value for name, value in sent.items()}
    builder = builder.whenNotMatchedInsert(condition=f"NOT s.{quoted(GONE)}", values=values)
    for condition in cleared:
        builder = builder.whenNotMatchedBySourceDelete(condition)
    if fills:
        filled = [
            (column, kept[column.column])
            for column in mirror.columns
            if column.column in _filled(mirror, fills)
        ]
        new: dict[str, Column | str] = {quoted(column.column): value for column, value in filled}
        builder = builder.whenNotMatchedBySourceUpdate(condition=_differ(filled), set=new)
    builder.execute()


def _differ(values: Sequence[tuple[MirrorColumn, str]]) -> str:
    """A condition that a row meets in which some columns would get other values."""
    return " OR ".join(
        f"NOT ({compared(f't.{quoted(column.column)}', column)} <=> {compared(value, column)})"
        for column, value in values
    )


def _filled(mirror: Mirror, fills: Sequence[Fill]) -> dict[str, str]:
    """What new statements put into columns, as expressions over a mirror's row."""
    columns = {column.column: column for column in mirror.columns}
    values = {}
    for fill in fills:
        value = f"t.{quoted(fill.of)}" if fill.of else "NULL"
        if fill.text is not None:
            value = _constant(fill.text, columns[fill.column])
        values[fill.column] = f"CAST({value} AS {columns[fill.column].delta})"
    return values


def _constant(text: str, column: MirrorColumn) -> str:
    """A text's value in a column's type, by the fold's own reading of it, for Spark to read exactly."""
    cells = typed_column(pa.array([text], pa.string()), column.type).cells
    if pa.types.is_binary(cells.type):
        return f"X'{cells[0].as_py().hex()}'"
    if pa.types.is_floating(cells.type):
        return literal(repr(cells[0].as_py()))
    return literal(cells.cast(pa.string())[0].as_py())


def compared(value: str, column: MirrorColumn) -> str:
    """A value to compare: SQL treats 0.0 and -0.0 as the same number."""
    return f"CAST({value} AS STRING)" if column.delta in FLOATING else value


def _new_value(index: int, kept: str, *, partial: bool) -> str:
    """The sent value, or what the mirror's row has then if a partial outcome does not carry the column."""
    sent = f"s.{quoted(sent_name(index))}"
    return f"IF(s.{quoted(has_name(index))}, {sent}, {kept})" if partial else sent
