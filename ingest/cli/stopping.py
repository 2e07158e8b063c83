"""Requests to stop, made by signal handlers."""

from __future__ import annotations

import queue
from contextlib import suppress


class StopRequest:
    """As `threading.Event`, whose lock a signal's handler can meet in the code that it interrupts and wait for forever.

    A `queue.SimpleQueue` may be filled by handlers.
    """

    def __init__(self) -> None:
        self._made = False
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        """Ask to stop."""
        self._made = True
        self._wakes.put(None)

    def is_set(self) -> bool:
        """True once it was asked."""
        return self._made

    def wait(self, seconds: float) -> None:
        """Wait that long, or until it is asked."""
        if not self._made:
            with suppress(queue.Empty):
                self._wakes.get(timeout=seconds)
