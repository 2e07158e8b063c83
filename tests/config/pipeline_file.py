"""A small pipeline file that the tests vary."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.config import Pipeline, load
from ingest.errors import ConfigError

GOOD = """\
pipeline: stock
lake: ./lake
sources:
  - name: bins
    kind: files
    path: ../in/*.jsonl
    format: canal
"""


def written(folder: Path, text: str, name: str = "stock.yaml") -> Path:
    """A pipeline file with that text."""
    file = folder / name
    file.write_text(text, "utf-8")
    return file


def loaded(folder: Path, more: str = "", text: str = GOOD) -> Pipeline:
    """The pipeline of a good file with more keys at its end."""
    return load(written(folder, text + more))


def problems(folder: Path, text: str) -> list[str]:
    """The faults of a file, each without the file's path."""
    file = written(folder, text)
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert caught.value.exit_code == 2
    return [problem.removeprefix(f"{file}:") for problem in caught.value.problems]


KAFKA = """\
pipeline: stock
lake: lake
sources:
  - name: bins
    kind: kafka
    format: canal
    bootstrap_servers: [a:9092, b:9092]
"""
