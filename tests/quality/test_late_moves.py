"""Late changes of rows whose key changed earlier: the rows of both keys are what the changes give."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.config.model import TableRule
from ingest.run import Warm
from tests.gold.depot import Depot
from tests.unstarted import unstarted


@pytest.mark.parametrize("moved", [80, 100], ids=["before", "after"])
@pytest.mark.parametrize("late", ["UPDATE", "INSERT", "DELETE"])
def test_a_key_that_a_row_left_before_is_not_missed(tmp_path: Path, late: str, moved: int) -> None:
    """The older changes are read again for the late one, and an UPDATE that left a key made it a live one: exit 1."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*"))
    depot.row(at=1, id="1", n="1").row(at=2, id="2", n="2")
    assert ("done", "") == depot.run(checked=True)
    depot.row("UPDATE", {"n": "1"}, at=moved - 5, id="1", n="5")
    depot.row("UPDATE", {"id": "1"}, at=moved, id="72", n="5").row(at=101, id="4", n="4")
    assert ("done", "") == depot.run(checked=True)
    match late:
        case "UPDATE":
            depot.row("UPDATE", {"n": "2"}, at=90, id="2", n="9")
        case "INSERT":
            depot.row(at=90, id="3", n="9")
        case _:
            depot.row("DELETE", at=90, id="2", n="2")
    assert ("done", "") == depot.run(checked=True)
    assert [] == depot.lake().ask("SELECT \"check\", detail FROM {checks} WHERE state = 'fail'")
