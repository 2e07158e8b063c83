"""The checks must report where the order of changes rests on something that cannot be verified."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import duckdb
import pytest

from ingest.change import TableId
from ingest.config import Pipeline
from ingest.config.model import Source
from ingest.gold.plan.steps import steps_of
from ingest.order import Order, order_key
from ingest.quality import ledgers, order_checks
from ingest.quality.order_checks import mixed_topics
from ingest.quality.ordered_lane import OrderedLane
from ingest.quality.statement_order import Arrived, apart, unsure
from ingest.quality.subjects import CheckedLane, CheckedMirror, survey
from ingest.tables import commits
from ingest.tables.lake import Lake
from ingest.tables.snapshots import CARRIED_SQL
from tests.lakes import change, touch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE, OTHER = ("a.jsonl", None), ("b.jsonl", None)
SECOND = 1718000042
CHECKS = ("event_order", "unplaced_changes", "re_reads_ignored", "old_positions", "repeated_moves")


def row(at: int, counter: int, stream: tuple[str, int | None] = FILE) -> Arrived:
    """A row of the second, as it arrived."""
    return Arrived(stream, (1, at), (SECOND, counter))


def event(at: int, *counter: int) -> Arrived:
    """A TRUNCATE of the second, placed after the row of that counter."""
    return Arrived(FILE, (1, at), (SECOND, *counter), "TRUNCATE t")


@pytest.mark.parametrize(
    ("events", "rows", "expected"),
    [
        pytest.param([event(5, 1)], [row(1, 1), row(9, 2)], 0, id="in order"),
        pytest.param([event(5)], [row(9, 1)], 0, id="first of its second"),
        pytest.param([event(5, 1), event(8, 2)], [row(1, 1), row(6, 2), row(9, 3)], 0, id="emptied twice"),
        pytest.param(
            [event(5, 1), event(8, 1)], [row(1, 1), row(6, 2), row(7, 1), row(9, 2)], 0, id="all again"
        ),
        pytest.param(
            [event(5, 1), event(8, 2)], [row(1, 1), row(6, 2), row(9, 2)], 1, id="again from the event"
        ),
        pytest.param([event(5)], [row(1, 1, OTHER)], 1, id="rows in another file"),
        pytest.param([event(5, 3)], [row(1, 3), row(9, 2)], 1, id="a counter out of order after it"),
        pytest.param([event(5, 3)], [row(1, 4), row(2, 3)], 1, id="a counter out of order before it"),
        pytest.param(
            [event(5, 2)], [row(1, 2), row(2, 1)], 1, id="rows in another order than their counters"
        ),
        pytest.param([], [row(1, 2), row(2, 1)], 0, id="no event"),
    ],
)
def test_rows_that_may_be_on_the_wrong_side_are_counted(
    events: list[Arrived], rows: list[Arrived], expected: int
) -> None:
    """A TRUNCATE without a position clears rows that came after it, or spares rows that came before it."""
    assert expected == unsure(events, rows)


# --- events of weak dialects in another partition -------------------------------------------------

ORDERS = TableId("shop", None, "orders")


class Books:
    """A lake whose books name the partitions that a table's rows came from."""

    pipeline = Pipeline("p", Path("p.yaml"), "lake", ())

    def __init__(self, *partitions: int) -> None:
        self.database = duckdb.connect()
        self.database.execute(
            'CREATE TABLE books (source TEXT, topic TEXT, partition INT, database TEXT, "schema" TEXT, "table" TEXT, '
            "changes INT, deletes INT DEFAULT 0, control INT DEFAULT 0)"
        )
        for one in partitions:
            self.database.execute(
                "INSERT INTO books VALUES ('s', 't', ?, 'shop', NULL, 'orders', 1, 0, 0)", [one]
            )
        self.database.execute("INSERT INTO books VALUES ('s', 't', 7, 'shop', NULL, 'other', 1, 0, 0)")

    def decoded(self) -> int:
        """The last batch whose messages are decoded, which commands name."""
        return 3

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The rows of a query over the books."""
        found = self.database.execute(query.replace("{books}", "books"))
        names = [one[0] for one in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def placed(*sequence: int) -> str:
    """An order key; without a sequence arrival alone decides."""
    return order_key(Order(0, 1, sequence, 0, (2, 0, 0, 5), 0))


@pytest.mark.parametrize(
    ("kind", "rows", "event", "truncates", "expected"),
    [
        pytest.param("kafka", [0], (0, placed()), 0, 0, id="a statement in the partition of the rows"),
        pytest.param("kafka", [0], (1, placed()), 0, 1, id="a statement in another one"),
        pytest.param("kafka", [0, 1], (1, placed()), 0, 1, id="rows in two partitions"),
        pytest.param("kafka", [0], (1, placed(9)), 0, 0, id="positions put them in order"),
        pytest.param("kafka", [0], None, 1, 0, id="a truncate in the partition of the rows"),
        pytest.param("kafka", [0, 1], None, 1, 1, id="a truncate, and rows in two partitions"),
        pytest.param("files", [0], (1, placed()), 0, 0, id="files have one order"),
    ],
)
def test_events_of_another_partition_are_in_doubt(
    kind: str, rows: list[int], event: tuple[int, str] | None, truncates: int, expected: int
) -> None:
    """Partitions have no common order: the same messages in one batch or in two would give other mirrors."""
    statements = [
        {"batch": 2, "topic": "t", "partition": partition, "order_key": key}
        for partition, key in ([event] if event else [])
    ]
    lane = CheckedLane(
        "s", ORDERS, 2, 1, 0, 0, 0, truncates, truncates, 1, placed(), placed(), "", None, len(rows)
    )
    source = Source("s", kind, "canal")
    one = OrderedLane(cast("Lake", Books(*rows)), CheckedMirror(ORDERS, ""), lane, source, 1, statements)
    assert expected == apart(one)


@pytest.mark.parametrize(
    ("kind", "database", "topics", "expected"),
    [
        pytest.param("kafka", None, ["a", "b"], 2, id="two topics, one bare name"),
        pytest.param("kafka", None, ["a", "a"], 0, id="two partitions of one topic"),
        pytest.param("kafka", "shop", ["a", "b"], 0, id="the database distinguishes them"),
        pytest.param("files", None, ["a", "b"], 0, id="two files"),
    ],
)
def test_topics_that_share_a_bare_name_are_counted(
    kind: str, database: str | None, topics: list[str], expected: int
) -> None:
    """Flattened rows name no database: equal names of two databases would become one mirror."""
    books = Books()
    for one in topics:
        books.database.execute(
            "INSERT INTO books VALUES ('s', ?, 0, ?, NULL, 'orders', 1, 0, 0)", [one, database]
        )
    table = TableId(database, None, "orders")
    lane = CheckedLane("s", table, 2, 1, 0, 0, 0, 0, 0, 1, "", "", "", None, len(topics))
    source = Source("s", kind, "debezium")
    found = mixed_topics(OrderedLane(cast("Lake", books), CheckedMirror(table, ""), lane, source, 1))
    assert expected == sum(one.observed for one in found)


# --- through a whole run ------------------------------------------------------------------------------


def oms(op: str, counter: int | None, members: dict[str, Any]) -> str:
    """A message of OMS Default in one second."""
    meta = {
        "record_primary_key": "id" if counter else None, "dbType": "OB_MYSQL", "table_name": "t", "db": "cut",
        "storeDataSequence": None if counter is None else int(f"{SECOND}{counter:05d}"),
        "timestamp": str(SECOND), "ddlType": "TRUNCATE_TABLE" if op == "DDL" else None,
    }  # fmt: skip
    return (
        json.dumps({"prevStruct": None, "postStruct": members, "allMetaData": meta, "recordType": op}) + "\n"
    )


def maxwell(kind: str, word: str, offset: int | None, **more: Any) -> str:
    """A row of Maxwell, with its place in the log if it has one."""
    message = {"database": "mixed", "table": "t", "type": kind, "ts": SECOND, "primary_key_columns": ["id"]}
    message |= {"data": {"id": 1, "word": word}, **more}
    return json.dumps(message | ({"position": f"bin.000001:{offset}"} if offset else {})) + "\n"


def canal(kind: str, serial: int, word: str, name: str) -> str:
    """A row of DTS Canal."""
    return change(kind, "t", serial, {"id": "1", "word": word}, database=name, id=serial)


def ommove(name: str, again: bool) -> str:
    """A key change of OMS Canal without its unchanged large column, to a key whose row is deleted before it.

    Both are delivered again after the old key came back.
    """

    def row(kind: str, data: dict[str, Any], old: dict[str, Any] | None = None) -> str:
        types = {"id": "int", "memo": "longtext"}
        message = {
            "data": [data],
            "database": name,
            "table": "t",
            "es": 1,
            "isDdl": False,
            "mysqlType": types,
        }
        return json.dumps(message | {"old": old and [old], "pkNames": ["id"], "type": kind}) + "\n"

    gone = row("DELETE", {"id": 3, "memo": "old"})
    move = row("UPDATE", {"id": 3, "memo": None}, {"id": 1})
    back = row("INSERT", {"id": 1, "memo": "another"})
    first = row("INSERT", {"id": 3, "memo": "old"}) + row("INSERT", {"id": 1, "memo": "own"})
    return ("" if again else first) + gone + move + back


PARTS = {
    "cut": (
        "oms-default",
        oms("INSERT", 1, {"id": 1}) + oms("INSERT", 2, {"id": 2}),
        oms("DDL", None, {"ddl": "TRUNCATE TABLE t"}) + oms("INSERT", 7, {"id": 3}),
    ),
    "mixed": ("maxwell", maxwell("insert", "a", 100), maxwell("bootstrap-insert", "the true row", None)),
    "read": ("dts-canal", canal("INSERT", 500, "a", "read"), canal("INIT", 400, "the true row", "read")),
    "older": ("dts-canal", canal("INSERT", 500, "a", "older"), canal("INSERT", 300, "a", "older")),
    "again": ("oms-canal", ommove("again", False), ommove("again", True)),
    "fine": ("dts-canal", canal("INSERT", 500, "a", "fine"), canal("INIT", 600, "b", "fine")),
}


@pytest.mark.parametrize(
    ("topic", "is_carried"),
    [("carried/yard.hall/7.ingest-snapshot.jsonl", True), ("carried/part-1.jsonl", False)],
)
def test_a_landing_folder_may_be_called_as_that_of_carried_rows(topic: str, is_carried: bool) -> None:
    """Late rows of files in such a folder were no changes at old positions, and rejected ones were overlooked by a swap."""
    assert [(is_carried,)] == duckdb.sql(f"SELECT {CARRIED_SQL} FROM (SELECT '{topic}' AS topic)").fetchall()


@pytest.mark.spark
@pytest.mark.e2e
def test_each_doubt_is_said(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mirror that may be wrong, with all checks green, is the worst of all.

    ``cut`` has its TRUNCATE in another file than the rows of its second before it.
    """
    from ingest.config import load
    from ingest.run import Warm, run
    from ingest.tables.lake import Lake

    file = tmp_path / "doubts.yaml"
    sources = "".join(
        f"  - {{name: {name}, kind: files, path: './{name}-*.jsonl', format: {part[0]}, settle: 1s}}\n"
        for name, part in PARTS.items()
    )
    file.write_text(f"pipeline: doubts\nlake: ./lake\nengine: auto\nsources:\n{sources}", "utf-8")
    warm = Warm()
    for number in (1, 2):
        for name, part in PARTS.items():
            path = tmp_path / f"{name}-{number}.jsonl"
            path.write_text(part[number], "utf-8")
            touch(path, 3600 - number)
        result = run(spark, load(file), warm=warm)
        assert [] == [one.message for one in result.mirrors if one.state != "done"]
        rows = Lake(spark, load(file)).read("checks").where(f"batch = {number}").collect()
        found = {(one["mirror"], one["check"]): one["state"] for one in rows if one["check"] in CHECKS}
        if number == 1:
            assert {} == found
    assert {
        ("cut.t", "event_order"): "fail",
        ("mixed.t", "unplaced_changes"): "fail",
        ("again.t", "repeated_moves"): "fail",
        ("read.t", "re_reads_ignored"): "warn",
        ("read.t", "old_positions"): "warn",
        ("older.t", "old_positions"): "warn",
    } == found
    monkeypatch.setattr(commits, "within_reach", lambda _path: False)  # as where only Hadoop reads the log
    lake = Lake(spark, load(file))
    books = ledgers.read(lake, 1, 2)
    chosen = survey(lake, books.lanes, steps=steps_of(lake)).subjects
    assert {*found} == {
        (one.mirror, one.check) for one in order_checks.of_mirrors(lake, chosen, 1, books.statements)
    }
