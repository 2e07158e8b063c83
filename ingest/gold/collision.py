"""A key that two of the tables have which feed one mirror: without a shard column it can hold one row of the two."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ingest.change import TableId
from ingest.config import TableRule
from ingest.errors import HeldError

MARK = "two tables have a row of the key "


class CollisionError(Exception):
    """Raised for a row that two tables have; its text, in Spark's errors too, is input of `refuse`."""

    def __init__(self, key: Mapping[str, str], tables: Sequence[str]) -> None:
        super().__init__(MARK + json.dumps([dict(key), list(tables)], ensure_ascii=False))


def refuse(error: str, mirror: TableId, rule: TableRule) -> None:
    """Hold the mirror if an error's text is that of a row in two tables.

    Raises:
        HeldError: it is; the text names the ways out.
    """
    _, found, rest = error.partition(MARK)
    if not found:
        return
    (key, tables), _ = json.JSONDecoder().raw_decode(rest)
    row = ", ".join(f"{name} = {text}" for name, text in key.items())
    raise HeldError(
        f"{mirror} merges tables by their key alone, and {' and '.join(sorted(tables))} both have a row with {row}: if it "
        "moves from one to the other, its delete is still on its way, and the run that reads it continues by itself. If "
        "not, delete one of the two rows at the source, or tell the tables' rows apart: write `shard_column: shard` (or "
        f"another name) into the entry `match: {rule.match}`, then run again."
    ) from None
