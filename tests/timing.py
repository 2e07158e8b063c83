"""Bounds on time that a busy machine does not break."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

PATIENCE = (
    300  # seconds for what ends at once on a quiet machine; what fails a test takes longer, or for ever
)
TRIES = 3  # another process may take the caches, or the processor's boost, once


def seconds(work: Callable[[], object]) -> float:
    """Processor time of one call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def seconds_of_children() -> float:
    """Processor time of the processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def is_within(limit: float, work: Callable[[], object]) -> bool:
    """Whether one of a few calls took less than `limit` seconds of processor time."""
    return any(seconds(work) < limit for _ in range(TRIES))


def until(true: Callable[[], Any]) -> Any:
    """Wait for what another process or thread does; gives what was found true."""
    end = time.monotonic() + PATIENCE
    while not (answer := true()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return answer
