"""What checks, runs, alerts, snapshots and pages had written about a row before it was erased."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ingest.cli.app import app
from ingest.config import load
from ingest.erase.search import search
from ingest.formats import ingest_snapshot
from ingest.run import run
from ingest.source import place
from ingest.tables.lake import Lake
from tests.lakes import touch

pytestmark = [pytest.mark.spark, pytest.mark.e2e]
PIPELINE = """\
pipeline: pay
lake: ./lake
sources:
  - {name: s, path: ./landing/*.jsonl, format: dts-canal, settle: 1s}
tables:
  - {match: shop.pay, columns: {born: date}}
quality:
  - table: shop.pay
    expect:
      - {type: expect_column_max_to_be_between, column: salary, max_value: 100000, severity: warn}
      - {type: expect_column_values_to_be_in_set, column: word, value_set: [fine], severity: warn}
"""
KEYS = ("ZQXPLAIN77", 'O"Hara\\ZQXKEY-77', "張三豐-ZQX")
TOLD = "ZQX about 1961, she told us on the telephone last May"
WORDS = ("QZX", 'a "quoted" \\ word of the ZQX', "Z" * 5000)
TYPES = {
    "id": "varchar(40)",
    "salary": "int(11)",
    "email": "varchar(80)",
    "born": "varchar(80)",
    "word": "text",
}


def message(number: int, kind: str, key: str, salary: str, place: int, born: str = TOLD) -> dict[str, Any]:
    """One row's change."""
    row = {
        "id": key,
        "salary": salary,
        "email": f"zqxmail{place}@example.org",
        "born": born,
        "word": WORDS[place],
    }
    return {
        "data": [row], "database": "shop", "table": "pay", "es": 1795839000000 + number, "ts": 1795839000000 + number,
        "id": number, "isDdl": False, "mysqlType": TYPES, "old": None, "pkNames": ["id"], "sql": "", "sqlType": {},
        "type": kind,
    }  # fmt: skip


class Pay:
    """A lake with three rows that are to be erased, and one that stays."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "pay.yaml"
        self.file.write_text(PIPELINE, "utf-8")
        (folder / "landing").mkdir()
        self.files = 0

    def land(self, spark: Any, *messages: dict[str, Any]) -> None:
        """A file of messages, and a run."""
        self.files += 1
        file = self.folder / "landing" / f"{self.files}.jsonl"
        file.write_text("".join(f"{json.dumps(one, ensure_ascii=False)}\n" for one in messages), "utf-8")
        touch(file)
        run(spark, load(self.file))

    def type(self, *words: str) -> Result:
        """The verb."""
        return CliRunner().invoke(app, ["erase", str(self.file), *words])

    def left(self) -> set[tuple[str, str]]:
        """Where files of the lake still hold something of the rows."""
        emails = tuple(f"zqxmail{at}@" for at in range(3))
        numbers = tuple(f"91827364{at}" for at in range(3))
        found = search(self.folder / "lake", (*KEYS, TOLD, *WORDS, *emails, *numbers))
        assert [] == found.unread
        return {(hit.file.partition("/")[0], hit.column) for hit in found.hits}


def test_no_byte_of_a_row_is_left_in_what_was_written_about_it(spark: Any, tmp_path: Path) -> None:
    """A certificate is signed by somebody: the key, a salary and half a birthday must not be in the checks after it."""
    made = Pay(tmp_path)
    rows = [message(n, "INSERT", key, f"91827364{n}", n) for n, key in enumerate(KEYS)]
    stays = message(5, "INSERT", "k2", "100", 0, "1990-01-01") | {"id": 5}
    stays["data"][0] |= {"email": "a@b.c", "word": "fine"}
    made.land(spark, *rows, stays)
    again = [message(10 + n, "INSERT", key, f"91827364{n}", (n + 1) % 3) for n, key in enumerate(KEYS)]
    made.land(spark, *again)  # keys that are there: the run's own row and the checks name them
    lake = Lake(spark, load(made.file))
    _read(lake, made)
    run(spark, load(made.file))
    before = {table for table, _ in made.left()}
    assert {"bronze", "changes", "mirrors", "checks", "runs", "snapshots"} <= before
    made.file = made.file.rename(tmp_path / "moved.yaml")  # what was recorded names the file as it was called
    done = made.type("shop.pay", "--where", "id <> 'k2'", "--reason", "asked", "--now", "--output", "json")
    assert 0 == done.exit_code, done.output
    assert set() == made.left()
    words = [word for text in (*KEYS, TOLD, *WORDS) for word in ("--verify", text)]
    assert 0 == made.type(*words).exit_code
    lake = Lake(spark, load(made.file))
    assert ["k2"] == [row["id"] for row in lake.ask_mirror("mirrors/shop/pay", "SELECT id FROM {mirror}")]
    states = lake.ask(
        """SELECT DISTINCT state FROM {checks} WHERE "check" = 'expect_column_max_to_be_between'"""
    )
    assert "warn" in {row["state"] for row in states}  # the verdicts stay


def _read(lake: Lake, made: Pay) -> None:
    """The rows as `ingest snapshot` writes them, which wait to be landed: an erasure refuses until they have."""
    from ingest.change import TableId
    from ingest.tables import snapshots

    table = TableId("shop", None, "pay")
    known = place.known(lake.pipeline, "s", table)
    where = place.after(known.high, known.batch, place.number_after(known.high, known.batch), known.epoch)
    types = {"id": "string", "salary": "int32", "email": "string", "born": "date", "word": "string"}
    rows = [[key, f"91827364{n}", f"zqxmail{n}@example.org", None, WORDS[n]] for n, key in enumerate(KEYS)]
    head = {
        "ingest-snapshot": 1,
        "op": "read",
        "table": list(table),
        "keys": ["id"],
        "place": where.of(0, 0),
        "types": types,
        "rows": rows,
    }
    here = snapshots.folder(lake.pipeline, "s") / "shop.pay-1"
    here.mkdir(parents=True)
    (here / f"chunk-000001{ingest_snapshot.SUFFIX}").write_text(json.dumps(head) + "\n", "utf-8")
    refused = made.type("shop.pay", KEYS[0], "--reason", "asked")
    assert 2 == refused.exit_code
    assert "have not landed" in " ".join(refused.stderr.split())
