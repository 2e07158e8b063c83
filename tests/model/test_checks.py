"""Random histories through whole runs without Spark: a right mirror has no complaint of a check that it is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingest.quality import key_checks
from tests.model import lakes
from tests.model.checks import CAPTURES
from tests.model.histories import SURE
from tests.unstarted import unstarted


def played(folder: Path, count: int) -> list[str]:
    """What is wrong with some histories or with their checks."""
    feeds = lakes.feeds(CAPTURES, range(count), SURE, "calm 0")
    return [str(wrong) for wrong in lakes.played(unstarted(), feeds, folder)]


@pytest.mark.parametrize("count", [5, pytest.param(12, marks=pytest.mark.slow)])
def test_a_right_mirror_has_no_complaint(count: int, tmp_path: Path) -> None:
    """People switch off alarms that were wrong twice."""
    assert [] == played(tmp_path, count)


def test_a_false_alarm_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that miss a row of every mirror are right about none."""
    count = key_checks.count

    def missing(*given: Any) -> dict[str, Any]:
        passed = count(*given)
        for found in passed.values():
            found.numbers["missing_rows"] = 1
        return passed

    monkeypatch.setattr(key_checks, "count", missing)
    assert "false alarm of missing_rows" in "\n".join(played(tmp_path, 2))
