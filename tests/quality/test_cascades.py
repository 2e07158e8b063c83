"""Rows that foreign keys delete or change at the source, of which MySQL's binary log has no word."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ingest.config import Pipeline
from ingest.config.model import Source
from ingest.run import Warm, run
from tests.unstarted import unstarted

KEY = "CONSTRAINT belongs FOREIGN KEY (depot) REFERENCES depots (id)"
DELETES = f"{KEY} ON DELETE CASCADE"


@dataclass(slots=True)
class Depots:
    """Bins that belong to depots, as Canal or DTS sends them; a second passes between two messages."""

    folder: Path
    dialect: str = "canal"
    clock: int = 1_718_000_000
    lines: list[str] = field(default_factory=list)
    warm: Warm = field(default_factory=Warm)

    def say(
        self, kind: str, table: str, row: dict[str, str | None] | None, sql: str = "", **old: str
    ) -> None:
        """One message."""
        self.clock += 1
        message = {
            "type": kind, "database": "shop", "table": table, "sql": sql, "isDdl": row is None, "id": self.clock,
            "es": self.clock * 1000, "ts": self.clock * 1000, "data": row and [row], "old": [old] if old else None,
            "mysqlType": row and dict.fromkeys(row, "int(11)"), "pkNames": row and ["id"],
        }  # fmt: skip
        self.lines.append(json.dumps(message))

    def ddl(self, sql: str, table: str = "bins") -> None:
        """A statement."""
        self.say("ALTER", table, None, sql)

    def run(self) -> list[str]:
        """Land what was said as one batch; what failed."""
        (self.folder / f"in-{self.clock}.jsonl").write_text("\n".join(self.lines) + "\n")
        self.lines.clear()
        source = Source("s", "files", self.dialect, path=str(self.folder / "in-*.jsonl"), settle=0)
        pipeline = Pipeline("x", self.folder / "x.yaml", str(self.folder / "lake"), (source,), engine="auto")
        return run(unstarted(), pipeline, warm=self.warm).failures

    def fill(self, key: str = DELETES) -> None:
        """Two depots, and a bin in each."""
        self.ddl("CREATE TABLE depots (id INT PRIMARY KEY)", "depots")
        self.ddl(f"CREATE TABLE bins (id INT PRIMARY KEY, depot INT, {key})")
        for number in "12":
            self.say("INSERT", "depots", {"id": number})
            self.say("INSERT", "bins", {"id": "7" + number, "depot": number})


@pytest.mark.parametrize(
    ("dialect", "key", "cut"),
    [
        ("canal", DELETES, True),
        ("canal", DELETES, False),
        ("dts-canal", f"{KEY} ON DELETE SET NULL", True),
    ],
)
def test_rows_that_went_with_others_are_named(dialect: str, key: str, *, cut: bool, tmp_path: Path) -> None:
    """Only the statement of the key was mentioned, as a warning: the bin stayed in the mirror for ever."""
    depots = Depots(tmp_path, dialect)
    depots.fill(key)
    assert not cut or depots.run() == []
    depots.say("DELETE", "depots", {"id": "2"})
    [said] = depots.run()
    assert '1 row of shop.bins, such as {"id":"72"}' in said


def test_rows_whose_key_has_followed_another_are_named(tmp_path: Path) -> None:
    """ON UPDATE CASCADE gives them the new key; a delete would have been refused while such rows were there."""
    depots = Depots(tmp_path)
    depots.fill(f"{KEY} ON UPDATE CASCADE")
    depots.say("UPDATE", "depots", {"id": "9"}, id="1")
    [said] = depots.run()
    assert '{"id":"71"}' in said


@pytest.mark.parametrize("statement", ["ALTER TABLE bins DROP FOREIGN KEY belongs", ""])
def test_rows_that_changed_by_themselves_are_no_complaint(statement: str, tmp_path: Path) -> None:
    """A run would fail although the mirror is right."""
    depots = Depots(tmp_path)
    depots.fill()
    assert [] == depots.run()
    if statement:
        depots.ddl(statement)
    else:
        depots.say("DELETE", "bins", {"id": "72", "depot": "2"})
        depots.say("UPDATE", "bins", {"id": "71", "depot": None}, depot="1")
    depots.say("DELETE", "depots", {"id": "1"})
    depots.say("DELETE", "depots", {"id": "2"})
    depots.say("INSERT", "depots", {"id": "2"})
    depots.say("INSERT", "bins", {"id": "73", "depot": "2"})
    assert [] == depots.run()
