"""Random histories of PostgreSQL, through every dialect of it, against what the source holds.

``INGEST_SEED=2 pytest tests/model`` draws others; ``INGEST_HISTORIES=20000`` more of them.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.model import lakes
from tests.model.checks import SEEDS, Wrong, checked
from tests.model.postgres import STEPS, PostgresWriter
from tests.model.postgres_captures import CAPTURES, RENAMING, PostgresCapture
from tests.unstarted import unstarted

SEED = os.environ.get("INGEST_SEED", "")
COUNT = int(os.environ.get("INGEST_HISTORIES", "200"))


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda capture: capture.name)
def test_no_mirror_is_silently_wrong(capture: PostgresCapture) -> None:
    """A mirror that silently differs from its source is the worst failure; what is said of a right one is a false alarm."""
    wrong = checked(range(-(-COUNT // 2 // len(CAPTURES))), capture, capture.life(capture.told(STEPS)), SEED)
    assert "" == "\n".join(map(str, wrong[:3]))


def of_lakes(count: int, seed: str, folder: Path) -> list[Wrong]:
    """The histories that end silently wrong in a lake, with all that its checks see."""
    captures = [
        replace(one, keyed=one.dialect.format != "debezium") for one in CAPTURES
    ]  # a file has no Kafka keys
    steps = {name: weight for name, weight in STEPS.items() if name not in RENAMING}
    feeds = lakes.feeds(captures, range(count), steps, seed)
    return lakes.played(unstarted(), feeds, folder)


def test_no_mirror_of_a_lake_is_silently_wrong(tmp_path: Path) -> None:
    """What no message tells, the rows' own schemas and columns do: the checks have to see it."""
    assert "" == "\n".join(map(str, of_lakes(-(-COUNT // 8), SEED, tmp_path)[:3]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS[:4])
def test_no_mirror_of_many_lakes_is_silently_wrong(seed: str, tmp_path: Path) -> None:
    """The same with a hundred histories each."""
    assert "" == "\n".join(map(str, of_lakes(100, f"{SEED}{seed}", tmp_path)[:3]))


@pytest.mark.slow
@pytest.mark.parametrize("capture", CAPTURES, ids=lambda capture: capture.name)
@pytest.mark.parametrize("seed", SEEDS[:4])
def test_many_histories(capture: PostgresCapture, seed: str) -> None:
    """Rare meetings of steps are met by number alone."""
    wrong = checked(range(1000), capture, capture.life(capture.told(STEPS)), f"{SEED}{seed}")
    assert "" == "\n".join(map(str, wrong[:3])), f"{len(wrong)} of 1000 are wrong"


def test_every_step_can_be_taken() -> None:
    """A step that no history takes would prove nothing."""
    assert set() == {name for name in STEPS if not hasattr(PostgresWriter, name)}
