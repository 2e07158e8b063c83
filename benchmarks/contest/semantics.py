"""What comes out right: small histories through Spark's AUTO CDC and through the product, beside what the source holds.

    python -m benchmarks.contest.semantics FOLDER     # AUTO CDC's half, in a process of its own; prints one JSON line a case

Each history is two batches of DTS' Canal messages of one table ``(id, amount, note)``.  AUTO CDC reads them as its user would
write it by hand (`auto_cdc.changes`), ordered by ``es``, the commit's milliseconds, because that is the sequence which every
Canal dialect has.  The product reads the same files.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.contest.measure import ROOT, say
from benchmarks.contest.sections import Section

BEGIN = 1_714_521_600_000  # milliseconds; 2024-05-01
COLUMNS = {"id": "INT", "amount": "INT", "note": "STRING"}
_PIPELINE = """pipeline: semantics
lake: ./lake
engine: auto
sources:
  - {name: shop, kind: files, path: ./landing/*.jsonl, format: dts-canal, settle: 0s}
tables:
  - {match: shop.*, on_schema_change: evolve}
"""
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """One message: what happened, the rows it sends, the statement, and how many milliseconds after the beginning."""

    kind: str
    at: int
    rows: tuple[Row, ...] = ()
    old: Row | None = None
    sql: str = ""
    broken: bool = False  # cut in its middle


@dataclass(frozen=True, slots=True)
class Case:
    """A history of one table, and what the source's table holds at its end."""

    name: str
    batches: tuple[tuple[Change, ...], tuple[Change, ...]]
    truth: tuple[Row, ...]
    later: dict[str, str] = field(
        default_factory=lambda: COLUMNS
    )  # the columns that a user writes for the second batch


def row(key: int | None, amount: int | None = 1, note: str | None = "a", **more: Any) -> Row:
    """A row as its table has it."""
    return {"id": key, "amount": amount, "note": note, **more}


def insert(at: int, *rows: Row) -> Change:
    """Rows that come."""
    return Change("INSERT", at, rows)


def update(at: int, new: Row, **old: Any) -> Change:
    """A row that changes, with the columns' values before."""
    return Change("UPDATE", at, (new,), old)


def delete(at: int, gone: Row) -> Change:
    """A row that goes."""
    return Change("DELETE", at, (gone,))


def statement(at: int, sql: str) -> Change:
    """A DDL statement."""
    return Change("ALTER", at, sql=sql)


CASES = (
    Case(
        "late update in a later batch",
        ((insert(1, row(1)), update(9, row(1, 3), amount=2)), (update(5, row(1, 2), amount=1),)),
        (row(1, 3),),
    ),
    Case(
        "three updates in one millisecond, the newest first in its file",
        (
            (insert(1, row(1)),),
            (update(5, row(1, 4), amount=3), update(5, row(1, 3), amount=2), update(5, row(1, 2), amount=1)),
        ),
        (row(1, 4),),
    ),
    Case(
        "insert and delete in one millisecond, the insert delivered again",
        ((insert(5, row(1)), delete(5, row(1))), (insert(5, row(1)),)),
        (),
    ),
    Case(
        "an update that sends only what changed",
        ((insert(1, row(1, 7, "a")),), (update(5, {"id": 1, "note": "b"}, note="a"),)),
        (row(1, 7, "b"),),
    ),
    Case(
        "a key that changes",
        ((insert(1, row(1)),), (update(5, row(7), id=1),)),
        (row(7),),
    ),
    Case(
        "TRUNCATE",
        ((insert(1, row(1), row(2)),), (Change("TRUNCATE", 5, sql="TRUNCATE TABLE t"), insert(6, row(3)))),
        (row(3),),
    ),
    Case(
        "a column added with a DEFAULT",
        (
            (insert(1, row(1)),),
            (statement(5, "ALTER TABLE t ADD COLUMN more INT DEFAULT 5"), insert(6, row(2, more=6))),
        ),
        (row(1, more=5), row(2, more=6)),
        COLUMNS | {"more": "INT"},
    ),
    Case(
        "a column renamed",
        (
            (insert(1, row(1), row(2)),),
            (
                statement(5, "ALTER TABLE t RENAME COLUMN note TO remark"),
                update(6, {"id": 2, "amount": 1, "remark": "b"}, remark="a"),
            ),
        ),
        ({"id": 1, "amount": 1, "remark": "a"}, {"id": 2, "amount": 1, "remark": "b"}),
        {"id": "INT", "amount": "INT", "remark": "STRING"},
    ),
    Case(
        "a column retyped",
        (
            (insert(1, row(1)),),
            (statement(5, "ALTER TABLE t MODIFY amount BIGINT"), insert(6, row(2, 3_000_000_000))),
        ),
        (row(1), row(2, 3_000_000_000)),
        COLUMNS | {"amount": "BIGINT"},
    ),
    Case(
        "a row whose key is NULL, then good rows",
        ((insert(1, row(1)),), (insert(5, row(None, 2)), insert(6, row(3)))),
        (row(1), row(3)),
    ),
    Case(
        "a message cut in its middle, then good ones",
        ((insert(1, row(1)),), (Change("INSERT", 5, (row(2),), broken=True), insert(6, row(3)))),
        (row(1), row(3)),
    ),
)


def messages(case: Case) -> Iterator[str]:
    """The text of each batch's file.

    The serial numbers follow the source's order, which is the order of the moments; of changes in one millisecond a second
    batch holds the newest first.
    """
    changes = [change for batch in case.batches for change in batch]
    known: dict[int, int] = {}
    in_order = sorted(
        range(len(changes)), key=lambda n: (changes[n].at, -n if "newest first" in case.name else n)
    )
    for serial, number in enumerate(in_order, 1):
        repeated = next((n for n in range(number) if changes[n] == changes[number]), None)
        known[number] = serial if repeated is None else known[repeated]
    number = 0
    for batch, columns in zip(case.batches, (COLUMNS, case.later), strict=True):
        lines = []
        for change in batch:
            lines.append(_line(change, known[number], columns))
            number += 1
        yield "".join(lines)


def _line(change: Change, serial: int, columns: dict[str, str]) -> str:
    kinds = {name: {"STRING": "varchar"}.get(kind, kind.lower()) for name, kind in columns.items()}
    codes = {"varchar": 12, "int": 4, "bigint": -5}
    data = [
        {name: None if value is None else str(value) for name, value in each.items()} for each in change.rows
    ]
    text = json.dumps(
        {
            "data": data or None,
            "database": "shop",
            "es": BEGIN + change.at,
            "id": serial,
            "isDdl": bool(change.sql),
            "mysqlType": kinds if data else None,
            "old": [{name: str(value) for name, value in change.old.items()}] if change.old else None,
            "pkNames": ["id"] if data else None,
            "sql": change.sql,
            "sqlType": {name: codes[kind] for name, kind in kinds.items()} if data else None,
            "table": "t",
            "ts": BEGIN + change.at + 300,
            "type": change.kind,
        }
    )
    return f"{text[: len(text) // 2] if change.broken else text}\n"


def section(folder: Path) -> Section:
    """The table of all cases, and how many the product got wrong."""
    say("semantics: AUTO CDC")
    peers = by_auto_cdc(folder / "auto_cdc")
    lines = ["| history | the source holds | AUTO CDC, gate off | product |", "|---|---|---|---|"]
    wrong = 0
    for number, case in enumerate(CASES):
        say(f"semantics: product, {case.name}")
        ours = by_product(case, folder / f"product {number}")
        wrong += verdict(case, ours).startswith("WRONG")
        lines.append(
            f"| {case.name} | {shown(case.truth)} | {verdict(case, peers.get(case.name, 'did not run'))} | {verdict(case, ours)} |"
        )
    return "## Which histories come out right\n\n" + "\n".join(lines), wrong


Outcome = list[Row] | str
"""The table at the end, or the words of an error."""


def verdict(case: Case, outcome: Outcome) -> str:
    """Right, or what the table holds instead, or the error."""
    if isinstance(outcome, str):
        return f"stops: {outcome}"
    return "right" if _sorted(outcome) == _sorted(case.truth) else f"WRONG: {shown(outcome)}"


def _sorted(rows: Any) -> list[str]:
    return sorted(json.dumps(each, sort_keys=True) for each in rows)


def shown(rows: Any) -> str:
    """Rows in one line."""
    return (
        "; ".join("(" + ", ".join(f"{k} {json.dumps(v)}" for k, v in each.items()) + ")" for each in rows)
        or "no row"
    )


def by_product(case: Case, folder: Path) -> Outcome:
    """The mirror after both batches, or what the run said."""
    (folder / "landing").mkdir(parents=True)
    (folder / "shop.yaml").write_text(_PIPELINE, "utf-8")
    for number, text in enumerate(messages(case), 1):
        (folder / "landing" / f"{number}.jsonl").write_text(text, "utf-8")
        _ingest(folder, "run", "shop.yaml")
    asked = _ingest(folder, "sql", "shop.yaml", "SELECT * FROM shop.t", "--output", "json")
    if asked.returncode:
        return asked.stderr.strip().splitlines()[-1]
    rows: list[Row] = json.loads(asked.stdout)
    return rows


def _ingest(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "ingest", *words]
    return subprocess.run(program, cwd=folder, capture_output=True, text=True, check=False)


def by_auto_cdc(folder: Path) -> dict[str, Outcome]:
    """Each case's table after both batches, in a process of its own."""
    folder.mkdir(parents=True)
    with (folder / "log.txt").open("w") as log:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.contest.semantics", str(folder)],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True, check=False,
        )  # fmt: skip
    return {line["case"]: line["outcome"] for line in map(json.loads, done.stdout.splitlines())}


def main() -> None:
    """AUTO CDC's half: every case in a database of its own, so that what stops one does not stop the next."""
    from benchmarks.contest import auto_cdc
    from benchmarks.contest.ground import AUTO_CDC

    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # Spark tells its progress on standard output
    spark = auto_cdc.session(AUTO_CDC.options["settings"])
    for number, case in enumerate(CASES):
        place = Path(sys.argv[1]).resolve() / str(number)
        (place / "landing").mkdir(parents=True)
        auto_cdc.begin(spark, place)
        outcome: Outcome = "never updated"
        for batch, (text, columns) in enumerate(zip(messages(case), (COLUMNS, case.later), strict=True)):
            (place / "landing" / f"{batch}.jsonl").write_text(text, "utf-8")
            try:
                auto_cdc.update(spark, place, {"t": columns}, sequence="es")
                outcome = auto_cdc.rows(spark, "t")
            except Exception as error:
                classes = re.findall(r"\[([A-Z_.]+)\]", str(error))  # Spark's error classes, the cause last
                outcome = f"{type(error).__name__} {classes[-1] if classes else str(error)[:80]}"
        print(json.dumps({"case": case.name, "outcome": outcome}), file=channel, flush=True)


if __name__ == "__main__":
    main()
