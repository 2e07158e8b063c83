"""Apply a mirror's row condition and compute its columns in what Spark merges."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from ingest.config import TableRule
from ingest.errors import HeldError
from ingest.gold.fold import GONE, sent_name
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

    return source.mapInArrow(shape, source.schema)


def refuse(error: Exception | str, rule: TableRule) -> None:
    """Hold the mirror if its condition or a computed column has failed on a row.

    Raises:
        HeldError: it has failed; the text says where it is written, and why it failed.
    """
    _, found, text = str(error).partition(conditions.FAILED)
    if found:
        what, _, why = text.partition(conditions.SAYS)
        place = rule.where_place if what == conditions.WHERE else rule.places[what.partition(" ")[2]]
        why = why.splitlines()[0].rstrip(".")
        raise HeldError(f"{place} {what} fails on a row: {why}: write another.") from None
