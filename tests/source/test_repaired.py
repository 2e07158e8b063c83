"""A repair from beginning to end: compared, read again, landed by a run, and compared once more, without Spark."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from ingest.cli.app import app
from ingest.config import load
from ingest.lake.tables import LakeReader
from tests.lakes import touch
from tests.source.bins import Bins

TYPES = {"id": "bigint", "word": "varchar", "size": "double"}


def stream(bins: Bins, number: int, *rows: tuple[int, str, float], kind: str = "INSERT") -> None:
    """A file of messages, and a run."""
    lines = []
    for place, (key, word, size) in enumerate(rows):
        moment = 1714521600000 + 1000 * number
        data: dict[str, Any] = {
            "data": [{"id": str(key), "word": word, "size": str(size)}],
            "mysqlType": TYPES,
        }
        lines.append(
            data | {
                "database": "shop", "table": "bins", "es": moment, "ts": moment, "id": 100 * number + place,
                "isDdl": False, "old": None, "pkNames": ["id"], "sql": "", "type": kind,
            }
        )  # fmt: skip
    file = bins.file.parent / "in" / f"{number}.jsonl"
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(f"{json.dumps(one)}\n" for one in lines), "utf-8")
    touch(file)
    done = CliRunner().invoke(app, ["run", str(bins.file)])
    assert 0 == done.exit_code, done.output


def test_a_repaired_mirror_is_equal_and_no_run_complains_of_it(bins: Bins) -> None:
    """A run that fails after a repair has its advice followed, and the advice is to clear the mirror."""
    bins.write("DELETE FROM bins WHERE id >= 40")
    right = [(n, f"w{n}", n / 8) for n in range(40)]
    wrong = [
        (n, "another", n / 8) if n in (4, 7, 9) else (n, word, size)
        for n, word, size in right
        if n not in (1, 2)
    ]
    stream(bins, 1, *wrong, (77, "surplus", 1.0))
    done = bins.type("--settled", "--repair", "--run", "--output", "json")
    assert 0 == done.exit_code, done.output
    [table] = json.loads(done.stdout)["tables"]
    assert (True, 40, 40) == (table["equal_to_source"], table["rows"], table["mirror_rows"])
    assert "the mirror is equal" in " ".join(done.stderr.split())
    lake = LakeReader(load(bins.file))
    failed = lake.ask(
        """SELECT "check", detail FROM {checks} WHERE state IN ('fail', 'warn') AND "check" <> 'reconcile'"""
    )
    assert [] == failed
    stream(bins, 2, (3, "newer", 0.5), kind="UPDATE")  # the next run has nothing to say of the repair, either
    bins.write("UPDATE bins SET word = 'newer', size = 0.5 WHERE id = 3")
    assert 0 == bins.type("--settled").exit_code


def test_a_run_without_a_repair_is_refused(bins: Bins) -> None:
    """Nothing would have been read that a run could land."""
    assert 2 == bins.type("--run").exit_code


def test_what_is_equal_starts_no_run(bins: Bins) -> None:
    """A scheduled comparison of equal tables must cost a comparison and no more."""
    bins.write("DELETE FROM bins WHERE id >= 3")
    stream(bins, 1, *((n, f"w{n}", n / 8) for n in range(3)))
    before = LakeReader(load(bins.file)).ask("SELECT count(*) AS n FROM {runs}")
    assert 0 == bins.type("--settled", "--repair", "--run").exit_code
    assert before == LakeReader(load(bins.file)).ask("SELECT count(*) AS n FROM {runs}")
