"""The state of silver's compaction: up to which batch, and up to which place each lane's history has holes.

It is a decision (kind ``condense``), written before the changes are dropped: after a kill in between, more counts as
dropped than is. The newest one applies; one with batch 0 says that silver is complete again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ingest.change import LaneId, TableId
from ingest.errors import HeldError, IngestError, command
from ingest.ledgers import decisions
from ingest.ledgers.decisions import CONDENSE, Decision
from ingest.tables.schemas import CHANGES

if TYPE_CHECKING:
    from ingest.tables.lake import Lake
    from ingest.tables.tables import Tables


@dataclass(frozen=True, slots=True)
class Condensed:
    """The last condensed batch, 0 if all changes are there, and after which place each lane's history is whole."""

    batch: int = 0
    floors: Mapping[LaneId, str] = field(default_factory=dict)
    keys: Mapping[LaneId, tuple[str, ...]] = field(default_factory=dict)  # by which rows were distinguished


def read(lake: Tables) -> Condensed:
    """Read the newest decision."""
    decision = decisions.read(lake).newest(CONDENSE).get(CHANGES.name)
    if decision is None:
        return Condensed()
    lanes = [((source, TableId(*table)), *rest) for source, table, *rest in decision.value["floors"]]
    return Condensed(
        decision.value["batch"],
        {lane: floor for lane, floor, *_ in lanes},
        {lane: tuple(keys[0]) for lane, _, *keys in lanes if keys},
    )


def refuse_keys(lake: Tables, lane: LaneId, eras: Sequence[tuple[str, tuple[str, ...]]]) -> None:
    """Refuse to fold changes by a key if changes that it distinguishes may have been dropped under another key.

    ``eras`` are the keys of the lane, each with the place after which it holds.

    Raises:
        HeldError: some of the changes that the fold needs may be gone.
    """
    condensed_lanes = read(lake)
    floor = condensed_lanes.floors.get(lane)
    if floor is None:
        return
    under = condensed_lanes.keys.get(lane, ())
    wrong = [keys for place, keys in eras if place < floor and set(keys) != set(under)]
    if wrong:
        silver = command("rebuild", lake.pipeline.file, "--layer", "silver")
        raise HeldError(
            f"old changes of {lane[1]} were condensed by the key ({', '.join(under) or 'not known'}), which may have "
            f"dropped rows that the key ({', '.join(wrong[0])}) tells apart: "
            f"`{silver}` brings them back, if bronze still holds them.",
            silver,
        )


def ever(lake: Tables) -> bool:
    """True if changes have ever been dropped: the log of ``changes`` says so without reading a table."""
    writer = f"{lake.pipeline.name}/{CONDENSE}/"
    return any(transaction.startswith(writer) for transaction in lake.snapshot(CHANGES.name).transactions)


def record(lake: Lake, now: Condensed, reason: str) -> None:
    """Record what is condensed from now on."""
    floors = [
        [*lane[:1], list(lane[1]), floor, *([now.keys[lane]] if lane in now.keys else [])]
        for lane, floor in sorted(now.floors.items(), key=str)
    ]
    value = {"batch": now.batch, "floors": floors}
    decisions.append(lake, [Decision(CONDENSE, CHANGES.name, value, now.batch, reason)])


def refuse(lake: Tables, since: int) -> None:
    """Refuse to decode only some of the batches that lack changes: the others would miss what was in them.

    Raises:
        IngestError: a batch after ``since`` is condensed, and so is one before it.
    """
    last = read(lake).batch if since else 0  # decoding all of bronze again needs nothing of silver
    if since < last:
        raise IngestError(
            f"The changes of batches 1 to {last} are condensed, so batch {since + 1} cannot be decoded again by "
            f"itself: `{command('rebuild', lake.pipeline.file, '--layer', 'silver')}` decodes all of them, if bronze still "
            "holds their messages."
        )
