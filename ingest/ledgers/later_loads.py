"""Full loads of tables that had sent changes before: the position that their rows name is their place among the changes.

PostgreSQL's position is where a change was written, so it does not say which changes a snapshot has seen. Rows of a first load
come before all changes therefore. Those of a later one, whose position is beyond all that its table has sent, are newer than
these. Which loads are later ones is decided once, when they are decoded (`ingest.silver.later_loads`), and kept in
`decisions` (kind ``load``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingest.change import LaneId, TableId
from ingest.ledgers import decisions, epochs
from ingest.ledgers.decisions import LOAD, Decision
from ingest.ledgers.starts import MessagePlace, Starts, epoch_of
from ingest.order import Order, order_key, same_place
from ingest.tables.tables import Tables

if TYPE_CHECKING:
    from ingest.tables.lake import Lake

Sequences = Mapping[TableId, frozenset[tuple[int, ...]]]
"""The positions of the later loads of each table."""


@dataclass(frozen=True, slots=True)
class LaterLoad:
    """A load whose rows are changes at the position that they share.

    Args:
        source: the source's name.
        table: what was loaded.
        sequence: the position.
        after: a place that a change of the table had reached before; in an epoch that begins after it the load is a first one.
        batch: in which its first rows came.
    """

    source: str
    table: TableId
    sequence: tuple[int, ...]
    after: MessagePlace
    batch: int


def read(lake: Tables) -> list[LaterLoad]:
    """All that were decided, oldest first; of an unchanged ledger they are looked for once."""
    ledger = decisions.read(lake)
    return lake.made_once("decisions/later loads", ledger, lambda: list(map(_of_decision, ledger.of(LOAD))))


def _of_decision(decision: Decision) -> LaterLoad:
    value = decision.value
    after = MessagePlace(*value["after"])
    return LaterLoad(
        decision.subject, TableId(*value["table"]), tuple(value["sequence"]), after, decision.batch or 0
    )


def record(lake: Lake, loads: Iterable[LaterLoad]) -> None:
    """Keep what was decided of some loads."""
    decisions.append(
        lake,
        [
            Decision(
                LOAD,
                load.source,
                {"table": list(load.table), "sequence": list(load.sequence), "after": list(load.after)},
                load.batch,
                f"{load.table} had sent changes before its load, all at lower positions",
            )
            for load in loads
        ],
    )


def by_epoch(loads: Iterable[LaterLoad], starts: Starts) -> dict[tuple[str, int], Sequences]:
    """The loads of each source and epoch: they are later ones only in the epoch of the changes before them."""
    parts: dict[tuple[str, int], dict[TableId, frozenset[tuple[int, ...]]]] = {}
    for load in loads:
        epoch = epoch_of(load.after, starts.get(load.source, ()))
        tables = parts.setdefault((load.source, epoch), {})
        tables[load.table] = tables.get(load.table, frozenset()) | {load.sequence}
    return dict(parts)


def place_of_last(lake: Tables, lane: LaneId) -> str | None:
    """The place of the newest later load of a lane, as `same_place` writes it; None if it has none."""
    of_lane = [load for load in read(lake) if (load.source, load.table) == lane]
    places = [
        same_place(order_key(Order(epoch, 1, sequence, 0, (), 0)))
        for (_, epoch), loads in by_epoch(of_lane, epochs.read(lake).starts if of_lane else {}).items()
        for sequence in loads[lane[1]]
    ]
    return max(places, default=None)
