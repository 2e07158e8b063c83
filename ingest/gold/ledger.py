"""The DDL ledger as gold reads it: what statements show of a table, and what they do to standing rows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import functions as F

from ingest.change import TableId
from ingest.config import TableRule
from ingest.fold import SchemaStep
from ingest.gold.gather import Steps
from ingest.lake.lake import Lake
from ingest.lake.schemas import DDL


@dataclass(frozen=True, slots=True)
class Event:
    """One effect of one logged statement, at its place."""

    order: str
    batch: int
    effect: dict[str, Any]


@dataclass(slots=True)
class Ledger:
    """Effects by lane, in order. Statements of a connector's own snapshot have none."""

    events: dict[tuple[str, TableId], list[Event]] = field(default_factory=dict)

    def of(self, source: str, table: TableId) -> list[Event]:
        """A lane's effects; the database may be missing from the statement's own names."""
        return self.events.get((source, table), [])


def read(lake: Lake) -> Ledger:
    """The whole ledger: DDL is rare, and one read serves all mirrors."""
    if not lake.exists(DDL.name):
        return Ledger()
    rows = (
        lake.read(DDL.name)
        .where(F.col("class").isin("safe", "lossy") & ~F.coalesce(F.col("note").contains("snapshot"), F.lit(False)))
        .select("source", "order_key", "batch", "effects")
        .orderBy("order_key")
        .collect()
    )
    ledger = Ledger()
    for row in rows:
        for effect in json.loads(row["effects"] or "[]"):
            event = Event(row["order_key"], row["batch"], effect)
            for table in _tables(effect):
                ledger.events.setdefault((row["source"], table), []).append(event)
    return ledger


def _tables(effect: dict[str, Any]) -> set[TableId]:
    """The tables that an effect concerns: a renamed table under both of its names."""
    found = {TableId(*effect["table"])}
    if effect["action"] == "rename_table" and isinstance(effect.get("to"), list):
        found.add(TableId(*effect["to"]))
    return found


def shown(events: Iterable[Event]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Key columns and columns with their types, as statements declare them; later ones win."""
    keys: tuple[str, ...] = ()
    columns: dict[str, str] = {}
    for event in events:
        effect = event.effect
        match effect["action"]:
            case "create_table":
                keys = tuple(effect.get("keys") or ()) or keys
                for one in effect.get("columns") or ():
                    columns[one["name"]] = one.get("type") or columns.get(one["name"], "unknown")
            case "add_column" | "modify_column":
                name = effect["column"]
                columns[name] = effect.get("type") or columns.get(name, "unknown")
            case "rename_column":
                columns[effect["to"]] = columns.get(effect["column"], "unknown")
    return keys, columns


def steps(events: Iterable[Event], rule: TableRule, first: int) -> Steps:
    """The effects that change rows without row messages; ``first`` is the first batch not folded yet."""
    if rule.on_schema_change == "ignore":
        return Steps()
    found: list[tuple[SchemaStep, int]] = []
    dropped = False
    for event in events:
        step, dropped = _step(event, dropped)
        if step is not None:
            found.append((step, event.batch))
    return Steps(
        tuple(step for step, _ in found), tuple(step for step, batch in found if batch >= first)
    )


def _step(event: Event, dropped: bool) -> tuple[SchemaStep | None, bool]:
    effect = event.effect
    order: Any = event.order
    match effect["action"]:
        case "add_column" if effect.get("default") is not None:
            return SchemaStep(order, "add_column", effect["column"], default=effect["default"]), dropped
        case "rename_column":
            return SchemaStep(order, "rename_column", effect["column"], effect["to"]), dropped
        case "drop_table":
            return None, True
        case "create_table" if dropped:
            return SchemaStep(order, "new_incarnation"), False
    return None, dropped
