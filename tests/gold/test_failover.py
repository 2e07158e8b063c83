"""A failover that was not announced: the table waits, says what to do, and is right after the decision."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ingest.change import TableId
from ingest.config import Pipeline
from ingest.config.model import Source, TableRule
from ingest.errors import HeldError
from ingest.gold.plan.failover import refuse_another
from ingest.gold.plan.work import Books, Job, LaneSums
from ingest.ledgers.books import Line
from tests.gold.depot import Depot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = TableId("yard", None, "depot")


def look(lines: list[dict[str, int]], known: set[str] | None = None, change: str = "hold") -> str:
    """The sentence that a mirror is held with, if it is; each line is one batch of one partition."""
    source = Source("shop", "kafka", "debezium", server_change=change)
    pipeline = Pipeline("yard", Path("/etc/yard.yaml"), "/lake", (source,), ())
    counts = [
        Line(batch, "shop", "t", 0, *TABLE, servers=servers) for batch, servers in enumerate(lines, start=3)
    ]
    books = Books(2, 3, {("shop", TABLE): LaneSums(servers=known or set())}, counts)
    try:
        refuse_another(pipeline, books, Job(TABLE, "m", TableRule(), {("shop", TABLE): counts}))
    except HeldError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("lines", "known"),
    [
        ([{"0 server 7": 4, "0 log bin": 4}, {"0 server 7": 9}], None),
        ([{"0 server 7": 4}, {"1 server 8": 9}], {"0 server 7"}),  # a new epoch
        ([{"0 log bin": 4}, {"0 server 7": 9, "0 log bin": 9}], None),  # a snapshot, which names no server
        ([{"0 server 7": 4}], {"0 server 7", "0 server 8"}),  # once accepted
        ([{}], {"0 server 7"}),
    ],
)
def test_what_is_no_failover(lines: list[dict[str, int]], known: set[str] | None) -> None:
    """A table that waits for nothing at all would wake the operator for nothing."""
    assert look(lines, known) == ""


def test_the_first_message_of_each_partition_is_named() -> None:
    """A command that names a later message would leave the ones before it on the wrong side."""
    said = look([{"0 server 7": 4, "0 log bin": 4}, {"0 server 8": 12, "0 log bin": 9}])
    assert "counted by server 7 and are now counted by server 8" in said
    assert "`ingest epoch /etc/yard.yaml shop --from t/0/12`" in said


def test_one_batch_that_holds_the_failover() -> None:
    """The books list the later server first where a batch was counted backwards."""
    said = look([{"0 server 8": 12, "0 server 7": 4}])
    assert "counted by server 7 and are now counted by server 8" in said


def test_another_log_of_the_same_server() -> None:
    """RESET MASTER with a new name counts from one again; the server's id stays what it was."""
    assert "log bin and are now counted by log my log" in look([{"0 log my log": 1}], {"0 log bin"})


def test_the_operator_may_know_better() -> None:
    """A replica's log holds the changes of every server above it, in one order."""
    assert look([{"0 server 8": 12}], {"0 server 7"}, "accept") == ""


class Yard(Depot):
    """A table captured from MySQL."""

    @property
    def pipeline(self) -> Pipeline:
        """The depot's, read as Debezium's messages."""
        known = super().pipeline
        return replace(known, sources=(replace(known.sources[0], format="debezium"),))

    def row_of(self, server: int, pos: int, **after: int) -> Yard:
        """An insert as a server counted it."""
        place = {"connector": "mysql", "db": "yard", "table": "depot", "server_id": server, "row": 0}
        source = {**place, "file": "bin.000005", "pos": pos, "ts_ms": 1714521600000 + pos}
        self.number += 1
        self.messages.append(json.dumps({"op": "c", "before": None, "after": after, "source": source}))
        return self


@pytest.mark.e2e
@pytest.mark.spark
def test_from_failover_to_decision(spark: SparkSession, tmp_path: Path) -> None:
    """Without the hold, the new server's rows would lose against older ones, and nothing would say so."""
    from ingest.cli.epoch_verb import carry_out, decide
    from ingest.ledgers import epochs
    from ingest.run import Warm

    yard = Yard(
        spark, tmp_path, Warm(), TableRule("yard.depot", keys=("id",), columns={"id": "int64", "n": "int64"})
    )
    assert ("done", "") == yard.row_of(7, 900, id=1, n=1).row_of(7, 950, id=2, n=2).run()
    state, message = yard.row_of(7, 990, id=3, n=3).row_of(8, 100, id=1, n=10).run()
    assert state == "held"
    place = message.partition("--from ")[2].partition("`")[0]
    assert [(1, 1), (2, 2)] == [(row["id"], row["n"]) for row in yard.rows()]

    lake = yard.lake()
    start = epochs.at_places(lake, "s", [place])
    decide(lake, "s", start, [], "failover", complete=False, withdraw=False)
    carry_out(lake, "s", start)
    yard.run()
    assert [(1, 10), (2, 2), (3, 3)] == [(row["id"], row["n"]) for row in yard.rows()]
    assert ("done", "") == yard.row_of(8, 101, id=2, n=20).run()
    assert [(1, 10), (2, 20), (3, 3)] == [(row["id"], row["n"]) for row in yard.rows()]
