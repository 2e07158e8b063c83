"""The lake's lock: which process gets it, which must wait, and whose lock is taken over."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from ingest import run as runs
from ingest.config import Pipeline
from ingest.config.model import TableRule
from ingest.errors import LockedError, SetupError
from ingest.run import Warm
from ingest.store import hadoop, lock, stores
from ingest.store.hadoop import HadoopStore
from ingest.store.lock import UPKEEP, check, held, rewriting
from ingest.tables.lake import Lake
from tests.gold.depot import Depot
from tests.lakes import ROOT
from tests.timing import PATIENCE, until
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "_ingest.lock"
HOLD = "import sys, time\nfrom ingest.store.lock import held\nwith held(sys.argv[1], 'run of shop'):\n    print('held', flush=True)\n    time.sleep(600)\n"


def holder(**given: Any) -> dict[str, Any]:
    """What a lock file says."""
    return {"token": "t", "what": "run of shop", "host": socket.gethostname(), "pid": os.getpid(), "jvm": None} | given  # fmt: skip


def write(lake: Path, **given: Any) -> None:
    """Write the lock file of a process that has ended."""
    (lake / NAME).write_text(json.dumps(holder(**given)))


@pytest.fixture
def other(tmp_path: Path) -> Any:
    """Another process that holds the lake's lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert "held\n" == process.stdout.readline()
    yield process
    process.send_signal(signal.SIGCONT)
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize(("umask", "lake", "file"), [(0o022, 0o755, 0o644), (0o077, 0o700, 0o600)])
def test_the_umask_says_who_may_read_the_lock(tmp_path: Path, umask: int, lake: int, file: int) -> None:
    """The file names the machine and the command; only its owner may ever write it."""
    before = os.umask(umask)
    try:
        with held(str(tmp_path / "lake"), "one"):
            modes = [each.stat().st_mode & 0o777 for each in (tmp_path / "lake", tmp_path / "lake" / NAME)]
    finally:
        os.umask(before)
    assert [lake, file] == modes


def test_the_lock_is_let_go_of(tmp_path: Path) -> None:
    """A finished run would lock every other command out."""
    with held(str(tmp_path / "lake"), "one"):
        assert "one" == json.loads((tmp_path / "lake" / NAME).read_text())["what"]
    assert [] == list((tmp_path / "lake").iterdir())


def test_a_failed_run_lets_go(tmp_path: Path) -> None:
    """After a failure the operator would have to delete the lock."""
    with pytest.raises(ZeroDivisionError), held(str(tmp_path), "one"):
        _ = 1 / 0
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("way", [held, lambda lake, _what: check(lake)])
def test_a_live_holder_is_named(tmp_path: Path, other: Any, way: Any) -> None:
    """Two runs would work on the same batch."""
    with pytest.raises(LockedError, match="in use by run of shop") as caught:
        way(str(tmp_path), "two").__enter__()
    assert f"(process {other.pid} on {socket.gethostname()})" in str(caught.value)
    assert 2 == caught.value.exit_code


class Clock:
    """The lock's, which goes on when it waits: another process acts after `after` seconds of that, on any machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after: float, act: Callable[[], None]) -> None:
        self._now, self._after, self._act = 0.0, after, act
        monkeypatch.setattr(lock, "time", self)

    def monotonic(self) -> float:
        """Seconds; no two questions are asked at the same moment."""
        self._now += 1e-3
        return self._now

    def sleep(self, seconds: float) -> None:
        """Wait."""
        if self._now < self._after <= self._now + seconds:
            self._act()
        self._now += seconds


@pytest.mark.parametrize(
    ("what", "patience", "waits"), [(UPKEEP, 0, True), ("run", 0, False), ("run", 9, True)]
)
def test_a_lock_that_is_held_for_a_moment_is_waited_for(
    tmp_path: Path, what: str, patience: float, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that upkeep meets between two of its commits would be left out; one that meets a run is told at once."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(held(str(tmp_path), what))
        Clock(monkeypatch, 0.2, stack.close)
        with nullcontext() if waits else pytest.raises(LockedError), held(str(tmp_path), "two", patience):
            assert waits


def test_rewriting_excludes_rewriting_alone(tmp_path: Path) -> None:
    """Two upkeeps would write the same files; runs go on."""
    with (
        rewriting(str(tmp_path), UPKEEP),
        held(str(tmp_path), "run"),
        pytest.raises(LockedError, match=f"The lake {tmp_path} is in use by {UPKEEP}"),
        rewriting(str(tmp_path), "erase"),
    ):
        pass
    with rewriting(str(tmp_path), "erase"):
        pass
    assert [] == [*tmp_path.iterdir()]  # nothing stays, not even an empty folder


def test_a_paused_holder_is_alive(tmp_path: Path, other: Any) -> None:
    """A stopped process that goes on later would find its lake taken."""
    other.send_signal(signal.SIGSTOP)
    until(lambda: psutil.Process(other.pid).status() == psutil.STATUS_STOPPED)
    with pytest.raises(LockedError), held(str(tmp_path), "two"):
        pass


def test_a_killed_holder_is_replaced_at_once(tmp_path: Path, other: Any) -> None:
    """The next run would wait for a killed one, or for its zombie process."""
    other.kill()  # not waited for
    until(lambda: psutil.Process(other.pid).status() == psutil.STATUS_ZOMBIE)
    with held(str(tmp_path), "two"):
        assert "two" == json.loads((tmp_path / NAME).read_text())["what"]


def test_a_live_holder_in_another_pid_namespace_is_seen(tmp_path: Path, other: Any) -> None:
    """Two containers with one lake and one host name would take each other for dead, and write at once."""
    found = json.loads((tmp_path / NAME).read_text())
    (tmp_path / NAME).write_text(json.dumps(found | {"pid": 999_999_999, "jvm": None}))
    with pytest.raises(LockedError, match="process 999999999"), held(str(tmp_path), "two"):
        pass


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"pid": "abc", "jvm": 3}', '{"what": 1, "jvm": {"pid": "x"}}']
)
def test_what_a_dead_run_left_does_not_matter(tmp_path: Path, text: str) -> None:
    """A lock file that is damaged, or cut by a full disk, would stop every command until it is deleted."""
    (tmp_path / NAME).write_text(text)
    check(str(tmp_path))
    with held(str(tmp_path), "two"):
        assert "two" == json.loads((tmp_path / NAME).read_text())["what"]


def test_a_damaged_lock_of_a_live_run_is_one(tmp_path: Path, other: Any) -> None:
    """A damaged file would let a second run in."""
    (tmp_path / NAME).write_text("{")
    with pytest.raises(LockedError, match="in use by another process"), held(str(tmp_path), "two"):
        pass


def test_to_look_takes_nothing_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two runs that start at once, each would refuse the other because it only looked."""
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            with contextlib.suppress(LockedError):
                check(str(tmp_path))
            time.sleep(0.01)

    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(50):
        with held(str(tmp_path), "one"):
            pass
    stop.set()
    thread.join()
    assert [] == list(tmp_path.iterdir())


def named_java(folder: Path) -> str:
    """A program that only sleeps, and is called as a JVM is."""
    file = folder / "java"
    shutil.copy(shutil.which("sleep") or "", file)
    return str(file)


def test_a_lock_that_names_a_foreign_process_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who can write to the lake could make the operator stop any process, on the advice of this product."""
    monkeypatch.setattr(lock, "ORPHAN", 0.3)
    other = subprocess.Popen(["sleep", "30"])
    for pid in (1, os.getppid(), os.getpid(), other.pid):
        write(tmp_path, pid=999_999_999, jvm={"pid": pid, "started": psutil.Process(pid).create_time()})
        with held(str(tmp_path), "next"):
            pass
    for jvm in (
        {"pid": other.pid},
        {"pid": 10**30, "started": 0},
        {"pid": -1, "started": 0},
        {"pid": True, "started": []},
    ):
        write(tmp_path, pid=999_999_999, jvm=jvm)
        with held(str(tmp_path), "next"):
            pass
    other.kill()
    other.wait()


def test_a_dead_holders_jvm_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The JVM of a killed run may still be committing."""
    monkeypatch.setattr(lock, "ORPHAN", 0.5)
    jvm = subprocess.Popen([named_java(tmp_path.parent), str(2 * PATIENCE)])
    started = psutil.Process(jvm.pid).create_time()
    write(tmp_path, jvm={"pid": jvm.pid, "started": started})
    with (
        pytest.raises(LockedError, match=f"process {jvm.pid}.*still alive: `kill {jvm.pid}` ends it"),
        held(str(tmp_path), "two"),
    ):
        pass
    monkeypatch.setattr(lock, "ORPHAN", PATIENCE)
    threading.Timer(0.4, jvm.kill).start()
    with held(str(tmp_path), "two"):
        assert not psutil.pid_exists(jvm.pid) or psutil.Process(jvm.pid).status() == psutil.STATUS_ZOMBIE
    jvm.wait()


def test_a_jvm_that_starts_later_is_named_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run starts Java when it first needs it; killed after that, its JVM lives on like any other."""
    with lock.held(str(tmp_path), "run of a"):
        before = json.loads((tmp_path / lock.NAME).read_text())
        monkeypatch.setattr(lock, "_jvm", lambda: {"pid": 7, "started": 1.5})
        lock.name_jvm()
        assert {**before, "jvm": {"pid": 7, "started": 1.5}} == json.loads((tmp_path / lock.NAME).read_text())
    lock.name_jvm()
    assert [] == list(tmp_path.iterdir())


def test_the_jvm_of_this_process_is_named(tmp_path: Path) -> None:
    """If it were not, the next run would not wait for it."""
    jvm = subprocess.Popen([named_java(tmp_path), "30"])
    try:
        with lock.held(str(tmp_path / "lake"), "run of a"):
            named = json.loads((tmp_path / "lake" / lock.NAME).read_text())["jvm"]
        ours = [child for child in psutil.Process().children(recursive=True) if child.pid == named["pid"]]
        assert [("java", named["started"])] == [(child.name(), child.create_time()) for child in ours]
    finally:
        jvm.kill()
        jvm.wait()


def test_a_process_without_children_looks_for_no_jvm(tmp_path: Path) -> None:
    """Each run would read a file of each process of the machine."""
    code = """if True:
        import sys
        import psutil
        from ingest.store import lock
        psutil.Process.children = lambda *_, **__: sys.exit("looked for children")
        with lock.held(sys.argv[1], "run of a"):
            pass
    """
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, cwd=ROOT)


def test_of_many_that_find_a_dead_holder_one_wins(tmp_path: Path) -> None:
    """Two would take over the same lake at the same moment."""
    inside: list[int] = []
    most: list[int] = []
    start = threading.Barrier(4)

    def contend(number: int) -> None:
        for _ in range(20):
            if start.wait() == 0:
                write(tmp_path)
            start.wait()
            with contextlib.suppress(LockedError), held(str(tmp_path), "contender"):
                inside.append(number)
                most.append(len(inside))
                time.sleep(0.02)
                inside.remove(number)

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(most) >= 20
    assert 1 == max(most)


def test_file_systems_without_locks_do_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lakes on some network file systems would be unusable; Delta's identifiers protect them."""

    def refuse(*_given: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with held(str(tmp_path), "one"):
        assert [NAME] == [file.name for file in tmp_path.iterdir()]
    assert [] == list(tmp_path.iterdir())


def test_a_lake_that_is_a_file_is_reported(tmp_path: Path) -> None:
    """A path mistyped would end in a traceback."""
    (tmp_path / "lake").write_text("")
    for path in (tmp_path / "lake", tmp_path / "lake" / "below"):
        with pytest.raises(SetupError, match=r"cannot be written \(it is a file\)"), held(str(path), "one"):
            pass


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which no user may write")
@pytest.mark.parametrize("what", ["link", "link to nothing", "pipe", "folder"])
def test_a_lock_that_is_no_file_is_not_written_to(tmp_path: Path, what: str) -> None:
    """Through a link, whoever may write to the lake would have the operator's account overwrite any file of the machine."""
    target, lake = tmp_path / "target", tmp_path / "lake"
    lake.mkdir()
    if what == "link":
        target.write_text("precious")
    match what:
        case "pipe":
            os.mkfifo(lake / NAME)
        case "folder":
            (lake / NAME).mkdir()
        case _:
            (lake / NAME).symlink_to(target)
    for ask in (lambda: check(str(lake)), lambda: held(str(lake), "run of shop").__enter__()):
        with pytest.raises(
            SetupError, match=r"is a link, a folder or something else that is no file\. .*`mv "
        ):
            ask()
    assert target.exists() == (what == "link")
    assert what != "link" or target.read_text() == "precious"


def test_a_lake_that_cannot_be_written_is_reported() -> None:
    """A missing permission would end in a traceback."""
    with pytest.raises(SetupError, match="The lake /proc/lake cannot be written"), held("/proc/lake", "one"):
        pass


@pytest.mark.spark
def test_a_remote_lake_has_a_lock_too(spark: SparkSession, tmp_path: Path) -> None:
    """Two runs could use a lake at once if only Spark's file systems reach it."""
    lake = f"file://{tmp_path}/deep/lake"
    with held(lake, "one"):
        with pytest.raises(LockedError, match="in use by one"), held(lake, "two"):
            pass
        check(lake)  # before Spark is started the lock cannot be read
    assert not (tmp_path / "deep/lake" / NAME).exists()


@pytest.mark.spark
def test_a_remote_lock_is_taken_over(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead run's lock, or a damaged one, would stop a store's lake for ever; a clock that is wrong decides nothing."""
    lake = f"file://{tmp_path}"
    file = tmp_path / NAME
    for text in (json.dumps(holder(host="elsewhere", beat=99999999999)), "{", "", '{"beat": "x"}'):
        file.write_text(text, "utf-8")
        (tmp_path / f".{NAME}.crc").unlink(missing_ok=True)
        with (
            pytest.raises(LockedError, match=r"run of shop .* on elsewhere|whose lock .* is damaged"),
            held(lake, "two"),
        ):
            pass
        os.utime(file, (time.time() - 2 * lock.STALE,) * 2)
        with held(lake, "one"):
            assert "one" == json.loads(file.read_text("utf-8"))["what"]
        assert not file.exists()


@pytest.mark.spark
def test_a_heartbeat_never_takes_back_a_lost_lock(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that slept for long would write over its successor's lock, and delete it at its end."""
    beaten, written, replace = threading.Event(), threading.Event(), HadoopStore.write
    moved: list[bool] = []

    def beat(store: HadoopStore, path: str, mine: bytes) -> None:
        before = (tmp_path / NAME).stat().st_mtime_ns
        replace(store, path, mine)
        moved.append(before < (tmp_path / NAME).stat().st_mtime_ns)
        beaten.set()
        assert written.wait(PATIENCE)  # the successor comes between two heartbeats, not within one

    monkeypatch.setattr(lock, "HEARTBEAT", 0.2)
    monkeypatch.setattr(HadoopStore, "write", beat)
    with held(f"file://{tmp_path}", "one"):
        assert beaten.wait(PATIENCE)
        write(tmp_path, token="successor")
        (tmp_path / f".{NAME}.crc").unlink(missing_ok=True)
        written.set()
        time.sleep(1)
    assert [True] == moved
    assert "successor" == json.loads((tmp_path / NAME).read_text())["token"]


@dataclass
class Objects:
    """A store with one lock, which another run writes a moment after the first writer."""

    is_strict: bool
    text: bytes = b""
    is_raced: bool = True

    def admits_one(self, _path: str, _data: bytes) -> bool:
        return self.is_strict

    def put_new(self, path: str, data: bytes) -> bool:
        if self.text and self.is_strict:
            return False
        self.write(path, data)
        return True

    def write(self, _path: str, data: bytes) -> None:
        self.text = data

    def lose(self) -> None:
        """Have the other run write."""
        if self.is_raced:
            self.text = json.dumps(holder(token="rival")).encode()

    def read(self, _path: str) -> bytes:
        return self.text

    def age(self, _path: str) -> float:
        return lock.STALE + 1

    def remove(self, _path: str) -> None:
        self.text = b""


@pytest.mark.parametrize("is_raced", [True, False])
@pytest.mark.parametrize("objects", [Objects(is_strict=False), Objects(is_strict=True, text=b"{}")])
def test_of_two_runs_that_write_one_lock_one_goes_on(
    objects: Objects, is_raced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a store that ignores conditions, and where two take a dead run's lock over, each of both writes succeeds."""
    store = replace(objects, is_raced=is_raced)
    monkeypatch.setattr(hadoop, "small_files", lambda _lake: store)
    Clock(monkeypatch, 0.2, store.lose)
    refused = pytest.raises(LockedError, match="at the same moment: run again") if is_raced else nullcontext()
    entered = False
    with refused, held("s3a://bucket/lake", "one"):
        entered = True
    assert entered is not is_raced


class Shelf(Objects):
    """A store of many locks, whose holders live."""

    def __init__(self) -> None:
        super().__init__(is_strict=True)
        self.locks: dict[str, bytes] = {}

    def put_new(self, path: str, data: bytes) -> bool:
        return self.locks.setdefault(path, data) is data

    def write(self, path: str, data: bytes) -> None:
        self.locks[path] = data

    def read(self, path: str) -> bytes:
        return self.locks.get(path, b"")

    def age(self, path: str) -> Any:
        return 0.0 if path in self.locks else None

    def remove(self, path: str) -> None:
        self.locks.pop(path, None)


def test_in_a_store_rewriting_excludes_rewriting_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are erased could be in a file that upkeep has written and not committed."""
    shelf, lake = Shelf(), "s3a://bucket/lake"
    monkeypatch.setattr(hadoop, "small_files", lambda _lake: shelf)
    monkeypatch.setattr(lock, "_MOMENT", 0.05)
    with (
        rewriting(lake, UPKEEP),
        held(lake, "run"),
        pytest.raises(LockedError, match=f"The lake {lake} is in use by {UPKEEP}"),
        rewriting(lake, "erase"),
    ):
        pass
    assert {} == shelf.locks


@pytest.mark.parametrize(("what", "waits"), [(UPKEEP, True), ("run", False)])
def test_in_a_store_a_lock_that_is_held_for_a_moment_is_waited_for(
    what: str, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that upkeep meets between two of its commits would be left out."""
    shelf, lake = Shelf(), "s3a://bucket/lake"
    monkeypatch.setattr(hadoop, "small_files", lambda _lake: shelf)
    monkeypatch.setattr(lock, "_SETTLED", 0)
    with contextlib.ExitStack() as stack:
        stack.enter_context(held(lake, what))
        Clock(monkeypatch, 0.2, stack.close)
        with nullcontext() if waits else pytest.raises(LockedError), held(lake, "two"):
            assert waits


@pytest.mark.parametrize(
    ("admits_one", "settings", "warns"),
    [
        (False, {}, True),
        (False, {"spark.delta.logStore.s3a.impl": "io.delta.storage.S3DynamoDBLogStore"}, False),
        (True, {}, False),
    ],
)
def test_a_store_that_ignores_conditions_is_warned_of(
    admits_one: bool, settings: dict[str, str], warns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There a second driver replaces entries of a table's log, whichever engine the pipeline file names."""
    monkeypatch.setattr(hadoop, "_admits_one", {"s3a://b/lake": admits_one})
    monkeypatch.setattr(stores, "_stores", {})  # a process that reads lakes in stores reads files otherwise
    pipeline = Pipeline("shop", Path("shop.yaml"), "s3a://b/lake", (), spark=settings, engine="spark")
    warnings = runs._open_to_two(Lake(unstarted(), pipeline))
    assert warns == ("let only one driver write this lake" in " ".join(warnings))
    assert warns == bool(warnings)


@pytest.mark.spark
def test_a_store_without_its_jars_is_named(spark: SparkSession) -> None:
    """The commonest fault of a first run in a store would be forty lines of Java."""
    with pytest.raises(
        SetupError, match=r"s3a://bucket/lake cannot be reached .*S3AFileSystem.*docs/cluster.md"
    ):
        HadoopStore("s3a://bucket/lake").put_new("s3a://bucket/lake/x", b"")


@pytest.mark.e2e
def test_two_drivers_on_a_file_system_without_locks_double_nothing(tmp_path: Path) -> None:
    """Some network file systems have no `flock`: then Delta's identifiers alone keep two runs apart, in every stage."""
    (tmp_path / "sitecustomize.py").write_text(
        "import errno, fcntl\n\ndef refuse(*_):\n    raise OSError(errno.ENOLCK, 'No locks available')\n\nfcntl.flock = refuse\n"
    )
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.depot"))
    file = tmp_path / "depot.yaml"
    source = "{name: s, kind: files, path: './in-*.jsonl', format: dts-canal, settle: 0s}"
    file.write_text(f"pipeline: depot\nlake: ./lake\nengine: auto\nsources:\n  - {source}\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    words = [sys.executable, "-m", "ingest", "run", str(file)]
    for n in range(2):
        depot.row(id=str(n), n="1").row(id="99", n=str(n))
        (tmp_path / f"in-{n}.jsonl").write_text("\n".join(depot.messages) + "\n")
        depot.messages.clear()
        both = [
            subprocess.Popen(words, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        said = "".join(one.communicate()[1] for one in both)
        assert "unexpected" not in said, said
    done = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stderr
    lake = depot.lake()
    counts = [
        lake.ask(f"SELECT count(*) AS n FROM {table}")[0]["n"]
        for table in ("{bronze} WHERE kind = 'message'", "{changes} WHERE kind = 'change'")
    ]
    assert [4, 4] == counts
    rows = lake.ask_mirror("mirrors/yard/depot", "SELECT id, n FROM {mirror} ORDER BY id")
    assert [(0, 1), (1, 1), (99, 1)] == [(row["id"], row["n"]) for row in rows]
