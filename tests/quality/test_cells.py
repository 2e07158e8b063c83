"""Wrong cells, missing and surplus rows planted in mirrors, each of which the check of cells must find."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pytest

from ingest.quality import cells
from tests.lakes import Depot, change, statement, touch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ingest.result import Result

pytestmark = [pytest.mark.spark, pytest.mark.slow]  # minutes: many faults are planted and looked for

# column: the source's type, its value in every row, the logical type if the file declares it, another value as SQL
WIDE = {
    "tiny": ("tinyint(4)", "-7", "", "8"),
    "small": ("smallint(6)", "300", "", "301"),
    "whole": ("int(11)", "70000", "", "70001"),
    "big": ("bigint(20)", "9007199254740993", "", "9007199254740992"),
    "vast": ("bigint(20) unsigned", "18446744073709551615", "", "18446744073709551614"),
    "price": ("decimal(10,2)", "1.10", "", "1.11"),
    "money": (
        "decimal(38,10)",
        "1234567890123456789012345678.0000000001",
        "",
        "1234567890123456789012345678",
    ),
    "single": ("float", "0.1", "", "CAST(0.10000001 AS FLOAT) + CAST(0.00000001 AS FLOAT)"),
    "real": ("double", "0.1", "", "0.10000000000000002D"),
    "word": ("varchar(20)", "same", "", "'Same'"),
    "empty": ("varchar(20)", "", "", "NULL"),
    "none": ("varchar(20)", None, "", "''"),
    "day": ("date", "2024-02-29", "", "DATE'2024-02-28'"),
    "local": ("datetime(6)", "2024-02-29 10:00:00.123456", "", "TIMESTAMP_NTZ'2024-02-29 10:00:00.123457'"),
    "instant": ("timestamp(6)", "2024-02-29 10:00:00.5", "", "TIMESTAMP'2024-02-29 10:00:00.500001Z'"),
    "clock": ("time", "-100:00:00", "", "'100:00:00'"),
    "yes": ("varchar(5)", "true", "boolean", "false"),
    "bytes": ("varchar(20)", "AAEC", "binary", "X'000103'"),
    "label": ("enum('a','b')", "a", "", "'b'"),
}
COLUMNS = list(WIDE)
TYPES = {"id": "bigint(20)"} | {name: kind for name, (kind, *_) in WIDE.items()}
ROWS = len(COLUMNS) + 5
TABLES = """tables:
  - match: depot.wide
    columns: {yes: boolean, bytes: binary}
"""


def wide(kind: str, key: int, serial: int, **cells: Any) -> str:
    """A change of the table with a column of every type."""
    row = {"id": str(key)} | {name: text for name, (_, text, *_) in WIDE.items()} | cells
    types = TYPES | {name: "varchar(20)" for name in cells if name not in TYPES}
    old = [{"word": "before"}] if kind == "UPDATE" else None
    return change(kind, "wide", serial, row, mysqlType=types, old=old)


class Planting(Depot):
    """A depot whose mirrors other statements change, bypassing the fold."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        super().__init__(folder, TABLES)
        self.spark = spark

    def feeds(self, *lines: str) -> None:
        """Append messages."""
        with self.feed.open("a", encoding="utf-8") as file:
            file.writelines(lines)
        touch(self.feed)

    def runs(self, *stages: str) -> Result:
        """Run some stages."""
        from ingest.run import run

        return run(self.spark, self.pipeline, stages)

    def path(self, table: str = "wide") -> str:
        """Where a mirror lies."""
        return f"{self.pipeline.lake}/mirrors/depot/{table}"

    @contextmanager
    def planted(self, *statements: str, table: str = "wide") -> Iterator[None]:
        """Change a mirror as if the product itself had done it, then put it back."""
        named = f"delta.`{self.path(table)}`"
        before = self.spark.sql(f"DESCRIBE HISTORY {named} LIMIT 1").first()["version"]
        self.spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", json.dumps({"run": "x"}))
        try:
            for text in statements:
                self.spark.sql(text.format(named))
            yield
        finally:
            self.spark.sql(f"RESTORE TABLE {named} TO VERSION AS OF {before}")
            self.spark.conf.unset("spark.databricks.delta.commitInfo.userMetadata")

    def complaints(self, since: int, deep: str = "") -> dict[str | None, str]:
        """What the check of cells finds, by column."""
        from ingest.gold.plan.steps import steps_of
        from ingest.quality import stage
        from ingest.tables.lake import Lake

        lake = Lake(self.spark, self.pipeline)
        found = stage.check(lake, since, steps=steps_of(lake), deep=deep)
        return {
            one.metric.column: one.sentence()
            for one in found.of("fail", "error")
            if one.metric.check == "wrong_cells"
        }


@pytest.fixture(scope="module")
def depot(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Planting:
    """A mirror with rows of every type, folded and right."""
    made = Planting(tmp_path_factory.mktemp("cells"), spark)
    made.feeds(*[wide("INSERT", key, key) for key in range(ROWS)])
    made.feeds(*[change("INSERT", "bins", 500 + key, {"id": str(key), "word": "w"}) for key in range(3)])
    assert [] == made.runs("bronze", "silver", "gold", "quality").failures
    return made


def unreadable(path: str, **_given: Any) -> Any:
    raise OSError(path)


def other(key: int, name: str) -> str:
    return f"UPDATE {{}} SET {name} = {WIDE[name][3]} WHERE id = {key}"


def test_a_wrong_cell_of_every_type_is_found(depot: Planting, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check must find wrong values of every type."""
    depot.feeds(*[wide("UPDATE", key, 1000 + key) for key in range(ROWS - 1)])
    assert [] == depot.runs("bronze", "silver", "gold").failures
    with depot.planted(*[other(key, name) for key, name in enumerate(COLUMNS)]):
        ways = [depot.complaints(1), depot.complaints(0, deep="depot.*")]
        monkeypatch.setattr(cells, "ALWAYS", 1)  # as if the history were long: keys are chosen
        ways += [depot.complaints(1), depot.complaints(0)]
        monkeypatch.setattr(cells, "REACH", 0)  # as if the history were too long
        ways.append(depot.complaints(1))
        monkeypatch.setattr(deltalake, "DeltaTable", unreadable)  # as on a store that only Spark reaches
        ways += [depot.complaints(1), depot.complaints(0, deep="depot.*")]
        for found in ways:
            assert set(COLUMNS) == set(found)
            assert "id = 5: price holds '1.11', the changes give '1.10'" in found["price"]
            assert f"ingest explain {depot.file} depot.wide 5" in found["price"]
    assert {} == depot.complaints(0, deep="*") | depot.complaints(1)
    monkeypatch.undo()
    assert {} == depot.complaints(1)


def test_a_run_finds_what_its_batch_touches(depot: Planting) -> None:
    """A wrong cast, a stale or lost row, a delete that was not done: silent, if only `quality --deep` finds them."""
    depot.feeds(
        *[wide("UPDATE", key, 1500 + key) for key in (1, 2, 3)], wide("DELETE", 5, 1510), wide("INSERT", 60, 1511)
    )  # fmt: skip
    assert [] == depot.runs("bronze", "silver", "gold").failures
    with depot.planted(
        "UPDATE {} SET price = 1.11 WHERE id = 1",
        "DELETE FROM {} WHERE id = 2",
        "INSERT INTO {0} SELECT 5 AS id, * EXCEPT (id) FROM {0} WHERE id = 3",
        "UPDATE {} SET big = 1 WHERE id = 9",  # not touched: for `quality --deep`
    ):
        result = depot.runs("quality")
        failures = "\n".join(result.failures)
    assert 1 == result.exit_code
    assert "column price: id = 1: price holds '1.11', the changes give '1.10'" in failures
    assert f"ingest explain {depot.file} depot.wide 1" in failures
    assert "id = 2 is missing, the changes give this row" in failures
    assert "id = 5 is a row that the changes do not give" in failures
    assert "column big" not in failures
    depot.feeds(wide("INSERT", 5, 1520))
    assert [] == depot.runs("bronze", "silver", "gold", "quality").failures


def test_missing_and_surplus_rows_are_found(depot: Planting) -> None:
    """A lost row is the worst wrong cell."""
    with depot.planted(
        "DELETE FROM {} WHERE id = 3", "INSERT INTO {0} SELECT 700 + id, * EXCEPT (id) FROM {0} WHERE id = 4"
    ):
        found = depot.complaints(0, deep="*")[None]
    assert "id = 3 is missing" in found
    assert "id = 704 is a row that the changes do not give" in found


def test_wrong_fills_and_lost_renames_are_found(depot: Planting) -> None:
    """No row message follows a fill or a rename: nothing else would ever notice."""
    depot.feeds(
        statement("wide", 2000, "ALTER TABLE wide ADD COLUMN filled INT NOT NULL DEFAULT 7"),
        statement("wide", 2001, "ALTER TABLE wide RENAME COLUMN word TO phrase"),
        change("INSERT", "bins", 2002, {"id": "9", "word": "w"}),
    )
    assert [] == depot.runs("bronze", "silver", "gold", "quality").failures
    with depot.planted(
        "UPDATE {} SET filled = NULL WHERE id = 2", "UPDATE {} SET phrase = NULL WHERE id = 3"
    ):
        found = depot.complaints(2)
    assert "id = 2: filled holds NULL, the changes give '7'" in found["filled"]
    assert "id = 3: phrase holds NULL, the changes give 'same'" in found["phrase"]
    assert {} == depot.complaints(0) | depot.complaints(2)


def test_nothing_is_compared_where_the_file_says_so(depot: Planting) -> None:
    """With `cells_checked: 0` no cell may be compared."""
    from ingest.quality import stage
    from ingest.tables.lake import Lake

    text = depot.file.read_text("utf-8")
    depot.file.write_text(text + 'quality:\n  - {table: "*", cells_checked: 0}\n', "utf-8")
    try:
        lake = Lake(depot.spark, depot.pipeline)
        found = stage.check(replace(lake), steps=lambda *_: ())
    finally:
        depot.file.write_text(text, "utf-8")
    assert not any(one.metric.check in ("wrong_cells", "cells_checked") for one in found.verdicts)


def test_damaged_mirrors_do_not_hide_the_others(depot: Planting) -> None:
    """One torn file must neither end the run without a record nor leave other mirrors unchecked."""
    from ingest.inspect import status as look
    from ingest.tables.lake import Lake

    depot.feeds(change("INSERT", "torn", 3000, {"id": "1", "word": "w"}))
    assert [] == depot.runs("bronze", "silver", "gold", "quality").failures
    for file in Path(depot.path("wide")).glob("*.parquet"):
        file.write_bytes(b"no parquet at all")
    log = max(Path(depot.path("torn")).glob("_delta_log/*.json"))
    log.write_bytes(log.read_bytes()[:100])
    for crc in (
        *Path(depot.path("torn")).glob("_delta_log/*.crc"),
        *Path(depot.path("torn")).glob("_delta_log/.*.crc"),
        *Path(depot.path("wide")).glob(".*.crc"),
    ):
        crc.unlink(missing_ok=True)
    depot.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # as the next process finds it
    depot.feeds(
        wide("UPDATE", 1, 4000), change("INSERT", "torn", 4001, {"id": "2", "word": "w"}),
        change("INSERT", "bins", 4002, {"id": "77", "word": "w"}),
    )  # fmt: skip
    result = depot.runs("bronze", "silver", "gold", "quality")
    assert 1 == result.exit_code
    failures = "\n".join(result.failures)
    assert f"ingest rebuild {depot.file} depot.wide" in failures
    assert f"ingest rebuild {depot.file} depot.torn" in failures
    lake = Lake(depot.spark, depot.pipeline)
    assert 0 < lake.read("runs").where(f"run = '{result.run}'").count()
    states = {row["table"]: row["state"] for row in look.status(lake)["tables"]}
    assert ("ok", "damaged") == (states["depot.bins"], states["depot.torn"])
    checked = lake.read("checks").where(f"run = '{result.run}' AND mirror = 'depot.bins' AND check = 'rows'")
    assert 1 == checked.count()
