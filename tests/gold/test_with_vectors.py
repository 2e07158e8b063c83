"""Mirrors whose rows are marked as deleted, by deletion vectors of Arrow, compared with mirrors whose files are rewritten."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from deltalake import DeltaTable

from ingest.config.model import TableRule
from ingest.erase import plan as planning
from ingest.erase import remove
from ingest.erase.search import search
from ingest.gold import feeds as filling
from ingest.gold.apply import targets
from ingest.gold.apply.planner import FoldPlan
from ingest.gold.rebuild import rebuild
from ingest.inspect.query import query
from ingest.inspect.status import tables
from ingest.ledgers import feeds, mirrors
from ingest.ledgers.maintenance import maintain
from ingest.ledgers.mirrors import Mirror
from ingest.run import Warm
from ingest.tables import commits, delta, vectors
from ingest.tables.commits import NewRows
from ingest.tables.compare import Difference
from ingest.tables.lake import Lake
from tests.gold.depot import Depot
from tests.gold.test_feeds import RULE, Shop, delivered, said
from tests.lake.test_vectors import name_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANEW, VECTORS, JOINED = (f"rewrite_budget: {size}\n" for size in ("64MiB", "1B", "6KiB"))
BATCHES = 6
RULES = {
    "feed": RULE,
    "soft": RULE.replace("changes_of", "deletes: soft, changes_of"),
    "where": RULE.replace("changes_of", "where: image > 12, changes_of"),
    "also": RULE.replace(
        "changes_of: true",
        "also: [{into: t.few, where: 'ID < 50', changes_of: true}, {into: t.all, deletes: soft}]",
    ),
}


def seen(lake: Lake, mirror: Mirror) -> dict[str, Any]:
    """The rows of a mirror after each batch, and of its feed."""
    rows = {
        str(batch): sorted(map(str, query(lake, f"SELECT * FROM {mirror.name}", 0, batch)[1]))
        for batch in range(1, BATCHES + 1)
    }
    feed = feeds.path_of(mirror)
    if lake.exists(feed):
        rows["feed"] = lake.ask_mirror(feed, "SELECT * FROM {mirror} ORDER BY number")
    return rows


def batches_of(random: Random) -> list[list[dict[str, Any]]]:
    """Rows that stay, and a history that empties no table: Spark does."""
    rows = [{"ID": str(key), "key": random.randbytes(200).hex(), "image": str(key)} for key in range(10, 70)]
    first = [said(at, "I", None, row) for at, row in enumerate(rows, 1)]
    while True:
        batches = delivered(random, 90, BATCHES)
        if all(one["op_type"] != "T" for batch in batches for one in batch):
            break
    later = [[one | {"pos": f"{int(one['pos']) + 100:020}"} for one in batch] for batch in batches]
    random.shuffle(first)
    return [first + later[0], *later[1:]]


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("rules", "budget"),
    [*((one, VECTORS) for one in RULES.values()), (RULE, JOINED)],
    ids=[*RULES, "joined"],
)
def test_everything_is_as_if_rewritten(
    rules: str, budget: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Marked rows are still in the files: a reader that ignores the vectors shows rows that are gone."""
    joined, stay = [], targets._marked

    def noted(plan: FoldPlan, most: int | None) -> frozenset[str]:
        found = stay(plan, most)
        joined.append(len(plan.before.files) - len(found))
        return found

    monkeypatch.setattr(targets, "FILES", 2)
    monkeypatch.setattr(targets, "_marked", noted)
    batches = batches_of(Random(len(rules)))
    shops = [Shop(tmp_path / name, rules + one) for name, one in (("a", ANEW), ("v", budget))]
    for batch in batches:
        for shop in shops:
            shop.folder.mkdir(exist_ok=True)
            assert {("done", "")} == set(shop.run(*batch))
    assert (2 in joined) == (budget == JOINED)
    rewritten, marked = (shop.lake for shop in shops)
    for path, mirror in mirrors.known(marked).items():
        assert 0 == sum(one.deleted for one in rewritten.snapshot(path).files)
        assert 0 < sum(one.deleted for one in marked.snapshot(path).files)
        assert seen(rewritten, mirror) == seen(marked, mirror)
    assert {one["table"]: one["rows"] for one in tables(rewritten)} == {
        one["table"]: one["rows"] for one in tables(marked)
    }


def test_columns_that_are_named_like_a_reader_s_own(tmp_path: Path) -> None:
    """DuckDB gives files and numbers of rows such names, so that no check could read a table of files."""
    shop = Shop(tmp_path, RULE + VECTORS)

    def row(key: int, filename: str) -> dict[str, Any]:
        return {"ID": str(key), "filename": filename, "File_Row_Number": "7", "image": "1"}

    shop.run(*(said(at, "I", None, row(at, "a")) for at in range(1, 9)))
    assert {("done", "")} == set(
        shop.run(said(20, "D", row(3, "a"), None), said(21, "U", row(4, "a"), row(4, "b")))
    )
    [(path, mirror)] = mirrors.known(shop.lake).items()
    assert 2 == sum(one.deleted for one in shop.lake.snapshot(path).files)
    [other] = [one.column for one in mirror.columns if one.name == "File_Row_Number"]
    rows = query(shop.lake, f"SELECT ID, filename, {other} FROM t.item ORDER BY ID", 0, 2)[1]
    assert [[key, "b" if key == 4 else "a", "7"] for key in (1, 2, 4, 5, 6, 7, 8)] == rows
    shop.check()


def test_a_feed_sees_that_other_rows_are_marked(tmp_path: Path) -> None:
    """After a RESTORE and another deletion a file may lack as many rows as before, but others."""
    shop = Shop(tmp_path, RULE + VECTORS)
    shop.run(*(said(at, "I", None, {"ID": str(at), "key": "a", "image": "1"}) for at in range(1, 9)))
    shop.run(said(20, "D", {"ID": "3"}, None))
    path = shop.lake.path("mirrors/t/item")
    state = delta.snapshot(path)
    [file] = state.files
    other = NewRows([], marked=[file.place], vectors=vectors.write(path, {file.place: np.array([6])}))
    assert commits.write(path, state, other, "{}", "another writer", 1)
    [mirror] = mirrors.known(shop.lake).values()
    assert 2 == filling.follow(shop.lake, mirror)
    shop.check()
    operations = [row["operation"] for row in shop.rows()[9:]]
    assert ["delete", "insert"] == operations


# --- by Spark ---------------------------------------------------------------------------------------

PATH = "mirrors/yard/depot"
SECRET = 774100001


def vectored(spark: SparkSession, folder: Path, rule: TableRule) -> tuple[Depot, dict[int, int]]:
    """A mirror with deletion vectors, and its rows."""
    depot = Depot(spark, folder, Warm(), rule, budget=1)
    truth = dict.fromkeys([*range(40), SECRET], 0)
    for key in truth:
        depot.row(id=str(key), n="0")
    assert ("done", "") == depot.run()
    return depot, truth


def update(depot: Depot, truth: dict[int, int], keys: Iterable[int], gone: int) -> None:
    """A batch, folded with vectors."""
    for key in keys:
        depot.row("UPDATE", {"n": str(truth[key])}, id=str(key), n=str(truth[key] + 1))
        truth[key] += 1
    depot.row("DELETE", id=str(gone), n=str(truth.pop(gone)))
    assert ("done", "") == depot.run()
    assert truth == {row["id"]: row["n"] for row in depot.rows()}


def marked(depot: Depot) -> int:
    """The rows that vectors remove from the mirror's files."""
    return sum(one.deleted for one in depot.lake().snapshot(PATH).files)


def data_files(depot: Depot) -> set[str]:
    """The files in the mirror's folder, except its log's and Hadoop's checksums."""
    folder = Path(depot.lake().path(PATH))
    return {one.name for one in folder.iterdir() if one.is_file() and not one.name.startswith(".")}


def needed(depot: Depot, versions: Iterable[int]) -> set[str]:
    """The files of some versions, as delta-rs names them."""
    found = set[str]()
    for version in versions:
        for one in delta.snapshot(depot.lake().path(PATH), version).files:
            found.add(one.place)
            if one.vector:
                found.add(name_of(one.vector))
    return found


@pytest.mark.e2e
def test_upkeep_and_rebuilds_go_on_from_vectors(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's tasks write vectors, too, which OPTIMIZE rewrites, and which VACUUM keeps as long as a version that was promised."""
    depot, truth = vectored(spark, tmp_path, TableRule("yard.*", history=True))
    states = {1: dict(truth)}
    for batch in (2, 3):
        depot.engine = "spark"
        update(depot, truth, range(batch, 9), gone=30 + batch)
        depot.engine = "auto"
        states[batch] = dict(truth)
        assert ("", True) == (depot.why_merge, marked(depot) > 0)

    put, lost = commits._put, []

    def late(path: str, version: int, actions: Iterable[dict[str, Any]]) -> bool:
        actions = list(actions)
        if path.endswith(PATH) and not lost:
            lost.append(version)
            assert put(path, version, [{"commitInfo": {"timestamp": 0, "operation": "MARK"}}])
        return put(path, version, actions)

    with monkeypatch.context() as patch:
        patch.setattr(commits, "_put", late)
        update(depot, truth, [3], gone=34)
    states[4] = dict(truth)
    assert ("", 1) == (depot.why_merge, len(lost))
    last = depot.lake().snapshot(PATH).version
    leftovers = data_files(depot) - needed(depot, range(last + 1))
    assert [".bin", ".parquet"] == sorted(Path(one).suffix for one in leftovers)

    update(depot, truth, [4], gone=35)
    states[5] = dict(truth)
    folder = depot.lake().path(PATH)
    DeltaTable(folder).create_checkpoint()
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    month_ago = time.time() - 30 * 86400
    for name in data_files(depot):
        os.utime(Path(folder, name), (month_ago, month_ago))
    assert marked(depot)
    [done, _] = maintain(depot.lake(), [PATH, "histories/yard/depot"])
    assert (True, len(leftovers)) == (done.joined > 1, done.deleted)
    assert 0 == marked(depot)
    assert needed(depot, range(last + 1)) <= data_files(depot)
    for batch, rows in states.items():
        found = query(depot.lake(), "SELECT id, n FROM yard.depot", 0, batch)[1]
        assert rows == {row[0]: row[1] for row in found}

    update(depot, truth, [5], gone=36)
    update(depot, truth, [6], gone=37)
    assert ("", True) == (depot.why_merge, marked(depot) > 0)
    [rebuilt] = rebuild(depot.lake(), [], dry_run=False)
    assert ("rebuilt", True) == (rebuilt.state, rebuilt.difference == Difference(len(truth)))
    assert (0, truth) == (marked(depot), {row["id"]: row["n"] for row in depot.rows()})
    update(depot, truth, [7], gone=38)
    assert marked(depot)

    found = query(depot.lake(), "SELECT id, n, is_current FROM yard.depot__history")[1]
    assert len(found) == 41 + sum(truth.values())
    assert truth == {row[0]: row[1] for row in found if row[2]}

    spark.sql(
        f"ALTER TABLE delta.`{folder}` SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 seconds')"
    )
    maintain(depot.lake(), [PATH])
    now = depot.lake().snapshot(PATH)
    assert needed(depot, [now.version]) == data_files(depot)
    assert truth == {row["id"]: row["n"] for row in depot.rows()}


@pytest.mark.e2e
def test_an_erased_row_is_in_no_file_that_only_marked_it(spark: SparkSession, tmp_path: Path) -> None:
    """The marked row's values are in its file for any reader of Parquet, and so are those of its later states."""
    depot, truth = vectored(spark, tmp_path, TableRule("yard.*", changes_of=True))
    update(depot, truth, [SECRET, 1], gone=30)
    update(depot, truth, [2, 3], gone=SECRET)
    lake = depot.lake()
    assert marked(depot)
    assert "mirrors" in {
        hit.file.partition("/")[0] for hit in search(Path(lake.path("")), [str(SECRET)]).hits
    }
    remove.erase(lake, planning.plan(lake, "yard.depot", [(str(SECRET),)], "asked", now=True))
    found = search(Path(lake.path("")), [str(SECRET)])
    assert ([], []) == (found.hits, found.unread)
    update(depot, truth, [4], gone=31)
