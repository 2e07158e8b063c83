"""A ``${...}`` that does not resolve where the command is typed: questions go on without it, a run does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ingest.cli.app import app
from tests.serve.conftest import depot
from tests.written_lake import WrittenLake

SECRET = "settle: 1s, storage: {secret: '${DEPOT_SECRET}'}"
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
STRICT = {"plan", "validate"}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> WrittenLake:
    """A lake whose pipeline file asks for a secret that is not set here."""
    made = depot(tmp_path_factory.mktemp("depot"))
    text = made.file.read_text("utf-8")
    made.file.write_text(text.replace("settle: 1s", SECRET), "utf-8")
    return made


@pytest.mark.parametrize("verb", VERBS)
def test_a_question_goes_on_without_what_only_runs_need(verb: str, lake: WrittenLake, tmp_path: Path) -> None:
    """The operator at night can log in to the machine, and has not the service's environment."""
    words = [word.format(file=lake.file, folder=tmp_path) for word in VERBS[verb]]
    done = CliRunner().invoke(app, words)
    said = f"{lake.file}:5:95 the environment variable DEPOT_SECRET is not set"
    if verb in STRICT:
        assert (2, True) == (done.exit_code, said in done.stderr)
        return
    assert done.exit_code in (0, 1), done.output
    assert [f"warning: {said}; set it or write ${{DEPOT_SECRET:-default}}; only a run needs it"] == [
        line for line in done.stderr.splitlines() if "DEPOT_SECRET" in line
    ]
    assert done.stdout


@pytest.mark.parametrize("words", [["run"], ["quality"], ["retry"], ["maintain"], ["rebuild"]])
def test_what_writes_wants_the_whole_file(lake: WrittenLake, words: list[str]) -> None:
    """A run without its source's secret would fail in the middle, and say something else."""
    done = CliRunner().invoke(app, [*words, str(lake.file)])
    assert (2, True) == (done.exit_code, "DEPOT_SECRET is not set" in done.stderr)


def test_masked_keys_are_asked_for_by_their_secret_alone(lake: WrittenLake, tmp_path: Path) -> None:
    """Without the secret a plain key has another mask: the row would be said not to exist."""
    made = depot(tmp_path)
    text = made.file.read_text("utf-8")
    masked = text.replace("{match: depot.bins,", "{match: depot.bins, mask: {id: hmac},")
    made.file.write_text(f"{masked}mask_secret: '${{file:secret}}'\n", "utf-8")
    said = "secret of ${file:...} cannot be read"
    done = CliRunner().invoke(app, ["explain", str(made.file), "depot.bins", "2"])
    assert (2, True) == (done.exit_code, said in done.stderr.split("error: ")[1])
    done = CliRunner().invoke(app, ["status", str(made.file), "-o", "json"])
    assert (1, True) == (done.exit_code, said in done.stderr)  # a message of the lake was rejected
    assert "depot.bins" in {one["table"] for one in json.loads(done.stdout)["tables"]}
