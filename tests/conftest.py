"""What tests of several folders share."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.lakes import Example

ROOT = Path(__file__).resolve().parent.parent
settings.register_profile("tests", deadline=None)  # two processes share the machine: a pause is no failure
settings.load_profile("tests")


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


@pytest.fixture(scope="session")
def shops(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Example]:
    """Every example pipeline, run once; two of them in two batches, one of these with plain tables."""
    from ingest.gold import apply
    from tests.lakes import PLAIN, Example

    names = sorted(file.stem for file in (ROOT / "conf").glob("*.yaml"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apply, "REWRITTEN", 0)  # with deletion vectors, which mirrors so small would not get
        return {
            name: Example(
                spark, tmp_path_factory.mktemp(name), name, plain=name == PLAIN, batches=2 if i < 2 else 1
            )
            for i, name in enumerate(names)
        }


@pytest.fixture(autouse=True)
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the tests, by their names, merge with deletion vectors; all mirrors are small here."""
    if "spark" in request.fixturenames and zlib.crc32(request.node.nodeid.encode()) % 2:
        monkeypatch.setattr("ingest.gold.apply.REWRITTEN", 0)
