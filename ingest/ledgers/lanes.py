"""The source tables that have sent rows, by their names in the books."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TypeVar

from ingest import types
from ingest.change import LaneId, TableId, lane_of
from ingest.config import Source
from ingest.ledgers.books import EXCLUDED_SQL
from ingest.ledgers.resolve import Came, Sent, SentColumn
from ingest.order import loaded_sql
from ingest.tables import duck
from ingest.tables.json_cells import object_in
from ingest.tables.schemas import BOOKS
from ingest.tables.tables import Tables

IS_LOAD_MARKED = "coalesce(load_marks, '[]') <> '[]'"
"""The condition in SQL that a line of the books has marks of a full load."""
_Made = TypeVar("_Made")


def booked(lake: Tables, condition: str = "true") -> set[LaneId]:
    """Each source's tables, in the books' lines that meet a condition."""
    rows = lake.ask(
        'SELECT DISTINCT source, "database", "schema", "table" FROM {books} '
        f'WHERE "table" IS NOT NULL AND {condition}'
    )
    return {lane_of(row) for row in rows}


def with_rows(lake: Tables) -> set[LaneId]:
    """Each source's tables with rows, read once for each state of the books; a truncate may spell its table in another letter
    case.
    """
    return _made_once(lake, "with_rows", lambda: booked(lake, "changes > truncates")).copy()


def first_batches(lake: Tables) -> Mapping[TableId, int]:
    """The batch of each source table's first changes, read once for each state of the books."""

    def read() -> dict[TableId, int]:
        rows = lake.ask(
            'SELECT "database", "schema", "table", min(batch) AS first FROM {books} '
            'WHERE "table" IS NOT NULL AND changes > 0 GROUP BY ALL'
        )
        return {TableId.of(row): row["first"] for row in rows}

    return _made_once(lake, "first_batches", read)


def _made_once(lake: Tables, name: str, make: Callable[[], _Made]) -> _Made:
    log = lake.snapshot(BOOKS.name)
    return lake.made_once(f"{BOOKS.name}/{name}", (log.table_id, log.version), make)


def tells_inserts(lake: Tables, lane: LaneId) -> bool:
    """True if a source table's inserts are sent as such: a writer of upserts sends them as updates."""
    asked = f"SELECT 1 AS n FROM {{books}} WHERE {duck.of_lane(*lane)} AND inserts > 0 LIMIT 1"
    return bool(lake.ask(asked))


def sends_nulls(lake: Tables, source: Source) -> bool:
    """True if a source has ever sent a NULL, of any table.

    An update does not prove it where its former values name the columns that became NULL: the decoder writes these NULLs.
    """
    null = duck.text(_NULL)
    condition = " AND op <> 'update'" if source.about.before.changed_only else ""
    return bool(
        lake.ask(
            f"""SELECT 1 AS n FROM {{changes.change}} WHERE source = {duck.text(source.name)}{condition}
            AND (regexp_matches(after, {null}) OR regexp_matches(before, {null})) LIMIT 1"""
        )
    )


def leaves_out_nulls(lake: Tables, name: str) -> bool | None:
    """True if rows of a source lack a column where it is NULL; None if neither its options nor its messages say."""
    source = lake.pipeline.by_source.get(name)
    if source is None or not source.about.leaves_out_nulls:
        return False
    if source.about.leaves_out_nulls == "with the key alone":
        return not source.options.key_is_full
    if source.options.left_out is not None:
        return source.options.left_out == "null"
    return False if sends_nulls(lake, source) else None


_NULL = '[^\\\\]":null[,}]'  # a member's value; a text that holds the same has its quotes escaped


def columns_seen(lake: Tables, condition: str = "true") -> dict[LaneId, dict[str, str]]:
    """The columns of each source table's rows, with their types, in the books' lines that meet a condition."""
    columns: dict[LaneId, dict[str, str]] = {}
    for row in lake.ask(
        f'SELECT DISTINCT source, database, schema, "table", columns FROM {{books}} WHERE changes > 0 AND {condition}'
    ):
        lane = lane_of(row)
        columns.setdefault(lane, {}).update(object_in(row["columns"]))
    return columns


APART = 8  # tables that are read one by one; a lake of many tables with statements is read as a whole


def sent_columns(lake: Tables) -> Sent:
    """The columns that a table's rows have had; read once for each table that is asked for, or once for all."""
    by_lane: dict[LaneId, Mapping[str, SentColumn]] = {}
    every = False

    def sent(source: str, table: TableId) -> Mapping[str, SentColumn]:
        nonlocal every
        lane = source, table
        if lane not in by_lane and not every:
            every = len(by_lane) >= APART
            by_lane.update(_sent(lake, "true" if every else duck.of_lane(source, table)))
            by_lane.setdefault(lane, {})
        return by_lane.get(lane, {})

    return sent


def _sent(lake: Tables, condition: str) -> dict[LaneId, dict[str, SentColumn]]:
    """The columns of each table's rows, in the books' lines that meet a condition."""
    rows = lake.ask(
        f"""SELECT {duck.LANE_SQL}, columns, min(order_low) AS low, min(order_high) AS high, bool_or({EXCLUDED_SQL}) AS out,
        min(batch) AS batch
        FROM {{books}} WHERE ({EXCLUDED_SQL} OR (changes > 0 AND order_high IS NOT NULL)) AND {condition}
        GROUP BY {duck.LANE_SQL}, columns"""
    )
    tables: dict[LaneId, dict[str, SentColumn]] = {}
    for row in rows:
        sent_columns = tables.setdefault(lane_of(row), {})
        columns = object_in(row["columns"]) | ({"": "unknown"} if row["out"] else {})
        for name, logical in columns.items():
            column = SentColumn(row["low"] or "", row["high"] or "", logical, row["batch"])
            sent_before = sent_columns.get(name, column)
            kind = types.common(sent_before.type, logical)
            sent_columns[name] = SentColumn(
                min(column.low, sent_before.low),
                min(column.high, sent_before.high),
                kind,
                min(column.batch, sent_before.batch),
            )
    return tables


def came_between(lake: Tables) -> Came:
    """Whether a table may have sent rows between two places: rows of a full load have none, and those of excluded tables are
    not kept.
    """

    @cache
    def came(
        source: str, table: TableId, low: str, high: str, until: object = None, *, surely: bool = False
    ) -> bool:
        of_lane = duck.of_lane(source, table)
        if until is not None:
            of_lane += f" AND coalesce(event_time <= {duck.text(str(until))}::TIMESTAMP, true)"
        between = f"order_key > {duck.text(low)} AND order_key < {duck.text(high)}"
        loaded = loaded_sql("order_key")
        if surely:
            placed = f"{of_lane} AND op <> 'truncate' AND {between} AND NOT {loaded}"
            return bool(lake.ask(f"SELECT 1 AS n FROM {{changes.change}} WHERE {placed} LIMIT 1"))
        [counts] = lake.ask(
            f"""SELECT (SELECT count(*) FROM {{changes.change}} WHERE {of_lane} AND op <> 'truncate'
            AND (({between}) OR {loaded})) + (SELECT count(*) FROM {{books}} WHERE {duck.of_lane(source, table)} AND {EXCLUDED_SQL}) AS n"""
        )
        return bool(counts["n"])

    return came
