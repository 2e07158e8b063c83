"""How a mirror's outcomes get into its table: by files that this product commits, or by Delta's own MERGE, and why.

`apply:` in the pipeline file, or in a table's entry, chooses: ``files``, ``merge``, or ``auto``, files where they can be.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ingest.config import Pipeline, TableRule
from ingest.config.model import AUTO, FILES, MERGE
from ingest.errors import HeldError, command
from ingest.tables import commits, delta
from ingest.tables.delta import Snapshot

if TYPE_CHECKING:
    from ingest.ledgers.mirrors import Mirror

_WRITES = frozenset({"deletionVectors", "timestampNtz", "invariants", "appendOnly", "vacuumProtocolCheck"})
# writer protocol versions: those in between do not say which features a table uses
_PLAIN, _FEATURES = (2, 7)


def asked(pipeline: Pipeline, rule: TableRule) -> str:
    """What the pipeline file says of a mirror: ``auto``, ``files`` or ``merge``."""
    return rule.apply or pipeline.apply


def why_merge(pipeline: Pipeline, rule: TableRule, before: Snapshot, large: str) -> str:
    """Why a MERGE applies a mirror's outcomes; empty if files do.

    Args:
        pipeline: with the lake's folder.
        rule: the mirror's.
        before: its table.
        large: why its files may be neither rewritten nor marked; it does not count where files are asked for.
    """
    chosen = asked(pipeline, rule)
    if chosen == MERGE:
        return f"apply is {MERGE}"
    return why_no_files(pipeline, rule, before) or (large if chosen == AUTO else "")


def why_no_files(pipeline: Pipeline, rule: TableRule, before: Snapshot) -> str:
    """Why no files can be committed to a mirror's table without Spark; empty if they can."""
    if rule.change_feed:
        return "it has a change feed"
    return out_of_reach(pipeline) or (unwritable(before) if before.exists else "")


def out_of_reach(pipeline: Pipeline) -> str:
    """Why only Spark reads a lake, as far as that is known without writing; empty if Arrow reads it, too."""
    return "" if commits.within_reach(pipeline.lake) else commits.why_no_commits(pipeline.lake)


def refuse_files(pipeline: Pipeline, rule: TableRule, mirror: Mirror, why: str) -> None:
    """Refuse what the pipeline file asks for and cannot be; ``why`` is empty if it can.

    Raises:
        HeldError: it says ``apply: files`` about a table that only a MERGE may write.
    """
    if why and asked(pipeline, rule) == FILES:
        raise HeldError(
            f"{mirror.name} can only be written by Delta's MERGE, because {why}: write `apply: {MERGE}` or "
            f"`apply: {AUTO}` for it instead of `apply: {FILES}`, then `{command('run', pipeline.file)}`."
        )


def unwritable(before: Snapshot) -> str:
    """Why only Delta may write a table, by its log; empty if files can be committed to it."""
    protocol, settings = before.protocol, before.configuration
    if not protocol:
        return "only Spark can read its log"
    features = {*(protocol.get("writerFeatures") or ()), *(protocol.get("readerFeatures") or ())}
    if more := features - _WRITES:
        return f"its table has the features {', '.join(sorted(more))}"
    version = protocol["minWriterVersion"]
    if _PLAIN < version < _FEATURES or not all(map(_takes_any, fields(before))):
        return "its table has constraints"
    if delta.is_on(settings, delta.CHANGE_FEED) or before.partition_by:
        return "its table has a change feed or partitions"
    if delta.is_on(settings, "delta.appendOnly") or "delta.columnMapping.mode" in settings:
        return "its table is append-only or maps its columns"
    return ""


def fields(before: Snapshot) -> list[dict[str, Any]]:
    """A table's columns as its log describes them."""
    columns: list[dict[str, Any]] = json.loads(before.meta["schemaString"])["fields"]
    return columns


def _takes_any(field: Mapping[str, Any]) -> bool:
    """True for a column that accepts every value of its type."""
    odd = field["metadata"].keys() & {"delta.invariants", "delta.generationExpression"}
    return field["nullable"] and not odd
