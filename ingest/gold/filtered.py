"""Apply a mirror's row condition to what Spark merges."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from ingest.errors import HeldError
from ingest.gold.fold import GONE, sent_name
from ingest.lake import conditions
from ingest.lake.mirrors import Mirror


def filtered(source: DataFrame, mirror: Mirror) -> DataFrame:
    """Typed outcomes (`ingest.gold.merge.typed`); rows that do not meet the condition are deleted."""
    where = mirror.where
    if not where:
        return source
    names = {one.name: sent_name(i) for i, one in enumerate(mirror.columns)}

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            cells = {name: batch.column(column) for name, column in names.items()}
            holds = conditions.met(where, cells.__getitem__, batch.num_rows)
            gone = pc.or_(batch.column(GONE), pc.invert(holds))
            columns = [gone if name == GONE else batch.column(name) for name in batch.schema.names]
            yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names)

    return source.mapInArrow(judge, source.schema)


def refuse(error: Exception, place: str) -> None:
    """Hold the mirror if its condition has failed on a row.

    Raises:
        HeldError: it has failed; the text says where it is written, and why it failed.
    """
    _, found, why = str(error).partition(conditions.FAILED)
    if found:
        why = why.splitlines()[0].rstrip(".")
        raise HeldError(f"{place} where: fails on a row: {why}: write another.") from None
