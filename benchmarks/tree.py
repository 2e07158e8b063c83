"""What a process and all that it has started use: memory, processor time.

Memory is the resident size; of small processes the proportional one (each shared page counted once), where the system
reports it: Spark's Python workers share most of theirs, and of a large process it would take too long.  A child that is
about to become another program borrows its parent's memory until then, and counts nothing.  Processor time
includes processes that have ended and were waited for.
"""

from __future__ import annotations

import threading
from contextlib import suppress

import psutil

EVERY = 0.2  # seconds between two looks at the memory
LARGE = 256 * 2**20  # bytes


def tree(root: psutil.Process) -> list[psutil.Process]:
    """A process and its descendants; none if it has ended."""
    with suppress(psutil.Error):
        return [root, *root.children(recursive=True)]
    return []


def memory(root: psutil.Process) -> int:
    """Bytes that a tree holds."""
    return sum(map(_held, tree(root)))


def cpu(root: psutil.Process, *without: psutil.Process) -> float:
    """Seconds that a tree has computed, but for the subtrees ``without``."""
    others = {one.pid for other in without for one in tree(other)}
    total = 0.0
    for one in tree(root):
        with suppress(psutil.Error):
            if one.pid not in others:
                total += sum(one.cpu_times()[:4])  # its own and those of children that it has waited for
    return total


class Watch:
    """A thread that looks at a tree's memory again and again."""

    def __init__(self, root: psutil.Process) -> None:
        self.root = root
        self.peak = 0  # bytes
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(EVERY):
            self.peak = max(self.peak, memory(self.root))

    def reset(self) -> None:
        """Forget the peak: a step begins."""
        self.peak = memory(self.root)

    def stop(self) -> int:
        """No more looking; the peak."""
        self._over.set()
        self._thread.join()
        return self.peak


def _held(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        resident = int(process.memory_info().rss)
        if resident <= LARGE:
            return _proportional(process.pid, resident)
        return 0 if _borrowed(process, resident) else resident
    return 0


def _borrowed(process: psutil.Process, resident: int) -> bool:
    """True of a copy of its parent: Java starts ``chmod`` so, and would seem to need twice its memory each time."""
    with suppress(psutil.Error):
        parent = process.parent()
        if parent is not None and process.cmdline() == parent.cmdline():
            return abs(int(parent.memory_info().rss) - resident) < resident // 50
    return False


def _proportional(pid: int, resident: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return resident
