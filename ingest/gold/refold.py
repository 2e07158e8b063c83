"""Fold whole histories again with the plain fold, in Spark's Python workers, for what SQL cannot fold.

Two situations need a key's history from its beginning: values inherited over a changed key (the old
key's state just before the change), and DDL that changes rows without row messages (a default that
fills, a renamed column). Both are rare, so then all keys of the batch are folded this way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from ingest.change import Change, Image, Op
from ingest.fold import Key, KeyCellError, Placed, Row, SchemaStep, Table, steps, texts_of_key
from ingest.gold.cast import cast
from ingest.gold.spark_fold import key_name, value_name
from ingest.gold.staged import GONE, has_name
from ingest.lake.datafiles import table_of
from ingest.lake.images import image
from ingest.lake.keys import key_texts
from ingest.lake.mirrors import Mirror
from ingest.lake.stamps import TIME, change_of
from ingest.order import order_of

Texts = tuple[str | None, ...]
ROW = ("order_key", "op", "partial", "before", "after", "types")


@dataclass(frozen=True, slots=True)
class Beyond:
    """A history's events other than row changes: truncates and schema steps, by their order keys."""

    truncates: tuple[str, ...] = ()
    steps: tuple[SchemaStep, ...] = ()  # their ``order`` is an order key
    times: tuple[int | None, ...] = ()  # of the truncates, if they are needed

    @property
    def events(self) -> list[Placed | SchemaStep]:
        """All events, as input of the plain fold."""
        times = self.times or (None,) * len(self.truncates)
        truncates = [
            Placed(order_of(place), Change(op=Op.TRUNCATE, event_time=at))
            for place, at in zip(self.truncates, times, strict=True)
        ]
        return [*truncates, *(step.decoded() for step in self.steps)]


def refold(mine: DataFrame, touched: DataFrame, mirror: Mirror, beyond: Beyond, links: bool) -> DataFrame:
    """The outcomes of the touched keys, each folded from its whole history.

    Args:
        mine: all changes of the lane up to the batch.
        touched: events of the batch, with typed keys (`ingest.gold.spark_fold.events`).
        mirror: with its columns as decided.
        beyond: truncates and schema steps of the whole history.
        links: True adds all keys linked by key changes, in both directions.
    """
    columns: tuple[str, ...] = ROW
    if mirror.soft:
        mine, columns = mine.withColumn(TIME, F.unix_micros(TIME)), (*ROW, TIME)
    keyed = keyed_rows(mine, mirror, columns)
    wanted = touched.select(
        json_key([F.col(key_name(i)) for i in range(len(mirror.keys))]).alias("key")
    ).distinct()
    schema = from_arrow_schema(_schema(mirror))
    folded = grouped(keyed, wanted, links, columns).mapInArrow(_folder(mirror, beyond), schema)
    # outcomes with typed keys and every column marked as sent: a whole history leaves nothing unknown
    keys = [cast(F.col(f"t{i}"), one.type).alias(key_name(i)) for i, one in enumerate(mirror.key_columns)]
    values = [F.col(value_name(i)) for i in range(len(mirror.columns))]
    flags = [F.lit(True).alias(has_name(i)) for i in range(len(mirror.columns))]
    return folded.select(*keys, GONE, *values, *flags)


def grouped(keyed: DataFrame, wanted: DataFrame, links: bool, columns: Sequence[str]) -> DataFrame:
    """The histories of wanted keys (with ``links``, also of those linked to them), each contiguous and in order."""
    labels = _labels(keyed) if links else {}
    if labels:
        spark = keyed.sparkSession
        label_frame = F.broadcast(spark.createDataFrame(list(labels.items()), "key STRING, label STRING"))
        wanted = (
            wanted.join(label_frame, "key", "left")
            .select(F.coalesce("label", "key").alias("group"))
            .distinct()
        )
        halves = keyed.join(label_frame, "key", "left").withColumn("group", F.coalesce("label", "key"))
    else:
        wanted = wanted.withColumnRenamed("key", "group")
        halves = keyed.withColumn("group", F.col("key"))
    return (
        halves.join(wanted, "group", "left_semi")
        .select("group", "half", *columns)
        .repartition("group")
        .sortWithinPartitions("group", "order_key")
    )


def keyed_rows(mine: DataFrame, mirror: Mirror, columns: Sequence[str]) -> DataFrame:
    """Each change once for every key that it concerns: the new key, and the old one."""
    rows, new, old = _with_keys(mine, mirror, columns)
    keys = F.array_distinct(F.array(new, old))
    halves = rows.select(*columns, keys.alias("keys"), F.posexplode(keys).alias("half", "key"))
    return halves.where(F.col("key").isNotNull())


def without_key(mine: DataFrame, mirror: Mirror) -> DataFrame:
    """The changes that have no usable key."""
    rows, new, _ = _with_keys(mine, mirror, mine.columns)
    return rows.where(new.isNull()).select(*mine.columns)


def _with_keys(mine: DataFrame, mirror: Mirror, columns: Sequence[str]) -> tuple[DataFrame, Column, Column]:
    """All changes but truncates, and the key of each after and before it as a text; NULL if it is not usable."""
    rows = mine.where(F.col("op") != "truncate").select(
        *columns, image("after", mirror.keys).alias("a"), image("before", mirror.keys).alias("b")
    )
    new, old = (
        json_key([cast(text, one.type) for text, one in zip(texts, mirror.key_columns, strict=True)])
        for texts in key_texts(mirror.keys)
    )
    return rows, new, old


def json_key(cells: list[Column]) -> Column:
    """A typed key as one text; NULL if a cell is NULL."""
    there = cells[0].isNotNull()
    for cell in cells[1:]:
        there &= cell.isNotNull()
    named = F.struct(*[cell.alias(f"k{i}") for i, cell in enumerate(cells)])
    return F.when(there, F.to_json(named))


def _labels(keyed: DataFrame) -> dict[str, str]:
    """Each key that a key change links, with the name of its group; linked keys are in one group."""
    pairs = keyed.where(F.size("keys") > 1).select("keys").distinct().collect()
    parent: dict[str, str] = {}

    def find(key: str) -> str:
        root = key
        while parent.setdefault(root, root) != root:
            root = parent[root]
        while parent[key] != root:
            parent[key], key = root, parent[key]
        return root

    for (keys,) in pairs:
        if keys[0] is not None and keys[1] is not None:
            parent[find(keys[0])] = find(keys[1])
    return {key: find(key) for key in parent}


def _schema(mirror: Mirror) -> pa.Schema:
    names = [f"t{i}" for i in range(len(mirror.keys))] + [value_name(i) for i in range(len(mirror.columns))]
    return pa.schema([*((name, pa.string()) for name in names), (GONE, pa.bool_())])


# --- in the workers -----------------------------------------------------------------------------


def _folder(mirror: Mirror, beyond: Beyond) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow``: the end state of every key: key texts, column texts, and whether it is deleted."""
    names = [column.name for column in mirror.columns]
    types = {one.name: one.type for one in mirror.columns if one.name in mirror.keys}
    schema = _schema(mirror)

    def ends(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[object, ...]]:
        events = beyond.events
        for rows in groups(batches):
            for text, live in states(rows, mirror.keys, types, events, soft=mirror.soft):
                values: Image = live.values if live else {}
                yield (*text, *(values.get(name) for name in names), live is None)

    return lambda batches: batches_of(ends(batches), schema)


def groups(batches: Iterable[pa.RecordBatch]) -> Iterator[list[dict[str, Any]]]:
    """Consecutive rows of one group, across the ends of batches."""
    rows = (row for batch in batches for row in batch.to_pylist())
    for _, group in groupby(rows, itemgetter("group")):
        yield list(group)


def batches_of(rows: Iterable[Sequence[object]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows of Python values in batches."""
    rest = iter(rows)
    while some := list(islice(rest, 10_000)):
        yield from table_of(some, schema.names, schema).to_batches()


def states(
    rows: list[dict[str, Any]],
    keys: tuple[str, ...],
    types: Mapping[str, str],
    others: list[Placed | SchemaStep],
    *,
    soft: bool = False,
) -> Iterator[tuple[Texts, Row | None]]:
    """The end state of every key of one group: its texts, and its row if it exists, or is kept."""
    table = Table(keys, types, soft=soft)
    events, texts = of_group(rows, table)
    for _step in steps(table, [*events, *others]):
        pass
    for key, text in texts.items():
        yield text, table.row(key)


def of_group(rows: list[dict[str, Any]], table: Table) -> tuple[Iterable[Placed], dict[Key, Texts]]:
    """The changes of one group, each once, and the texts of the group's own keys: a change may name others, too."""
    events: dict[str, Placed] = {}
    texts: dict[Key, Texts] = {}
    for row in rows:
        change = change_of(row)
        events[row["order_key"]] = Placed(order_of(row["order_key"]), change)
        images = (change.after, change.before) if row["half"] == 0 else (change.before, change.after)
        with suppress(KeyCellError):
            texts.setdefault(table.key(*images), texts_of_key(table.keys, *images))
    return events.values(), texts
