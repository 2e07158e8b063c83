"""The DDL ledger as the checks read it: which statements wait for a person, and where a table began anew."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ingest.change import TableId
from ingest.config import Pipeline
from ingest.lake.decisions import DISMISS
from ingest.lake.lake import Lake
from ingest.lake.mirrors import target
from ingest.lake.names import mirror_path
from ingest.lake.statements import Decided, decided, decision_on, statement_id
from ingest.quality import ledgers


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
    id: str = ""
    decided: str = ""


def read(lake: Lake) -> list[Statement]:
    """All statements that may mean something, in order."""
    return understood(lake, ledgers.logged(lake))


def understood(lake: Lake, rows: Iterable[Mapping[str, Any]]) -> list[Statement]:
    """The ledger's rows as statements, in order."""
    ordered = sorted(rows, key=lambda row: str(row["order_key"]))
    said = decided(lake) if ordered else {}
    return [_statement(row, said) for row in ordered]


def _statement(row: Mapping[str, Any], said: Decided) -> Statement:
    effects = tuple(
        (str(one["action"]), TableId(*one["table"])) for one in json.loads(row.get("effects") or "[]")
    )
    return Statement(
        row["source"],
        TableId(row.get("database"), row.get("schema"), row.get("table")),
        row["batch"],
        row["order_key"],
        row.get("statement") or "",
        row["class"],
        effects,
        statement_id(row),
        decision_on(row, said),
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
