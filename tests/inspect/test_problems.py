"""What is wrong is one list, whoever asks for it."""

from __future__ import annotations

import datetime as dt
import errno
import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from ingest.cli.app import app
from ingest.gold.plan import completed
from ingest.gold.plan.completed import Progress
from ingest.inspect import problems, prom, status
from ingest.inspect.problem_kinds import ERROR, WARN
from ingest.inspect.problems import Problem
from ingest.operate import alerts
from ingest.quality import report
from ingest.quality.catalogue import duration
from ingest.quality.report_data import gather
from ingest.quality.report_model import AlarmFact
from ingest.serve.fleet import Fleet
from ingest.tables.delta import Extent
from ingest.tables.schemas import RUNS
from ingest.tables.tables import LakeReader, Tables
from tests.lakes import change, statement
from tests.serve.conftest import KEYLESS, depot
from tests.written_lake import WrittenLake

STAGES = ("bronze", "silver")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> WrittenLake:
    """A lake with a held table, rejects, a statement that waits and a failing check."""
    return depot(tmp_path_factory.mktemp("depot"))


def test_each_cause_is_listed_once(lake: WrittenLake) -> None:
    """Two lists of what is wrong differ on the day when one of them is looked at."""
    found = {one.subject: one for one in status.problems_of(lake.reader)}
    assert {
        "depot.bins: Rows are missing": ERROR,
        "depot.box: The table is held": ERROR,
        "rejects: Messages could not be decoded": WARN,
        "schema changes: Schema changes wait for a decision": WARN,
    } == {name: one.severity for name, one in found.items()}
    held = found["depot.box: The table is held"]
    assert (KEYLESS, f"depot.box is held: {KEYLESS}") == (held.text, held.sentence)
    assert "ingest retry" in held.command
    assert "depot.bins: 2 rows are missing" == found["depot.bins: Rows are missing"].sentence


@pytest.mark.parametrize(
    ("error", "state", "then"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/lake/x.parquet"), "failed", "retry"),
        (pa.ArrowInvalid("/lake/x.parquet is not a Parquet file"), "damaged", "rebuild"),
    ],
)
def test_a_table_that_cannot_be_read_is_not_always_damaged(
    error: Exception, state: str, then: str, lake: WrittenLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To fold a sound table again takes hours, and does not give the run the right to read it."""
    read = LakeReader.extent

    def extent(self: LakeReader, name: str, writer: str) -> Extent:
        if name == "mirrors/depot/bins":
            raise error
        return read(self, name, writer)

    monkeypatch.setattr(LakeReader, "extent", extent)
    found = status.status(lake.reader)
    [row] = [one for one in found["tables"] if one["table"] == "depot.bins"]
    assert state == row["state"]
    assert f"ingest {then} " in row["message"]
    assert f"ingest {then} " in problems.resolving_command(lake.reader, row)


def test_all_who_ask_are_given_the_same(lake: WrittenLake) -> None:
    """A page would not show the cause for which an alert woke the operator."""
    found = {one.subject: one for one in status.problems_of(lake.reader)}
    assert set(found) == {one["cause"] for one in alerts.listed(lake.reader)}
    state = Fleet([lake.file]).state("depot")
    said = sorted(problems.without(one.sentence, one.command) for one in found.values())
    assert said == sorted(one.text for one in state.troubles)
    facts = gather(lake.reader)
    made = report.page(facts, problems.missing_from(report.page(facts), found.values()))
    assert set(found) == {f"{one.subject}: {one.title}" for one in made.problems}
    said = status.status(lake.reader)
    assert set(found) == {one["cause"] for one in said["causes"]}
    assert sorted(one.sentence for one in found.values()) == sorted(said["problems"])


def test_the_command_of_a_held_mirror_is_a_field_next_to_its_message(lake: WrittenLake) -> None:
    """Read from the message it was `rebuild FILE TABLE`, which brings no change back that silver has dropped."""
    silver = f"ingest rebuild {lake.file} --layer silver"
    row = {
        "table": "depot.box",
        "state": "held",
        "message": f"`{silver}` brings them back",
        "command": silver,
    }
    assert silver == problems.resolving_command(lake.reader, row)
    asked = problems.resolving_command(lake.reader, row | {"command": ""})
    assert f"ingest retry {lake.file}" == asked


def test_only_the_alarm_of_a_mirror_that_is_listed_is_left_out(lake: WrittenLake) -> None:
    """An alarm of `depot.boxes` was swallowed by a problem of `depot.box`; one of the lake, in other words, was listed twice."""
    facts = gather(lake.reader)
    boxes = AlarmFact("depot.boxes: its table is gone", "depot.boxes")
    facts.runs[0].alarms = [boxes, AlarmFact("In other words: it is held", "depot.box")]
    state = [Problem("depot.box: The table is held", ERROR, KEYLESS, mirror="depot.box")]
    for table in facts.tables:
        table.batches.clear()  # so that the report itself does not list it
    found = problems.merged(state, facts)
    assert [boxes.text] == [problem.text for problem in found if problem.kind == "last_run"]


def test_a_check_that_names_the_source_replaces_the_count(tmp_path: Path) -> None:
    """One cause in two entries would be two alerts."""
    made = depot(tmp_path)
    check = made.check("depot.bins", "reject_rate", 0.1, "warn", "2 of 20 messages") | {
        "mirror": None,
        "source": "bins",
    }
    made.product("checks", [check])
    found = {one.subject: one for one in status.problems_of(made.reader)}
    assert "rejects: Messages could not be decoded" not in found
    assert "ingest rejects" in found["source bins: Messages could not be decoded"].command


def test_a_paused_table_is_a_warning_that_says_how_to_resume(tmp_path: Path) -> None:
    """A pause is intended, but the operator may have forgotten it."""
    made = depot(tmp_path)
    row = {
        "table": "depot.bins",
        "state": "paused",
        "message": "it waits",
        "newest commit": None,
        "ahead": None,
    }
    [one] = problems.of_state(made.reader, [row], {}, 0)
    assert ("depot.bins: The table is paused", WARN) == (one.subject, one.severity)
    assert one.command.endswith("depot.bins")
    assert "resume" in one.command


def test_the_next_command_is_a_run_only_if_the_lake_waits_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that finds nothing to do was the advice of a status in good health."""
    made = WrittenLake(tmp_path)
    made.take([change("INSERT", "bins", 1, {"id": "1", "word": "x"})])
    calm = status.status(made.reader)
    assert f"ingest plan {made.file}" == calm["next"]
    assert calm["next_note"].startswith("the lake waits for nothing")

    def landed(*_lines: object, **_more: object) -> None:
        """As a run of the first two stages alone records it."""
        about = {
            "run": "r",
            "pipeline": made.name,
            "batch": made.batch,
            "started_at": made.now,
            "counts": "{}",
        }
        stages = [
            {**about, "stage": stage, "state": "done", "seconds": 1.0, "message": ""} for stage in STAGES
        ]
        made.product(RUNS.name, stages, complete=1, lagging=[])

    monkeypatch.setattr(made, "_run", landed)
    made.take([change("INSERT", "bins", 2, {"id": "2", "word": "y"})])
    said = status.status(made.reader)
    assert (f"ingest run {made.file}", "") == (said["next"], said["next_note"])
    assert "depot: 1 of 1 mirror is as of batch 1, and batch 2 has landed." == said["headline"]


def test_a_mirror_that_lags_is_not_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was held, and was folded again as far as it had come, was counted as if it had the last batch."""
    made = WrittenLake(tmp_path)
    made.take([change("INSERT", "bins", 1, {"id": "1", "word": "x"})])
    lagging = Progress(1, frozenset({"mirrors/depot/bins"}))
    monkeypatch.setattr(completed, "progress", lambda _lake: lagging)
    said = status.status(made.reader)
    assert "depot: 0 of 1 mirror is up to date with batch 1." == said["headline"]
    assert ["later batches wait: `ingest run " in one["message"] for one in said["tables"]] == [True]


@pytest.mark.parametrize(("unit", "said"), [(1000, False), (1, True)], ids=["milliseconds", "seconds"])
def test_times_of_another_unit_are_a_cause(tmp_path: Path, unit: int, said: bool) -> None:
    """A lag of half a century makes the operator look for a stream that has stopped."""
    made = WrittenLake(tmp_path)
    made.take([change("INSERT", "bins", 1, {"id": "1", "word": "x"}, es=1_700_000_000 * unit)])
    found = {one.subject: one for one in status.problems_of(made.reader)}
    assert said == ("depot.bins: times of another unit" in found)
    if said:
        one = found["depot.bins: times of another unit"]
        assert (WARN, True) == (one.severity, "of 1970-01-20, as if the source sent seconds" in one.text)


def test_a_report_made_while_a_batch_is_under_way_is_of_the_batch_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A headline of one batch over the books of the next one adds up to nothing."""
    made = WrittenLake(tmp_path)
    made.take([change("INSERT", "bins", 1, {"id": "1", "word": "x"})])
    # landed and decoded; not folded, checked or recorded
    monkeypatch.setattr(made, "_run", lambda *_given, **_more: None)
    made.take(
        [
            change("INSERT", "bins", 2, {"id": "2", "word": "y"}),
            statement("bins", 3, "ALTER TABLE bins ADD more INT"),
            "{",
        ]
    )
    facts = problems.gathered(made.reader)
    assert (1, [1]) == (facts.batch, [line.batch for line in facts.books])
    assert ([], []) == (facts.rejects, [one.statement for table in facts.tables for one in table.ddl])
    tiles = {title: (value, trend) for title, value, _, trend in report.page(facts).tiles}
    assert ("1", "0") == (tiles["Read"][0], tiles["Rejects"][0])
    assert ((), ()) == (tiles["Rejects"][1], tiles["Schema changes"][1]), "a line of another quantity"


def complained(folder: Path, check: str, severity: str = "warn", key: str = '{"id":1}') -> WrittenLake:
    """A lake of one mirror of which a check complains."""
    made = WrittenLake(folder)
    made.take([change("INSERT", "bins", 1, {"id": "1", "word": "a"})])
    row = made.check("depot.bins", check, 2.0, severity, "2 rows")
    made.product("checks", [row | {"failing": json.dumps([key])}])
    return made


@pytest.mark.parametrize("passed_first", [True, False])
def test_a_complaint_about_one_of_two_lanes_is_not_hidden_by_the_other(
    tmp_path: Path, *, passed_first: bool
) -> None:
    """Several tables feed one mirror, and a check judges each at the same time: the mirror is right if all are."""
    made = complained(tmp_path, "key_spellings", "fail")
    passed = made.check("depot.bins", "key_spellings", 0.0, "pass", "") | {"failing": "[]"}
    failed = made.check("depot.bins", "key_spellings", 2.0, "fail", "2 rows") | {"failing": "[]"}
    made.product("checks", [passed, failed] if passed_first else [failed, passed])
    found = status.status(made.reader)
    assert ["key_spellings"] == [one["kind"] for one in found["causes"]]


@pytest.mark.parametrize(
    ("check", "severity", "state"),
    [
        ("rows_set_back", "warn", "suspect"),
        ("missing_rows", "fail", "suspect"),
        ("incomplete_rows", "fail", "incomplete"),
        ("partial_rows", "fail", "incomplete"),
        ("old_positions", "warn", "ok"),  # late changes that their positions put in place
    ],
)
def test_a_mirror_has_the_state_of_its_worst_problem(
    tmp_path: Path, check: str, severity: str, state: str
) -> None:
    """A mirror that the run knew to be wrong was called up to date."""
    made = complained(tmp_path, check, severity)
    found = status.status(made.reader)
    assert [state] == [one["state"] for one in found["tables"]]
    assert f"{int(state == 'ok')} of 1 mirror is up to date" in found["headline"]
    [problem] = found["causes"]
    assert (check, "depot.bins") == (problem["kind"], problem["mirror"])
    assert problem["since"].startswith("2026-03-14T09:")
    assert [problem["sentence"]] == found["problems"]
    assert problem["command"] == found["next"]


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ('{"id":1}', "explain {file} depot.bins 1"),
        ('{"id":1.10,"no":"x y"}', "explain {file} depot.bins 1.10 'x y'"),
        ('{"id":-1}', "explain {file} depot.bins -- -1"),
        ('{"id":null}', "report {file}"),  # `explain` takes no NULL
        ("[1]", "report {file}"),
        ("<b>", "report {file}"),
    ],
)
def test_a_key_that_a_check_names_is_explained(tmp_path: Path, key: str, words: str) -> None:
    """One row of `checks` whose key is not JSON made `status` and every page of the service fail."""
    made = complained(tmp_path, "rows_set_back", key=key)
    [problem] = status.status(made.reader)["causes"]
    assert f"ingest {words.format(file=made.file)}" == problem["command"]


def test_the_metrics_have_every_problem(tmp_path: Path) -> None:
    """Nobody is paged of what no metric shows."""
    text = prom.text(status.status(complained(tmp_path, "rows_set_back").reader))
    labels = 'pipeline="depot",severity="warn",{}="rows_set_back",mirror="depot.bins"'
    assert f"ingest_problems{{{labels.format('kind')}}} 1\n" in text
    assert f"ingest_checks_failing{{{labels.format('check')}}} 1\n" in text
    assert 'ingest_mirror_state{pipeline="depot",mirror="depot.bins",state="suspect"} 1\n' in text


def test_the_exit_code_says_whether_anybody_is_needed(tmp_path: Path) -> None:
    """`ingest alerts shop.yaml || page` never paged."""
    well = WrittenLake(tmp_path / "well", "well")
    well.take([change("INSERT", "bins", 1, {"id": "1", "word": "a"})])
    files = [str(well.file), str(complained(tmp_path / "depot", "rows_set_back").file)]
    for verb in ("status", "alerts"):
        codes = {
            " ".join(words): CliRunner().invoke(app, [verb, *words]).exit_code
            for words in (files[:1], files[1:], files, [*files, "--exit-zero"])
        }
        assert [0, 1, 1, 0] == [*codes.values()], codes
    rows = json.loads(CliRunner().invoke(app, ["alerts", *files, "-o", "json"]).stdout)
    assert [("depot", "rows_set_back")] == [(one["pipeline"], one["kind"]) for one in rows]
    both = json.loads(CliRunner().invoke(app, ["status", *files, "-o", "json"]).stdout)
    assert ["well", "depot"] == [one["pipeline"] for one in both]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("sourcse:", "did you mean sources?"),
        ("no lake", "There is no lake"),
        ("another's lake", "belongs to the pipeline depot"),
    ],
)
def test_a_file_that_cannot_be_looked_at_hides_no_other(tmp_path: Path, fault: str, said: str) -> None:
    """One slip in one of eight files, and at night the list of all eight was empty."""
    made = complained(tmp_path / "depot", "rows_set_back")
    text = made.file.read_text("utf-8").replace("pipeline: depot", "pipeline: other")
    text = text.replace("./depot-lake", str(made.lake)) if "another" in fault else text
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(text.replace("sources:", fault) if "sour" in fault else text, "utf-8")
    pages = ["--out", str(tmp_path / "pages")]
    for verb, more in (
        ("status", []),
        ("alerts", []),
        ("report", pages),
        *([("plan", [])] if "sour" in fault else []),
    ):
        called = str(wrong) if "sour" in fault else "other"
        listed = {called} if verb in ("status", "alerts") else set[str]()
        for files in ([wrong, made.file], [made.file, wrong]):
            done = CliRunner().invoke(app, [verb, *map(str, files), *more, "-o", "json"])
            names = [one.get("pipeline", "depot") for one in json.loads(done.stdout)]
            assert (2, {"depot", *listed}) == (done.exit_code, {*names})
            assert said in done.stderr
        alone = CliRunner().invoke(app, [verb, str(wrong), *more, "-o", "json"])
        assert (2, bool(listed)) == (alone.exit_code, bool(alone.stdout))
        if listed:
            said_alone = json.loads(alone.stdout)
            [cause] = said_alone["causes"] if verb == "status" else said_alone
            again = "validate" if "sour" in fault else verb if "another" in fault else "run"
            assert f"ingest {again} {wrong}" == cause["command"]


@pytest.mark.parametrize("fault", ["sourcse:", "no lake"])
def test_a_file_that_cannot_be_looked_at_is_a_problem_for_programs(tmp_path: Path, fault: str) -> None:
    """A monitor that reads JSON or metrics saw one pipeline less, and took the others for all."""
    made = WrittenLake(tmp_path / "depot", "depot")
    text = made.file.read_text("utf-8").replace("pipeline: depot", "pipeline: other")
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(text if fault == "no lake" else text.replace("sources:", fault), "utf-8")
    typed = f"ingest {'run' if fault == 'no lake' else 'validate'} {wrong}"
    for files in ([str(wrong)], [str(wrong), str(made.file)]):
        listed = json.loads(CliRunner().invoke(app, ["alerts", *files, "-o", "json"]).stdout)
        assert [("pipeline_file", typed, "error")] == [
            (row["kind"], row["command"], row["severity"]) for row in listed
        ]
        said = json.loads(CliRunner().invoke(app, ["status", *files, "-o", "json"]).stdout)
        [cause] = (said if len(files) == 1 else said[0])["causes"]
        assert ("pipeline_file", listed[0]["id"]) == (cause["kind"], cause["id"])
        measured = CliRunner().invoke(app, ["status", *files, "-o", "prom"])
        called = "other" if fault == "no lake" else str(wrong)
        line = f'ingest_problems{{pipeline="{called}",severity="error",kind="pipeline_file",mirror=""}} 1'
        assert (0, True) == (measured.exit_code, line in measured.stdout.splitlines()), measured.stdout
        unknown = re.findall("ingest_(?:rejects|statements).*(?:wrong|other).*", measured.stdout)
        assert [] == unknown, "zero would be a number, and end an alert"
        assert str(wrong.parent) in measured.stderr


@pytest.mark.parametrize("verb", ["status", "alerts"])
def test_of_files_that_cannot_be_looked_at_none_hides_another(tmp_path: Path, verb: str) -> None:
    """Who had set one file right was told of the next one's slip, file by file."""
    made = WrittenLake(tmp_path / "depot", "depot")
    text = made.file.read_text("utf-8")
    slips = {"first": "sourcse:", "second": "suorces:", "third": "souces:"}
    for name, slip in slips.items():
        (tmp_path / f"{name}.yaml").write_text(text.replace("sources:", slip), "utf-8")
    done = CliRunner().invoke(app, [verb, *(str(tmp_path / f"{name}.yaml") for name in slips)])
    assert (2, "") == (done.exit_code, done.stdout)
    assert [] == [slip for slip in slips.values() if slip.strip(":") not in done.stderr]


def test_a_problem_is_acknowledged_until_it_changes(tmp_path: Path) -> None:
    """An alarm that cannot be ended is switched off with all others."""
    made = complained(tmp_path, "rows_set_back")
    file = str(made.file)
    [problem] = status.status(made.reader)["causes"]
    words = ["alerts", "ack", file, problem["id"], "--reason", "the copy was removed"]
    assert 0 == CliRunner().invoke(app, words).exit_code
    found = status.status(made.reader)
    assert ["the copy was removed"] == [one["acknowledged"] for one in found["causes"]]
    assert ([], "suspect") == (found["problems"], found["tables"][0]["state"])
    assert 0 == CliRunner().invoke(app, ["alerts", file]).exit_code
    assert "ingest_problems{" not in prom.text(found)
    wrong = CliRunner().invoke(app, ["alerts", "ack", file, "abc", "--reason", "x"])
    assert (2, True) == (wrong.exit_code, f"ingest alerts {file}" in wrong.output)
    made.now += dt.timedelta(hours=1)
    made.product("checks", [made.check("depot.bins", "rows_set_back", 3.0, "warn", "3 rows")])
    assert [None] == [one["acknowledged"] for one in status.status(made.reader)["causes"]]


def test_times_ahead_are_looked_up_once_for_all_mirrors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong `timezone:` makes all mirrors ahead: a thousand of them read the books a thousand times."""
    made, asked, ask = depot(tmp_path), list[str](), Tables.ask
    monkeypatch.setattr(Tables, "ask", lambda lake, query: asked.append(query) or ask(lake, query))
    row = {"state": "ok", "message": "", "newest commit": None}
    rows = [row | {"table": f"depot.t{n}", "ahead": f"209{n}-01-01T00:00:00Z"} for n in (1, 0, 2)]
    found = [one for one in problems.of_state(made.reader, rows, {}, 0) if one.kind == "ahead"]
    assert (3, 1) == (len(found), sum("WHERE epoch_us(event_high) > " in query for query in asked))


def test_a_source_whose_clock_is_ahead_does_not_lag() -> None:
    """`-57800s` says nothing to anybody, and 16 hours of lag are another thing."""
    ahead = dt.datetime.now(dt.UTC) + dt.timedelta(hours=16, minutes=5)
    newest = {"newest commit": ahead.isoformat(timespec="seconds").replace("+00:00", "Z")}
    [row] = status.aged({"tables": [newest]})["tables"]
    assert ("clock 16h ahead", 0) == (row["lag"], row["lag_seconds"])
    assert "16 hours ahead" == duration(-57_900)
    assert ["0 seconds", "1 second", "2 minutes"] == [duration(seconds) for seconds in (-0.5, 1.9, 120)]
