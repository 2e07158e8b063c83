"""Hold a mirror when a late key change needs history that compaction of silver has removed.

A key change that does not carry the whole row inherits the old key's values of that moment. If it arrives so late that
they may have been condensed away (`ingest.silver.condense`), they are lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ingest.errors import HeldError, command
from ingest.fold import may_change_key
from ingest.gold.plan.lane import Lane
from ingest.ledgers import condensed
from ingest.ledgers.mirrors import Mirror
from ingest.tables import duck
from ingest.tables.json_cells import object_in

if TYPE_CHECKING:
    from ingest.tables.tables import Tables


def refuse(lake: Tables, mirror: Mirror, lanes: Iterable[Lane]) -> None:
    """Look for such changes in the few lanes that ever had key changes without the whole row.

    Raises:
        HeldError: there is one.
    """
    asking = [lane for lane in lanes if lane.inherits_ever]
    condensed_lanes = condensed.read(lake) if asking and mirror.keys else condensed.Condensed()
    silver = command("rebuild", lake.pipeline.file, "--layer", "silver")
    for lane in asking:
        floor = condensed_lanes.floors.get((lane.source, lane.table))
        if floor is not None and mirror.soft:
            raise HeldError(
                f"{mirror.name} keeps deleted rows, and their values have been condensed away from the changes of "
                f"{lane.table}: `{silver}` brings them back, if bronze still holds them.",
                silver,
            )
        if floor is not None and _asks(lake, mirror, lane, floor):
            raise HeldError(
                f"a change of a key of {lane.table} came so late that the row it takes along has been condensed "
                f"away: `{silver}` brings it back, if bronze still holds it.",
                silver,
            )


def _asks(lake: Tables, mirror: Mirror, lane: Lane, floor: str) -> bool:
    """True if a change up to a place moves a row, and carries a part of it."""
    of_lane = f"kind = 'change' AND source = {duck.text(lane.source)} AND {duck.of_table(lane.table)}"
    in_part = f"partial AND before IS NOT NULL AND batch <= {lane.last} AND order_key <= {duck.text(floor)}"
    keys = mirror.keys_without(mirror.shard)
    return any(
        may_change_key(json.loads(row["before"]), object_in(row["after"]), keys)
        for row in lake.ask(f"SELECT before, after FROM {{changes}} WHERE {of_lane} AND {in_part}")
    )
