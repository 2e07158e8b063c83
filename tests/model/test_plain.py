"""Random histories of a source database, through every dialect, against what the source holds.

``INGEST_SEED=2 pytest tests/model`` draws others; ``INGEST_HISTORIES=20000`` more of them.
"""

from __future__ import annotations

import os

import pytest

from tests.model.checks import CAPTURES, Capture, checked
from tests.model.histories import ROWS

SEED = os.environ.get("INGEST_SEED", "")
COUNT = int(os.environ.get("INGEST_HISTORIES", "200"))
SURE = {
    **ROWS,
    "truncate": 1,
    "add_column": 3,
    "drop_column": 2,
    "rename_column": 2,
    "change_case": 1,
    "set_default": 1,
    "key_grows": 1,
    "key_widened": 1,
    "rename_table": 1,
    "swap_tables": 1,
    "recreate": 1,
    "nothing": 1,
}
"""The steps of which nothing may go wrong, and how likely each is."""

OPEN = {
    "add_unread": "ADD COLUMN with a default that is no plain literal leaves NULL, and nothing says so",
    "drop_database": "rows from before DROP DATABASE stay when its tables are created again",
    "key_leaves": "rows that are one by the key that was dropped become one row",
    "key_renamed": "rows from before a key column was renamed are rejected",
    "modify": "values that MODIFY writes in another way keep their old text",
    "online_change": "what an online schema tool did to its helper table is not done to the table",
    "rotate": "rows from before RENAME TABLE away and CREATE TABLE stay",
    "several": "a column added under the name that the same statement renames away",
    "swap_names": "two columns that swap names in one statement",
}
"""Steps that still go silently wrong, and why."""


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda one: one.name)
def test_no_mirror_is_silently_wrong(capture: Capture) -> None:
    """A mirror that differs from its source without a word is the worst that can happen."""
    wrong = checked(range(-(-COUNT // len(CAPTURES))), capture, capture.life(SURE), SEED)
    assert "" == "\n".join(map(str, wrong[:3]))


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=pytest.mark.xfail(reason=why)) for step, why in OPEN.items()]
)
def test_open_causes(step: str) -> None:
    """What is known to go wrong; a cause that is gone fails here until its step is among the sure ones."""
    capture = next(one for one in CAPTURES if one.name == "dts-canal")
    wrong = checked(range(100), capture, capture.life({**ROWS, step: 3}), SEED)
    assert "" == "\n".join(map(str, wrong[:3]))
