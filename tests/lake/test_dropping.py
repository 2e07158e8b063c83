"""A mirror whose table is excluded: what is said of it, and how it is removed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ingest.cli.app import app
from ingest.config import load
from ingest.gold.plan.steps import steps_of
from ingest.ledgers import decisions
from ingest.quality.stage import check
from ingest.run import Warm, run
from ingest.store import lock
from ingest.tables.lake import Lake
from ingest.tables.tables import LakeReader
from tests.unstarted import unstarted

FILE = """pipeline: shop
lake: ./lake
engine: auto
sources:
  - {name: s, kind: files, format: dts-canal, path: './in-*.jsonl', settle: 0s}
tables:
  - {match: d.people}
"""
FIRST = "  - {match: d.people"


def ask(file: Path, *words: str) -> Any:
    """The JSON output of a verb, whose exit code does not matter."""
    done = CliRunner().invoke(app, [words[0], str(file), *words[1:], "-o", "json"])
    assert done.exit_code in (0, 1), done.output
    return json.loads(done.stdout)


def batch(file: Path, number: int, *tables: str) -> list[str]:
    """A run with a row for each of some tables; what failed."""
    lines = []
    for at, table in enumerate(tables):
        row = {
            "data": [{"id": str(number)}],
            "mysqlType": {"id": "int"},
            "old": None,
            "pkNames": ["id"],
            "sql": "",
        }
        moment = 1714521600000 + 1000 * number
        place = {"database": "d", "table": table, "es": moment, "ts": moment, "id": 10 * number + at}
        lines.append(json.dumps({**place, **row, "isDdl": False, "type": "INSERT"}))
    (file.parent / f"in-{number}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    return run(unstarted(), load(file), warm=Warm()).failures


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A pipeline of two mirrors, one of which is excluded after its first batch."""
    found = tmp_path / "x.yaml"
    found.write_text(FILE, "utf-8")
    assert [] == batch(found, 1, "people", "goods")
    found.write_text(FILE.replace("people}", "people, exclude: true}"), "utf-8")
    return found


def test_an_excluded_mirror_is_not_up_to_date(file: Path) -> None:
    """Rows of people who must not be in the lake stayed in a mirror that was called up to date."""
    [warning] = [one for one in ask(file, "plan")[0]["warnings"] if "excludes it" in one]
    assert f"`ingest drop {file} d.people --reason excluded` removes it" in warning
    assert [] == batch(file, 2, "people", "goods")
    found = ask(file, "status")
    assert {"d.people": "excluded", "d.goods": "ok"} == {
        one["table"]: one["state"] for one in found["tables"]
    }
    assert "1 of 2 mirrors are up to date" in found["headline"]
    [problem] = [one for one in found["causes"] if one["mirror"]]
    assert f"ingest drop {file} d.people --reason excluded" == problem["command"]
    assert "match: d.people" in problem["text"]


def test_a_dropped_mirror_is_gone(file: Path) -> None:
    """Nobody may delete its folder by hand, which looks like damage."""
    assert [] == batch(file, 2, "people", "goods")
    done = CliRunner().invoke(app, ["drop", str(file), "d.people", "--reason", "personal data"])
    assert 0 == done.exit_code, done.output
    assert not (file.parent / "lake" / "mirrors" / "d" / "people").exists()
    found = ask(file, "status")
    assert (["d.goods"], []) == ([one["table"] for one in found["tables"]], found["causes"])
    assert ["d.goods"] == [one["table"] for one in ask(file, "tables")]
    assert [] == batch(file, 3, "people", "goods")
    assert [] == run(unstarted(), load(file), warm=Warm()).failures
    lake = Lake(unstarted(), load(file))
    checked = {verdict.metric.mirror for verdict in check(lake, steps=steps_of(lake)).verdicts}
    assert {"d.goods", None} == checked, "or it is not up to date, and its newest change is old"
    [kept] = decisions.read(LakeReader(load(file))).of(decisions.DROP)
    assert ("personal data", {"table": "d.people"}) == (kept.reason, kept.value)


def test_a_mirror_whose_files_are_written_again_is_not_dropped(file: Path) -> None:
    """A commit of upkeep would leave its rows in a folder that nothing knows."""
    with lock.rewriting(str(file.parent / "lake"), lock.UPKEEP):
        done = CliRunner().invoke(app, ["drop", str(file), "d.people", "--reason", "x"])
    assert 2 == done.exit_code, done.output
    assert f"is in use by {lock.UPKEEP}" in " ".join(done.output.split())
    assert (file.parent / "lake" / "mirrors" / "d" / "people").exists()


def test_a_mirror_that_the_next_run_makes_again_is_not_dropped(file: Path) -> None:
    """It would come back with all its rows, or without those of before."""
    for name in ("d.goods", "d.nothing"):
        done = CliRunner().invoke(app, ["drop", str(file), name, "--reason", "x"])
        assert 2 == done.exit_code, done.output
    assert (file.parent / "lake" / "mirrors" / "d" / "goods").exists()


def test_a_table_that_is_taken_back_has_all_its_rows(file: Path) -> None:
    """Silver has its first rows: a mirror without them would be wrong in silence."""
    done = CliRunner().invoke(app, ["drop", str(file), "d.people", "--reason", "a mistake"])
    assert 0 == done.exit_code, done.output
    file.write_text(FILE, "utf-8")
    assert [] == batch(file, 2, "people")
    rows = ask(file, "sql", "SELECT id FROM d.people ORDER BY id")
    assert [{"id": 1}, {"id": 2}] == rows
