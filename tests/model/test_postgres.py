"""Random histories of PostgreSQL, through every dialect of it, against what the source holds.

``INGEST_SEED=2 pytest tests/model`` draws others; ``INGEST_HISTORIES=20000`` more of them.
"""

from __future__ import annotations

import os

import pytest

from tests.model.checks import checked
from tests.model.postgres import STEPS, PostgresWriter
from tests.model.postgres_captures import CAPTURES, PostgresCapture

SEED = os.environ.get("INGEST_SEED", "")
COUNT = int(os.environ.get("INGEST_HISTORIES", "200"))


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda capture: capture.name)
def test_no_mirror_is_silently_wrong(capture: PostgresCapture) -> None:
    """A mirror that silently differs from its source is the worst failure; what is said of a right one is a false alarm."""
    wrong = checked(range(-(-COUNT // len(CAPTURES))), capture, capture.life(capture.told(STEPS)), SEED)
    assert "" == "\n".join(map(str, wrong[:3]))


@pytest.mark.slow
@pytest.mark.parametrize("capture", CAPTURES, ids=lambda capture: capture.name)
@pytest.mark.parametrize("seed", "abcd")
def test_many_histories(capture: PostgresCapture, seed: str) -> None:
    """Rare meetings of steps are met by number alone."""
    wrong = checked(range(1000), capture, capture.life(capture.told(STEPS)), f"{SEED}{seed}")
    assert "" == "\n".join(map(str, wrong[:3])), f"{len(wrong)} of 1000 are wrong"


def test_every_step_can_be_taken() -> None:
    """A step that no history takes would prove nothing."""
    assert set() == {name for name in STEPS if not hasattr(PostgresWriter, name)}
