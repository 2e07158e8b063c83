"""Read the product's own tables: books, receipts, runs and logged statements. All are small."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ingest.ledgers import decisions
from ingest.ledgers.books import newest_sql
from ingest.ledgers.decisions import ACCEPT_GAP
from ingest.ledgers.lanes import IS_LOAD_MARKED
from ingest.ledgers.logged_statements import COUNTING
from ingest.tables import duck
from ingest.tables.tables import Row

if TYPE_CHECKING:
    from ingest.tables.tables import Tables

_NEW = "changes reads inserts deletes key_changes truncates messages rejected off turned_back".split()
_EVER = ("truncates", "changes", "key_changes", "messages", "rejected", "control", "erased")
PARTS = ("change_messages", "ddl", "control", "routed_out", "rejected")


@dataclass(slots=True)
class Ledgers:
    """The rows found."""

    lanes: list[Row] = field(default_factory=list)
    receipts: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # source, receipt
    statements: list[Row] = field(default_factory=list)
    accepted: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # source, gap that was accepted


def read(lake: Tables, since: int, last: int) -> Ledgers:
    """Read everything; ``since`` is the last batch checked before, ``last`` the last one in the books."""
    receipts = f"SELECT source, value FROM {{bronze.receipt}} WHERE batch > {since} AND batch <= {last}"
    replays = (
        "SELECT source, CAST(count(*) AS BIGINT) AS count FROM {bronze.replay} "
        f"WHERE batch > {since} AND batch <= {last} GROUP BY source"
    )
    ledgers = Ledgers(
        _with_source(lake.ask(_lanes(since))),
        [(row["source"], json.loads(row["value"])) for row in lake.ask(receipts)]
        + [(row["source"], {"count": row["count"]}) for row in lake.ask(replays)],
        lake.ask(f"SELECT * FROM {{ddl}} WHERE {COUNTING}"),
    )
    if any(source.kind == "kafka" for source in lake.pipeline.sources):
        ledgers.accepted += [
            (decision.subject, {**decision.value, "batch": decision.batch, "reason": decision.reason})
            for decision in decisions.read(lake).of(ACCEPT_GAP)
        ]
    return ledgers


def lagging(lake: Tables) -> dict[str, int]:
    """Mirrors whose last state in `runs` is not "done", with the last batch that was done."""
    rows = lake.ask(
        "SELECT subject, coalesce(done, 0) AS done FROM ("
        "SELECT subject, max(CASE WHEN state = 'done' THEN batch END) AS done, "
        "max(CASE WHEN state IN ('failed', 'held', 'paused') THEN batch END) AS failed "
        "FROM {runs} WHERE stage = 'gold' AND subject IS NOT NULL "
        "GROUP BY subject) AS s WHERE failed > coalesce(done, 0)"
    )
    return {row["subject"]: row["done"] for row in rows}


def _lanes(since: int) -> str:
    """The books by lane: the batches to check, and those before."""
    summed = [(f"CASE WHEN fresh THEN {name} END", name) for name in _NEW]
    summed += [(name, f"{name}_ever") for name in _EVER]
    sums = ", ".join(f"CAST(coalesce(sum({column}), 0) AS BIGINT) AS {name}" for column, name in summed)
    parts = " + ".join(f"coalesce({name}, 0)" for name in PARTS)
    return (
        f"SELECT {duck.LANE_SQL}, max(active) AS active, max(fresh AND (active OR marked)) AS new, "
        f"max(fresh AND marked) AS load_marked, {sums}, "
        "coalesce(max(CASE WHEN changed THEN batch END), 0) AS last, "
        "coalesce(min(CASE WHEN fresh AND changed THEN order_low END), '') AS order_low, "
        "coalesce(max(CASE WHEN fresh AND changed THEN order_high END), '') AS order_high, "
        "coalesce(max(CASE WHEN NOT fresh THEN order_high END), '') AS folded_high, "
        f"{newest_sql(dt.datetime.now(dt.UTC))} AS newest, "
        """count(DISTINCT topic || '/' || CAST("partition" AS VARCHAR)) AS places, """
        "coalesce(min(CASE WHEN fresh AND changed THEN topic END) <> max(CASE WHEN fresh AND changed THEN topic END), false) "
        "AS several_new_topics, "
        "coalesce(max(CASE WHEN reads > 0 THEN batch END), 0) AS last_read, min(CASE WHEN reads > 0 THEN batch END) AS first_read, "
        "max(CASE WHEN messages > 0 THEN batch END) AS of_batch, max(CASE WHEN NOT fresh AND messages > 0 THEN batch END) AS before "
        f"FROM (SELECT *, batch > {since} AS fresh, changes > 0 AS changed, changes > 0 OR ddl > 0 AS active, "
        f"{IS_LOAD_MARKED} AS marked, "
        f"abs(messages - ({parts})) AS off FROM {{books}}) AS b GROUP BY {duck.LANE_SQL}"
    )


def _with_source(lanes: list[Row]) -> list[Row]:
    """The lanes, each with the last batch of its source, and whether that is the first one without rows of its load."""
    sent: dict[str, int] = {}
    before: dict[str, int] = {}
    for lane in lanes:
        source = lane["source"]
        sent[source] = max(sent.get(source, 0), lane["of_batch"] or 0)
        before[source] = max(before.get(source, 0), lane["before"] or 0)
    for lane in lanes:
        source, last_read = lane["source"], lane["last_read"]
        was_loaded = lane["first_read"] is not None and lane["first_read"] < last_read
        lane["last_sent"] = sent[source]
        lane["load_rests"] = was_loaded and before[source] == last_read < sent[source]
    return lanes
