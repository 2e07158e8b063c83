"""Hold a mirror when a late key change needs history that compaction of silver has removed.

A key change that does not carry the whole row inherits the old key's values of that moment. If it arrives so late that
they may have been condensed away (`ingest.silver.condense`), they are lost.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import functions as F

from ingest.errors import HeldError, command
from ingest.gold.gather import of_lane
from ingest.gold.lane import Lane
from ingest.lake import condensed
from ingest.lake.images import image
from ingest.lake.keys import key_texts, moves
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Mirror
from ingest.lake.schemas import CHANGES


def refuse(lake: Lake, mirror: Mirror, lanes: Iterable[Lane]) -> None:
    """Look for such changes in the few lanes that ever had key changes without the whole row.

    Raises:
        HeldError: there is one.
    """
    asking = [lane for lane in lanes if lane.inherits_ever]
    known = condensed.read(lake) if asking and mirror.keys else condensed.Condensed()
    silver = command("rebuild", lake.pipeline.file, "--layer", "silver")
    for lane in asking:
        floor = known.floors.get((lane.source, lane.table))
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


def _asks(lake: Lake, mirror: Mirror, lane: Lane, floor: str) -> bool:
    rows = of_lane(lake.read(CHANGES.name), lane).where(F.col("partial") & (F.col("order_key") <= floor))
    parsed = rows.where(F.col("before").isNotNull()).withColumns(
        {side: image(name, mirror.keys) for side, name in (("a", "after"), ("b", "before"))}
    )
    return not parsed.where(moves(*key_texts(mirror.keys))).isEmpty()
