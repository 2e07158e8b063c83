"""Random histories of a source database, through every dialect, against what the source holds.

``INGEST_SEED=2 pytest tests/model`` draws others; ``INGEST_HISTORIES=20000`` more of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from multiprocessing import get_context
from typing import Any, NamedTuple

import pytest

from tests.model.checks import CAPTURES, Capture, checked, share, sure
from tests.model.histories import ROWS, STEPS, SURE, TYPING

SEED = os.environ.get("INGEST_SEED", "")
COUNT = int(os.environ.get("INGEST_HISTORIES", "200"))
MANY = 20_000


class Open(NamedTuple):
    """A cause that still makes mirrors silently wrong: what to draw to see it, and why it happens."""

    why: str
    steps: Mapping[str, int] = {}
    life: Mapping[str, Any] = {}
    dialect: str = "dts-canal"


OPEN = {
    "one second": Open(
        "a TRUNCATE or DROP within the second of its table's rows",
        {"truncate": 3, "recreate": 3},
        {"hurried": True},
        "oms-default",
    ),
}
"""What is known to go silently wrong."""


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda one: one.name)
def test_no_mirror_is_silently_wrong(capture: Capture) -> None:
    """A mirror that differs from its source without a word is the worst that can happen."""
    wrong = checked(range(-(-COUNT // len(CAPTURES))), capture, sure(capture), SEED)
    assert "" == "\n".join(map(str, wrong[:3]))


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.xfail(reason=OPEN[one].why)) for one in OPEN]
)
def test_open_causes(name: str) -> None:
    """What is known to go wrong; when its cause is gone this fails, and its steps belong among the sure ones."""
    cause = OPEN[name]
    capture = next(one for one in CAPTURES if one.name == cause.dialect)
    wrong = checked(range(100), capture, capture.life({**ROWS, **cause.steps}, **cause.life), SEED)
    assert "" == "\n".join(map(str, wrong[:1]))


def test_every_step_is_drawn() -> None:
    """A step that no test takes would prove nothing."""
    assert set(STEPS) == {*SURE, *(step for cause in OPEN.values() for step in cause.steps)}
    assert set(STEPS) >= TYPING


@pytest.mark.slow
@pytest.mark.xfail(
    reason="rare meetings of statements, such as a filled TIME column and a table that is made again"
)
def test_many_histories() -> None:
    """Rare meetings of steps are met by number alone."""
    with get_context("spawn").Pool(os.cpu_count()) as pool:
        found = pool.map(partial(share, seed=SEED), range(0, MANY, 100), chunksize=1)
    wrong = [one for share in found for one in share]
    assert "" == "\n".join(map(str, wrong[:3])), f"{len(wrong)} of {MANY} are wrong, INGEST_SEED={SEED}"
