"""Layers made again from the one before: equal, or the difference is printed and gone afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ingest.errors import IngestError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.lakes import Example

pytestmark = [pytest.mark.spark, pytest.mark.slow]
STAGES = ("bronze", "silver", "gold")


def test_the_shops_mirrors_are_what_silver_gives(shops: dict[str, Example]) -> None:
    """A mirror folded batch by batch that differs from one folded at once is wrong in one of the two."""
    from ingest.gold.rebuild import rebuild

    found = {name: rebuild(shop.lake, [], dry_run=True) for name, shop in shops.items()}
    wrong = [
        (name, one)
        for name, all_of in found.items()
        for one in all_of
        if not (one.difference and one.difference.none)
    ]
    assert [] == wrong
    assert 3 * len(shops) == sum(map(len, found.values()))


def test_the_shops_changes_are_what_bronze_gives(shops: dict[str, Example]) -> None:
    """Decoding must not depend on how messages fell into batches and tasks."""
    from ingest.silver.rebuild import rebuild

    assert [] == [name for name, shop in shops.items() if not rebuild(shop.lake, 2, dry_run=True).none]


@pytest.fixture(scope="module")
def rebuilt(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory):
    """A lake whose mirror was damaged by hand, then every layer rebuilt, then one more batch."""
    from ingest.gold.rebuild import rebuild
    from ingest.run import run
    from ingest.silver import rebuild as silver
    from ingest.tables.lake import Lake
    from tests.lakes import Depot

    depot = Depot(tmp_path_factory.mktemp("rebuilt"))
    for _ in range(3):
        depot.grow()
    run(spark, depot.pipeline, STAGES)
    lake = Lake(spark, depot.pipeline)
    table = f"delta.`{lake.path('mirrors/depot/bins')}`"
    spark.sql(f"DELETE FROM {table} WHERE id = 0")
    spark.sql(f"UPDATE {table} SET word = 'by hand' WHERE id = 1")
    spark.sql(f"INSERT INTO {table} VALUES (99, 'a ghost')")
    found = rebuild(lake, ["depot.bins"], dry_run=False)
    decoded = silver.rebuild(lake, 2, dry_run=False)
    depot.grow()
    run(spark, depot.pipeline, STAGES)
    return depot, lake, found, decoded


def test_the_difference_is_reported(rebuilt) -> None:
    """The operator must see what was wrong, for after the rebuild it cannot be looked up any more."""
    [one] = rebuilt[2]
    assert "rebuilt" == one.state
    assert (1, 1, 1, {"word": 1}) == (
        one.difference.missing, one.difference.surplus, one.difference.differing, dict(one.difference.cells),
    )  # fmt: skip


def test_unharmed_silver_is_equal(rebuilt) -> None:
    """A rebuild that differs where nothing changed could never be trusted where something did."""
    assert rebuilt[3].none


def test_rows_that_only_spark_reads_are_compared(rebuilt, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that only Hadoop reaches has the same rows: they come to DuckDB through Spark."""
    from ingest.silver.rebuild import _columns, _rows
    from ingest.tables.compare import TableState, as_sets, by_key
    from ingest.tables.lake import Lake
    from ingest.tables.schemas import CHANGES

    lake, mirror = rebuilt[1], "mirrors/depot/bins"
    changes, rows = _rows(lake, CHANGES, 0), TableState.of(lake, mirror)
    with monkeypatch.context() as patch:
        patch.setattr(Lake, "is_local", property(lambda _lake: False))
        far_changes, far_rows = _rows(lake, CHANGES, 0), TableState.of(lake, mirror)
    assert (None, None) == (changes.loaded, rows.loaded)
    assert far_changes.loaded.num_rows > far_rows.loaded.num_rows > 0
    assert as_sets(changes, far_changes, _columns(CHANGES)).none
    assert by_key(rows, far_rows, ["id"]).none


def test_the_next_batch_after_a_rebuild_continues(rebuilt, spark: SparkSession) -> None:
    """A generation that the next run does not know would fold everything twice, or nothing."""
    depot, lake, _, _ = rebuilt
    assert depot.expected() == depot.found(spark)
    state = lake.snapshot("changes")
    assert 1 == lake.generation(state, "silver", "changes")
    assert 2 == lake.progress("silver", "books")


def test_nothing_is_left_of_the_shadow(rebuilt) -> None:
    """A shadow that stays doubles the lake with every rebuild."""
    assert not (Path(rebuilt[1].pipeline.lake) / "_rebuild").exists()


def test_the_last_batches_alone(spark: SparkSession, tmp_path: Path) -> None:
    """What is left of trimmed bronze can still be decoded again; silver made from it alone would lose the rest."""
    from ingest.run import run
    from ingest.silver.rebuild import rebuild
    from ingest.tables.lake import Lake
    from tests.lakes import Depot

    depot = Depot(tmp_path)
    for _ in range(2):
        depot.grow()
        run(spark, depot.pipeline, ("bronze", "silver"))
    lake = Lake(spark, depot.pipeline)
    spark.sql(f"DELETE FROM delta.`{lake.path('bronze')}` WHERE batch = 1")
    with pytest.raises(IngestError, match="Bronze no longer holds all messages of batch 1"):
        rebuild(lake, 2, dry_run=True)
    before = [lake.read(name).count() for name in ("changes", "ddl", "rejects", "books")]
    assert rebuild(lake, 2, since=1, dry_run=False).none
    assert before == [lake.read(name).count() for name in ("changes", "ddl", "rejects", "books")]
    assert (2, 2) == (lake.progress("silver", "changes"), lake.progress("silver", "books"))
