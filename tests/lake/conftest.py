"""What several tests of the lake share."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from ingest.tables.lake import Lake
from tests.lake.sealed import DAY


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the day on which lakes are written."""

    def on(days: int) -> None:
        monkeypatch.setattr(Lake, "now", lambda _lake: DAY + dt.timedelta(days=days))

    on(0)
    return on
