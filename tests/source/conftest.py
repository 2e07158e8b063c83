"""Tables to read and to compare."""

from __future__ import annotations

from pathlib import Path

import oracledb
import pytds
import pytest

from ingest.source import oracle, sqlserver
from tests.source.bins import Bins, in_place_of_a_source
from tests.source.far import Shop


@pytest.fixture(params=[oracle, sqlserver], ids=["oracle", "sqlserver"])
def shop(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """One of each."""
    shop = Shop(tmp_path, request.param)
    monkeypatch.setattr(oracledb if shop.oracle else pytds, "connect", shop.server.connect)
    return shop


@pytest.fixture
def bins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bins:
    """A table whose mirror is not written yet."""
    return in_place_of_a_source(tmp_path, monkeypatch)
