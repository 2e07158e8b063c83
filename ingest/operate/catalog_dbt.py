"""A dbt `sources.yml` of the mirrors: names as the catalog has them, columns, keys and freshness.

Docs: dbt's reference of source properties and of the freshness config (`config: loaded_at_query`, since dbt 1.10). dbt runs
Jinja over every text of the file, so braces of names and comments are written as texts of Jinja.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from ingest.catalog.entries import Registered
from ingest.change import TableId
from ingest.errors import visible
from ingest.ledgers import lanes, mirrors
from ingest.ledgers.books import NEWEST_SQL
from ingest.operate.catalog_sql import NAMES, Names, remark
from ingest.store.names import of_table, quoted
from ingest.tables.duck import text as single
from ingest.tables.schemas import BOOKS
from ingest.tables.tables import Tables

_HISTORY = "__history"
_TESTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # a column's name that needs no quotes
_PERIODS = ((86400, "day"), (3600, "hour"), (60, "minute"))


def document(lake: Tables, dialect: str, listed: Iterable[Registered]) -> dict[str, Any]:
    """The file as a mapping: one dbt source for each schema of the catalog, with its mirrors that exist."""
    names = Names(NAMES[dialect])
    sources: dict[str, dict[str, Any]] = {}
    feeding = _feeding(lake)
    for mirror in listed:
        if not mirror.path:
            continue
        schema, name = names.of(mirror.table)
        source = sources.setdefault(
            schema, {"name": _plain(schema), "schema": _plain(schema), "quoting": _QUOTED, "tables": []}
        )
        source["tables"].append(_table(lake, dialect, mirror, name, feeding))
    return {"version": 2, "sources": [*sources.values()]}


def missing(listed: Iterable[Registered]) -> list[str]:
    """A comment for each mirror that has no table yet."""
    return [
        remark(f"{mirror.table}: {mirror.why}").replace("--", "#", 1) for mirror in listed if not mirror.path
    ]


_QUOTED = {"schema": True, "identifier": True}


def _table(
    lake: Tables, dialect: str, mirror: Registered, name: str, feeding: dict[TableId, list[TableId]]
) -> dict[str, Any]:
    kind, of = "history" if mirror.states else "mirror", str(mirror.table).removesuffix(_HISTORY)
    table: dict[str, Any] = {
        "name": _plain(name),
        "description": _plain(visible(f"{kind} of {of}, written by pipeline {lake.pipeline.name}")),
    }
    base = (
        mirror.table._replace(table=mirror.table.name.removesuffix(_HISTORY))
        if mirror.states
        else mirror.table
    )
    keys = [] if mirror.states else list(mirror.keys)
    config: dict[str, Any] = {
        "meta": {"primary_key": list(map(_plain, keys)), "location": _plain(mirror.path)}
    }
    limit = lake.pipeline.limits(base).get("freshness")
    query = _newest(lake, dialect, feeding.get(base, []))
    if limit is not None and query:
        config |= {"freshness": {"warn_after": _age(limit)}, "loaded_at_query": _plain(query)}
    table["config"] = config
    table["columns"] = [
        _column(field.name, field.delta, field.comment, field.source in keys, len(keys) == 1)
        for field in mirror.fields
    ]
    return table


def _column(name: str, delta: str, comment: str, in_key: bool, alone: bool) -> dict[str, Any]:
    column: dict[str, Any] = {"name": _plain(name), "data_type": _plain(delta)}
    if not _TESTED.fullmatch(name):
        column["quote"] = True
    if comment:
        column["description"] = _plain(visible(comment))
    if in_key:
        column["data_tests"] = ["not_null", *(["unique"] if alone else [])]
    return column


def _feeding(lake: Tables) -> dict[TableId, list[TableId]]:
    """The source tables whose changes each mirror holds."""
    table_ids: dict[TableId, list[TableId]] = {}
    for _, table in sorted(lanes.booked(lake), key=str):
        for mirror in mirrors.names(lake.pipeline, table):
            if table not in table_ids.setdefault(mirror, []):
                table_ids[mirror].append(table)
    return table_ids


def _newest(lake: Tables, dialect: str, tables: list[TableId]) -> str:
    """A query for the newest commit of a mirror's tables; empty where an engine reads no table by its path."""
    path = lake.path(BOOKS.name)
    books = {"spark": f"delta.{quoted(path)}", "duckdb": f"delta_scan({single(path)})"}.get(dialect)
    if books is None or not tables:
        return ""
    condition = {"spark": of_table, "duckdb": _of_table}[dialect]
    of_tables = " OR ".join(f"({condition(table)})" for table in tables)
    return f"SELECT {NEWEST_SQL} FROM {books} WHERE {of_tables}"


def _of_table(table: TableId) -> str:
    return " AND ".join(
        f'"{name}" IS NULL' if part is None else f'"{name}" = {single(part)}'
        for name, part in table._asdict().items()
    )


def _age(seconds: float) -> dict[str, Any]:
    """A duration in dbt's periods, never shorter than it is."""
    for span, period in _PERIODS:
        if seconds >= span and seconds % span == 0:
            return {"count": int(seconds // span), "period": period}
    return {"count": max(1, math.ceil(seconds / 60)), "period": "minute"}


def _plain(text: str) -> str:
    """A text of which dbt's Jinja makes the same text."""
    return re.sub(r"\{(?=[{%#])", "{{ '{' }}", text)
