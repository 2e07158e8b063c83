"""Signals that come while Java starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark import java_gateway

from ingest.spark import session
from tests.timing import PATIENCE

_SAYS = "import signal; print(signal.getsignal(signal.SIGTERM) == signal.SIG_IGN, signal.getsignal(signal.SIGINT) == signal.SIG_IGN)"


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """The signals that this process's handler has met."""
    met: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: met.append(number))
    yield met
    signal.signal(signal.SIGTERM, before)


def test_a_request_to_stop_is_kept_while_java_starts(heard: list[int]) -> None:
    """A process that forgets it goes on until the operator's patience, or the grace period, ends it by force."""

    def ignores_interrupts() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as PySpark has it

    gateway: Any = java_gateway
    start = gateway.Popen
    with session._java_ignores(signal.SIGTERM):
        os.kill(os.getpid(), signal.SIGTERM)
        java = gateway.Popen(
            [sys.executable, "-c", _SAYS], preexec_fn=ignores_interrupts, stdout=subprocess.PIPE
        )
        said, _ = java.communicate(timeout=PATIENCE)
        os.kill(os.getpid(), signal.SIGTERM)
    assert b"True True" == said.strip()  # Java itself ends with Python, not by the signal
    assert [signal.SIGTERM] * 2 == heard
    assert start is gateway.Popen
