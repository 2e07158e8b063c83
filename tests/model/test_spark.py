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


@pytest.mark.parametrize("seed", SEEDS)
def test_no_mirror_is_silently_wrong(spark: SparkSession, tmp_path: Path, seed: str) -> None:
    """A mirror that differs from its source without a word is the worst that can happen."""
    from tests.model import lakes

    each = -(-COUNT // len(SEEDS))
    first = SEEDS.index(seed) * each
    feeds = lakes.feeds(CAPTURES, range(first, first + each), SURE, f"{SEED}{seed}")
    wrong = lakes.played(spark, feeds, tmp_path)
    assert "" == "\n".join(map(str, wrong[:3])), f"{len(wrong)} of {each} are wrong, INGEST_SEED={SEED}"
