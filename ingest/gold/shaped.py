"""Apply a mirror's row condition and compute its columns in what Spark merges."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.gold.cast import cast
from ingest.gold.spark_fold import LEFT_OUT, MISFIT, UNFIT, key_name, value_name
from ingest.gold.staged import GONE, sent_name
from ingest.lake import conditions
from ingest.lake.mirrors import Mirror


def shaped(source: DataFrame, mirror: Mirror) -> DataFrame:
    """Typed outcomes (`ingest.gold.merge.typed`) with computed columns; rows that do not meet the condition are
    deleted.
    """
    if not mirror.expressions:
        return source
    where = mirror.where
    names = {one.name: sent_name(i) for i, one in enumerate(mirror.columns)}
    computed = {one.name: (one.expression, one.type) for one in mirror.computed}

    def shape(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            cells = {name: batch.column(column) for name, column in names.items()}
            gone, made = conditions.shaped(where, computed, cells.__getitem__, batch.column(GONE))
            given = {GONE: gone} | {names[name]: found for name, found in made.items()}
            columns = [
                given[field.name].cast(field.type) if field.name in given else batch.column(field.name)
                for field in batch.schema
            ]
            yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names)

    found = source.mapInArrow(shape, source.schema)
    if UNFIT not in found.columns:
        return found
    wrong = F.col(UNFIT) & ~F.col(GONE)
    return found.withColumn(GONE, F.when(wrong, F.raise_error(F.lit(MISFIT))).otherwise(F.col(GONE))).drop(
        UNFIT
    )


def judged(outcomes: DataFrame, mirror: Mirror) -> DataFrame:
    """Outcomes (`ingest.gold.spark_fold.outcomes`) with `LEFT_OUT`: the rows that do not meet the condition."""
    if not mirror.where:
        return outcomes
    keys = {name: F.col(key_name(i)) for i, name in enumerate(mirror.keys)}
    typed = (keys.get(one.name, cast(F.col(value_name(i)), one.type)) for i, one in enumerate(mirror.columns))
    sent = (one.alias(sent_name(i)) for i, one in enumerate(typed))
    found = shaped(outcomes.select("*", F.col(GONE).alias(LEFT_OUT), *sent), mirror)
    return found.withColumns({LEFT_OUT: F.col(GONE) & ~F.col(LEFT_OUT), GONE: F.col(LEFT_OUT)})
