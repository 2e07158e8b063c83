"""The fold with real Delta merges against a database: 500 random histories in a few batches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HISTORIES, BATCHES = 500, 6


@pytest.fixture(scope="module")
def folded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory):
    """A lake whose mirrors were folded batch by batch, and what they must hold."""
    from tests.properties import lakes

    feeds = lakes.feeds(HISTORIES, BATCHES)
    lake = lakes.lake_of(spark, tmp_path_factory.mktemp("lake"))
    lakes.batch_by_batch(lake, feeds, BATCHES)
    return lake, feeds


def test_no_history_is_wrong(folded) -> None:
    """Whatever came late, twice, apart or after a crash: a mirror that differs is wrong for its reader."""
    from tests.properties import lakes

    lake, feeds = folded
    assert HISTORIES <= sum(len(feed.histories) for feed in feeds)
    assert [] == [str(one) for feed in feeds for one in lakes.wrong(lake, feed)]


def test_rebuilt_mirrors_are_equal(folded, tmp_path: Path) -> None:
    """A mirror folded in one go must hold what batch after batch gave, else neither can be trusted."""
    from tests.properties import lakes

    lake, feeds = folded
    again = lakes.rebuilt(lake, tmp_path / "again")
    assert [] == [feed.table for feed in feeds if lakes.content(lake, feed) != lakes.content(again, feed)]


def _wrong(spark: SparkSession, folder: Path, kind: str) -> list[str]:
    from tests.properties import lakes

    feed = lakes.together(getattr(lakes, kind), 100, BATCHES, ordered=False)
    lake = lakes.lake_of(spark, folder)
    lakes.batch_by_batch(lake, [feed], BATCHES)
    return [str(one) for one in lakes.wrong(lake, feed)]


def test_lawless_changes_are_folded_alike(spark: SparkSession, tmp_path: Path) -> None:
    """A capture that begins in the middle, or skips, must not make the fold and its definition disagree."""
    assert [] == _wrong(spark, tmp_path, "LAWLESS")


def test_inherited_values(spark: SparkSession, tmp_path: Path) -> None:
    """A changed key whose message leaves out what stayed must not lose the old row's values."""
    assert [] == _wrong(spark, tmp_path, "INHERITING")
