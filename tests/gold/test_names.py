"""Hostile names through the whole way: message, path, DDL, MERGE, refold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.change import TableId
from ingest.config import Pipeline
from ingest.config.model import Source
from tests.lake.hostile import names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = ["no", *names(120)]
TABLES = [
    "../../escape",
    "a`b",
    "a'; DROP TABLE x; --",
    "_delta_log",
    "a.b",
    "T",
    "t",
    "\n",
    "😀",
    "%2e%2e",
    "x" * 400,
]


def message(number: int, table: str, op: str, row: dict[str, Any], old: dict[str, Any] | None = None) -> str:
    """One message of a dialect that carries any name."""
    return json.dumps(
        {
            "data": [row], "database": "`d`.'x", "es": 1714550402000, "id": number, "isDdl": False,
            "mysqlType": dict.fromkeys(row, "varchar"), "old": old and [old], "pkNames": ["no"], "sql": "",
            "table": table, "ts": 1714550404000, "type": op,
        }
    )  # fmt: skip


def test_hostile_names(spark: SparkSession, tmp_path: Path) -> None:
    """A name that breaks a statement, a path or a merge loses a table, or another program's."""
    from ingest import run as running
    from ingest.ledgers import mirrors
    from ingest.tables.lake import Lake

    source = Source("s", "files", "dts-canal", path=str(tmp_path / "in-*.jsonl"))
    pipeline = Pipeline(
        "names", tmp_path / "x.yaml", str(tmp_path / "deep" / "lake"), (source,), engine="auto"
    )
    row = {name: f"v{i}" for i, name in enumerate(COLUMNS)}
    first = [message(1, "wide", "INSERT", row), message(2, "wide", "INSERT", {**row, "no": "2"})]
    first += [message(3, table, "INSERT", {"no": "1", "v": table}) for table in TABLES]
    second = [
        message(9, "wide", "UPDATE", {**row, COLUMNS[7]: "new"}, {COLUMNS[7]: "v7"}),
        message(8, "wide", "INSERT", {**row, "no": "3", "one more `": "x"}),
    ]
    late = [message(5, "wide", "UPDATE", {**row, COLUMNS[7]: "old"}, {COLUMNS[7]: "v7"})]
    warm = running.Warm()
    for number, part in enumerate((first, second, late)):
        (tmp_path / f"in-{number}.jsonl").write_text("\n".join(part) + "\n")
        result = running.run(spark, pipeline, ("bronze", "silver", "gold"), warm)
        assert [] == [(one.mirror, one.message) for one in result.mirrors if one.state != "done"]
    lake = Lake(spark, pipeline)
    found = {mirror.table: mirror for mirror in mirrors.known(lake).values()}
    assert {TableId("`d`.'x", None, table) for table in ("wide", *TABLES)} == found.keys()
    wide = found[TableId("`d`.'x", None, "wide")]
    columns = {one.column: one.name for one in wide.columns}
    rows = [
        {columns[name]: cell for name, cell in one.asDict().items()} for one in lake.read(wide.path).collect()
    ]
    expected = [
        {**row, COLUMNS[7]: "new", "one more `": None},
        {**row, "no": "2", "one more `": None},
        {**row, "no": "3", "one more `": "x"},
    ]
    assert sorted(expected, key=lambda one: str(one["no"])) == sorted(rows, key=lambda one: str(one["no"]))
    for table in TABLES:
        assert [table] == [
            one["v"] for one in lake.read(found[TableId("`d`.'x", None, table)].path).collect()
        ]
    assert {"deep", *(f"in-{n}.jsonl" for n in range(3))} == {path.name for path in tmp_path.iterdir()}
