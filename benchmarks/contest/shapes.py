"""The variants of shape: statements on a large mirror, tables of very many columns."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pyarrow as pa

from benchmarks.contest import readers
from benchmarks.contest.ground import AUTO_LOOP, LOOP, PRODUCT, Ground
from benchmarks.contest.measure import say
from benchmarks.contest.scale import compared
from benchmarks.contest.sections import Section, run
from benchmarks.contest.workload import DATABASE, Table

BEGIN = 1_714_521_600_000  # milliseconds; 2024-05-01
LINE = 500  # rows of a message of a base load
PIECE = 1_000_000  # rows of a file of it
STATEMENTS = {  # name of the step -> statement
    "ADD COLUMN ... DEFAULT": "ALTER TABLE cranes ADD COLUMN site VARCHAR(20) DEFAULT 'north'",
    "RENAME COLUMN": "ALTER TABLE cranes RENAME COLUMN label TO name",
    "MODIFY INT to BIGINT": "ALTER TABLE cranes MODIFY load_kg BIGINT",
}
_TYPES = (
    '"mysqlType":{"id":"bigint","load_kg":"int","label":"varchar"},"sqlType":{"id":-5,"load_kg":4,"label":12}'
)
_WIDE = (1_000, 4_000)


# --- statements on a large mirror ---


@dataclass(slots=True)
class Cranes:
    """One table of many rows of three columns, drawn by DuckDB."""

    rows: int
    tables: list[Table] = field(default_factory=lambda: [Table("cranes")])

    def base(self) -> Iterator[str]:
        """Nothing: `files` writes it."""
        return iter(())

    def expected(self) -> dict[str, pa.Table]:
        """Nothing: `wrong` asks."""
        return {}

    def files(self, folder: Path) -> None:
        """Message files of the base load, `LINE` rows to a message."""
        for number, first in enumerate(range(0, self.rows, PIECE), 1):
            text = f"""
                SELECT '{{"data":[' || string_agg('{{"id":"' || n || '","load_kg":"' || n % 1000 || '","label":"crane ' || n || '"}}', ',' ORDER BY n)
                    || '],"database":"{DATABASE}","es":' || {BEGIN} + n // {LINE} || ',"id":' || n // {LINE} + 1 || ',"isDdl":false,{_TYPES},'
                    || '"old":null,"pkNames":["id"],"sql":"","table":"cranes","ts":' || {BEGIN} + n // {LINE} || ',"type":"INIT"}}'
                FROM (SELECT range AS n FROM range({first}, {min(first + PIECE, self.rows)})) GROUP BY n // {LINE} ORDER BY n // {LINE}"""
            lines = duckdb.execute(text).fetchall()
            file = folder / f"base-{number:03}.jsonl"
            file.write_text("".join(f"{line}\n" for (line,) in lines), "utf-8")
            os.utime(file, (time.time() - 3600,) * 2)  # it has settled

    def statement(self, number: int, sql: str) -> str:
        """The message of a statement, so many after the base load."""
        serial = self.rows // LINE + 10 + number
        return _message("cranes", serial, "ALTER", None, sql)

    def wrong(self, mirror: Path) -> str:
        """What the mirror holds otherwise than it must after all statements; nothing if it is right."""
        with duckdb.connect() as connection:
            readers.load_delta(connection)
            asked = "count(*), count(DISTINCT id), sum(load_kg), typeof(any_value(load_kg)), min(site), max(site), count(site), count(*) FILTER (name = 'crane ' || id)"
            row = connection.execute(f"SELECT {asked} FROM delta_scan(?)", [str(mirror)]).fetchone()
        total = sum(n % 1000 for n in range(self.rows % 1000)) + self.rows // 1000 * 499_500
        right = (self.rows, self.rows, total, "BIGINT", "north", "north", self.rows, self.rows)
        return "" if row == right else f"{row} in place of {right}"


def statements(folder: Path, rows: int) -> Section:
    """Statements that change a large mirror's columns, under both engines, on copies of one lake."""
    cranes = Cranes(rows)
    ground = Ground(folder, cranes, {"cranes": {}})
    say(f"statements: a base load of {rows:,} rows")
    cranes.files(ground.landing)
    base = ground.load()
    files = {
        name: ground.batch(name.split()[0], [cranes.statement(n, sql)])
        for n, (name, sql) in enumerate(STATEMENTS.items())
    }
    steps = [(name, [file]) for name, file in files.items()]
    lines = [
        f"| engine | {' | '.join(f'{name}, s | CPU-s' for name in files)} | peak GiB | result |",
        "|---|" + "---|" * (2 * len(files) + 2),
    ]
    faults = 0
    for one in (LOOP, AUTO_LOOP):
        label = f"{one.name} statements"
        taken = run(ground, one, label, [(steps, "")])
        wrong = cranes.wrong(ground.place(label) / "lake" / "mirrors" / DATABASE / "cranes")
        faults += bool(wrong)
        figures = " | ".join(f"{step.wall:.2f} | {step.cpu:.2f}" for step in taken)
        lines.append(
            f"| {one.name} | {figures} | {max(step.peak for step in taken):.2f} | {wrong or 'equal'} |"
        )
        ground.clear()
    text = (
        f"## Statements on a mirror of {rows:,} rows of three columns\n\nIts base load: {base.wall:.1f} s, {base.cpu:.1f} CPU-s, "
        f"{rows / base.wall:,.0f} rows a second. The first statement of a session meets a cold one.\n\n"
    )
    return text + "\n".join(lines), faults


# --- very many columns ---


def wide(folder: Path) -> Section:
    """One insert into tables of very many columns, under both engines: into a new table, then once more."""
    lines = [
        "| columns | engine | first insert, s | CPU-s | one more, s | CPU-s | peak GiB | result |",
        "|---|---|---|---|---|---|---|---|",
    ]
    faults = 0
    for count in _WIDE:
        names = [f"c{n}" for n in range(1, count)]
        ground = Ground(folder / str(count), Cranes(0), {"*": {}})
        (ground.folder / "start" / PRODUCT.start).mkdir()
        rows = [{"id": str(key), **{name: str(key * n) for n, name in enumerate(names)}} for key in range(2)]
        expected = {"wide": pa.table({name: [int(row[name]) for row in rows] for name in rows[0]})}
        sent = [("narrow", {"id": "1"}), ("wide", rows[0]), ("wide", rows[1])]
        files = [
            ground.batch(f"wide-{n}", [_message(table, n + 1, "INSERT", row)])
            for n, (table, row) in enumerate(sent)
        ]
        steps = [("cold", [files[0]]), ("first", [files[1]]), ("more", [files[2]])]
        for one in (LOOP, AUTO_LOOP):
            label = f"{one.name} wide"
            _, first, more = run(ground, one, label, [(steps, "")])
            verdict = compared(ground.place(label), expected)
            faults += bool(verdict.error or verdict.wrong)
            lines.append(
                f"| {count:,} | {one.name} | {first.wall:.2f} | {first.cpu:.2f} | {more.wall:.2f} | {more.cpu:.2f} | "
                f"{max(first.peak, more.peak):.2f} | {verdict} |"
            )
            ground.clear()
    return "## One insert into a table of very many columns, warm\n\n" + "\n".join(lines), faults


def _message(table: str, serial: int, kind: str, row: dict[str, str] | None, sql: str = "") -> str:
    types = None if row is None else dict.fromkeys(row, "bigint")
    codes = None if row is None else dict.fromkeys(row, -5)
    message = {
        "data": None if row is None else [row], "database": DATABASE, "es": BEGIN + serial * 1000, "id": serial, "isDdl": bool(sql),
        "mysqlType": types, "old": None, "pkNames": None if row is None else ["id"], "sql": sql, "sqlType": codes, "table": table,
        "ts": BEGIN + serial * 1000, "type": kind,
    }  # fmt: skip
    return json.dumps(message, separators=(",", ":")) + "\n"
