"""``ingest maintain`` of one pipeline file, in a process of its own: as a schedule runs it next to ``ingest run --every``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.contest.steps import Fold, Script, perform


@contextmanager
def opened(folder: Path, script: Script, idle: bool) -> Iterator[Fold]:
    """A pass over a lake that another process goes on with."""

    def fold(_files: list[Path]) -> None:
        from ingest.cli.app import app

        code = app(["maintain", str(folder / "bench.yaml")], prog_name="ingest", standalone_mode=False)
        assert not code, f"ingest maintain ended with {code}"

    yield fold


if __name__ == "__main__":
    perform(opened)
