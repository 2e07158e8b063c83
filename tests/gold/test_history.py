"""Tables of a mirror's old states (SCD type 2), with changes in order and late."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from ingest.config.model import TableRule
from ingest.gold.rebuild import rebuild
from ingest.inspect import query, status
from ingest.run import Warm
from ingest.tables import commits
from tests.gold.depot import Depot
from tests.unstarted import unstarted

START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)


def states(depot: Depot) -> list[tuple[Any, ...]]:
    """Id, value, begin and end in seconds since the start, and whether the state is current; in order."""
    moments = ", ".join(
        f"epoch({name})::BIGINT - {int(START.timestamp())}" for name in ("valid_from", "valid_to")
    )
    asked = f"SELECT id, n, {moments}, is_current FROM {{mirror}}"
    rows = depot.lake().ask_mirror("histories/yard/depot", asked)
    return sorted((tuple(row.values()) for row in rows), key=lambda row: row[:1] + row[2:3])


def cells(depot: Depot, asked: str, table: str = "depot") -> list[tuple[Any, ...]]:
    """What is asked of a mirror, by the first cell."""
    rows = depot.lake().ask_mirror(f"mirrors/yard/{table}", f"SELECT {asked} FROM {{mirror}} ORDER BY 1")
    return [tuple(row.values()) for row in rows]


@pytest.mark.parametrize(
    "way",
    [
        "auto",
        pytest.param("merge", marks=[pytest.mark.spark, pytest.mark.slow]),
        pytest.param("tasks", marks=[pytest.mark.spark, pytest.mark.slow]),
        pytest.param("far", marks=[pytest.mark.spark, pytest.mark.slow]),
    ],
)
def test_states(
    request: pytest.FixtureRequest, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state that is lost, open twice or in the wrong order makes every question about the past wrong."""
    spark = unstarted() if way == "auto" else request.getfixturevalue("spark")
    if way == "far":  # as where only Hadoop reads the log
        monkeypatch.setattr(commits, "within_reach", lambda _path: False)
    apply, engine = "merge" if way == "merge" else "auto", "spark" if way == "tasks" else "auto"
    rule = TableRule("yard.*", history=True)
    depot = Depot(spark, tmp_path, Warm(), rule, budget=4 << 20, apply=apply, engine=engine)
    assert ("done", "") == depot.row(id="1", n="1").row(id="2", n="5").row(
        "UPDATE", {"n": "1"}, id="1", n="2"
    ).run()
    assert [(1, 1, 10, 30, False), (1, 2, 30, None, True), (2, 5, 20, None, True)] == states(depot)

    assert ("done", "") == depot.row("DELETE", id="2", n="5").row("UPDATE", {"id": "1"}, id="9", n="2").run()
    expected = [(1, 1, 10, 30, False), (1, 2, 30, 50, False), (2, 5, 20, 40, False), (9, 2, 50, None, True)]
    assert expected == states(depot)

    assert ("done", "") == depot.row("UPDATE", {"n": "1"}, 25, id="1", n="7").run()
    late = [(1, 1, 10, 25, False), (1, 7, 25, 30, False), *expected[1:]]
    assert late == states(depot)
    assert (depot.why_merge == "") == (way in ("auto", "tasks")), depot.why_merge
    assert [(9,)] == cells(depot, "id")

    count = "SELECT count(*) AS n FROM yard.depot__history"
    found = [query.query(depot.lake(), count, 0, batch)[1:] for batch in (1, 2, 3)]
    assert [([[3]], []), ([[4]], []), ([[5]], [])] == found


def test_a_source_table_of_that_name(tmp_path: Path) -> None:
    """A source may have a table ``depot__history``: rows of two tables in one path ruin both."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*", history=True))
    depot.row(id="1", n="1")
    own = {"data": [{"id": "7", "n": "7"}], "mysqlType": {"id": "int", "n": "int"}, "pkNames": ["id"]}
    depot.say(table="depot__history", isDdl=False, type="INSERT", old=None, sql="", **own)
    depot.run()
    assert [(1,)] == cells(depot, "id")
    assert [(7,)] == cells(depot, "id", "depot__history")
    assert [(1, 1, 10, None, True)] == states(depot)
    names = [one["table"] for one in status.tables(depot.lake())]
    assert [
        "yard.depot",
        "yard.depot__history",
        "yard.depot__history",
        "yard.depot__history__history",
    ] == names
    assert (["id", "n"], [[7, 7]]) == query.query(depot.lake(), "SELECT * FROM yard.depot__history")[:2]
    assert (["id", "is_current"], [[7, True]]) == query.query(
        depot.lake(), "SELECT id, is_current FROM yard.depot__history__history"
    )[:2]


def test_a_source_column_named_like_one_of_its_own(tmp_path: Path) -> None:
    """The source's values would overwrite the moments of every current state."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*", history=True))
    depot.row(id="1", n="1").run()
    named = {"mysqlType": {"id": "int", "n": "int", "Valid_From": "date"}}
    for number, day in ((2, "2023-11-14"), (3, None)):
        row = {"id": str(number), "n": "1", "Valid_From": day}
        depot.say(
            table="depot", isDdl=False, type="INSERT", old=None, sql="", data=[row], pkNames=["id"], **named
        )
        assert ("done", "") == depot.run()
    assert [(1, 1, 10, None, True), (2, 1, 20, None, True), (3, 1, 30, None, True)] == states(depot)
    lake = depot.lake()
    [taken] = [name for name in lake.snapshot("histories/yard/depot").columns if "Valid_From" in name]
    kept = lake.ask_mirror("histories/yard/depot", f'SELECT id, "{taken}" AS day FROM {{mirror}} ORDER BY 1')
    expected = [(1, None), (2, dt.date(2023, 11, 14)), (3, None)]
    assert expected == [tuple(row.values()) for row in kept] == cells(depot, 'id, "Valid_From"')


@pytest.mark.parametrize(
    ("policy", "lost", "ended"),
    [
        ("lenient", ("DROP TABLE depot", "CREATE TABLE depot (id INT PRIMARY KEY, m INT)"), 40),
        ("evolve", ("ALTER TABLE depot DROP n", "ALTER TABLE depot COMMENT 'x'"), 30),
    ],
)
def test_older_states_keep_values_that_the_mirror_has_no_column_for(
    tmp_path: Path, policy: str, lost: tuple[str, str], ended: int
) -> None:
    """A column that is dropped, or made again with another type, would be NULL in all states from before."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*", history=True, on_schema_change=policy))
    named = {"table": "depot", "isDdl": False, "type": "INSERT", "old": None, "sql": "", "pkNames": ["id"]}
    types = {"id": "int", "n": "varchar(9)", "m": "int"}
    for number, text in ((1, "abc"), (2, "7.50")):
        depot.say(data=[{"id": str(number), "n": text, "m": "1"}], mysqlType=types, **named)
    assert ("done", "") == depot.run()
    depot.ddl(lost[0]).ddl(lost[1]).row(id="1", m="2")
    assert ("done", "") == depot.run()
    depot.ddl("ALTER TABLE depot ADD COLUMN n INT").row(id="1", m="3", n="5")
    assert ("done", "") == depot.run()
    expected = [(1, "abc", 10, ended, False), (1, None, 50, 70, False), (1, "5", 70, None, True)]
    assert expected == [one for one in states(depot) if one[0] == 1 and one[2] != 30]
    assert (2, "7.50", 20, ended, False) in states(depot)
    # a table that is dropped keeps its columns unless the policy drops them
    assert ["5" if policy == "lenient" else 5] == [n for id_, n in cells(depot, "id, n") if id_ == 1]


def test_rebuilt_as_it_was(tmp_path: Path) -> None:
    """A rebuild publishes both tables, and starts no Java to fold and compare them."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*", history=True))
    depot.row(id="1", n="1").row(id="2", n="5").row("UPDATE", {"n": "1"}, id="1", n="2").run()
    depot.row("DELETE", id="2", n="5").ddl("ALTER TABLE depot ADD COLUMN m INT DEFAULT 3").run()
    depot.row(id="3", n="1", m="4").run()
    before = states(depot)
    for dry_run in (True, False):
        [found] = rebuild(depot.lake(), [], dry_run=dry_run)
        assert ("compared" if dry_run else "rebuilt", "") == (found.state, found.message)
        assert found.difference is not None
        assert (2, True) == (found.difference.rows, found.difference.none)
    assert before == states(depot)
    assert ("done", "") == depot.row("UPDATE", {"n": "2"}, id="1", n="8", m="3").run()
    expected = [(1, 1, 10, 30, False), (1, 2, 30, 50, False), (1, 2, 50, 70, False), (1, 8, 70, None, True)]
    assert [*expected, *before[3:]] == states(depot)


def test_states_that_a_statement_made_stay(tmp_path: Path) -> None:
    """A later batch without a statement would fold a key's history without those before: its states would be others."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*", history=True))
    depot.row(id="1", n="1").ddl("ALTER TABLE depot ADD COLUMN m INT DEFAULT 3").run()
    depot.row("UPDATE", {"n": "1"}, id="1", n="2", m="3").run()
    assert [(1, 1, 10, 20, False), (1, 1, 20, 30, False), (1, 2, 30, None, True)] == states(depot)


def test_states_that_another_writer_overtakes_for_ever_are_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Called done, the mirror would be up to date, and its old states would lack the batch without a word."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*", history=True))
    depot.row(id="1", n="1").run()
    write = commits.write

    def overtaken(folder: str, *given: Any, **more: Any) -> bool:
        return "/histories/" not in folder and write(folder, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(commits, "write", overtaken)
        state, message = depot.row("UPDATE", {"n": "1"}, id="1", n="2").run()
    assert "failed" == state
    assert "another writer has committed to yard.depot__history" in message
    assert ("done", "") == depot.row("UPDATE", {"n": "2"}, id="1", n="3").run()
    assert [(1, 1, 10, 20, False), (1, 2, 20, 30, False), (1, 3, 30, None, True)] == states(depot)
