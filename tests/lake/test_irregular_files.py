"""A pipe, a device, a folder or a link in the place of a file of a lake: each verb says so, and none waits for ever."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.config.model import TableRule
from ingest.errors import StoppedError
from ingest.inspect.query import query
from ingest.ledgers.maintenance import maintain
from ingest.run import Warm
from ingest.store import faults, stores
from tests.beside import beside
from tests.gold.depot import Depot
from tests.unstarted import unstarted

MIRROR = "mirrors/yard/depot"
SENTENCE = "a pipe, a device, a folder or a link is in the place of a file at {place}"


def depot_at(folder: Path) -> Depot:
    """The lake in a folder, in a process that knows nothing of it."""
    return Depot(unstarted(), folder, Warm(), TableRule("yard.depot"), number=100)


def queried(depot: Depot) -> str:
    """What a query of the mirror says."""
    return str(query(depot.lake(), "SELECT * FROM yard.depot").rows)


def looked_at(depot: Depot) -> str:
    """What a query of the changes says."""
    return str(query(depot.lake(), "SELECT * FROM bronze, changes, books, decisions").rows)


def run_again(depot: Depot) -> str:
    """What a run of the next batch, and its checks, say."""
    result = depot.row("UPDATE", {"n": "2"}, id="3", n="3").result(checked=True)
    return "\n".join([*result.failures, *(f"{mirror.state} {mirror.message}" for mirror in result.mirrors)])


def maintained(depot: Depot) -> str:
    """What upkeep says."""
    names = ["bronze", "changes", "books", "decisions", "mirrors/yard/depot"]
    return "\n".join(kept.refused for kept in maintain(depot.lake(), names))


OPENED: list[tuple[str, Callable[[Depot], str]]] = [
    (f"{MIRROR}/*.parquet", queried),
    (f"{MIRROR}/*.parquet", run_again),
    (f"{MIRROR}/deletion_vector_*.bin", queried),
    (f"{MIRROR}/deletion_vector_*.bin", run_again),
    (f"{MIRROR}/_delta_log/*0.json", queried),
    (f"{MIRROR}/_delta_log/*0.json", run_again),
    (f"{MIRROR}/_delta_log/*0.json", maintained),
    (f"{MIRROR}/_delta_log/_last_checkpoint", run_again),
    ("bronze/kind=message/*/*.parquet", looked_at),
    ("bronze/_delta_log/*0.json", run_again),
    ("changes/kind=change/*.parquet", run_again),
    ("books/*.parquet", run_again),
    ("decisions/*.parquet", maintained),
]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a lake of two batches, the second of which has marked a row of the mirror's first file."""
    folder = tmp_path_factory.mktemp("written")
    depot = Depot(unstarted(), folder, Warm(), TableRule("yard.depot"), budget=1)
    for key in range(40):
        depot.row(id=str(key), n="1")
    assert ("done", "") == depot.run()
    assert ("done", "") == depot.row("UPDATE", {"n": "1"}, id="3", n="2").run(checked=True)
    return folder


@contextmanager
def pipe(place: Path) -> Iterator[list[Path]]:
    """A pipe in a place; the list has it as soon as somebody has opened it for reading, and he reads its end."""
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    readers = list[Path]()

    def watch(is_over: threading.Event) -> None:
        while not is_over.wait(0.01):
            with suppress(OSError):
                os.close(os.open(place, os.O_WRONLY | os.O_NONBLOCK))
                readers.append(place)

    with beside(watch):
        yield readers


@pytest.mark.parametrize(("place", "verb"), OPENED)
def test_a_pipe_is_said_and_not_opened(
    place: str, verb: Callable[[Depot], str], written: Path, tmp_path: Path
) -> None:
    """Whoever may write to the lake could stop each run and each page for ever, and no other run would have the lock."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    file = next(iter((tmp_path / "lake").glob(place)), tmp_path / "lake" / place)
    with pipe(file) as readers:
        try:
            said = verb(depot_at(tmp_path))
        except (StoppedError, OSError) as error:
            said = faults.said(error)
    assert [] == readers
    assert SENTENCE.format(place=file) in said


OTHERS: dict[str, Callable[[Path, Path], object]] = {
    "a pipe": lambda place, _file: os.mkfifo(place),
    "a link": lambda place, file: place.symlink_to(file),
    "a folder": lambda place, _file: place.mkdir(),
    "a socket": lambda place, _file: os.mknod(place, stat.S_IFSOCK | 0o600),
}
READERS: dict[str, Callable[[str], object]] = {
    "read": lambda path: stores.at(path).read(path),
    "Arrow's source": lambda path: stores.at(path).source(path),
    "Arrow's dataset": lambda path: stores.at(path).dataset([path], format="parquet"),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("other", OTHERS)
def test_nothing_but_a_file_is_read(other: str, reader: str, tmp_path: Path) -> None:
    """A link shows a file of the host to whoever may read the lake; all others never end, or fail in strange words."""
    pq.write_table(pa.table({"n": [1]}), tmp_path / "host.parquet")
    OTHERS[other](tmp_path / "x.parquet", tmp_path / "host.parquet")
    path = str(tmp_path / "x.parquet")
    with pytest.raises(OSError) as caught:
        READERS[reader](path)
    assert SENTENCE.format(place=path) == faults.said(caught.value)
    assert faults.damaged(caught.value)
