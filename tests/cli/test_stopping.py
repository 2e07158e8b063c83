"""Requests to stop, as signal handlers make them."""

from __future__ import annotations

import subprocess
import sys
import time

from ingest.cli.stopping import StopRequest
from tests.timing import PATIENCE

STORM = """
import signal, time
from ingest.cli.stopping import StopRequest
end = time.monotonic() + 1
stop = StopRequest()
signal.signal(signal.SIGALRM, lambda *_: stop.set())
signal.setitimer(signal.ITIMER_REAL, 5e-5, 5e-5)
while time.monotonic() < end:
    stop = StopRequest()
    stop.wait(0.001)
    stop.set()
signal.setitimer(signal.ITIMER_REAL, 0)
"""


def test_a_signal_may_come_at_any_moment() -> None:
    """Two signals within a moment, by a supervisor or an impatient finger, must not keep a process from ending."""
    assert 0 == subprocess.run([sys.executable, "-c", STORM], timeout=PATIENCE, check=False).returncode


def test_a_request_ends_waiting() -> None:
    """A pause of an hour must not last an hour after Ctrl-C."""
    stop = StopRequest()
    stop.wait(0.0)
    assert not stop.is_set()
    stop.set()
    began = time.monotonic()
    stop.wait(2 * PATIENCE)
    assert stop.is_set()
    assert time.monotonic() - began < PATIENCE
