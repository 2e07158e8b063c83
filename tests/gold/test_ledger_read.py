"""Rows that are folded again in a batch without statements: those of earlier batches have changed them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingest.config.model import TableRule
from ingest.run import Warm
from tests.gold.depot import Depot
from tests.unstarted import unstarted


def depot_of(folder: Path, **rule: Any) -> Depot:
    """A table of which nothing was said yet, folded without Spark."""
    return Depot(unstarted(2), folder, Warm(), TableRule("yard.*", **rule))


def say(depot: Depot, kind: str, old: dict[str, str | None] | None = None, **cells: str | None) -> Depot:
    """A message of a table without a key."""
    types = dict.fromkeys(cells, "int")
    return depot.say(isDdl=False, type=kind, data=[cells], mysqlType=types, old=old and [old], sql="")


def rows(depot: Depot) -> list[tuple[Any, ...]]:
    """The mirror's rows in order."""
    found = depot.lake().ask_mirror("mirrors/yard/depot", "SELECT * FROM {mirror} AS m ORDER BY ALL")
    return [tuple(row.values()) for row in found]


def test_a_row_without_a_key_is_found_by_what_a_statement_filled(tmp_path: Path) -> None:
    """Both of two equal rows would be deleted instead of one; without the statement, neither would be found."""
    depot = depot_of(tmp_path, no_key="full_row")
    for n in ("1", "1", "2"):
        say(depot, "INSERT", n=n)
    assert ("done", "") == depot.run()
    depot.ddl("ALTER TABLE depot ADD COLUMN m INT DEFAULT 7")
    assert ("done", "") == say(depot, "INSERT", n="3", m="3").run()
    assert [(1, 7), (1, 7), (2, 7), (3, 3)] == rows(depot)
    say(depot, "DELETE", n="1", m="7")
    say(depot, "UPDATE", {"n": "2"}, n="4", m="7")
    assert ("done", "") == depot.run()
    assert [(1, 7), (3, 3), (4, 7)] == rows(depot)


def test_a_column_that_becomes_text_keeps_what_statements_did(tmp_path: Path) -> None:
    """The source's own texts come from silver, where no statement has changed them."""
    depot = depot_of(tmp_path)
    assert ("done", "") == depot.row(id="1", n="1", s="1").run()
    depot.ddl("ALTER TABLE depot ADD COLUMN m INT DEFAULT 7").row(id="2", n="2", s="2", m="2")
    assert ("done", "") == depot.run()
    types = {"id": "int", "n": "int", "s": "varchar(9)", "m": "int"}
    cells = {"id": "3", "n": "3", "s": "x", "m": "3"}
    depot.say(isDdl=False, type="INSERT", data=[cells], mysqlType=types, old=None, pkNames=["id"], sql="")
    assert ("done", "") == depot.run()
    assert [(1, 1, "1", 7), (2, 2, "2", 2), (3, 3, "x", 3)] == rows(depot)


@pytest.mark.parametrize(("policy", "left"), [("evolve", [(2,)]), ("lenient", [(2, None)])])
def test_a_row_without_a_key_is_found_by_the_columns_left(
    tmp_path: Path, policy: str, left: list[tuple[Any, ...]]
) -> None:
    """Rows would go on being distinguished by a column that no delete names; and the checks must know that it is gone."""
    depot = depot_of(tmp_path, no_key="full_row", on_schema_change=policy)
    say(say(depot, "INSERT", n="1", m="1"), "INSERT", n="2", m="2").run()
    assert ("done", "") == depot.ddl("ALTER TABLE depot DROP COLUMN m").run(checked=True)
    failed = depot.lake().ask("SELECT * FROM {checks} WHERE severity = 'error' AND state <> 'pass'")
    assert [] == failed
    assert ("done", "") == say(depot, "DELETE", n="1").run()
    assert left == rows(depot)
