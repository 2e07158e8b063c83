"""Sustained load in its short form; `python -m benchmarks.load` is the long one."""

from __future__ import annotations

import pytest

from benchmarks import load

pytestmark = pytest.mark.spark


def test_three_quarters_of_a_minute(spark, broker, tmp_path):
    """What a busy topic brings (a hot key, rare tables, poison, one message of 64 MiB) must all be where it belongs."""
    shape = load.Shape(seconds=45, tables=30, updates=75_000)
    outcome = load.loaded(tmp_path, broker.address, shape)
    print(*load.figures(outcome), sep="\n")  # noqa: T201 - shown by -s
    assert [] == list(load.differences(outcome, spark))
    assert 1 < len(outcome.ticks)
