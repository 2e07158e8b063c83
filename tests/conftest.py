"""What tests of several folders share."""

from __future__ import annotations

import gc
import math
import os
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from ingest.cli.app import UNCOLLECTED
from ingest.tables import duck

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.lakes import Example

# What a terminal or another service's variables say must not change what commands print.
for name in ("FORCE_COLOR", "PY_COLORS", "CLICOLOR_FORCE", "GITHUB_ACTIONS", "LINES"):
    os.environ.pop(name, None)
os.environ["COLUMNS"] = "80"  # as without a terminal

ROOT = Path(__file__).resolve().parent.parent
settings.register_profile("tests", deadline=None)  # processes share the machine: a pause is no failure
settings.load_profile("tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--bless`` writes what golden tests expect; read the difference before committing it."""
    parser.addoption("--bless", action="store_true", help="write expected files that are missing or differ")


def pytest_configure() -> None:
    """Bring nothing to the disk: a run waits for it some thirty times, and no test's lake has to outlive the machine.
    Queries have one thread: the other process has the second core.

    What is brought there, and before what, is asked by tests that put a function of their own in this place.
    """
    os.fsync = lambda _file: None
    duck.one_thread()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Look for no garbage among ten thousand tests that all stay: it takes a quarter of the time to collect them, and
    later again as much. Look for it seldom among the rest, as the command does.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(UNCOLLECTED)
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Read none of the end-to-end tests if they are left out: what they import takes a second in each process."""
    left_out = "not e2e" in config.option.markexpr and collection_path == ROOT / "tests" / "e2e"
    return True if left_out else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test that uses the session: `-m 'not spark'` must start none. Of tests `one_of` many, most are slow."""
    alike = defaultdict(list)
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
        if sampled := item.get_closest_marker("one_of"):
            count, *names = sampled.args
            given: dict[str, object] = item.callspec.params if names else {}  # type: ignore[attr-defined]
            others = repr([value for name, value in given.items() if name not in names])
            alike[item.nodeid.partition("[")[0], count, others].append(item)
    for (_, count, _), cases in alike.items():
        cases.sort(key=lambda case: zlib.crc32(case.nodeid.encode()))  # in an order of no parameter
        for case in cases[math.ceil(len(cases) / count) :]:
            case.add_marker("slow")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for all tests that ask for it, started by the first."""
    from ingest.spark.session import session, stop

    started = session("tests", master="local[2]")
    yield started
    stop(started)


@pytest.fixture(scope="session")
def shops(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Example]:
    """Every example pipeline, run once: two of them in two batches, one of these with deletion vectors, which mirrors so
    small would not get by themselves; one with plain tables; these two end by MERGE.
    """
    from tests.lakes import PLAIN, Example

    examples = {}
    for i, name in enumerate(sorted(file.stem for file in (ROOT / "conf").glob("*.yaml"))):
        by_merge = i == 0 or name == PLAIN
        folder, batches = tmp_path_factory.mktemp(name), 2 if i < 2 else 1
        examples[name] = Example(spark, folder, name, plain=name == PLAIN, batches=batches, by_merge=by_merge)
    return examples


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that cannot start Spark, and has no session of other tests."""

    def session(*_given: object, **_named: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("ingest.spark.session.session", session)
    monkeypatch.setattr("ingest.spark.session._running", lambda: None)


@pytest.fixture(autouse=True)
def every_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests merge, by their names, as a run does by itself, or by Spark, with deletion vectors or without: all mirrors
    are small here.
    """
    if "spark" not in request.fixturenames:
        return
    way = zlib.crc32(request.node.nodeid.encode()) % 4
    if way < 2:
        monkeypatch.setattr("ingest.gold.apply.planner.MOST", -1)
    if way == 0:
        monkeypatch.setattr("ingest.gold.apply.apply_merge.REWRITTEN", 0)
