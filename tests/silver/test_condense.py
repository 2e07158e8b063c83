"""Condensed silver: fewer changes, and every later history folds as if all of them were there."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ingest.config.model import TableRule
from ingest.errors import IngestError
from tests.gold.depot import Depot
from tests.lakes import Depot as Slices
from tests.lakes import counted, doubled
from tests.scenarios.crashing import AFTER, BEFORE, WRITTEN, Point, killed_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HISTORIES, BATCHES = 300, 6
TABLE = "yard.depot"
STAGES = ("bronze", "silver", "gold")


def tomorrow() -> dt.datetime:
    """After everything that has landed."""
    return dt.datetime.now(dt.UTC) + dt.timedelta(days=1)


def condensed(depot: Depot, before: dt.datetime | None = None) -> int:
    """How many changes were dropped."""
    from ingest.gold.plan.completed import complete
    from ingest.silver.condense import condense

    lake = depot.lake()
    return condense(lake, before or tomorrow(), complete(lake))


def changes_left(depot: Depot) -> list[tuple[str, str | None]]:
    """The changes that are left, in history's order."""
    rows = depot.lake().read("changes").where("kind = 'change'").sort("order_key").collect()
    return [(row["op"], row["after"]) for row in rows]


@pytest.fixture
def depot(spark: SparkSession, tmp_path: Path) -> Depot:
    """An empty depot."""
    from ingest.run import Warm

    return Depot(spark, tmp_path, Warm(), TableRule(TABLE))


def test_random_histories_fold_alike(spark: SparkSession, tmp_path: Path, monkeypatch) -> None:
    """No change may be dropped that a later one needs: a late, partial or key change, or the next row after a truncate."""
    from ingest.silver import condense
    from tests.properties import lakes

    monkeypatch.setattr(condense, "LEAST", 0)
    more = [lakes.together(kind, 50, BATCHES, ordered=False) for kind in (lakes.LAWLESS, lakes.INHERITING)]
    feeds = [*lakes.feeds(HISTORIES, BATCHES), *more]
    lake = lakes.lake_of(spark, tmp_path / "lake")
    chosen = random.Random(11)
    monkeypatch.setattr(condense, "_older", lambda lake, _before: lake.decoded() - chosen.randint(0, 1))
    gone, complete = 0, 0
    for batch in range(1, BATCHES + 1):
        lakes.write(lake, feeds, batch)
        if batch % 3 != 2 or batch == BATCHES:
            lakes.fold_up_to(lake, complete, batch)
            complete = batch
        gone += condense.condense(lake, tomorrow(), complete)
    assert gone > HISTORIES
    assert [] == [str(one) for feed in feeds for one in lakes.wrong(lake, feed)]
    again = lakes.rebuilt(lake, tmp_path / "again")
    assert [] == [feed.table for feed in feeds if lakes.content(lake, feed) != lakes.content(again, feed)]


def test_what_a_later_row_supersedes_goes(depot: Depot) -> None:
    """The last whole row stays, and a deleted key's with its delete: a changed key may still ask for it."""
    depot.row(at=10, id="1", n="1").row(at=20, id="2", n="2").run()
    depot.row("UPDATE", {"n": "1"}, at=30, id="1", n="3").row("DELETE", at=40, id="2", n="2").run()
    depot.row("UPDATE", {"id": "1"}, at=50, id="3", n="3").run()
    assert 1 == condensed(depot)
    assert [
        ("insert", '{"id":"2","n":"2"}'),
        ("update", '{"id":"1","n":"3"}'),
        ("delete", None),
        ("update", '{"id":"3","n":"3"}'),
    ] == changes_left(depot)
    assert 0 == condensed(depot)


def test_late_rows_meet_what_is_left(depot: Depot) -> None:
    """After the condensing a late row must lose to later rows, and win over earlier ones."""
    depot.row(at=10, id="1", n="1").row(at=50, id="1", n="5").run()
    assert 1 == condensed(depot)
    depot.row(at=20, id="1", n="2").row(at=30, id="2", n="3").row(at=60, id="1", n="6").run()
    depot.row(at=55, id="1", n="55").row("DELETE", at=40, id="2", n="3").run()
    assert [{"id": 1, "n": 6}] == depot.rows()


def test_mirrors_are_rebuilt_from_condensed_changes(depot: Depot) -> None:
    """Truncates and statements that went with the changes would give a rebuilt mirror other rows."""
    from ingest.gold.rebuild import rebuild

    depot.row(at=10, id="1", n="1").row(at=11, id="1", n="2").row(at=12, id="2", n="2").run()
    depot.say(20, isDdl=True, sql="TRUNCATE TABLE depot", type="TRUNCATE").row(at=30, id="3", n="3").run()
    depot.row("UPDATE", {"n": "3"}, at=40, id="3", n="4").run()
    depot.ddl("ALTER TABLE depot ADD COLUMN m INT DEFAULT 7").row(at=80, id="4", n="1", m="2").run()
    assert 2 == condensed(depot)
    [found] = rebuild(depot.lake(), [], dry_run=True)
    assert ("compared", True) == (found.state, found.difference is not None and found.difference.none)
    assert [{"id": 3, "n": 4, "m": 7}, {"id": 4, "n": 1, "m": 2}] == depot.rows()


def test_young_batches_and_old_states_stay(spark: SparkSession, tmp_path: Path) -> None:
    """A batch within the window may still be decoded again, and a history table needs every state."""
    from ingest.run import Warm

    young = Depot(spark, tmp_path / "young", Warm(), TableRule(TABLE))
    kept = Depot(spark, tmp_path / "kept", Warm(), TableRule(TABLE, history=True))
    for one in (young, kept):
        one.folder.mkdir()
        one.row(at=10, id="1", n="1").row(at=20, id="1", n="2").run()
    assert 0 == condensed(young, dt.datetime.now(dt.UTC) - dt.timedelta(days=1))
    assert 0 == condensed(kept)
    assert 2 == len(changes_left(young))
    assert 2 == len(changes_left(kept))


def test_changes_that_no_mirror_has_folded_stay(depot: Depot) -> None:
    """A mirror that lags must find every batch as it was decoded once it goes on."""
    from ingest.silver.condense import condense

    depot.row(at=10, id="1", n="1").row(at=20, id="1", n="2").run()
    assert 0 == condense(depot.lake(), tomorrow(), 0)
    assert 2 == len(changes_left(depot))


def test_only_all_of_bronze_is_decoded_again(depot: Depot) -> None:
    """The last batches decoded again would lack what the dropped changes had added to their rows."""
    from ingest.silver.rebuild import rebuild

    depot.row(at=10, id="1", n="1").row(at=15, id="1", n="2").run()
    depot.row(at=20, id="1", n="3").run()
    assert 2 == condensed(depot)
    with pytest.raises(IngestError, match="batch 2 cannot be decoded again by itself"):
        rebuild(depot.lake(), 2, since=1, dry_run=True)
    found = rebuild(depot.lake(), 2, dry_run=False)
    assert (2, 0) == (found.differences["changes"].missing, found.differences["changes"].surplus)
    assert 3 == len(changes_left(depot))
    assert rebuild(depot.lake(), 2, since=1, dry_run=True).none
    assert 2 == condensed(depot)


def test_a_change_that_asks_for_what_is_gone_holds_its_mirror(spark: SparkSession, tmp_path: Path) -> None:
    """A changed key that takes along a row which silver has forgotten would come without its values."""
    from ingest.change import Change, Op, TableId
    from ingest.gold.plan.work import open_books
    from ingest.gold.stage import apply
    from ingest.ledgers import mirrors
    from ingest.silver import condense
    from tests.properties import lakes
    from tests.properties.histories import Sent

    def sent(at: int, op: Op, after: dict[str, str | None], before=None, *, partial: bool = False) -> Sent:
        change = Change(
            op=op, table=table, keys=("id",), before=before, after=after, partial=partial, sequence=(at,),
            types={"id": "int64", "n": "int64"},
        )  # fmt: skip
        return Sent(0, (change,))

    table = TableId("shop", None, "t")
    batches = [
        [sent(10, Op.INSERT, {"id": "1", "n": "1"}), sent(50, Op.UPDATE, {"id": "1", "n": "5"})],
        [sent(20, Op.UPDATE, {"id": "2"}, {"id": "1"}, partial=True)],
    ]
    feed = lakes.Feed(table, ("id",), [], batches)
    lake = lakes.lake_of(spark, tmp_path / "lake")
    lakes.write(lake, [feed], 1)
    lakes.fold_up_to(lake, 0, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(condense, "_older", lambda lake, _before: lake.decoded())
        assert 1 == condense.condense(lake, tomorrow(), 1)
    lakes.write(lake, [feed], 2)
    [found] = apply(lake, open_books(lake, 1, 2), mirrors.known(lake))
    assert "held" == found.state
    assert "has been condensed away" in found.message


def test_maintenance_condenses_where_the_pipeline_file_says_so(spark: SparkSession, tmp_path: Path) -> None:
    """Changes would be dropped without `condense_after`, or kept in spite of it."""
    from ingest.cli.maintain_verb import _condense
    from ingest.run import run
    from ingest.tables.lake import Lake

    kept, dropping = Slices(tmp_path / "kept"), Slices(tmp_path / "dropping", "condense_after: 0s\n")
    dropped = []
    for slices in (kept, dropping):
        slices.grow()
        slices.grow()
        assert [] == run(spark, slices.pipeline, STAGES).failures
        dropped.append(_condense(Lake(spark, slices.pipeline), lambda _table, _step: None))
        assert slices.expected() == slices.found(spark)
    assert [0, 1] == dropped


POINTS = [
    Point("silver", "note", "decisions", BEFORE),
    Point("silver", "note", "decisions", AFTER),
    Point("silver", "publish", "changes", BEFORE),
    Point("silver", "publish", "changes", WRITTEN),
    Point("silver", "publish", "changes", AFTER),
]


def test_a_kill_leaves_all_or_what_must_stay(spark: SparkSession, tmp_path: Path, monkeypatch) -> None:
    """Changes half dropped, or dropped without a record, would be folded as the whole history."""
    from ingest.gold.plan.completed import complete
    from ingest.gold.rebuild import rebuild
    from ingest.run import run
    from ingest.silver import condense
    from ingest.tables.lake import Lake

    monkeypatch.setattr(condense, "LEAST", 0)
    slices = Slices(tmp_path)
    slices.grow()
    assert [] == run(spark, slices.pipeline, STAGES).failures
    for point in POINTS:
        slices.grow()
        assert [] == run(spark, slices.pipeline, STAGES).failures
        lake = Lake(spark, slices.pipeline)
        with killed_at(point, lake.pipeline.lake):
            condense.condense(lake, tomorrow(), complete(lake))
    slices.grow()
    assert [] == run(spark, slices.pipeline, STAGES).failures
    lake = Lake(spark, slices.pipeline)
    assert condense.condense(lake, tomorrow(), complete(lake)) > 0
    assert slices.expected() == slices.found(spark)
    assert [] == [one.mirror for one in rebuild(lake, [], dry_run=True) if not one.difference.none]
    assert {} == {name: count for name, count in doubled(lake).items() if count}
    assert (slices.lines, slices.lines) == (counted(lake)["bronze"], counted(lake)["messages"])
