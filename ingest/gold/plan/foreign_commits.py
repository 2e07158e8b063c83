"""Detect foreign commits in a mirror (RESTORE, DELETE or UPDATE by others) before anything is folded.

After a RESTORE the identifiers in the log would skip batches forever, so such a mirror is held until it is rebuilt,
which makes the newest commit ours again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ingest.errors import HeldError, command
from ingest.ledgers import histories
from ingest.ledgers.mirrors import Mirror
from ingest.tables.delta import committed_at, foreign_operation, metadata_of
from ingest.tables.tables import Tables

if TYPE_CHECKING:
    from ingest.tables.lake import Lake


Actions = list[dict[str, Any]]
"""The actions of one commit of a table's log."""


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
        again = command("rebuild", lake.pipeline.file, histories.mirror_name(mirror))
        raise HeldError(
            f"{mirror.name} has folded a batch {applied} which is not the lake's: the lake was restored from a "
            f"backup without its mirrors. `{again}` folds it from what the lake holds now.",
            again,
        )


def last_batch(lake: Tables, mirror: Mirror, version: int, newest: Actions | None = None) -> dict[str, Any]:
    """The metadata of our last batch's commit, usually the newest one; empty if the log has none.

    Args:
        lake: the lake.
        mirror: the mirror, or the table of its old states.
        version: its newest version.
        newest: the actions of that version, if they have been read.

    Raises:
        HeldError: a later commit changed rows and is not ours.
    """
    for number in range(version, -1, -1):
        actions = newest if newest and number == version else lake.actions(mirror.path, number)
        if not actions:  # older than the log
            return {}
        metadata = metadata_of(actions)
        if "batch" in metadata:
            if "after" in metadata:
                refuse_between(lake, mirror, metadata["after"], number)
            return metadata
        _refuse(lake, mirror, number, actions)
    return {}


def newest_foreign(
    lake: Tables, mirror: Mirror, version: int, newest: Actions | None = None
) -> HeldError | None:
    """Who else has changed a mirror's rows since our last batch; looked up once for each version. Arguments as of `last_batch`."""

    def look() -> HeldError | None:
        try:
            last_batch(lake, mirror, version, newest)
        except HeldError as error:
            return error
        return None

    return lake.made_once(f"{mirror.path}/foreign", (version, mirror.generation), look)


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


def _refuse(lake: Tables, mirror: Mirror, version: int, actions: Actions) -> None:
    """Refuse a commit that changed rows and is not ours."""
    what = foreign_operation(actions)
    if not what:
        return
    typed = command("rebuild", lake.pipeline.file, histories.mirror_name(mirror))
    raise HeldError(
        f"version {version} of {mirror.name} was not written by this pipeline ({what}), so what "
        f"it holds is no longer the fold of its changes: `{typed}` makes it so again.",
        typed,
        committed_at(actions),
    )
