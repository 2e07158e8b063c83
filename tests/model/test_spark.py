"""The same histories through a whole pipeline of several dialects, with real Delta merges."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.model.checks import CAPTURES, SEEDS
from tests.model.histories import SURE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SEED = os.environ.get("INGEST_SEED", "")
COUNT = int(os.environ.get("INGEST_SPARK_HISTORIES", "2000"))
WAYS = (("files", None), ("merge", None), ("files", None), ("auto", 1))
"""How the outcomes of histories are applied in turn, with the bytes that may be rewritten: 1 marks rows in files."""


@pytest.fixture
def every_way() -> None:
    """Nothing: the histories' numbers choose how mirrors are merged."""


@pytest.mark.parametrize("seed", SEEDS)
def test_no_mirror_is_silently_wrong(spark: SparkSession, tmp_path: Path, seed: str) -> None:
    """A mirror that silently differs from its source is the worst failure."""
    from tests.model import lakes

    each, wrong = -(-COUNT // len(SEEDS)), []
    first = SEEDS.index(seed) * each
    for way in dict.fromkeys(WAYS):
        numbers = [n for n in range(first, first + each) if WAYS[n % len(WAYS)] == way]
        feeds = lakes.feeds(CAPTURES, numbers, SURE, f"{SEED}{seed}")
        apply, budget = way
        (folder := tmp_path / f"{apply}-{budget}").mkdir()
        wrong += lakes.played(spark, feeds, folder, apply, budget)
    assert "" == "\n".join(map(str, wrong[:3])), f"{len(wrong)} of {each} are wrong, INGEST_SEED={SEED}"
