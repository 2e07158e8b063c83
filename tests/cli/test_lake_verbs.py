"""plan, status and the catalogs' SQL over a lake that is there: what they say, and that they leave it alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ingest.inspect import status
from ingest.operate import catalog_sql, dry_run
from ingest.run import run
from ingest.tables.lake import Lake
from tests.lakes import Depot, change, statement, touch

pytestmark = [pytest.mark.spark, pytest.mark.e2e]
RULES = """\
tables:
  - {match: depot.frozen, on_schema_change: freeze}
  - {match: depot.wide, columns: {word: int32}}
"""


@pytest.fixture(scope="module")
def depot(spark, tmp_path_factory):
    """A lake of some batches: ordinary, frozen, hostile and keyless tables."""
    made = Depot(tmp_path_factory.mktemp("verbs"), RULES)
    made.grow()
    more(made, change("INSERT", "frozen", 11, {"id": "1", "word": "a"}))
    more(made, change("INSERT", "we`ird; --é", 12, {"id": "1", "word": "a"}))
    more(made, change("INSERT", "visits", 13, {"word": "a"}, pkNames=None))
    run(spark, made.pipeline)
    return made


def more(depot: Depot, line: str) -> None:
    """Append one line."""
    with depot.feed.open("a", encoding="utf-8") as file:
        file.write(line)
    touch(depot.feed, 3600 - depot.feed.stat().st_size)


def files(depot: Depot) -> dict[str, int]:
    """Every file of the lake with its time."""
    return {str(path): path.stat().st_mtime_ns for path in Path(depot.pipeline.lake).rglob("*")}


def test_plan_over_a_lake(spark, depot):
    """The plan must be what the run then does; and it must not do it."""
    quiet = dry_run.foresee(depot.pipeline, spark, 200)
    assert (None, True) == (quiet["next_batch"], quiet["lake_exists"])
    assert ["depot.visits"] == [one["table"] for one in quiet["tables"]]  # held, and it still waits
    wide = {"id": "bigint", "word": "varchar", "tall": "int"}
    more(depot, change("INSERT", "bins", 201, {"id": "77", "word": "w", "tall": "3"}, mysqlType=wide))
    more(depot, change("INSERT", "frozen", 202, {"id": "2", "word": "w", "tall": "3"}, mysqlType=wide))
    more(depot, change("INSERT", "wide", 203, {"id": "2", "word": "5"}))
    more(depot, statement("shelf0", 204, "ALTER TABLE shelf0 ADD COLUMN deep int DEFAULT 4"))
    before = files(depot)
    found = dry_run.foresee(depot.pipeline, spark, 200)
    assert before == files(depot)
    tables = {one["table"].removeprefix("depot."): one for one in found["tables"]}
    expected = {"bins": "change", "frozen": "hold", "wide": "create", "shelf0": "change", "visits": "hold"}
    assert expected == {name: one["action"] for name, one in tables.items()}
    assert [("tall", "INT")] == [(one["name"], one["type"]) for one in tables["bins"]["added"]]
    assert [("deep", "INT")] == [(one["name"], one["type"]) for one in tables["shelf0"]["added"]]
    assert "is frozen" in tables["frozen"]["why"]
    assert (True, False) == (tables["bins"]["from_a_sample"], tables["visits"]["from_a_sample"])
    assert 2 == len(found["problems"])
    ran = run(spark, depot.pipeline)
    assert found["next_batch"] == ran.batch
    held = {one.mirror for one in ran.mirrors if one.state == "held"}
    assert {"depot.frozen", "depot.visits"} == held
    assert [] != [one for one in ran.mirrors if one.mirror == "depot.wide" and one.state == "done"]


@pytest.mark.slow
def test_plan_names_what_is_landed_and_not_decoded(spark, depot):
    """After a bronze-only run nothing is new in the sources, and yet a run has work."""
    more(depot, change("INSERT", "fresh", 301, {"id": "1", "word": "a"}))
    landed = run(spark, depot.pipeline, ["bronze"]).batch
    found = dry_run.foresee(depot.pipeline, spark, 200)
    assert ([landed], None) == (found["undecoded_batches"], found["next_batch"])
    assert "create" == next(one["action"] for one in found["tables"] if one["table"] == "depot.fresh")
    run(spark, depot.pipeline)


def test_status_lists_what_waits(spark, depot):
    """An alert has nothing to go by but this."""
    found = status.status(Lake(spark, depot.pipeline))
    rows = {one["table"]: one for one in found["tables"]}
    assert ("held", None) == (rows["depot.visits"]["state"], rows["depot.visits"]["rows"])
    assert rows["depot.bins"]["lag_seconds"] > 0
    assert 1 == found["open_rejects"]["message"]
    assert True is found["last_run"]["failed"]
    assert json.loads(json.dumps(found)) == found


def test_spark_takes_the_statements_and_the_tables_stay_as_they_are(spark, depot):
    """A pasted script that fails at its third table is not used again; one that commits would be worse."""
    lake = Lake(spark, depot.pipeline)
    found = catalog_sql.registered(lake)
    before = files(depot)
    text = re.sub(r"(?m) *-- .*$", "", catalog_sql.sql("spark", found))
    for one in filter(str.strip, re.split(r";\n", text)):
        spark.sql(one)
    tables = {row["tableName"] for row in spark.sql("SHOW TABLES IN depot").collect()}
    assert {"bins", "shelf0", "we_x60ird_x3b_x20_x2d_x2d_xe9"} <= tables
    assert [(77,)] == [tuple(row) for row in spark.sql("SELECT id FROM depot.bins WHERE tall = 3").collect()]
    assert before == files(depot)
    spark.sql("DROP SCHEMA depot CASCADE")
    assert before == files(depot)
    assert any(
        "depot.visits: there is no table yet (held" in line
        for line in catalog_sql.sql("spark", found).splitlines()
    )
