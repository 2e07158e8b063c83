"""Rows of a full load that are ordered before the statement that emptied their table."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ingest.cli import epoch_verb
from ingest.config.model import TableRule
from ingest.ledgers import epochs, mirrors
from ingest.quality.catalogue import Metric
from ingest.tables.lake import Lake
from tests.formats.test_dataworks import message as streamx
from tests.quality.test_order_checks import oms
from tests.shops import Shops, order_metrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Loads(Shops):
    """One table in a dialect whose full load has no position."""

    def row(self, op: str, key: int, text: str, counter: int = 0) -> str:
        """A row of a full load, or of the stream if it has a counter."""
        if self.dialect == "oms-default":
            return oms(op if counter else "ROW", counter or None, {"id": key, "text": text})
        place, row = (str(counter) if counter else "-1"), {"id": key, "text": text}
        if self.dialect == "dataworks":
            return streamx(op, None, row, place, COLUMNS).decode()
        source = {"connector": "postgresql", "db": "cut", "schema": "p", "table": "t", "lsn": counter or 50}
        source["snapshot"] = "false" if counter else "true"
        return json.dumps({"before": None, "after": row, "source": source, "op": "c" if counter else "r"})

    def statement(self, text: str, counter: int) -> str:
        """A statement, or the TRUNCATE of Debezium."""
        if self.dialect == "oms-default":
            return oms("DDL", None, {"ddl": text})
        if self.dialect == "dataworks":
            op = {"TRUNCATE": "TRUNCATE", "DROP": "ERASE"}.get(text.split(maxsplit=1)[0], "CREATE")
            return streamx(op, None, None, str(counter), [], ddl={"text": text}).decode()
        source = {"connector": "postgresql", "db": "cut", "schema": "p", "table": "t", "lsn": counter}
        return json.dumps({"before": None, "after": None, "source": source, "op": "t"})

    def batch(self, *lines: str) -> list[Metric]:
        """What the checks of order find after one more batch."""
        self.number += 1
        self.lines += map(str.strip, lines)
        assert ("done", "") == self.run()
        return order_metrics(self.lake, self.lake.decoded() - 1)


COLUMNS = [{"name": "id", "type": "LONG"}, {"name": "text", "type": "STRING"}]
RULE = TableRule(match="*", keys=("id",), columns={"id": "int64", "text": "string"})
TABLE = "(id bigint PRIMARY KEY, text varchar(9))"


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("dialect", "emptied"),
    [
        ("oms-default", ["TRUNCATE TABLE t"]),
        ("oms-default", ["DROP TABLE t", f"CREATE TABLE t {TABLE}"]),
        ("dataworks", ["TRUNCATE TABLE t"]),
        ("dataworks", ["DROP TABLE t", f"CREATE TABLE t {TABLE}"]),
        ("debezium", ["TRUNCATE"]),
    ],
)
@pytest.mark.parametrize("apart", [True, False])
def test_a_load_into_an_emptied_table_is_reported(
    tmp_path: Path, dialect: str, emptied: list[str], apart: bool
) -> None:
    """Its rows are ordered before the statement: they would be missing, with every check green."""
    mine = Loads(tmp_path, RULE, dialect=dialect, budget=4 << 20)
    assert [] == mine.batch(mine.row("INSERT", 1, "a"), mine.row("INSERT", 2, "b"))
    gone = [mine.statement(text, 100 + at) for at, text in enumerate(emptied)]
    if apart:
        assert [] == mine.batch(*gone)
    found = mine.batch(*([] if apart else gone), mine.row("INSERT", 2, "b"), mine.row("INSERT", 7, "c"))
    [metric] = [one for one in found if one.check == "re_reads_ignored"]
    assert 2 == metric.observed
    assert ("--from-batch 3 --resnapshot" if apart else "--from ") in metric.detail


def test_a_load_before_its_table_is_emptied_is_no_surprise(tmp_path: Path) -> None:
    """Nothing is missing then, nor after rows that have a position."""
    mine = Loads(tmp_path, RULE, dialect="oms-default", budget=4 << 20)
    loaded, emptied = mine.row("INSERT", 1, "a"), mine.statement("TRUNCATE TABLE t", 0)
    assert [] == mine.batch(loaded, emptied, mine.row("INSERT", 3, "c", 9))


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("dialect", "apart"),
    [
        ("dataworks", False),
        pytest.param("dataworks", True, marks=pytest.mark.slow),
        pytest.param("oms-default", False, marks=pytest.mark.slow),
        pytest.param("oms-default", True, marks=pytest.mark.slow),
    ],
)
def test_the_epoch_that_the_check_names_ends_with_the_loaded_rows(
    spark: SparkSession, tmp_path: Path, dialect: str, apart: bool
) -> None:
    """It begins after the statement; and it clears what its load lacks by a statement of its own, which no message carries."""
    mine = Loads(tmp_path, RULE, dialect=dialect, budget=4 << 20)
    mine.batch(mine.row("INSERT", 1, "a"), mine.row("INSERT", 2, "b"))
    emptied = mine.statement("TRUNCATE TABLE t", 100)
    if apart:
        mine.batch(emptied)
    sent = ([] if apart else [emptied]) + [mine.row("INSERT", 2, "b"), mine.row("INSERT", 7, "c")]
    [metric] = [one for one in mine.batch(*sent) if one.check == "re_reads_ignored"]
    lake = Lake(spark, mine.pipeline)
    first, then = re.findall("`(ingest epoch [^`]*)`", metric.detail)
    assert f"{first} --complete" == then
    start = (
        epochs.with_batch(int(first.partition("--from-batch ")[2].split()[0]), lake.decoded())
        if apart
        else epochs.at_places(lake, "s", re.findall("--from ([^ ]+)", first))
    )
    for complete in (False, True):
        epoch_verb.decide(
            lake,
            "s",
            start,
            [first.partition("--resnapshot ")[2]],
            "",
            complete=complete,
            withdraw=False,
        )
        epoch_verb.carry_out(lake, "s", start)
    [mirror] = mirrors.known(lake).values()
    assert {2: "b", 7: "c"} == mine.rows(mirror.path)
    assert [] == mine.batch(mine.row("INSERT", 8, "d"))
