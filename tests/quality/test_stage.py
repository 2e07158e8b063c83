"""Faults planted in a lake, each of which must turn exactly its own light."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace

import pytest

from ingest.change import TableId
from ingest.config import load
from ingest.lake import decisions
from ingest.lake.decisions import Decision
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Column, Mirror, decision
from ingest.lake.names import mirror_path
from ingest.lake.rejects import dismiss
from ingest.lake.schemas import BOOKS, BRONZE, CHANGES, CHECKS, DDL, REJECTS, RUNS
from ingest.order import Order, order_key
from ingest.quality import stage
from ingest.quality.report import page
from ingest.quality.report_data import gather

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

LONG_AGO = dt.datetime(2020, 2, 2, 12, 0, tzinfo=dt.UTC)
PIPELINE = """
pipeline: depot
lake: ./lake
sources:
  - {name: desk, kind: files, path: ./desk/*.jsonl, format: dts-canal}
  - {name: gate, kind: files, path: ./gate/*.jsonl, format: dts-canal}
  - {name: plex, kind: files, path: ./plex/*.jsonl, format: dts-shareplex}
  - {name: bus, kind: kafka, bootstrap_servers: "nowhere:9092", topics: [parcels], format: debezium}
quality:
  - table: depot.late
    freshness: 1h
  - table: "*"
    source_counts: counts.csv
  - table: depot.sound
    expect:
      - {type: expect_column_values_to_not_be_null, column: label}
      - {type: expect_column_values_to_be_between, column: id, max_value: 2, severity: warn}
      - {type: expect_column_values_to_be_unique, column: absent}
    suite: expectations/sound.json
  - table: depot.sound
    on: changed
    expect:
      - {type: expect_column_values_to_be_between, column: id, min_value: 4, severity: warn}
"""
COUNTS = "table,rows\ndepot.sound,3\ndepot.counted,4\ndepot.nowhere,7\n"
SUITE = {
    "name": "sound",
    "expectations": [
        {
            "type": "expect_column_values_to_be_in_set",
            "kwargs": {"column": "label", "value_set": ["other"]},
            "severity": "critical",
        }
    ],
}
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
COUNTED = [("insert", 1, 1, 1)]
PARCELS = [("insert", 1, 1, 1), ("insert", 2, 2, 1), ("insert", 3, 3, 1)]
IN_TRANSACTION = {1: "tx1", 2: "tx1", 3: "tx2"}
AGAIN = [("insert", 1, 5, 1), ("delete", 1, 2, 2), ("insert", 8, 1, 1), ("truncate", 0, 3, 1)]


def source_of(table):
    """Which source a table's changes come from."""
    return "bus" if table == "parcels" else "desk"


def change(table, offset, op, key, position, batch, label="a"):
    """One row of ``changes``."""
    row = json.dumps({"id": str(key), "label": label})
    place = order_key(Order(0, 1, (position,), 0, (batch, 0, 0, offset), 0))
    after, before = (None, row) if op == "delete" else (None, None) if op == "truncate" else (row, None)
    partial, op = op == "partial", "update" if op == "partial" else op
    return (
        "change", batch, source_of(table), "desk/1.jsonl", 0, offset, 0, op, "depot", None, table, place, str(position),
        LONG_AGO, IN_TRANSACTION.get(key) if table == "parcels" else None, '["id"]', before, after, None, partial, None, None,
    )  # fmt: skip


def lines(changes):
    """The book lines that such changes make."""
    for batch in sorted({one[1] for one in changes}):
        mine = [one for one in changes if one[1] == batch]
        yield {
            "batch": batch, "source": source_of(mine[0][10]), "topic": "desk/1.jsonl", "partition": 0, "database": "depot",
            "table": mine[0][10], "messages": len(mine), "change_messages": len(mine), "changes": len(mine),
            "truncates": sum(one[7] == "truncate" for one in mine), "order_low": min(one[11] for one in mine),
            "order_high": max(one[11] for one in mine), "event_high": LONG_AGO,
        }  # fmt: skip


class Planted:
    """Writes what the stages before quality leave behind."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.changes: list[tuple[object, ...]] = []
        self.decided: list[Decision] = []
        self.bronze: list[dict[str, object]] = []

    def mirror(self, name, changes, rows, applied=2, delta="id BIGINT, label STRING"):
        """A mirror with its changes; ``rows`` is what really stands in it."""
        table = TableId("depot", None, name)
        path = mirror_path(table)
        offset = len(self.changes)
        self.changes += [change(name, offset + i, *one) for i, one in enumerate(changes)]
        columns = (Column("id", "id", "int64"), Column("label", "label", "text"))
        self.decided.append(decision(Mirror(table, path, ("id",), columns), 1, "planted"))
        frame = self.lake.spark.createDataFrame(rows, delta).coalesce(1).write.format("delta")
        frame.option("txnAppId", self.lake.writer("gold", path)).option("txnVersion", applied).save(
            self.lake.path(path)
        )

    def write(self):
        """The product's own tables, one commit each."""
        self.lake.append_unguarded(self.changes, CHANGES)
        decisions.append(self.lake, self.decided)
        tables = {one[10] for one in self.changes}
        booked = [
            line
            for table in sorted(tables)
            for line in lines([one for one in self.changes if one[10] == table])
        ]
        booked.append({"batch": 2, "source": "gate", "messages": 10, "control": 4, "rejected": 5})
        booked.append({"batch": 1, "source": "plex", "messages": 3, "control": 3})
        booked.append({"batch": 1, "source": "bus", "messages": 2, "control": 2})
        self.rows(BOOKS, booked, self.lake.writer("silver", "books"), 2)
        desk = sum(one[2] == "desk" for one in self.changes)
        self.receipt("desk", {"count": desk, "file": "desk/1.jsonl", "start": 0, "end": 900})
        self.receipt("gate", {"count": 10, "file": "gate/1.jsonl", "start": 0, "end": 50})
        self.receipt("gate", {"count": 0, "file": "gate/1.jsonl", "start": 70, "end": 90})
        self.receipt("plex", {"count": 3, "file": "plex/1.jsonl", "start": 0, "end": 9}, 1)
        for n, start, end, count in ((0, 0, 5, 3), (0, 8, 10, 2), (1, 0, 4, 0), (1, 6, 9, 0)):
            read = {"topic": "parcels", "partition": n, "from": start, "to": end, "count": count}
            self.receipt("bus", {**read, "cluster": "c", "topic_id": "i"}, 1)
        accepted = {"topic": "parcels", "partition": 1, "offset": 4}
        loss = "was trimmed by retention: offsets 4 to 5 were not read"
        decisions.append(self.lake, [Decision(decisions.ACCEPT_GAP, "bus", accepted, 2, loss)])
        for name, count in (("tx1", 3), ("tx2", 1)):
            share = [{"data_collection": "depot.parcels", "event_count": count}]
            share.append({"data_collection": "depot.left_out", "event_count": 9})
            end = {"status": "END", "id": name, "event_count": count + 9, "data_collections": share}
            self.message("bus", end)
        for transaction, idx in ((7, "1/3"), (7, "2/3"), (8, "1/1")):
            self.message("plex", {"meta": {"op": "ins", "trans": transaction, "scn": 1, "idx": idx}})
        self.rows(BRONZE, self.bronze)
        self.poison()
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
        dismissed = {**cell, "key": '{"id":1}'}
        self.rows(REJECTS, [cell, dismissed], self.lake.writer("gold/mirrors/depot/tied/0", "rejects"), 1)
        unread = {
            "batch": 1,
            "source": "desk",
            "topic": "desk/1.jsonl",
            "partition": 0,
            "offset": 400,
            "row": 0,
            "database": "depot",
            "table": "tied",
            "order_key": order_key(Order(0, 1, (1,), 0, (1, 0, 0, 0), 0)),
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

    def receipt(self, source, told, batch=2):
        """What bronze wrote of a range that it read."""
        value = json.dumps(told).encode()
        self.bronze.append({"kind": "receipt", "batch": batch, "source": source, "value": value})

    def message(self, source, told):
        """A message of the first batch."""
        value = json.dumps(told).encode()
        self.bronze.append({"kind": "message", "batch": 1, "source": source, "value": value})

    def poison(self):
        """Five messages that could not be decoded: one was replayed since, one dismissed."""
        bad = [
            {"source": "gate", "topic": "gate/1.jsonl", "partition": 0, "offset": n, "batch": 2,
             "kind": "message", "reason": "bad-json", "detail": "the text ends inside an object"}
            for n in range(5)
        ]  # fmt: skip
        self.rows(REJECTS, bad)
        self.rows(
            BRONZE, [{**bad[0], "batch": 3, "kind": "replay", "reason": None, "value": b'{"batch": 2}'}]
        )

    def dismiss(self, *where):
        """A person's word on rejects."""
        found = self.lake.read(REJECTS.name).where(" AND ".join(where))
        dismiss(self.lake, [row.asDict() for row in found.collect()], "")

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
    folder = tmp_path_factory.mktemp("depot")
    file = folder / "depot.yaml"
    (folder / "expectations").mkdir()
    (folder / "expectations" / "sound.json").write_text(json.dumps(SUITE))
    (folder / "counts.csv").write_text(COUNTS)
    file.write_text(PIPELINE)
    planted = Planted(Lake(spark, load(file)))
    planted.mirror("sound", SOUND, [(1, "a"), (2, "a"), (4, "a")])
    planted.mirror("broken", BROKEN, [(1, "a"), (1, "a"), (None, "a"), (3, "a"), (5, "a")])
    planted.mirror(
        "tied", TIED, [(1, "a", 0), (2, "a", 0), (7, "a", 0)], delta="id BIGINT, label STRING, extra INT"
    )
    planted.mirror("late", LATE, [(1, "a")], applied=1)
    planted.mirror("again", AGAIN, [(1, "a")])
    planted.mirror("counted", COUNTED, [(1, "a")])
    planted.mirror("parcels", PARCELS, [(1, "a"), (2, "a"), (3, "a")])
    planted.write()
    planted.dismiss("kind = 'message'", "offset = 1")
    planted.dismiss("kind = 'cell'", "key LIKE '%1%'")
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
        ("source bus", "gaps", "fail"): 1,
        ("source bus", "losses", "warn"): 1,
        ("source bus", "missing_parts", "warn"): 1,
        ("source plex", "missing_parts", "warn"): 1,
        ("counted", "row_count", "fail"): 3,
        ("nowhere", "row_count", "fail"): 7,
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
    assert ["pass", "warn", "error", "fail", "warn"] == states
    broken = next(one for one in checked.verdicts if one.state == "error")
    assert "absent" in broken.sentence()


def test_rows_that_are_not_as_expected_are_named(checked):
    """A number of bad rows sends people searching; their keys send them there."""
    keys = [one.metric.failing for one in checked.verdicts if one.metric.check.startswith("expect_")]
    assert [(), ('{"id":4}',), (), ('{"id":1}', '{"id":2}', '{"id":4}'), ('{"id":1}', '{"id":2}')] == keys


def test_each_fault_is_said_in_words(checked):
    """A steward reads the sentence, not the name of the check."""
    said = {
        (one.subject, one.metric.check): one.sentence() for one in checked.verdicts if one.state != "pass"
    }
    words = {
        ("depot.broken", "key_unique"): "Rows beyond the first of their key: 1 (at most 0)",
        ("depot.broken", "key_not_null"): "Rows with a NULL in a key column: 1 (at most 0)",
        ("depot.broken", "missing_rows"): "Live keys among the changes that the mirror lacks: 1 (at most 0)",
        ("depot.late", "up_to_date"): "1 decoded batch with 1 change not applied yet",
        ("depot.late", "freshness"): "Age of the newest source commit",
        ("depot.tied", "ambiguities"): "Ties: two different changes of one key at one place: 1",
        ("depot.tied", "cell_rejects"): "1 cell does not fit: not a text, for example '?'",
        ("depot.tied", "ddl_pending"): "1 waits, the last: 'ALTER TABLE tied FROBNICATE'",
        ("depot.tied", "schema"): "extra is INT, decided absent",
        ("depot.counted", "row_count"): "the source counts 4 rows, the mirror has 1",
        ("depot.nowhere", "row_count"): "the source counts 7 rows, there is no mirror",
        ("source gate", "reject_rate"): "3 of 10 messages could not be decoded",
        ("source gate", "books_balance"): "10 messages landed, 10 are in the books",
        ("source gate", "gaps"): "gate/1.jsonl bytes 50 to 70",
        ("source bus", "gaps"): "parcels/0 offsets 5 to 8",
        ("source bus", "losses"): "parcels/1 was trimmed by retention: offsets 4 to 5 were not read",
        ("source bus", "missing_parts"): "1 transaction lacks changes: tx1 has 2 of 3",
        ("source plex", "missing_parts"): "1 transaction lacks changes: 7 has 2 of 3",
    }
    assert {} == {about: said.get(about) for about, text in words.items() if text not in said.get(about, "")}


def test_failures_and_warnings_part(checked):
    """Only what makes a mirror wrong may end a run with exit code 1."""
    failures, warnings = stage.complaints(checked, {("up_to_date", "depot.late")})
    assert not any("not applied yet" in text for text in failures)
    assert any("depot.broken" in text for text in failures)
    again = stage.complaints(checked, {("ddl_pending", "depot.tied"), ("gaps", "source gate")})
    spoken = [text for text in stage.complaints(checked)[1] if text not in again[1]]
    assert len(spoken) == 1
    assert "depot.tied" in spoken[0]
    assert any("source gate" in text for text in again[0])  # a failure is said, whoever spoke of it
    mild = ("depot.tied", "source gate", "depot.sound", "source bus", "source plex")
    assert all(text.startswith(mild) for text in warnings)


def test_results_are_kept(lake, checked):
    """The report and the history read them from the lake."""
    rows = lake.read(CHECKS.name).where("run = '" + lake.run + "'")
    assert len(checked.verdicts) == rows.count()
    assert 2 == stage.last_checked(lake)


def test_new_batches_are_checked_alone(lake):
    """A tick that looks at everything again takes as long as the lake is large."""
    again = stage.check(replace(lake), since=1)
    mirrors = {one.metric.mirror for one in again.verdicts} - {None}
    assert {
        "depot.sound",
        "depot.late",
        "depot.again",
        "depot.nowhere",
    } == mirrors  # the last is counted, not there
    seen = {
        ("late", "up_to_date", "fail"),
        ("source gate", "gaps", "fail"),
        ("source bus", "missing_parts", "warn"),
    }
    assert seen < set(found(again))
    # what is sent again stands before what the mirror holds already, which a person should know
    assert [("again", "old_positions", "warn")] == [
        one for one in found(again) if one[0] in ("sound", "again")
    ]
    assert "pass" == [one.state for one in again.verdicts if one.metric.check.startswith("expect_")][-1]


def test_the_report_says_it(lake, checked):
    """The page is made from what was kept, and comes to the same conclusion."""
    made = page(gather(replace(lake)))
    assert {"bad": 6, "warn": 1, "none": 0, "good": 1} == made.counts
    told = {(one.subject, one.title) for one in made.problems}
    assert ("depot.broken", "Rows are missing") in told
    assert "depot.nowhere" in {subject for subject, _ in told}
    assert ("depot.tied", "Cells did not fit their type: label") in told
    assert ("source gate", "Messages were skipped") in told
