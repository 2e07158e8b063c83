"""Judging one history: what the plain fold makes of its delivery, against what its database holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ingest.fold import Placed, fold
from tests.properties.database import Key, Row
from tests.properties.delivery import deliver, placed
from tests.properties.histories import COLUMNS, History, history
from tests.properties.kinds import KINDS


@dataclass(frozen=True, slots=True)
class Wrong:
    """A history whose outcome differs from its database."""

    seed: str
    expected: dict[Key, object]
    actual: dict[Key, object]
    events: tuple[str, ...] = ()

    def __str__(self) -> str:
        keys = sorted({*self.expected, *self.actual}, key=str)
        lines = [
            f"  {key}: expected {self.expected.get(key)}, got {self.actual.get(key)}"
            for key in keys
            if self.expected.get(key) != self.actual.get(key)
        ]
        return "\n".join([f"history {self.seed}:", *lines, *[f"    {event}" for event in self.events]])


def folded(made: History, events: Iterable[Placed]) -> dict[Key, Row]:
    """The plain fold's rows, with NULL in what it does not know."""
    rows = fold(events, made.keys, made.types)
    return {key: {column: row.values.get(column) for column in COLUMNS} for key, row in rows.items()}


def checked(number: int) -> tuple[int, Wrong | None]:
    """Make, deliver and fold one history of all kinds in turn: how many changes came, and what is wrong."""
    made = history(KINDS[number % len(KINDS)], number // len(KINDS))
    events = placed(deliver(made))
    actual = folded(made, events)
    if actual == made.rows:
        return len(events), None
    return len(events), Wrong(made.seed, dict(made.rows), dict(actual), tuple(shown(events)))


def shown(events: Iterable[Placed]) -> list[str]:
    """Events in history's order, one readable line each."""
    return [
        f"{order.epoch}/{order.phase} {order.sequence}.{order.half} arrived {order.arrival} row {order.row}: "
        f"{change.op}{' partial' if change.partial else ''} {change.before} -> {change.after}"
        for order, change in sorted(events, key=lambda event: event.order)
    ]
