"""A source whose positions started again: the mirror before the decision, after it, and after the re-snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ingest.change import TableId
from ingest.config.model import TableRule
from ingest.errors import IngestError
from tests.gold.depot import Depot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TABLE = "yard.depot"
Cells = list[tuple[int, int]]


class Seen(NamedTuple):
    """The mirror after each step, and the depot."""

    depot: Depot
    blind: Cells
    begun: Cells
    going_on: Cells
    swept: Cells
    late: Cells


def cells(depot: Depot) -> Cells:
    """The mirror's rows."""
    return [(row["id"], row["n"]) for row in depot.rows()]


def decided(depot: Depot, names: list[str], *, complete: bool = False, withdraw: bool = False) -> list[Any]:
    """Decide on the epoch that begins with the second file, and carry it out."""
    from ingest.cli.epoch_verb import carry_out, decide
    from ingest.ledgers import epochs

    lake = depot.lake()
    place = lake.read("bronze").where("kind = 'message' AND batch = 2 AND offset = 0").collect()[0]
    start = epochs.at_places(lake, "s", [f"{place['topic']}/{place['partition']}/0"])
    decide(lake, "s", start, names, "failover", complete=complete, withdraw=withdraw)
    return carry_out(lake, "s", start)


@pytest.fixture(scope="module")
def seen(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Three rows; a restart that sends two of them again; decisions; changes after and before them."""
    from ingest.run import Warm

    depot = Depot(spark, tmp_path_factory.mktemp("epochs"), Warm(), TableRule(TABLE, history=True))
    depot.row(at=5010, id="1", n="1").row(at=5020, id="2", n="2").row(at=5030, id="3", n="3").run()
    depot.row(at=10, id="1", n="10").row(at=20, id="4", n="40").run()
    blind = cells(depot)
    assert ["rebuilt"] == [row["state"] for row in decided(depot, [TABLE])]
    begun = cells(depot)
    assert ("done", "") == depot.row("UPDATE", {"n": "10"}, at=30, id="1", n="11").run()
    going_on = cells(depot)
    decided(depot, [], complete=True)
    swept = cells(depot)
    depot.row(at=5, id="2", n="22").row("DELETE", at=25, id="4", n="40").run()
    return Seen(depot, blind, begun, going_on, swept, cells(depot))


def test_without_a_decision_the_old_rows_win(seen: Seen) -> None:
    """If this did not fail, the sequence would not be looked at, and nothing would need an epoch."""
    assert [(1, 1), (2, 2), (3, 3), (4, 40)] == seen.blind


def test_what_has_landed_since_is_folded_again(seen: Seen) -> None:
    """If an epoch held for later batches only, the rows that led to the decision would stay wrong."""
    assert [(1, 10), (2, 2), (3, 3), (4, 40)] == seen.begun


def test_the_next_batch_is_in_the_epoch(seen: Seen) -> None:
    """A run that does not know the decision folds on with positions that lose against all others."""
    assert [(1, 11), (2, 2), (3, 3), (4, 40)] == seen.going_on


def test_keys_that_the_snapshot_lacks_go(seen: Seen) -> None:
    """Rows that were deleted unseen would be in the mirror for ever."""
    assert [(1, 11), (4, 40)] == seen.swept


def test_late_changes_find_their_place(seen: Seen) -> None:
    """A late row of the new epoch comes after the clearing, though its position is the lowest of all."""
    assert [(1, 11), (2, 22)] == seen.late


def test_a_rebuild_gives_equal_layers(seen: Seen) -> None:
    """A decision that a rebuild does not take into account is undone by the next one."""
    from ingest.gold.rebuild import rebuild as folded
    from ingest.silver.rebuild import rebuild as decoded

    lake = seen.depot.lake()
    assert {} == {
        name: one for name, one in decoded(lake, 2, dry_run=True).differences.items() if not one.none
    }
    assert [True] == [bool(one.difference and one.difference.none) for one in folded(lake, [], dry_run=True)]


def test_the_checks_know_of_the_sweep(seen: Seen) -> None:
    """Checks that miss the removed rows would call every re-snapshot a loss."""
    from ingest import run as running

    result = running.run(seen.depot.spark, seen.depot.pipeline, ("quality",))
    assert ([], 0) == (result.failures, result.checks.get("fail", 0))


def test_the_row_can_be_explained(seen: Seen) -> None:
    """The answer to where the row went must name the snapshot, not be an error."""
    from ingest.gold.explain import explain

    story = explain(seen.depot.lake(), TABLE, ["3"])
    assert (True, ["insert", "truncate"]) == (story.equal, [event.op for event in story.events])
    assert "complete snapshot" in (story.events[-1].note or "")


def test_old_states_end_with_the_snapshot(seen: Seen) -> None:
    """A history table in which removed rows are current contradicts its mirror."""
    found = seen.depot.lake().read("histories/yard/depot").where("is_current").orderBy("id").collect()
    assert [(1, 11), (2, 22)] == [(row["id"], row["n"]) for row in found]


def test_decisions_are_listed(seen: Seen) -> None:
    """It must be possible to find out later that there was an epoch, and how far its snapshot got."""
    from ingest.ledgers import epochs

    kept = epochs.read(seen.depot.lake())
    [start] = kept.starts["s"]
    assert (2, 1) == (start.first, kept.number("s", start))
    assert [(TableId("yard", None, "depot"), True)] == [(one.table, one.complete) for one in kept.resnapshots]


def test_what_cannot_be_is_refused(seen: Seen) -> None:
    """A decision about a place or a table that is not there would change nothing, silently."""
    from ingest.ledgers import epochs

    lake = seen.depot.lake()
    for text in ("nowhere", "a/b/c", "no-such-file/0/0"):
        with pytest.raises(IngestError, match=r"is not a place|holds no message"):
            epochs.at_places(lake, "s", [text])
    with pytest.raises(IngestError, match="give 1 to"):
        epochs.with_batch(99, 4)
    with pytest.raises(IngestError, match=r"has sent nothing of yard\.other"):
        decided(seen.depot, ["yard.other"])


def test_withdrawn(spark: SparkSession, tmp_path: Path) -> None:
    """A wrong decision that cannot be taken back costs a lake."""
    from ingest.run import Warm

    depot = Depot(spark, tmp_path, Warm(), TableRule(TABLE))
    depot.row(at=5010, id="1", n="1").row(at=5020, id="2", n="2").run()
    depot.row(at=10, id="1", n="10").run()
    decided(depot, [TABLE], complete=True)
    assert [(1, 10)] == cells(depot)
    decided(depot, [], withdraw=True)
    assert [(1, 1), (2, 2)] == cells(depot)
