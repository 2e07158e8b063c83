"""Tables of a mirror's old states (SCD type 2), with changes in order and late."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.config.model import TableRule
from tests.gold.depot import Depot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)


def states(depot: Depot) -> list[tuple[Any, ...]]:
    """Id, value, begin and end in seconds since the start, and whether the state is current; in order."""
    from pyspark.sql import functions as F

    frame = depot.lake().read("histories/yard/depot")
    began, ended = (F.unix_seconds(name) - int(START.timestamp()) for name in ("valid_from", "valid_to"))
    rows = frame.select("id", "n", began.alias("began"), ended.alias("ended"), "is_current").collect()
    return sorted((tuple(row) for row in rows), key=lambda row: row[:1] + row[2:3])


@pytest.mark.parametrize("apply", ["merge", "auto"])
def test_states(spark: SparkSession, tmp_path: Path, apply: str) -> None:
    """A state that is lost, open twice or in the wrong order makes every question about the past wrong."""
    from ingest.inspect.query import query
    from ingest.run import Warm

    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.*", history=True), budget=4 << 20, apply=apply)
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
    assert (depot.why_spark == "") == (apply == "auto"), depot.why_spark
    assert [9] == [row["id"] for row in depot.rows()]

    count = "SELECT count(*) AS n FROM yard.depot__history"
    found = [query(depot.lake(), count, 0, batch)[1:] for batch in (1, 2, 3)]
    assert [([[3]], []), ([[4]], []), ([[5]], [])] == found


def test_a_source_table_of_that_name(spark: SparkSession, tmp_path: Path) -> None:
    """A source may have a table ``depot__history``: rows of two tables in one path ruin both."""
    from ingest.inspect import query, status
    from ingest.run import Warm

    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.*", history=True))
    depot.row(id="1", n="1")
    own = {"data": [{"id": "7", "n": "7"}], "mysqlType": {"id": "int", "n": "int"}, "pkNames": ["id"]}
    depot.say(table="depot__history", isDdl=False, type="INSERT", old=None, sql="", **own)
    depot.run()
    assert [1] == [row["id"] for row in depot.rows()]
    assert [7] == [row["id"] for row in depot.rows("depot__history")]
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


def test_a_source_column_named_like_one_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    """The source's values would overwrite the moments of every current state."""
    from ingest.run import Warm

    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.*", history=True))
    depot.row(id="1", n="1").run()
    named = {"mysqlType": {"id": "int", "n": "int", "Valid_From": "date"}}
    for number, day in ((2, "2023-11-14"), (3, None)):
        row = {"id": str(number), "n": "1", "Valid_From": day}
        depot.say(
            table="depot", isDdl=False, type="INSERT", old=None, sql="", data=[row], pkNames=["id"], **named
        )
        assert ("done", "") == depot.run()
    assert [(1, 1, 10, None, True), (2, 1, 20, None, True), (3, 1, 30, None, True)] == states(depot)
    [taken] = [name for name in depot.lake().read("histories/yard/depot").columns if "Valid_From" in name]
    kept = {row["id"]: row[taken] for row in depot.lake().read("histories/yard/depot").collect()}
    assert {1: None, 2: dt.date(2023, 11, 14), 3: None} == kept
    assert {1: None, 2: dt.date(2023, 11, 14), 3: None} == {
        row["id"]: row["Valid_From"] for row in depot.rows()
    }


@pytest.mark.parametrize(
    ("policy", "lost", "ended"),
    [
        ("lenient", ("DROP TABLE depot", "CREATE TABLE depot (id INT PRIMARY KEY, m INT)"), 40),
        ("evolve", ("ALTER TABLE depot DROP n", "ALTER TABLE depot COMMENT 'x'"), 30),
    ],
)
def test_older_states_keep_values_that_the_mirror_has_no_column_for(
    spark: SparkSession, tmp_path: Path, policy: str, lost: tuple[str, str], ended: int
) -> None:
    """A column that is dropped, or made again with another type, would be NULL in all states from before."""
    from ingest.run import Warm

    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.*", history=True, on_schema_change=policy))
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
    assert ["5" if policy == "lenient" else 5] == [row["n"] for row in depot.rows() if row["id"] == 1]
