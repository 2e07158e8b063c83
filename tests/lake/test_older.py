"""Lakes made by older versions: read, continued, rebuilt and maintained as if this version had made them."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from ingest.cli.app import app
from ingest.config import load
from ingest.config.model import TableRule
from ingest.spark.deferred import Deferred
from ingest.tables.lake import Lake
from tests.gold.depot import Depot
from tests.lake.older import make
from tests.lakes import counted, doubled
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLED = [*(name for name in make.LAKES if name != make.WHOLE), make.BETWEEN]
BY_SPARK = ("casks", "crates", "kinds")  # cells that do not fit, and statements that were judged otherwise
LEFT_OUT = "".join(f"  - {{match: depot.{name}, exclude: true}}\n" for name in BY_SPARK)
STOPPED = [make.FROZEN, make.UNKEYED]  # held, each with what leads out


@pytest.fixture
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Unpacks one lake of an older version, works in its folder, and gives its pipeline file."""

    def unpack(name: str, *, with_spark: bool) -> Path:
        with tarfile.open(make.ARCHIVE) as archive:
            archive.extraction_filter = getattr(
                tarfile, "data_filter", None
            )  # Python 3.11.3 and older have none
            archive.extractall(tmp_path, [one for one in archive if one.name.partition("/")[0] == name])
        file = tmp_path / name / "depot.yaml"
        way = "apply: merge" if with_spark else "rewrite_budget: 4MiB"
        # Its paths begin with the folder of this process, which a task of Spark does not share.
        text = f"{file.read_text('utf-8')}{way}\nengine: auto\n"
        if not with_spark:  # which statements that were judged otherwise need
            text = text.replace("tables:\n", f"tables:\n{LEFT_OUT}")
        file.write_text(text, "utf-8")
        monkeypatch.chdir(file.parent)
        return file

    return unpack


@pytest.fixture
def without_spark() -> Any:
    """A session that is never started: what is folded here is too small for it."""
    return unstarted(2)


def mirrors(lake: Lake, paths: Iterable[str]) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of some mirrors."""
    return {
        path: sorted(
            tuple(row.values()) for row in lake.ask_mirror(f"mirrors/{path}", "SELECT * FROM {mirror}")
        )
        for path in paths
    }


def expected(slices: int) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of the mirrors that go on without Spark."""
    return {
        path: rows for path, rows in make.expected(slices).items() if path[len("depot/") :] not in BY_SPARK
    }


def answer(file: Path, *words: str) -> Any:
    """The JSON output of a command."""
    done = CliRunner().invoke(app, [words[0], str(file), *words[1:], "--output", "json"])
    assert 0 == done.exit_code or words[0] == "status", done.output
    return json.loads(done.stdout)


def go_on(spark: Any, file: Path) -> Lake:
    """One run, which fails for nothing but the tables that were held before; then the lake."""
    from ingest.run import run

    before = doubled(Lake(spark, load(file)))
    result = run(spark, load(file), ("bronze", "silver", "gold"))
    folded = [one for one in result.mirrors if one.state == "done"]
    assert {not isinstance(spark, Deferred)} == {bool(one.why_merge) for one in folded}, folded
    assert STOPPED == sorted(one.mirror for one in result.mirrors if one.state == "held"), result.failures
    assert [] == [one for one in result.mirrors if one.state == "failed"]
    lake = Lake(spark, load(file))
    assert before == doubled(lake)
    found = counted(lake)
    feeds = sum(len(feed.read_text("utf-8").splitlines()) for feed in file.parent.glob("*.jsonl"))
    assert (feeds, feeds) == (found["bronze"], found["messages"])
    return lake


def test_a_lake_of_an_older_version_answers_and_goes_on(
    without_spark: Any, unpacked: Callable[..., Path]
) -> None:
    """An upgrade that has to begin with an empty lake costs every table's history."""
    file = unpacked(make.WHOLE, with_spark=False)
    assert make.expected(3) == mirrors(Lake(without_spark, load(file)), make.expected(1))
    answers(file)
    make.grow(file.parent, 3)
    lake = go_on(without_spark, file)
    assert expected(4) == mirrors(lake, expected(1))

    make.grow(file.parent, 4)
    assert expected(5) == mirrors(go_on(without_spark, file), expected(1))


def answers(file: Path) -> None:
    """Check that every read-only command finds what the older version wrote."""
    states = {one["table"]: one["state"] for one in answer(file, "tables")}
    assert make.expected(1).keys() <= {name.replace(".", "/") for name in states}
    assert ("paused", "held", "held") == (states["depot.pens"], states[make.FROZEN], states[make.UNKEYED])
    assert "depot" == answer(file, "status")["pipeline"]
    assert 9 == sum(one["kind"] == "message" for one in answer(file, "rejects"))
    assert "ALTER TABLE vats ADD COLUMN depth int" in {one["statement"] for one in answer(file, "ddl")}
    assert [{"word": "late 2"}] == answer(file, "sql", "SELECT word FROM depot.tubs WHERE id = 0")
    assert [{"n": 2}] == answer(file, "sql", "--as-of-batch", "1", "SELECT count(*) AS n FROM depot.tubs")
    assert "late 2" in json.dumps(answer(file, "explain", "depot.tubs", "0"))


@pytest.mark.parametrize("name", KILLED)
def test_a_batch_that_an_older_version_left_is_finished(
    without_spark: Any, unpacked: Callable[..., Path], name: str
) -> None:
    """What was landed, decoded or merged already would be lost, or done twice."""
    assert expected(3) == mirrors(go_on(without_spark, unpacked(name, with_spark=False)), expected(1))


@pytest.mark.spark
def test_a_missing_column_is_added(spark: SparkSession, tmp_path: Path) -> None:
    """An upgrade that has to begin with an empty lake costs every table's history."""
    from ingest.gold.plan.work import open_books
    from ingest.run import Warm

    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.depot"))
    depot.row(id="1", n="1").run()
    lake = depot.lake()
    older = lake.read("books").drop("servers").write.format("delta").mode("overwrite")
    older = older.option("userMetadata", lake.metadata(1))
    older.option("overwriteSchema", "true").save(lake.path("books"))

    assert [{}] == [line.servers for line in open_books(depot.lake(), 0, 1).lines]
    assert ("done", "") == depot.row("UPDATE", {"n": "1"}, id="1", n="2").run()
    assert "servers" in depot.lake().read("books").columns
    assert [(1, 2)] == [(row["id"], row["n"]) for row in depot.rows()]


@pytest.mark.spark
@pytest.mark.e2e
def test_spark_rebuilds_and_maintains_a_lake_of_an_older_version(
    spark: SparkSession, unpacked: Callable[..., Path]
) -> None:
    """Its tables were created otherwise, and what rewrites all their rows and files meets each of them."""
    from ingest.gold.rebuild import rebuild
    from ingest.ledgers.maintenance import maintain
    from ingest.tables.schemas import ALL

    file = unpacked(make.WHOLE, with_spark=True)
    make.grow(file.parent, 3)
    go_on(spark, file)
    lake = Lake(spark, load(file))
    names = [path.replace("/", ".") for path in expected(1) if path not in ("depot/pens", "depot/vats")]
    found = rebuild(lake, names, dry_run=False)
    assert {"rebuilt"} == {one.state for one in found}, found
    assert [] == [one for one in found if one.difference is None or not one.difference.none]
    tables = [one.name for one in ALL] + [f"mirrors/{path}" for path in expected(1)]
    assert {""} == {one.refused for one in maintain(lake, tables)}
    assert expected(4) == mirrors(Lake(spark, load(file)), expected(1))

    make.grow(file.parent, 4)
    assert expected(5) == mirrors(go_on(spark, file), expected(1))
