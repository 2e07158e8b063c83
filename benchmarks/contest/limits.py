"""A section's time: what is not done when it is over is ended with all that it started, and the run goes on."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import psutil

_LEAST = 0.001  # seconds; a timer of none would be none


class Late(BaseException):
    """A section's time is over; no `Exception`, so that it is not taken for a contestant's error."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """End what is done meanwhile after so many seconds; one limit within another ends by the earlier one.

    Raises:
        Late: it was not done by then; all processes that this one had started are gone.
    """
    began, left = time.monotonic(), signal.getitimer(signal.ITIMER_REAL)[0]
    outer = signal.signal(signal.SIGALRM, _end)
    signal.setitimer(signal.ITIMER_REAL, max(min(seconds, left or seconds), _LEAST))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, outer)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), _LEAST))


def _end(_signal: int, _frame: FrameType | None) -> None:
    for process in reversed(psutil.Process().children(recursive=True)):
        with suppress(psutil.Error):
            process.kill()
    raise Late
