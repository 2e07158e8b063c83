"""What several tests of bronze share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bronze.feed import Feed


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    """A folder of line files that settle after an hour."""
    return Feed(tmp_path)
