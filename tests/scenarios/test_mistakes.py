"""Operators' mistakes over a lake that exists: each is refused with the way out, or does the right thing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.config import load
from ingest.errors import IngestError
from tests.lakes import Depot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.e2e]


@pytest.fixture(scope="module")
def worked(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Depot:
    """A lake of two batches, with a copy of the lake after each batch next to it."""
    from ingest import run as running

    depot = Depot(tmp_path_factory.mktemp("worked"))
    for number in (1, 2):
        depot.grow(broken=False)
        assert [] == running.run(spark, depot.pipeline, ("bronze", "silver", "gold")).failures
        shutil.copytree(depot.folder / "lake", depot.folder / f"lake-{number}")
    return depot


@pytest.fixture
def depot(spark: SparkSession, worked: Depot) -> Iterator[Depot]:
    """The same lake, as it was after both batches whatever a test does to it."""
    text = worked.file.read_text("utf-8")
    yield worked
    worked.file.write_text(text, "utf-8")
    restore(worked, ".")
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # an operator's next command is another process


def restore(depot: Depot, *tables: str, number: int = 2) -> None:
    """Put tables (``.`` for all) back as they were after a batch."""
    for table in tables:
        shutil.rmtree(depot.folder / "lake" / table)
        shutil.copytree(depot.folder / f"lake-{number}" / table, depot.folder / "lake" / table)


def refused(spark: SparkSession, depot: Depot) -> str:
    """What a run says instead of running; nothing but its record may have been written."""
    from ingest import run as running

    before = commits(depot)
    with pytest.raises(IngestError) as error:
        running.run(spark, depot.pipeline, ("bronze", "silver", "gold"))
    assert before == commits(depot)
    assert 2 == error.value.exit_code
    return str(error.value)


def commits(depot: Depot) -> set[Path]:
    """Every commit of the lake's tables but that of runs."""
    return {path for path in (depot.folder / "lake").rglob("_delta_log/*.json") if "runs" not in path.parts}


def edit(depot: Depot, old: str, new: str) -> None:
    """Change the pipeline file."""
    text = depot.file.read_text("utf-8")
    assert old in text
    depot.file.write_text(text.replace(old, new), "utf-8")


def test_a_renamed_pipeline_is_refused(spark: SparkSession, depot: Depot) -> None:
    """Under a new name every identifier is new, and all batches would be read and numbered again."""
    from ingest.operate import dry_run

    edit(depot, "pipeline: depot", "pipeline: warehouse")
    assert "write `pipeline: depot`" in refused(spark, depot)
    with pytest.raises(IngestError, match="belongs to the pipeline depot"):
        dry_run.foresee(depot.pipeline, spark, 10)


def test_a_renamed_source_is_refused(spark: SparkSession, depot: Depot) -> None:
    """A new name has no receipts: all files would be read again, as another lane of each mirror."""
    from ingest.operate import dry_run

    edit(depot, "name: bins", "name: crates")
    said = refused(spark, depot)
    assert "source bins" in said
    assert "write its old name back" in said
    with pytest.raises(IngestError, match="source bins"):
        dry_run.foresee(depot.pipeline, spark, 10)


def test_a_source_that_has_ended_is_kept_disabled(spark: SparkSession, depot: Depot) -> None:
    """The advice of the refusal works: the entry stays, nothing more is read, old bytes can be decoded."""
    from ingest import run as running
    from ingest.silver import rebuild

    edit(depot, "settle: 1s}", "settle: 1s, enabled: false}")
    with depot.feed.open("a", encoding="utf-8") as file:
        file.write('{"more": 1}\n')
    result = running.run(spark, depot.pipeline, ("bronze", "silver", "gold"))
    assert ([], None, 0) == (result.failures, result.batch, result.read)
    from ingest.tables.lake import Lake

    assert rebuild.rebuild(Lake(spark, depot.pipeline), 2, dry_run=True).none


@pytest.mark.parametrize("table", ["bronze", "changes"])
def test_a_lake_restored_in_parts_is_refused(spark: SparkSession, depot: Depot, table: str) -> None:
    """A table that is ahead of its origin would skip the next batches as done already."""
    restore(depot, table, number=1)
    said = refused(spark, depot)
    assert "is incomplete" in said
    assert "Restore the whole lake folder" in said


def test_a_lake_that_lost_its_changes_is_rebuilt_as_the_words_say(spark: SparkSession, depot: Depot) -> None:
    """A deleted silver table must not stay empty below mirrors that look fine."""
    from ingest import run as running
    from ingest.gold.rebuild import rebuild as fold_again
    from ingest.silver import rebuild
    from ingest.tables.lake import Lake

    shutil.rmtree(depot.folder / "lake" / "changes")
    assert "rebuild" in refused(spark, depot)
    assert "--layer silver" in refused(spark, depot)
    rebuild.rebuild(Lake(spark, depot.pipeline), 2, dry_run=False)
    result = running.run(spark, depot.pipeline, ("bronze", "silver", "gold"))
    assert all("ingest rebuild" in one for one in result.failures), result.failures
    fold_again(Lake(spark, depot.pipeline), [], dry_run=False)
    assert [] == running.run(spark, depot.pipeline, ("bronze", "silver", "gold")).failures
    assert depot.expected() == depot.found(spark)


def test_a_lake_restored_whole_goes_on(spark: SparkSession, depot: Depot) -> None:
    """A backup of one time is a good lake: the receipts read what came since."""
    from ingest import run as running

    restore(depot, ".", number=1)
    assert [] == running.run(spark, depot.pipeline, ("bronze", "silver", "gold")).failures
    assert depot.expected() == depot.found(spark)


def test_mirrors_ahead_of_a_restored_lake_are_held(spark: SparkSession, depot: Depot) -> None:
    """Their identifiers say that the next batches are done, so these would be skipped silently."""
    from ingest import run as running
    from ingest.gold.rebuild import rebuild
    from ingest.tables.lake import Lake

    restore(depot, *("bronze changes ddl books runs decisions").split(), number=1)
    result = running.run(spark, depot.pipeline, ("bronze", "silver", "gold"))
    held = [one for one in result.failures if "restored from a backup without its mirrors" in one]
    assert 2 == len(held), result.failures  # bins, and the table whose first row came in the second batch
    rebuild(Lake(spark, depot.pipeline), [], dry_run=False)
    assert [] == running.run(spark, depot.pipeline, ("bronze", "silver", "gold")).failures
    assert depot.expected() == depot.found(spark)


def test_a_lake_replaced_under_a_warm_process_is_refused(spark: SparkSession, depot: Depot) -> None:
    """What a session remembers of positions and batches is wrong for another lake: deleted, or an older copy."""
    from ingest import run as running

    warm = running.Warm()
    running.run(spark, depot.pipeline, ("bronze", "silver", "gold"), warm)
    restore(depot, ".", number=1)
    for again in (warm, warm.restarted()):
        with pytest.raises(IngestError, match="older copy"):
            running.run(spark, depot.pipeline, ("bronze", "silver", "gold"), again)
    shutil.rmtree(depot.folder / "lake")
    (depot.folder / "lake").mkdir()
    with pytest.raises(IngestError, match="is gone"):
        running.run(spark, depot.pipeline, ("bronze", "silver", "gold"), warm.restarted())
    assert not (depot.folder / "lake" / "bronze").exists()


def test_two_files_with_one_lake_are_refused(tmp_path: Path) -> None:
    """Their batches would share numbers; the second file need not be run to know that."""
    from ingest.tables.identity import refuse_shared

    depot = Depot(tmp_path)
    other = tmp_path / "other.yaml"
    other.write_text(depot.file.read_text("utf-8").replace("pipeline: depot", "pipeline: other"), "utf-8")
    with pytest.raises(IngestError, match="name the same lake"):
        refuse_shared([load(depot.file), load(other)])


def test_an_option_corrected_later_is_not_forgotten(spark: SparkSession, depot: Depot) -> None:
    """`ingest status` reports batches that were decoded with another zone, until they are decoded again."""
    from ingest import run as running
    from ingest.ledgers import decoded_with
    from ingest.operate import dry_run
    from ingest.silver import rebuild
    from ingest.tables.lake import Lake

    assert [] == decoded_with.outdated(Lake(spark, depot.pipeline), 2)
    edit(depot, "settle: 1s}", "settle: 1s, options: {timezone: Asia/Shanghai}}")
    said = "batches 1 to 2 of source bins were decoded with other settings (timezone was UTC and is Asia/Shanghai)"
    warm = running.Warm()
    for expected in ([said], []):  # once in each process
        result = running.run(spark, depot.pipeline, ("bronze", "silver", "gold"), warm)
        assert expected == [text[: len(said)] for text in result.warnings if "other settings" in text]
    [source] = dry_run.foresee(depot.pipeline, spark, 1)["sources"]
    assert any(said in text for text in source["warnings"])
    [outdated] = decoded_with.outdated(Lake(spark, depot.pipeline), 2)
    assert "--from-batch 1" in outdated.command
    rebuild.rebuild(Lake(spark, depot.pipeline), 2, since=1, dry_run=False)
    [outdated] = decoded_with.outdated(Lake(spark, depot.pipeline), 2)
    assert (1, 1) == (outdated.first, outdated.last)
    rebuild.rebuild(Lake(spark, depot.pipeline), 2, since=0, dry_run=False)
    assert [] == decoded_with.outdated(Lake(spark, depot.pipeline), 2)
