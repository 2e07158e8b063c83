"""A fleet of pipelines, each with a source in a dialect of its own, on a clock that is moved day by day.

The truth is kept here as plain rows, by what the source is told to do; nothing of the product is asked for it.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from ingest.change import Image, Message, TableId
from ingest.cli.app import app
from ingest.config import load
from ingest.store.names import mirror_path
from ingest.tables.tables import LakeReader
from tests.formats.one_history.history import Column, Event, History
from tests.formats.one_history.test_one_history import DIALECTS

DATABASE = "depot"
SHAPE = {
    "id": Column("int64", "bigint"),
    "word": Column("string", "varchar(40)"),
    "fee": Column("decimal(10,2)", "decimal(10,2)"),
    "packed_at": Column("datetime", "datetime"),
}
ADDED = Column("string", "varchar(30)")
Rows = dict[str, Image]


# --- the clock --------------------------------------------------------------------------------------


class Clock:
    """The product's idea of now, moved."""

    def __init__(self, patch: pytest.MonkeyPatch, start: dt.datetime) -> None:
        self.ahead = start - dt.datetime.now(dt.UTC)
        clock = self

        class OfAny(type):
            def __instancecheck__(cls, value: object) -> bool:
                return isinstance(value, dt.datetime)

        class Moved(dt.datetime, metaclass=OfAny):
            @classmethod
            def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:  # type: ignore[override]
                return dt.datetime.now(tz) + clock.ahead

        moved = SimpleNamespace(**{**vars(dt), "datetime": Moved})
        for name in (
            "ingest.quality.counts", "ingest.quality.ledgers", "ingest.quality.report_data", "ingest.quality.report_model",
            "ingest.tables.lake", "ingest.tables.lineage", "ingest.inspect.status", "ingest.inspect.due", "ingest.inspect.problems",
            "ingest.operate.alerts",
        ):  # fmt: skip
            __import__(name)
            patch.setattr(sys.modules[name], "dt", moved)

    def now(self) -> dt.datetime:
        """The moved time."""
        return dt.datetime.now(dt.UTC) + self.ahead

    def next_day(self) -> None:
        """A day later."""
        self.ahead += dt.timedelta(days=1)


# --- one pipeline -----------------------------------------------------------------------------------


@dataclass
class Plant:
    """One pipeline, its source, and the truth.

    Args:
        dialect: a name of `DIALECTS`.
        folder: where the pipeline file, the landing folder and the lake are.
        clock: the fleet's clock.
        options: options of the source.
        columns: True if the pipeline file must declare keys and types.
    """

    dialect: str
    folder: Path
    clock: Clock
    options: Mapping[str, str] = field(default_factory=dict)
    columns: bool = False
    tables: dict[str, Rows] = field(default_factory=dict)
    shapes: dict[str, dict[str, Column]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    number: int = 0
    seconds: int = 0
    files: int = 0
    quiet: set[str] = field(default_factory=set)  # tables that nothing happens to

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return self.dialect.replace(" ", "_")

    @property
    def file(self) -> Path:
        """The pipeline file."""
        return self.folder / f"{self.name}.yaml"

    def begin(self, more: str = "") -> None:
        """Write the pipeline file; ``more`` are rules that come before that of all tables."""
        (self.folder / "land").mkdir(parents=True)
        rule: dict[str, Any] = {"match": "*"}
        if self.columns:
            rule |= {
                "keys": ["id"],
                "columns": {name: column.logical for name, column in SHAPE.items()} | {"desk": "string"},
            }
        source = {
            "name": "feed", "kind": "files", "path": "./land/*.jsonl", "format": DIALECTS[self.dialect].format,
            "settle": "1s", "options": dict(self.options),
        }  # fmt: skip
        self.file.write_text(
            f"pipeline: {self.name}\nlake: ./lake\nengine: auto\nsources:\n  - {json.dumps(source)}\n"
            f"tables:\n{more}  - {json.dumps(rule)}\n"
            'quality:\n  - {table: "*", freshness: 60h}\n',
            "utf-8",
        )

    def rewrite(self, old: str, new: str) -> None:
        """Change the pipeline file."""
        text = self.file.read_text("utf-8")
        assert old in text, (old, text)
        self.file.write_text(text.replace(old, new), "utf-8")

    # --- what the source does ---

    def emit(
        self, kind: str, table: str, before: Image | None, after: Image | None, sql: str | None = None
    ) -> None:
        """An event of the source's log; each has a second of its own."""
        self.number += 1
        self.seconds += 1
        moment = self.clock.now().replace(hour=6, minute=0, second=0, microsecond=0, tzinfo=dt.UTC)
        milliseconds = int(moment.timestamp() * 1000) + self.seconds * 1000
        shape = self.shapes.setdefault(table, dict(SHAPE))
        self.events.append(
            Event(
                self.number, milliseconds, 1, kind, before, after, tuple(shape), sql, shape=shape, keys=("id",), database=DATABASE,
                table=table,
            )
        )  # fmt: skip

    def ordinary(self, day: int) -> None:
        """What happens to the tables every day: rows come, change and go."""
        first = day * 10 + 1
        for table in [name for name in self.tables if name not in self.quiet]:
            self.insert(table, first, first + 1, first + 2)
            self.update(table, first + 2, word="changed")
            self.delete(table, first + 1)

    def row(self, table: str, number: int, word: str) -> Image:
        """A new row."""
        image: Image = {
            "id": str(number), "word": word, "fee": f"{number}.50", "packed_at": f"2026-03-01 10:00:{number % 60:02d}",
        }  # fmt: skip
        return image | ({"desk": "7"} if "desk" in self.shapes.get(table, {}) else {})

    def insert(self, table: str, *numbers: int, word: str = "new") -> None:
        """New rows."""
        for number in numbers:
            row = self.row(table, number, word)
            self.tables.setdefault(table, {})[str(number)] = row
            self.emit("insert", table, None, row)

    def update(self, table: str, number: int, **cells: str | None) -> None:
        """A row changes."""
        before = self.tables[table][str(number)]
        after = {**before, **cells}
        self.tables[table][str(number)] = after
        self.emit("update", table, before, after)

    def delete(self, table: str, number: int) -> None:
        """A row goes."""
        self.emit("delete", table, self.tables[table].pop(str(number)), None)

    def load(self, table: str, *, kind: str = "read") -> None:
        """A full load of the table."""
        for row in self.tables[table].values():
            self.emit(kind, table, None, row)
            if "debezium" in self.dialect and kind == "read":  # a load while changes are captured
                self.events[-1] = self.events[-1]._replace(again=True)

    def alter(self, table: str, name: str) -> None:
        """A column more: NULL in the rows that are there."""
        self.emit("alter", table, None, None, f"ALTER TABLE {table} ADD COLUMN {name} varchar(30)")
        self.shapes[table] = self.shapes[table] | {name: ADDED}
        self.tables[table] = {key: row | {name: None} for key, row in self.tables[table].items()}

    # --- what arrives ---

    def taken(self) -> list[Message]:
        """The messages of what the source did since the last time."""
        events, self.events = self.events, []
        return [
            message
            for message in DIALECTS[self.dialect].write(History(0, events))
            if message.value is not None
        ]

    def land(self, *lines: bytes) -> Path:
        """Let a file arrive."""
        self.files += 1
        path = self.folder / "land" / f"part-{self.files}.jsonl"
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        settled(path, self.files)
        return path

    def deliver(self) -> Path | None:
        """Let a file with all that the source did arrive."""
        lines = [message.value or b"" for message in self.taken()]
        return self.land(*lines) if lines else None

    # --- what is there ---

    def status(self) -> dict[str, Any]:
        """What `ingest status` says."""
        code, out = typed(f"ingest status {shlex.quote(str(self.file))} --output json")
        assert code in (0, 1), out
        said: dict[str, Any] = json.loads(out)
        assert code == (1 if said["problems"] else 0), (code, said["problems"])
        return said

    def problems(self) -> list[dict[str, Any]]:
        """The open problems that nobody has acknowledged."""
        return [problem for problem in self.status()["causes"] if not problem["acknowledged"]]

    def differences(self) -> set[str]:
        """The rows whose cells differ from the truth, as ``table/key``."""
        lake, differing = LakeReader(load(self.file)), set()
        for table, rows in self.tables.items():
            path = mirror_path(TableId(DATABASE, None, table))
            there = {} if not lake.exists(path) else {
                str(row["id"]): {name: _text(cell) for name, cell in row.items()}
                for row in lake.ask_mirror(path, "SELECT * FROM {mirror}")
            }  # fmt: skip
            for key in rows.keys() | there.keys():
                if rows.get(key) != there.get(key):
                    differing.add(f"{table}/{key}")
        return differing


def settled(path: Path, number: int) -> None:
    """Make a file look as if it had been still for a while, later than those with smaller numbers."""
    moment = time.time() - 36_000 + number
    os.utime(path, (moment, moment))


def typed(line: str) -> tuple[int, str]:
    """The exit code and the output of a command as it is shown."""
    words = shlex.split(line.partition(" (")[0])
    assert words[0] == "ingest", line
    done = CliRunner().invoke(app, words[1:])
    return done.exit_code, done.stdout if "json" in words else done.output


def _text(cell: Any) -> str | None:
    if cell is None:
        return None
    return f"{cell:f}" if isinstance(cell, Decimal) else str(cell)
