"""A thread that works beside a block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def beside(
    work: Callable[[threading.Event], object], patience: float | None = None
) -> Iterator[threading.Event]:
    """The event at which the work has to end, which is set at the block's end at the latest.

    The thread is waited for so many seconds; without ``patience`` for as long as it takes.
    """
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,))
    thread.start()
    try:
        yield over
    finally:
        over.set()
        thread.join(patience)
