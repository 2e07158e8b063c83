"""The verb ``ddl``: a group whose bare call lists, without Spark."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from ingest.cli.app import app

RUN = CliRunner()


def test_bare_call_lists(tmp_path: Path) -> None:
    """``ingest ddl FILE`` is in people's scripts: it must not ask for a command."""
    result = RUN.invoke(app, ["ddl", str(tmp_path / "none.yaml"), "--output", "json"])
    assert 2 == result.exit_code
    assert "there is no such file" in result.output


def test_help_names_the_decisions() -> None:
    """A decision that help does not show is never made."""
    output = RUN.invoke(app, ["ddl", "--help"]).output
    assert "approve" in output
    assert "dismiss" in output


def test_dismissal_needs_a_reason(tmp_path: Path) -> None:
    """The next person must be able to read why a statement was passed over."""
    result = RUN.invoke(app, ["ddl", "dismiss", str(tmp_path / "none.yaml"), "0a1b2c3d"])
    assert 2 == result.exit_code
    assert "reason" in result.output
