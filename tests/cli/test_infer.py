"""infer: a block that a pipeline file takes, on stdout, from a file or a pipeline."""

from __future__ import annotations

import json

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from ingest.cli.app import app

LINES = [
    '{"meta":{"op":"ins","table":"depot.parcels"},"data":{"id":1,"zip":"04109","fee":1.10,"note":null}}',
    '{"meta":{"op":"ins","table":"depot.parcels"},"data":{"id":22,"zip":"80331","fee":20,"note":null}}',
]
PIPELINE = """
pipeline: depot
lake: ./lake
engine: auto
sources:
  - {name: parcels, kind: files, path: ./*.jsonl, format: dts-shareplex}
tables:
  - {match: depot.*, keys: [id]}
"""


@pytest.fixture
def file(tmp_path):
    """Two messages without types."""
    path = tmp_path / "parcels.jsonl"
    path.write_text("\n".join(LINES) + "\n")
    return path


def ran(*words):
    """The verb's result."""
    return CliRunner().invoke(app, ["infer", *map(str, words)])


def test_the_block_is_yaml_with_types_that_hold_the_values(file):
    """It is meant to be pasted."""
    done = ran(file, "--format", "dts-shareplex")
    found = YAML(typ="safe").load(done.stdout)["tables"][0]
    assert {
        "match": "depot.parcels",
        "columns": {"id": "int64", "zip": "string", "fee": "decimal(12,4)"},
    } == found
    assert "no value was seen" in done.stdout


def test_a_pipeline_file_names_files_and_format(file):
    """Users have one already."""
    path = file.parent / "depot.yaml"
    path.write_text(PIPELINE.replace("depot.*", "other.*"))
    assert ran(file, "--format", "dts-shareplex").stdout == ran(path).stdout


def test_an_entry_that_is_there_is_named(file):
    """A second entry for the table, pasted below it, was never read; pasted instead of it, the table lost its keys."""
    path = file.parent / "depot.yaml"
    path.write_text(PIPELINE)
    assert "    # the entry with match: depot.* applies, alone: add the columns there, " in ran(path).stdout
    path.write_text(PIPELINE.replace("keys: [id]", "exclude: true"))
    done = ran(path)
    assert (2, "") == (done.exit_code, done.stdout), "a bare `tables:` is no block to paste"
    assert "excludes every table that its messages name" in done.stderr


def test_json_has_the_counts(file):
    """Programs weigh the evidence themselves."""
    found = json.loads(ran(file, "--format", "dts-shareplex", "--output", "json").stdout)
    assert {"column": "note", "type": None, "values": 0, "nulls": 2, "declared": None} == {
        name: value for name, value in found[0]["columns"][3].items() if name != "evidence"
    }


def test_a_file_of_another_format_is_an_error(file):
    """An empty block would look like an answer."""
    assert 2 == ran(file, "--format", "maxwell").exit_code


def test_what_a_statement_declares_is_not_proposed(file):
    """A VARCHAR whose values look like numbers lost its leading zeros with the block that was pasted."""
    sql = "CREATE TABLE depot.parcels (ID number(19) primary key, fee varchar2(9))"
    statement = json.dumps({"meta": {"op": "ddl", "table": "depot.parcels"}, "sql": {"ddl": sql}})
    file.write_text("\n".join([statement, *LINES]) + "\n")
    done = ran(file, "--format", "dts-shareplex")
    assert {"zip": "string"} == YAML(typ="safe").load(done.stdout)["tables"][0]["columns"], done.output
    assert "fee: string   # declared by a statement" in done.stdout.replace('"', "")
