"""One MERGE per mirror: apply outcomes under the mirror's own identifier, changing only rows that differ or may
differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from delta.tables import DeltaMergeBuilder, DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.gold.fold.arrow_values import typed_column
from ingest.gold.fold.outcomes import COPIES, GONE
from ingest.gold.fold.staged import has_name, sent_name
from ingest.gold.plan.passes import Fill
from ingest.ledgers.mirrors import Column as MirrorColumn
from ingest.ledgers.mirrors import Mirror
from ingest.spark.settings import USER_METADATA
from ingest.store.names import literal, quoted
from ingest.tables import exact
from ingest.tables.exact import FLOATING
from ingest.tables.lake import Lake

TXN_APP = "spark.databricks.delta.write.txnAppId"
TXN_VERSION = "spark.databricks.delta.write.txnVersion"
_CONTENT, _TAKEN, _STANDING = "%content", "%taken", "%standing"


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


def sent(mirror: Mirror) -> dict[str, Column | str]:
    """What outcomes send for each of a mirror's columns, which are quoted, as an expression over the source of a MERGE."""
    return {quoted(column.column): f"s.{quoted(sent_name(i))}" for i, column in enumerate(mirror.columns)}


def same_key(mirror: Mirror) -> str:
    """The condition that an outcome is that of a row's key."""
    cells, keys = sent(mirror), [quoted(key.column) for key in mirror.key_columns]
    return " AND ".join(f"t.{key} = {cells[key]}" for key in keys)


def merge_into(lake: Lake, mirror: Mirror, source: DataFrame, on: str) -> DeltaMergeBuilder:
    """A MERGE into a mirror's table ``t`` from ``s``."""
    table = DeltaTable.forPath(lake.spark, lake.opened_by_spark(mirror.path))
    return table.alias("t").merge(source.alias("s"), on)


def replace_states(lake: Lake, table: Mirror, source: DataFrame) -> None:
    """Replace the states of some keys in a table of old states."""
    builder = merge_into(lake, table, source, f"s.{quoted(GONE)} AND {same_key(table)}").whenMatchedDelete()
    builder.whenNotMatchedInsert(f"NOT s.{quoted(GONE)}", sent(table)).execute()


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
        source: the outcomes, with the names of `ingest.gold.fold.staged`.
        cleared: conditions in SQL of rows that are deleted unless they have an outcome; None: all of them.
        partial: some outcomes do not carry every column.
        fills: what new statements put into the rows.
    """
    filled = _filled(mirror, fills)
    kept = {column.column: f"t.{quoted(column.column)}" for column in mirror.columns} | filled
    rest = [
        (column, _new_value(i, kept[column.column], partial=partial))
        for i, column in enumerate(mirror.columns)
        if column.name not in mirror.keys
    ]
    builder = merge_into(lake, mirror, source, same_key(mirror))
    builder = builder.whenMatchedDelete(condition=f"s.{quoted(GONE)}")
    if rest:
        update: dict[str, Column | str] = {quoted(column.column): value for column, value in rest}
        builder = builder.whenMatchedUpdate(condition=_differ(rest), set=update)
    builder = builder.whenNotMatchedInsert(condition=f"NOT s.{quoted(GONE)}", values=sent(mirror))
    for condition in cleared:
        builder = builder.whenNotMatchedBySourceDelete(condition)
    if filled:
        differ = _differ(
            [(column, filled[column.column]) for column in mirror.columns if column.column in filled]
        )
        new: dict[str, Column | str] = {quoted(name): value for name, value in filled.items()}
        builder = builder.whenNotMatchedBySourceUpdate(condition=differ, set=new)
    builder.execute()


def each_copy(outcomes: DataFrame) -> DataFrame:
    """Each row of a table without a key as often as it exists, as an outcome of its own."""
    copies = F.explode(F.array_repeat(F.lit(False), F.col(quoted(COPIES)).cast("int")))
    return outcomes.select("*", copies.alias(GONE))


def rows_of(mirror: Mirror, outcomes: DataFrame) -> DataFrame:
    """The same, with the table's columns."""
    names = [F.col(quoted(sent_name(i))).alias(column.column) for i, column in enumerate(mirror.columns)]
    return each_copy(outcomes).select(*names)


def merge_copies(lake: Lake, mirror: Mirror, outcomes: DataFrame, guard: Guard) -> None:
    """Set the number of each of some rows without a key; those that exist as often as they should are not touched."""
    names = [quoted(sent_name(i)) for i in range(len(mirror.columns))]
    content = exact.content(
        (F.col(name), column.delta) for name, column in zip(names, mirror.columns, strict=True)
    )
    existing = (
        lake.read(mirror.path)
        .groupBy(
            exact.content((F.col(quoted(column.column)), column.delta) for column in mirror.columns).alias(
                "%s"
            )
        )
        .agg(F.count("*").alias(_STANDING))
    )
    joined = outcomes.withColumn(_CONTENT, content).join(existing, F.col(_CONTENT) == F.col("%s"), "left")
    n, m = F.col(quoted(COPIES)).cast("int"), F.coalesce(_STANDING, F.lit(0))
    # Deletes are sent only if there is a row: for unmatched ones Delta 4.4 fails with "Unexpected row".
    taken = F.array_repeat(F.lit(True), F.when(m > 0, 1).otherwise(0))
    copies = F.concat(taken, F.array_repeat(F.lit(False), n))
    source = joined.where(n != m).select(*names, F.explode(copies).alias(_TAKEN))
    new = sent(mirror)
    equal = " AND ".join(
        f"{compared(f't.{name}', column)} <=> {compared(str(value), column)}"
        for (name, value), column in zip(new.items(), mirror.columns, strict=True)
    )
    guard.set_on(lake.spark)
    builder = merge_into(lake, mirror, source, f"s.{quoted(_TAKEN)} AND {equal}").whenMatchedDelete()
    builder.whenNotMatchedInsert(f"NOT s.{quoted(_TAKEN)}", new).execute()


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
    return f"IF(coalesce(s.{quoted(has_name(index))}, true), {sent}, {kept})" if partial else sent
