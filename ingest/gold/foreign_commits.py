"""Detect foreign commits in a mirror (RESTORE, DELETE or UPDATE by others) before anything is folded.

After a RESTORE the identifiers in the log would skip batches forever, so such a mirror is held until it is rebuilt,
which makes the newest commit ours again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ingest.errors import HeldError, command
from ingest.lake.delta import foreign_operation, metadata_of
from ingest.lake.mirrors import Mirror
from ingest.lake.tables import Tables

if TYPE_CHECKING:
    from ingest.lake.lake import Lake


def refuse_past(lake: Lake, mirror: Mirror, version: int, applied: int, last: int) -> None:
    """Check a mirror's commits so far.

    Args:
        lake: the lake.
        mirror: the mirror.
        version: its newest version.
        applied: the last batch that it has folded.
        last: the last batch that the lake has decoded.

    Raises:
        HeldError: a foreign commit changed its rows, or it holds batches that the lake does not have.
    """
    ours = last_batch(lake, mirror, version)
    past = applied > last
    if ours.get("landed") and ours["batch"] == applied <= last:
        past = lake.landed_by(applied) not in (None, ours["landed"])
    if past:
        again = command("rebuild", lake.pipeline.file, mirror.name)
        raise HeldError(
            f"{mirror.name} has folded a batch {applied} which is not the lake's: the lake was restored from a "
            f"backup without its mirrors. `{again}` folds it from what the lake holds now.",
            again,
        )


def last_batch(lake: Tables, mirror: Mirror, version: int) -> dict[str, Any]:
    """The metadata of our last batch's commit, usually the newest one; empty if the log has none.

    Raises:
        HeldError: a later commit changed rows and is not ours.
    """
    for number in range(version, -1, -1):
        actions = lake.actions(mirror.path, number)
        if not actions:  # older than the log
            return {}
        metadata = metadata_of(actions)
        if "batch" in metadata:
            if "after" in metadata:
                refuse_between(lake, mirror, metadata["after"], number)
            return metadata
        _refuse(lake, mirror, number, actions)
    return {}


def refuse_between(lake: Tables, mirror: Mirror, planned: int, committed: int) -> None:
    """Check what came between a batch's plan and its commit: a MERGE takes whatever rows it meets.

    Args:
        lake: the lake.
        mirror: the mirror.
        planned: the version for which the batch was planned.
        committed: the version that the batch's commit became.

    Raises:
        HeldError: a foreign commit changed its rows.
    """
    for number in range(planned + 1, committed):
        _refuse(lake, mirror, number, lake.actions(mirror.path, number))


def _refuse(lake: Tables, mirror: Mirror, version: int, actions: list[dict[str, Any]]) -> None:
    """Refuse a commit that changed rows and is not ours."""
    what = foreign_operation(actions)
    if not what:
        return
    typed = command("rebuild", lake.pipeline.file, mirror.name)
    raise HeldError(
        f"version {version} of {mirror.name} was not written by this pipeline ({what}), so what "
        f"it holds is no longer the fold of its changes: `{typed}` makes it so again.",
        typed,
    )
