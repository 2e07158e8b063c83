"""What a question costs from a process' start to its end: processor time, and packages that only work on data needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_looking import HEAVY, SCRIPT
from tests.serve.conftest import depot
from tests.timing import PATIENCE, TRIES, seconds_of_children
from tests.written_lake import WrittenLake

SECONDS = 3.0  # of a processor that others keep busy; alone each verb takes about half a second
VERBS = {
    "status": ["status", "{file}"],
    "tables": ["tables", "{file}"],
    "rejects": ["rejects", "{file}"],
    "one reject": ["rejects", "show", "{file}", "1"],
    "ddl": ["ddl", "{file}"],
    "alerts": ["alerts", "{file}"],
    "wait": ["wait", "{file}", "--until", "2020-01-01", "--tables", "depot.bins", "--timeout", "0s"],
    "report": ["report", "{file}", "--out", "{folder}/report.html"],
    "sql": ["sql", "{file}", "SELECT count(*) FROM depot.bins"],
    "plan": ["plan", "{file}", "--sample", "0"],
    "explain": ["explain", "{file}", "depot.bins", "2"],
    "validate": ["validate", "{file}"],
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> WrittenLake:
    """A lake of a few batches."""
    return depot(tmp_path_factory.mktemp("depot"))


def spent(words: list[str]) -> float:
    """Processor time of a verb in a process of its own, which imported nothing heavy."""
    before = seconds_of_children()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(heavy=(*HEAVY, "fsspec")), *words],
        capture_output=True, text=True, check=False, timeout=PATIENCE, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    seconds = seconds_of_children() - before
    assert done.returncode in (0, 1), done.stderr
    assert "HEAVY []" in done.stderr, done.stderr
    return seconds


@pytest.mark.parametrize("verb", VERBS)
def test_a_question_costs_little(verb: str, lake: WrittenLake, tmp_path: Path) -> None:
    """Ten questions in an incident would wait ten times for one import too many."""
    words = [word.format(file=lake.file, folder=tmp_path) for word in VERBS[verb]]
    assert any(spent(words) < SECONDS for _ in range(TRIES))


@pytest.mark.parametrize(("words", "code"), [(["formats", "-o", "json"], 0), (["nonsense"], 2)])
def test_the_quick_end_loses_nothing(words: list[str], code: int) -> None:
    """A process that ends at once must still write what it printed, and do what others left for its end."""
    script = (
        "import atexit, sys; from ingest.cli.app import main; "
        f"atexit.register(print, 'last'); sys.argv = ['ingest', *{words!r}]; main()"
    )
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=buffered
    )
    assert (code, True) == (done.returncode, done.stdout.endswith("last\n"))
    assert (code == 2) == ("there is no verb" in done.stderr)
    assert (code == 0) == (len(done.stdout) > 1000)
