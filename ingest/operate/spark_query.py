"""Queries in Spark's SQL: by request, and for lakes in stores that only Spark reaches."""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import Any

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.errors import IngestError, first_line
from ingest.inspect.query import QueryAnswer, places
from ingest.store.names import quoted
from ingest.tables.lake import Lake
from ingest.tables.query import refuse_commands, rewrite
from ingest.tables.schemas import ALL
from ingest.values import shortened


def query(lake: Lake, text: str, limit: int = 0, batch: int | None = None) -> QueryAnswer:
    """Run one query as `ingest.inspect.query.query` does; raises as `frame`."""
    result, lagging = frame(lake, text, batch)
    try:
        if limit:
            result = result.limit(limit)
        names = result.columns
        rows = _exact(result).collect()
    except PySparkException as error:
        raise IngestError(f"Spark refuses the query: {_said(error)}") from None
    kinds = [field.dataType for field in result.schema.fields]
    cells = [[_json(cell, kind) for cell, kind in zip(row, kinds, strict=True)] for row in rows]
    return QueryAnswer(names, cells, lagging)


def frame(lake: Lake, text: str, batch: int | None) -> tuple[DataFrame, list[str]]:
    """One query by names as a data frame, now or as of a batch, and which mirrors do not hold all of the batch.

    Raises:
        IngestError: the query is none, names no table, or Spark refuses it.
    """
    by_name, lagging = places(lake, batch)
    mirrors = {
        table: f"delta.{quoted(place.folder)}"
        + ("" if place.version is None else f" VERSION AS OF {place.version}")
        for table, place in by_name.items()
    }
    products = {schema.name: lake.named(schema.name) for schema in ALL if lake.exists(schema.name)}
    try:
        given = rewrite(text, mirrors, products, lake.pipeline.lake).text
        refuse_commands(lake.spark, given)
        return lake.spark.sql(given), lagging
    except PySparkException as error:
        raise IngestError(" ".join([f"Spark refuses the query: {_said(error)}", *lagging])) from None
    except IngestError as error:
        raise IngestError(" ".join([str(error), *lagging])) from None


def _said(error: PySparkException) -> str:
    """What Spark says, without the names that it has for it."""
    return re.sub(r"^\[[A-Z0-9_.]+\] | SQLSTATE: .*$", "", first_line(error))[:500]


def _exact(frame: DataFrame) -> DataFrame:
    """Instants and floats as Spark's own text: Python would shift the one and widen the other."""
    columns: list[Column] = []
    for position, field in enumerate(frame.schema.fields):
        column = F.col(f"_{position}")
        columns.append(column.cast("string") if isinstance(field.dataType, _AS_TEXT) else column)
    return frame.toDF(*[f"_{position}" for position in range(len(frame.columns))]).select(*columns)


_AS_TEXT = (T.TimestampType, T.FloatType, T.DoubleType, T.TimestampNTZType, T.DateType)


def _json(cell: Any, kind: T.DataType) -> Any:
    if cell is None:
        return None
    if isinstance(kind, T.FloatType | T.DoubleType):
        return msgspec.Raw(cell.encode()) if math.isfinite(float(cell)) else cell
    if isinstance(kind, T.TimestampType):
        return shortened(cell.replace(" ", "T")) + "Z"
    if isinstance(kind, T.TimestampNTZType):
        return shortened(cell)
    return _nested(cell)


def _nested(value: Any) -> Any:
    if isinstance(value, T.Row):
        return {name: _nested(item) for name, item in value.asDict().items()}
    if isinstance(value, dict):
        return {str(name): _nested(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_nested(item) for item in value]
    return shortened(value.isoformat("T")) if isinstance(value, dt.datetime) else value
