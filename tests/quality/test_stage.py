"""Faults planted in a lake, each of which must turn exactly its own light."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace

import pytest

from ingest.change import Order, TableId, order_key
from ingest.config import load
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Column, Mirror, decision
from ingest.lake.names import mirror_path
from ingest.lake.schemas import BOOKS, BRONZE, CHANGES, CHECKS, DDL, DECISIONS, REJECTS, RUNS
from ingest.quality import stage
from ingest.quality.gather import gather
from ingest.quality.report import page

pytestmark = pytest.mark.spark

LONG_AGO = dt.datetime(2020, 2, 2, 12, 0, tzinfo=dt.UTC)
PIPELINE = """
pipeline: depot
lake: ./lake
sources:
  - {name: desk, kind: files, path: ./desk/*.jsonl, format: dts-canal}
  - {name: gate, kind: files, path: ./gate/*.jsonl, format: dts-canal}
quality:
  - table: depot.late
    freshness: 1h
  - table: depot.sound
    expect:
      - {type: expect_column_values_to_not_be_null, column: label}
      - {type: expect_column_values_to_be_between, column: id, max_value: 2, severity: warn}
      - {type: expect_column_values_to_be_unique, column: absent}
      - {type: expect_column_values_to_be_in_set, column: label, value_set: [other]}
"""
# op, key, position, batch; where there is a fifth member, the label that the row has
SOUND = [
    ("insert", 1, 1, 1),
    ("insert", 2, 2, 1),
    ("update", 2, 3, 1),
    ("insert", 3, 4, 1),
    ("delete", 3, 5, 1),
    ("insert", 4, 9, 2),
]
BROKEN = [("insert", 1, 1, 1), ("insert", 2, 2, 1), ("delete", 3, 3, 1), ("insert", 5, 4, 1)]
TIED = [
    ("insert", 1, 1, 1),
    ("insert", 1, 1, 1, "other"),
    ("insert", 2, 2, 1),
    ("insert", 2, 2, 1),
    ("partial", 7, 5, 1),
]
LATE = [("insert", 1, 1, 1), ("insert", 2, 2, 2)]
AGAIN = [("insert", 1, 5, 1), ("delete", 1, 2, 2), ("insert", 8, 1, 1), ("truncate", 0, 3, 1)]


def change(table, offset, op, key, position, batch, label="a"):
    """One row of ``changes``."""
    row = json.dumps({"id": str(key), "label": label})
    place = order_key(Order(0, 1, (position,), 0, (batch, 0, 0, offset), 0))
    after, before = (None, row) if op == "delete" else (None, None) if op == "truncate" else (row, None)
    partial, op = op == "partial", "update" if op == "partial" else op
    return (
        "change", batch, "desk", "desk/1.jsonl", 0, offset, 0, op, "depot", None, table, place, str(position),
        LONG_AGO, None, '["id"]', before, after, None, partial, None, None,
    )  # fmt: skip


def lines(changes):
    """The book lines that such changes make."""
    for batch in sorted({one[1] for one in changes}):
        mine = [one for one in changes if one[1] == batch]
        yield {
            "batch": batch, "source": "desk", "topic": "desk/1.jsonl", "partition": 0, "database": "depot",
            "table": mine[0][10], "messages": len(mine), "change_messages": len(mine), "changes": len(mine),
            "truncates": sum(one[7] == "truncate" for one in mine), "order_low": min(one[11] for one in mine),
            "order_high": max(one[11] for one in mine), "event_high": LONG_AGO,
        }  # fmt: skip


class Planted:
    """Writes what the stages before quality leave behind."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.changes: list[tuple[object, ...]] = []
        self.decided: list[tuple[object, ...]] = []

    def mirror(self, name, changes, rows, applied=2, delta="id BIGINT, label STRING"):
        """A mirror with its changes; ``rows`` is what really stands in it."""
        table = TableId("depot", None, name)
        path = mirror_path(table)
        offset = len(self.changes)
        self.changes += [change(name, offset + i, *one) for i, one in enumerate(changes)]
        columns = (Column("id", "id", "int64"), Column("label", "label", "text"))
        self.decided.append(decision(self.lake, Mirror(table, path, ("id",), columns), 1, "planted"))
        frame = self.lake.spark.createDataFrame(rows, delta).coalesce(1).write.format("delta")
        frame.option("txnAppId", self.lake.writer("gold", path)).option("txnVersion", applied).save(
            self.lake.path(path)
        )

    def write(self):
        """The product's own tables, one commit each."""
        self.lake.append_unguarded(self.changes, CHANGES)
        self.lake.append_unguarded(self.decided, DECISIONS)
        tables = {one[10] for one in self.changes}
        booked = [
            line
            for table in sorted(tables)
            for line in lines([one for one in self.changes if one[10] == table])
        ]
        booked.append({"batch": 2, "source": "gate", "messages": 10, "control": 6, "rejected": 3})
        self.rows(BOOKS, booked, self.lake.writer("silver", "books"), 2)
        receipts = [
            {"source": "desk", "count": len(self.changes), "file": "desk/1.jsonl", "start": 0, "end": 900},
            {"source": "gate", "count": 10, "file": "gate/1.jsonl", "start": 0, "end": 50},
            {"source": "gate", "count": 0, "file": "gate/1.jsonl", "start": 70, "end": 90},
        ]
        self.rows(
            BRONZE,
            [
                {"kind": "receipt", "batch": 2, "source": one["source"], "value": json.dumps(one).encode()}
                for one in receipts
            ],
        )
        cell = {
            "source": "desk",
            "batch": 1,
            "kind": "cell",
            "database": "depot",
            "table": "tied",
            "key": '{"id":2}',
            "column": "label",
            "reason": "does-not-fit",
            "detail": "no text",
            "raw": "?",
        }
        self.rows(REJECTS, [cell], self.lake.writer("gold/mirrors/depot/tied/0", "rejects"), 1)
        unread = {
            "batch": 1,
            "source": "desk",
            "topic": "desk/1.jsonl",
            "partition": 0,
            "offset": 400,
            "row": 0,
            "database": "depot",
            "table": "tied",
            "order_key": "x",
            "statement": "ALTER TABLE tied FROBNICATE",
            "class": "unknown",
        }
        self.rows(DDL, [unread])
        self.rows(
            RUNS,
            [
                {
                    "run": "r",
                    "pipeline": "depot",
                    "batch": 2,
                    "stage": "gold",
                    "state": "done",
                    "started_at": LONG_AGO,
                    "seconds": 1.0,
                    "counts": "{}",
                }
            ],
        )

    def rows(self, schema, rows, writer="", batch=0):
        """Append rows given by the columns that they have."""
        self.lake.ensure(schema)
        columns = self.lake.read(schema.name).schema
        frame = self.lake.spark.createDataFrame(
            [tuple(row.get(name) for name in columns.names) for row in rows], columns
        )
        out = frame.coalesce(1).write.format("delta").mode("append")
        if writer:
            out = out.option("txnAppId", writer).option("txnVersion", batch)
        out.save(self.lake.path(schema.name))


@pytest.fixture(scope="module")
def lake(spark, tmp_path_factory):
    """A small lake with every fault in it, and a mirror without any."""
    file = tmp_path_factory.mktemp("depot") / "depot.yaml"
    file.write_text(PIPELINE)
    planted = Planted(Lake(spark, load(file)))
    planted.mirror("sound", SOUND, [(1, "a"), (2, "a"), (4, "a")])
    planted.mirror("broken", BROKEN, [(1, "a"), (1, "a"), (None, "a"), (3, "a"), (5, "a")])
    planted.mirror(
        "tied", TIED, [(1, "a", 0), (2, "a", 0), (7, "a", 0)], delta="id BIGINT, label STRING, extra INT"
    )
    planted.mirror("late", LATE, [(1, "a")], applied=1)
    planted.mirror("again", AGAIN, [(1, "a")])
    planted.write()
    return planted.lake


@pytest.fixture(scope="module")
def checked(lake):
    """Everything checked once."""
    return stage.check(replace(lake))


def found(checked):
    """Observed numbers of everything that does not pass."""
    return {
        (one.subject.removeprefix("depot."), one.metric.check, one.state): one.metric.observed
        for one in checked.verdicts
        if one.state != "pass" and not one.metric.check.startswith("expect_")
    }


def test_each_fault_turns_its_own_light(checked):
    """A check that sees nothing, or sees what is not there, makes every green light worthless."""
    expected = {
        ("broken", "key_unique", "fail"): 1,
        ("broken", "key_not_null", "fail"): 1,
        ("broken", "missing_rows", "fail"): 1,
        ("broken", "ghost_rows", "fail"): 1,
        ("tied", "ambiguities", "warn"): 1,
        ("tied", "incomplete_rows", "warn"): 1,
        ("tied", "cell_rejects", "warn"): 1,
        ("tied", "ddl_pending", "warn"): 1,
        ("tied", "schema", "fail"): 1,
        ("late", "up_to_date", "fail"): 1,
        ("source gate", "books_balance", "fail"): 1,
        ("source gate", "gaps", "fail"): 1,
        ("source gate", "reject_rate", "warn"): 0.3,
    }
    seen = found(checked)
    assert 3600 < seen.pop(("late", "freshness", "fail"))
    assert expected == seen


def test_failing_keys_are_named(checked):
    """Whoever mends a table needs the keys, not their number."""
    keys = {
        one.metric.check: one.metric.failing
        for one in checked.verdicts
        if one.metric.mirror in ("depot.broken", "depot.tied") and one.metric.failing
    }
    assert {
        "key_unique": ('{"id":1}',),
        "key_not_null": ('{"id":null}',),
        "missing_rows": ('{"id":2}',),
        "ghost_rows": ('{"id":3}',),
        "ambiguities": ('{"id":1}',),
        "incomplete_rows": ('{"id":7}',),
        "cell_rejects": ('{"id":2}',),
    } == keys


def test_repetitions_are_counted_and_pass(checked):
    """At-least-once delivery repeats messages: that is known, and no fault."""
    told = [
        one
        for one in checked.verdicts
        if one.metric.check == "duplicates" and one.metric.mirror == "depot.tied"
    ]
    assert [("pass", 1)] == [(one.state, one.metric.observed) for one in told]


def test_expectations_are_judged(checked):
    """The user's own checks pass, warn, fail, or say that they cannot be judged."""
    states = [one.state for one in checked.verdicts if one.metric.check.startswith("expect_")]
    assert ["pass", "warn", "error", "fail"] == states
    broken = next(one for one in checked.verdicts if one.state == "error")
    assert "absent" in broken.sentence()


def test_failures_and_warnings_part(checked):
    """Only what makes a mirror wrong may end a run with exit code 1."""
    failures, warnings = stage.complaints(checked, {"depot.late"})
    assert not any("wait: the mirror" in text for text in failures)
    assert any("depot.broken" in text for text in failures)
    assert all("depot.tied" in text or "gate" in text or "depot.sound" in text for text in warnings)


def test_results_are_kept(lake, checked):
    """The report and the history read them from the lake."""
    rows = lake.read(CHECKS.name).where("run = '" + lake.run + "'")
    assert len(checked.verdicts) == rows.count()
    assert 2 == stage.last_checked(lake)


def test_new_batches_are_checked_alone(lake):
    """A tick that looks at everything again takes as long as the lake is large."""
    again = stage.check(replace(lake), since=1)
    mirrors = {one.metric.mirror for one in again.verdicts} - {None}
    assert {"depot.sound", "depot.late", "depot.again"} == mirrors
    assert {("late", "up_to_date", "fail"), ("source gate", "gaps", "fail")} < set(found(again))
    assert not any(subject in ("sound", "again") for subject, _, _ in found(again))


def test_the_report_says_it(lake, checked):
    """The page is made from what was kept, and comes to the same conclusion."""
    made = page(gather(replace(lake)))
    assert {"bad": 4, "warn": 0, "none": 0, "good": 1} == made.counts
    told = {(one.subject, one.title) for one in made.problems}
    assert ("depot.broken", "Rows are missing") in told
    assert ("depot.tied", "Cells did not fit their type: label") in told
    assert ("source gate", "Bytes were skipped") in told
