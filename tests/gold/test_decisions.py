"""Held mirrors and what releases them: approval, dismissal; and commits by other hands, which hold."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.config import Pipeline
from ingest.config.model import Source, TableRule
from ingest.errors import IngestError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ingest.lake.lake import Lake
    from ingest.run import Warm

pytestmark = pytest.mark.spark


@dataclass(slots=True)
class Depot:
    """One table of one source, run batch by batch."""

    spark: SparkSession
    folder: Path
    warm: Warm
    rule: TableRule
    number: int = 0
    messages: list[str] = field(default_factory=list)

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline over the folder's files."""
        source = Source("s", "files", "dts-canal", path=str(self.folder / "in-*.jsonl"))
        return Pipeline("depot", self.folder / "x.yaml", str(self.folder / "lake"), (source,), (self.rule,))

    def row(self, **cells: str) -> Depot:
        """An inserted row."""
        types = dict.fromkeys(cells, "int")
        return self._say(data=[cells], isDdl=False, mysqlType=types, pkNames=["id"], sql="", type="INSERT")

    def ddl(self, sql: str) -> Depot:
        """A statement."""
        return self._say(isDdl=True, sql=sql, type="DDL")

    def _say(self, **members: Any) -> Depot:
        self.number += 1
        place = {
            "database": "yard",
            "table": "depot",
            "es": 1714550402000,
            "ts": 1714550404000,
            "id": self.number,
        }
        self.messages.append(json.dumps({**place, **members}))
        return self

    def run(self) -> tuple[str, str]:
        """Run what was said; the mirror's state and message."""
        from ingest import run as running

        if self.messages:
            (self.folder / f"in-{self.number}.jsonl").write_text("\n".join(self.messages) + "\n")
            self.messages.clear()
        result = running.run(self.spark, self.pipeline, ("bronze", "silver", "gold"), self.warm)
        return (result.mirrors[0].state, result.mirrors[0].message) if result.mirrors else ("idle", "")

    def lake(self) -> Lake:
        """The lake, to look into."""
        from ingest.lake.lake import Lake

        return Lake(self.spark, self.pipeline)

    def rows(self) -> list[dict[str, Any]]:
        """The mirror's rows by id."""
        found = [row.asDict() for row in self.lake().read("mirrors/yard/depot").collect()]
        return sorted(found, key=lambda row: row["id"])


@pytest.fixture
def depot(spark: SparkSession, tmp_path: Path) -> Depot:
    """A frozen mirror with one row."""
    from ingest.run import Warm

    made = Depot(spark, tmp_path, Warm(), TableRule("yard.*", on_schema_change="freeze"))
    assert ("done", "") == made.row(id="1", n="1").run()
    return made


def test_held_until_decided(depot: Depot) -> None:
    """A hold that no decision lifts, or that lifts by itself, makes freeze useless."""
    from ingest.gold.approval import listed, settle

    state, message = (
        depot.ddl("ALTER TABLE depot ADD COLUMN gate INT DEFAULT 7").row(id="2", n="2", gate="3").run()
    )
    assert "held" == state
    assert "ALTER TABLE depot ADD COLUMN gate" in message
    [one] = listed(depot.lake())
    assert (True, "held", "yard.depot") == (one.pending, one.state, one.mirror)
    assert ("adds column gate (INT); standing rows get '7'",) == one.verdict.does
    assert one.statement.id in message
    settle(depot.lake(), one.statement.id, "approve", "agreed")
    assert [("approved", False)] == [(two.state, two.pending) for two in listed(depot.lake())]
    assert ("done", "") == depot.run()
    assert [{"id": 1, "n": 1, "gate": 7}, {"id": 2, "n": 2, "gate": 3}] == depot.rows()

    assert (
        "held" == depot.ddl("ALTER TABLE depot TRUNCATE PARTITION p1").row(id="3", n="3", gate="3").run()[0]
    )
    partition = listed(depot.lake())[-1].statement.id
    with pytest.raises(IngestError, match="cannot be approved"):
        settle(depot.lake(), partition, "approve", "")
    settle(depot.lake(), partition, "dismiss", "loaded again by hand")
    assert ("done", "") == depot.run()
    assert [1, 2, 3] == [row["id"] for row in depot.rows()]
    with pytest.raises(IngestError, match="what is done stays"):
        settle(depot.lake(), one.statement.id, "dismiss", "changed my mind")
    with pytest.raises(IngestError, match="no statement 'nothing'"):
        settle(depot.lake(), "nothing", "approve", "")


def test_foreign_commits_hold(depot: Depot) -> None:
    """After somebody's DELETE or RESTORE a mirror is no fold of its changes, and must not pass for one."""
    path = f"delta.`{depot.lake().path('mirrors/yard/depot')}`"
    depot.spark.sql(f"OPTIMIZE {path}")
    assert ("done", "") == depot.row(id="2", n="2").run()
    depot.spark.sql(f"DELETE FROM {path} WHERE id = 1")
    state, message = depot.row(id="3", n="3").run()
    assert "held" == state
    assert "DELETE" in message
    assert "ingest rebuild" in message
    assert [2] == [row["id"] for row in depot.rows()]
