"""The Spark fold with real Delta merges against a database: 500 random histories in a few batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.properties.histories import ARRIVAL, TRANSACTION, Kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BATCHES = 7
FOLDED_AT = (1, 2, 5, 6, 7)  # gold may stand still while silver goes on
FULL = Kind("full", ("string",))
PARTIAL = Kind("partial", ("decimal(10,2)",), partials=True)
MOVING = Kind("moving", ("int64", "string"), moves=True)
MIXED = Kind("mixed", ("decimal(10,2)", "string"), partials=True, moves=True)
CLEARED = Kind("cleared", ("string",), partials=True, moves=True, epochs=False, truncate_at=(4, 9))
WEAK = Kind("weak", ("int64",), partials=True, moves=True, order=ARRIVAL)
SHARED = Kind("shared", ("string",), partials=True, moves=True, order=TRANSACTION)
TRUNCATED = Kind("truncated", ("int64",), partials=True, moves=True, truncates=True)
INHERITING = Kind("inheriting", ("int64", "string"), partials=True, moves=True, inherits=True)


@pytest.fixture(scope="module")
def lakes(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory):
    """All histories folded batch by batch in one lake, and in one go in another."""
    from tests.properties import lakes as on

    feeds = [
        *[on.together(kind, 40, BATCHES, ordered=True) for kind in (FULL, PARTIAL, MIXED)],
        *[on.together(kind, 60, BATCHES, ordered=False) for kind in (FULL, PARTIAL, MOVING, MIXED, CLEARED, WEAK)],
        on.together(SHARED, 14, BATCHES, ordered=False),
        *[on.alone(TRUNCATED, number, BATCHES) for number in range(6)],
    ]
    folder = tmp_path_factory.mktemp("lake")
    lake = on.lake_of(spark, folder)
    gold = on.Gold(lake)
    for batch in range(1, BATCHES + 1):
        on.write(lake, feeds, batch)
        if batch in FOLDED_AT:
            gold.run(batch)
    return lake, on.rebuilt(lake, tmp_path_factory.mktemp("again") / "lake"), feeds


def test_no_history_is_wrong(lakes) -> None:
    """Whatever came late, twice, apart or after a crash: a mirror that differs is wrong for its reader."""
    from tests.properties.lakes import wrong

    lake, _, feeds = lakes
    assert [] == [str(one) for feed in feeds for one in wrong(lake, feed)]


def test_rebuilt_mirrors_are_equal(lakes) -> None:
    """A mirror folded in one go must hold what batch after batch gave, else neither can be trusted."""
    from tests.properties.lakes import content

    lake, again, feeds = lakes
    assert [] == [str(feed.table) for feed in feeds if content(lake, feed) != content(again, feed)]


def test_there_are_enough(lakes) -> None:
    """The figure of the title: it is easily cut for speed."""
    assert sum(len(feed.histories) for feed in lakes[2]) >= 500
