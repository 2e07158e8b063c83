"""Decisions without Spark: each is a row of `decisions`, so writing one does not start Java."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from ingest.cli.app import app

FILE = """
pipeline: depot
lake: ./lake
engine: auto
sources:
  - {name: shop, path: ./in/*.jsonl, format: drs-json}
tables:
  - match: shop.item
    columns: {price: "decimal(12,2)"}
    also:
      - {into: eu.item}
"""
LAST = "SELECT kind FROM decisions ORDER BY number DESC LIMIT 1"
TYPES = {"id": "bigint", "price": "decimal"}


def message(number: int, **members: Any) -> str:
    """A message of Huawei's DRS."""
    moment = 1714521600000 + 1000 * number
    found = {"id": number, "database": "shop", "table": "item", "es": moment, "ts": moment, "isDdl": False}
    return json.dumps(found | {"sql": "", "mysqlType": TYPES, "pkNames": ["id"], "old": None} | members)


def insert(number: int, price: str) -> str:
    """A row whose key is the message's number."""
    return message(number, type="INSERT", data=[{"id": str(number), "price": price}])


def truncated_partition(number: int) -> str:
    """A statement that holds its mirrors: no message says which rows are deleted."""
    text = "ALTER TABLE item TRUNCATE PARTITION p0"
    return message(number, type="ALTER", isDdl=True, sql=text, data=None, mysqlType=None, pkNames=None)


class Depot:
    """A pipeline with a message that cannot be decoded, and two mirrors that a statement holds."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, str(folder / "depot.yaml")
        (folder / "in").mkdir()
        (folder / "depot.yaml").write_text(FILE)
        self.land(1, insert(1, "1.50"), insert(2, "2.50"), insert(3, "3.50")[:-9])
        self.land(2, truncated_partition(4), insert(5, "5.50"))

    def land(self, number: int, *lines: str) -> Result:
        """One batch."""
        (self.folder / "in" / f"part-{number}.jsonl").write_text("\n".join(lines) + "\n")
        return self.ask("run")

    def ask(self, *words: str, file: bool = True) -> Result:
        """A verb, on the pipeline file unless the words name it."""
        return CliRunner().invoke(app, [words[0], self.file, *words[1:]] if file else list(words))

    def rows(self, *words: str) -> Any:
        """What a verb answers with ``--output json``."""
        return json.loads(self.ask(*words, "--output", "json").stdout)


@pytest.fixture
def depot(tmp_path: Path, no_spark: None) -> Depot:
    """On a machine that cannot start Spark."""
    return Depot(tmp_path)


def test_a_held_table_is_released(depot: Depot) -> None:
    """Half a minute for each decision, and minutes for six changes, when a table waits at night."""
    [statement] = {row["id"] for row in depot.rows("ddl", "--pending")}
    assert 1 == depot.rows("status")["pending_statements"]  # one, though it holds two mirrors
    listed = depot.ask("ddl").output
    assert "ingest ddl dismiss" in listed
    assert "ingest ddl approve" not in listed  # which is refused: no message says what it did
    wrong = depot.ask("ddl", "dismiss", depot.file, "0000", "--reason", "no rows", file=False)
    assert (2, True) == (wrong.exit_code, "There is no statement '0000'" in wrong.output)
    done = depot.ask("ddl", "dismiss", depot.file, statement, "--reason", "no rows", file=False)
    assert 0 == done.exit_code, done.output
    assert "dismissed" in done.output
    assert "would have done" in done.output
    tried = depot.rows("retry")
    assert ["eu.item", "shop.item"] == sorted(tried["tried"])
    assert {"ok"} == {row["state"] for row in depot.rows("status")["tables"]}
    assert {3} == {row["rows"] for row in depot.rows("status")["tables"]}


def test_a_reject_is_dismissed(depot: Depot) -> None:
    """To dismiss a reject writes one row, and the alert about it is over."""
    causes = [one["cause"] for one in depot.rows("alerts")]
    assert [one for one in causes if "decoded" in one]
    done = depot.ask("rejects", "dismiss", depot.file, "1", "--reason", "a test", file=False)
    assert 0 == done.exit_code, done.output
    assert [] == depot.rows("rejects")
    assert "nothing to replay" in depot.ask("replay").output
    causes = [one["cause"] for one in depot.rows("alerts")]
    assert not [one for one in causes if "decoded" in one], "an alert outlives its cause until the next batch"


def test_rejects_that_are_alike_are_dismissed_at_once(depot: Depot) -> None:
    """A thousand broken messages of one cause were a thousand commands."""
    [statement] = {row["id"] for row in depot.rows("ddl", "--pending")}
    depot.ask("ddl", "dismiss", depot.file, statement, "--reason", "no rows", file=False)
    depot.land(3, "{", "{", insert(6, "12345678901.50"), insert(7, "6.50"))
    kinds = [row["kind"] for row in depot.rows("rejects")]
    assert (3, 2) == (kinds.count("message"), kinds.count("cell"))  # of two mirrors
    listed = depot.ask("rejects").output
    assert f"ingest rejects dismiss {depot.file} --kind" in listed

    def dismiss(*words: str) -> Result:
        return depot.ask("rejects", "dismiss", depot.file, *words, "--reason", "a test", file=False)

    assert [2, 2] == [dismiss(*words).exit_code for words in ((), ("1", "--kind", "message"))]
    assert "No reject is open that is so" in dismiss("--kind", "message", "--batch", "2").output
    assert "dismissed: 2 rejects" in dismiss("--kind", "message", "--batch", "3").output
    assert "dismissed: 1 reject" in dismiss("--kind", "message").output
    assert "dismissed: 1 reject" in dismiss("--table", "eu.item", "--column", "price").output
    assert ["shop"] == [row["database"] for row in depot.rows("rejects")]
    depot.land(4, "{")
    assert 2 == len(depot.rows("rejects")), "of what comes later nothing is dismissed"


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_mirror_is_paused_and_resumed(verb: str, depot: Depot) -> None:
    """A pause is written, and ended, without Spark."""
    assert 0 == depot.ask("pause", depot.file, "shop.item", file=False).exit_code
    done = depot.ask(verb, depot.file, "shop.item", file=False)
    assert 0 == done.exit_code, done.output
    assert ("is paused" in done.output) == (verb == "pause")
    assert [verb] == [row["kind"] for row in depot.rows("sql", LAST)]


def test_types_are_asked_for_where_they_are_declared(depot: Depot) -> None:
    """A further mirror that has ``columns:`` with types is refused, so the advice must not name it."""
    file = depot.folder / "depot.yaml"
    file.write_text(
        FILE.replace('    columns: {price: "decimal(12,2)"}\n', "")
        .replace("./lake", "./other")
        .replace("*.jsonl", "part-1.jsonl")
    )
    said = depot.ask("plan").stderr
    assert "shop.item: price would be STRING" in said
    assert "eu.item: price" not in said


def test_epochs_are_listed(depot: Depot) -> None:
    """A list is a question."""
    assert [] == json.loads(depot.ask("epoch", depot.file, "shop", "--output", "json", file=False).stdout)


def test_a_batch_that_is_not_there_is_named(depot: Depot) -> None:
    """Rows "as of batch 9" of a lake with two batches are taken for an answer about batch 9."""
    query = "SELECT count(*) AS n FROM shop.item"
    found = depot.ask("sql", query, "--as-of-batch", "9", "--output", "json")
    assert ([{"n": 2}], "There is no batch 9 yet: the newest is 2." in found.stderr) == (
        json.loads(found.stdout),
        True,
    )
    assert "There is no batch" not in depot.ask("sql", query, "--as-of-batch", "1").stderr


def test_a_version_that_is_gone_is_named(depot: Depot) -> None:
    """After an erasure or maintenance, the error of a damaged log would hint at damage that does not exist."""
    mirror = depot.folder / "lake" / "mirrors" / "shop" / "item"
    for file in mirror.glob("*.parquet"):
        file.unlink()
    found = depot.ask("sql", "SELECT count(*) FROM shop.item", "--as-of-batch", "1")
    assert 2 == found.exit_code
    assert "Version 0 of" in found.stderr
    assert "can no longer be read: `ingest maintain` deletes files" in found.stderr
