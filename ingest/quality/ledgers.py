"""What the product's own tables say, in one Spark job: books, receipts, runs and logged statements.

Each is small, and planning a query costs more than reading them; so they are one query with rows of three
texts: what it is, whose it is, and the rest as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ingest.lake import decisions
from ingest.lake.decisions import ACCEPT_GAP
from ingest.lake.lake import Lake
from ingest.lake.names import quoted
from ingest.lake.schemas import BOOKS, BRONZE, DDL, RUNS

LANE = ("source", "database", "schema", "table")
_POSITION = ("source", "topic", "partition", "offset", "row")
SUMS = ("changes", "reads", "deletes", "key_changes", "truncates", "messages", "rejected", "off")
_PARTS = ("change_messages", "ddl", "control", "routed_out", "rejected")
_LOGGED = (
    "batch",
    *_POSITION,
    "database",
    "schema",
    "table",
    "order_key",
    "statement",
    "class",
    "effects",
    "event_time",
)


@dataclass(slots=True)
class Ledgers:
    """What was found; rows lack the columns that are NULL."""

    lanes: list[dict[str, Any]] = field(default_factory=list)
    receipts: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # source, receipt
    statements: list[dict[str, Any]] = field(default_factory=list)
    accepted: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # source, gap that was accepted


def read(lake: Lake, since: int, last: int) -> Ledgers:
    """Read everything at once.

    Args:
        lake: the lake.
        since: the last batch checked before.
        last: the last batch in the books.
    """
    found = Ledgers()
    parts = [part for name, part in _parts(since, last, lake) if lake.exists(name)]
    if not lake.exists(BOOKS.name):
        return found
    for row in lake.spark.sql(" UNION ALL ".join(parts)).collect():
        if row["what"] == "lane":
            found.lanes.append(json.loads(row["value"]))
        elif row["what"] == "receipt":
            found.receipts.append((row["whose"], json.loads(row["value"])))
        else:
            found.statements.append(json.loads(row["value"]))
    if any(source.kind == "kafka" for source in lake.pipeline.sources):
        found.accepted += [
            (one.subject, {**one.value, "batch": one.batch, "reason": one.reason})
            for one in decisions.read(lake).of(ACCEPT_GAP)
        ]
    return found


def behind(lake: Lake) -> dict[str, int]:
    """Mirrors whose last word in `runs` is not that they are done, with the last batch that they had done."""
    if not lake.exists(RUNS.name):
        return {}
    rows = lake.spark.sql(
        "SELECT subject, coalesce(done, 0) AS done FROM ("
        "SELECT subject, max(CASE WHEN state = 'done' THEN batch END) AS done, "
        "max(CASE WHEN state IN ('failed', 'held', 'paused') THEN batch END) AS failed "
        f"FROM {lake.named(RUNS.name)} WHERE stage = 'gold' AND subject IS NOT NULL "
        "GROUP BY subject) WHERE failed > coalesce(done, 0)"
    )
    return {row["subject"]: row["done"] for row in rows.collect()}


def _parts(since: int, last: int, lake: Lake) -> Iterator[tuple[str, str]]:
    """A query each, with the table that must be there for it."""
    yield BOOKS.name, _lanes(lake.named(BOOKS.name), since)
    yield BRONZE.name, _receipts(lake.named(BRONZE.name), since, last)
    yield DDL.name, _logged(lake)


def _receipts(bronze: str, since: int, last: int) -> str:
    """What was read for the batches in the books."""
    return (
        f"SELECT 'receipt' AS what, source AS whose, CAST(value AS STRING) AS value FROM {bronze} "
        f"WHERE kind = 'receipt' AND batch > {since} AND batch <= {last}"
    )


def _logged(lake: Lake) -> str:
    """Statements that may mean something."""
    return (
        f"SELECT 'statement' AS what, source AS whose, to_json(struct({', '.join(map(quoted, _LOGGED))})) "
        f"AS value FROM {lake.named(DDL.name)} WHERE class <> 'none'"
    )


def _lanes(books: str, since: int) -> str:
    """The books by lane: what is to be checked, and what was before."""
    lane = ", ".join(map(quoted, LANE))
    sums = ", ".join(f"sum(CASE WHEN new THEN {name} END) AS {name}" for name in SUMS)
    parts = " + ".join(f"coalesce({name}, 0)" for name in _PARTS)
    return (
        "SELECT 'lane' AS what, source AS whose, to_json(struct(*)) AS value FROM ("
        f"SELECT {lane}, max(active) AS active, max(new AND active) AS new, {sums}, "
        "max(CASE WHEN changed THEN batch END) AS last, sum(truncates) AS truncates_ever, "
        "sum(changes) AS changes_ever, sum(inherits) AS inherits_ever, sum(messages) AS messages_ever, "
        "sum(rejected) AS rejected_ever, "
        "sum(control) AS control_ever, "
        "min(CASE WHEN new AND changed THEN order_low END) AS order_low, "
        "max(CASE WHEN new AND changed THEN order_high END) AS order_high, "
        "max(CASE WHEN NOT new THEN order_high END) AS folded_high, "
        "unix_micros(max(event_high)) AS newest, count(DISTINCT topic, `partition`) AS places "
        f"FROM (SELECT *, batch > {since} AS new, changes > 0 AS changed, changes > 0 OR ddl > 0 AS active, "
        f"abs(messages - ({parts})) AS off FROM {books}) GROUP BY {lane})"
    )
