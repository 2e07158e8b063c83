"""Rejected messages decoded again: in a new batch, at the old place, once, and open no more."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.lakes import FORMAT, Depot, change, rows, touch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]
STAGES = ("bronze", "silver", "gold")
STRANGER = "oms-shareplex"  # reads none of the feed's messages


@pytest.fixture(scope="module")
def replayed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory):
    """A first batch read under a wrong format, a second one under the right one, then the replay."""
    from ingest.run import run
    from ingest.silver import replay
    from ingest.silver.decode import lifted, lifting
    from ingest.tables.lake import Lake

    depot = Depot(tmp_path_factory.mktemp("replayed"))
    right = depot.file.read_text("utf-8")
    depot.file.write_text(right.replace(FORMAT, STRANGER), "utf-8")
    depot.grow()
    run(spark, depot.pipeline, STAGES)
    depot.file.write_text(right, "utf-8")
    second = depot.folder / "bins-2.jsonl"
    second.write_text(change("UPDATE", "bins", 90, {"id": "0", "word": "newest"}), "utf-8")
    touch(second)
    run(spark, depot.pipeline, STAGES)
    lake = Lake(spark, depot.pipeline)
    appointed = replay.appoint(lake, lifting, lifted)
    result = run(spark, depot.pipeline, STAGES)
    return depot, Lake(spark, depot.pipeline), appointed, result


def test_what_can_be_decoded_is_replayed(replayed) -> None:
    """A broken message must not be replayed for ever, and no good one may be left."""
    depot, lake, appointed, result = replayed
    assert (3, depot.lines - 1, 1) == appointed
    assert ([], 3) == (result.failures, result.batch)
    assert [{"n": depot.lines - 1}] == rows(lake, "SELECT count(*) AS n FROM bronze WHERE kind = 'replay'")


def test_replayed_rows_keep_their_old_place(replayed) -> None:
    """The insert of batch 1 arrives in batch 3: folded where it arrived, it would undo the update of batch 2."""
    assert [{"id": 0, "word": "newest"}] == rows(replayed[1], "SELECT * FROM depot.bins ORDER BY id")


def test_the_old_batch_says_where_its_rejects_went(replayed) -> None:
    """Books that balance only in the new batch leave the old one's rejects unexplained."""
    depot, lake, _, _ = replayed
    found = rows(lake, "SELECT batch, replayed, replayed_in FROM books WHERE replayed > 0")
    assert [{"batch": 1, "replayed": depot.lines - 1, "replayed_in": 3}] == found


def test_open_rejects_are_those_not_replayed(replayed) -> None:
    """A replayed reject must leave the list of open ones."""
    from ingest.ledgers.rejects import still_open

    found = still_open(replayed[1])
    assert found is not None
    assert ["bad-json"] == [row["reason"] for row in found.collect() if "json" in row["reason"]]
    assert 1 == found.count()


def test_no_batch_is_called_decoded_with_other_settings(replayed) -> None:
    """All that the wrong format had decoded were rejects, and a backfill would decode again what the replay has."""
    from ingest.ledgers import decoded_with

    _, lake, _, result = replayed
    assert [] == [warning for warning in result.warnings if "other settings" in warning]
    assert [] == decoded_with.outdated(lake, 3)


def test_silver_rebuilt_knows_of_the_replay(replayed) -> None:
    """If both batches were decoded again, every replayed change would be there twice."""
    from ingest.silver.rebuild import rebuild

    found = rebuild(replayed[1], 2, dry_run=True)
    assert {} == {name: one for name, one in found.differences.items() if not one.none}


def test_dismissed_rejects_are_closed(replayed) -> None:
    """A decision that changes nothing would be asked for again and again."""
    from ingest.ledgers import rejects

    lake = replayed[1]
    found = rejects.still_open(lake)
    assert found is not None
    [row] = [one.asDict() for one in found.collect()]
    row["name"] = rejects.name_of(row)
    rejects.dismiss(lake, [row], "cut off by the exporter")
    left = rejects.still_open(lake)
    assert left is not None
    assert 0 == left.count()
    assert json.loads(row["name"])["offset"] == row["offset"]
