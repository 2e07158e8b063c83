"""The real parts that end-to-end tests share, each started by the first test that asks for it."""

from __future__ import annotations

import importlib.util
import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e import chromium
from tests.e2e.broker import Broker
from tests.e2e.databases import Database
from tests.e2e.feed import say
from tests.e2e.registry import Registry
from tests.e2e.services import Missing
from tests.e2e.store import Store
from tests.e2e.topics import Topics


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test of this folder: what `make test` installs does not serve them."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("e2e")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running Kafka broker; without its jars the test is skipped."""
    pytest.importorskip("confluent_kafka", reason="pip install -e '.[e2e]' brings the Kafka client")
    try:
        with Broker(Path(tmp_path_factory.mktemp("kafka"))) as running:
            yield running
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A running store; without its package the test is skipped."""
    try:
        with Store(tmp_path_factory.mktemp("store")) as running:
            yield running
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def topics(broker: Broker) -> Topics:
    """Makes, fills, trims and deletes topics."""
    return Topics(broker.address)


@pytest.fixture
def registry() -> Iterator[Registry]:
    """A schema registry on loopback."""
    with Registry() as running:
        yield running


@pytest.fixture
def seed() -> int:
    """A history's seed, printed so that a failure can be repeated."""
    found = int(os.environ.get("INGEST_SEED") or random.randrange(10**6))
    say(f"INGEST_SEED={found}")
    return found


@pytest.fixture
def started() -> Iterator[Callable[[Database, str], Database]]:
    """Starts a database, or skips the test where its packages or its client are missing."""
    with ExitStack() as running:

        def start(node: Database, client: str) -> Database:
            if importlib.util.find_spec(client) is None:
                pytest.skip("pip install -e '.[e2e]' brings the databases' clients")
            try:
                return running.enter_context(node)
            except Missing as missing:
                pytest.skip(str(missing))

        yield start


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    """One browser for all views of a file."""
    with chromium.Browser(tmp_path_factory.mktemp("profile")) as running:
        yield running
