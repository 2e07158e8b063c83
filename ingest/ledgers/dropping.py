"""Remove a mirror that the pipeline file gives no more rows, with its history and its change feed."""

from __future__ import annotations

from ingest.errors import IngestError
from ingest.ledgers import decisions, feeds, histories, mirrors
from ingest.ledgers.decisions import DROP, Decision
from ingest.store import stores
from ingest.tables.lake import Lake


def drop(lake: Lake, table: str, reason: str) -> list[str]:
    """Remove a mirror for good; its changes stay in silver and its messages in bronze. Returns the removed tables.

    The decision comes last: after a kill in the middle the mirror is still known, and can be dropped again.

    Raises:
        IngestError: there is no such mirror, or the next run would make it again.
    """
    mirror = mirrors.named(lake, table)
    if mirror.path not in mirrors.unfed(lake):
        raise IngestError(
            f"{table} is not excluded, so the next run would make it again: write "
            f"`{{match: {table}, exclude: true}}` as the first entry of tables: in {lake.pipeline.file}, then drop it."
        )
    paths = (mirror.path, histories.path_of(mirror), feeds.path_of(mirror))
    removed = [path for path in paths if lake.exists(path)]
    for path in removed:
        stores.at(lake.path(path)).remove_folder(lake.path(path))
    decisions.append(
        lake, [Decision(DROP, mirror.path, {"table": table}, reason=reason, by=decisions.user())]
    )
    return removed
