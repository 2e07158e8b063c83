"""How `ingest run` starts its session, before anything of Spark is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ingest.cli.app import app
from ingest.errors import SetupError

PIPELINE = """pipeline: depot
lake: ./lake
sources:
  - {name: bins, kind: files, path: ./bins-*.jsonl, format: dts-canal}
"""


@pytest.mark.parametrize(("words", "profile"), [([], "tick"), (["--every", "5s"], "batch")])
def test_only_a_loop_asks_for_the_second_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], profile: str
) -> None:
    """A single run would end before it has paid; a loop without it lands half as much for good."""
    asked: list[str] = []

    def refuse(_pipelines: Any, _jars: Any, profile: str = "tick") -> Any:
        asked.append(profile)
        raise SetupError("no Spark here")

    monkeypatch.setattr("ingest.cli.run_verbs.session_for", refuse)
    file = tmp_path / "depot.yaml"
    file.write_text(PIPELINE, "utf-8")
    assert CliRunner().invoke(app, ["run", str(file), *words]).exit_code == 2
    assert [profile] == asked
