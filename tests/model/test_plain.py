"""Random histories of a source database, through every dialect, against what the source holds.

``INGEST_SEED=2 pytest tests/model`` draws others; ``INGEST_HISTORIES=20000`` more of them.
"""

from __future__ import annotations

import os
from multiprocessing import get_context

import pytest

from tests.model.checks import BY_SECOND, CAPTURES, SEEDS, Capture, checked, share, sure
from tests.model.histories import KEYING, STEPS, SURE, TYPING

SEED = os.environ.get("INGEST_SEED", "")
COUNT = int(os.environ.get("INGEST_HISTORIES", "200"))
MANY = 20_000


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda one: one.name)
def test_no_mirror_is_silently_wrong(capture: Capture) -> None:
    """A mirror that silently differs from its source is the worst failure."""
    numbers = range(-(-COUNT // len(CAPTURES)))
    wrong = checked(numbers, capture, sure(capture), SEED, ordered=capture.name in BY_SECOND)
    assert "" == "\n".join(map(str, wrong[:3]))


@pytest.mark.parametrize(
    "capture", [one for one in CAPTURES if one.name in BY_SECOND], ids=lambda one: one.name
)
def test_statements_within_a_second(capture: Capture) -> None:
    """A statement with only a second for its position is ordered by arrival: delivered late, its place is unknown.

    If messages arrive in order, or some are delivered twice, the mirror must be right or reported as in doubt.
    """
    life = capture.life({**SURE, "truncate": 4, "recreate": 3}, hurried=True)
    wrong = checked(range(-(-COUNT // 4)), capture, life, SEED, ordered=True)
    assert "" == "\n".join(map(str, wrong[:3]))


@pytest.mark.one_of(4)
@pytest.mark.parametrize("capture", CAPTURES, ids=lambda one: one.name)
def test_keys_that_go_and_come_back(capture: Capture) -> None:
    """Rows that a key did not tell apart while the table had none would be folded by it, and one of two lost."""
    life = capture.life({**SURE, "key_leaves": 4, "key_returns": 6}, hurried=capture.name not in BY_SECOND)
    wrong = checked(range(20), capture, life, SEED, ordered=capture.name in BY_SECOND)
    assert "" == "\n".join(map(str, wrong[:3]))


def test_every_step_is_drawn() -> None:
    """A step that no test takes would prove nothing."""
    assert {"insert", "update", "delete", "move"} < set(STEPS)
    assert set(STEPS) >= TYPING | KEYING


@pytest.mark.slow
def test_many_histories() -> None:
    """Rare meetings of steps are met by number alone."""
    shares = [(first, f"{SEED}{SEEDS[first * len(SEEDS) // MANY]}") for first in range(0, MANY, 100)]
    with get_context("spawn").Pool(os.cpu_count()) as pool:
        found = pool.starmap(share, shares, chunksize=1)
    wrong = [one for share in found for one in share]
    assert "" == "\n".join(map(str, wrong[:3])), f"{len(wrong)} of {MANY} are wrong, INGEST_SEED={SEED}"
