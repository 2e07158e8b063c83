"""Rows that a second full load lacked, in dialects in which nothing says where a load ends."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.cli import epoch_verb
from ingest.config.model import TableRule
from ingest.ledgers import epochs
from ingest.quality.catalogue import Metric
from ingest.tables.lake import Lake
from tests.shops import Shops, metrics_by_spark, order_metrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = 1_718_000_000


def canal(kind: str, table: str, row: dict[str, Any], second: int) -> str:
    """A row of Canal, DTS or OMS, at a second."""
    moment, cells = 1000 * (START + second), {name: str(cell) for name, cell in row.items()}
    message = {
        "data": [cells],
        "database": "cut",
        "table": table,
        "es": moment,
        "ts": moment,
        "isDdl": False,
        "type": kind,
    }
    message |= {"id": second, "mysqlType": {"id": "bigint", "text": "varchar(9)"}, "pkNames": ["id"], "old": None, "sql": ""}  # fmt: skip
    return json.dumps(message)


def oms(kind: str, table: str, row: dict[str, Any], second: int) -> str:
    """A row of OMS Default; those of a full load have neither position nor clock."""
    place = None if kind == "ROW" else int(f"{START + second}00001")
    meta = {
        "record_primary_key": "id",
        "dbType": "OB_MYSQL",
        "table_name": table,
        "db": "cut",
        "storeDataSequence": place,
    }
    meta["timestamp"] = str(START + second) if place else None
    images = (
        {"prevStruct": row, "postStruct": None}
        if kind == "DELETE"
        else {"prevStruct": None, "postStruct": row}
    )
    return json.dumps({**images, "allMetaData": meta, "recordType": kind})


def dms(kind: str, table: str, row: dict[str, Any], second: int) -> str:
    """A row of AWS DMS."""
    clock = f"2024-06-10T06:{second // 60:02}:{second % 60:02}Z"
    about = {
        "timestamp": clock,
        "record-type": "data",
        "operation": kind,
        "schema-name": "cut",
        "table-name": table,
    }
    return json.dumps({"data": row, "metadata": about})


def debezium(kind: str, table: str, row: dict[str, Any], second: int) -> str:
    """A row of Debezium's connector for MySQL, whose incremental snapshots go over the stream's place."""
    source = {
        "connector": "mysql",
        "db": "cut",
        "table": table,
        "server_id": 7,
        "ts_ms": 1000 * (START + second),
    }
    source |= {
        "snapshot": "incremental" if kind == "r" else "false",
        "file": "bin.000001",
        "pos": 100 * second,
        "row": 0,
    }
    before, after = (row, None) if kind == "d" else (None, row)
    return json.dumps({"before": before, "after": after, "source": source, "op": kind})


Writer = Callable[[str, str, dict[str, Any], int], str]
DIALECTS: dict[str, tuple[Writer, str, str, str]] = {
    "canal": (canal, "INIT", "INSERT", "DELETE"),
    "dts-canal": (canal, "INIT", "INSERT", "DELETE"),
    "oms-default": (oms, "ROW", "INSERT", "DELETE"),
    "dms": (dms, "load", "insert", "delete"),
    "debezium": (debezium, "r", "c", "d"),
}


class Loads(Shops):
    """A table that is loaded more than once, and another one, whose rows make batches without a row of the first."""

    second = 0

    def rows_of(self, which: int, *keys: int, table: str = "t") -> list[str]:
        """Rows of a load (1), inserts (2) or deletes (3), each a second after the one before."""
        made = []
        for key in keys:
            self.second += 1
            write = DIALECTS[self.dialect]
            made.append(write[0](write[which], table, {"id": key, "text": f"v{key}"}, self.second))  # type: ignore[operator, arg-type]
        return made

    def load(self, *keys: int) -> list[str]:
        """Rows of a load."""
        return self.rows_of(1, *keys)

    def inserts(self, *keys: int) -> list[str]:
        """Inserted rows."""
        return self.rows_of(2, *keys)

    def deletes(self, *keys: int) -> list[str]:
        """Deleted rows."""
        return self.rows_of(3, *keys)

    def quiet(self) -> list[str]:
        """A row of the other table."""
        return self.rows_of(2, 1000 + self.number, table="other")

    def batch(self, *lines: list[str]) -> list[Metric]:
        """What is said of loads after one more batch."""
        self.number += 1
        self.lines += [line for some in lines for line in some]
        assert ("done", "") == self.run()
        found = order_metrics(self.lake, self.lake.decoded() - 1)
        return [metric for metric in found if metric.check.startswith("rows_not_loaded")]


def loads(folder: Path, dialect: str = "canal") -> Loads:
    """No load yet."""
    rule = TableRule(match="*", keys=("id",), columns={"id": "int64", "text": "string"})
    return Loads(folder, rule, dialect=dialect, budget=4 << 20)


def left_out(found: list[Metric]) -> list[int]:
    """The keys that the one complaint names."""
    [metric] = found
    assert metric.observed == len(metric.failing)
    return [int(json.loads(key)["id"]) for key in metric.failing]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_rows_that_a_second_load_lacks_are_named_once(tmp_path: Path, dialect: str) -> None:
    """The source deleted them while nothing was sent: they would stay in the mirror for ever, all checks green."""
    mine = loads(tmp_path, dialect)
    assert [] == mine.batch(mine.load(1, 2, 3, 4))
    assert [] == mine.batch(mine.inserts(5, 6), mine.deletes(4), mine.quiet())
    assert [] == mine.batch(mine.load(1, 3, 5)), "the load may go on"
    found = mine.batch(mine.quiet())
    assert [2, 6] == left_out(found)
    assert f"epoch {mine.pipeline.file} s --from " in found[0].detail
    assert "in-3.jsonl/0/0 --resnapshot cut.t --complete`" in found[0].detail
    assert f"`ingest quality {mine.pipeline.file} --accept cut.t`" in found[0].detail
    assert [] == mine.batch(mine.quiet(), mine.inserts(9)), "it is said once"


def test_rows_that_no_mirror_has_are_not_named(tmp_path: Path) -> None:
    """A condition leaves rows out of the mirror: those cannot be wrong there, and the others are."""
    mine = loads(tmp_path)
    mine.rule = replace(mine.rule, where="id < 6")
    assert [] == mine.batch(mine.load(1, 2, 3, 6, 7), mine.inserts(4, 8))
    mine.batch(mine.load(1, 3, 6))
    assert [2, 4] == left_out(mine.batch(mine.quiet()))


def test_a_load_that_lacks_only_rows_of_no_mirror_is_no_complaint(tmp_path: Path) -> None:
    """Nothing that it lacks is in the mirror."""
    mine = loads(tmp_path)
    mine.rule = replace(mine.rule, where="id < 6")
    assert [] == mine.batch(mine.load(1, 2, 3, 6, 7), mine.inserts(8))
    assert [] == mine.batch(mine.load(1, 2, 3))
    assert [] == mine.batch(mine.quiet())


@pytest.mark.e2e
@pytest.mark.spark
def test_where_only_spark_reads_the_changes_the_same_is_said(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The questions are asked in words that Spark has, too."""
    table = loads(tmp_path)
    table.batch(table.load(1, 2, 3), table.inserts(4), table.load(1, 3), table.inserts(5))
    said = order_metrics(table.lake, 0)
    assert "rows_not_loaded_again" in {metric.check for metric in said}
    assert said == metrics_by_spark(table.lake, 0, request)


@pytest.mark.parametrize("dialect", ["canal", "oms-default"])
def test_how_messages_are_cut_into_batches_decides_nothing(tmp_path: Path, dialect: str) -> None:
    """A first run over a folder of a year is one batch: a change after the load ends it."""
    mine = loads(tmp_path, dialect)
    found = mine.batch(mine.load(1, 2, 3), mine.inserts(4), mine.load(1, 3), mine.inserts(5))
    assert [2, 4] == left_out(found)
    assert [] == mine.batch(mine.quiet()), "it is said once"


def test_the_end_of_a_load_without_clocks_that_came_twice_is_no_complaint(tmp_path: Path) -> None:
    """A source goes on from a place before its last message: what is printed would delete the rows that it had sent before."""
    table = loads(tmp_path, "oms-default")
    assert [] == table.batch(table.load(*range(20)))
    assert [] == table.batch(table.quiet())
    assert [] == table.batch(table.load(*range(10, 20)))
    assert [] == table.batch(table.quiet())


def test_rows_that_a_condition_leaves_out_are_not_missing(tmp_path: Path) -> None:
    """They are in no mirror, and a load of the rest lacks them."""
    table = loads(tmp_path)
    table.rule = replace(table.rule, where="id < 3")
    assert [] == table.batch(table.load(1, 2, 3, 4))
    assert [] == table.batch(table.quiet())
    assert [] == table.batch(table.load(1, 2))
    assert [] == table.batch(table.quiet())


def test_a_second_load_right_after_the_first_one(tmp_path: Path) -> None:
    """No change of the table comes between them, only a batch of others."""
    mine = loads(tmp_path)
    assert [] == mine.batch(mine.load(1, 2, 3))
    assert [] == mine.batch(mine.quiet())
    assert [] == mine.batch(mine.load(1, 2))
    assert [3] == left_out(mine.batch(mine.quiet()))


@pytest.mark.one_of(2)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_whole_second_load_is_no_complaint(tmp_path: Path, dialect: str) -> None:
    """Whether its rows came in one batch or in several with others between, and whether they have changed meanwhile."""
    mine = loads(tmp_path, dialect)
    assert [] == mine.batch(mine.load(1, 2), mine.quiet())
    assert [] == mine.batch(mine.load(3, 4), mine.quiet())
    assert [] == mine.batch(mine.inserts(5), mine.deletes(4), mine.quiet())
    assert [] == mine.batch(mine.load(1, 2))
    assert [] == mine.batch(mine.load(3, 5), mine.inserts(6), mine.deletes(1))
    assert [] == mine.batch(mine.quiet())


def test_a_load_that_goes_on_after_a_pause(tmp_path: Path) -> None:
    """What was missing in its first half comes with the second one: the complaint ends, and no other begins."""
    mine = loads(tmp_path)
    assert [] == mine.batch(mine.load(1, 2, 3, 4), mine.quiet())
    assert [] == mine.batch(mine.quiet())
    assert [] == mine.batch(mine.load(1, 2))
    assert [3, 4] == left_out(mine.batch(mine.quiet()))
    assert [] == mine.batch(mine.load(3, 4))
    assert [] == mine.batch(mine.quiet())


def test_rows_of_a_first_load_that_come_twice(tmp_path: Path) -> None:
    """A tool that was killed sends its last rows again, with the clock that they had: that is no second load."""
    mine = loads(tmp_path)
    first = mine.load(1, 2, 3)
    assert [] == mine.batch(first)
    assert [] == mine.batch(mine.quiet())
    assert [] == mine.batch(first[2:], mine.load(4, 5))
    assert [] == mine.batch(mine.quiet())


def test_a_load_of_a_small_part_is_no_complaint(tmp_path: Path) -> None:
    """Somebody has sent two rows of a table again: a list of all others would be noise."""
    mine = loads(tmp_path)
    assert [] == mine.batch(mine.load(*range(150)))
    assert [] == mine.batch(mine.quiet())
    assert [] == mine.batch(mine.load(1, 2))
    assert [] == mine.batch(mine.quiet())


@pytest.mark.parametrize(
    "condition", ["", ',"additional-conditions":[{"data-collection":"cut.t","filter":"id<2"}]']
)
def test_an_incremental_snapshot_with_a_condition_is_no_complaint(tmp_path: Path, condition: str) -> None:
    """Debezium sends the rows of its table of signals with all others, which say what was asked for."""
    mine = loads(tmp_path, "debezium")
    assert [] == mine.batch(mine.load(1, 2), mine.quiet())
    asked = f'{{"data-collections":["cut.t"],"type":"incremental"{condition}}}'
    signal = {"id": "ad-hoc", "type": "execute-snapshot", "data": asked}
    mine.second += 1
    assert [] == mine.batch([debezium("c", "signals", signal, mine.second)], mine.load(1), mine.inserts(3))
    found = mine.batch(mine.quiet())
    assert [] == found if condition else [2] == left_out(found)


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["canal", "oms-default", "debezium"])
def test_the_epoch_that_is_named_leaves_the_rows_of_the_load(
    spark: SparkSession, tmp_path: Path, dialect: str
) -> None:
    """A command that the product prints is typed as it is, by somebody who trusts it."""
    mine = loads(tmp_path, dialect)
    mine.batch(mine.load(1, 2, 3), mine.inserts(4))
    mine.batch(mine.load(1, 3), mine.inserts(5))
    found = (
        mine.batch(mine.quiet())
        if dialect == "debezium"
        else order_metrics(mine.lake, mine.lake.decoded() - 1)
    )
    [detail] = [metric.detail for metric in found if metric.check == "rows_not_loaded_again"]
    [typed] = re.findall("`(ingest epoch [^`]*)`", detail)
    words = shlex.split(typed)
    lake = Lake(spark, mine.pipeline)
    start = epochs.at_places(lake, "s", [words[at + 1] for at, word in enumerate(words) if word == "--from"])
    epoch_verb.decide(lake, "s", start, ["cut.t"], "", complete=True, withdraw=False)
    epoch_verb.carry_out(lake, "s", start)
    assert {1: "v1", 3: "v3", 5: "v5"} == mine.rows("mirrors/cut/t")
    assert [] == mine.batch(mine.quiet())
