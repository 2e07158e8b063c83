"""Tables of any database as StreamX sends them, with statements, in a lake that small batches fill without Spark."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ingest.change import TableId
from ingest.config import Pipeline
from ingest.config.entries import Database
from ingest.config.model import Source, TableRule
from ingest.gold import approval
from ingest.run import Warm, run
from ingest.store.names import mirror_path
from ingest.tables.lake import Lake
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from ingest.result import Result

Cells = dict[str, str | None]


@dataclass(slots=True)
class Schemas:
    """One source of one kind of database; a table is named ``schema.table``, or without a schema in MySQL and Oracle."""

    folder: Path
    kind: str = "postgresql"
    rules: tuple[TableRule, ...] = ()
    types: dict[str, str] = field(default_factory=dict)  # of columns; STRING if not here
    number: int = 0
    lines: list[str] = field(default_factory=list)
    warm: Warm = field(default_factory=Warm)
    result: Result | None = None  # of the last run
    database: Database | None = None  # that of its source

    def row(self, table: str, op: str = "INSERT", **cells: str | int | None) -> Self:
        """A change of a row, whose key is ``id`` or whatever column comes first."""
        types = {name: self.types.get(name, "LONG" if name == "id" else "STRING") for name in cells}
        columns = [{"name": name, "type": kind} for name, kind in types.items()]
        schema = {"dataColumn": columns, "primaryKey": [next(iter(cells))], "source": self._source(table)}
        image = {"dataColumn": cells}
        before, after = (image, None) if op == "DELETE" else (None, image)
        return self._say(schema, {"op": op, "after": after, "before": before, "ddl": None})

    def ddl(self, text: str, table: str | None = None) -> Self:
        """A statement, whose message names a table or none."""
        payload = {"op": "ALTER", "after": None, "before": None, "ddl": {"text": text}}
        return self._say({"source": self._source(table)}, payload)

    def _source(self, table: str | None) -> dict[str, Any]:
        schema, _, name = (table or "").rpartition(".")
        named = {"dbType": self.kind, "dbName": "db", "tableName": name or None}
        return named | ({"schemaName": schema} if schema else {})

    def _say(self, schema: dict[str, Any], payload: dict[str, Any]) -> Self:
        self.number += 1
        clock = 1718000000000 + self.number * 1000
        times = {"eventTime": clock, "systemTime": clock, "checkpointTime": clock}
        payload |= {"sequenceId": str(10**15 + self.number), "timestamp": times}
        self.lines.append(json.dumps({"schema": schema, "payload": payload, "version": "1.0.0"}))
        return self

    @property
    def pipeline(self) -> Pipeline:
        """Over the folder's files."""
        path = str(self.folder / "in-*.jsonl")
        source = Source("s", "files", "dataworks", path=path, settle=0, database=self.database)
        return Pipeline(
            "x", self.folder / "x.yaml", str(self.folder / "lake"), (source,), self.rules, engine="auto"
        )

    def run(self, *stages: str) -> dict[str, str]:
        """Land what was said as one batch; the mirrors' states by table."""
        (self.folder / f"in-{self.number}.jsonl").write_text("\n".join(self.lines) + "\n")
        self.lines.clear()
        self.result = run(unstarted(), self.pipeline, stages or ("bronze", "silver", "gold"), self.warm)
        return {one.mirror.removeprefix("db."): one.state for one in self.result.mirrors}

    def message(self, table: str) -> str:
        """What the last run says of a mirror."""
        assert self.result is not None
        [said] = [mirror.message for mirror in self.result.mirrors if mirror.mirror == f"db.{table}"]
        return said

    @property
    def lake(self) -> Lake:
        """What was written."""
        return Lake(unstarted(), self.pipeline)

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """A mirror's rows in order, with the columns in its order."""
        return [tuple(row.values()) for row in self.ask(table, "SELECT * FROM {mirror} ORDER BY 1")]

    def ask(self, table: str, query: str) -> list[dict[str, Any]]:
        """Rows of a query on a mirror."""
        schema, _, name = table.rpartition(".")
        path = mirror_path(TableId("db", schema or None, name))
        return self.lake.ask_mirror(path, query)

    def states(self) -> set[tuple[str, str]]:
        """Each statement's state for each mirror."""
        return {(one.mirror.removeprefix("db."), one.state) for one in approval.listed(self.lake)}
