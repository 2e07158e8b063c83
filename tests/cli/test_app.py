"""The command itself: verbs, exit codes, streams, and how little it imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ingest.cli import app as command
from ingest.cli.app import VERBS, app
from ingest.errors import HeldError, SetupError

ROOT = Path(__file__).parent.parent.parent
HEAVY = (
    "pyspark",
    "delta",
    "pyarrow",
    "great_expectations",
    "pandas",
    "sqlglot",
    "fsspec",
    "fastavro",
    "jinja2",
)

runner = CliRunner()

GOOD = "pipeline: stock\nlake: ./lake\nsources:\n  - {name: bins, kind: files, path: in/*.jsonl, format: dts-canal}\n"


def imported(*arguments: str) -> set[str]:
    """The modules that one run of the command has imported, by their first names."""
    code = (
        "import sys, json\nfrom ingest.cli.app import app\n"
        f"try: app({list(arguments)!r}, prog_name='ingest')\nexcept SystemExit: pass\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})), file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_help_lists_every_verb() -> None:
    """A verb that help does not list is not found."""
    done = runner.invoke(app, ["--help"])
    assert 0 == done.exit_code
    for verb in VERBS:
        assert f" {verb} " in done.stdout


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str) -> None:
    """A verb whose module cannot be imported would fail only when it is needed."""
    done = runner.invoke(app, [verb, "--help"])
    assert 0 == done.exit_code
    assert "Usage: " in done.stdout


def test_help_imports_nothing_heavy() -> None:
    """Help would take seconds."""
    assert set() == imported("--help") & {*HEAVY, "pydantic", "ruamel", "msgspec", "orjson"}


def test_validate_imports_no_engine(tmp_path: Path) -> None:
    """Checking a file must not wait for Spark."""
    file = tmp_path / "p.yaml"
    file.write_text(GOOD, "utf-8")
    assert set() == imported("validate", str(file)) & set(HEAVY)


def test_decode_imports_no_engine(tmp_path: Path) -> None:
    """Decoding works where there is neither Spark nor Java."""
    file = tmp_path / "m.json"
    file.write_text("{}", "utf-8")
    assert set() == imported("decode", "dts-canal", str(file)) & {
        "pyspark",
        "delta",
        "pyarrow",
        "great_expectations",
    }


def test_an_unknown_verb_names_the_nearest() -> None:
    """A slip of the finger costs a look into the manual."""
    done = runner.invoke(app, ["valdate"])
    assert 2 == done.exit_code
    assert "did you mean validate?" in done.stderr


def test_wrong_use_is_exit_2_and_leaves_stdout_empty() -> None:
    """A script would read help as its result."""
    done = runner.invoke(app, ["decode", "--nope"])
    assert (2, "") == (done.exit_code, done.stdout)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (SetupError("Java is missing; run x"), 2, "error: Java is missing; run x\n"),
        (HeldError("the mirror is held; run y"), 1, "error: the mirror is held; run y\n"),
        (RuntimeError("two\nlines"), 2, "error: something unexpected went wrong (RuntimeError: two); add --debug for the traceback\n"),
    ],
)  # fmt: skip
def test_failures_are_one_sentence_and_their_exit_code(
    monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, text: str
) -> None:
    """Schedulers go by the exit code, operators by the sentence."""

    def fails(*_: object) -> object:
        raise error

    monkeypatch.setattr("ingest.config.read.check", fails)
    done = runner.invoke(app, ["validate", "p.yaml"])
    assert (code, "", text) == (done.exit_code, done.stdout, done.stderr)


def test_debug_shows_the_traceback_wherever_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect could not be reported."""

    def fails(*_: object) -> object:
        raise RuntimeError("odd")

    monkeypatch.setattr("ingest.config.read.check", fails)
    for arguments in (["--debug", "validate", "p.yaml"], ["validate", "p.yaml", "--debug"]):
        assert isinstance(runner.invoke(app, arguments).exception, RuntimeError)


@pytest.mark.parametrize(
    "words", [["--jars-dir", "/x", "formats"], ["formats", "--jars-dir", "/x"], ["formats", "--jars-dir=/x"]]
)
def test_the_folder_of_the_jars_is_set_wherever_it_is_given(
    monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """A verb would look into the cache, or take the folder for its own argument."""
    monkeypatch.setenv("INGEST_JARS_DIR", "/other")
    done = runner.invoke(app, words)
    assert (0, "/x") == (done.exit_code, os.environ["INGEST_JARS_DIR"])


def test_quiet_leaves_out_warnings_and_keeps_errors(tmp_path: Path) -> None:
    """Cron mails whatever is printed."""
    file = tmp_path / "p.yaml"
    file.write_text(GOOD, "utf-8")
    assert "no file matches" in runner.invoke(app, ["validate", str(file)]).stderr
    assert "" == runner.invoke(app, ["validate", str(file), "--quiet"]).stderr
    assert "no such file" in runner.invoke(app, ["validate", "none.yaml", "--quiet"]).stderr


def test_a_closed_pipe_is_no_traceback(tmp_path: Path) -> None:
    """``ingest decode ... | head`` would end in noise."""
    file = tmp_path / "many.jsonl"
    file.write_text("{}\n" * 20_000, "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        f"'{sys.executable}' -m ingest decode dts-canal '{file}' --quiet | head -1",
        shell=True, capture_output=True, text=True, env=environment, check=True,
    )  # fmt: skip
    assert 1 == len(done.stdout.splitlines())
    assert "Traceback" not in done.stderr


def test_python_m_runs_the_command() -> None:
    """It is the one way that needs no console script."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "ingest", "--version"],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    assert done.stdout.startswith("ingest")


def test_every_verb_has_an_output_option() -> None:
    """Scripts read JSON from every verb."""
    for verb in VERBS:
        if verb not in ("jars", "ddl", "rejects", "alerts", "catalog"):  # groups of verbs
            assert "--output" in runner.invoke(app, [verb, "--help"], env={"COLUMNS": "200"}).stdout
    assert callable(command.main)


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
