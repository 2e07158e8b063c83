"""A small feed of Canal messages that grows slice by slice, and questions to the lake made of it."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from ingest.config import Pipeline, load
from ingest.gold.apply import apply_merge
from ingest.operate.spark_query import query
from ingest.run import run
from ingest.tables.lake import Lake
from ingest.tables.schemas import ALL

ROOT = Path(__file__).resolve().parent.parent
FORMAT = "dts-canal"
PLAIN = "drs-json"  # the example that is run with plain tables
TYPES = {"id": "bigint", "word": "varchar"}
Rows = list[dict[str, Any]]
ENGINE = "engine: auto\n"  # of tests that are about something else


def change(kind: str, table: str, serial: int, row: dict[str, str | None], **given: Any) -> str:
    """One row change as a line; an update says nothing of the row before unless ``old`` is given."""
    message = {
        "data": [row], "database": "depot", "es": 1_700_000_000_000 + serial, "id": serial, "isDdl": False,
        "mysqlType": TYPES, "old": None, "pkNames": ["id"], "sql": "",
        "table": table, "ts": 1_700_000_000_000 + serial, "type": kind,
    }  # fmt: skip
    return json.dumps(message | given) + "\n"


def statement(table: str, serial: int, sql: str) -> str:
    """One DDL statement as a line."""
    return change("ALTER", table, serial, {}, data=None, isDdl=True, sql=sql, pkNames=None)


@cache
def duckdb_with_delta() -> duckdb.DuckDBPyConnection:
    """DuckDB with its own reader of Delta, which takes a third of a second to load."""
    from benchmarks.contest.readers import load_delta  # with all readers of the contest, which few tests need

    connection = duckdb.connect()
    connection.execute("SET timezone = 'UTC'")
    load_delta(connection)
    return connection


def write_by_spark(patch: pytest.MonkeyPatch) -> None:
    """Have Spark write all of a lake's own tables, as it does where Arrow reaches no lake."""
    patch.setattr(Lake, "writes", lambda _lake, _schema: False)


def touch(path: Path, age: float = 3600) -> None:
    """Make a file look as if it had been still for an hour, a little later than before."""
    moment = time.time() - age
    os.utime(path, (moment, moment))


class Depot:
    """A pipeline over one file that grows: a table of bins, and a new table with every slice."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.feed = folder / "bins-1.jsonl"
        self.file = folder / "depot.yaml"
        self.file.write_text(
            f"pipeline: depot\nlake: ./lake\n{'' if 'engine:' in more else ENGINE}sources:\n"
            f"  - {{name: bins, kind: files, path: ./bins-*.jsonl, format: {FORMAT}, settle: 1s}}\n{more}",
            "utf-8",
        )
        self.slices = 0
        self.lines = 0

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline file as it is now."""
        return load(self.file)

    def grow(self, *, broken: bool = True) -> None:
        """Append a slice: insert, update, delete, a statement, a broken message, and a table's first row."""
        n, serial = self.slices, 100 * self.slices
        lines = [
            change("INSERT", "bins", serial + 1, {"id": str(n), "word": f"new {n}"}),
            change("INSERT", "bins", serial + 2, {"id": str(-n - 1), "word": "soon gone"}),
            change("DELETE", "bins", serial + 3, {"id": str(-n - 1), "word": "soon gone"}),
            change("INSERT", f"shelf{n}", serial + 4, {"id": "1", "word": f"of {n}"}),
            statement("bins", serial + 5, "ALTER TABLE bins COMMENT 'counted'"),
        ]
        if broken:
            lines.append('{"broken": \n')
        if n:
            row, was = {"id": str(n - 1), "word": f"old {n}"}, {"word": f"new {n - 1}"}
            lines.append(change("UPDATE", "bins", serial + 6, row, old=[was]))
        with self.feed.open("a", encoding="utf-8") as file:
            file.writelines(lines)
        touch(self.feed, 3600 - n)
        self.slices += 1
        self.lines += len(lines)

    def expected(self) -> dict[str, list[tuple[int, str]]]:
        """Every mirror's rows."""
        last = self.slices - 1
        bins = [(n, f"new {n}" if n == last else f"old {n + 1}") for n in range(self.slices)]
        return {"bins": bins} | {f"shelf{n}": [(1, f"of {n}")] for n in range(self.slices)}

    def found(self, spark: SparkSession) -> dict[str, list[tuple[int, str]]]:
        """Every mirror's rows as they are."""
        lake = Lake(spark, self.pipeline)
        return {
            name: sorted((row["id"], row["word"]) for row in lake.read(f"mirrors/depot/{name}").collect())
            for name in self.expected()
        }


def rows(lake: Lake, text: str) -> Rows:
    """The rows of a query, as the command would give them."""
    names, values, _ = query(lake, text)
    return [dict(zip(names, row, strict=True)) for row in values]


def doubled(lake: Lake) -> dict[str, int]:
    """Surplus rows by product table: those that it holds more than once; zeros if all is right."""
    places = {
        "bronze": "kind, source, topic, offset",
        "changes": "kind, batch, source, topic, offset, row, op, table, payload",
        "ddl": "source, topic, offset, row",
        "rejects": "source, topic, offset, kind, key, column",
        "books": "batch, source, topic, partition, database, schema, table, replayed_in",
    }
    return {
        name: _sums(lake, name, f"count(*) - count(DISTINCT row({_quoted(place)})) AS n")["n"]
        for name, place in places.items()
        if lake.exists(name)
    }


def counted(lake: Lake) -> Counter[str]:
    """Messages in bronze, and where the books say they went."""
    sums = "messages, change_messages, ddl, control, routed_out, rejected".split(", ")
    sums_of = Counter(_sums(lake, "books", *[f"sum({name}) AS {name}" for name in sums]))
    sums_of["bronze"] = _sums(lake, "bronze", "count_if(kind = 'message') AS n")["n"]
    sums_of["rejects"] = _sums(lake, "rejects", "count_if(kind = 'message') AS n")["n"]
    sums_of["statements"] = _sums(lake, "ddl", "count(*) AS n")["n"]
    return sums_of


def _quoted(names: str) -> str:
    return ", ".join(f'"{name}"' for name in names.split(", "))


def _sums(lake: Lake, name: str, *sums: str) -> dict[str, int]:
    """Sums over one product table, without Spark where it can be read so: a test asks for many."""
    [row] = lake.ask(f"SELECT {', '.join(sums)} FROM {{{name}}}")
    return row


def versions(lake: Lake) -> dict[str, int]:
    """Every table's Delta version."""
    names = [schema.name for schema in ALL]
    folder = Path(lake.pipeline.lake)
    names += [str(log.parent.relative_to(folder)) for log in folder.glob("mirrors/*/*/_delta_log")]
    return {name: lake.snapshot(name).version for name in names}


def example(name: str, folder: Path, more: str = ENGINE) -> Path:
    """A copy of one example pipeline with its samples, and more keys; gives the pipeline file."""
    shutil.copytree(ROOT / "samples" / name, folder / "samples" / name)
    (folder / "conf").mkdir()
    text = (ROOT / "conf" / f"{name}.yaml").read_text("utf-8")
    file = folder / "conf" / f"{name}.yaml"
    file.write_text(more + text, "utf-8")
    for sample in folder.glob("samples/**/*.jsonl"):
        touch(sample)
    return file


class Example:
    """One example pipeline in a folder of its own, run to its end in one or two batches; the last one may be applied by
    MERGE, with deletion vectors in mirrors that have rows already.
    """

    def __init__(
        self, spark: SparkSession, folder: Path, name: str, *, plain: bool, batches: int, by_merge: bool
    ) -> None:
        self.file = example(name, folder, ENGINE + ("plain_tables: true\n" if plain else ""))
        self.plain = plain
        later = sorted(folder.glob("samples/**/*-2.jsonl"))
        if batches == 2:
            for sample in later:
                sample.rename(sample.with_suffix(".later"))
            run(spark, load(self.file))
            for sample in later:
                sample.with_suffix(".later").rename(sample)
        with pytest.MonkeyPatch.context() as patch:
            if by_merge:
                patch.setattr(apply_merge, "REWRITTEN", 0)
            last = replace(load(self.file), apply="merge" if by_merge else "auto")
            self.result = run(spark, last)
        self.lake = Lake(spark, load(self.file))

    def mirror(self, name: str) -> str:
        """The path of one of the shop's mirrors."""
        return self.lake.path(f"mirrors/shop/{name}")


def shop(lake: Lake) -> dict[str, list[dict[str, str | None]]]:
    """The shop's three mirrors, every cell as the expected files write it."""
    keys = {"customers": "id", "orders": "id", "order_lines": "order_id, line_no"}
    return {
        name: [
            {column: None if cell is None else str(cell) for column, cell in row.items()}
            for row in rows(lake, f"SELECT * FROM shop.{name} ORDER BY {key}")
        ]
        for name, key in keys.items()
    }


def expected_shop() -> dict[str, list[dict[str, str | None]]]:
    """The shop's three mirrors as they must end."""
    names: Iterable[str] = ("customers", "orders", "order_lines")
    return {
        name: json.loads((ROOT / "samples/expected" / f"{name}.json").read_text("utf-8"))["rows"]
        for name in names
    }
