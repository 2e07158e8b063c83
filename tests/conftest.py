"""What tests of several folders share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--bless`` writes what golden tests expect; read the difference before committing it."""
    parser.addoption("--bless", action="store_true", help="write expected files that are missing or differ")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for all tests that ask for it, started by the first."""
    from ingest.lake.session import session, stop

    started = session("tests", master="local[2]")
    yield started
    stop(started)
