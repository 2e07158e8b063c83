"""Files that Arrow writes have statistics of their keys alone: each engine finds the rows at both ends of a key's type."""

from __future__ import annotations

import base64
import datetime as dt
import json
import operator
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest

from ingest.config.model import TableRule
from ingest.run import Warm
from ingest.tables import delta
from tests.gold.depot import Depot
from tests.lakes import duckdb_with_delta
from tests.unstarted import unstarted

# by the source's type: texts from the least to the greatest, a type in SQL, a value in Python, and if there are statistics
KEYS: dict[str, tuple[list[str], str, Callable[[str], Any], bool]] = {
    "bigint": (["-9223372036854775808", "0", "9223372036854775807"], "BIGINT", int, True),
    "tinyint": (["-128", "0", "127"], "TINYINT", int, True),
    "bigint unsigned": (["0", "9223372036854775808", "18446744073709551615"], "DECIMAL(20,0)", Decimal, False),
    "decimal(38,10)": (
        [f"-{'9' * 28}.{'9' * 10}", "0.0000000001", f"{'9' * 28}.{'9' * 10}"], "DECIMAL(38,10)", Decimal, False,
    ),
    "date": (["0001-01-01", "1970-01-01", "9999-12-31"], "DATE", dt.date.fromisoformat, True),
    "datetime(6)": (
        ["0001-01-01 00:00:00", "1969-12-31 23:59:59.999999", "9999-12-31 23:59:59.999999"], "TIMESTAMP",
        dt.datetime.fromisoformat, False,
    ),
    "varchar(32)": (["", "a" * 32, "\U0010ffff" * 32], "VARCHAR", str, True),
    "varchar(2)": (["", "a", "\U00020bb7\u91ce"], "VARCHAR", str, True),
    "varchar(99)": (["", "a" * 32, "\U0010ffff" * 40], "VARCHAR", str, False),
    "varbinary(9)": (["", "AA==", "//8="], "BINARY", base64.b64decode, False),
}  # fmt: skip


def literal(engine: str, kind: str, value: Any, text: str) -> str:
    """A value as an engine's SQL writes it."""
    if kind == "BINARY":
        return f"unhex('{value.hex()}')" if engine == "duckdb" else f"X'{value.hex()}'"
    if kind == "TIMESTAMP" and engine == "delta-rs":
        return f"arrow_cast('{text}', 'Timestamp(Microsecond, None)')"
    return f"CAST('{text}' AS {kind})"


def asked(path: str, sign: str, text: str, kind: str, value: Any) -> dict[str, list[int]]:
    """By engine, the numbers of the rows whose key compares so."""
    duck = duckdb_with_delta()
    rust = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path))
    sql = {
        engine: f"SELECT n FROM {table} WHERE key {sign} {literal(engine, kind, value, text)}"
        for engine, table in (("duckdb", f"delta_scan('{path}')"), ("delta-rs", "t"))
    }
    compared = {"<=": operator.le, ">=": operator.ge}[sign](pl.col("key"), value)
    return {
        "duckdb": sorted(row[0] for row in duck.sql(sql["duckdb"]).fetchall()),
        "delta-rs": sorted(pa.table(rust.execute(sql["delta-rs"]).read_all())["n"].to_pylist()),
        "polars": sorted(pl.scan_delta(path).filter(compared).select("n").collect()["n"].to_list()),
    }


@pytest.mark.parametrize("source", KEYS)
def test_the_ends_of_a_key_are_found(tmp_path: Path, source: str) -> None:
    """A bound that is rounded or cut leaves out the file with the very row that is asked for."""
    texts, kind, value_of, known = KEYS[source]
    depot = Depot(unstarted(2), tmp_path, Warm(), TableRule("yard.*"))

    def say(op: str, n: int, at: int) -> None:
        depot.say(
            isDdl=False, type=op, data=[{"key": texts[at], "n": str(n)}], mysqlType={"key": source, "n": "int"},
            old=[{"n": "?"}] if op == "UPDATE" else None, pkNames=["key"], sql="",
        )  # fmt: skip

    for n, _ in enumerate(texts):
        say("INSERT", n, n)
    assert ("done", "") == depot.run()
    say("UPDATE", 7, 1)  # the file is rewritten
    assert ("done", "") == depot.run()
    path = depot.lake().path("mirrors/yard/depot")
    for sign, at, row in (("<=", 0, 0), (">=", 2, 2)):
        found = asked(path, sign, texts[at], kind, value_of(texts[at]))
        assert {"duckdb": [row], "delta-rs": [row], "polars": [row]} == found, sign
    [file] = delta.snapshot(path).files
    assert known == ("key" in json.loads(file.stats or "{}")["maxValues"])
