"""The verb ``ddl``: a group whose bare call lists, without Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ingest.cli.app import app
from tests.lakes import touch

RUN = CliRunner()


def test_bare_call_lists(tmp_path: Path) -> None:
    """``ingest ddl FILE`` is in users' scripts: it must not ask for a command."""
    result = RUN.invoke(app, ["ddl", str(tmp_path / "none.yaml"), "--output", "json"])
    assert 2 == result.exit_code
    assert "there is no such file" in result.output


@pytest.mark.usefixtures("no_spark")
def test_statements_of_a_snapshot_are_listed(tmp_path: Path) -> None:
    """The run takes the table's key from them: with an empty list, its origin could not be looked up."""
    shutil.copytree("tests/scenarios/keys_from_snapshot", tmp_path, dirs_exist_ok=True)
    for part in tmp_path.glob("part-*.jsonl"):
        touch(part)
    file = str(tmp_path / "pipeline.yaml")
    with open(file, "a", encoding="utf-8") as text:
        text.write("engine: auto\n")
    ran = RUN.invoke(app, ["run", file])
    assert 0 == ran.exit_code, ran.output
    listed = json.loads(RUN.invoke(app, ["ddl", file, "--output", "json"]).stdout)
    texts = [row["statement"] for row in listed]
    assert any("CREATE TABLE" in text for text in texts), listed


def test_help_names_the_decisions() -> None:
    """A decision that help does not show is never made."""
    output = RUN.invoke(app, ["ddl", "--help"]).output
    assert "approve" in output
    assert "dismiss" in output


def test_dismissal_needs_a_reason(tmp_path: Path) -> None:
    """The next operator must be able to read why a statement was passed over."""
    result = RUN.invoke(app, ["ddl", "dismiss", str(tmp_path / "none.yaml"), "0a1b2c3d"])
    assert 2 == result.exit_code
    assert "reason" in result.output
