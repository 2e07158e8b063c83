"""What the checks measured of a whole lake, batch by batch, for the charts of its page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingest.quality.report_model import TREND

if TYPE_CHECKING:
    from ingest.tables.tables import Tables


@dataclass(frozen=True, slots=True)
class BatchTrend:
    """One batch over all mirrors; None where no mirror was checked for it.

    Args:
        batch: its number.
        rows: in all mirrors after it; a mirror that it did not touch has as many as before.
        lag: seconds, of the slowest mirror that it touched, when that was checked.
        cells: rejected cells.
        proven: the share of its changes with an image before that found the row which it describes, from 0 to 1.
    """

    batch: int
    rows: float
    lag: float | None
    cells: float
    proven: float | None


def of_batches(lake: Tables) -> list[BatchTrend]:
    """The last batches, the oldest first."""
    rows = lake.ask(
        f"""WITH newest AS (SELECT batch, mirror, "check" AS name, observed FROM {{checks}}
            WHERE mirror IS NOT NULL AND batch IS NOT NULL AND "check" IN ('rows', 'freshness', 'cell_rejects', 'changes_compared', 'changes_proven')
            QUALIFY row_number() OVER (PARTITION BY batch, mirror, "check", "column" ORDER BY checked_at DESC) = 1),
        grown AS (SELECT *, CASE WHEN name = 'rows' THEN observed - coalesce(lag(observed) OVER
            (PARTITION BY mirror, name ORDER BY batch), 0) END AS more FROM newest)
        SELECT batch, sum(sum(more)) OVER (ORDER BY batch) AS n, max(observed) FILTER (name = 'freshness') AS lag,
            coalesce(sum(observed) FILTER (name = 'cell_rejects'), 0) AS cells, sum(observed) FILTER (name = 'changes_proven') / nullif(sum(observed) FILTER (name = 'changes_compared'), 0) AS proven
        FROM grown GROUP BY batch ORDER BY batch DESC LIMIT {TREND}"""
    )
    return [
        BatchTrend(row["batch"], row["n"] or 0.0, row["lag"], row["cells"], row["proven"])
        for row in reversed(rows)
    ]
