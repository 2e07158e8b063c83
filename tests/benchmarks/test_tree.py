"""What the benchmarks call memory."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import psutil

from benchmarks.tree import LARGE, memory


def process(words: list[str], size: int, parent: Any = None) -> Any:
    """A process that looks like one, and becomes its parent's child."""
    one = Namespace(
        pid=0, parent=lambda: parent, cmdline=lambda: words, memory_info=lambda: Namespace(rss=size), below=[]
    )
    one.children = lambda recursive: one.below
    if parent is not None:
        parent.below.append(one)
    return one


def test_a_copy_on_its_way_to_another_program_needs_no_memory() -> None:
    """Java would seem to hold twice its memory whenever it starts a small command."""
    java = process(["java"], 4 * LARGE)
    process(["java"], 4 * LARGE, java)
    assert 4 * LARGE == memory(java)


def test_large_children_count() -> None:
    """Half of what a contestant needs would be hidden."""
    python = process(["python"], 2 * LARGE)
    process(["java"], 2 * LARGE, python)
    process(["python"], 3 * LARGE, python)
    assert 7 * LARGE == memory(python)


def test_a_process_that_has_ended_needs_no_memory() -> None:
    """A measurement would end with its last process."""
    one = process(["java"], 0)

    def gone() -> None:
        raise psutil.NoSuchProcess(0)

    one.memory_info = gone
    assert 0 == memory(one)
