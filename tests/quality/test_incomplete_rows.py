"""Rows that an update has begun: known as a whole only if the update shows that it was sent whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingest.config.model import TableRule
from ingest.quality.key_sides import Side
from tests.quality.plain_keys import by_duckdb, by_plain_fold
from tests.shops import Shops

RULE = TableRule(
    match="*", keys=("id",), columns={"id": "int64", "a": "string", "b": "string", "~/'": "string"}
)
WHOLE = {"id": 1, "a": "new", "b": None, "~/'": "z"}
FIRST = {"id": 9, "a": "x", "b": "y", "~/'": "z"}


def maxwell(op: str, row: dict[str, object], old: dict[str, object] | None, xid: int) -> str:
    """One of Maxwell's messages."""
    place = {"database": "cut", "table": "t", "ts": 1718000000 + xid, "xid": xid}
    return json.dumps({**place, "type": op, "data": row, **({} if old is None else {"old": old})})


CASES = {
    "all columns, of which one was changed": ([(WHOLE, {"a": "old"})], 0),
    "the key and what was changed": ([({"id": 1, "a": "new"}, {"a": "old"})], 1),
    "all columns, but no word of what was changed": ([(WHOLE, {})], 1),
    "all columns, and all were changed": ([(WHOLE, {"a": "o", "b": "o", "~/'": "o"})], 1),
    "first in part, then whole": ([({"id": 1, "a": "new"}, {"a": "old"}), (WHOLE, {"a": "older"})], 0),
}


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_a_stream_that_begins_in_the_middle(tmp_path: Path, case: str, batches: int) -> None:
    """Whoever begins without a load would get a failing run for each row that is right, or a green one over NULLs."""
    updates, incomplete = CASES[case]
    mine = Shops(tmp_path, RULE, dialect="maxwell", stages=("bronze", "silver", "gold", "quality"))
    mine.lines = [maxwell("insert", FIRST, None, 1)]
    if batches == 2:
        mine.number += 1
        assert ("done", "") == mine.run()
    mine.lines += [maxwell("update", row, old, xid) for xid, (row, old) in enumerate(updates, 2)]
    mine.number += 1
    assert ("done", "") == mine.run()
    side = Side(mine.lake, mine.subject(0), 0, 0)
    counted = by_duckdb(mine.lake, [side])[0]
    assert by_plain_fold(mine.lake, side) == counted
    assert incomplete == counted["incomplete_rows"]
    failed = mine.lake.ask("SELECT DISTINCT \"check\" FROM {checks} WHERE state = 'fail'")
    assert ([{"check": "incomplete_rows"}] if incomplete else []) == failed, "by the checks of the run"
