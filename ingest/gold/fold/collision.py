"""A key that two of the tables have which feed one mirror: without a shard column it can hold one row of the two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ingest.change import TableId
from ingest.config import TableRule
from ingest.errors import FaultError, HeldError, fault_of


class CollisionError(FaultError):
    """Raised for a row that two tables have; its fault is input of `refuse`."""

    def __init__(self, key: Mapping[str, str], tables: Sequence[str]) -> None:
        super().__init__("two tables have a row of one key", {"key": dict(key), "tables": list(tables)})


def refuse(error: str, mirror: TableId, rule: TableRule) -> None:
    """Hold the mirror if an error, or what a task reports, is that of a row in two tables.

    Raises:
        HeldError: it is; the text names the ways out.
    """
    fault = fault_of(error, CollisionError)
    if fault is None:
        return
    key, tables = fault.facts["key"], fault.facts["tables"]
    row = ", ".join(f"{name} = {text}" for name, text in key.items())
    raise HeldError(
        f"{mirror} merges tables by their key alone, and {' and '.join(sorted(tables))} both have a row with {row}: if it "
        "moves from one to the other, its delete is still on its way, and the run that reads it continues by itself. If "
        "not, delete one of the two rows at the source, or tell the tables' rows apart: write `shard_column: shard` (or "
        f"another name) into the entry `match: {rule.match}`, then run again."
    ) from None
