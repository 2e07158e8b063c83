"""Rejects that still wait: neither decoded later by a replay nor dismissed by the operator."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ingest.lake import decisions, duck
from ingest.lake.decisions import DISMISS_REJECT, Decision
from ingest.lake.schemas import REJECTS
from ingest.lake.tables import Row, Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ingest.lake.lake import Lake

REPLAY = "replay"  # bronze's kind of a row that says: decode these old bytes in this batch
PLACE = ("source", "topic", "partition", "offset")
_CELL = ("database", "schema", "table", "key", "column")
_NAME = ("kind", "batch", *PLACE, *_CELL, "raw")


def still_open(lake: Lake) -> DataFrame | None:
    """The open rows of ``rejects`` for Spark; None if the table is not there."""
    return lake.frame(open_sql(lake)) if lake.exists(REJECTS.name) else None


def open_sql(lake: Tables) -> str:
    """The open rows of ``rejects``, as a query for `Tables.ask`.

    A replayed message is told by bronze itself, so that the mark and the replay are one commit.  A dismissal by an
    older version names no batch and no text, and has the batch beside the name.
    """
    there = " AND ".join(f"p.{duck.name(one)} = r.{duck.name(one)}" for one in PLACE)
    found = f"""SELECT r.* FROM {{rejects}} AS r WHERE NOT (r.kind = 'message' AND EXISTS (
        SELECT 1 FROM {{bronze.{REPLAY}}} AS p WHERE {there}
        AND CAST(json_extract_string(decode(p.value), '$.batch') AS BIGINT) = r.batch))"""
    names = [(json.loads(one.subject), one.batch) for one in decisions.read(lake).of(DISMISS_REJECT)]
    found = _without(found, [name for name, _ in names if "batch" in name], _NAME)
    older = [{**name, "batch": batch} for name, batch in names if "batch" not in name]
    return _without(found, older, _NAME[:-1])


def _without(found: str, names: Sequence[dict[str, Any]], columns: Sequence[str]) -> str:
    """The rows of a query but those that are named by these columns."""
    if not names:
        return found
    values = ", ".join(f"({', '.join(duck.value(name.get(one)) for one in columns)})" for name in names)
    quoted = [duck.name(one) for one in columns]
    same = " AND ".join(f"o.{one} IS NOT DISTINCT FROM d.{one}" for one in quoted)
    return (
        f"SELECT o.* FROM ({found}) AS o WHERE NOT EXISTS "
        f"(SELECT 1 FROM (VALUES {values}) AS d({', '.join(quoted)}) WHERE {same})"
    )


def name_of(row: Mapping[str, Any]) -> str:
    """What a reject is called in decisions: its batch, its bytes' place, its table, key and column, and the text.

    The batch tells a topic or a file from an older one of the same name, whose places were the same.
    """
    named = {one: row[one] for one in _NAME if row[one] is not None}
    return json.dumps(named, ensure_ascii=False, separators=(",", ":"))


def listed(lake: Tables) -> list[Row]:
    """All rejects, numbered by their place among all of them, so that a number stays what it is; some are ``open``."""
    order = ", ".join(f"{duck.name(one)} NULLS FIRST" for one in ("batch", *PLACE, *_CELL, "raw"))
    waiting = {name_of(row) for row in lake.ask(open_sql(lake))}
    rows = lake.ask(f"SELECT * FROM {{rejects}} ORDER BY {order}")
    return [row | {"number": i, "open": name_of(row) in waiting} for i, row in enumerate(rows, 1)]


def dismiss(lake: Lake, rows: Sequence[dict[str, Any]], reason: str) -> None:
    """Close rejects."""
    decisions.append(
        lake,
        [
            Decision(DISMISS_REJECT, name_of(row), {"reason": row["reason"]}, row["batch"], reason)
            for row in rows
        ],
    )
