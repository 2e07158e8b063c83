"""Lakes that the release 0.1.0 writes, and what their mirrors hold after each slice of the feeds.

    git worktree add /tmp/old 4414e396
    cd /tmp/old && PYTHONPATH=/tmp/old PYTHON -B REPOSITORY/tests/lake/older/make.py

PYTHON is this repository's ``.venv/bin/python``. The command writes ``0.1.0.tar.xz`` next to this file: for each of
`LAKES` and `BETWEEN` a folder with a pipeline file, its feeds and its lake. Two slices are folded in all of them; the third one is
finished in one lake, and killed at another point in each of the others.

The older version knows a feed by its path, so the path must be the same wherever the lakes are unpacked: it names the
folder that a process works in.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ARCHIVE = HERE / "0.1.0.tar.xz"
WHOLE = "whole"
BETWEEN, FOLDED = (
    "between_mirrors",
    ("depot/kegs", "yard/carts"),
)  # each mirror goes on by itself: only these have
LAKES = {  # where the third batch was killed: layer, call, subject
    WHOLE: None,
    "after_bronze": ("bronze", "append", "bronze"),
    "after_changes": ("silver", "append", "changes"),
    "after_silver": ("silver", "append", "books"),
}
LAST_KILLED, FINISHED = "after_silver", "finished"  # the same lake before and after the mirrors
STAGES = ("bronze", "silver", "gold")
STARTED = 1_700_000_000  # seconds: the sources' clock, and the feeds' times
FROZEN, UNKEYED = "depot.vats", "yard.lost"
TEXT = """\
pipeline: depot
lake: ./lake
sources:
  - {name: strong, kind: files, path: /proc/self/cwd/strong.jsonl, format: dts-canal, settle: 1s}
  - {name: weak, kind: files, path: /proc/self/cwd/weak.jsonl, format: canal, settle: 1s}
  - {name: partial, kind: files, path: /proc/self/cwd/partial.jsonl, format: maxwell, settle: 1s}
tables:
  - {match: depot.bins, history: true}
  - {match: depot.crates, on_schema_change: evolve}
  - {match: depot.vats, on_schema_change: freeze}
  - {match: yard.log, no_key: full_row}
  - {match: yard.tail, no_key: append}
  - {match: port.boats, columns: {id: int64, name: string, crew: int32}}
"""
Row = dict[str, Any]
WORDS = {"id": "bigint", "word": "varchar"}
KINDS = {
    "id": "bigint unsigned", "d": "decimal(38,10)", "f": "double", "b": "blob", "day": "date", "at": "datetime(6)",
    "zoned": "timestamp(3)", "t": "time", "j": "json", "s": "varchar(20)", "small": "tinyint",
}  # fmt: skip


# --- the feeds ---


def _canal(kind: str, table: str, serial: int, row: Row, old: Row | None = None, **given: Any) -> Row:
    moment = (STARTED + serial) * 1000
    message: Row = {
        "data": [row], "database": "depot", "es": moment, "id": serial, "isDdl": False, "mysqlType": WORDS,
        "old": [old] if old else None, "pkNames": ["id"], "sql": "", "table": table, "ts": moment, "type": kind,
    }  # fmt: skip
    return message | given


def _ddl(table: str, serial: int, sql: str) -> Row:
    return _canal("ALTER", table, serial, {}, data=None, isDdl=True, sql=sql, pkNames=None)


def _strong(n: int) -> list[Row]:
    """Slice ``n`` of a source with an order of its own."""
    at = 1000 * n

    def word(
        table: str, serial: int, key: int, text: str, kind: str = "INSERT", old: Row | None = None
    ) -> Row:
        return _canal(kind, table, at + serial, {"id": str(key), "word": text}, old)

    found = [
        word("bins", 1, n, f"new {n}"),
        word("bins", 2, -n - 1, "soon gone"),
        word("bins", 3, -n - 1, "soon gone", "DELETE"),
        word("tubs", 30, n, f"new {n}"),
        word("tubs", 40, -n - 1, "later"),
        _canal("TRUNCATE", "drums", at + 50, {}, data=None, isDdl=True, sql="TRUNCATE TABLE drums", pkNames=None),
        word("drums", 51, n, "after it"),
        word("kegs", 60, n, f"new {n}"),
        word("pens", 70, n, f"new {n}"),
        _canal(
            "INSERT", "casks", at + 80, {"id": str(n), "litres": "many"},
            mysqlType={"id": "bigint", "litres": "int"},
        ),
        _canal("INSERT", "kinds", at + 90, _kinds(n), mysqlType=KINDS),
    ]  # fmt: skip
    if n:
        found.append(word("bins", 4, n - 1, f"old {n}", "UPDATE", {"word": "?"}))
        found.append(word("tubs", 35 - 1000, 0, f"late {n}", "UPDATE", {"word": "?"}))
        found.append(word("kegs", 61, 1000 + n - 1, f"moved {n}", "UPDATE", {"id": str(n - 1)}))
        found.append(
            _canal("UPDATE", "kinds", at + 91, _kinds(n - 1, f"touched {n}"), {"s": "?"}, mysqlType=KINDS)
        )
    if n == 1:
        found.append(_ddl("vats", at + 100, "ALTER TABLE vats ADD COLUMN depth int"))
    found.append(word("vats", 101, n, f"new {n}"))
    return [*found, *_crates(n)]


def _crates(n: int) -> list[Row]:
    """Column ``cN`` comes with slice N, is widened by the next one and dropped by the one after that."""
    steps = [f"ADD COLUMN c{n} int"]
    steps += [f"MODIFY COLUMN c{n - 1} bigint"] if n > 0 else []
    steps += [f"DROP COLUMN c{n - 2}"] if n > 1 else []
    serial = 1000 * n + 10
    row = {"id": str(n), f"c{n}": "1"} | ({f"c{n - 1}": "2"} if n else {})
    types = {"id": "bigint", f"c{n}": "int"} | ({f"c{n - 1}": "bigint"} if n else {})
    statements = [_ddl("crates", serial + i, f"ALTER TABLE crates {one}") for i, one in enumerate(steps)]
    return [*statements, _canal("INSERT", "crates", serial + 5, row, mysqlType=types)]


def _kinds(n: int, text: str = "plain") -> Row:
    """A row of every type, at one end of its range in every other slice."""
    low = n % 2
    return {
        "id": str(n if low else 2**64 - 1 - n),
        "d": f"{'-' if low else ''}{'9' * 28}.{'9' * 10}",
        "f": "-1.7976931348623157E308" if low else "4.9E-324",
        "b": "\u00ff\u0000a",
        "day": "1000-01-01" if low else "9999-12-31",
        "at": "1000-01-01 00:00:00.000001" if low else "9999-12-31 23:59:59.999999",
        "zoned": "1970-01-01 00:00:01.001" if low else "2038-01-19 03:14:07.999",
        "t": "-838:59:59" if low else "838:59:59",
        "j": json.dumps({"of": n}),
        "s": text,
        "small": "-128" if low else "127",
    }


def _weak(n: int) -> list[Row]:
    """Slice ``n`` of a source whose messages are ordered by their arrival, some of tables without keys."""

    def one(kind: str, table: str, row: Row, old: Row | None = None, keys: Any = None) -> Row:
        return _canal(kind, table, n + 1, row, old, database="yard", pkNames=keys)

    def cart(kind: str, key: int, text: str) -> Row:
        return one(
            kind, "carts", {"id": str(key), "word": text}, {"word": "?"} if kind == "UPDATE" else None, ["id"]
        )

    found = [cart("INSERT", n, f"new {n}")]
    found += [cart("UPDATE", n - 1, f"old {n}")] if n > 0 else []
    found += [cart("DELETE", n - 2, f"old {n - 1}")] if n > 1 else []
    line = {"id": str(n), "word": "twice"}
    found += [one("INSERT", "log", line), one("INSERT", "log", line)]
    if n:
        found.append(one("DELETE", "log", {"id": str(n - 1), "word": "twice"}))
        found.append(one("UPDATE", "tail", {"id": str(n - 1), "word": "not applied"}, {"word": "?"}))
    return [*found, one("INSERT", "tail", line), one("INSERT", "lost", line)]


def _partial(n: int) -> list[Row]:
    """Slice ``n`` of a source whose updates carry only what has changed."""

    def one(kind: str, row: Row, old: Row | None = None) -> Row:
        more = {"old": old} if old else {}
        return {
            "database": "port", "table": "boats", "type": kind, "ts": STARTED + n, "xid": n + 1, "commit": True,
            "primary_key_columns": ["id"], "data": row, **more,
        }  # fmt: skip

    found = [one("insert", {"id": n, "name": f"boat {n}", "crew": 1})]
    return [*found, one("update", {"id": n - 1, "crew": 7}, {"crew": 1})] if n else found


def grow(folder: Path, n: int) -> None:
    """Append slice ``n`` to each feed, with one broken message in each."""
    for i, (name, rows) in enumerate(
        {"strong": _strong(n), "weak": _weak(n), "partial": _partial(n)}.items()
    ):
        feed = folder / f"{name}.jsonl"
        with feed.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            file.write('{"broken": \n')
        os.utime(feed, (STARTED + 10 * n + i,) * 2)


def expected(slices: int) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of each mirror after so many slices, in order, by its path.

    The mirror that is paused and `FROZEN` hold what they did when they were stopped; `UNKEYED` has no mirror.
    """
    last, numbers = slices - 1, range(slices)
    old = [(n, f"new {n}" if n == last else f"old {n + 1}") for n in numbers]
    tubs = [(n, f"new {n}" if n else f"late {last}") for n in numbers] + [(-n - 1, "later") for n in numbers]
    return {
        "depot/bins": old,
        "depot/tubs": sorted(tubs),
        "depot/drums": [(last, "after it")],
        "depot/kegs": sorted([(last, f"new {last}")] + [(1000 + n, f"moved {n + 1}") for n in range(last)]),
        "depot/pens": [(0, "new 0")],
        "depot/vats": [(0, "new 0")],
        "depot/casks": [(n, None) for n in numbers],
        "depot/crates": [(n, {last - 1: 1, last: 2}.get(n), 1 if n == last else None) for n in numbers],
        "yard/carts": [one for one in old if one[0] > last - 2],
        "yard/log": sorted((n, "twice") for n in numbers for _ in range(2 if n == last else 1)),
        "yard/tail": [(n, "twice") for n in numbers],
        "port/boats": [(n, f"boat {n}", 1 if n == last else 7) for n in numbers],
    }


# --- the lakes, by the older version ---


def main() -> None:
    """Write the lakes, and the archive."""
    load, run = _older("config").load, _older("run").run
    merge, session, pauses = _older("gold.apply_merge"), _older("spark.session"), _older("lake.pauses")
    lake_of, known = _older("lake.lake").Lake, _older("lake.mirrors").known
    crashing = importlib.import_module("tests.scenarios.crashing")  # the older version's own

    folder = Path(tempfile.mkdtemp(prefix="older-"))
    work, base = folder / "work", folder / "base"
    work.mkdir()
    os.chdir(work)  # before Spark starts: its tasks read the feeds
    file = work / "depot.yaml"
    spark = session.session("older", master="local[2]")
    try:
        file.write_text(f"{TEXT}apply: merge\n", "utf-8")
        grow(work, 0)
        run(spark, load(file), STAGES)
        lake = lake_of(spark, load(file))
        pauses.decide(lake, known(lake)["mirrors/depot/pens"], pauses.PAUSE, "under repair")
        _older("lake.maintenance").maintain(lake, ["changes", "mirrors/depot/tubs"])
        grow(work, 1)
        merge.REWRITTEN = 0  # with deletion vectors, which mirrors so small would not get
        run(spark, load(file), STAGES)
        grow(work, 2)
        _move(work, base)
        for name, point in LAKES.items():
            shutil.copytree(base, work, dirs_exist_ok=True)
            if point is None:
                run(spark, load(file), STAGES)
            else:
                with crashing.killed_at(crashing.Point(*point, crashing.AFTER), str(work / "lake")):
                    run(spark, load(file), STAGES)
            _move(work, folder / name)
        shutil.copytree(folder / LAST_KILLED, work, dirs_exist_ok=True)
        run(spark, load(file), STAGES)
        _move(work, folder / FINISHED)
    finally:
        session.stop(spark)
    pack(folder)
    shutil.rmtree(folder)


def pack(folder: Path) -> None:
    """Make the lake that was killed between two mirrors of two others, and write the archive; who tests says how to fold."""
    shutil.copytree(folder / LAST_KILLED, folder / BETWEEN)
    for mirror in FOLDED:
        there = Path("lake", "mirrors", mirror)
        shutil.rmtree(folder / BETWEEN / there)
        shutil.copytree(folder / FINISHED / there, folder / BETWEEN / there)
    with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
        for name in (*LAKES, BETWEEN):
            (folder / name / "depot.yaml").write_text(TEXT, "utf-8")
            archive.add(folder / name, name, filter=_plain)


def _older(module: str) -> Any:
    """A module of the older version, under the name that it had there."""
    return importlib.import_module(f"ingest.{module}")


def _move(work: Path, to: Path) -> None:
    """Move what is in the folder, which stays: processes work in it."""
    to.mkdir()
    for one in work.iterdir():
        if one.name not in ("spark-warehouse", "metastore_db", "derby.log"):
            shutil.move(one, to / one.name)


def _plain(one: tarfile.TarInfo) -> tarfile.TarInfo:
    one.uid = one.gid = 0
    one.uname = one.gname = ""
    return one


if __name__ == "__main__":
    main()
