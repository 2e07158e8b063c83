"""What lists of rejects and statements show without a second question."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ingest.catalog.entries import Registered, RegisteredColumn
from ingest.change import TableId
from ingest.cli import repair_verbs
from ingest.cli.app import app
from ingest.inspect.query import query
from ingest.operate import catalog_sql
from ingest.quality.report_data import gather
from ingest.tables.schemas import CHECKS, DECISIONS, REJECTS
from tests.lakes import change, statement
from tests.serve.conftest import KEYLESS, depot
from tests.written_lake import WrittenLake


def asked(made: WrittenLake, *words: str, code: int = 0) -> str:
    """What a question prints."""
    done = CliRunner().invoke(app, [*words, str(made.file)])
    assert code == done.exit_code, done.output
    return done.stdout


def test_a_rejected_cell_is_listed_with_its_text(tmp_path: Path) -> None:
    """After `not a date` alone, the operator would have to look for the value in the raw message."""
    made = WrittenLake(tmp_path)
    made.take([change("INSERT", "bins", 1, {"id": "1", "word": "x"})])
    cell = {"source": "bins", "topic": "bins-1.jsonl", "partition": 0, "offset": 0, "batch": 1, "database": "depot",
            "table": "bins", "stage": "gold", "kind": "cell", "reason": "does-not-fit", "column": "paid",
            "detail": "not a date (2024-01-31)", "raw": "soon\x1b[31m" + "x" * 100}  # fmt: skip
    made.product(REJECTS.name, [cell])
    said = asked(made, "rejects")
    assert "'soon\\u001b[31mxxx" in said
    assert "x" * 50 not in said
    assert "not a date (2024-01-31)" in said.replace("\n", "")


def test_a_statement_that_came_twice_names_its_first_delivery(tmp_path: Path) -> None:
    """Two lines that say the same look like two changes of the table."""
    made = WrittenLake(tmp_path)
    sql = "ALTER TABLE bins ADD COLUMN more INT"
    made.take(
        [
            change("INSERT", "bins", 1, {"id": "1", "word": "x"}),
            statement("bins", 2, sql),
            statement("bins", 2, sql),
        ]
    )
    first, second = [line.split() for line in asked(made, "ddl").splitlines() if "ALTER" in line]
    assert "adds column more" in " ".join(first)
    assert f"repeats {first[0]}" in " ".join(second)


def test_the_last_results_of_the_checks_are_shown_without_checking(tmp_path: Path) -> None:
    """Otherwise an operator who asks what the last run found would wait for Spark, and see what is so by then."""
    made = depot(tmp_path)
    made.product(
        CHECKS.name, [made.check("depot.shelf1", "key_unique", 0.0), made.check("depot.shelf1", "rows", 1.0)]
    )
    before = made.reader.snapshot(CHECKS.name).version
    done = CliRunner().invoke(app, ["quality", str(made.file), "--last"])
    assert 1 == done.exit_code, done.output
    line = next(line for line in done.stdout.splitlines() if "depot.bins" in line)
    assert ["fail", "missing_rows"] == [one for one in line.split() if one in ("fail", "missing_rows")]
    assert "2 rows are missing" in done.stdout
    assert "depot.shelf1" not in done.stdout
    assert "1 failed, " in done.stdout
    done = CliRunner().invoke(app, ["quality", str(made.file), "--last", "--output", "json"])
    found = json.loads(done.stdout)
    assert ({"fail", "pass"}, 1) == (set(found["counts"]), found["counts"]["fail"])
    (wrong,) = (one for one in found["checks"] if one["state"] == "fail")
    assert ("depot.bins", None, 2.0) == (wrong["mirror"], wrong["source"], wrong["observed"])
    assert before == made.reader.snapshot(CHECKS.name).version
    done = CliRunner().invoke(app, ["quality", str(made.file), "--last", "--deep", "*"])
    assert (2, True) == (done.exit_code, "give one of them" in done.output)


def test_the_queries_next_to_checks_can_be_typed(tmp_path: Path) -> None:
    """A user who copies one from a page or a report wants the rows, whichever engine has its functions."""
    made = depot(tmp_path)
    facts = gather(made.reader)
    checks = [check for table in facts.tables for check in table.checks]
    checks += [check for source in facts.sources for check in source.checks]
    queries = {check.sql for check in checks if check.sql} | {
        one.explain for one in facts.tables if one.explain
    }
    assert any("get_json_object" in one for one in queries)
    for one in sorted(queries):
        query(made.reader, one)
    place = "$[''it is'']"  # as a key with a space is written
    _, rows, _ = query(
        made.reader, f"SELECT get_json_object('{{\"it is\": 7}}', '{place}') AS seven FROM books LIMIT 1"
    )
    assert [["7"]] == rows
    lost = next(one for one in queries if "last <> 'delete'" in one and "'shelf0'" in one)
    assert [] == query(made.reader, lost)[1]


def test_rows_that_a_rebuild_changed_are_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """A row of `changes` has seven hundred characters: thirty cut off dictionaries hide what was changed."""
    sample: list[dict[str, Any]] = [
        {"key": {"id": "7"}, "before": None, "after": {"word": "x" * 700, "batch": "3"}},
        {"before": {"word": "y"}},
        {"key": {"id": "9"}, "before": {"at": "15:45", "no": None}, "after": {"at": "07:45", "no": "1"}},
    ]
    row = {
        "table": "s.t", "state": "rebuilt", "batch": 3, "rows": 9, "missing": 1, "surplus": 1, "differing": 1,
        "cells": {"at": 1, "no": 1}, "sample": sample, "message": "",
    }  # fmt: skip
    repair_verbs.printed([row], "table")
    said = capsys.readouterr().out
    assert "{" not in said
    assert [("", "", "word = y", "removed")] == repair_verbs._lines(sample[1])
    assert [("id = 9", "at", "15:45", "07:45"), ("id = 9", "no", "NULL", "1")] == repair_verbs._lines(
        sample[2]
    )
    assert "missing" in next(line for line in said.splitlines() if "id = 7" in line)
    assert said.rstrip().endswith("1 row added, 1 row removed, 2 cells changed in 1 row")
    assert max(map(len, said.splitlines())) <= 200
    repair_verbs.printed(
        [row | {"missing": 0, "surplus": 0, "differing": 0, "cells": {}, "sample": []}], "table"
    )
    assert capsys.readouterr().out.rstrip().endswith("nothing differed")
    repair_verbs.printed([row | {"state": "compared"}], "table")
    assert "a rebuild would have: 1 row added" in capsys.readouterr().out


def test_a_list_without_problems_says_so(tmp_path: Path) -> None:
    """A table's head without rows, at three in the morning: is nothing wrong, or was nothing found?"""
    made = WrittenLake(tmp_path)
    made.take([change("INSERT", "box", 1, {"id": "1", "word": "x"})])
    done = CliRunner().invoke(app, ["alerts", str(made.file)])
    assert (0, "depot: nothing is known to be wrong.\n") == (done.exit_code, done.stdout)
    done = CliRunner().invoke(app, ["alerts", str(made.file), "-o", "json"])
    assert (0, []) == (done.exit_code, json.loads(done.stdout))


def test_batches_that_are_accepted_as_they_are_give_an_answer(tmp_path: Path) -> None:
    """A script that reads the answer of each verb as JSON ended here."""
    made = WrittenLake(tmp_path)
    made.take([change("INSERT", "box", 1, {"id": "1", "word": "x"})])
    for which in ("--last", "--from-batch"):
        words = ["backfill", str(made.file), which, "1", "--accept", "-o", "json"]
        done = CliRunner().invoke(app, words)
        assert (0, {"accepted_from_batch": 1}) == (done.exit_code, json.loads(done.stdout)), done.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give one of them"),
        (("--last", "1", "--from-batch", "1"), "give one of them"),
        (("--from-batch", "2"), "Batch 2 is not decoded yet"),
    ],
)
def test_a_backfill_says_which_batches(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    """One of no batch, or of others than were meant, would end with 0 and leave what was to be repaired."""
    made = WrittenLake(tmp_path)
    made.take([change("INSERT", "box", 1, {"id": "1", "word": "x"})])
    done = CliRunner().invoke(app, ["backfill", str(made.file), *words, "--accept"])
    assert (2, True) == (done.exit_code, said in done.output), done.output


def test_a_held_table_sends_to_its_file_and_a_reject_stays_said(tmp_path: Path) -> None:
    """`ingest run` again changes nothing for a table without a key; and a batch without rejects ends none of the old."""
    made = WrittenLake(tmp_path)
    made.take([change("INSERT", "box", 1, {"id": "1", "word": "x"}), "{"], held={"depot.box": KEYLESS})
    said = asked(made, "status", code=1)  # a table is held
    assert "0 of 1 mirror is up to date with batch 1; 2 problems need the operator." in said
    assert f"next (after {made.file} says what the message asks for): ingest retry {made.file} " in " ".join(
        said.split()
    )
    rate = made.check("", "reject_rate", 0.5, "warn", "1 of 2 messages could not be decoded and waits") | {
        "mirror": None, "source": "bins", "severity": "warn"
    }  # fmt: skip
    made.product(CHECKS.name, [rate])
    done = CliRunner().invoke(app, ["report", str(made.file), "--out", str(tmp_path / "report.html")])
    assert 0 == done.exit_code, done.output
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "1 of 2 messages could not be decoded and waits" in page
    assert "can be trusted" not in page
    assert "recent" not in page


def test_a_history_table_is_made_known_as_one(tmp_path: Path) -> None:
    """As a mirror with the key (id) it would be joined by a key that is there many times."""
    columns = (
        RegisteredColumn("id", "BIGINT", "id", "int64"),
        RegisteredColumn("valid_from", "TIMESTAMP", "%from", "timestamp"),
    )
    table = Registered(
        TableId("depot", None, "bins__history"), "/l/histories/depot/bins", columns, ("id",), states=True
    )
    for dialect in ("spark", "duckdb", "trino"):
        text = catalog_sql.sql(dialect, [table])
        assert "history of depot.bins: every state of each row, key (id) and valid_from" in text
        assert "%" not in text


def test_paths_are_shown_from_the_folder_of_the_pipeline_file(tmp_path: Path) -> None:
    """Absolute paths of sixty characters break every other column of a table."""
    made = WrittenLake(tmp_path / ("a" * 30))
    landing = made.file.parent / "depot-1.jsonl"
    made.take([change("INSERT", "box", 1, {"id": "1", "word": "x"})])
    place = {"source": "bins", "topic": str(landing), "partition": 0, "offset": 5, "batch": 1}
    made.product(REJECTS.name, [{**place, "kind": "message", "reason": "bad-json", "stage": "silver"}])
    assert "./depot-1.jsonl/0/5" in asked(made, "rejects")
    assert str(made.file.parent) not in asked(made, "rejects")
    assert " ./depot-lake/mirrors/depot/box " in asked(made, "tables")
    for typed in ("./depot-1.jsonl/0/5", f"{landing}/0/5"):
        done = CliRunner().invoke(app, ["rejects", "show", str(made.file), typed])
        assert (0, True) == (done.exit_code, "bad-json" in done.output), done.output


def test_the_way_to_a_rejects_number_can_be_typed(tmp_path: Path) -> None:
    """A sentence with FILE in it is another thing to look up at night."""
    made = WrittenLake(tmp_path)
    made.take([change("INSERT", "bins", 1, {"id": "1", "word": "x"})])
    done = CliRunner().invoke(app, ["rejects", "show", str(made.file), "7"])
    assert 2 == done.exit_code
    advised = f"ingest rejects {made.file} --all"
    assert f"There is no reject 7: `{advised}` numbers them." in " ".join(done.stderr.split())
    assert 0 == CliRunner().invoke(app, advised.split()[1:]).exit_code


def test_what_was_not_paused_is_not_resumed(tmp_path: Path) -> None:
    """`resumed` says that something waited, and the ledger would hold a decision that changed nothing."""
    made = WrittenLake(tmp_path)
    made.take([change("INSERT", "bins", 1, {"id": "1", "word": "x"})])

    def answer(*words: str) -> str:
        done = CliRunner().invoke(app, [*words, str(made.file), "depot.bins"])
        assert 0 == done.exit_code, done.output
        return done.stdout.strip()

    before = made.reader.count(DECISIONS.name)
    assert "depot.bins is not paused" == answer("resume")
    assert before == made.reader.count(DECISIONS.name)
    assert "depot.bins is paused" == answer("pause")
    assert "depot.bins is resumed" == answer("resume")


def test_a_key_that_no_change_has_named_is_said_so(tmp_path: Path) -> None:
    """`no row, as they say` would be false, for no change says so: most such keys are typing errors."""
    made = WrittenLake(tmp_path)
    made.take([change("INSERT", "bins", 1, {"id": "1", "word": "x"})])
    done = CliRunner().invoke(app, ["explain", str(made.file), "depot.bins", "99"])
    assert "no change has named this key, and the mirror has no row of it" in " ".join(done.stdout.split())


def test_a_change_that_was_decoded_otherwise_is_named_by_its_message() -> None:
    """All lines of a backfill began with the same sixty characters, and showed nothing else."""
    change = {
        "kind": "change",
        "batch": 3,
        "source": "bins",
        "topic": f"/srv/{'x' * 60}/in-7.jsonl",
        "partition": 0,
    }
    change |= {"offset": 12, "row": 0, "note": None, "op": "update", "after": '{"id": "1"}'}
    [(row, column, before, after)] = repair_verbs._lines({"before": change, "after": None})
    assert (True, True) == (row.startswith("batch 3  …xxx"), row.endswith("/in-7.jsonl/0/12/0"))
    assert ("", 'op = update, after = {"id": "1"}', "removed") == (column, before, after)
