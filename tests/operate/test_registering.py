"""SQL for other engines' catalogs: it parses, it runs where the engine is here, and no name breaks out of it."""

from __future__ import annotations

import duckdb
import pytest
import sqlglot
from sqlglot import exp

from ingest.catalog.entries import Registered, RegisteredColumn
from ingest.catalog.names import plain
from ingest.change import TableId
from ingest.operate.catalog_sql import Names, remark, sql

HOSTILE = 'it\'s `a` "b"; DROP TABLE x; --\n<script>\\ é'
MIRRORS = [
    Registered(
        TableId("depot", None, "bins"),
        "/lake/mirrors/depot/bins",
        (
            RegisteredColumn("no", "BIGINT", "no", "int64"),
            RegisteredColumn("label", "STRING", "label", "unknown", "it's \\ one"),
        ),
        ("no",),
    ),
    Registered(
        TableId("depot", None, "Bins"),
        "/lake/mirrors/depot/~bins",
        (RegisteredColumn("no", "INT", "no", "int32"),),
    ),
    Registered(
        TableId(HOSTILE, "s", HOSTILE),
        f"/lake/{HOSTILE}",
        (RegisteredColumn("a_x60", "STRING", "a`", "string", HOSTILE),),
        (HOSTILE,),
    ),
    Registered(TableId("depot", None, "held"), why=f"there is no table yet (held: {HOSTILE})"),
]


def parsed(dialect: str) -> list[exp.Expression]:
    """The statements as an independent parser takes them."""
    return [
        one
        for one in sqlglot.parse(sql(dialect, MIRRORS), read=dialect)
        if not isinstance(one, exp.Semicolon)
    ]


def test_spark_statements_say_what_the_tables_are():
    """A column of the wrong type or place makes Delta refuse the statement."""
    tables = [one for one in parsed("spark") if one.args.get("kind") == "TABLE"]
    columns = [one.name for one in tables[0].find_all(exp.ColumnDef)]
    locations = [one.find(exp.LocationProperty).this.this for one in tables]
    assert ["no", "label"] == columns
    assert [one.path for one in MIRRORS[:3]] == locations
    assert 2 == sum(one.args.get("kind") == "SCHEMA" for one in parsed("spark"))


def test_no_name_adds_a_statement():
    """A table's name would run as SQL in the catalog of the user who pastes the text."""
    assert {"spark": 5, "duckdb": 14, "trino": 5} == {
        dialect: len(parsed(dialect)) for dialect in ("spark", "duckdb", "trino")
    }


def test_duckdb_runs_every_statement():
    """A statement that DuckDB refuses ends the whole script; its Delta reader is played by a macro."""
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE MACRO delta_scan(path) AS TABLE SELECT 7 AS no, path AS label, 'x' AS a_x60"
        )
        for one in connection.extract_statements(sql("duckdb", MIRRORS)):
            if one.type != duckdb.StatementType.LOAD:
                connection.execute(one)
        seen = connection.execute(
            "SELECT column_name, comment FROM duckdb_columns() WHERE schema_name = 'depot' AND table_name = 'bins' "
            "AND column_name IN ('no', 'label') ORDER BY 1"
        ).fetchall()
        found = connection.execute("SELECT label FROM depot.bins").fetchone()
        views = connection.execute("SELECT count(*) FROM duckdb_views() WHERE NOT internal").fetchone()
    assert [("label", "of a type that the messages do not name"), ("no", "int64")] == seen
    assert ("/lake/mirrors/depot/bins",) == found
    assert (3,) == views


def test_trino_registers_a_location_with_its_file_system():
    """Trino refuses a location without a scheme."""
    text = sql("trino", MIRRORS)
    assert "schema_name => 'depot', table_name => 'bins'" in text
    assert "table_location => 'file:///lake/mirrors/depot/bins'" in text
    assert text.count("CALL system.register_table(") == 3


def test_names_that_differ_only_in_case_stay_two():
    """Otherwise the second view would replace the first silently."""
    names = Names(plain)
    first, second = names.of(TableId("d", None, "orders")), names.of(TableId("d", None, "Orders"))
    assert first != second
    assert first[1].lower() != second[1].lower()
    assert first == names.of(TableId("d", None, "orders"))


def test_a_schema_in_a_database_is_not_another_database():
    """Tables of `a_b` and of `a`.`b` would share one name."""
    names = Names(plain)
    assert names.of(TableId("a_b", None, "t")) != names.of(TableId("a", "b", "t"))


@pytest.mark.parametrize("name", [HOSTILE, "ordens é", "x" * 300, "", "日本"])
def test_plain_names_are_what_catalogs_accept(name):
    """Spark's catalog refuses every other character."""
    assert plain(name).replace("_", "a").isascii()
    assert plain(name).replace("_", "a").isalnum()
    assert len(plain(name)) <= 100


def test_a_remark_is_one_line():
    """What follows a line end would not be a comment any more."""
    assert 1 == len(remark("a\nb\r\u2028\x85c\x0bd").splitlines())
