"""Where a lake's files are: a folder of this machine, or an object store that is reached without Spark.

Addresses and credentials of stores come from the environment (``AWS_...``), or from the settings that the pipeline file
gives Spark; neither is ever part of an error's text.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.config import is_stored, regular_files
from ingest.errors import StoreError
from ingest.store.object_store import HADOOP, ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from duckdb import DuckDBPyConnection

    from ingest.config import Pipeline

SCHEMES = ("s3", "s3a")
_PATIENCE = {"connect_timeout": "5s", "timeout": "30s", "max_retries": "2", "retry_timeout": "20s"}
_OPTIONS = {
    "access.key": "aws_access_key_id",
    "secret.key": "aws_secret_access_key",
    "session.token": "aws_session_token",
    "endpoint": "aws_endpoint_url",
    "endpoint.region": "aws_region",
}
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_Task = Callable[["Iterator[pa.RecordBatch]"], "Iterator[pa.RecordBatch]"]


class Disk:
    """The file systems of this machine, by whole paths, as `ObjectStore` has stores."""

    options: Mapping[str, str] = {}

    def address(self, path: str) -> str:
        """A table's address for delta-rs."""
        return path

    def prefix(self, path: str) -> str:
        """The prefix of delta-rs' names of a table's files."""
        return f"{Path(path).resolve()}/"

    def why_no_commits(self, lake: str, *, writes: bool = True) -> str:
        """Why a lake takes no commits; empty if it does, and without ``writes``, which it takes to know."""
        if writes and not _has_links(lake):
            return "the lake's file system has no hard links, without which Arrow commits nothing"
        return ""

    def names(self, folder: str) -> list[str]:
        """The names in a folder of whole files; none if it does not exist.

        Raises:
            OSError: it has a pipe, a device or a link, which whoever reads the folder would open.
        """
        names = list[str]()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
            for entry in entries:
                if not entry.is_file(follow_symlinks=False) and not entry.is_dir(follow_symlinks=False):
                    regular_files.refuse_irregular([entry.path])
                names.append(entry.name)
        return names

    def sizes(self, folder: str) -> dict[str, int]:
        """The names in a folder as it is now, each with its size in bytes; none if it does not exist."""
        sizes = dict[str, int]()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # deleted since it was listed
                    sizes[entry.name] = entry.stat().st_size
        return sizes

    def stat(self, path: str) -> os.stat_result:
        """What changes whenever a file does."""
        return os.stat(path)  # noqa: PTH116

    def is_settled(self, log: str) -> bool:  # noqa: ARG002
        """False: another process may write here, and looking again costs nothing."""
        return False

    def since(self, log: str, name: str) -> dict[str, os.stat_result] | None:  # noqa: ARG002
        """None: a folder is listed whole."""
        return None

    def read(self, path: str) -> bytes:
        """A file whole."""
        with regular_files.opened(path, os.O_NOFOLLOW) as file:
            return file.read()

    def refuse_irregular(self, paths: Iterable[str]) -> None:
        """Refuse pipes, devices, folders and links in the places of a lake's files, which a library will open.

        Raises:
            OSError: the first one.
        """
        regular_files.refuse_irregular(paths)

    def source(self, path: str) -> Any:
        """A data file as Arrow opens it."""
        self.refuse_irregular([path])
        return path

    def size(self, path: str) -> int:
        """A file's size in bytes."""
        return Path(path).stat().st_size

    def written_at(self, path: str) -> int:
        """When a file was written, in milliseconds."""
        return Path(path).stat().st_mtime_ns // 1_000_000

    def dataset(self, paths: Sequence[str], **how: Any) -> Any:
        """Some data files as Arrow's dataset."""
        import pyarrow.dataset as ds

        self.refuse_irregular(paths)
        return ds.dataset(list(paths), **how)

    def begin(self, path: str) -> None:
        """Make a table's folders."""
        _make(Path(path, "_delta_log"))

    def begin_checkpoint(self, path: str) -> None:
        """Drop the checksum that Hadoop's client keeps for a file it wrote: it would report another writer's as damaged."""
        Path(path, "_delta_log", "._last_checkpoint.crc").unlink(missing_ok=True)

    def put_new(self, path: str, data: bytes) -> bool:
        """Write a file atomically, unless there is one; what a killed process leaves has another name.

        Once its name is there, it outlives a crash of the machine: an empty entry of a log would hide what it names.
        """
        place = Path(path)
        whole = place.with_name(f".{uuid.uuid4()}.tmp")
        try:
            _write_through(whole, data)
            os.link(whole, place)
        except FileExistsError:
            return False
        finally:
            whole.unlink(missing_ok=True)
        _settle(place.parent)
        return True

    def create(self, path: str) -> str:
        """A new file as Arrow writes to it, which `finish` ends."""
        _make(Path(path).parent)
        return path

    def finish(self, path: str, _file: Any) -> int:
        """End a new file, and return its size in bytes; it outlives a crash of the machine before a commit names it."""
        _settle(Path(path))
        _settle(Path(path).parent)
        return self.size(path)

    def write(self, path: str, data: bytes) -> None:
        """Write a small file whole."""
        with named(path):
            Path(path).write_bytes(data)

    def write_for_good(self, path: str, data: bytes) -> None:
        """Write a small file whole or not at all, so that it outlives a crash of the machine."""
        place = Path(path)
        made = place.with_name(f"{place.name}.{os.getpid()}.tmp")
        _make(place.parent)
        _write_through(made, data)
        made.replace(place)
        _settle(place.parent)

    def remove(self, path: str) -> None:
        """Delete a file for good, if there is one."""
        with contextlib.suppress(FileNotFoundError):
            Path(path).unlink()
            _settle(Path(path).parent)

    def remove_folder(self, path: str) -> None:
        """Delete a folder with all its files, if there is one."""
        shutil.rmtree(path, ignore_errors=True)

    def link(self, path: str, other: str) -> None:
        """Give a file a second name in the same lake."""
        with contextlib.suppress(FileExistsError):
            os.link(path, other)
            _settle(Path(other).parent)


def _settle(path: Path) -> None:
    """Let a file's bytes, or a folder's new and deleted names, outlive a crash of the machine."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with named(path):
            os.fsync(handle)
    finally:
        os.close(handle)


def _write_through(path: Path, data: bytes) -> None:
    with named(path), path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def named(path: str | Path) -> Iterator[None]:
    """Name the file in an error of writing it: a machine has several disks, and the system does not say which is full."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def _make(folder: Path) -> None:
    """Make a folder and those above it, so that they outlive a crash of the machine."""
    if folder.is_dir():
        return
    _make(folder.parent)
    folder.mkdir(exist_ok=True)
    _settle(folder.parent)


@lru_cache
def _has_links(folder: str) -> bool:
    """True for a file system with hard links: only they give a name to exactly one of two writers.

    Some mounts of object stores have none. For a folder that does not exist yet, its parent decides.
    """
    place = Path(folder)
    while not place.is_dir():
        place = place.parent
    first, other = (place / f".{uuid.uuid4()}.tmp" for _ in range(2))
    try:
        first.touch()
        os.link(first, other)
    except OSError as error:
        return error.errno not in _NO_LINKS  # the writer reports a folder that cannot be written
    finally:
        for file in (first, other):
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)
    return True


Store = Disk | ObjectStore
_DISK = Disk()
_stores: dict[str, ObjectStore] = {}
_lock = threading.Lock()


def at(path: str) -> Store:
    """Where a lake's file or folder is.

    Raises:
        StoreError: it is in a store that only Spark reaches.
    """
    if (store := _reached(path)) is None:
        raise StoreError(f"{path} is read with Spark alone.")
    return store


def _reached(path: str) -> Store | None:
    if not is_stored(path):
        return _DISK
    roots = [root for root in list(_stores) if path == root or path.startswith(f"{root}/")]
    return _stores[max(roots, key=len)] if roots else None


def why_no_commits(lake: str, *, writes: bool = True) -> str:
    """Why a lake takes no commits without Spark, as the end of a sentence; empty if it does.

    Without ``writes`` nothing is written to find that out, and what is not known counts as good.
    """
    store = _reached(lake.rstrip("/"))
    return "only Spark reaches this store" if store is None else store.why_no_commits(lake, writes=writes)


def table(path: str, version: int | None = None) -> DeltaTable:
    """A table as delta-rs opens it."""
    from deltalake import DeltaTable

    store = at(path)
    return DeltaTable(store.address(path), version=version, storage_options=dict(store.options) or None)


_KEPT_OPEN = 32  # tables: each holds the list of its files in memory
_open: dict[tuple[str, str, tuple[tuple[str, str], ...]], DeltaTable] = {}
_opening = threading.Lock()


def newest(path: str, table_id: str, version: int) -> DeltaTable:
    """A table at its newest version as delta-rs opens it, read from where this process last had it open.

    Opening reads every log entry after the last checkpoint, and on a store each of them is a request.
    """
    store = at(path)
    place = (store.address(path), table_id, tuple(sorted(store.options.items())))
    with _opening:
        opened = _open.pop(place, None)
        if opened is not None and opened.version() < version:
            opened.update_incremental()
        if opened is None or opened.version() != version:  # of a table that was put back, the log is older
            opened = table(path)
        _open[place] = opened
        if len(_open) > _KEPT_OPEN:
            del _open[next(iter(_open))]  # the one that was used longest ago
    return opened


def unsettle(path: str) -> None:
    """Look at the log of a table again, for delta-rs or Spark have written to it."""
    if isinstance(store := _reached(path), ObjectStore):
        store.unsettle(path)


def are_used() -> bool:
    """True if this process reads a lake in a store."""
    return bool(_stores)


def known() -> dict[str, dict[str, str]]:
    """The lakes in stores that this process reads, each with how it is reached, for a process that is to read them, too."""
    return {root: dict(store.options) for root, store in _stores.items()}


def is_readable(lake: str) -> bool:
    """True for a lake that is read without Spark: a folder, or a kind of store that is tested."""
    scheme, apart, _ = lake.partition("://")
    return not apart or scheme in SCHEMES


def remember_store(pipeline: Pipeline, *, writes: bool = False) -> None:
    """Remember how a pipeline's lake is reached, if it is in a store."""
    if not pipeline.is_stored or not is_readable(pipeline.lake):
        return
    root, options = pipeline.lake.rstrip("/"), options_of(pipeline.spark, os.environ)
    know(root, options)
    _stores[root].fresh |= writes


def options_of(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """delta-rs' options from Spark's settings; the environment supplies the others."""
    given = {
        ours: settings[HADOOP + theirs] for theirs, ours in _OPTIONS.items() if settings.get(HADOOP + theirs)
    }
    if (endpoint := given.get("aws_endpoint_url")) and "://" not in endpoint:
        secure = settings.get(f"{HADOOP}connection.ssl.enabled", "true") != "false"
        given["aws_endpoint_url"] = f"http{'s' if secure else ''}://{endpoint}"
    if "Anonymous" in settings.get(f"{HADOOP}aws.credentials.provider", ""):
        given["aws_skip_signature"] = "true"
    url = given.get("aws_endpoint_url") or next(
        (environment[variable] for variable in _ENDPOINTS if environment.get(variable)), ""
    )
    if url:
        given["aws_endpoint_url"] = url
        if not any(environment.get(variable) for variable in ("AWS_REGION", "AWS_DEFAULT_REGION")):
            given.setdefault("aws_region", "us-east-1")
    if url.startswith("http://"):
        given["aws_allow_http"] = "true"
    return {**_PATIENCE, **given}


def carried(task: _Task, lake: str) -> _Task:
    """The same task for ``mapInArrow``, which reaches the lake wherever Spark runs it.

    What opens the store is part of the task's code: no plan, log or page of Spark shows that.
    """
    if (store := _stores.get(lake.rstrip("/"))) is None:
        return task
    root, options = store.root, dict(store.options)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        know(root, options)
        return task(batches)

    return run


def know(root: str, options: Mapping[str, str]) -> None:
    """Remember how a lake is reached."""
    with _lock:
        if (known := _stores.get(root)) is None or known.options != options:
            _stores[root] = ObjectStore(root, options)


def register(base: DuckDBPyConnection) -> None:
    """Let a database open the files of stores, if this process uses any; once is enough."""
    if not _stores or base.list_filesystems():
        return
    import fsspec

    class Files(fsspec.AbstractFileSystem):  # type: ignore[misc]
        """The file system interface that DuckDB needs."""

        protocol = SCHEMES
        cachable = False

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return path

        def _open(self, path: str, _mode: str = "rb", **_options: object) -> Any:
            return at(path).source(path)

        def info(self, path: str, **_options: object) -> dict[str, Any]:
            file = at(path).source(path)
            return {"name": path, "size": file.seek(0, 2), "type": "file"}

        def modified(self, path: str) -> dt.datetime:  # noqa: ARG002 - the library's signature
            return dt.datetime(2000, 1, 1, tzinfo=dt.UTC)  # never: a file of a lake does not change

    base.register_filesystem(Files())
