"""What the lake knows of a table before its rows are read, from its books, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import orjson
import pyarrow.compute as pc

from ingest.change import TableId
from ingest.config import Pipeline
from ingest.errors import SetupError
from ingest.lake.books import merged_columns
from ingest.lake.schemas import BOOKS
from ingest.order import order_of


class KnownTable(NamedTuple):
    """How far the lake has decoded a source, and one table of it.

    ``high`` is the highest order key of the table, ``epoch`` the newest one of the source, ``streamed`` whether
    anything of the source has been decoded; ``columns`` has the logical types that the table's messages named.
    """

    batch: int = 0
    high: str | None = None
    epoch: int = 0
    streamed: bool = False
    columns: Mapping[str, str] = {}


def known(pipeline: Pipeline, source: str, table: TableId) -> KnownTable:
    """What the books say now."""
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError
    except ImportError as error:
        raise SetupError(
            "The reader of the lake's tables is not installed: type `pip install deltalake`."
        ) from error
    columns = ["batch", "source", "database", "schema", "table", "messages", "order_high", "columns"]
    try:
        books = DeltaTable(f"{pipeline.lake}/{BOOKS.name}").to_pyarrow_table(columns=columns)
    except TableNotFoundError:
        return KnownTable()
    batch = pc.max(books["batch"]).as_py() or 0
    mine = books.filter(pc.equal(books["source"], source))
    highs = pc.max(mine["order_high"]).as_py() if mine.num_rows else None
    for name, part in zip(("database", "schema", "table"), table, strict=True):
        mine = mine.filter(pc.is_null(mine[name]) if part is None else pc.equal(mine[name], part))
    high = pc.max(mine["order_high"]).as_py() if mine.num_rows else None
    streamed = bool(pc.sum(books.filter(pc.equal(books["source"], source))["messages"]).as_py())
    types: dict[str, str] = {}
    for text in mine.sort_by("batch")["columns"].to_pylist():
        types = merged_columns(types, orjson.loads(text or "{}"))
    return KnownTable(batch, high, order_of(highs).epoch if highs else 0, streamed, types)
