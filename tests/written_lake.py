"""A lake written without Spark, from messages: tests of what only looks at one cost seconds.

Bronze, the decoding and the fold are the product's own; only the files and logs are written here.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from ingest.change import TableId
from ingest.config import load
from ingest.fold import Placed, fold
from ingest.ledgers.books import Line, merged
from ingest.ledgers.decisions import SCHEMA
from ingest.ledgers.mirrors import Column, Mirror
from ingest.ledgers.stamps import change_of
from ingest.order import order_of
from ingest.silver.lift import INPUT, Lifting, lift
from ingest.store.names import column_name, mirror_path
from ingest.tables.schemas import BOOKS, BRONZE, BY_NAME, CHANGES, CHECKS, DDL, DECISIONS, REJECTS, RUNS
from ingest.tables.tables import LakeReader
from tests.lakes import FORMAT

NOW = dt.datetime(2026, 3, 14, 9, 26, 53, tzinfo=dt.UTC)
_ARROW = {"STRING": pa.string(), "BIGINT": pa.int64(), "INT": pa.int32(), "DOUBLE": pa.float64(), "BOOLEAN": pa.bool_(),
          "BINARY": pa.binary(), "TIMESTAMP": pa.timestamp("us", tz="UTC"), "DATE": pa.date32()}  # fmt: skip
_HEADERS = BRONZE.arrow.field("headers").type


def commit(
    folder: Path, types: dict[str, str], rows: Sequence[dict[str, Any]], *, by: Sequence[str] = (),
    writer: tuple[str, int] | None = None, metadata: dict[str, Any] | None = None,
    mode: Literal["append", "overwrite"] = "append",
) -> None:  # fmt: skip
    """Append rows to a Delta table, which the first commit makes, or put them in place of all others."""
    columns = {
        name: pa.array([row.get(name) for row in rows], _ARROW.get(kind, _HEADERS))
        for name, kind in types.items()
    }
    done = CommitProperties(
        {"userMetadata": json.dumps(metadata or {})},
        app_transactions=[Transaction(*writer)] if writer else [],
    )
    write_deltalake(
        folder,
        pa.table(columns),
        partition_by=list(by),
        mode=mode,
        schema_mode=mode if mode == "overwrite" else None,
        commit_properties=done,
    )


def reject(lake: Path) -> None:
    """Add a message that is no JSON to what a lake could not use."""
    place = {"source": "bins", "topic": "x", "partition": 0, "offset": 1, "batch": 5}
    commit(lake / "rejects", REJECTS.types, [{**place, "kind": "message", "reason": "bad-json"}])


class WrittenLake:
    """A pipeline over one file of Canal messages, and its lake as runs would have left it."""

    def __init__(self, folder: Path, name: str = "depot", more: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / f"{name}.yaml"
        self.file.write_text(
            f"pipeline: {name}\nlake: ./{name}-lake\nengine: auto\nsources:\n"
            f"  - {{name: bins, kind: files, path: ./{name}-*.jsonl, format: {FORMAT}, settle: 1s}}\n{more}",
            "utf-8",
        )
        self.name, self.batch, self.decided, self.offset = name, 0, 0, 0
        self.pipeline = load(self.file)
        self.lake = Path(self.pipeline.lake)
        self.lake.mkdir(exist_ok=True)
        self.changes: list[dict[str, Any]] = []
        self.columns: dict[TableId, dict[str, str]] = {}
        self.now = NOW

    @property
    def reader(self) -> LakeReader:
        """The lake, for questions."""
        return LakeReader(self.pipeline)

    def product(self, name: str, rows: Iterable[dict[str, Any]], stage: str = "", **metadata: Any) -> None:
        """Append rows to one of the product's tables."""
        schema = BY_NAME[name]
        writer = (f"{self.name}/{stage}/{name}/0", self.batch) if stage else None
        commit(
            self.lake / name,
            schema.types,
            list(rows),
            by=schema.partition_by,
            writer=writer,
            metadata=metadata,
        )

    def take(self, messages: Sequence[str], *, held: dict[str, str] | None = None, fold: bool = True) -> None:
        """One batch, from messages to mirrors; of those ``held`` only the message is recorded."""
        self.batch += 1
        rows = []
        for text in messages:
            data = text.encode()
            rows.append({"kind": "message", "batch": self.batch, "source": "bins", "topic": "bins-1.jsonl", "partition": 0,
                         "offset": self.offset, "value": data, "ingested_at": self.now, "day": self.now.date()})  # fmt: skip
            self.offset += len(data) + 1
        self.product(BRONZE.name, rows, "bronze")
        batch = pa.RecordBatch.from_pylist(rows, BRONZE.part(*INPUT))
        lifted = [row for page in lift(Lifting(self.pipeline))(iter([batch])) for row in page.to_pylist()]
        self.product(CHANGES.name, lifted, "silver")
        decoded = [(row, json.loads(row["payload"])) for row in lifted if row["payload"]]
        parsed = [(row | {"statement": payload["statement"], "class": payload["parsed"]["kind"], "reason": payload["parsed"]["reason"],
                          "effects": json.dumps(payload["parsed"]["effects"])}) for row, payload in decoded if row["kind"] == "ddl"]  # fmt: skip
        self.product(DDL.name, parsed, "silver")
        self.product(REJECTS.name, [
            {**{name: row[name] for name in ("source", "topic", "partition", "offset", "batch", "database", "schema", "table")},
             "stage": "silver", "kind": "message", "reason": payload["reason"], "detail": payload["detail"], "decoder": "1"}
            for row, payload in decoded if row["kind"] == "reject"
        ], "silver")  # fmt: skip
        lines = merged(Line.from_json(row["payload"]) for row in lifted if row["kind"] == "book")
        self.product(BOOKS.name, map(book, lines), "silver")
        self.changes += [row for row in lifted if row["kind"] == "change"]
        for line in lines:
            if line.changes:
                self.columns.setdefault(line.table_id, {}).update(line.columns)
        self._run(lines, held or {}, fold=fold)
        self.now += dt.timedelta(minutes=10)

    def _run(self, lines: Sequence[Line], held: dict[str, str], *, fold: bool) -> None:
        counts = {"read": sum(line.messages for line in lines), "changes": sum(line.changes for line in lines),
                  "ddl": sum(line.ddl for line in lines), "control": 0, "rejected": sum(line.rejected for line in lines)}  # fmt: skip
        head = {
            "run": f"run-{self.batch}",
            "pipeline": self.name,
            "batch": self.batch,
            "started_at": self.now,
        }
        runs = [
            {
                **head,
                "stage": stage,
                "state": "done",
                "seconds": seconds,
                "counts": json.dumps(counts),
                "message": "",
            }
            for stage, seconds in (
                ("bronze", 0.9),
                ("silver", 2.1),
                ("gold", 4.0 + self.batch % 3),
                ("quality", 1.2),
            )
        ]
        checks = []
        for table in dict.fromkeys(line.table_id for line in lines if line.changes):
            name = str(table)
            state = "held" if name in held else "done"
            version = self.mirror(table) if state == "done" and fold else None
            runs.append({**head, "stage": "gold", "subject": name, "state": state, "seconds": 0.5, "version": version,
                         "counts": json.dumps({"inserted": 2, "updated": 1}), "message": held.get(name, "")})  # fmt: skip
            checks += [
                self.check(name, check, 0.0) for check in ("key_unique", "missing_rows", "surplus_rows")
            ]
        for name, text in held.items():
            runs.append(
                {
                    **head,
                    "stage": "alarm",
                    "subject": name,
                    "state": "alarm",
                    "seconds": 0.0,
                    "counts": "{}",
                    "message": f"{name} held: {text}",
                }
            )
        self.product(CHECKS.name, checks, checked=self.batch)
        self.product(RUNS.name, runs, complete=self.batch, lagging=[])

    def check(
        self, mirror: str, name: str, observed: float, state: str = "pass", detail: str = ""
    ) -> dict[str, Any]:
        """A row of `checks`."""
        return {"run": f"run-{self.batch}", "batch": self.batch, "mirror": mirror, "check": name, "severity": "error", "state": state,
                "observed": observed, "detail": detail, "checked_at": self.now + dt.timedelta(minutes=1), "failing": "[]"}  # fmt: skip

    def decide(
        self, kind: str, subject: str, value: dict[str, Any], by: str = "run", reason: str = ""
    ) -> None:
        """A row of `decisions`."""
        self.decided += 1
        self.product(DECISIONS.name, [{"decided_at": self.now, "kind": kind, "subject": subject, "batch": self.batch, "by": by,
                                       "value": json.dumps(value), "reason": reason, "number": self.decided}])  # fmt: skip

    def mirror(self, table: TableId) -> int:
        """Write a mirror again as the fold of its changes; gives its version."""
        of_table = [
            row for row in self.changes if (row["database"], row["schema"], row["table"]) == tuple(table)
        ]
        keys = tuple(json.loads(of_table[0]["keys"]))
        taken: set[str] = set()
        columns = tuple(
            Column(name, column_name(name, taken), kind) for name, kind in self.columns[table].items()
        )
        made = Mirror(table, mirror_path(table), keys, columns)
        if (path := self.lake / made.path) and not path.exists():
            self.decide(SCHEMA, made.path, made.to_value())
        rows = fold(
            (Placed(order_of(row["order_key"]), change_of(row)) for row in of_table), keys,
            {column.name: column.type for column in columns},
        )  # fmt: skip
        cells = [
            {column.column: _cell(row.values.get(column.name), column.delta) for column in columns}
            for row in rows.values()
        ]
        commit(
            self.lake / made.path,
            {column.column: column.delta for column in columns},
            cells,
            writer=(f"{self.name}/gold/{made.path}/0", self.batch),
            metadata={"batch": self.batch},
            mode="overwrite",
        )
        return DeltaTable(self.lake / made.path).version()


def _cell(text: str | None, delta: str) -> Any:
    """A cell as its column holds it; what does not fit is NULL."""
    if text is None or delta == "STRING":
        return text
    return int(text) if text.lstrip("-").isdecimal() else None


def book(line: Line) -> dict[str, Any]:
    """A row of `books`."""
    fields = {name: getattr(line, name) for name in BOOKS.types}
    fields["load_marks"] = [asdict(mark) for mark in line.load_marks]
    fields["layouts"] = [asdict(layout) for layout in line.layouts]
    for name in ("keys", "columns", "servers", "lacks", "announced", "layouts", "load_marks"):
        fields[name] = json.dumps(fields[name])
    for name in ("event_low", "event_high"):
        if fields[name] is not None:
            fields[name] = dt.datetime.fromtimestamp(fields[name] / 1e6, dt.UTC)
    return fields
