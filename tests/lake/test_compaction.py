"""Small and hollow files are joined by Arrow: the same rows in fewer files, whoever writes meanwhile, and whenever it is killed."""

from __future__ import annotations

import contextlib
import copy
import datetime as dt
import errno
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from ingest.cli.app import app
from ingest.config.model import TableRule
from ingest.errors import IngestError, LockedError
from ingest.ledgers import maintenance
from ingest.ledgers.maintenance import Kept, maintain, may_have_dead_files
from ingest.result import STAGES
from ingest.run import Warm, run
from ingest.spark import tasks
from ingest.store import lock
from ingest.tables import commits, compaction, delta, row_files, vectors
from ingest.tables.commits import NewRows
from ingest.tables.compaction import Bundle, planned
from ingest.tables.datafiles import Added, arrow_schema
from ingest.tables.delta import DataFile, Snapshot
from ingest.tables.lake import Lake
from ingest.tables.row_files import RowFile
from ingest.tables.tables import RESTORE, LakeReader
from tests import lakes
from tests.gold.depot import Depot
from tests.silver.test_without_spark import Tasks
from tests.unstarted import unstarted

PATH = "mirrors/yard/depot"
NAMES = ("bronze", "changes", "books", PATH)
CONFLICT, BESIDE = [2, 3], [900]


class KilledError(BaseException):
    """Ends a process as a kill does."""


class TwoTasks(Tasks):
    """The same for two tasks at a time."""

    sparkContext = SimpleNamespace(defaultParallelism=2)  # noqa: N815 - Spark's name


class Yard:
    """A lake without Spark whose mirror has deletion vectors: each batch updates some rows of its first file."""

    def __init__(self, folder: Path) -> None:
        self.depot = Depot(unstarted(), folder, Warm(), TableRule("yard.*"), budget=1)
        self.truth = dict.fromkeys(range(40), 0)
        for key in self.truth:
            self.depot.row(id=str(key), n="0")
        assert ("done", "") == self.depot.run()
        for batch in (2, 3):
            self.tick(range(batch, 9))

    def tick(self, keys: Any) -> None:
        """A batch that updates some rows, and inserts those that are not there."""
        for key in keys:
            n = self.truth.get(key)
            old = None if n is None else {"n": str(n)}
            self.depot.row("INSERT" if n is None else "UPDATE", old, id=str(key), n=str((n or 0) + 1))
            self.truth[key] = (n or 0) + 1
        assert ("done", "") == self.depot.run()
        assert self.depot.why_merge == ""

    @property
    def lake(self) -> Lake:
        """The lake, as another process sees it."""
        return self.depot.lake()

    def rows(self) -> dict[str, Counter[str]]:
        """The rows of each table."""
        found = {name: self.lake.ask_mirror(name, "SELECT * FROM {mirror}") for name in NAMES}
        assert self.truth == {row["id"]: row["n"] for row in found[PATH]}
        return {name: Counter(map(str, rows)) for name, rows in found.items()}

    def files(self) -> set[str]:
        """The data files in the mirror's folder."""
        return {file.name for file in Path(self.lake.path(PATH)).glob("*.parquet")}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Yard:
    """A lake of three batches, which nobody changes."""
    return Yard(tmp_path_factory.mktemp("yard"))


@pytest.fixture
def yard(made: Yard, tmp_path: Path) -> Yard:
    """A copy of it."""
    shutil.copytree(made.depot.folder, tmp_path, dirs_exist_ok=True)
    copied = copy.copy(made)
    copied.depot = replace(made.depot, folder=tmp_path, warm=Warm(), messages=[])
    copied.truth = made.truth.copy()
    return copied


def joined(done: list[Kept]) -> dict[str, tuple[int, int]]:
    """How many files of each table became how many."""
    return {kept.table: (kept.joined, kept.into) for kept in done if kept.joined or kept.into}


@pytest.mark.parametrize("engine", ["auto", "spark"])
def test_fewer_files_hold_the_same_rows(yard: Yard, engine: str) -> None:
    """A row that a vector had removed would be back, one of another partition lost, or the next batch would find a stranger."""
    before, old = yard.rows(), yard.lake.snapshot(PATH)
    assert old.files[0].deleted > 0
    lake = yard.lake
    if engine == "spark":
        yard.depot.engine = engine
        lake = Lake(cast("Any", TwoTasks()), yard.depot.pipeline)
    done = joined(maintain(lake, NAMES, vacuum=False))
    yard.depot.engine = "auto"
    assert {"bronze": (6, 2), "books": (3, 1), PATH: (len(old.files), 1)}.items() <= done.items()
    assert before == yard.rows()
    for name in NAMES:
        files = yard.lake.snapshot(name).files
        assert len(files) == len({tuple(file.partition.items()) for file in files})
        assert not any(file.vector for file in files)
        assert DeltaTable(yard.lake.path(name)).history(1)[0]["operation"] == "OPTIMIZE"
        actions = yard.lake.actions(name, yard.lake.snapshot(name).version)
        assert not any(next(iter(each.values())).get("dataChange") for each in actions)
    [whole] = yard.lake.snapshot(PATH).files
    ends = json.loads(whole.stats)
    assert (40, {"id": 0}, {"id": 39}) == (ends["numRecords"], ends["minValues"], ends["maxValues"])
    assert old.files == delta.snapshot(yard.lake.path(PATH), old.version).files
    assert {} == joined(maintain(yard.lake, NAMES, vacuum=False))
    yard.tick([*CONFLICT, *BESIDE])
    yard.rows()


@pytest.mark.parametrize("keys", [CONFLICT, BESIDE], ids=["conflict", "beside"])
def test_a_batch_meanwhile_wins(yard: Yard, keys: list[int]) -> None:
    """A tick whose commit were refused folds its batch twice; one whose changes were overwritten is lost."""
    turns, before = [], yard.files()

    @contextmanager
    def turn() -> Iterator[None]:
        turns.append(yard.files() - before)
        if len(turns) == 2:  # the first one cleans what killed rebuilds left
            yard.tick(keys)
        yield

    small = len(yard.lake.snapshot(PATH).files)
    [done] = maintain(yard.lake, [PATH], vacuum=False, turn=turn)
    yard.rows()
    after = yard.lake.snapshot(PATH).files
    if keys == BESIDE:  # the commit takes its place behind the batch
        assert (small, 1, 2, 2) == (done.joined, done.into, len(after), len(turns))
    else:
        assert (True, 1, 1, 3) == (done.joined > 1, done.into, len(after), len(turns))
        assert not turns[1] & yard.files()  # the file that came too late is no one's
    yard.tick(keys)
    yard.rows()


@pytest.mark.parametrize("others", [1, 9])
def test_a_commit_that_others_overtake_is_tried_again(
    yard: Yard, others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the lock, in a store, any number of commits may come first."""
    put, before = commits._put, yard.files()
    left = [others]

    def late(path: str, version: int, actions: Iterator[dict[str, Any]]) -> bool:
        actions = iter([*actions])
        if left[0]:
            left[0] -= 1
            assert put(path, version, [{"commitInfo": {"timestamp": 0, "operation": "MARK"}}])
        return put(path, version, actions)

    monkeypatch.setattr(commits, "_put", late)
    [done] = maintain(yard.lake, [PATH], vacuum=False)
    assert (done.into == 1) == (others == 1)
    assert before == yard.files() or others == 1
    yard.rows()


def test_a_killed_upkeep_leaves_the_table_as_it_was(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that no commit names are no rows; the next upkeep joins the same files, and VACUUM deletes the others."""

    def killed(*_given: object) -> None:
        raise KilledError

    before = yard.files()
    with monkeypatch.context() as patch:
        patch.setattr(commits, "join", killed)
        with pytest.raises(KilledError):
            maintain(yard.lake, [PATH], vacuum=False)
    [orphan] = yard.files() - before
    yard.rows()
    [done] = maintain(yard.lake, [PATH], vacuum=False)
    assert 1 == done.into
    yard.rows()
    assert not may_have_dead_files(yard.lake, PATH)
    folder, month_ago = Path(yard.lake.path(PATH)), time.time() - 30 * 86400
    os.utime(folder / orphan, (month_ago, month_ago))
    assert may_have_dead_files(yard.lake, PATH)
    (folder / orphan).unlink()


def test_files_that_somebody_deleted_meanwhile_are_not_committed(yard: Yard) -> None:
    """VACUUM without a retention deletes files that no commit names yet: a commit that named them would lose all rows."""
    before = yard.files()

    @contextmanager
    def turn() -> Iterator[None]:
        for name in yard.files() - before:
            Path(yard.lake.path(PATH), name).unlink()
        yield

    [done] = maintain(yard.lake, [PATH], vacuum=False, turn=turn)
    assert (0, 0) == (done.joined, done.into)
    yard.rows()


def one_each(bundles: Sequence[Bundle], _tasks: int) -> Iterator[list[Bundle]]:
    """Each bundle in a job of its own."""
    return ([bundle] for bundle in bundles)


def parquet(lake: Lake) -> set[Path]:
    """The data files of all tables."""
    return set(Path(lake.pipeline.lake).rglob("*.parquet"))


def test_a_table_that_loses_in_two_jobs_is_joined_once(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files would be replaced by two copies of their rows."""
    jobs, commit, lost, before = compaction._jobs, compaction._commit, list[int](), yard.rows()

    def late(lake: Lake, name: str, made: Any, turn: Any) -> Any:
        lost.append(len(made))
        return [] if len(lost) <= 2 else commit(lake, name, made, turn)

    monkeypatch.setattr(compaction, "_commit", late)

    def split(bundles: Sequence[Bundle], tasks: int) -> Iterator[list[Bundle]]:
        return jobs(bundles, tasks) if lost else one_each(bundles, tasks)

    monkeypatch.setattr(compaction, "_jobs", split)
    [done] = maintain(yard.lake, ["bronze"], vacuum=False)
    assert ([1, 1, 2], 6, 2) == (lost, done.joined, done.into)
    assert before == yard.rows()


def test_files_that_are_named_twice_are_not_replaced(yard: Yard) -> None:
    """Nor are those of another state of the table."""
    path, state = yard.lake.path(PATH), yard.lake.snapshot(PATH)
    for gone in ([*state.files[:1]] * 2, [DataFile("other.parquet", 1, {})]):
        with pytest.raises(IngestError, match="each of them once"):
            commits.join(path, state, gone, [], "{}", "ingest")
    assert state.version == delta.snapshot(path).version


def test_the_fault_of_one_table_is_said_and_the_others_are_kept(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost file would stop the upkeep of the whole lake, and what is written for its table already would stay."""
    cleaned, lost = list[str](), yard.lake.snapshot("bronze").files[0].place
    Path(yard.lake.path("bronze"), lost).unlink()
    before = set(Path(yard.lake.path("bronze")).rglob("*.parquet"))

    def join_by_spark(_lake: Lake, name: str, *_given: object) -> None:
        raise FileNotFoundError(2, "FileNotFoundException", f"/lake/{name}/{lost}")

    monkeypatch.setattr(maintenance, "_join_by_spark", join_by_spark)
    monkeypatch.setattr(maintenance, "clean_log", lambda _lake, name: cleaned.append(name))
    for jobs in (one_each, compaction._jobs):
        monkeypatch.setattr(compaction, "_jobs", jobs)
        done = {kept.table: kept for kept in maintain(yard.lake, NAMES, vacuum=False)}
        assert set(NAMES) == set(cleaned)
        assert before == set(Path(yard.lake.path("bronze")).rglob("*.parquet"))
        assert {"bronze"} == {name for name, kept in done.items() if kept.refused}
        place = Path(yard.lake.path("bronze"), lost)
        assert (
            f"bronze is not in shape: a data file is damaged or missing at /lake/bronze/{lost}; "
            f"{RESTORE} (without Spark: FileNotFoundError: {place})." == done["bronze"].refused
        )
    assert 1 == len(yard.lake.snapshot(PATH).files)


@pytest.mark.parametrize("name", [PATH, "books"])
def test_the_damaged_log_of_one_table_stops_the_upkeep_of_no_other(yard: Yard, name: str) -> None:
    """One entry of one log stopped the upkeep of the whole lake, for as long as nobody looked at it."""
    folder, file = yard.lake.path(name), yard.depot.pipeline.file
    entry = max(Path(folder, "_delta_log").glob("*.json"))
    entry.write_text("{", "utf-8")
    done = {kept.table: kept for kept in maintain(yard.lake, NAMES, vacuum=False)}
    assert {*NAMES} - {name} == {table for table, kept in done.items() if kept.joined and not kept.refused}
    again = f"move the folder {folder} away, and `ingest rebuild {file} yard.depot` makes the mirror again from its changes"
    way = again if name == PATH else RESTORE
    assert f"{name} is not in shape: the table's log is damaged at {entry}; {way}." == done[name].refused


def test_a_damaged_log_is_said_by_the_verb(tmp_path: Path) -> None:
    """Of a mirror it is one of many faults. Without bronze's log nobody knows whose lake it is, nor what nothing needs any more."""
    depot = lakes.Depot(tmp_path, "engine: auto\n")
    for _ in range(2):
        depot.grow(broken=False)
        assert 0 == run(unstarted(), depot.pipeline, STAGES[:3]).exit_code
    lake = Path(depot.pipeline.lake)

    def maintained(name: str) -> tuple[int, str]:
        entry = max((lake / name / "_delta_log").glob("*.json"))
        sound = entry.read_text("utf-8")
        entry.write_text("{", "utf-8")
        done = CliRunner().invoke(app, ["maintain", str(depot.file), "-o", "json"])
        entry.write_text(sound, "utf-8")
        assert f"damaged at {entry}; " in done.output
        return done.exit_code, done.output

    def data() -> set[Path]:
        return {*lake.rglob("*.parquet"), *lake.rglob("_delta_log/*.json")}

    before = data()
    code, said = maintained("bronze")
    assert (2, True, before) == (code, f"{RESTORE}." in said, data())
    code, said = maintained("mirrors/depot/bins")
    assert (1, True) == (code, f"`ingest rebuild {depot.file} depot.bins` makes the mirror again" in said)
    assert {"bronze", "changes"} <= {
        table["table"] for table in json.loads(said[said.index("[") :]) if table["joined"]
    }


@pytest.mark.parametrize("is_written", [False, True])
def test_a_log_for_which_a_disk_has_no_space_names_no_new_files(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    """Each upkeep left one more copy of the table on a disk that was full already."""
    put, before, rows = commits._put, parquet(yard.lake), yard.rows()

    def full(path: str, version: int, actions: Any) -> bool:
        if is_written:
            put(path, version, actions)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(commits, "_put", full)
        done = compaction.join(yard.lake, NAMES, contextlib.nullcontext, lambda *_: None)
    assert set(NAMES) == done.full
    assert (before == parquet(yard.lake)) is not is_written
    assert rows == yard.rows()


def test_files_that_wait_for_a_lock_in_vain_are_removed(yard: Yard) -> None:
    """Large files without a commit would stay until VACUUM, those of all tables of a job."""
    before, turns = parquet(yard.lake), list[int]()

    @contextmanager
    def turn() -> Iterator[None]:
        turns.append(len(parquet(yard.lake) - before))
        if len(turns) == 2:
            raise LockedError("The lake is in use.")
        yield

    with pytest.raises(LockedError):
        maintain(yard.lake, NAMES, vacuum=False, turn=turn)
    assert turns[1] > 3
    assert before == parquet(yard.lake)


def test_a_file_is_removed_if_its_rows_cannot_all_be_read(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written of it would stay."""
    monkeypatch.setattr(row_files, "GROUP_ROWS", 1)
    [bundle] = planned(yard.lake, PATH)
    Path(yard.lake.path(PATH), bundle.files[-1].place).unlink()
    before = yard.files()
    with pytest.raises(OSError, match="parquet"):
        bundle.write()
    assert before == yard.files()


def test_a_file_whose_deleted_rows_are_not_known_is_left_to_spark(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of its deleted rows would be back."""
    left = list[str]()
    monkeypatch.setattr(maintenance, "_join_by_spark", lambda _lake, name, *_given: left.append(name))
    with monkeypatch.context() as patch:
        patch.setattr(delta, "kept_rows", lambda *_given: {})
        done = joined(maintain(yard.lake, [PATH, "books"], vacuum=False))
    assert ([PATH], {"books"}) == (left, set(done))
    yard.rows()


def test_a_round_decides_by_all_its_files(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each job alone no tasks would be worth their start."""
    loads = set[int]()
    monkeypatch.setattr(compaction, "_jobs", one_each)
    monkeypatch.setattr(tasks, "in_tasks", lambda _engine, _stage, load, **_how: bool(loads.add(load.size)))
    size = sum(bundle.size for name in NAMES for bundle in planned(yard.lake, name))
    maintain(yard.lake, NAMES, vacuum=False)
    assert {size} == loads


def test_deleted_rows_are_sent_without_those_of_other_files(tmp_path: Path) -> None:
    """Each file's would be as large as all of them."""
    _, path, _ = table_of(tmp_path, 2)
    state = delta.snapshot(path)
    gone = vectors.write(path, {file.place: np.array([1]) for file in state.files})
    assert commits.write(path, state, NewRows([], marked=list(gone), vectors=gone), "{}")
    kept = delta.kept_rows(path, state.version + 1)
    assert [[True, False]] * 2 == [mask.to_pylist()[:2] for mask in kept.values()]
    assert not any(mask.offset for mask in kept.values())


YEARS = {
    "one year": [18262, 19000, 18500],
    "five digits": [19000, 2932897],
    "before year 0": [19000, -800000, -790000],
}


@pytest.mark.parametrize("days", YEARS.values(), ids=YEARS)
def test_the_bounds_of_dates_hold_all_of_them(
    tmp_path: Path, days: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine passes over the file of a day that is not between them."""
    monkeypatch.setattr(row_files, "GROUP_ROWS", 1)
    file = RowFile(str(tmp_path), ["day"])
    for day in days:
        file.add(pa.table({"day": pa.array([day], pa.date32())}))
    end = file.finish()
    assert end is not None
    stats = json.loads(end.stats)
    ends = stats["minValues"].get("day"), stats["maxValues"].get("day")
    assert (("2020-01-01", "2022-01-08") if max(days) == 19000 and min(days) > 0 else (None, None)) == ends


def test_runs_go_on_while_files_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lake would stand still for as long as its largest tables take."""
    depot, codes = lakes.Depot(tmp_path, "engine: auto\n"), list[int]()

    def tick() -> None:
        depot.grow(broken=False)
        codes.append(run(unstarted(), depot.pipeline, STAGES[:2]).exit_code)

    def write(bundles: Sequence[Bundle]) -> Iterator[pa.RecordBatch]:
        tick()
        with pytest.raises(LockedError), lock.rewriting(depot.pipeline.lake, "erase"):
            pass  # rows that are deleted for good could be in these files
        yield from real(bundles)

    tick()
    tick()
    real = compaction._write
    monkeypatch.setattr(compaction, "_write", write)
    found = CliRunner().invoke(app, ["maintain", str(depot.file), "-o", "json"])
    assert (0, [0, 0, 0]) == (found.exit_code, codes), found.output
    [changes] = [table for table in json.loads(found.stdout) if table["table"] == "changes"]
    assert changes["joined"] > changes["into"] > 0
    assert 3 == LakeReader(depot.pipeline).decoded()


def test_only_files_that_are_old_and_that_no_promised_version_needs_are_dead(yard: Yard) -> None:
    """VACUUM costs the start of Java: it is not asked for nothing, nor forgotten where there is something."""
    folder, month_ago = Path(yard.lake.path(PATH)), time.time() - 30 * 86400
    assert maintain(yard.lake, [PATH])[0].joined  # which would fail if it started Spark
    DeltaTable(str(folder)).create_checkpoint()
    for file in folder.iterdir():
        if file.is_file():
            os.utime(file, (month_ago, month_ago))
    assert not may_have_dead_files(
        yard.lake, PATH
    )  # just replaced: for as long as was promised they can be read
    (folder / ".of-hadoop.crc").touch()
    os.utime(folder / ".of-hadoop.crc", (month_ago, month_ago))
    assert not may_have_dead_files(yard.lake, PATH)
    left = folder / "parts-of-a-killed-run" / "one.arrow"
    left.parent.mkdir()
    left.touch()
    assert not may_have_dead_files(yard.lake, PATH)
    os.utime(left, (month_ago, month_ago))
    assert may_have_dead_files(yard.lake, PATH)
    left.unlink()
    later = time.time() + 8 * 86400
    real, time.time = time.time, lambda: later
    try:
        assert may_have_dead_files(yard.lake, PATH)
    finally:
        time.time = real


# --- one table --------------------------------------------------------------------------------------

_ENDS = dt.datetime.fromisoformat("0001-01-01"), dt.datetime.fromisoformat("9999-12-31T23:59:59.999999")
TYPES: dict[str, Any] = {
    "id": ("integer", [1, 2, 3]),
    "tiny": ("byte", [-1, None, 1]),
    "small": ("short", [-300, None, 300]),
    "long": ("long", [-(2**63), None, 2**63 - 1]),
    "day": ("date", [dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
    "local": ("timestamp_ntz", [_ENDS[0], None, _ENDS[1]]),
    "moment": ("timestamp", [dt.datetime(1600, 2, 29, tzinfo=dt.UTC), None, dt.datetime(2024, 1, 1, 1, tzinfo=dt.UTC)]),
    "exact": ("decimal(38,10)", [Decimal("-9999999999999999999999999999.9999999999"), None, Decimal("0.0000000001")]),
    "about": ("double", [float("-inf"), None, float("nan")]),
    "less": ("float", [0.1, None, -0.0]),
    "word": ("string", ["", None, "\U0001f600" * 40]),
    "raw": ("binary", [b"", None, b"\xff\0"]),
    "sure": ("boolean", [True, None, False]),
}  # fmt: skip


def table_of(folder: Path, count: int) -> tuple[Lake, str, pa.Table]:
    """A mirror of all types in so many files of three rows."""
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, (kind, _) in TYPES.items()
    ]
    lake = Depot(unstarted(), folder, Warm(), TableRule("yard.*")).lake()
    path, schema = lake.path(PATH), arrow_schema({name: kind for name, (kind, _) in TYPES.items()})
    commits.create(path, json.dumps({"type": "struct", "fields": fields}), [], {}, "{}")
    tables = []
    for n in range(count):
        cells = {name: values for name, (_, values) in TYPES.items()} | {"id": [3 * n, 3 * n + 1, 3 * n + 2]}
        tables.append(pa.table(cells, schema=schema))
        file = RowFile(path, ["id"])
        file.add(tables[-1])
        end = file.finish()
        assert end is not None
        new = [Added(end.name, end.size, {}, end.stats, int(time.time() * 1000))]
        assert commits.write(path, delta.snapshot(path), NewRows(new, replaces=False), "{}")
    return lake, path, pa.concat_tables(tables)


def test_every_type_keeps_its_values(tmp_path: Path) -> None:
    """A value that went through a double, another calendar or another zone is another value."""
    lake, path, rows = table_of(tmp_path, 3)
    state = lake.snapshot(PATH)
    gone = vectors.write(path, {state.files[1].place: np.array([1])})
    marked = NewRows([], marked=[file.place for file in state.files], vectors=gone)
    assert commits.write(path, state, marked, "{}")
    [done] = maintain(lake, [PATH])
    assert (3, 1) == (done.joined, done.into)
    [file] = lake.snapshot(PATH).files
    left = sorted(pa.concat_tables([rows.slice(0, 4), rows.slice(5)]).to_pylist(), key=lambda row: row["id"])
    found = sorted(DeltaTable(path).to_pyarrow_table().to_pylist(), key=lambda row: row["id"])
    assert str(left) == str(found)
    stats = json.loads(file.stats)
    assert (8, {"id": 0}, {"id": 8}, {"id": 0}) == tuple(
        stats[name] for name in ("numRecords", "minValues", "maxValues", "nullCount")
    )


def test_files_without_a_row_that_is_left_become_none(tmp_path: Path) -> None:
    """A file of no rows is one more to open for every reader."""
    lake, path, _ = table_of(tmp_path, 2)
    [bundle] = planned(lake, PATH)
    nothing = {file.place: pa.array([False] * 3) for file in bundle.files}
    emptied = Bundle(0, PATH, bundle.layout, bundle.keys, bundle.files, nothing)
    assert [] == emptied.write()
    assert commits.join(path, lake.snapshot(PATH), bundle.files, [], "{}", "ingest")
    assert (0, 0) == (lake.snapshot(PATH).rows, DeltaTable(path).to_pyarrow_table().num_rows)


SIMPLE = Snapshot(
    3, {}, {"id": "integer"}, files=(DataFile("a.parquet", 1, {}),), protocol={"minWriterVersion": 2}
)


@pytest.mark.parametrize(
    ("table", "given"),
    [
        (PATH, {"physical": {"id": "col-1"}}),
        (PATH, {"protocol": {"minWriterVersion": 3}}),  # constraints
        (PATH, {"protocol": {"minWriterVersion": 7, "writerFeatures": ["rowTracking"]}}),
        (PATH, {"partition_by": ("id",)}),
        (PATH, {"types": {"id": "variant"}}),
        (PATH, {"files": (DataFile("s3://elsewhere/a.parquet", 1, {}),)}),
        (PATH, {"files": (DataFile("/elsewhere/a.parquet", 1, {}),)}),
    ],
    ids=["names", "constraints", "feature", "partitions", "type", "shallow clone", "absolute"],
)
def test_what_arrow_does_not_write_is_left_to_spark(table: str, given: dict[str, Any]) -> None:
    """A file without what the table requires of its writers is damage that shows much later."""

    def lake(state: Snapshot, *, commits: bool = True) -> Lake:
        return cast("Lake", SimpleNamespace(snapshot=lambda _name: state, takes_commits=commits))

    assert compaction._is_written(lake(SIMPLE), table)
    assert not compaction._is_written(lake(SIMPLE, commits=False), table)
    assert not compaction._is_written(lake(replace(SIMPLE, **given)), table)


MIB = 1 << 20


@pytest.mark.parametrize(
    ("files", "together"),
    [
        ([(1, 0)], []),
        ([(1, 4)], []),  # of a hundred rows
        ([(1, 6)], ["0"]),
        ([(200, 6)], ["0"]),
        ([(200, 0), (40, 0), (1, 0)], []),
        ([(1, 0), (200, 0), (2, 0)], ["02"]),
        ([(30, 0)] * 5, ["01", "234"]),
        ([(30, 0)] * 4, ["0123"]),
        ([(1, 0), (200, 50), (1, 0)], ["012"]),
    ],
)
def test_small_and_hollow_files_are_joined(files: list[tuple[int, int]], together: list[str]) -> None:
    """A large file that is written again for each small one costs more than it saves; one file alone is no fewer."""
    made = [
        DataFile(
            str(n),
            size * MIB,
            {},
            '{"numRecords": 100}',
            {"storageType": "i", "pathOrInlineDv": "", "cardinality": gone} if gone else {},
        )
        for n, (size, gone) in enumerate(files)
    ]
    assert together == ["".join(file.path for file in some) for some in compaction._together(made)]


def test_partitions_stay_apart(tmp_path: Path) -> None:
    """A row whose file names another day would move to that day."""
    depot = Yard(tmp_path)

    def kinds() -> Counter[str]:
        return Counter(row["kind"] for row in depot.lake.ask_mirror("changes", "SELECT kind FROM {mirror}"))

    before = kinds()
    for bundle in planned(depot.lake, "changes"):
        assert 1 == len({file.partition["kind"] for file in bundle.files})
    maintain(depot.lake, ["changes"])
    assert before == kinds()


def test_damage_is_no_work_for_spark(yard: Yard) -> None:
    """Java would be started to fail at the same entry, and its words would say no way out."""
    entry = max(Path(yard.lake.path("changes"), "_delta_log").glob("*.json"))
    entry.write_text("{", "utf-8")
    for question in (yard.lake.ask, yard.lake.recorded):
        with pytest.raises(delta.DamagedError, match=RESTORE):
            question("SELECT count(*) FROM {changes}")
