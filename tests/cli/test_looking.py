"""Questions without Spark: no Java is started, no package of Spark imported, and the answers are Spark's own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from ingest.inspect import duck_query, query, status
from ingest.ledgers import rejects
from ingest.tables import delta, duck, log
from ingest.tables.lake import Lake
from ingest.tables.tables import LakeReader
from tests.lake.test_tables import read, read_by_spark
from tests.timing import PATIENCE, TRIES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.lakes import Example

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
SECONDS = 3.0  # of a processor that others keep busy; alone each verb takes a tenth of a second
HEAVY = ("pyspark", "py4j", "pandas", "numpy", "pyarrow", "great_expectations", "fsspec")
VERBS = {
    "status": ["status", "{file}"],
    "status for scripts": ["status", "{file}", "--output", "prom"],
    "tables": ["tables", "{file}"],
    "tables for a catalog": ["tables", "{file}", "--output", "sql"],
    "alerts": ["alerts", "{file}"],
    "wait": ["wait", "{file}", "--until", "2020-01-01", "--tables", "shop.orders", "--timeout", "0s"],
    "rejects": ["rejects", "{file}"],
    "one reject": ["rejects", "show", "{file}", "1"],
    "ddl": ["ddl", "{file}"],
    "report": ["report", "{file}", "--out", "{folder}/report.html"],
    "quality as it was": ["quality", "{file}", "--last"],
    "sql": ["sql", "{file}", "SELECT count(*) FROM `shop`.`orders`"],
    "sql of the past": ["sql", "{file}", 'SELECT * FROM "shop"."orders"', "--as-of-batch", "1"],
    "run": ["run", "{file}"],
    "plan": ["plan", "{file}"],
    "explain": ["explain", "{file}", "shop.orders", "5000"],
    "validate": ["validate", "{file}"],
}
of_two_batches = pytest.mark.parametrize("place", [0, pytest.param(1, marks=pytest.mark.e2e)])
"""Examples that were run in two batches; the first has deletion vectors."""
CODES = {"alerts": 1, "status": 1}  # two messages of each shop cannot be decoded, which needs somebody
SCRIPT = """
import json, os, sys
from ingest.cli.app import app
for verb, words in json.loads(sys.argv[1]).items():
    before = os.times()[:4]
    try:
        app(words, prog_name="ingest")
    except SystemExit as end:
        java = os.path.exists(sys.argv[2])
        print()
        print(json.dumps([verb, end.code, sum(os.times()[:4]) - sum(before), sorted(set({heavy}) & set(sys.modules)), java]))
"""


def asked(folder: Path, verbs: dict[str, list[str]]) -> str:
    """What a process says of verbs, one after the other, on a machine whose only Java leaves a mark and fails."""
    mark, java = folder / "java-was-started", folder / "bin" / "java"
    java.parent.mkdir(exist_ok=True)
    java.write_text(f"#!/bin/sh\ntouch {mark}\nexit 1\n")
    java.chmod(0o755)
    environment = {
        **os.environ,
        "JAVA_HOME": str(folder / "nowhere"),
        "PATH": f"{java.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(heavy=HEAVY), json.dumps(verbs), str(mark)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=environment, timeout=PATIENCE, cwd=ROOT,
    )  # fmt: skip
    return done.stdout


def test_no_question_starts_java(shops: dict[str, Example], tmp_path: Path) -> None:
    """A question that takes half a minute is not asked; one import of Spark would make it so."""
    file = next(iter(shops.values())).file
    verbs = {
        verb: [word.format(file=file, folder=tmp_path) for word in words] for verb, words in VERBS.items()
    }
    for _ in range(TRIES):
        text = asked(tmp_path, verbs)
        ends = [json.loads(line) for line in text.splitlines() if line.startswith('["')]
        assert [(verb, CODES.get(verb, 0), [], False) for verb in verbs] == [
            (verb, code, heavy, java) for verb, code, _, heavy, java in ends
        ], text
        slow = {verb: seconds for verb, _, seconds, *_ in ends if seconds >= SECONDS}
        if not slow:
            return
    pytest.fail(f"{slow} s, which ten questions in an incident wait ten times")


def test_a_run_with_work_is_not_taken_for_an_idle_one(shops: dict[str, Example], tmp_path: Path) -> None:
    """A message that waits in a folder while every run says `nothing new` is lost for as long as that lasts."""
    from ingest.inspect.idle import idle

    shop = next(iter(shops.values()))
    pipeline = shop.lake.pipeline
    every = ["bronze", "silver", "gold", "quality"]
    assert idle(pipeline, every) is not None
    first = min(Path(pipeline.sources[0].path).parent.glob("shop-*"))
    newer = first.with_name(f"shop-9{first.suffix}")
    shutil.copy(first, newer)
    os.utime(newer, (first.stat().st_mtime - 3600,) * 2)  # older than what is still being written
    busy: list[str] = []  # then Java begins to start at once
    try:
        assert idle(pipeline, every, lambda: busy.append("to read")) is None
        assert idle(pipeline, ["silver", "gold"], lambda: busy.append("nothing")) is not None
    finally:
        newer.unlink()
    assert idle(pipeline, every, lambda: busy.append("nothing")) is not None
    assert ["to read"] == busy


def plain(value: Any) -> Any:
    """What is said, as JSON, without the moments of asking, and the files, which Spark does not list."""
    text, left_out = json.dumps(value, default=str, sort_keys=True), ("lag", "marked_files", "bytes")
    return json.loads(
        text, object_hook=lambda found: {k: v for k, v in found.items() if not k.startswith(left_out)}
    )


@pytest.mark.e2e
def test_spark_answers_the_same(
    spark: SparkSession, shops: dict[str, Example], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lakes in stores that only Hadoop reaches are asked by the same queries; a wrong answer there shows nowhere else."""
    from ingest.gold import approval
    from ingest.quality.report_data import gather

    for shop in list(shops.values())[:1]:  # of two batches
        reader, lake = LakeReader(shop.lake.pipeline), Lake(spark, shop.lake.pipeline)
        here = [status.status(reader), status.tables(reader), rejects.listed(reader), approval.listed(reader)]
        facts = gather(reader)
        with monkeypatch.context() as patch:
            patch.setattr(Lake, "is_local", property(lambda _lake: False))
            there = [status.status(lake), status.tables(lake), rejects.listed(lake), approval.listed(lake)]
            facts_there = gather(lake)
        for one, other in zip(plain(there), plain(here), strict=True):
            assert one == other
        facts_there.now = facts.now
        assert repr(facts_there) == repr(facts)


@of_two_batches
def test_every_table_of_the_examples_reads_as_with_spark(
    spark: SparkSession, shops: dict[str, Example], place: int
) -> None:
    """Another row than Spark's here would be another answer to every question."""
    seen = deleted = 0
    for found in sorted(Path(list(shops.values())[place].lake.pipeline.lake).rglob("_delta_log")):
        folder = str(found.parent)
        state = delta.snapshot(folder)
        of_spark = log.snapshot(spark, folder)
        assert (of_spark.version, of_spark.transactions) == (state.version, state.transactions)
        assert (of_spark.table_id, of_spark.types) == (state.table_id, state.types)
        expected = read_by_spark(spark, folder)
        assert expected == read(folder)
        assert len(expected) == state.rows
        seen += 1
        deleted += sum(one.deleted for one in state.files)
    assert seen > 10
    assert (deleted > 0) == (place == 0), "no deletion vector was read"


def test_every_row_is_explained(shops: dict[str, Example]) -> None:
    """A story that differs from the mirror's row would hint at a fault that does not exist."""
    from ingest.gold.explain import explain
    from ingest.ledgers import mirrors

    compared = 0
    for shop in shops.values():
        lake = LakeReader(shop.lake.pipeline)
        for mirror in mirrors.known(lake).values():
            keys = ", ".join(one.column for one in mirror.key_columns)
            for key in query.query(lake, f"SELECT {keys} FROM {mirror.name} ORDER BY {keys}", 7)[1]:
                story = explain(lake, mirror.name, [str(cell) for cell in key])
                assert story.equal, story
                assert story.events
                assert all(event.raw is None or event.raw.text for event in story.events)
                compared += 1
    assert compared > 50


@of_two_batches
def test_queries_answer_as_with_spark(spark: SparkSession, shops: dict[str, Example], place: int) -> None:
    """The contract for scripts is one: every cell of every table, to its last digit, whichever engine is asked."""
    from ingest.inspect.exact_json import encoded
    from ingest.operate import spark_query

    texts = ["SELECT * FROM bronze", "SELECT * FROM changes", "SELECT * FROM rejects", "SELECT * FROM books"]
    texts += [f"SELECT * FROM `shop`.`{name}`" for name in ("orders", "customers", "order_lines")]
    pipeline = list(shops.values())[place].lake.pipeline
    reader, lake = LakeReader(pipeline), Lake(spark, pipeline)
    for text in texts:
        found = [query.query(reader, text), spark_query.query(lake, text)]
        assert found[0][0] == found[1][0]
        rows = [sorted(encoded(row) for row in one[1]) for one in found]
        assert rows[0] == rows[1], text


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/*')",
        "SELECT (SELECT content FROM read_text('/etc/passwd'))",
        "SELECT * FROM query('SELECT content FROM read_text(''/etc/passwd'')')",
        "COPY (SELECT 1) TO '{folder}/out.csv'",
        "SELECT 1; COPY (SELECT 1) TO '{folder}/out.csv'",
        "INSTALL httpfs",
        "ATTACH '{folder}/out.db'",
        "SET enable_external_access = true",
        "PRAGMA database_list",
        "CREATE TABLE t AS SELECT 1",
        "DESCRIBE shop.orders",
        "SELECT * FROM shop.orders /* */ UNION ALL SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM rows",
        "",
    ],
)
def test_a_query_reads_nothing_but_the_lake(text: str, shops: dict[str, Example], tmp_path: Path) -> None:
    """`sql` as a dashboard calls it must not read the host's files, nor write any."""
    from ingest.errors import IngestError

    lake = LakeReader(next(iter(shops.values())).lake.pipeline)
    with pytest.raises(IngestError):
        query.query(lake, text.format(folder=tmp_path))
    assert [] == list(tmp_path.iterdir())


def test_the_lock_holds_without_the_names_being_checked(shops: dict[str, Example], tmp_path: Path) -> None:
    """Two barriers, so that a table function that the first does not know is stopped by the second."""
    shop = next(iter(shops.values())).lake
    orders = {"main._table_0_": query.Named(shop.path("mirrors/shop/orders"))}
    base = duck.opened()
    duck_query._close_up(base, query._scans(orders), None)
    for text in (
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM orders",
    ):
        with pytest.raises(duckdb.Error):
            base.execute(text)
    found = base.execute("SELECT count(*) FROM main._table_0_").fetchone()
    assert (delta.snapshot(shop.path("mirrors/shop/orders")).rows,) == found
    base.close()


def test_order_and_limit_stay(shops: dict[str, Example]) -> None:
    """A query that is wrapped to make its cells exact must keep the order that it asks for."""
    lake = LakeReader(next(iter(shops.values())).lake.pipeline)
    rows = query.query(lake, "SELECT id FROM shop.orders ORDER BY id DESC", 5)[1]
    assert 5 == len(rows)
    assert rows == sorted(rows, reverse=True)
    numbers = "SELECT r FROM (SELECT unnest(range(300000)) AS r) AS n ORDER BY hash(r)"
    assert query.query(lake, numbers)[1][:9] == query.query(lake, numbers, 9)[1]


def test_a_run_whose_mirror_is_gone_is_not_taken_for_an_idle_one(shops: dict[str, Example]) -> None:
    """`nothing new` and exit code 0, for days, of a table that nobody can read any more."""
    from ingest.inspect.idle import idle

    shop = next(iter(shops.values()))
    every = ["bronze", "silver", "gold", "quality"]
    assert idle(shop.lake.pipeline, every) is not None
    mirror = Path(shop.lake.pipeline.lake, "mirrors", "shop", "orders")
    away = mirror.rename(mirror.with_name("away"))
    try:
        assert idle(shop.lake.pipeline, every) is None
        assert idle(shop.lake.pipeline, ["bronze", "silver"]) is not None
    finally:
        away.rename(mirror)
