"""Statements that a mirror has folded under another policy than today's; without Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingest.config.model import TableRule
from ingest.gold.plan.steps import steps_of
from ingest.ledgers import decisions
from ingest.ledgers.decisions import FOLDED, Decision
from ingest.quality.stage import check
from ingest.run import Warm
from tests.gold.depot import Depot
from tests.unstarted import unstarted

MIRROR = "mirrors/yard/depot"


def rows(depot: Depot) -> list[dict[str, Any]]:
    """The mirror."""
    return depot.lake().ask_mirror(MIRROR, "SELECT * FROM {mirror} ORDER BY id")


def failing(depot: Depot) -> list[str]:
    """The checks that have not passed."""
    return [row["check"] for row in depot.lake().ask("SELECT * FROM {checks} WHERE state <> 'pass'")]


def states(depot: Depot) -> list[str]:
    """What was recorded of statements."""
    found = depot.lake().ask(f"SELECT value FROM {{decisions}} WHERE kind = '{FOLDED}'")
    return [json.loads(row["value"])["state"] for row in found]


def test_a_rebuild_records_what_it_does(tmp_path: Path) -> None:
    """The next statement would fold rows as before the rebuild, or start a Java to change them in place."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*", on_schema_change="ignore"))
    assert ("done", "") == depot.row(id="1", n="1").run()
    assert ("done", "") == depot.ddl("ALTER TABLE depot ADD COLUMN gate INT DEFAULT 1").run()
    depot.rule = replace(depot.rule, on_schema_change="lenient")
    assert ("done", "") == depot.row(id="2", n="2", gate="5").run(checked=True)
    assert [1, 5] == [row["gate"] for row in rows(depot)]
    assert ("done", "") == depot.ddl(
        "ALTER TABLE depot ADD COLUMN door INT DEFAULT 7, MODIFY n VARCHAR(9)"
    ).run(checked=True)
    assert [(1, 7), (5, 7)] == [(row["gate"], row["door"]) for row in rows(depot)]
    assert ["logged", "applied", "applied"] == states(depot)
    assert [] == failing(depot)


def test_what_was_done_to_rows_stays_done(tmp_path: Path) -> None:
    """Judged again, an earlier statement would fill rows that it has not filled, and no check would know which is right."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*"))
    assert ("done", "") == depot.row(id="1", n="1").run()
    assert ("done", "") == depot.ddl("ALTER TABLE depot ADD COLUMN gate INT DEFAULT 1").run()
    assert [1] == [row["gate"] for row in rows(depot)]
    [name] = [
        json.loads(row["value"])["statement"]
        for row in depot.lake().ask(f"SELECT value FROM {{decisions}} WHERE kind = '{FOLDED}'")
    ]
    # as if it had been noticed only, and the rows were folded so
    noticed = Decision(FOLDED, MIRROR, {"statement": name, "state": "noticed", "does": []}, 2, "folded")
    decisions.append(depot.lake(), [noticed])
    assert ("done", "") == depot.ddl(
        "ALTER TABLE depot ADD COLUMN door INT DEFAULT 7, MODIFY n VARCHAR(9)"
    ).run(checked=True)
    assert [(None, 7)] == [(row["gate"], row["door"]) for row in rows(depot)]
    assert "" == depot.why_merge
    assert [] == failing(depot)


@pytest.mark.parametrize(("then", "now"), [("lenient", "ignore"), ("ignore", "lenient")])
def test_a_table_that_was_made_again_under_another_policy(tmp_path: Path, then: Any, now: Any) -> None:
    """A look at all keys judged its CREATE by the rule of today: rows that were rightly gone, or there, were complained of."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*", on_schema_change=then))
    assert ("done", "") == depot.row(id="1", n="1").run(checked=True)
    depot.ddl("DROP TABLE depot").ddl("CREATE TABLE depot (id INT PRIMARY KEY, n INT)")
    assert ("done", "") == depot.row(id="2", n="2").run(checked=True)
    assert [1, 2][then == "lenient" :] == [row["id"] for row in rows(depot)]
    depot.rule = replace(depot.rule, on_schema_change=now)
    checked = check(depot.lake(), steps=steps_of(depot.lake()))
    assert [] == [verdict.metric.check for verdict in checked.of("fail")]
