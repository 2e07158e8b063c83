"""One table of one source, which a test fills message by message and runs batch by batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.config import Pipeline
from ingest.config.model import Source, TableRule

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ingest.result import Result
    from ingest.run import Warm
    from ingest.tables.lake import Lake


@dataclass(slots=True)
class Depot:
    """One table of one source, run batch by batch."""

    spark: SparkSession
    folder: Path
    warm: Warm
    rule: TableRule
    number: int = 0
    messages: list[str] = field(default_factory=list)
    budget: int | None = None  # the pipeline's rewrite_budget
    apply: str = "auto"  # the pipeline's
    engine: str = "auto"
    why_merge: str | None = None  # of the last run

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline over the folder's files."""
        source = Source("s", "files", "dts-canal", path=str(self.folder / "in-*.jsonl"))
        lake = str(self.folder / "lake")
        return Pipeline(
            "depot",
            self.folder / "x.yaml",
            lake,
            (source,),
            (self.rule,),
            engine=self.engine,
            rewrite_budget=self.budget,
            apply=self.apply,
        )

    def row(
        self,
        kind: str = "INSERT",
        old: Mapping[str, str | None] | None = None,
        at: int = 0,
        **cells: str | None,
    ) -> Depot:
        """A row that was inserted, updated or deleted; ``at`` is a place in history of its own."""
        types = dict.fromkeys(cells, "int")
        members = {"data": [cells], "mysqlType": types, "old": old and [old], "pkNames": ["id"], "sql": ""}
        return self.say(at, isDdl=False, type=kind, **members)

    def ddl(self, sql: str) -> Depot:
        """A statement."""
        return self.say(0, isDdl=True, sql=sql, type="DDL")

    def say(self, at: int = 0, **members: Any) -> Depot:
        """A message with these members, of the table unless they name another."""
        self.number += 10
        at = at or self.number
        moment = 1714521600000 + 1000 * at
        place = {"database": "yard", "table": "depot", "es": moment, "ts": moment, "id": at}
        self.messages.append(json.dumps({**place, **members}))
        return self

    def run(self, *, checked: bool = False) -> tuple[str, str]:
        """Run what was said, and maybe the checks; the mirror's state and message."""
        result = self.result(checked=checked)
        self.why_merge = result.mirrors[0].why_merge if result.mirrors else None
        return (result.mirrors[0].state, result.mirrors[0].message) if result.mirrors else ("idle", "")

    def result(self, *, checked: bool = False, select: str = "") -> Result:
        """The result of a run of what was said, maybe for some mirrors."""
        from ingest import run as running

        self.write()
        stages = ("bronze", "silver", "gold", *(["quality"] if checked else []))
        return running.run(self.spark, self.pipeline, stages, self.warm, select=select)

    def write(self) -> None:
        """Write what was said, as a file that waits to be read."""
        if self.messages:
            (self.folder / f"in-{self.number}.jsonl").write_text("\n".join(self.messages) + "\n")
            self.messages.clear()

    def lake(self) -> Lake:
        """The lake, to look into."""
        from ingest.tables.lake import Lake

        return Lake(self.spark, self.pipeline)

    def rows(self, table: str = "depot") -> list[dict[str, Any]]:
        """The rows of the mirror, or of another table of its folder, by id."""
        found = [row.asDict() for row in self.lake().read(f"mirrors/yard/{table}").collect()]
        return sorted(found, key=lambda row: row["id"])
