"""The DDL ledger for gold: logged statements by lane, with the operator's decisions."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from ingest.change import LaneId, TableId
from ingest.ledgers.logged_statements import Statement, by_lane, done, recorded
from ingest.ledgers.understood import understood
from ingest.tables.tables import Tables


@dataclass(slots=True)
class Ledger:
    """Statements in order. Those that a connector emits for its own snapshot only describe their tables."""

    statements: list[Statement] = field(default_factory=list)
    recorded: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    # the states by which rows were folded last
    done: dict[tuple[str, str], str] = field(default_factory=dict)
    by_lane: dict[LaneId, list[Statement]] = field(init=False)

    def __post_init__(self) -> None:
        self.by_lane = by_lane(self.statements)

    def of(self, source: str, table: TableId, last: int = sys.maxsize) -> list[Statement]:
        """The statements about a lane's table, of batches up to ``last``; an unreadable one is about its message's table."""
        about = self.by_lane.get((source, table), [])
        return [statement for statement in about if statement.batch <= last]

    def states(self, path: str, statements: Iterable[Statement]) -> dict[str, str]:
        """By which states a mirror's rows were folded, by the statements' ids: what was decided since counts from now on."""
        states = {
            statement.id: self.done.get((path, statement.id), "")
            for statement in statements
            if not statement.decided
        }
        return {name: state for name, state in states.items() if state}


def read(lake: Tables, sent: Collection[LaneId], last: int = sys.maxsize) -> Ledger:
    """Read the ledger: DDL is rare, so one read serves all mirrors.

    Args:
        lake: the lake.
        sent: the source tables that have sent rows; statements refer to their names.
        last: the last batch whose statements are read, of those that are decoded.
    """
    return Ledger(understood(lake, sent, last), recorded(lake), done(lake))
