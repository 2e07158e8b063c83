"""Held mirrors and what releases them: approval, dismissal; and commits of other writers, which hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ingest.config.model import TableRule
from ingest.errors import IngestError
from tests.gold.depot import Depot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.e2e]


@pytest.fixture
def depot(spark: SparkSession, tmp_path: Path) -> Depot:
    """A frozen mirror with one row."""
    from ingest.run import Warm

    made = Depot(spark, tmp_path, Warm(), TableRule("yard.*", on_schema_change="freeze"))
    assert ("done", "") == made.row(id="1", n="1").run()
    return made


def test_held_until_decided(depot: Depot) -> None:
    """A hold that no decision lifts, or that lifts by itself, makes freeze useless."""
    from ingest.gold.approval import approve_or_dismiss, listed

    state, message = (
        depot.ddl("ALTER TABLE depot ADD COLUMN gate INT DEFAULT 7").row(id="2", n="2", gate="3").run()
    )
    assert "held" == state
    assert "ALTER TABLE depot ADD COLUMN gate" in message
    [one] = listed(depot.lake())
    assert (True, "held", "yard.depot") == (one.pending, one.state, one.mirror)
    assert ("adds column gate (INT); existing rows get '7'",) == one.verdict.does
    assert one.statement.id in message
    approve_or_dismiss(depot.lake(), one.statement.id, "approve", "agreed")
    assert [("approved", False)] == [(two.state, two.pending) for two in listed(depot.lake())]
    assert ("done", "") == depot.run()
    assert [{"id": 1, "n": 1, "gate": 7}, {"id": 2, "n": 2, "gate": 3}] == depot.rows()

    assert (
        "held" == depot.ddl("ALTER TABLE depot TRUNCATE PARTITION p1").row(id="3", n="3", gate="3").run()[0]
    )
    partition = listed(depot.lake())[-1].statement.id
    with pytest.raises(IngestError, match="cannot be approved"):
        approve_or_dismiss(depot.lake(), partition, "approve", "")
    approve_or_dismiss(depot.lake(), partition, "dismiss", "loaded again by hand")
    assert ("done", "") == depot.run()
    assert [1, 2, 3] == [row["id"] for row in depot.rows()]
    with pytest.raises(IngestError, match="what is done stays"):
        approve_or_dismiss(depot.lake(), one.statement.id, "dismiss", "changed my mind")
    with pytest.raises(IngestError, match="no statement 'nothing'"):
        approve_or_dismiss(depot.lake(), "nothing", "approve", "")


def test_foreign_commits_hold(depot: Depot) -> None:
    """After a DELETE or RESTORE by hand a mirror is not the fold of its changes, and must not pass for it."""
    path = f"delta.`{depot.lake().path('mirrors/yard/depot')}`"
    depot.spark.sql(f"OPTIMIZE {path}")
    assert ("done", "") == depot.row(id="2", n="2").run()
    depot.spark.sql(f"DELETE FROM {path} WHERE id = 1")
    state, message = depot.row(id="3", n="3").run()
    assert "held" == state
    assert "DELETE" in message
    assert "ingest rebuild" in message
    assert [2] == [row["id"] for row in depot.rows()]


def test_the_ledger_keeps_what_was_done(spark: SparkSession, tmp_path: Path) -> None:
    """Computed again from today's schema, it would say that nothing was done; a frozen mirror asks what it has folded."""
    from ingest.gold.approval import listed
    from ingest.gold.rebuild import rebuild
    from ingest.run import Warm

    made = Depot(spark, tmp_path, Warm(), TableRule("yard.*"))
    assert ("done", "") == made.row(id="1", n="1").run()
    text = "ALTER TABLE depot MODIFY n BIGINT, ADD COLUMN at DATETIME DEFAULT CURRENT_TIMESTAMP"
    assert ("done", "") == made.ddl(text).row(id="2", n="2").run()
    [one] = listed(made.lake())
    assert "widens column n to BIGINT" in one.verdict.does
    assert ("partly", True) == (one.state, one.pending)
    made.rule = TableRule("yard.*", on_schema_change="freeze")
    [one] = listed(made.lake())
    assert "widens column n to BIGINT" in one.verdict.does
    [found] = rebuild(made.lake(), [], dry_run=True)
    assert ("compared", "") == (found.state, found.message)
    assert found.difference is not None
    assert found.difference.none


def test_a_rebuild_shows_what_it_is_doing(spark: SparkSession, tmp_path: Path) -> None:
    """A command that says nothing for the minutes that a large mirror takes looks as if it hung."""
    from ingest.cli.repair_verbs import decode_again, fold_again
    from ingest.run import Warm

    made, steps = Depot(spark, tmp_path, Warm(), TableRule("yard.*")), list[tuple[str, str]]()
    made.row(id="1", n="1").run()
    decode_again(made.lake(), 1, dry_run=True, tell=lambda *step: steps.append(step))
    fold_again(made.lake(), [], dry_run=False, tell=lambda *step: steps.append(step))
    assert [("silver", "decoding"), ("silver", "comparing")] == steps[:2]
    assert [("yard.depot", "compare"), ("yard.depot", "publish")] == steps[-2:]
