"""Logged DDL statements by name, with the operator's decisions: gold applies them, the checks report them."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import msgspec

from ingest.change import LaneId, TableId
from ingest.ddl import Effect
from ingest.ddl.effect_model import DESCRIBING, OF_TYPES
from ingest.ledgers import decisions
from ingest.ledgers.adjusted_names import Adjusted
from ingest.ledgers.decisions import APPROVE, CARRIED, DISMISS, FOLDED, REBUILT
from ingest.tables.tables import Tables

_effects = msgspec.json.Decoder(tuple[Effect, ...])
_POSITION = ("source", "topic", "partition", "offset", "row")
Decided = Mapping[tuple[str, int | None], str]
"""The last decision on each statement, by its name and batch."""
Carried = Mapping[str, Mapping[TableId, int]]
"""The names that a RENAME gave to tables whose rows were landed again under them, each with the batch in which they were, by the
statement's name.
"""


@dataclass(frozen=True, slots=True)
class Statement:
    """One logged statement at its place; ``decided`` is the operator's decision, if any."""

    id: str
    source: str
    table: TableId
    batch: int
    order: str
    text: str
    kind: str
    effects: tuple[Effect, ...] = ()
    decided: str = ""
    event_time: object = None  # when the source ran it; used only to detect a repetition
    first: Statement | None = None  # of a repeated one: its first delivery, whose effects it has
    since: str = ""  # of a repeated one: the place of the delivery before
    adjusted: tuple[Adjusted, ...] = ()  # the columns that it makes and that rows have by another name
    is_announced: bool = False  # rows stand for it (`ingest.ledgers.announced`), no message has it
    # of a RENAME: the names under which rows were landed again, with the batches
    carried: Mapping[TableId, int] = field(default_factory=dict)

    @property
    def tables(self) -> list[TableId]:
        """The tables that it names; if it names none, the table of its message."""
        tables = list(dict.fromkeys(table for effect in self.meant for table in touched(effect)))
        return tables or ([self.table] if self.table.table is not None else [])

    @property
    def said(self) -> str:
        """Its text in one line, or that its message has a structure alone."""
        return " ".join(self.text.split()) or "a change of its structure"

    @property
    def meant(self) -> tuple[Effect, ...]:
        """Its effects, and those of its first delivery."""
        return (*self.effects, *(self.first.effects if self.first else ()))


def by_lane(statements: Iterable[Statement]) -> dict[LaneId, list[Statement]]:
    """The statements about each source table, in order; an unreadable one is about its message's table."""
    about: dict[LaneId, list[Statement]] = {}
    for statement in statements:
        for table in statement.tables:
            about.setdefault((statement.source, table), []).append(statement)
    return about


def effects_on(table: TableId, statements: Iterable[Statement]) -> Iterator[tuple[Statement, Effect]]:
    """The effects of statements on a table, in order, each with its statement."""
    for statement in statements:
        yield from ((statement, effect) for effect in statement.effects if table in touched(effect))


def touched(effect: Effect) -> tuple[TableId, ...]:
    """The tables of an effect: both names for a rename."""
    if effect.table.table is None or effect.action in OF_TYPES:  # a database, a schema or a type
        return ()
    if effect.action == "rename_table" and effect.other_table:
        return effect.table, effect.other_table
    return (effect.table,)


def recorded(lake: Tables) -> dict[tuple[str, str], tuple[str, tuple[str, ...]]]:
    """What statements did to mirrors when they were folded: state and text, by the mirror's path and the statement.

    A rebuild finds the mirror as the statement has left it, and so has less to say: its text counts where the state changes.
    """
    results: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {}
    for decision in decisions.read(lake).of(FOLDED):
        place, state = (decision.subject, decision.value["statement"]), decision.value["state"]
        if place not in results or results[place][0] != state:
            results[place] = state, tuple(decision.value["does"])
    return results


def done(lake: Tables) -> dict[tuple[str, str], str]:
    """The state that a statement had when a mirror's rows were folded last: by the mirror's path and the statement.

    What a rebuild has done is recorded after it; after one by a version that did not, nothing is known.
    """
    states: dict[tuple[str, str], str] = {}
    for decision in decisions.read(lake).of(FOLDED, REBUILT):
        if decision.kind == REBUILT:
            states = {name: state for name, state in states.items() if name[0] != decision.subject}
        else:
            states[decision.subject, decision.value["statement"]] = decision.value["state"]
    return states


def statement_id(row: Mapping[str, Any]) -> str:
    """A short name for a row of `ddl` from its message's batch and position, the same after every rebuild.

    The batch distinguishes a topic or a file from an older one of the same name, which had the same positions.
    """
    parts = [row["batch"], *(row.get(name) for name in _POSITION)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]


def decided(lake: Tables) -> Decided:
    """The decisions on statements."""
    return {
        (decision.value["statement"], decision.batch): decision.kind
        for decision in decisions.read(lake).of(APPROVE, DISMISS)
        if decision.value.get("statement")
    }


def approved_ahead(lake: Tables) -> dict[tuple[str, str], dt.datetime]:
    """The mirrors' paths with the statements that each has folded only since they were approved, and since when, in UTC without a
    zone: what they leave unknown was not seen then. One that held its mirror again, after rows that came late, is folded as it was
    decided from then on.
    """
    folded, ahead = dict[tuple[str, str], dt.datetime](), set[tuple[str, str]]()
    held = set[tuple[str, str]]()
    made = decisions.read(lake)
    if not any(made.of(APPROVE)):
        return {}
    for decision in made.of(FOLDED, APPROVE, DISMISS):
        name = decision.subject, decision.value.get("statement", "")
        if decision.kind == FOLDED:
            if decision.value["state"] == "held":
                held.add(name)
            elif (name not in folded or name in held) and decision.decided_at is not None:
                folded[name] = decision.decided_at
                held.discard(name)
        elif decision.kind == APPROVE and (name not in folded or decision.value.get("held")):
            ahead.add(name)
        else:
            ahead.discard(name)
    return {name: folded[name] for name in ahead & folded.keys()}


def carried(lake: Tables, last: int) -> Carried:
    """The RENAMEs whose rows have been decoded under the new names, up to a batch."""
    newest: dict[tuple[str, TableId], int] = {}
    for decision in decisions.read(lake).of(CARRIED):
        if decision.value["landed"] <= last:  # else an older landing is the one that counts
            newest[decision.subject, TableId(*decision.value["table"])] = decision.value["landed"]
    by_statement: dict[str, dict[TableId, int]] = {}
    for (name, table), landed in newest.items():
        if landed:
            by_statement.setdefault(name, {})[table] = landed
    return by_statement


def of_row(row: Mapping[str, Any], said: Decided, moved: Carried) -> Statement:
    """A row of `ddl` with its decision."""
    name = statement_id(row)
    return Statement(
        name,
        row["source"],
        TableId(row.get("database"), row.get("schema"), row.get("table")),
        row["batch"],
        row["order_key"],
        row.get("statement") or "",
        row["class"],
        _effects.decode(row.get("effects") or "[]"),
        said.get((name, row["batch"]), ""),
        row.get("event_time"),
        carried=moved.get(name, {}),
    )


COUNTING = "(class <> 'none' OR effects <> '[]')"
"""SQL: true for the rows of `ddl` that count for rows: `counting` takes them."""


def counting(
    rows: Iterable[Mapping[str, Any]], said: Decided, moved: Carried = MappingProxyType({})
) -> list[Statement]:
    """The statements that count for rows, in order: gold's and the checks' one selection from the rows of `ddl`.

    A statement that a connector prints for its own snapshot (class ``none``) is not an event. It describes its table: the
    keys, columns and comments. Its CREATE is like CREATE TABLE IF NOT EXISTS, so it begins a new table only after a DROP.
    """
    ordered = sorted(rows, key=lambda row: (row["order_key"] or "", row["batch"]))
    statements = (of_row(row, said, moved) for row in ordered)
    described = (
        replace(statement, effects=(*_described(statement.effects),))
        if statement.kind == "none"
        else statement
        for statement in statements
    )
    return [statement for statement in described if statement.kind != "none" or statement.effects]


def _described(effects: Iterable[Effect]) -> Iterator[Effect]:
    """The description in a snapshot's statement: the table's keys, columns and comments, but no event."""
    for effect in effects:
        if effect.action == "create_table":
            yield replace(effect, note="if-not-exists")
        elif effect.action in DESCRIBING or effect.action in ("comment_column", "add_foreign_key"):
            yield effect
