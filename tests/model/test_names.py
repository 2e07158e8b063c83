"""Histories of tables that get other names again and again, through whole pipelines of all dialects that have statements."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.model.checks import CAPTURES
from tests.model.histories import NAMING
from tests.unstarted import unstarted

COUNT = int(os.environ.get("INGEST_NAMES_HISTORIES", "70"))


@pytest.mark.slow
def test_rows_go_with_their_tables(tmp_path: Path) -> None:
    """A mirror would silently have the rows of another table, or those that its table had under one of its names."""
    from tests.model import lakes

    feeds = lakes.feeds(CAPTURES, range(COUNT), NAMING, os.environ.get("INGEST_SEED", ""))
    wrong = lakes.played(unstarted(), feeds, tmp_path)
    assert "" == "\n".join(map(str, wrong[:3])), f"{len(wrong)} of {COUNT} are wrong"
