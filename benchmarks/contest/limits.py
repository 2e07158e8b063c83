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


class _End:
    """Ends all that was started since the outermost limit began; what was there before, as the Java of a session, others use."""

    def __init__(self) -> None:
        self._before = set(psutil.Process().children(recursive=True))

    def __call__(self, _signal: int, _frame: FrameType | None) -> None:
        for process in reversed(psutil.Process().children(recursive=True)):
            with suppress(psutil.Error):
                if process not in self._before:
                    process.kill()
        raise Late


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """End what is done meanwhile after so many seconds; one limit within another ends by the earlier one.

    Raises:
        Late: it was not done by then; all processes that this one has started meanwhile are gone.
    """
    began, left = time.monotonic(), signal.getitimer(signal.ITIMER_REAL)[0]
    outer = signal.getsignal(signal.SIGALRM)
    signal.signal(signal.SIGALRM, outer if isinstance(outer, _End) else _End())
    signal.setitimer(signal.ITIMER_REAL, max(min(seconds, left or seconds), _LEAST))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, outer)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), _LEAST))
