"""Mirrors merged by Arrow: the same tables as Spark's, for every reader, whichever way a batch goes."""

from __future__ import annotations

import base64
import datetime as dt
import json
import operator
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pytest

from benchmarks.contest.readers import load_delta
from ingest.config.model import TableRule
from ingest.gold.apply import file_commits
from ingest.gold.plan.results import MirrorCommit
from tests.gold.depot import Depot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

TYPES = {
    "id": "bigint", "small": "tinyint", "exact": "decimal(38,10)", "near": "double", "single": "float", "word": "varchar(99)",
    "day": "date", "moment": "datetime(6)", "instant": "timestamp(6)", "raw": "varbinary(9)",
}  # fmt: skip
ENDS = [
    {
        "id": "-9223372036854775808", "small": "-128", "exact": "-9999999999999999999999999999.9999999999", "near": "-1.7976931348623157E308",
        "single": "-3.4028235E38", "word": "", "day": "0001-01-01", "moment": "0001-01-01 00:00:00", "instant": "0001-01-01 00:00:00", "raw": "",
    },
    {
        "id": "9223372036854775807", "small": "127", "exact": "9999999999999999999999999999.9999999999", "near": "1.7976931348623157E308",
        "single": "3.4028235E38", "word": "\U0010ffff" * 40, "day": "9999-12-31", "moment": "9999-12-31 23:59:59.999999",
        "instant": "9999-12-31 23:59:59.999999", "raw": "//8=",
    },
]  # fmt: skip
NOT_A_NUMBER = 1
RANGES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "id": ("BIGINT", int),
    "small": ("TINYINT", int),
    "exact": ("DECIMAL(38,10)", Decimal),
    "near": ("DOUBLE", float),
    "single": ("FLOAT", float),
    "word": ("", str),
    "day": ("DATE", dt.date.fromisoformat),
    "moment": ("TIMESTAMP", dt.datetime.fromisoformat),
    "raw": ("BINARY", base64.b64decode),
}
"""Columns whose least and greatest values are asked for, with their types in SQL and in Python."""
BUDGET, VECTORS = 4 << 20, 1  # bytes: any mirror is rewritten, or none


def literal(engine: str, column: str, text: str) -> str:
    """A value as an engine's SQL writes it; only some read any time from a text."""
    kind, value = RANGES[column]
    if kind == "BINARY":
        digits = value(text).hex()
        return f"unhex('{digits}')" if engine == "duckdb" else f"X'{digits}'"
    if kind == "TIMESTAMP" and engine == "delta-rs":
        return f"arrow_cast('{text}', 'Timestamp(Microsecond, None)')"
    if kind == "TIMESTAMP" and engine == "spark":
        kind = "TIMESTAMP_NTZ"
    return f"CAST('{text}' AS {kind})" if kind else f"'{text}'"


def engines(spark: SparkSession, path: str) -> dict[str, Callable[[str, str, str], list[int]]]:
    """By engine, the identifiers of the rows whose column compares with a text's value so."""
    spark.read.format("delta").load(path).createOrReplaceTempView("ends")
    duck = duckdb.connect()
    duck.execute("SET timezone = 'UTC'")
    load_delta(duck)
    rust = deltalake.QueryBuilder().register("ends", deltalake.DeltaTable(path))

    def by_sql(engine: str, ask: Callable[[str], Iterable[Any]]) -> Callable[[str, str, str], list[int]]:
        def found(column: str, sign: str, text: str) -> list[int]:
            return sorted(ask(f"{column} {sign} {literal(engine, column, text)}"))

        return found

    def by_polars(column: str, sign: str, text: str) -> list[int]:
        compared = {"<=": operator.le, ">=": operator.ge}[sign](pl.col(column), RANGES[column][1](text))
        return sorted(pl.scan_delta(path).filter(compared).select("id").collect()["id"].to_list())

    return {
        "spark": by_sql("spark", lambda where: [row[0] for row in spark.sql(f"SELECT id FROM ends WHERE {where}").collect()]),
        "duckdb": by_sql("duckdb", lambda where: [row[0] for row in duck.sql(f"SELECT id FROM delta_scan('{path}') WHERE {where}").fetchall()]),
        "delta-rs": by_sql("delta-rs", lambda where: pa.table(rust.execute(f"SELECT id FROM ends WHERE {where}").read_all())["id"].to_pylist()),
        "polars": by_polars,
    }  # fmt: skip


def depot_of(spark: SparkSession, folder: Path, **given: Any) -> Depot:
    """A table of which nothing was said yet."""
    from ingest.run import Warm

    folder.mkdir(exist_ok=True)
    return Depot(spark, folder, Warm(), TableRule("yard.*"), **{"budget": BUDGET, **given})


def say(depot: Depot, kind: str, cells: dict[str, str]) -> Depot:
    """A row of every type."""
    types = {name: TYPES[name] for name in cells}
    old = [{"word": "?"}] if kind == "UPDATE" else None
    return depot.say(isDdl=False, type=kind, data=[cells], mysqlType=types, old=old, pkNames=["id"], sql="")


def log_of(depot: Depot, version: int) -> dict[str, Any]:
    """The actions of one commit; of files and columns one each."""
    folder = depot.folder / "lake" / "mirrors" / "yard" / "depot" / "_delta_log"
    found: dict[str, Any] = {}
    for line in (folder / f"{version:020d}.json").read_text("utf-8").splitlines():
        found |= json.loads(line)
    return found


def test_both_ways_make_the_same_table(spark: SparkSession, tmp_path: Path) -> None:
    """Another protocol shuts readers out, a lost property breaks a promise, other metadata breaks `status`."""
    made = []
    for name, apply in (("arrow", "auto"), ("spark", "merge")):
        depot = depot_of(spark, tmp_path / name, apply=apply)
        for row in ENDS:
            say(depot, "INSERT", row)
        assert ("done", "") == depot.run()
        assert (depot.why_merge == "") == (apply == "auto"), depot.why_merge
        found = log_of(depot, 0)
        protocol = {
            key: sorted(one) if isinstance(one, list) else one for key, one in found["protocol"].items()
        }
        about = {key: one for key, one in found["metaData"].items() if key not in ("id", "createdTime")}
        about["schemaString"] = json.loads(about["schemaString"])
        said = json.loads(found["commitInfo"]["userMetadata"])
        txn = {key: found["txn"][key] for key in ("appId", "version")}
        rows = depot.lake().read("mirrors/yard/depot").sort("id").toArrow().to_pylist()
        assert ("after" in said) == (apply == "merge")  # the version for which a MERGE was planned
        made.append([protocol, about, txn, sorted(said.keys() - {"after"}), said["batch"], rows])
    assert made[0] == made[1]


def test_ranges_at_the_ends_of_each_type(spark: SparkSession, tmp_path: Path) -> None:
    """A rounded statistic makes a reader leave out the file that holds the greatest value; so does one without NaN."""
    depot = depot_of(spark, tmp_path)
    for row in ENDS:
        say(depot, "INSERT", row)
    say(depot, "INSERT", {"id": "0", "near": "1.5", "single": "-0.0"})
    say(depot, "INSERT", {"id": str(NOT_A_NUMBER), "near": "NaN", "single": "NaN"})
    assert ("done", "") == depot.run()
    say(depot, "UPDATE", ENDS[0] | {"small": "-127"}).run()
    assert "" == depot.why_merge
    for engine, ask in engines(spark, depot.lake().path("mirrors/yard/depot")).items():
        for column in RANGES:
            text = (ENDS[0] | {"small": "-127"})[column]
            assert [int(ENDS[0]["id"])] == ask(column, "<=", text), (engine, column)
            greatest = {int(ENDS[1]["id"])} | ({NOT_A_NUMBER} if column in ("near", "single") else set())
            assert sorted(greatest) == ask(column, ">=", ENDS[1][column]), (engine, column)


def test_a_mirror_goes_either_way_from_batch_to_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Deletion vectors of one way must be minded by the other, and progress is one for both."""
    random, depot = Random(7), depot_of(spark, tmp_path)
    truth: dict[int, int] = {}
    for turn in range(9):
        depot.budget, depot.apply = ((BUDGET, "auto"), (BUDGET, "merge"), (VECTORS, "auto"))[turn % 3]
        for _ in range(12):
            key, n = random.randrange(30), random.randrange(1000)
            if key in truth and n < 400:
                depot.row("DELETE", id=str(key), n=str(truth.pop(key)))
                continue
            old = {"n": str(truth[key])} if key in truth else None
            depot.row("UPDATE" if old else "INSERT", old, id=str(key), n=str(n))
            truth[key] = n
        assert ("done", "") == depot.run()
        assert (depot.why_merge == "") == (depot.apply == "auto"), depot.why_merge
        assert truth == {row["id"]: row["n"] for row in depot.rows()}
        assert [truth] * 3 == read_by_others(depot.lake().path("mirrors/yard/depot"))
        if turn == 5:  # as either writer makes one now and then; what comes next is read through it
            deltalake.DeltaTable(depot.lake().path("mirrors/yard/depot")).create_checkpoint()
            spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def read_by_others(path: str) -> list[dict[int, int]]:
    """A mirror's rows, as engines other than Spark read them."""
    duck = duckdb.connect()
    load_delta(duck)
    rust = deltalake.QueryBuilder().register("depot", deltalake.DeltaTable(path))
    return [
        dict(duck.sql(f"SELECT id, n FROM delta_scan('{path}')").fetchall()),
        dict(pl.scan_delta(path).select("id", "n").collect().rows()),
        {row["id"]: row["n"] for row in pa.table(rust.execute("SELECT * FROM depot").read_all()).to_pylist()},
    ]


def test_statements_change_columns_by_both_ways(spark: SparkSession, tmp_path: Path) -> None:
    """Another order, type or comment of a column is another table for readers, and older files give a column that came again
    its old values.
    """
    made = []
    for name, apply in (("arrow", "auto"), ("spark", "merge")):
        depot = depot_of(spark, tmp_path / name, apply=apply)
        depot.rule = TableRule("yard.*", on_schema_change="evolve")
        statements = (
            "CREATE TABLE depot (id BIGINT PRIMARY KEY, n INT COMMENT 'free places', m INT)",
            "ALTER TABLE depot ADD COLUMN gate INT COMMENT 'nearest' DEFAULT 7, ADD COLUMN day DATE",
            "ALTER TABLE depot DROP COLUMN n, RENAME COLUMN m TO k",
            "ALTER TABLE depot ADD COLUMN n INT",
            "ALTER TABLE depot MODIFY COLUMN k BIGINT",
        )
        rows: list[dict[str, Any]] = [
            {"n": "1", "m": "2"},
            {"n": "3", "m": "4", "gate": "5"},
            {"k": "6", "gate": "7"},
            {"k": "8"},
            {"k": "9"},
        ]
        for i, (sql, row) in enumerate(zip(statements, rows, strict=True)):
            assert ("done", "") == depot.ddl(sql).row(id=str(i), **row).run()
            assert (depot.why_merge == "") == (apply == "auto"), (sql, depot.why_merge)
        frame = depot.lake().read("mirrors/yard/depot")
        history = deltalake.DeltaTable(depot.lake().path("mirrors/yard/depot"))
        made.append([json.loads(frame.schema.json()), depot.rows(), history.metadata().configuration])
    assert made[0] == made[1]
    assert [(0, None, 2, 7), (1, None, 4, 5), (2, None, 6, 7), (3, None, 8, None), (4, None, 9, None)] == [
        (row["id"], row["n"], row["k"], row["gate"]) for row in made[0][1]
    ]


def test_a_folder_without_hard_links_is_written_by_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without them two writers may take one version; a cell that does not fit is no reason."""
    depot = depot_of(spark, tmp_path)
    assert ("done", "") == depot.row(id="1", n="1").run()
    assert "" == depot.why_merge
    assert "done" == depot.row(id="2", n="many").run()[0]
    assert "" == depot.why_merge
    monkeypatch.setattr("ingest.store.stores._has_links", lambda _folder: False)
    assert ("done", "") == depot.row(id="3", n="3").run()
    assert "hard links" in (depot.why_merge or "")
    assert [1, None, 3] == [row["n"] for row in depot.rows()]


def test_a_commit_in_between_is_not_overwritten(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer's commit after the table was read must neither be lost nor fold the batch twice."""
    depot = depot_of(spark, tmp_path)
    assert ("done", "") == depot.row(id="1", n="1").run()
    path = depot.lake().path("mirrors/yard/depot")
    committed = file_commits.committed

    def after_another(*given: Any) -> MirrorCommit:
        monkeypatch.setattr(file_commits, "committed", committed)
        table = deltalake.DeltaTable(path)
        another = deltalake.CommitProperties(app_transactions=[deltalake.Transaction("another", 7)])
        table.create_write_transaction([], "append", table.schema(), commit_properties=another)
        return committed(*given)

    monkeypatch.setattr(file_commits, "committed", after_another)
    assert ("done", "") == depot.row("UPDATE", {"n": "1"}, id="1", n="2").run()
    assert "" == depot.why_merge
    assert [{"id": 1, "n": 2}] == depot.rows()
    assert 7 == deltalake.DeltaTable(path).transaction_version("another")
