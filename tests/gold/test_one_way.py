"""What the fold meets only while it works: each is folded by the same way in the same run, or fails alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ingest.config.model import TableRule
from ingest.gold.fold import arrow_files
from ingest.run import Warm
from tests.gold.depot import Depot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]


def keyless(depot: Depot, kind: str, old: dict[str, str | None] | None = None, **cells: str | None) -> None:
    """A row of a table without a key."""
    types = dict.fromkeys(cells, "int")
    depot.say(type=kind, data=[cells], old=old and [old], mysqlType=types, pkNames=None, isDdl=False, sql="")


@pytest.mark.e2e
def test_a_lake_that_only_spark_reads(spark: SparkSession, tmp_path: Path) -> None:
    """Its changes are copied to this machine; a fold that read none of them would end with an empty mirror, done."""
    (tmp_path / "a%20b").mkdir()
    depot = Depot(spark, tmp_path / "a%20b", Warm(), TableRule("yard.*"))
    assert ("done", "") == depot.row(id="1", n="1").row(id="2", n="2").run()
    depot.row("UPDATE", {"n": "1"}, id="1", n="3").row("DELETE", id="2", n="2")
    assert ("done", "") == depot.ddl("ALTER TABLE depot ADD COLUMN w INT DEFAULT 5").row(
        id="4", n="4", w="6"
    ).run()
    assert [{"id": 1, "n": 3, "w": 5}, {"id": 4, "n": 4, "w": 6}] == depot.rows()
    assert "delta-rs" in (depot.why_merge or "")


@pytest.mark.slow
@pytest.mark.parametrize("no_key", ["full_row", "append"])
def test_a_table_without_a_key_that_only_a_merge_may_write(
    spark: SparkSession, tmp_path: Path, no_key: str
) -> None:
    """No column says which of its rows is which; one too many or too few is hard to notice."""
    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.*", no_key=no_key, change_feed=True))
    for n in ("1", "1", "2"):
        keyless(depot, "INSERT", id=n, n=n)
    assert ("done", "") == depot.run()
    keyless(depot, "DELETE", id="1", n="1")
    keyless(depot, "INSERT", id="3", n=None)
    assert ("done", "") == depot.run()
    assert "change feed" in (depot.why_merge or "")
    left = {"full_row": [1, 2, 3], "append": [1, 1, 2, 3]}[no_key]
    assert left == [row["id"] for row in depot.rows()]
    depot.say(isDdl=True, sql="TRUNCATE TABLE depot", type="TRUNCATE")
    keyless(depot, "INSERT", id="7", n="7")
    assert ("done", "") == depot.run()
    assert [{"id": 7, "n": 7}] == depot.rows()


def test_rows_that_take_too_much_memory_are_merged(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How much a file's rows take is known when it is read: the batch must not fail for good then."""
    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.*"))
    assert ("done", "") == depot.row(id="1", n="1").row(id="2", n="2").run()
    monkeypatch.setattr(arrow_files, "ROWS_AT_MOST", 1)
    assert ("done", "") == depot.row("UPDATE", {"n": "1"}, id="1", n="3").run()
    assert "memory" in (depot.why_merge or "")
    assert [{"id": 1, "n": 3}, {"id": 2, "n": 2}] == depot.rows()
    depot.rule = TableRule("yard.*", apply="files")
    state, message = depot.row("DELETE", id="1", n="3").run()
    assert ("held", True) == (state, "memory" in message and "`apply: merge`" in message)


def test_whatever_a_fold_meets_fails_its_mirror_alone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second engine would hide it; a run that ended would keep all other mirrors from their changes."""
    from ingest import run as running

    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.*"))
    outcomes_of = arrow_files.outcomes_of

    def fails(work: Any, rows: Any) -> Any:
        if work.path.endswith("/depot"):
            raise pa.ArrowInvalid("a text that no one expected")
        return outcomes_of(work, rows)

    monkeypatch.setattr(arrow_files, "outcomes_of", fails)
    depot.row(id="1", n="1").say(
        table="other", isDdl=False, type="INSERT", data=[{"id": "1"}], mysqlType={"id": "int"}, pkNames=["id"], sql=""
    )  # fmt: skip
    (tmp_path / f"in-{depot.number}.jsonl").write_text("\n".join(depot.messages) + "\n")
    depot.messages.clear()
    result = running.run(spark, depot.pipeline, ("bronze", "silver", "gold"), depot.warm)
    found = {one.mirror: (one.state, one.message) for one in result.mirrors}
    assert ("failed", True) == (
        found["yard.depot"][0],
        "a text that no one expected" in found["yard.depot"][1],
    )
    assert ("done", "") == found["yard.other"]
    monkeypatch.setattr(arrow_files, "outcomes_of", outcomes_of)
    assert ("done", "") == depot.run()
    assert [{"id": 1, "n": 1}] == depot.rows()
