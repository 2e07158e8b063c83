"""Threads that write to a database until a block ends."""

from __future__ import annotations

import threading
import time
from typing import Self


class Writing:
    """Threads that write transactions; ``turns`` counts those of each that are over."""

    def __init__(self, threads: int) -> None:
        self.stop, self.turns = threading.Event(), [0] * threads
        self.threads = [threading.Thread(target=self._write, args=(number,)) for number in range(threads)]

    def _write(self, number: int) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def end_a_turn(self, patience: float) -> None:
        """Wait, for so many seconds, until each has ended the transaction that it is in."""
        before, until = list(self.turns), time.monotonic() + patience
        while not self.stop.is_set() and any(map(int.__eq__, before, self.turns)):
            assert time.monotonic() < until
            time.sleep(0.01)
