"""Random histories of Oracle, as its documents describe it, through dialects of it, against what the source holds.

``INGEST_SEED=2 pytest tests/model`` draws others; ``INGEST_HISTORIES=20000`` more of them.
"""

from __future__ import annotations

import os

import pytest

from tests.model.checks import SEEDS, checked
from tests.model.oracle import STEPS, OracleWriter
from tests.model.oracle_captures import CAPTURES, OracleCapture

SEED = os.environ.get("INGEST_SEED", "")
COUNT = int(os.environ.get("INGEST_HISTORIES", "200"))


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda capture: capture.name)
def test_no_mirror_is_silently_wrong(capture: OracleCapture) -> None:
    """A mirror that silently differs from its source is the worst failure; what is said of a right one is a false alarm."""
    wrong = checked(range(-(-COUNT // 4 // len(CAPTURES))), capture, capture.life(STEPS), SEED)
    assert "" == "\n".join(map(str, wrong[:3]))


@pytest.mark.slow
@pytest.mark.parametrize("capture", CAPTURES, ids=lambda capture: capture.name)
@pytest.mark.parametrize("seed", SEEDS[:4])
def test_many_histories(capture: OracleCapture, seed: str) -> None:
    """Rare meetings of steps are met by number alone."""
    wrong = checked(range(1000), capture, capture.life(STEPS), f"{SEED}{seed}")
    assert "" == "\n".join(map(str, wrong[:3])), f"{len(wrong)} of 1000 are wrong"


def test_every_step_can_be_taken() -> None:
    """A step that no history takes would prove nothing."""
    assert set() == {name for name in STEPS if not hasattr(OracleWriter, name)}
