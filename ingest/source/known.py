"""What the lake knows of a table before its rows are read, from its books, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import orjson

from ingest.change import TableId
from ingest.config import Pipeline, target
from ingest.lake import duck, mirrors
from ingest.lake.books import merged_columns
from ingest.lake.tables import LakeReader
from ingest.order import order_of


class KnownTable(NamedTuple):
    """How far the lake has decoded a source, and one table of it.

    ``high`` is the highest order key of the table, ``epoch`` the newest one of the source, ``streamed`` whether
    anything of the source has been decoded; ``columns`` has the logical types that the table's messages named, and ``keys``
    the key of its mirror.
    """

    batch: int = 0
    high: str | None = None
    epoch: int = 0
    streamed: bool = False
    columns: Mapping[str, str] = {}
    keys: tuple[str, ...] = ()


def known(pipeline: Pipeline, source: str, table: TableId) -> KnownTable:
    """What the books say now."""
    lake, of_source = LakeReader(pipeline), f"source = {duck.text(source)}"
    mine = duck.of_table(table)
    [books] = lake.ask(
        f"""SELECT max(batch) AS batch, sum(messages) FILTER ({of_source}) AS messages,
        max(order_high) FILTER ({of_source}) AS highest, max(order_high) FILTER ({of_source} AND {mine}) AS high
        FROM {{books}}"""
    )
    types: dict[str, str] = {}
    for row in lake.ask(f"SELECT columns FROM {{books}} WHERE {of_source} AND {mine} ORDER BY batch"):
        types = merged_columns(types, orjson.loads(row["columns"] or "{}"))
    epoch = order_of(books["highest"]).epoch if books["highest"] else 0
    mirror = target(pipeline.rule(table), table)
    keys = next((one.keys for one in mirrors.known(lake).values() if one.table == mirror), ())
    return KnownTable(books["batch"] or 0, books["high"], epoch, bool(books["messages"]), types, keys)
