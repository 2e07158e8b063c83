"""Foreign commits in a mirror: somebody else's RESTORE, DELETE or UPDATE, noticed before anything is folded.

Behind a RESTORE the identifiers in the log would skip batches for ever, so such a mirror is held until it
is rebuilt, which makes the newest commit ours again.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from ingest.errors import HeldError
from ingest.lake import log


def refuse_foreign(spark: SparkSession, path: str, version: int, name: str) -> None:
    """Look at the commits since our last batch, as a rule at that one alone.

    Raises:
        HeldError: one of them changed rows and is not ours.
    """
    for number in range(version, -1, -1):
        try:
            actions = log.actions(spark, path, number)
        except Py4JJavaError:  # older than the log goes back
            return
        metadata = log.metadata_of(actions)
        if "batch" in metadata:
            return
        if "run" not in metadata and any(map(_changes_rows, actions)):
            raise HeldError(
                f"version {number} of {name} was not written by this pipeline ({_operation(actions)}), so what "
                "it holds is no longer the fold of its changes: `ingest rebuild` makes it so again."
            )


def _changes_rows(action: dict[str, Any]) -> bool:
    """True for files that come or go with their rows; OPTIMIZE and VACUUM move rows, they change none."""
    return any(action.get(kind, {}).get("dataChange", False) for kind in ("add", "remove"))


def _operation(actions: list[dict[str, Any]]) -> str:
    found: dict[str, Any] = next((one["commitInfo"] for one in actions if "commitInfo" in one), {})
    return str(found.get("operation", "an unknown operation"))
