"""What emptied a source table last: its last TRUNCATE, or the statement by which a new table began."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ingest.change import LaneId
from ingest.fold import SchemaStep
from ingest.tables import duck
from ingest.tables.tables import Tables


class Cleared(NamedTuple):
    """Where in history a lane was emptied, and the batch that brought this."""

    place: str  # an order key
    batch: int


NEVER = Cleared("", 0)


def last_truncate(lake: Tables, lane: LaneId, until: int, among: str = "true") -> Cleared | None:
    """The last TRUNCATE of a lane in the batches up to ``until``; ``among`` is a condition in SQL that it must meet."""
    truncates = lake.ask(
        f"SELECT order_key, batch FROM {{changes.change}} WHERE op = 'truncate' AND ({among}) "
        f"AND batch <= {until} AND {duck.of_lane(*lane)} ORDER BY order_key DESC, batch DESC LIMIT 1"
    )
    return Cleared(truncates[0]["order_key"], truncates[0]["batch"]) if truncates else None


def last_cleared(
    lake: Tables, lane: LaneId, steps: Iterable[tuple[SchemaStep, int]], until: int, before: str = ""
) -> Cleared | None:
    """What emptied a lane last in the batches up to ``until``: a mirror that has folded them holds no older row.

    Args:
        lake: the lake.
        lane: the source and its table.
        steps: the lane's schema steps, each with its batch.
        until: the last batch that the mirror has folded; later ones have not emptied it yet.
        before: only what comes before this place counts; empty for all.
    """
    emptied = (Cleared(str(step.order), batch) for step, batch in steps if step.empties and batch <= until)
    began = [cleared for cleared in emptied if not before or cleared.place < before]
    truncated = last_truncate(lake, lane, until, f"order_key < {duck.text(before)}" if before else "true")
    return max([*began, *([truncated] if truncated else [])], default=None)
