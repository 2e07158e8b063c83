"""The DDL ledger as the checks read it: which statements wait for a person, and where a table began anew."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyspark.sql import Row
from pyspark.sql import functions as F

from ingest.change import TableId
from ingest.config import Pipeline
from ingest.lake.lake import Lake
from ingest.lake.mirrors import target
from ingest.lake.names import mirror_path
from ingest.lake.schemas import DDL
from ingest.lake.statements import DISMISS, statement_id
from ingest.lake.statements import decided as decided_by_people

_POSITION = ("source", "topic", "partition", "offset", "row")


@dataclass(frozen=True, slots=True)
class Statement:
    """One logged statement; ``decided`` is what a person said of it, if anything."""

    source: str
    table: TableId
    batch: int
    order: str
    text: str
    kind: str
    effects: tuple[tuple[str, TableId], ...]  # action, table
    decided: str = ""


def read(lake: Lake) -> list[Statement]:
    """All statements that may mean something, in order; DDL is rare."""
    if not lake.exists(DDL.name):
        return []
    rows = (
        lake.read(DDL.name)
        .where(F.col("class") != "none")
        .orderBy("order_key")
        .select(
            "batch", *_POSITION, "database", "schema", "table", "order_key", "statement", "class", "effects"
        )
        .collect()
    )
    decided = decided_by_people(lake) if rows else {}
    return [_statement(row, decided) for row in rows]


def _statement(row: Row, decided: dict[str, str]) -> Statement:
    effects = tuple(
        (str(one["action"]), TableId(*one["table"])) for one in json.loads(row["effects"] or "[]")
    )
    return Statement(
        row["source"],
        TableId(row["database"], row["schema"], row["table"]),
        row["batch"],
        row["order_key"],
        row["statement"] or "",
        row["class"],
        effects,
        decided.get(statement_id(*(row[name] for name in _POSITION)), ""),
    )


def pending(statements: Iterable[Statement], pipeline: Pipeline) -> dict[str, list[str]]:
    """Statements that could not be understood and that nobody has decided on, by the mirror's path."""
    found: dict[str, list[str]] = {}
    for one in statements:
        rule = pipeline.rule(one.table)
        if one.kind == "unknown" and not one.decided and rule.on_schema_change != "ignore":
            found.setdefault(mirror_path(target(rule, one.table)), []).append(one.text)
    return found


def beginning(
    statements: Iterable[Statement], pipeline: Pipeline, source: str, table: TableId, last: int
) -> tuple[str, int] | None:
    """Place and batch of the newest CREATE behind a DROP: rows from before it are another table's."""
    found, dropped = None, False
    for statement, action in _about(statements, source, table, last):
        if statement.decided == DISMISS or pipeline.rule(table).on_schema_change == "ignore":
            continue
        if action == "drop_table":
            dropped = True
        elif action == "create_table" and dropped:
            found, dropped = (statement.order, statement.batch), False
    return found


def _about(
    statements: Iterable[Statement], source: str, table: TableId, last: int
) -> Iterator[tuple[Statement, str]]:
    for one in statements:
        if one.source == source and one.batch <= last:
            yield from ((one, action) for action, about in one.effects if about == table)
