"""A lake with planted faults."""

from __future__ import annotations

import datetime as dt
import json

from ingest.change import TableId
from ingest.ledgers import decisions
from ingest.ledgers.decisions import Decision
from ingest.ledgers.mirrors import Column, Mirror, decision
from ingest.ledgers.rejects import dismiss
from ingest.order import Order, order_key
from ingest.store.names import mirror_path
from ingest.tables.lake import Lake
from ingest.tables.schemas import BOOKS, BRONZE, CHANGES, DDL, REJECTS, RUNS

LONG_AGO = dt.datetime(2020, 2, 2, 12, 0, tzinfo=dt.UTC)
PIPELINE = """
pipeline: depot
lake: ./lake
engine: auto
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
    cells_checked: 0
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
    """Writes what the stages before quality would have written."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.changes: list[tuple[object, ...]] = []
        self.decided: list[Decision] = []
        self.bronze: list[dict[str, object]] = []

    def mirror(self, name, changes, rows, applied=2, delta="id BIGINT, label STRING"):
        """A mirror with its changes; ``rows`` are the rows that it really holds."""
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
            "detail": "not a text",
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
            "order_key": order_key(Order(0, 1, (9,), 0, (1, 0, 0, 0), 0)),
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

    def receipt(self, source, content, batch=2):
        """What bronze wrote of a range that it read."""
        value = json.dumps(content).encode()
        self.bronze.append({"kind": "receipt", "batch": batch, "source": source, "value": value})

    def message(self, source, content):
        """A message of the first batch."""
        value = json.dumps(content).encode()
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
