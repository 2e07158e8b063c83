"""Query every mirror as of one batch, and pause and resume a mirror."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lakes import Depot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]
STAGES = ("bronze", "silver", "gold")
COUNT = "SELECT count(*) AS n FROM depot.bins b"


@pytest.fixture(scope="module")
def paused(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory):
    """Two batches, the first mirror paused before the second; then the lake, and the run that found it so."""
    from ingest.ledgers import decisions, mirrors, pauses
    from ingest.run import run
    from ingest.tables.lake import Lake

    depot = Depot(tmp_path_factory.mktemp("paused"))
    depot.grow()
    run(spark, depot.pipeline, STAGES)
    lake = Lake(spark, depot.pipeline)
    [bins] = [one for one in mirrors.known(lake).values() if one.name == "depot.bins"]
    pauses.decide(lake, bins, decisions.PAUSE, "the source is being repaired")
    depot.grow()
    result = run(spark, depot.pipeline, STAGES)
    return depot, bins, result


def test_a_paused_mirror_waits_alone(paused) -> None:
    """A pause that stopped the other mirrors or failed the run could not be used."""
    _, _, result = paused
    assert {"depot.bins": "paused", "depot.shelf1": "done"} == {
        one.mirror: one.state for one in result.mirrors
    }
    assert 0 == result.exit_code


def test_as_of_names_who_is_behind(paused, spark: SparkSession) -> None:
    """A report over mirrors of different batches would be wrong silently."""
    from ingest.inspect.query import query
    from ingest.tables.lake import Lake

    lake = Lake(spark, paused[0].pipeline)
    assert [["depot.shelf1 was not there yet at batch 1."]] == [query(lake, COUNT, 0, 1)[2]]
    assert ["depot.bins is behind: it holds batch 1, and batch 2 is missing."] == query(lake, COUNT, 0, 2)[2]


def test_a_resumed_mirror_catches_up(paused, spark: SparkSession) -> None:
    """The changes that arrived during the pause are applied; earlier batches read as before."""
    from ingest.inspect.query import query
    from ingest.ledgers import decisions, pauses
    from ingest.run import run
    from ingest.tables.lake import Lake

    depot, bins, _ = paused
    lake = Lake(spark, depot.pipeline)
    pauses.decide(lake, bins, decisions.RESUME, "it is repaired")
    run(spark, depot.pipeline, STAGES)
    assert depot.expected() == depot.found(spark)
    found = [query(lake, COUNT, 0, batch) for batch in (1, 2)]
    assert [([[1]], ["depot.shelf1 was not there yet at batch 1."]), ([[2]], [])] == [
        one[1:] for one in found
    ]
