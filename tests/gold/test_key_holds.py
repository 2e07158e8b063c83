"""Mirrors held because of their key: what the message says, followed word by word, ends with an exact mirror."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.config.model import TableRule
from tests.gold.depot import Depot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]  # minutes: each follows commands over a lake of its own
NUMBERED = (
    "ALTER TABLE depot ADD COLUMN uid BIGINT NOT NULL AUTO_INCREMENT, DROP PRIMARY KEY, ADD PRIMARY KEY (uid)"
)


@pytest.fixture
def depot(spark: SparkSession, tmp_path: Path) -> Depot:
    """An empty depot."""
    from ingest.run import Warm

    return Depot(spark, tmp_path, Warm(), TableRule("yard.*"))


def say(depot: Depot, keys: list[str] | None, kind: str = "INSERT", **cells: str) -> None:
    """A row with its key as the message names it."""
    types = dict.fromkeys(cells, "int")
    depot.say(isDdl=False, type=kind, data=[cells], mysqlType=types, old=None, pkNames=keys, sql="")


def written(depot: Depot, **rule: Any) -> None:
    """Another ``tables:`` entry, read by a new process."""
    from ingest.run import Warm

    depot.rule, depot.warm = replace(depot.rule, **rule), Warm()


def cells(depot: Depot, *names: str) -> list[tuple[Any, ...]]:
    """The mirror's rows."""
    found = depot.lake().read("mirrors/yard/depot").collect()
    return sorted(tuple(row[name] for name in names) for row in found)


def test_rows_without_the_new_key_are_read_again(depot: Depot) -> None:
    """No statement contains the numbers that the source gives its rows by itself: only a new read has them."""
    from ingest.cli.epoch_verb import carry_out, decide
    from ingest.ledgers import epochs

    say(depot, ["id"], id="1", n="1")
    say(depot, ["id"], id="2", n="2")
    assert ("done", "") == depot.run()
    depot.ddl(NUMBERED)
    say(depot, ["uid"], id="1", n="3", uid="13")
    state, message = depot.run()
    assert ("held", True) == (state, "--from-batch BATCH --resnapshot yard.depot --complete" in message)
    assert [(1, 1), (2, 2)] == cells(depot, "id", "n")
    for uid, own, n in (("11", "1", "1"), ("12", "2", "2"), ("13", "1", "3")):
        say(depot, ["uid"], "INIT", id=own, n=n, uid=uid)
    assert "held" == depot.run()[0]
    lake, start = depot.lake(), epochs.with_batch(3, 3)
    decide(lake, "s", start, ["yard.depot"], "", complete=True, withdraw=False)
    carry_out(lake, "s", start)
    say(depot, ["uid"], id="1", n="4", uid="14")
    assert ("done", "") == depot.run()
    expected = [(11, 1, 1), (12, 2, 2), (13, 1, 3), (14, 1, 4)]
    assert expected == cells(depot, "uid", "id", "n")


@pytest.mark.one_of(2)
@pytest.mark.parametrize("rule", [{"no_key": "full_row"}, {"keys": ("id",)}], ids=["no_key", "keys"])
def test_a_table_without_its_primary_key(depot: Depot, rule: dict[str, Any]) -> None:
    """Both ways out are named; what came before the statement must be there by either."""
    say(depot, ["id"], id="1", n="1")
    assert ("done", "") == depot.run()
    depot.ddl("ALTER TABLE depot DROP PRIMARY KEY")
    say(depot, None, id="2", n="2")
    state, message = depot.run()
    assert ("held", True) == (state, "write `keys: [...]` or `no_key: full_row`" in message)
    written(depot, **rule)
    assert ("done", "") == depot.run()
    say(depot, None, id="3", n="3")
    assert ("done", "") == depot.run()
    assert [1, 2, 3] == [row["id"] for row in depot.rows()]


def test_condensed_by_another_key(depot: Depot) -> None:
    """A key that was too narrow has dropped rows of silver; folded by the right one they would be missing."""
    from ingest.gold.plan.completed import complete
    from ingest.gold.rebuild import rebuild
    from ingest.silver.condense import condense
    from ingest.silver.rebuild import rebuild as decode_again

    written(depot, keys=("id",))
    for n in range(1, 9):
        say(depot, ["id", "n"], id="1", n=str(n))
    assert ("done", "") == depot.run()
    lake = depot.lake()
    assert condense(lake, dt.datetime.now(dt.UTC) + dt.timedelta(days=1), complete(lake))
    written(depot, keys=("id", "n"))
    [held] = rebuild(depot.lake(), [], dry_run=False)
    assert ("held", True) == (held.state, "--layer silver" in held.message)
    say(depot, ["id", "n"], id="1", n="9")
    state, message = depot.run()
    assert ("held", True) == (state, "condensed by the key (id)" in message)
    decode_again(depot.lake(), 1, dry_run=False)
    written(depot)
    assert ("done", "") == depot.run()
    assert list(range(1, 10)) == [row["n"] for row in sorted(depot.rows(), key=lambda row: row["n"])]


def test_a_rebuild_after_the_key_has_changed(depot: Depot) -> None:
    """A rebuild by one key for all changes leaves ghosts, and rejects rows from before a renamed column."""
    from ingest.gold.explain import explain
    from ingest.gold.rebuild import rebuild

    say(depot, ["id"], id="1", n="1")
    say(depot, ["id"], id="2", n="2")
    assert ("done", "") == depot.run()
    depot.ddl("ALTER TABLE depot RENAME COLUMN id TO uid")
    say(depot, ["uid"], "UPDATE", uid="2", n="3")
    assert ("done", "") == depot.run()
    [found] = rebuild(depot.lake(), [], dry_run=False)
    assert ("rebuilt", True) == (found.state, found.difference is not None and found.difference.none)
    say(depot, ["uid"], uid="4", n="4")
    assert ("done", "") == depot.run()
    assert [(1, 1), (2, 3), (4, 4)] == cells(depot, "uid", "n")
    assert not depot.lake().exists("rejects")
    story = explain(depot.lake(), "yard.depot", ["1"])
    assert story.equal
    assert story.folded is not None


def test_killed_between_the_commit_and_the_decision(depot: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run finds the old key decided, and rows that have the new one."""
    from ingest.ledgers import mirrors

    say(depot, ["id"], id="1", n="1")
    assert ("done", "") == depot.run()
    say(depot, ["id", "n"], id="1", n="2")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(mirrors, "decision", killed)
        with pytest.raises(KeyboardInterrupt):
            depot.run()
    written(depot)
    assert ("done", "") == depot.run()
    say(depot, ["id", "n"], id="1", n="3")
    assert ("done", "") == depot.run()
    assert [(1, 1), (1, 2), (1, 3)] == cells(depot, "id", "n")
