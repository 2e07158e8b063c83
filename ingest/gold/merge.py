"""One MERGE per mirror: apply outcomes under the mirror's own identifier, changing only rows that differ or may
differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest import types
from ingest.config.conditions import columns as columns_of
from ingest.fold import SchemaStep
from ingest.gold import mirror_table
from ingest.gold.cast import cast, converted
from ingest.gold.lane import ChangeKinds
from ingest.gold.spark_fold import MISFIT, UNFIT, key_name, value_name
from ingest.gold.staged import GONE, has_name, sent_name
from ingest.lake.exact import FLOATING
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Column as MirrorColumn
from ingest.lake.mirrors import Mirror
from ingest.lake.names import column_name, quoted
from ingest.spark.settings import USER_METADATA

TXN_APP = "spark.databricks.delta.write.txnAppId"
TXN_VERSION = "spark.databricks.delta.write.txnVersion"


@dataclass(frozen=True, slots=True)
class Standing:
    """What happens to a lane's rows that have no outcome."""

    clears: bool = False  # a truncate or a new incarnation: they are deleted
    steps: Sequence[SchemaStep] = ()  # new steps that fill columns
    condition: str | None = None  # in SQL, for the lane's rows only; None if the mirror has one lane


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


def typed(outcomes: DataFrame, mirror: Mirror, kinds: ChangeKinds, tolerant: bool) -> DataFrame:
    """Outcomes with each column in its Delta type, as `sent_name` names it.

    Key cells are typed already. A cell that does not fit fails the job, or is NULL if ``tolerant`` (its text was
    written to rejects before). Where the row may be left out, `ingest.gold.shaped` decides it by the column `UNFIT`.
    """
    keys = {name: key_name(i) for i, name in enumerate(mirror.keys)}
    columns: list[Column] = [F.col(GONE)]
    unfit = []
    for i, one in enumerate(mirror.columns):
        if one.name in keys:
            columns.append(F.col(keys[one.name]).alias(sent_name(i)))
            continue
        text = F.col(value_name(i))
        value = cast(text, one.type)
        if not tolerant and types.family(one.type) and types.delta(one.type) != "STRING":
            wrong = text.isNotNull() & value.isNull()
            if mirror.where and one.name not in columns_of(mirror.where):
                unfit.append(wrong)
            else:
                value = F.when(wrong, F.raise_error(F.lit(MISFIT))).otherwise(value)
        columns.append(value.alias(sent_name(i)))
        if kinds.partials:
            columns.append(F.col(has_name(i)))
    if unfit:
        columns.append(reduce(or_, unfit).alias(UNFIT))
    return outcomes.select(*columns)


def whole(outcomes: DataFrame, mirror: Mirror) -> DataFrame:
    """Outcomes of which each carries every column, next to others that do not."""
    flags = {has_name(number): F.lit(True) for number in range(len(mirror.columns))}
    return outcomes.withColumns(flags)


def merge(
    lake: Lake,
    mirror: Mirror,
    source: DataFrame,
    kinds: ChangeKinds,
    existing: Sequence[Standing] = (),
    *,
    news: bool = False,
) -> None:
    """MERGE typed outcomes into a mirror; the lake's session carries the guard.

    Rows without an outcome are deleted or filled in the same MERGE, lane by lane. A row is rewritten only if a column
    differs. If all outcomes are ``news`` the comparison is skipped: with deletion vectors the MERGE then reads only the
    mirror's key, while comparing reads every column three times.
    """
    sent = {one.column: f"s.{quoted(sent_name(i))}" for i, one in enumerate(mirror.columns)}
    on = " AND ".join(f"t.{quoted(one.column)} = {sent[one.column]}" for one in mirror.key_columns)
    rest = [
        (one, _new_value(i, one.column, kinds))
        for i, one in enumerate(mirror.columns)
        if one.name not in mirror.keys
    ]
    builder = DeltaTable.forPath(lake.spark, lake.path(mirror.path)).alias("t").merge(source.alias("s"), on)
    builder = builder.whenMatchedDelete(condition=f"s.{quoted(GONE)}")
    if rest:
        unseen = news and not kinds.partials
        update: dict[str, Column | str] = {quoted(one.column): value for one, value in rest}
        differs = " OR ".join(
            f"NOT ({compared(f't.{quoted(one.column)}', one)} <=> {compared(value, one)})"
            for one, value in rest
        )
        builder = builder.whenMatchedUpdate(condition=None if unseen else differs, set=update)
    values: dict[str, Column | str] = {quoted(name): value for name, value in sent.items()}
    builder = builder.whenNotMatchedInsert(condition=f"NOT s.{quoted(GONE)}", values=values)
    there = (
        mirror_table.column_types(lake.read(mirror.path).schema) if any(one.steps for one in existing) else {}
    )
    leaving = {name: there[name] for name in mirror_table.left(mirror, there)}
    for lane in existing:
        if lane.clears:
            builder = builder.whenNotMatchedBySourceDelete(lane.condition)
        elif fills := _fills(mirror, lane.steps, leaving):
            builder = builder.whenNotMatchedBySourceUpdate(lane.condition, fills)
    builder.execute()


def compared(value: str, one: MirrorColumn) -> str:
    """A value to compare: SQL treats 0.0 and -0.0 as the same number."""
    return f"CAST({value} AS STRING)" if one.delta in FLOATING else value


def _fills(
    mirror: Mirror, steps: Sequence[SchemaStep], leaving: Mapping[str, str]
) -> dict[str, Column | str]:
    """What new schema steps write into existing rows: defaults, values carried to a new name, NULL.

    A name that was added and renamed within the steps is not a column of the mirror, but its value is carried on; so is
    that of a column that is about to be dropped.
    """
    columns = {one.name: one for one in mirror.columns}
    values: dict[str, _Values] = {}
    for one in mirror.columns:
        if (was := one.column + mirror_table.WAS) in leaving:  # the name's old column, which had another type
            values[one.name] = ((F.col(f"t.{quoted(was)}"), leaving[was]),)
    for name in {step.column for step in steps} - columns.keys():
        if (column := column_name(name, set())) in leaving:
            values[name] = ((F.col(f"t.{quoted(column)}"), leaving[column]),)
    for step in steps:
        name = step.to or step.column
        # if a type changes values, no row is only filled
        if step.action in ("new_incarnation", "retype_column"):
            continue
        if step.action == "drop_column":  # the name is reused for another column
            values[name] = ((F.lit(None).cast("string"), ""),)
            continue
        added = step.action == "add_column"
        filling = ((F.lit(step.default), ""),) if added else _existing(values, columns, step.column)
        if filling:
            values[name] = (*_existing(values, columns, name), *filling) if name in columns else filling
    return {
        quoted(columns[name].column): F.coalesce(*(_typed(value, columns[name]) for value in found))
        for name, found in values.items()
        if name in columns
    }


_Value = tuple[Column, str]  # with its Delta type; without one it is canonical text
_Values = tuple[_Value, ...]  # of an existing row under one name: the first that is not NULL


def _typed(value: _Value, one: MirrorColumn) -> Column:
    """The value as a column's; until all steps are done, it may go to columns of other types."""
    found, delta = value
    return converted(found, delta, one.type) if delta else cast(found, one.type)


def _existing(values: Mapping[str, _Values], columns: Mapping[str, MirrorColumn], name: str) -> _Values:
    one = columns.get(name)
    return values.get(name, ((F.col(f"t.{quoted(one.column)}"), one.delta),) if one else ())


def _new_value(index: int, column: str, kinds: ChangeKinds) -> str:
    """The sent value, or the mirror's own if a partial outcome does not carry the column."""
    sent = f"s.{quoted(sent_name(index))}"
    return f"IF(s.{quoted(has_name(index))}, {sent}, t.{quoted(column)})" if kinds.partials else sent
