"""What the tables hold of one row: its changes, its table's events, the raw bytes, the rejects, the mirror.

`ingest.gold.explain` makes the story of it.  Everything read here is bounded: one key's changes, the
messages that they came in, and a sample of the rejects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest import types
from ingest.change import Image, TableId
from ingest.errors import IngestError
from ingest.fold import Key, KeyCellError, SchemaStep, typed
from ingest.gold import ledger as ledgers
from ingest.gold.cast import cast
from ingest.gold.gather import with_shard
from ingest.gold.policy import Subject
from ingest.gold.refold import json_key, keyed_rows
from ingest.gold.rekeyed import rebased
from ingest.gold.work import LaneId, shard_of
from ingest.lake import exact, mirrors
from ingest.lake import lanes as sent
from ingest.lake import rejects as rejected
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Mirror
from ingest.lake.names import quoted
from ingest.lake.rejects import PLACE
from ingest.lake.schemas import BOOKS, CHANGES, DDL

ROW = (
    "order_key", "op", "partial", "before", "after", "batch", *PLACE, "row", "sequence", "event_time",
    "transaction", "note", "types",
)  # fmt: skip
SUSPECTS = 20
_ROUNDS = 50  # key changes from key to key; more are no row's life

Row = dict[str, Any]


def mirror_of(lake: Lake, name: str) -> Mirror:
    """The mirror of that name, in any case if only one fits.

    Raises:
        IngestError: there is none, or it has no key.
    """
    known = {one.name: one for one in mirrors.known(lake).values()}
    found = [one for one in known.values() if one.name.lower() == name.lower()]
    mirror = known.get(name) or (found[0] if len(found) == 1 else None)
    if mirror is None:
        listed = ", ".join(sorted(known)) or "none yet: run the pipeline first"
        raise IngestError(f"There is no mirror {name}; there are {listed}.")
    if not mirror.keys:
        raise IngestError(f"{mirror.name} has no key, so that no row of it can be told from another.")
    return mirror


def typed_key(mirror: Mirror, texts: Sequence[str]) -> Key:
    """The key as the fold compares it.

    Raises:
        IngestError: too many or too few cells, or one that does not fit its type.
    """
    if len(texts) != len(mirror.keys):
        raise IngestError(
            f"The key of {mirror.name} is {', '.join(mirror.keys)}: "
            f"give {len(mirror.keys)} values in that order, not {len(texts)}."
        )
    try:
        return tuple(
            typed(one.type, text, one.name) for one, text in zip(mirror.key_columns, texts, strict=True)
        )
    except KeyCellError as error:
        raise IngestError(f"{mirror.name}: {error}.") from None


def lanes(lake: Lake, mirror: Mirror) -> list[LaneId]:
    """The source tables that feed a mirror, as the books name them."""
    rows = lake.read(BOOKS.name).where(F.col("table").isNotNull())
    found = rows.select("source", "database", "schema", "table").distinct().collect()
    named = [(row["source"], TableId(row["database"], row["schema"], row["table"])) for row in found]
    return sorted(
        (lane for lane in named if mirrors.target(lake.pipeline.rule(lane[1]), lane[1]) == mirror.table),
        key=str,
    )


def of_lane(frame: DataFrame, lane: LaneId) -> DataFrame:
    """The rows of one source table in any product table."""
    wanted: Column = F.col("source") == lane[0]
    for name, part in zip(("database", "schema", "table"), lane[1], strict=True):
        wanted &= F.col(name).eqNullSafe(F.lit(part))
    return frame.where(wanted)


# --- changes ------------------------------------------------------------------------------------


def rows_of(lake: Lake, mirror: Mirror, lane: LaneId, texts: Sequence[str]) -> list[Row]:
    """All changes of a key, and of every key that key changes link with it."""
    changes = of_lane(lake.read(CHANGES.name).where(F.col("kind") == "change"), lane)
    shard = shard_of(lake.pipeline, lake.pipeline.rule(lane[1]), lane)
    changes = with_shard(changes, shard)
    if eras := mirror.eras_of(*lane):  # what stood where the key changed stands for its earlier life
        steps = tuple(step for step, _ in schema_steps(lake, mirror, lane))
        changes = rebased(changes, mirror, eras, steps, 0, links=True, lane=lane)
    keyed = keyed_rows(changes, mirror, ROW)
    wanted = {_as_json(lake, mirror, texts)}
    for _ in range(_ROUNDS):
        rows = keyed.where(F.col("key").isin(*sorted(wanted))).collect()
        linked = {key for row in rows for key in row["keys"] if key is not None}
        if linked <= wanted:
            break
        wanted |= linked
    unique = {(row["order_key"], row["batch"]): row.asDict() for row in rows}
    return [unique[place] for place in sorted(unique)]


def _as_json(lake: Lake, mirror: Mirror, texts: Sequence[str]) -> str:
    """The key as Spark writes it after the same casts as a change's."""
    frame = lake.spark.createDataFrame([tuple(texts)], [f"t{i}" for i in range(len(texts))])
    cells = [cast(F.col(f"t{i}"), one.type) for i, one in enumerate(mirror.key_columns)]
    found = frame.select(json_key(cells).alias("key")).collect()[0]["key"]
    if found is None:
        raise IngestError(f"{mirror.name} can hold no row with the key {', '.join(texts)}.")
    return str(found)


def truncates(lake: Lake, lane: LaneId) -> list[Row]:
    """The table's truncates."""
    frame = lake.read(CHANGES.name).where((F.col("kind") == "change") & (F.col("op") == "truncate"))
    return [row.asDict() for row in of_lane(frame, lane).select(*ROW).collect()]


FOLDED = 2**62  # what is explained has been folded: nothing waits


def schema_steps(lake: Lake, mirror: Mirror, lane: LaneId) -> list[tuple[SchemaStep, Row]]:
    """The DDL effects that take part in the fold, each with the statement's own row."""
    rule = lake.pipeline.rule(lane[1])
    subject = Subject(
        lane[1],
        rule.on_schema_change,
        {**{one.name: one.type for one in mirror.columns}, **rule.columns},
        lambda table: lake.pipeline.rule(table).exclude,
        FOLDED,
    )
    steps = ledgers.steps(ledgers.read(lake, sent.with_rows(lake)).of(*lane), subject, 1).ever
    if not steps:
        return []
    rows = lake.read(DDL.name).where(F.col("source") == lane[0])
    wanted = [str(step.order) for step in steps]
    statements = {
        row["order_key"]: row.asDict() for row in rows.where(F.col("order_key").isin(wanted)).collect()
    }
    return [(step, statements[str(step.order)]) for step in steps if str(step.order) in statements]


# --- rejects ------------------------------------------------------------------------------------


def suspects(lake: Lake, mirror: Mirror, found: Sequence[LaneId], key: str) -> list[Row]:
    """Open rejects that may concern the row: its own cells, and messages whose table is not known."""
    open_ones = rejected.still_open(lake)
    if open_ones is None:
        return []
    sources = sorted({source for source, _ in found})
    database, schema, table = mirror.table
    own = (
        (F.col("kind") != "message")
        & F.col("database").eqNullSafe(F.lit(database))
        & F.col("schema").eqNullSafe(F.lit(schema))
        & F.col("table").eqNullSafe(F.lit(table))
        & F.col("key").eqNullSafe(key)
    )
    unknown = (F.col("kind") == "message") & F.col("source").isin(sources)
    columns = (*PLACE, "batch", "kind", "column", "reason", "detail", "raw")
    rows = open_ones.where(own | unknown).orderBy("kind", "batch", *PLACE).select(*columns).limit(SUSPECTS)
    return [row.asDict() for row in rows.collect()]


def key_text(lake: Lake, mirror: Mirror, texts: Sequence[str]) -> str:
    """The key as cell rejects spell it: JSON with the columns' own names."""
    frame = lake.spark.createDataFrame([tuple(texts)], [f"t{i}" for i in range(len(texts))])
    cells = [cast(F.col(f"t{i}"), one.type).alias(one.name) for i, one in enumerate(mirror.key_columns)]
    return str(frame.select(exact.key_json(cells).alias("key")).collect()[0]["key"])


# --- the mirror ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Present:
    """The mirror's rows with the key, as text, and the columns in which they differ from the fold's row."""

    rows: tuple[Image, ...]
    differing: tuple[str, ...]


def present(lake: Lake, mirror: Mirror, texts: Sequence[str], folded: Image | None) -> Present:
    """Look the key up in the mirror, and compare cell by cell with the row that the fold gives."""
    table = lake.read(mirror.path)
    have = set(table.columns)
    columns = [one for one in mirror.columns if one.column in have]
    same = [
        F.col(quoted(one.column)).eqNullSafe(cast(F.lit(text), one.type))
        for one, text in zip(mirror.key_columns, texts, strict=True)
    ]
    values = folded or {}
    differs = [
        F.when(
            ~F.col(quoted(one.column)).eqNullSafe(_expected(values.get(one.name), one.type)), F.lit(one.name)
        )
        for one in columns
        if one.name not in mirror.keys
    ]
    rows = (
        table.where(reduce(lambda a, b: a & b, same))
        .select(
            *[_text(F.col(quoted(one.column)), one.type).alias(f"v{i}") for i, one in enumerate(columns)],
            F.array_compact(F.array(F.lit(None).cast("string"), *differs)).alias("differing"),
        )
        .limit(10)
        .collect()
    )
    images = tuple({one.name: row[f"v{i}"] for i, one in enumerate(columns)} for row in rows)
    return Present(images, tuple(sorted({name for row in rows for name in row["differing"]})))


def _expected(text: str | None, logical: str) -> Column:
    return cast(F.lit(text).cast("string"), logical)


def _text(value: Column, logical: str) -> Column:
    """The cell as changes spell it."""
    kind = types.delta(logical)
    if kind == "BINARY":
        return F.base64(value)
    text = value.cast("string")
    return F.concat(F.replace(text, F.lit(" "), F.lit("T")), F.lit("Z")) if kind == "TIMESTAMP" else text
