"""Rows whose key has changed, in sources that send the change as a delete and an insert; without Spark."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ingest import formats
from ingest.change import Hints, Message
from ingest.config import load
from ingest.erase import plan as planning
from ingest.erase import traces
from ingest.gold import evidence
from ingest.ledgers.stamps import change_of
from ingest.run import Warm, run
from ingest.tables.lake import Lake
from tests.erase.test_special_lakes import decided
from tests.unstarted import unstarted

TEXT = """\
pipeline: games
lake: ./lake
engine: auto
sources: [{name: s, kind: files, path: ./in-*.jsonl, format: FORMAT, settle: 1s}]
tables: [{match: shop.games, keys: [id], columns: {id: int64, name: string}}]
"""


class Games:
    """A table of one source, said message by message."""

    def __init__(self, folder: Path, format_name: str) -> None:
        self.folder, self.lines, self.files, self.warm = folder, list[str](), 0, Warm()
        self.file = file = folder / "games.yaml"
        file.write_text(TEXT.replace("FORMAT", format_name), "utf-8")
        self.pipeline = load(file)

    def say(self, message: dict[str, Any]) -> None:
        """One message."""
        self.lines.append(json.dumps(message))

    def run(self) -> None:
        """One batch."""
        self.files += 1
        path = self.folder / f"in-{self.files}.jsonl"
        path.write_text("\n".join(self.lines) + "\n", "utf-8")
        os.utime(path, (1_700_000_000 + self.files,) * 2)
        self.lines = []
        found = run(unstarted(), self.pipeline, ("bronze", "silver", "gold"), self.warm)
        assert [] == found.failures

    @property
    def lake(self) -> Lake:
        """The lake."""
        return Lake(unstarted(), self.pipeline)

    def planned(self, key: int) -> planning.Erasure:
        """What the erasure of one row removes."""
        return planning.plan(self.lake, "shop.games", [(str(key),)], "asked", now=False)

    def texts(self, batch: int) -> list[str]:
        """What a batch has written to silver, each change's name."""
        rows = self.lake.ask(
            f"SELECT coalesce(after, before) AS t FROM {{changes.change}} WHERE batch = {batch} ORDER BY order_key"
        )
        return [json.loads(row["t"])["name"] for row in rows]


def streamx(op: str, at: int, key: int, name: str) -> dict[str, Any]:
    """A row of DataWorks' StreamX."""
    image = {"dataColumn": {"id": key, "name": name}}
    before = op in ("UPDATE_BEFOR", "DELETE")
    return {
        "schema": {
            "dataColumn": [{"name": "id", "type": "LONG"}, {"name": "name", "type": "STRING"}], "primaryKey": ["id"],
            "source": {"dbType": "MySQL", "dbVersion": "1.0.0", "dbName": "shop", "tableName": "games"},
        },
        "payload": {
            "before": image if before else None, "after": None if before else image, "op": op, "ddl": None,
            "sequenceId": str(at), "timestamp": {"eventTime": 1718000042000},
        },
        "version": "1.0.0",
    }  # fmt: skip


def moved(games: Games, at: int, old: int, new: int, name: str) -> None:
    """A row gets another key, in the two halves of an update."""
    games.say(streamx("UPDATE_BEFOR", at, old, name))
    games.say(streamx("UPDATE_AFTER", at, new, f"{name} moved"))


@pytest.mark.parametrize("asked", [1, 7])
def test_the_two_halves_of_a_changed_key_are_one_row(tmp_path: Path, asked: int) -> None:
    """The row's other key would keep all its values, and no message would say so."""
    games = Games(tmp_path, "dataworks")
    games.say(streamx("INSERT", 10, 1, "gone"))
    moved(games, 20, 1, 7, "gone")
    games.say(streamx("INSERT", 30, 2, "stays"))
    games.say(streamx("UPDATE_BEFOR", 40, 2, "stays"))
    games.say(streamx("UPDATE_AFTER", 40, 2, "stays, too"))
    games.run()
    erasure = games.planned(asked)
    assert [("1",), ("7",)] == sorted(erasure.keys)
    assert (3, []) == (len(erasure.changes), erasure.doubtful)
    decided(games.lake, erasure)
    moved(games, 20, 1, 7, "gone")  # delivered again
    games.say(streamx("UPDATE_AFTER", 50, 2, "stays still"))
    games.say(streamx("INSERT", 60, 1, "new"))
    games.run()
    assert ["stays still", "new"] == games.texts(2)


def test_a_key_that_got_another_row_keeps_it(tmp_path: Path) -> None:
    """Two rows of one key are distinguished by where one left it and the other got it."""
    games = Games(tmp_path, "dataworks")
    games.say(streamx("INSERT", 10, 1, "gone"))
    moved(games, 20, 1, 7, "gone")
    games.say(streamx("INSERT", 30, 1, "stays"))
    games.run()
    erasure = games.planned(7)
    assert [("1",), ("7",)] == sorted(erasure.keys)
    assert ([("7",)], 3) == (erasure.rows, len(erasure.changes))
    assert 1 == len(games.planned(1).changes)


def debezium(op: str, pos: int, row: int, key: int, name: str) -> dict[str, Any]:
    """A row of Debezium for MySQL, from a file: without the headers that name the other key."""
    image = {"id": key, "name": name}
    source = {
        "connector": "mysql",
        "db": "shop",
        "table": "games",
        "file": "binlog.000001",
        "pos": pos,
        "row": row,
        "ts_ms": 1718000042000,
    }
    return {
        "before": image if op == "d" else None,
        "after": None if op == "d" else image,
        "source": source,
        "op": op,
        "ts_ms": 1718000042000,
    }


@pytest.mark.parametrize("asked", [1, 7])
def test_a_key_that_may_have_changed_is_named(tmp_path: Path, asked: int) -> None:
    """Erasing one key of a row must report the other, and the auditor must see that there may be one."""
    games = Games(tmp_path, "debezium")
    for one in (
        debezium("c", 10, 0, 1, "gone"),
        debezium("d", 20, 0, 1, "gone"),
        debezium("c", 20, 0, 7, "perhaps"),
    ):
        games.say(one)
    for one in (
        debezium("c", 20, 1, 3, "stays"),
        debezium("d", 30, 0, 3, "stays"),
        debezium("c", 40, 0, 4, "stays"),
    ):
        games.say(one)
    games.run()
    erasure = games.planned(asked)
    other = {1: "7", 7: "1"}[asked]
    assert ([(str(asked),)], [(other,)]) == (erasure.keys, erasure.doubtful)
    [left] = traces.unknown(games.lake, erasure)
    assert "1 other key, inserted or deleted at the places" in left
    assert [] == games.planned(3).doubtful


def test_debezium_names_the_key_that_a_row_leaves(tmp_path: Path) -> None:
    """Its header is all that says so, and only Kafka carries headers."""
    document = debezium("c", 20, 0, 7, "gone")
    message = Message(
        json.dumps(document).encode(), key=b'{"id": 7}', headers=(("__debezium.oldkey", b'{"id": 1}'),)
    )
    [change] = formats.load("debezium").parse(message, Hints())
    row = {"op": change.op, "partial": change.partial, "types": json.dumps(change.types)}
    row |= {name: json.dumps(getattr(change, name)) for name in ("before", "after")}
    row |= {"event_time": None, "note": None}
    assert {(7,): ("7",), (1,): ("1",)} == evidence.keys_of(change_of(row), ("id",), {"id": "int64"})


def test_rows_whose_other_keys_cannot_be_known_are_said(tmp_path: Path) -> None:
    """Flattened rows without positions connect nothing: silence would look like a complete erasure."""
    games = Games(tmp_path, "debezium")
    games.file.write_text(
        games.file.read_text().replace("settle: 1s", "settle: 1s, options: {table: shop.games}")
    )
    games.pipeline = load(games.file)
    games.say({"id": 1, "name": "gone", "__deleted": "false"})
    games.say({"id": 1, "name": "gone", "__deleted": "true"})
    games.say({"id": 7, "name": "perhaps", "__deleted": "false"})
    games.run()
    erasure = games.planned(1)
    assert ([("1",)], [], 2) == (erasure.keys, erasure.doubtful, erasure.unplaced)
    [left] = traces.unknown(games.lake, erasure)
    assert "2 inserts and deletes came without a position" in left


def test_rows_with_positions_are_complete(tmp_path: Path) -> None:
    """A warning that is always there would not be read."""
    games = Games(tmp_path, "debezium")
    games.say(debezium("c", 10, 0, 1, "gone"))
    games.say(debezium("d", 20, 0, 1, "gone"))
    games.run()
    assert (0, []) == (games.planned(1).unplaced, traces.unknown(games.lake, games.planned(1)))
