"""A `sources.yml` for dbt: its names, keys and freshness, as an independent reader of YAML takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from ingest.cli.app import app
from ingest.operate import catalog_dbt
from tests.lakes import change
from tests.written_lake import WrittenLake

FRESH = "quality:\n  - {table: depot.bins, freshness: 90m}\n"


def sources(made: WrittenLake, *words: str) -> list[dict[str, Any]]:
    """The sources that the file declares."""
    done = CliRunner().invoke(app, ["tables", str(made.file), "-o", "dbt", *words])
    assert 0 == done.exit_code, done.output
    found = YAML(typ="safe").load(done.stdout)
    assert 2 == found["version"]
    return list(found["sources"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> WrittenLake:
    """Two mirrors, one with a key of two columns."""
    found = WrittenLake(tmp_path_factory.mktemp("depot"), more=FRESH)
    found.take(
        [
            change("INSERT", "bins", 1, {"id": "1", "word": "a"}),
            change("INSERT", "pairs", 2, {"id": "1", "word": "a"}, pkNames=["id", "word"]),
        ],
    )
    return found


def test_keys_are_tested(made: WrittenLake) -> None:
    """A test of uniqueness on one column of a longer key fails on right rows; one that is not there finds nothing."""
    [source] = sources(made)
    assert ("depot", {"schema": True, "identifier": True}) == (source["name"], source["quoting"])
    tables = {table["name"]: table for table in source["tables"]}
    tests = {
        name: {column["name"]: column.get("data_tests") for column in table["columns"]}
        for name, table in tables.items()
    }
    assert tests["bins"] == {"id": ["not_null", "unique"], "word": None}
    assert tests["pairs"] == {"id": ["not_null"], "word": ["not_null"]}
    assert ["id", "word"] == tables["pairs"]["config"]["meta"]["primary_key"]


def test_a_limit_of_freshness_is_dbts(made: WrittenLake) -> None:
    """The file would have dbt call a table fresh that `status` complains of, or complain of one that nobody gave a limit."""
    tables = {table["name"]: table["config"] for table in sources(made)[0]["tables"]}
    assert {"warn_after": {"count": 90, "period": "minute"}} == tables["bins"]["freshness"]
    query = tables["bins"]["loaded_at_query"]
    assert f"FROM delta.`{made.lake}/books`" in query
    present = "CASE WHEN event_high <= now() + INTERVAL 1 HOUR THEN event_high END"
    assert query.startswith(f"SELECT coalesce(max({present}), max(event_high)) FROM "), (
        "a row of next year keeps no source fresh"
    )
    assert "`database` = 'depot'" in query
    assert "freshness" not in tables["pairs"]
    [quacking] = sources(made, "--dialect", "duckdb")
    assert f"delta_scan('{made.lake}/books')" in quacking["tables"][0]["config"]["loaded_at_query"]
    [trino] = sources(made, "--dialect", "trino")
    assert "freshness" not in trino["tables"][0]["config"]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (86400, (1, "day")),
        (7200, (2, "hour")),
        (5400, (90, "minute")),
        (61, (2, "minute")),
        (5, (1, "minute")),
    ],
)
def test_a_duration_is_never_shorter_in_dbts_periods(seconds: float, expected: tuple[int, str]) -> None:
    """It knows minutes, hours and days: a limit that is cut off would raise false alarms."""
    assert expected == tuple(catalog_dbt._age(seconds).values())


@pytest.mark.parametrize("text", ["{{ env_var('HOME') }}", "{% set x = 1 %}", "{{{", "{# c #}", "a { b } c"])
def test_no_name_runs_in_dbts_jinja(text: str) -> None:
    """Every text of the file is evaluated: a column's comment would read the environment of whoever runs dbt."""
    assert text == jinja2.Environment(autoescape=True).from_string(catalog_dbt._plain(text)).render().replace(
        "&#39;", "'"
    )


def test_one_table_is_no_catalog(made: WrittenLake) -> None:
    """A file with one of many tables would replace that of all."""
    done = CliRunner().invoke(app, ["tables", str(made.file), "-o", "dbt", "--table", "depot.bins"])
    assert (2, True) == (done.exit_code, "--output dbt" in done.output)


def test_a_mirror_without_a_table_is_a_comment(tmp_path: Path) -> None:
    """It would be a source whose every query fails, or be missing without a word."""
    held = WrittenLake(tmp_path)
    held.take([change("INSERT", "bins", 1, {"id": "1", "word": "a"})])
    held.take([change("INSERT", "box", 3, {"id": "1", "word": "a"})], held={"depot.box": "it has no key"})
    done = CliRunner().invoke(app, ["tables", str(held.file), "-o", "dbt"])
    assert "# depot.box: there is no table yet (held: it has no key)" in done.stdout
