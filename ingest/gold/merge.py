"""One MERGE a mirror: outcomes in, under the mirror's own identifier, changing only what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ingest import types
from ingest.config import Pipeline, TableRule
from ingest.fold import SchemaStep
from ingest.gold.cast import cast
from ingest.gold.fold import GONE, MISFIT, Shape, has_name, key_name, value_name
from ingest.lake.lake import Lake, properties_sql
from ingest.lake.mirrors import Column as MirrorColumn
from ingest.lake.mirrors import Mirror
from ingest.lake.names import column_name, literal, quoted

TXN_APP = "spark.databricks.delta.write.txnAppId"
TXN_VERSION = "spark.databricks.delta.write.txnVersion"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


@dataclass(frozen=True, slots=True)
class Standing:
    """What becomes of a lane's rows that no outcome names."""

    clears: bool = False  # a truncate or a new incarnation: they go
    steps: Sequence[SchemaStep] = ()  # new ones, which fill
    shard: tuple[str, str] | None = None  # the Delta column and value that tell the lane's rows from others'

    @property
    def condition(self) -> str | None:
        """SQL that only the lane's rows meet; None if the mirror has one lane."""
        return None if self.shard is None else f"t.{quoted(self.shard[0])} = {literal(self.shard[1])}"


@dataclass(frozen=True, slots=True)
class Guard:
    """The identifier under which a mirror's batch is committed."""

    writer: str
    batch: int
    metadata: str

    def set_on(self, session: SparkSession) -> None:
        """MERGE takes the identifier from session settings: so each mirror has a session of its own."""
        session.conf.set(TXN_APP, self.writer)
        session.conf.set(TXN_VERSION, str(self.batch))
        session.conf.set(USER_METADATA, self.metadata)

    def take_off(self, session: SparkSession) -> None:
        """What the session writes from here on is no part of the batch: Delta would take it for done already."""
        for name in (TXN_APP, TXN_VERSION):
            session.conf.unset(name)


def typed(outcomes: DataFrame, mirror: Mirror, shape: Shape, tolerant: bool) -> DataFrame:
    """Outcomes with each column in its Delta type, as `sent_name` names it.

    Key cells are typed already.  A cell that does not fit fails the job, or is NULL if ``tolerant``
    (then its text has been kept as a reject before).
    """
    keys = {name: key_name(i) for i, name in enumerate(mirror.keys)}
    columns: list[Column] = [F.col(GONE)]
    for i, one in enumerate(mirror.columns):
        if one.name in keys:
            columns.append(F.col(keys[one.name]).alias(sent_name(i)))
            continue
        text = F.col(value_name(i))
        value = cast(text, one.type)
        if not tolerant and types.family(one.type) and types.delta(one.type) != "STRING":
            value = F.when(text.isNotNull() & value.isNull(), F.raise_error(F.lit(MISFIT))).otherwise(value)
        columns.append(value.alias(sent_name(i)))
        if shape.partials:
            columns.append(F.col(has_name(i)))
    return outcomes.select(*columns)


def sent_name(index: int) -> str:
    """The name of a column in the source of a MERGE; under its own, some names would clash with Delta's."""
    return f"%{index}"


def merge(
    session: SparkSession,
    path: str,
    mirror: Mirror,
    source: DataFrame,
    shape: Shape,
    standing: Sequence[Standing] = (),
) -> None:
    """MERGE typed outcomes into a mirror; the session carries the guard.

    Rows that no outcome names go or are filled in the same MERGE, lane by lane.
    """
    sent = {one.column: f"s.{quoted(sent_name(i))}" for i, one in enumerate(mirror.columns)}
    on = " AND ".join(f"t.{quoted(one.column)} = {sent[one.column]}" for one in mirror.key_columns)
    rest = [
        (quoted(one.column), _new_value(i, one.column, shape))
        for i, one in enumerate(mirror.columns)
        if one.name not in mirror.keys
    ]
    differs = " OR ".join(f"NOT (t.{name} <=> {value})" for name, value in rest)
    builder = DeltaTable.forPath(session, path).alias("t").merge(source.alias("s"), on)
    builder = builder.whenMatchedDelete(condition=f"s.{quoted(GONE)}")
    if rest:
        builder = builder.whenMatchedUpdate(condition=differs, set=dict(rest))
    values: dict[str, Column | str] = {quoted(name): value for name, value in sent.items()}
    builder = builder.whenNotMatchedInsert(condition=f"NOT s.{quoted(GONE)}", values=values)
    leaving = _leaving(session, path, mirror) if any(lane.steps for lane in standing) else {}
    for lane in standing:
        if lane.clears:
            builder = builder.whenNotMatchedBySourceDelete(lane.condition)
        elif fills := _fills(mirror, lane.steps, leaving):
            builder = builder.whenNotMatchedBySourceUpdate(lane.condition, fills)
    builder.execute()


def _leaving(session: SparkSession, path: str, mirror: Mirror) -> dict[str, str]:
    """The table's columns that are none of the mirror's any more, by Delta's names, with their Delta types."""
    wanted = {one.column for one in mirror.columns}
    fields = session.read.format("delta").load(path).schema.fields
    return {one.name: one.dataType.simpleString().upper() for one in fields if one.name not in wanted}


def _fills(
    mirror: Mirror, steps: Sequence[SchemaStep], leaving: Mapping[str, str]
) -> dict[str, Column | str]:
    """What new schema steps give the rows that stand: defaults, values carried to a new name, NULL.

    A name that came and was renamed within the steps is no column of the mirror, but its value goes on; so does
    that of a column which is about to leave the table.
    """
    columns = {one.name: one for one in mirror.columns}
    values: dict[str, _Standing] = {}
    for name in {step.column for step in steps} - columns.keys():
        if (column := column_name(name, set())) in leaving:
            values[name] = _Standing(F.col(f"t.{quoted(column)}"), leaving[column])
    for step in steps:
        name = step.to or step.column
        if step.action == "new_incarnation":
            continue
        if step.action == "drop_column":  # the name comes again, for another column
            values[name] = _Standing(F.lit(None).cast("string"))
            continue
        added = step.action == "add_column"
        filling = _Standing(F.lit(step.default)) if added else _standing(values, columns, step.column)
        if filling is None:
            continue
        if name in columns:
            one, old = columns[name], _standing(values, columns, name)
            assert old is not None
            filling = _Standing(F.coalesce(old.typed(one), filling.typed(one)), one.delta)
        values[name] = filling
    return {
        quoted(columns[name].column): value.typed(columns[name])
        for name, value in values.items()
        if name in columns
    }


@dataclass(frozen=True, slots=True)
class _Standing:
    """A standing row's value under one name, with its Delta type; without one it is canonical text."""

    value: Column
    delta: str = ""

    def typed(self, one: MirrorColumn) -> Column:
        """The value as a column's."""
        return _as(self.value, self.delta, one.delta) if self.delta else cast(self.value, one.type)


def _standing(values: dict[str, _Standing], columns: dict[str, MirrorColumn], name: str) -> _Standing | None:
    one = columns.get(name)
    mine = _Standing(F.col(f"t.{quoted(one.column)}"), one.delta) if one else None
    return values.get(name, mine)


def _new_value(index: int, column: str, shape: Shape) -> str:
    """The sent value, or the mirror's own where a partial outcome says nothing of the column."""
    sent = f"s.{quoted(sent_name(index))}"
    return f"IF(s.{quoted(has_name(index))}, {sent}, t.{quoted(column)})" if shape.partials else sent


@dataclass(frozen=True, slots=True)
class Made:
    """How a mirror's table is made."""

    plain: bool = False  # without deletion vectors, for readers that do not know them
    change_feed: bool = False

    @classmethod
    def of(cls, pipeline: Pipeline, rule: TableRule) -> Made:
        """As the pipeline's file says."""
        return cls(rule.plain_tables or pipeline.plain_tables, rule.change_feed)

    def properties(self, horizon_days: int) -> dict[str, str]:
        """Its Delta properties; history is kept for the promised days."""
        return {
            "delta.enableDeletionVectors": "false" if self.plain else "true",
            "delta.enableChangeDataFeed": "true" if self.change_feed else "false",
            "delta.deletedFileRetentionDuration": f"interval {horizon_days} days",
            "delta.logRetentionDuration": f"interval {max(30, horizon_days)} days",
        }


def create(lake: Lake, session: SparkSession, mirror: Mirror, made: Made) -> None:
    """Make the mirror's table without rows; keys stand first, for Delta keeps statistics of the first columns."""
    columns = ", ".join(map(_defined, mirror.columns))
    session.sql(
        f"CREATE TABLE IF NOT EXISTS {lake.named(mirror.path)} ({columns}) {_head(lake, mirror, made)}"
    )


def load(lake: Lake, session: SparkSession, mirror: Mirror, source: DataFrame, made: Made) -> None:
    """Make the mirror's table with typed outcomes as its first rows, in one commit; the session carries the guard.

    There is no table to replace, but a write that failed or was killed leaves files there, on which CREATE fails.
    """
    columns = [
        F.col(quoted(sent_name(i))).alias(one.column, metadata=_metadata(one))
        for i, one in enumerate(mirror.columns)
    ]
    source.where(~F.col(GONE)).select(*columns).createOrReplaceTempView("first_rows")
    session.sql(
        f"CREATE OR REPLACE TABLE {lake.named(mirror.path)} {_head(lake, mirror, made)} AS SELECT * FROM first_rows"
    )


def comment_of(column: MirrorColumn) -> str:
    """What the table says of a column: the source's comment, its name there if it is another, its type."""
    name = f"source column {column.name}" if column.column != column.name else ""
    logical = f"source type {column.type}" if column.type != "unknown" else ""
    return "; ".join(part for part in (column.comment, name, logical) if part)


def _metadata(column: MirrorColumn) -> dict[str, str]:
    return {"comment": comment} if (comment := comment_of(column)) else {}


def _defined(column: MirrorColumn) -> str:
    comment = comment_of(column)
    return f"{quoted(column.column)} {column.delta}" + (f" COMMENT {literal(comment)}" if comment else "")


def _head(lake: Lake, mirror: Mirror, made: Made) -> str:
    properties = properties_sql(made.properties(lake.pipeline.horizon_days))
    return f"USING delta COMMENT {literal('mirror of ' + mirror.name)} TBLPROPERTIES ({properties})"


def add_columns(lake: Lake, session: SparkSession, mirror: Mirror, present: tuple[str, ...]) -> None:
    """Add what the mirror's schema has and its table lacks; run again, it does nothing."""
    have = {name.lower() for name in present}
    missing = [one for one in mirror.columns if one.column.lower() not in have]
    if missing:
        _allow_zoneless(lake, session, mirror, [one.delta for one in missing])
        columns = ", ".join(map(_defined, missing))
        session.sql(f"ALTER TABLE {lake.named(mirror.path)} ADD COLUMNS ({columns})")


def _allow_zoneless(lake: Lake, session: SparkSession, mirror: Mirror, new: Sequence[str]) -> None:
    """A table made without TIMESTAMP_NTZ refuses a column of that type until its feature is switched on."""
    if "TIMESTAMP_NTZ" in new:
        session.sql(
            f"ALTER TABLE {lake.named(mirror.path)} "
            "SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')"
        )


def reshape(
    lake: Lake,
    session: SparkSession,
    mirror: Mirror,
    present: tuple[str, ...],
    steps: Sequence[SchemaStep] = (),
) -> None:
    """Rewrite the mirror where a type has changed or, without a key, a column goes; run again, it does nothing.

    With a key, columns go behind the MERGE, which carries their values on (`drop_columns`); without one, a column
    that goes leaves its values to the one that it was renamed to, here.
    """
    path = lake.path(mirror.path)
    frame = session.read.format("delta").load(path)
    have = {field.name: field.dataType.simpleString().upper() for field in frame.schema.fields}
    left = _left(mirror, present)
    going = [] if mirror.keys else left
    if not going and all(have.get(one.column, one.delta) == one.delta for one in mirror.columns):
        _comment(lake, session, mirror, frame.schema)
        return
    _allow_zoneless(
        lake, session, mirror, [one.delta for one in mirror.columns if have[one.column] != one.delta]
    )
    carried = _carried(mirror, going, steps)
    columns: list[Column] = []
    for one in mirror.columns:
        value = _as(F.col(quoted(one.column)), have[one.column], one.delta)
        for origin in carried.get(one.name, ()):
            value = F.coalesce(value, _as(F.col(quoted(origin)), have[origin], one.delta))
        columns.append(value.alias(one.column, metadata=_metadata(one)))
    staying = [F.col(quoted(name)) for name in left if name not in going]
    _rewrite(frame.select(*columns, *staying), path)


def drop_columns(lake: Lake, session: SparkSession, mirror: Mirror, present: tuple[str, ...]) -> bool:
    """Rewrite the table without the columns that are none of the mirror's any more; False if there are none."""
    if not _left(mirror, present):
        return False
    path = lake.path(mirror.path)
    frame = session.read.format("delta").load(path)
    _rewrite(frame.select(*[quoted(one.column) for one in mirror.columns]), path)
    return True


def _left(mirror: Mirror, present: Sequence[str]) -> list[str]:
    wanted = {one.column for one in mirror.columns}
    return [name for name in present if name not in wanted]


def _rewrite(frame: DataFrame, path: str) -> None:
    frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(path)


def _comment(lake: Lake, session: SparkSession, mirror: Mirror, schema: StructType) -> None:
    """Say of standing columns what the source has said of them since."""
    there = {field.name: field.metadata.get("comment") for field in schema.fields}
    for one in mirror.columns:
        if one.comment and there.get(one.column) != comment_of(one):
            comment = literal(comment_of(one))
            session.sql(
                f"ALTER TABLE {lake.named(mirror.path)} ALTER COLUMN {quoted(one.column)} COMMENT {comment}"
            )


def _carried(mirror: Mirror, going: list[str], steps: Sequence[SchemaStep]) -> dict[str, list[str]]:
    """For each column, the going ones (as Delta names them) whose values it takes over."""
    names = {column_name(step.column, set()): step.column for step in steps}
    origin = {names.get(column, column): [column] for column in going}
    for step in steps:
        if step.action == "rename_column" and step.column in origin:
            origin[step.to] = origin[step.column]
        elif step.action == "drop_column":
            origin.pop(step.column, None)
    wanted = {one.name for one in mirror.columns}
    return {name: columns for name, columns in origin.items() if name in wanted}


def _as(value: Column, old: str, new: str) -> Column:
    """A standing value in its column's new type; NULL if it does not fit.

    By way of its text, as a rebuild would take it: so FLOAT 0.1 is DOUBLE 0.1, and no pair of types is refused.
    """
    if old == new:
        return value
    if (old, new) == ("TIMESTAMP", "STRING"):
        text = F.date_format(value, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS")
        return F.concat(F.regexp_replace(text, r"\.?0*$", ""), F.lit("Z"))
    return value.cast("string").try_cast(new)
