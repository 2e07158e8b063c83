"""A disk that is full at any write of a run: a sentence with the place, and the same command goes on once there is space."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ingest.config.model import TableRule
from ingest.errors import SetupError, StoppedError
from ingest.ledgers.maintenance import maintain
from ingest.ledgers.mirrors import Clusters
from ingest.result import Result
from ingest.run import Warm, run
from ingest.store import stores
from ingest.tables.datafiles import Layout, written
from ingest.tables.row_files import RowFile
from tests.gold.depot import Depot
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SENTENCE = re.compile(r"the disk is full at (/\S+) \([0-9,]+ MB free\): free some space, then run again")
PLACES = [
    f"{table} {what}"
    for table in ("bronze", "changes", "books", "rejects", "decisions", "mirrors", "runs", "checks")
    for what in ("file", "entry")
]


# a table's folder, the way in which mirrors are written, and what fails
BY_SPARK = [
    ("changes", "auto", "silver"),
    ("mirrors/yard/depot", "auto", "gold"),
    ("mirrors/yard/depot", "merge", "gold"),
    ("checks", "auto", "quality"),
]


@dataclass
class Disk:
    """Refuses the first write of a kind, after which it is as full, until it is emptied."""

    lake: Path
    full_at: str
    met: set[str] = field(default_factory=set)
    is_full: bool = False

    def write(self, place: Path) -> None:
        """A file is brought to the disk."""
        if not place.is_relative_to(self.lake) or place.is_dir():
            return
        table = place.relative_to(self.lake).parts[0]
        self.met.add(f"{table} {'entry' if place.parent.name == '_delta_log' else 'file'}")
        self.is_full = self.is_full or self.full_at in self.met
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def filled(lake: Path, at: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """The disk, between this process and the system."""
    disk, sync = Disk(lake, at), os.fsync

    def fsync(handle: int) -> None:
        disk.write(Path(f"/proc/self/fd/{handle}").resolve())
        sync(handle)

    with monkeypatch.context() as during:
        during.setattr(os, "fsync", fsync)
        yield disk


def ran(depot: Depot) -> Result:
    """A run of all stages in a process that knows nothing of the last one."""
    if depot.messages:
        (depot.folder / f"in-{depot.number}.jsonl").write_text("\n".join(depot.messages) + "\n")
        depot.messages.clear()
    return run(unstarted(), depot.pipeline, warm=Warm())


def moved(depot: Depot, folder: Path) -> Depot:
    """A depot with its lake and its messages, in another folder."""
    shutil.copytree(depot.folder, folder, dirs_exist_ok=True)
    return replace(depot, folder=folder, warm=Warm(), messages=[*depot.messages])


def begun(folder: Path) -> Depot:
    """A batch is in the lake, and the next one, with a statement and a reject, has come."""
    depot = Depot(unstarted(), folder, Warm(), TableRule("yard.depot"))
    ran(depot.row(id="1", n="1").row(id="2", n="1"))
    depot.row("UPDATE", id="1", n="5").row("DELETE", id="2", n="1").row(id="3", n="3")
    depot.ddl("ALTER TABLE depot ADD COLUMN m INT").messages.append('{"broken":')
    return depot


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Depot:
    """A depot with its second batch to land."""
    return begun(tmp_path_factory.mktemp("second"))


@pytest.fixture(scope="module")
def in_pieces(tmp_path_factory: pytest.TempPathFactory) -> Depot:
    """A depot of four batches, whose tables upkeep brings into shape."""
    depot = begun(tmp_path_factory.mktemp("pieces"))
    depot.budget = 1  # marks rows of a file instead of writing it again
    for n in ("6", "7"):
        ran(depot)
        depot.row("UPDATE", id="1", n=n)
    ran(depot)
    return depot


@pytest.mark.one_of(2)
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="asks Linux which file is written")
@pytest.mark.parametrize("place", PLACES)
def test_a_full_disk_is_said_and_loses_nothing(
    place: str, second: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a place the operator empties the wrong disk; a step that is repeated wrongly loses or doubles rows."""
    depot = moved(second, tmp_path)
    said: list[str] = []
    with filled(tmp_path / "lake", place, monkeypatch) as disk:
        try:
            said = ran(depot).failures
        except StoppedError as error:
            said = [str(error)]
    assert disk.is_full, disk.met
    # a full disk stops one mirror, and what follows it meets it again
    table = place.partition(" ")[0].replace("mirrors", "checks")
    assert [file for text in said for file in SENTENCE.findall(text) if f"{disk.lake}/{table}/" in file], said
    result = ran(depot)
    assert [] == result.failures
    assert {one.state for one in result.mirrors} <= {"done", "skipped"}
    lake = depot.lake()
    rows = lake.ask_mirror("mirrors/yard/depot", "SELECT id, n FROM {mirror} ORDER BY id")
    assert [{"id": 1, "n": 5}, {"id": 3, "n": 3}] == rows
    landed, rejected = "{bronze} WHERE kind = 'message'", "{rejects}"
    assert [7, 1] == [lake.ask(f"SELECT count(*) AS n FROM {rows}")[0]["n"] for rows in (landed, rejected)]
    checks = "SELECT count(*) AS n FROM {checks} WHERE batch = 2 AND mirror IS NOT NULL"
    assert lake.ask(checks)[0]["n"]
    assert [] == ran(depot).failures


KEPT = ("bronze", "changes", "books", "mirrors/yard/depot")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="asks Linux which file is written")
@pytest.mark.parametrize("place", ["bronze file", "bronze entry", "mirrors file", "mirrors entry"])
def test_upkeep_on_a_full_disk_is_said_and_loses_nothing(
    place: str, in_pieces: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upkeep is what makes space: one that stops at the first table, or waits for Spark to fail too, makes none."""
    depot = moved(in_pieces, tmp_path)
    before = [depot.lake().ask_mirror(name, "SELECT * FROM {mirror} ORDER BY ALL") for name in KEPT]
    with filled(tmp_path / "lake", place, monkeypatch) as disk:
        done = maintain(depot.lake(), KEPT)
    assert disk.is_full, disk.met
    table = place.partition(" ")[0]
    [said] = [kept.refused for kept in done if kept.table.startswith(table)]
    assert said.count("is not in shape") == 1
    assert [file for file in SENTENCE.findall(said) if f"{disk.lake}/{table}/" in file], said
    assert before == [depot.lake().ask_mirror(name, "SELECT * FROM {mirror} ORDER BY ALL") for name in KEPT]
    again = {kept.table: kept for kept in maintain(depot.lake(), KEPT)}
    assert {""} == {kept.refused for kept in again.values()}
    assert next(kept for name, kept in again.items() if name.startswith(table)).joined > 1
    assert before == [depot.lake().ask_mirror(name, "SELECT * FROM {mirror} ORDER BY ALL") for name in KEPT]
    assert [] == ran(depot.row("UPDATE", id="1", n="8")).failures


def test_a_full_disk_at_the_lock_is_said(
    second: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first write of a run is the lock's: a bare error of the system says neither which disk nor what to do."""
    depot = moved(second, tmp_path)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as during:
        during.setattr(os, "pwrite", full)
        with pytest.raises(SetupError) as caught:
            ran(depot)
    assert [f"{tmp_path}/lake/_ingest.lock"] == SENTENCE.findall(str(caught.value))
    assert ([], "done") == ((result := ran(depot)).failures, result.mirrors[0].state)


FULL = "/dev/full"
ROWS = pa.table({"id": range(200_000)})


def rows_of_a_mirror(folder: str) -> None:
    """Write a data file as gold does."""
    file = RowFile(folder, ["id"])
    file.add(ROWS)
    file.finish()


WRITERS = {
    "a mirror's": rows_of_a_mirror,
    "a product table's": lambda folder: written(Layout(folder, ROWS.schema), ROWS),
    "a vector's": lambda folder: stores.at(folder).write(FULL, b"x"),
}


@pytest.mark.skipif(not Path(FULL).exists(), reason="has a device that is always full")
@pytest.mark.parametrize("whose", WRITERS)
def test_a_file_that_finds_the_disk_full_is_named(
    whose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow's error does not say which file it wrote: of a machine's disks the operator would look at the wrong one."""
    monkeypatch.setattr(stores.Disk, "create", lambda _disk, _path: FULL)
    with pytest.raises(OSError) as caught:
        WRITERS[whose](str(tmp_path))
    assert caught.value.errno == errno.ENOSPC
    assert str(caught.value.filename).startswith((f"{tmp_path}/", FULL))


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A folder on a disk of its own that has no byte left; the file that fills it."""
    kept = shutil.copytree(folder, folder.parent / f"{folder.name}.kept")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("this user may not mount a file system")
    try:
        shutil.copytree(kept, folder, dirs_exist_ok=True)
        filler = folder / "_filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        yield filler
        shutil.rmtree(kept)
        shutil.copytree(folder, kept)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        shutil.rmtree(folder)
        kept.rename(folder)


@pytest.mark.e2e
@pytest.mark.spark
def test_a_disk_that_is_full_under_spark_is_said_and_loses_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark's tasks and Java write, too: each has words of its own for a full disk, and half-written files."""
    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.depot"), engine="spark")
    assert ("done", "") == depot.row(id="1", n="0").run(checked=True)
    for number, (place, apply, stage) in enumerate(BY_SPARK, 1):
        depot.apply = apply
        depot.row("UPDATE", id="1", n=str(number)).row(id=str(number + 1), n="7")
        with small_disk(tmp_path / "lake" / place) as filler:
            try:
                said = depot.result(checked=True).failures
            except StoppedError as error:
                said = [str(error)]
            assert [file for text in said for file in SENTENCE.findall(text) if f"/lake/{place}" in file], (
                stage,
                said,
            )
            filler.unlink()
            assert [] == depot.result(checked=True).failures, stage
        rows = [{"id": 1, "n": number}, *({"id": key, "n": 7} for key in range(2, number + 2))]
        assert rows == depot.rows(), stage
    newest = "batch = (SELECT max(batch) FROM {checks})"  # runs that failed have said so in theirs
    assert [] == depot.lake().ask(f"SELECT * FROM {{checks}} WHERE state = 'fail' AND {newest}")


@pytest.mark.e2e
@pytest.mark.spark
def test_upkeep_by_spark_on_a_full_disk_is_said_and_loses_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """OPTIMIZE writes by Spark's tasks and commits by Java: a half-written file that were counted shows rows twice."""
    depot = Depot(spark, tmp_path, Warm(), TableRule("yard.depot"), engine="spark")
    for number in range(3):
        assert ("done", "") == depot.row(id=str(number), n="7").run()
    path, order = "mirrors/yard/depot", {"mirrors/yard/depot": Clusters(("n",))}
    before = depot.rows()
    with small_disk(tmp_path / "lake" / path) as filler:
        [kept] = maintain(depot.lake(), [path], clusters=order)
        assert [file for file in SENTENCE.findall(kept.refused) if f"/lake/{path}" in file], kept.refused
        assert before == depot.rows()
        filler.unlink()
        [kept] = maintain(depot.lake(), [path], clusters=order)
        assert (True, "") == (kept.joined > 0, kept.refused)
    assert before == depot.rows()
    assert ("done", "") == depot.row("UPDATE", id="1", n="8").run()
