"""Bounds on processor time that a busy machine does not break."""

from __future__ import annotations

import time
from collections.abc import Callable

TRIES = 3  # another process may take the caches, or the processor's boost, once


def seconds(work: Callable[[], object]) -> float:
    """Processor time of one call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def is_within(limit: float, work: Callable[[], object]) -> bool:
    """Whether one of a few calls took less than `limit` seconds of processor time."""
    return any(seconds(work) < limit for _ in range(TRIES))
