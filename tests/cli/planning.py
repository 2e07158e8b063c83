"""Plans of a small pipeline without a lake."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from ingest.cli.app import app
from tests.lakes import FORMAT

runner = CliRunner()
HEAD = "pipeline: depot\nlake: ./lake\nengine: auto\nsources:\n"
FILES = f"  - {{name: bins, kind: files, path: ./bins-*.jsonl, format: {FORMAT}}}\n"
KAFKA = (
    f"  - {{name: far, kind: kafka, format: {FORMAT}, bootstrap_servers: '127.0.0.1:9', topics: [bins]}}\n"
)


def planned(folder: Path, text: str = FILES, more: str = "", *options: str, code: int = 0):
    """The plan as JSON."""
    file = folder / "depot.yaml"
    file.write_text(HEAD + text + more, "utf-8")
    done = runner.invoke(app, ["plan", str(file), "--output", "json", *options])
    assert code == done.exit_code, done.output
    (found,) = json.loads(done.stdout)
    return found
