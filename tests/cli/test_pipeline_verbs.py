"""init, validate and schema: files that work, faults that are seen, secrets that are not."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from ingest.cli import pipeline_verbs
from ingest.cli.app import app
from ingest.config import load
from ingest.errors import ConfigError

GOOD = """\
pipeline: stock
lake: ${STOCK_LAKE}
sources:
  - name: bins
    kind: kafka
    format: dts-canal
    bootstrap_servers: b:9092
    topics: bins
    kafka:
      sasl.jaas.config: ${STOCK_JAAS:-fallback}
      ssl.key.password: hunter2
    registry: http://u:hunter2@r:8081
  - name: files
    path: in/*.jsonl
    format: canal
    options: {timezone: Asia/Tokyo, time_units: millis}
tables:
  - match: w.*
  - match: w.bin
  - match: "*"
  - match: x.y
"""
MESSAGE = {
    "id": 7, "database": "w", "table": "bin", "pkNames": ["no"], "isDdl": False, "type": "INSERT", "es": 1, "ts": 2,
    "mysqlType": {"no": "bigint", "label": "varchar"}, "sqlType": {}, "data": [{"no": "1", "label": "x"}], "old": None, "sql": "",
}  # fmt: skip

runner = CliRunner()


@pytest.fixture
def good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sound file that deserves warnings."""
    monkeypatch.setenv("STOCK_LAKE", "s3a://hidden/lake")
    path = tmp_path / "stock.yaml"
    path.write_text(GOOD, "utf-8")
    return path


# --- validate -----------------------------------------------------------------------------------


def test_warnings_have_their_place_and_leave_the_exit_code_alone(good: Path) -> None:
    """What is odd must be seen; what is not a fault must not stop a job."""
    done = runner.invoke(app, ["validate", str(good), "--output", "json"])
    (result,) = json.loads(done.stdout)
    expected = [
        "11:7 ssl.key.password holds a secret in plain text; write ${VAR} or ${file:/path} instead",
        "12:5 a registry has no meaning for dts-canal",
        "12:5 registry holds a secret in plain text; write ${VAR} or ${file:/path} instead",
        f"14:5 no file matches {good.parent}/in/*.jsonl yet",
        "16:37 the option time_units has no meaning for canal",
        "19:5 the rule for 'w.bin' never applies: 'w.*' comes before it",
        "21:5 the rule for 'x.y' never applies: '*' comes before it",
    ]
    assert 0 == done.exit_code
    assert [f"{good}:{text}" for text in expected] == result["warnings"]
    assert ("stock", ["bins", "files"], True) == (result["pipeline"], result["sources"], result["ok"])
    assert "source 'files' is weakly ordered" in result["notes"][0]
    for text in expected:
        assert f"warning: {good}:{text}" in done.stderr


def test_show_prints_what_is_in_force_and_no_secret(good: Path) -> None:
    """Users paste it into tickets."""
    done = runner.invoke(app, ["validate", str(good), "--show"])
    assert 0 == done.exit_code
    for secret in ("hunter2", "hidden", "fallback"):
        assert secret not in done.stdout + done.stderr
    shown = YAML(typ="safe").load(done.stdout)
    assert "${STOCK_LAKE}" == shown["lake"]
    assert {"sasl.jaas.config": "${STOCK_JAAS:-***}", "ssl.key.password": "***"} == shown["sources"][0][
        "kafka"
    ]
    assert ("***", 60.0) == (shown["sources"][0]["registry"], shown["sources"][1]["settle"])
    assert str(good.parent / "in/*.jsonl") == shown["sources"][1]["path"]


def test_several_files_are_all_checked(good: Path, tmp_path: Path) -> None:
    """One bad file would hide the faults of the others."""
    bad = tmp_path / "bad.yaml"
    bad.write_text("pipeline: x\n", "utf-8")
    done = runner.invoke(
        app, ["validate", str(bad), str(good), str(tmp_path / "none.yaml"), "--output", "json"]
    )
    assert 2 == done.exit_code
    results = json.loads(done.stdout)
    assert [False, True, False] == [result["ok"] for result in results]
    assert [f"{bad}:1:1 the key 'lake' is missing", f"{bad}:1:1 the key 'sources' is missing"] == results[0][
        "problems"
    ]
    assert "there is no such file" in done.stderr


def test_a_good_file_says_so(good: Path) -> None:
    """Silence could also mean that nothing was checked."""
    assert (
        f"{good}: ok, pipeline stock, sources bins, files\n"
        == runner.invoke(app, ["validate", str(good)]).stdout
    )


# --- schema -------------------------------------------------------------------------------------


def test_the_schema_accepts_what_load_accepts_and_refuses_what_it_refuses(tmp_path: Path) -> None:
    """Editors would mark sound files, or miss faults."""
    schema = json.loads(runner.invoke(app, ["schema"]).stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    check = jsonschema.Draft202012Validator(schema)
    sound = YAML(typ="safe").load(GOOD)
    assert [] == list(check.iter_errors(sound))
    for wrong in (
        {"laek": 1},
        {"sources": []},
        {"sources": [{"name": "b", "kind": "files", "path": "x", "format": "nope"}]},
    ):
        assert not check.is_valid({**sound, **wrong})


# --- init ---------------------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with a file of messages."""
    folder = tmp_path / "in put"
    folder.mkdir()
    (folder / "bins.jsonl").write_text((json.dumps(MESSAGE) + "\n") * 2, "utf-8")
    return folder


def test_a_starter_is_sound_and_names_the_format(tmp_path: Path, source: Path) -> None:
    """The first file that a user has must work."""
    file = tmp_path / "conf" / "stock.yaml"
    done = runner.invoke(app, ["init", str(file), "--source", f"{source}/*.jsonl", "--lake", "s3a://b/l"])
    assert 0 == done.exit_code, done.stderr
    result = runner.invoke(app, ["validate", str(file), "--show"])
    shown = YAML(typ="safe").load(result.stdout)
    assert ("stock", "s3a://b/l") == (shown["pipeline"], shown["lake"])
    assert ("dts-canal", f"{source}/*.jsonl") == (shown["sources"][0]["format"], shown["sources"][0]["path"])
    assert "warning" not in result.stderr
    header = file.read_text("utf-8").splitlines()[0]
    assert "# yaml-language-server: $schema=ingest.schema.json" == header
    assert "PipelineKeys" == json.loads((file.parent / "ingest.schema.json").read_text("utf-8"))["title"]


def test_paths_are_written_as_seen_from_the_file(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path from here would lead elsewhere from the file's folder."""
    monkeypatch.chdir(tmp_path)
    assert source.is_dir()
    runner.invoke(app, ["init", "conf/stock.yaml", "--source", "in put/bins.jsonl", "--name", "n"])
    text = (tmp_path / "conf" / "stock.yaml").read_text("utf-8")
    assert "path: '../in put/bins.jsonl'" in text
    assert "pipeline: n\n" in text


def test_the_comments_of_a_starter_are_sound_too(tmp_path: Path, source: Path) -> None:
    """A commented example that is refused teaches the wrong thing."""
    file = tmp_path / "stock.yaml"
    runner.invoke(app, ["init", str(file), "--source", f"{source}/*.jsonl"])
    text = file.read_text("utf-8").replace("\n# ", "\n").replace("    # settle", "    settle")
    file.write_text("\n".join(line for line in text.splitlines() if "yaml-language" not in line and "Check" not in line and "applies, alone" not in line), "utf-8")  # fmt: skip
    assert "" == runner.invoke(app, ["validate", str(file), "--quiet"]).stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--source", "{source}/*.jsonl"], "exists already; give --force to overwrite it, or another name"),
        (["--force"], "--source is missing; name the messages that the pipeline reads"),
        (["--force", "--source", "{source}/*.none"], "its format is not known; give --format"),
        (["--force", "--source", "{source}/odd"], "it is like no known one); give --format"),
        (
            ["--force", "--source", "{source}/x", "--format", "cannal"],
            "'cannal' is not a format; did you mean",
        ),
    ],
)
def test_what_init_refuses(tmp_path: Path, source: Path, arguments: list[str], expected: str) -> None:
    """A file that took an hour to write must not be overwritten by a starter."""
    file = tmp_path / "stock.yaml"
    file.write_text("mine", "utf-8")
    (source / "odd").write_text("hello", "utf-8")
    done = runner.invoke(
        app, ["init", str(file), *(word.replace("{source}", str(source)) for word in arguments)]
    )
    assert (2, "mine") == (done.exit_code, file.read_text("utf-8"))
    assert expected in done.stderr


@pytest.mark.parametrize(
    ("flags", "expected"), [(["--plain-tables"], True), (["--no-plain-tables"], False), ([], False)]
)
def test_plain_tables_are_a_choice(tmp_path: Path, source: Path, flags: list[str], expected: bool) -> None:
    """A reader without deletion vectors would fail only once the mirrors exist."""
    file = tmp_path / "stock.yaml"
    assert 0 == runner.invoke(app, ["init", str(file), "--source", f"{source}/*.jsonl", *flags]).exit_code
    assert expected is load(file).plain_tables
    assert "plain_tables: true" in file.read_text("utf-8")


def test_plain_tables_are_asked_for_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who does not know of the flag would never choose."""
    monkeypatch.setattr("ingest.cli.pipeline_verbs.sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: True)
    assert pipeline_verbs._wants_plain(None) is True
    assert pipeline_verbs._wants_plain(given=False) is False


def test_the_zone_is_a_choice(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of another zone are wrong by hours, and no message shows it; a missing source is said before any question."""
    file, asked = (
        tmp_path / "stock.yaml",
        ["init", str(tmp_path / "stock.yaml"), "--source", f"{source}/*.jsonl"],
    )
    assert 0 == runner.invoke(app, [*asked, "--timezone", "Asia/Shanghai"]).exit_code
    assert "Asia/Shanghai" == load(file).sources[0].options.timezone
    done = runner.invoke(app, [*asked, "--force", "--timezone", "Asia/Shanhai"])
    assert (2, True) == (done.exit_code, "did you mean Asia/Shanghai" in done.stderr)
    monkeypatch.setattr("ingest.cli.pipeline_verbs.sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.prompt", lambda *_, **__: "Europe/Berlin")
    assert "Europe/Berlin" == pipeline_verbs._zone(None, asks=True)
    assert "" == pipeline_verbs._zone(None, asks=False)
    questions: list[str] = []
    monkeypatch.setattr("typer.confirm", lambda text, **_: questions.append(text))
    monkeypatch.setattr("typer.prompt", lambda text, **_: questions.append(text))
    with pytest.raises(ConfigError, match="matches no file"):
        pipeline_verbs.init(file, force=True, source="none-*.jsonl")
    assert [] == questions


def test_a_few_broken_messages_do_not_keep_a_source_out(tmp_path: Path, source: Path) -> None:
    """They become rejects in every run, and would make init useless for real files."""
    feed = next(source.glob("*.jsonl"))
    good = feed.read_text("utf-8").rstrip("\n") + "\n"
    feed.write_text(good * 3 + '{"broken": \n', "utf-8")
    file = tmp_path / "stock.yaml"
    assert 0 == runner.invoke(app, ["init", str(file), "--source", str(feed)]).exit_code
    detected = runner.invoke(app, ["detect", str(feed)])
    assert "A run rejects such messages" in detected.stdout
    assert "format: dts-canal" in detected.stdout
    feed.write_text(good + '{"broken": \n' * 3, "utf-8")
    assert 2 == runner.invoke(app, ["init", str(file), "--force", "--source", str(feed)]).exit_code


FIVE = """\
pipeline: stock
lake: ./lake
sources:
  - name: bins
    kind: files
    path: in/*.jsonl
    format: dts-cannal
    settel: 10s
  - {name: far, kind: kafca, topics: [bins], format: canal}
tables:
  - match: w.*
    on_schema_change: lenent
    columns: {price: "decimel(10,2)"}
"""


def test_all_faults_come_at_once_with_their_places_and_the_nearest_word(tmp_path: Path) -> None:
    """One fault at a time makes five rounds of five."""
    file = tmp_path / "five.yaml"
    file.write_text(FIVE, "utf-8")
    done = runner.invoke(app, ["validate", str(file), "--output", "json"])
    (result,) = json.loads(done.stdout)
    expected = [
        "7:5 'dts-cannal' is not a format; did you mean dts-canal or oms-canal?",
        "8:5 the key 'settel' is unknown here; did you mean settle?",
        "9:17 kind: 'kafca' is not one of files or kafka; did you mean kafka?",
        "12:5 'lenent' is not one of lenient, evolve, freeze or ignore; did you mean lenient?",
        "13:15 'decimel(10,2)' is not a type; did you mean decimal?",
    ]
    assert 2 == done.exit_code
    assert [f"{file}:{text}" for text in expected] == result["problems"]
