"""Lakes in an S3-compatible store, written by Arrow: as lakes in folders are, whatever the store does meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from ingest.config import load
from ingest.errors import IngestError, LockedError
from ingest.gold.apply import arrow_runs, planner
from ingest.result import Result
from ingest.run import Warm, run
from ingest.store import lock, object_store, stores
from ingest.tables import commits, delta
from ingest.tables.datafiles import Layout, written
from ingest.tables.schemas import BOOKS, BRONZE, CHANGES, RUNS
from ingest.tables.tables import LakeReader
from tests.e2e.faulty_store import BUSY, CARELESS, DENIED, EXPIRED, LOST, RIVAL, SLOW, Fault, Faulty
from tests.e2e.message_batches import TABLES, history
from tests.e2e.services import Missing
from tests.e2e.store import Store
from tests.lakes import ROOT, change
from tests.unstarted import unstarted

SECRET = "a-very-secret-word"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A running store; without its package the test is skipped."""
    try:
        with Store(tmp_path_factory.mktemp("store")) as running:
            running.files().mkdir("/lakes")
            yield running
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def proxy(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    """The same store, whose answers a test may spoil."""
    with Faulty(tmp_path_factory.mktemp("faulty"), store.url) as running:
        yield running


@pytest.fixture
def faulty(proxy: Faulty, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    """The same, for a process that knows no store yet, and waits for one as little as it can."""
    monkeypatch.setattr(object_store, "_WAITS", (0.0, 0.0))
    monkeypatch.setattr(stores, "_stores", {})
    proxy.requests()
    yield proxy
    proxy.does()


@dataclass
class Lake:
    """A pipeline over files of messages, run batch by batch, without Spark."""

    folder: Path
    lake: str
    url: str = ""
    more: str = ""
    warm: Warm = field(default_factory=Warm)
    number: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        head = "  spark.hadoop.fs.s3a."
        access = f'{head}access.key: a-key\n{head}secret.key: {SECRET}\n{head}endpoint: "{self.url}"\n'
        self.file = self.folder / "depot.yaml"
        self.file.write_text(
            f"pipeline: depot\nlake: {self.lake}\nengine: auto\nsources:\n  - {{name: bins, kind: files, path: ./*.jsonl, "
            f"format: dts-canal, settle: 0s}}\n{self.more}" + (f"spark:\n{access}" if self.url else "")
        )
        self.pipeline = load(self.file)

    def run(self, messages: str, *more: str) -> Result:
        """Land, decode and fold some messages; ``more`` are further stages."""
        self.number += 1
        (self.folder / f"f{self.number:03}.jsonl").write_text(messages, "utf-8")
        spark: Any = unstarted(2)
        return run(spark, self.pipeline, ("bronze", "silver", "gold", *more), self.warm)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """A mirror's rows."""
        reader = LakeReader(self.pipeline)
        return reader.ask_mirror(f"mirrors/depot/{table}", "SELECT * FROM {mirror} AS m ORDER BY id")

    def counted(self, name: str, what: str = "count(*)") -> Any:
        """A figure of one of the product's tables."""
        return LakeReader(self.pipeline).ask(f"SELECT {what} AS n FROM {{{name}}}")[0]["n"]


@pytest.mark.parametrize(
    ("seed", "more"), [(1, ""), pytest.param(2, "", marks=pytest.mark.slow), (1, "rewrite_budget: 1B\n")]
)
def test_a_store_holds_what_a_folder_holds(store: Store, tmp_path: Path, seed: int, more: str) -> None:
    """Each file and commit that takes another way than in a folder may be lost, doubled or read as it was before.

    With next to no budget rows are deleted by vectors.
    """
    there = Lake(tmp_path / "store", f"s3a://lakes/h{seed}{len(more)}", store.url, more)
    here = Lake(tmp_path / "folder", "./lake", more=more)
    for batch in range(1, 6):
        messages = history(seed, batch)
        results = [one.run(messages) for one in (there, here)]
        assert [[], []] == [one.failures for one in results]
        assert [[], []] == [one.warnings for one in results]
        ways = [[(one.mirror, one.state, one.why_merge) for one in result.mirrors] for result in results]
        assert ways[0] == ways[1]
        assert [here.rows(table) for table in TABLES] == [there.rows(table) for table in TABLES]
    for name, what in (
        (CHANGES.name, "sum(hash(order_key, after))"),
        (BOOKS.name, "sum(changes)"),
        (BRONZE.name, "count(*)"),
    ):
        assert here.counted(name, what) == there.counted(name, what), name
    assert here.counted(RUNS.name) == there.counted(RUNS.name)
    assert bool(more) == any(
        one.vector for one in LakeReader(there.pipeline).snapshot("mirrors/depot/bins").files
    )
    assert {} == there.run("").messages
    assert not store.files().exists(f"/{there.lake.partition('://')[2]}/_ingest.lock")


def _layout(faulty: Faulty, name: str) -> Layout:
    """An empty table in the store."""
    lake = f"s3a://lakes/{name}"
    stores.know(lake, {**stores._PATIENCE, **_access(faulty.url)})
    stores._stores[lake].fresh = True
    path = f"{lake}/things"
    fields = json.dumps(
        {"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]}
    )
    commits.create(path, fields, (), {}, "{}")
    return Layout(path, pa.schema([("n", pa.int64())]))


def _access(url: str) -> dict[str, str]:
    return {
        "aws_access_key_id": "a-key", "aws_secret_access_key": SECRET, "aws_endpoint_url": url,
        "aws_region": "us-east-1", "aws_allow_http": "true",
    }  # fmt: skip


def _append(layout: Layout, number: int, writer: str = "w") -> None:
    files = written(layout, pa.table({"n": [number]}))
    commits.append(layout.folder, files, "{}", writer, number)


def test_of_two_writers_of_a_version_one_is_first(faulty: Faulty) -> None:
    """Without the store's condition the second would overwrite the first: its rows would be gone."""
    layout = _layout(faulty, "race")

    def write(writer: str) -> None:
        for number in range(8):
            _append(layout, number, writer)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, ("one", "two")))
    state = delta.snapshot(layout.folder)
    assert (16, 16, {"one": 7, "two": 7}) == (state.version, state.rows, state.transactions)
    with pytest.raises(commits.TakenError):
        _append(layout, 7, "one")


@pytest.mark.parametrize("fault", [LOST, BUSY, SLOW])
def test_a_commit_whose_answer_is_lost_is_not_made_twice(faulty: Faulty, fault: str) -> None:
    """A second attempt meets the entry of the first: it is the writer's own, and no reason to write another."""
    layout = _layout(faulty, f"lost-{fault}")
    for number in range(3):
        faulty.does(Fault(fault, "PUT", "_delta_log", 2))
        _append(layout, number)
    state = delta.snapshot(layout.folder)
    assert (3, 3, 2) == (state.version, state.rows, state.transactions["w"])


def test_another_writers_entry_is_not_taken_for_ones_own(faulty: Faulty) -> None:
    """The answer is lost, and the version is another writer's: the batch goes into the next one."""
    layout = _layout(faulty, "other")
    faulty.does(Fault(RIVAL, "PUT", f"{1:020d}.json", 1, '{"txn":{"appId":"other","version":50}}\n'))
    _append(layout, 0)
    state = delta.snapshot(layout.folder)
    assert (2, 1, {"w": 0, "other": 50}) == (state.version, state.rows, state.transactions)


def test_a_store_that_refuses(faulty: Faulty) -> None:
    """One sentence, without the key that the store's answer names, and no second attempt."""
    layout = _layout(faulty, "denied")
    faulty.does(Fault(DENIED, "PUT"))
    with pytest.raises(
        IngestError, match=r"s3a://lakes/denied cannot be written \(403 Forbidden: AccessDenied\)"
    ) as caught:
        _append(layout, 0)
    assert not any(word in str(caught.value) for word in ("AKIA", SECRET))
    assert 1 == sum(method == "PUT" for method, _ in faulty.requests())
    assert (0, 0) == (delta.snapshot(layout.folder).version, delta.snapshot(layout.folder).rows)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("place", ["bronze/_delta_log", "/changes/", "mirrors/depot/bins/", "_delta_log"])
def test_credentials_that_expire_in_a_run(faulty: Faulty, tmp_path: Path, place: str) -> None:
    """Wherever their time is over, the run says which answer it got, and the next one goes on from there."""
    there = Lake(tmp_path / "store", f"s3a://lakes/expired{abs(hash(place))}", faulty.url)
    here = Lake(tmp_path / "folder", "./lake")
    for one in (there, here):
        assert [] == one.run(history(4, 1)).failures
        (one.folder / "later.jsonl").write_text(history(4, 2), "utf-8")
    faulty.does(Fault(EXPIRED, "PUT", place))
    said = _said(there)
    assert "400 Bad Request: ExpiredToken" in said
    assert not any(word in said for word in ("AKIA", SECRET))
    faulty.does()
    assert [[], []] == [one.run(history(4, 3)).failures for one in (there, here)]
    assert [here.rows(table) for table in TABLES] == [there.rows(table) for table in TABLES]
    assert here.counted(BRONZE.name) == there.counted(BRONZE.name)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Batches of more than 20 changes of a mirror are folded in parts, by this process instead of Spark's tasks; returns
    what such tasks do.
    """
    done: list[str] = []

    def reports(
        _lake: object,
        do: Callable[[Any], Any],
        todo: Sequence[Any],
        _kind: object,
        deal: Callable[[Any], Any],
        *_rest: Any,
    ) -> Iterator[Any]:
        for each in deal(todo):
            try:
                found = list(do(each))
            except Exception as error:
                raise PySparkException(f"a task failed: {error}") from error
            done.extend(type(one).__name__ for one in found)
            yield from found

    monkeypatch.setattr(planner, "CHANGES_AT_MOST", 20)
    monkeypatch.setattr(arrow_runs, "_reports", reports)
    return done


def _whole(batch: int) -> str:
    """Many changes of two tables, each with its whole row."""
    random = Random(batch)
    lines = []
    for serial in range(1000 * batch, 1000 * batch + 160):
        kind, table = random.choice(("INSERT", "UPDATE", "UPDATE", "DELETE")), random.choice(TABLES)
        lines.append(change(kind, table, serial, {"id": str(random.randrange(40)), "word": f"w{serial}"}))
    return "".join(lines)


@pytest.mark.parametrize("more", ["", "rewrite_budget: 1B\n"])
def test_parts_in_a_store(store: Store, tmp_path: Path, parts: list[str], more: str) -> None:
    """Parts write to a folder that only they know: a file of it that is lost, or stays, is lost rows or lost space."""
    there = Lake(tmp_path / "store", f"s3a://lakes/parts{len(more)}", store.url, more)
    here = Lake(tmp_path / "folder", "./lake", more=more)
    for batch in range(1, 5):
        assert [[], []] == [one.run(_whole(batch)).failures for one in (there, here)]
        assert [here.rows(table) for table in TABLES] == [there.rows(table) for table in TABLES]
    assert {"Dealt", "Written"} == set(parts)
    assert not [one for one in store.files().find(f"/lakes/parts{len(more)}") if "/parts-" in one]


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("method", "place"),
    [("PUT", "parts-"), ("GET", "parts-"), ("PUT", "part-"), ("PUT", "deletion_vector")],
)
def test_credentials_that_expire_in_a_part(
    faulty: Faulty, tmp_path: Path, parts: list[str], method: str, place: str
) -> None:
    """The mirror says which answer the store gave, Spark is not asked for the same one, and the others go on."""
    more = "rewrite_budget: 1B\n"
    there = Lake(tmp_path / "store", f"s3a://lakes/parts{abs(hash(place + method))}", faulty.url, more)
    here = Lake(tmp_path / "folder", "./lake", more=more)
    assert [[], []] == [one.run(_whole(1)).failures for one in (there, here)]
    (there.folder / "later.jsonl").write_text(_whole(2), "utf-8")
    faulty.does(Fault(EXPIRED, method, f"mirrors/depot/bins/{place}"))
    result = there.run("")
    [said] = result.failures
    assert "400 Bad Request: ExpiredToken" in said
    assert SECRET not in said
    assert ["depot.boxes"] == [one.mirror for one in result.mirrors if one.state == "done"]
    faulty.does()
    assert [] == there.run("").failures
    assert [] == here.run(_whole(2)).failures
    assert [here.rows(table) for table in TABLES] == [there.rows(table) for table in TABLES]


def _said(lake: Lake) -> str:
    """What a run that cannot go on says, by an error or in its result."""
    try:
        return " ".join(map(str, lake.run("").failures))
    except IngestError as error:
        return str(error)


@pytest.mark.parametrize(
    ("fault", "why"),
    [(CARELESS, "lets a second writer replace a new file"), (DENIED, "403 Forbidden"), (BUSY, "503")],
)
def test_a_store_that_arrow_cannot_use_is_left_to_spark(
    faulty: Faulty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, why: str
) -> None:
    """Of two runs both would commit: such a lake is Spark's, and the plan says why."""
    monkeypatch.setattr(stores, "_PATIENCE", stores._PATIENCE | {"retry_timeout": "1s", "max_retries": "1"})
    faulty.does(Fault(fault, "PUT", object_store.PROBE))
    lake = Lake(tmp_path, f"s3a://lakes/left-{fault}", faulty.url)
    stores.remember_store(lake.pipeline)
    assert why in commits.why_no_commits(lake.pipeline.lake)
    assert not commits.takes_commits(lake.pipeline.lake)
    assert SECRET not in commits.why_no_commits(lake.pipeline.lake)


def test_a_store_is_asked_once(faulty: Faulty, tmp_path: Path) -> None:
    """A plan leaves nothing in a store that no run has asked, and every further look is cheap."""
    lake = Lake(tmp_path, "s3a://lakes/once", faulty.url)
    stores.remember_store(lake.pipeline)
    assert commits.within_reach(lake.pipeline.lake)
    assert "PUT" not in {method for method, _ in faulty.requests()}
    for _ in range(3):
        assert commits.takes_commits(lake.pipeline.lake)
    assert 2 == sum(method == "PUT" for method, _ in faulty.requests())


def test_a_tick_asks_a_store_no_more_than_the_one_before(faulty: Faulty, tmp_path: Path) -> None:
    """To open a table again costs a request for each commit since its checkpoint; a checkpoint costs as many."""
    lake = Lake(tmp_path, "s3a://lakes/ticks", faulty.url)
    asked = []
    for tick in range(1, 11):
        assert [] == lake.run(change("INSERT", "bins", tick, {"id": f"{tick}"}), "quality").failures
        asked.append(len(faulty.requests()))
    assert max(asked[2:6]) <= asked[1] + 4, asked
    assert asked[9] <= asked[1] + 100, asked


def test_a_run_in_use_is_refused_without_spark(faulty: Faulty, tmp_path: Path) -> None:
    """Between looking for a lock and writing one there is always a moment for another run; the store decides it."""
    lake = Lake(tmp_path, "s3a://lakes/held", faulty.url)
    stores.remember_store(lake.pipeline)
    with lock.held(lake.pipeline.lake, "another run"):
        for look in (
            lambda: lock.check(lake.pipeline.lake),
            lambda: lake.run(change("INSERT", "bins", 1, {"id": "1"})),
        ):
            with pytest.raises(LockedError, match="in use by another run"):
                look()
    lock.check(lake.pipeline.lake)
    assert [] == lake.run("").failures


def test_secrets_are_in_no_file_of_the_lake_and_in_no_task(store: Store, tmp_path: Path) -> None:
    """What opens the store is in the code that tasks get, and in nothing that is written, shown or printed."""
    lake = Lake(tmp_path, "s3a://lakes/secrets", store.url)
    lake.run(history(3, 1))
    files = store.files()
    assert not [one for one in files.find("/lakes/secrets") if SECRET.encode() in files.cat(one)]
    task = stores.carried(iter, lake.pipeline.lake)
    assert SECRET not in f"{task} {task.__name__} {task.__doc__} {stores._stores}"


@pytest.mark.spark
def test_every_way_of_folding_in_one_lake(store: Store, tmp_path: Path) -> None:
    """Tasks must reach the store, Spark must read what Arrow wrote and the reverse, and neither may show the secret."""
    logs = tmp_path / "events"
    logs.mkdir()
    try:
        spark = store.hadoop | {"spark.eventLog.enabled": "true", "spark.eventLog.dir": logs.as_uri()}
    except Missing as missing:
        pytest.skip(str(missing))
    spark |= {"spark.hadoop.fs.s3a.secret.key": SECRET, "spark.eventLog.compress": "false"}
    there = Lake(
        tmp_path / "store",
        "s3a://lakes/ways",
        "",
        "spark:\n" + "".join(f'  {k}: "{v}"\n' for k, v in spark.items()),
    )
    here = Lake(tmp_path / "folder", "./lake")
    command = [sys.executable, "-m", "tests.e2e.fold_modes", str(there.file), str(here.file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=580)
    assert 0 == done.returncode, done.stderr[-4000:]
    found = json.loads(done.stdout)
    assert found[here.pipeline.lake] == found[there.pipeline.lake]
    batches = found[there.pipeline.lake][:-1]
    assert [[]] * 5 == [failures for failures, _ in batches]
    assert [False, False, True, True, False] == [
        all(spark for *_, spark in mirrors) for _, mirrors in batches
    ]
    written = [one.read_text("utf-8") for one in logs.rglob("*") if one.is_file()]
    assert any("MapInArrow" in one for one in written)
    assert not [one for one in [*written, done.stdout, done.stderr] if SECRET in one]
