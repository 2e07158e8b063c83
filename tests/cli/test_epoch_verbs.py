"""What ``epoch`` refuses before it touches a lake; what it does is tested with the fold."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ingest.cli.app import app
from tests.lakes import FORMAT

runner = CliRunner()


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A pipeline with one source, and no lake yet."""
    made = tmp_path / "depot.yaml"
    source = f"{{name: bins, kind: files, path: ./bins-*.jsonl, format: {FORMAT}}}"
    made.write_text(f"pipeline: depot\nlake: ./lake\nengine: auto\nsources:\n  - {source}\n", "utf-8")
    return str(made)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("bin", "--from-batch", "1"), "has no source 'bin'"),
        (("bins", "--from-batch", "1", "--from", "t/0/0"), "give one of them"),
        (("bins", "--from-batch", "1"), "There is no lake"),
    ],
)
def test_refused(file: str, words: tuple[str, ...], message: str) -> None:
    """A decision about the wrong source, or in two places at once, would reorder a lake."""
    found = runner.invoke(app, ["epoch", file, *words])
    assert 0 != found.exit_code
    assert message in " ".join(found.output.split())
