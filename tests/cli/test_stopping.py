"""Requests to stop, as signal handlers make them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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


SLOW = """
import sys, tempfile, threading, time
from ingest.cli import app
def slow(*_):
    with tempfile.TemporaryDirectory(prefix="slow-") as folder:
        if sys.argv[1] == "waits":
            threading.Thread(target=time.sleep, args=(600,)).start()
        print(folder, flush=True)
        time.sleep(600)
app.Verbs.invoke = slow
app.GRACE_SECONDS = float(sys.argv.pop(1))
app.main()
"""


@pytest.mark.parametrize("thread", ["none", "waits"])
def test_a_verb_that_is_to_end_leaves_no_temporary_folder(thread: str) -> None:
    """A comparison has the keys of a whole mirror in one, which no erasure looks into; and no thread may hold the process."""

    def is_tidy(grace: float) -> bool:
        command = [sys.executable, "-c", SLOW, str(grace), thread]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            folder = Path(running.stdout.readline().strip())
            assert folder.is_dir()
            running.terminate()
            assert 128 + signal.SIGTERM == running.wait(PATIENCE)
        return not folder.exists()

    assert any(is_tidy(grace) for grace in (0.5, 5.0, 50.0)), "a busy machine may take the time to tidy up"
