"""Rows that a later bootstrap of Maxwell did not contain."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ingest.change import TableId
from ingest.cli import epoch_verb
from ingest.config import load
from ingest.config.model import TableRule
from ingest.gold.plan.steps import steps_of
from ingest.ledgers import epochs, later_loads
from ingest.ledgers.books import Line
from ingest.ledgers.later_loads import LaterLoad
from ingest.ledgers.mirrors import Column, Mirror
from ingest.ledgers.starts import MessagePlace
from ingest.quality import ledgers, order_checks
from ingest.quality.catalogue import Metric
from ingest.quality.subjects import survey
from ingest.run import run
from ingest.silver.lift import INPUT, Lifting, lift
from ingest.store.names import mirror_path
from ingest.tables.lake import Lake
from ingest.tables.schemas import BOOKS, BRONZE, CHANGES
from tests.quality.test_unplaced import RULE, Loads
from tests.shops import metrics_by_spark, order_metrics
from tests.unstarted import unstarted
from tests.written_lake import WrittenLake, book, commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Maxwell(Loads):
    """A table that Maxwell bootstraps."""

    def row(self, op: str, key: int, text: str, counter: int = 0) -> str:
        """A change, or a row of a bootstrap."""
        return self._message(op, {"id": key, "text": text}, counter)

    def _message(self, op: str, row: dict[str, Any], counter: int) -> str:
        place = {"ts": 1718000000 + counter, "xid": counter} if counter else {"ts": 1718000000}
        return json.dumps({"database": "cut", "table": "t", "type": op, **place, "data": row})

    def bootstrap(self, *rows: tuple[int, str], ends: bool = True) -> list[str]:
        """A load of the table, with the marks before and after it."""
        ended = [self.end()] if ends else []
        loaded = [self.row("bootstrap-insert", key, text) for key, text in rows]
        return [self._message("bootstrap-start", {}, 0), *loaded, *ended]

    def end(self) -> str:
        """The mark after a load."""
        return self._message("bootstrap-complete", {}, 0)


def not_loaded(found: list[Metric]) -> list[Metric]:
    """What is said of loads."""
    return [metric for metric in found if metric.check == "rows_not_loaded"]


def test_rows_that_a_second_bootstrap_lacks_are_named(tmp_path: Path) -> None:
    """The source deleted them while Maxwell had lost its place: they would stay in the mirror for ever, all checks green."""
    mine = Maxwell(tmp_path, RULE, dialect="maxwell", budget=4 << 20)
    assert [] == mine.batch(*mine.bootstrap((1, "a"), (2, "b"), (4, "d")))
    assert [] == mine.batch(
        mine.row("update", 1, "a2", 5), mine.row("delete", 4, "d", 6), mine.row("insert", 5, "e", 7)
    )
    found = mine.batch(*mine.bootstrap((1, "a2"), (3, "c")), mine.row("insert", 6, "f", 8))
    [metric] = [one for one in found if one.check == "rows_not_loaded"]
    assert (2, ('{"id":"2"}', '{"id":"5"}')) == (metric.observed, metric.failing)
    assert f"epoch {mine.pipeline.file} s --from " in metric.detail
    assert "in-3.jsonl/0/" in metric.detail
    assert 1 == run(unstarted(), mine.pipeline, ["quality"]).exit_code, "the rows are not in the source"


@pytest.mark.e2e
@pytest.mark.spark
def test_where_only_spark_reads_the_changes_the_same_is_said(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Spark lacks functions of DuckDB's: there the checks of such a lake would end with an error at each run."""
    loads = Maxwell(tmp_path, RULE, dialect="maxwell")
    loads.batch(*loads.bootstrap((1, "a"), (2, "b")), loads.row("insert", 3, "c", 5))
    loads.batch(*loads.bootstrap((1, "a")))
    said = order_metrics(loads.lake, 1)
    assert [('{"id":"2"}', '{"id":"3"}')] == [metric.failing for metric in not_loaded(said)]
    assert said == metrics_by_spark(loads.lake, 1, request)


def test_two_bootstraps_in_one_batch(tmp_path: Path) -> None:
    """How messages are cut into batches decides nothing: what the first load had and the second lacks is gone."""
    mine = Maxwell(tmp_path, RULE, dialect="maxwell", budget=4 << 20)
    found = mine.batch(*mine.bootstrap((1, "a"), (2, "b")), *mine.bootstrap((1, "a")))
    [metric] = [one for one in found if one.check == "rows_not_loaded"]
    assert ('{"id":"2"}',) == metric.failing


@pytest.mark.parametrize("ends", [True, False])
def test_a_whole_second_bootstrap_is_no_complaint(tmp_path: Path, ends: bool) -> None:
    """Nor is a part of one, or one of another table: what comes next may have the other rows."""
    mine = Maxwell(tmp_path, RULE, dialect="maxwell", budget=4 << 20)
    assert [] == mine.batch(*mine.bootstrap((1, "a"), (2, "b")), mine.row("insert", 3, "c", 5))
    assert [] == mine.batch(mine.row("delete", 3, "c", 6))
    rest = [(2, "b")] if ends else []
    found = mine.batch(
        *mine.bootstrap((1, "a"), *rest, ends=ends),
        mine.row("update", 2, "b", 7),
        mine.row("delete", 1, "a", 8),
    )
    assert [] == [one for one in found if one.check == "rows_not_loaded"]


@pytest.mark.slow
@pytest.mark.parametrize("rows", [[(1, "a2"), (3, "c")], []])
def test_the_epoch_that_is_named_leaves_the_rows_of_the_bootstrap(
    spark: SparkSession, tmp_path: Path, rows: list[tuple[int, str]]
) -> None:
    """A command that the product prints is typed as it is, by somebody who trusts it."""
    mine = Maxwell(tmp_path, RULE, dialect="maxwell", budget=4 << 20)
    mine.batch(*mine.bootstrap((1, "a"), (2, "b")))
    mine.lines += mine.bootstrap(*rows)
    mine.number += 1
    mine.run()
    [metric] = not_loaded(order_metrics(mine.lake, mine.lake.decoded() - 1))
    lake = Lake(spark, mine.pipeline)
    start = epochs.at_places(lake, "s", re.findall("--from ([^ `]+)", metric.detail))
    epoch_verb.decide(lake, "s", start, ["cut.t"], "", complete=True, withdraw=False)
    epoch_verb.carry_out(lake, "s", start)
    [path] = {one.path for one in [mine.subject(0)]}
    assert dict(rows) == mine.rows(path)
    assert [] == mine.batch(mine.row("insert", 8, "d", 9))


def test_the_end_of_a_bootstrap_in_a_later_batch(tmp_path: Path) -> None:
    """A run that begins while Maxwell loads would cut the load from its end, and rows that are gone would stay for ever."""
    mine = Maxwell(tmp_path, RULE, dialect="maxwell", budget=4 << 20)
    assert [] == mine.batch(*mine.bootstrap((1, "a"), (2, "b")))
    *begun, last = mine.bootstrap((1, "a"), (3, "c"), ends=False)
    assert [] == not_loaded(mine.batch(*begun))
    assert [] == not_loaded(mine.batch(last))
    [metric] = not_loaded(mine.batch(mine.end(), mine.row("insert", 6, "f", 8)))
    assert ('{"id":"2"}',) == metric.failing
    assert "in-2.jsonl/0/0 --resnapshot cut.t --complete`" in metric.detail
    assert [] == not_loaded(mine.batch(mine.row("insert", 7, "g", 9))), "it is said once"


def test_a_bootstrap_of_a_table_that_is_empty_by_now(tmp_path: Path) -> None:
    """It sends no row at all, so all former rows would stay, although nothing but its marks came of the table."""
    mine = Maxwell(tmp_path, RULE, dialect="maxwell", budget=4 << 20)
    assert [] == mine.batch(*mine.bootstrap(), *mine.bootstrap((1, "a"), (2, "b")))
    mine.lines += mine.bootstrap()
    mine.number += 1
    mine.run()
    [metric] = not_loaded(order_metrics(mine.lake, mine.lake.decoded() - 1))
    assert ('{"id":"1"}', '{"id":"2"}') == metric.failing
    assert 1 == run(unstarted(), mine.pipeline, ["quality"]).exit_code, "the rows are not in the source"


def test_a_table_that_was_empty_before_is_no_complaint(tmp_path: Path) -> None:
    """Its rows were deleted in the stream, or there never was one."""
    mine = Maxwell(tmp_path, RULE, dialect="maxwell", budget=4 << 20)
    assert [] == mine.batch(*mine.bootstrap((1, "a")), mine.row("delete", 1, "a", 6))
    assert [] == mine.batch(*mine.bootstrap(), mine.row("insert", 2, "b", 7))
    assert [] == mine.batch(*mine.bootstrap((2, "b")))


def test_a_bootstrap_that_was_cut_off_and_begins_again(tmp_path: Path) -> None:
    """Maxwell was killed while it loaded, and loads again from the start: the load is what came after its last beginning."""
    mine = Maxwell(tmp_path, RULE, dialect="maxwell", budget=4 << 20)
    assert [] == mine.batch(*mine.bootstrap((1, "a"), (2, "b"), (3, "c")))
    assert [] == not_loaded(mine.batch(*mine.bootstrap((1, "a"), (2, "b"), ends=False)))
    [metric] = not_loaded(mine.batch(*mine.bootstrap((1, "a"))))
    assert ('{"id":"2"}', '{"id":"3"}') == metric.failing


@pytest.mark.parametrize("condition", ["id < 2", None, ""])
def test_a_bootstrap_of_a_part_of_the_table(tmp_path: Path, condition: str | None) -> None:
    """Maxwell sends the rows of its own table, too: what was asked for is known where they are not filtered out."""
    own = TableRule(match="maxwell.bootstrap", keys=("id",))
    mine = Maxwell(tmp_path, RULE, dialect="maxwell", budget=4 << 20, more=(own,))
    mine.rule = replace(RULE, match="cut.t")
    assert [] == mine.batch(*mine.bootstrap((1, "a"), (2, "b")))
    asked = {"id": 9, "database_name": "cut", "table_name": "t", "where_clause": condition, "is_complete": 0}
    request = {
        "database": "maxwell",
        "table": "bootstrap",
        "type": "insert",
        "ts": 1718000900,
        "xid": 9,
        "data": asked,
    }
    found = not_loaded(mine.batch(json.dumps(request), *mine.bootstrap((1, "a"))))
    assert (0 if condition else 1) == len(found)


def test_what_is_said_of_a_part_can_be_accepted(tmp_path: Path) -> None:
    """Where nothing shows that a part was loaded, a right mirror must not fail for ever."""
    mine = Maxwell(tmp_path, RULE, dialect="maxwell", budget=4 << 20)
    assert [] == mine.batch(*mine.bootstrap((1, "a"), (2, "b")))
    [metric] = not_loaded(mine.batch(*mine.bootstrap((1, "a"))))
    assert f"`ingest quality {mine.pipeline.file} --accept cut.t`" in metric.detail


# --- topics of several partitions -----------------------------------------------------------------------


TABLE = TableId("cut", None, "t")


class Partitions(WrittenLake):
    """A topic of three partitions, in which Maxwell's marks are in the first one; its changes and books, without a broker."""

    def __init__(self, folder: Path, dialect: str = "maxwell") -> None:
        super().__init__(folder)
        self.file.write_text(
            f"pipeline: depot\nlake: ./depot-lake\nengine: auto\nsources:\n  - {{name: bus, kind: kafka, format: {dialect}, "
            "bootstrap_servers: 'nowhere:9092', topics: [m]}\ntables:\n  - {match: cut.t, keys: [id]}\n",
            "utf-8",
        )
        self.pipeline, self.places, self.table = load(self.file), [0, 0, 0], TABLE

    def found(self, *messages: tuple[int, str]) -> list[Metric]:
        """What the check finds in one more batch of messages, each with its partition."""
        self.batch += 1
        rows = []
        for partition, message in messages:
            rows.append({"batch": self.batch, "source": "bus", "topic": "m", "partition": partition,
                         "offset": self.places[partition], "key": None, "value": message.encode()})  # fmt: skip
            self.places[partition] += 1
        bronze = pa.RecordBatch.from_pylist(rows, BRONZE.part(*INPUT))
        lake = Lake(unstarted(), self.pipeline)
        how = Lifting(self.pipeline, later=later_loads.by_epoch(later_loads.read(lake), {}))
        pages = [row for page in lift(how)(iter([bronze])) for row in page.to_pylist()]
        changes = [row for row in pages if row["kind"] == "change"]
        lines = [Line.from_json(row["payload"]) for row in pages if row["kind"] == "book"]
        commit(self.lake / "changes", CHANGES.types, changes, by=CHANGES.partition_by)
        commit(self.lake / "books", BOOKS.types, list(map(book, lines)))
        lake = Lake(unstarted(), self.pipeline)
        columns = Column("id", "id", "int64"), Column("text", "text", "string")
        mirror = Mirror(self.table, mirror_path(self.table), ("id",), columns)
        books = ledgers.read(lake, self.batch - 1, self.batch)
        chosen = survey(lake, books.lanes, decided={mirror.path: mirror}, steps=steps_of(lake)).subjects
        return list(order_checks.of_mirrors(lake, chosen, self.batch - 1, []))


def message(kind: str, second: int, row: dict[str, Any] | None = None) -> str:
    """A message, sent at a second."""
    return json.dumps(
        {"database": "cut", "table": "t", "type": kind, "ts": 1718000000 + second, "data": row or {}}
    )


def loaded(key: int, second: int) -> str:
    """A row of a bootstrap."""
    return message("bootstrap-insert", second, {"id": key})


def test_a_bootstrap_of_several_partitions(tmp_path: Path) -> None:
    """Its marks are in one of them only: the rows of the others that are gone would stay, and those that came be called missing."""
    topic = Partitions(tmp_path)
    first = [(0, message("bootstrap-start", 0)), (0, loaded(1, 1)), (1, loaded(2, 1)), (2, loaded(3, 2))]
    assert [] == topic.found(
        *first, (1, loaded(4, 2)), (2, loaded(5, 3)), (0, message("bootstrap-complete", 3))
    )
    changed = [(1, message("insert", 50, {"id": 6})), (2, message("insert", 50, {"id": 7}))]
    second = [(0, message("bootstrap-start", 60)), (0, loaded(1, 61)), (1, loaded(2, 61)), (2, loaded(3, 61))]
    [metric] = topic.found(
        *changed, *second, (0, message("bootstrap-complete", 62)), (1, message("insert", 70, {"id": 8}))
    )
    assert [f'{{"id":"{key}"}}' for key in (4, 5, 6, 7)] == list(metric.failing)
    assert "--from m/0/3 --from m/1/3 --from m/2/3 --resnapshot cut.t --complete`" in metric.detail


def test_two_bootstraps_of_several_partitions_in_one_batch(tmp_path: Path) -> None:
    """The clock of its rows says which load a row is of, where no mark is in its partition."""
    topic = Partitions(tmp_path)
    first = [(0, message("bootstrap-start", 0)), (0, loaded(1, 1)), (1, loaded(2, 1)), (2, loaded(3, 1))]
    second = [(0, message("bootstrap-start", 60)), (1, loaded(2, 61)), (0, message("bootstrap-complete", 62))]
    [metric] = topic.found(*first, (0, message("bootstrap-complete", 2)), *second)
    assert ('{"id":"1"}', '{"id":"3"}') == metric.failing


def test_a_whole_bootstrap_of_several_partitions_is_no_complaint(tmp_path: Path) -> None:
    """Nor are rows that changed just after it, in a partition that has none of its rows."""
    topic = Partitions(tmp_path)
    first = [(0, message("bootstrap-start", 0)), (1, loaded(2, 1)), (0, message("bootstrap-complete", 3))]
    assert [] == topic.found(*first)
    second = [(0, message("bootstrap-start", 60)), (1, loaded(2, 61)), (0, message("bootstrap-complete", 62))]
    assert [] == topic.found(*second, (2, message("insert", 70, {"id": 3})))


def placed(op: str, key: int, text: str, lsn: int, snapshot: str = "false") -> str:
    """A message of Debezium for PostgreSQL."""
    source = {"connector": "postgresql", "db": "cut", "schema": "p", "table": "t", "lsn": lsn}
    row = {"id": key, "text": text}
    return json.dumps({"before": None, "after": row, "source": {**source, "snapshot": snapshot}, "op": op})


def test_a_second_snapshot_whose_partitions_come_in_different_batches(tmp_path: Path) -> None:
    """What came in a partition before the load's rows of its own is older than the load, and no other change."""
    topic = Partitions(tmp_path, "debezium")
    topic.table = TableId("cut", "p", "t")
    topic.pipeline = replace(topic.pipeline, tables=(replace(topic.pipeline.tables[0], match="cut.p.t"),))
    later = LaterLoad("bus", topic.table, (300,), MessagePlace(1, "m", 0, 1), 2)
    later_loads.record(Lake(unstarted(), topic.pipeline), [later])
    first = [(1, placed("r", 2, "b", 100, "true")), (1, placed("r", 4, "d", 100, "true"))]
    assert [] == topic.found(*first, (0, placed("r", 1, "a", 100, "last")))
    assert [] == topic.found((0, placed("r", 1, "a", 300, "true")), (1, placed("u", 2, "b2", 200)))
    rest = [(0, placed("u", 1, "a9", 310)), (1, placed("r", 2, "b3", 300, "last"))]
    [missing] = topic.found(*rest)
    assert ("rows_not_loaded", ('{"id":"4"}',)) == (missing.check, missing.failing)
    assert "--from m/0/1 --from m/1/3 " in missing.detail
    [lost] = topic.found((1, placed("u", 2, "late", 290)), (0, placed("u", 1, "a10", 320)))
    assert ("positions_started_again", 1) == (lost.check, lost.observed)
