"""Read and write lakes in object stores without Spark.

delta-rs lists, opens and writes files. What it lacks is botocore's: to write a file only if there is none, which commits
need, and to list a log from a version on. Addresses and credentials come from the environment (``AWS_...``), or from the settings that the pipeline file gives
Spark; neither is ever part of an error's text.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import os
import re
import shutil
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from http.client import responses
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ingest.errors import IngestError

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

    from ingest.config import Pipeline
    from ingest.lake.objects import Objects

SCHEMES = ("s3", "s3a")
KEPT = 64 << 20  # bytes of a small file: DuckDB reads each several times
MOMENT = 2.0  # seconds for which a folder's listing is cached
SMALL = 4 << 20  # bytes of a file that is read whole
_WAITS = (0.5, 1.0, 2.0, 4.0)  # seconds before a commit without an answer is tried again
_PATIENCE = {"connect_timeout": "5s", "timeout": "30s", "max_retries": "2", "retry_timeout": "20s"}
_HADOOP = "spark.hadoop.fs.s3a."
_OPTIONS = {
    "access.key": "aws_access_key_id",
    "secret.key": "aws_secret_access_key",
    "session.token": "aws_session_token",
    "endpoint": "aws_endpoint_url",
    "endpoint.region": "aws_region",
}
_STATUS = re.compile(r"\b[45]\d\d [A-Z][A-Za-z ]+?(?=[:,.\n]|$)")
_CODE = re.compile(
    r"<Code>([A-Za-z]+)</Code>"
)  # what the store calls it: ExpiredToken is a 400 like any other
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


class StoreError(IngestError):
    """A store that cannot be reached, or refuses access."""


def is_readable(lake: str) -> bool:
    """True for a lake that is read without Spark: a folder, or a kind of store that is tested."""
    scheme, apart, _ = lake.partition("://")
    return not apart or scheme in SCHEMES


def allow(pipeline: Pipeline, *, writes: bool = False) -> bool:
    """Remember how a pipeline's lake is reached, if it is in a store; True for the first such lake."""
    if "://" not in pipeline.lake or not is_readable(pipeline.lake):
        return False
    root, options = pipeline.lake.rstrip("/"), options_of(pipeline.spark, os.environ)
    first = not _stores
    know(root, options)
    _stores[root].fresh |= writes
    return first


def options_of(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """delta-rs' options from Spark's settings; the environment supplies the others."""
    given = {
        ours: settings[_HADOOP + theirs]
        for theirs, ours in _OPTIONS.items()
        if settings.get(_HADOOP + theirs)
    }
    if (endpoint := given.get("aws_endpoint_url")) and "://" not in endpoint:
        secure = settings.get(f"{_HADOOP}connection.ssl.enabled", "true") != "false"
        given["aws_endpoint_url"] = f"http{'s' if secure else ''}://{endpoint}"
    if "Anonymous" in settings.get(f"{_HADOOP}aws.credentials.provider", ""):
        given["aws_skip_signature"] = "true"
    url = given.get("aws_endpoint_url") or next(
        (environment[one] for one in _ENDPOINTS if environment.get(one)), ""
    )
    if url:
        given["aws_endpoint_url"] = url
        if not any(environment.get(one) for one in ("AWS_REGION", "AWS_DEFAULT_REGION")):
            given.setdefault("aws_region", "us-east-1")
    if url.startswith("http://"):
        given["aws_allow_http"] = "true"
    return {**_PATIENCE, **given}


@dataclass
class _Store:
    """One lake's root, with cached listings of its files."""

    root: str
    options: Mapping[str, str] = field(repr=False)  # with secrets
    # files by folder, with the time of the look
    listed: dict[str, tuple[float, Mapping[str, os.stat_result]]] = field(default_factory=dict)
    handler: Any = None
    why_not: str | None = None  # why it takes no commits; None if that is not known yet
    fresh: bool = False  # this process writes: each look at a log is a new one
    # logs of the lake's own tables, which only this process writes under the lake's lock, with the time of the last look
    settled: dict[str, float] = field(default_factory=dict)

    @cached_property
    def objects(self) -> Objects | None:
        """The client that delta-rs' lacks; None without its package."""
        from ingest.lake.objects import Objects, is_installed

        return Objects(self.root, self.options) if is_installed() else None

    def open_handler(self) -> Any:
        """delta-rs' client of the store, created on first use."""
        if self.handler is None:
            from deltalake.fs import DeltaStorageHandler

            self.handler = DeltaStorageHandler(_encoded(self.root), dict(self.options))
        return self.handler

    def under(self, path: str) -> str:
        """A path within the root."""
        return path[len(self.root) :].lstrip("/")

    def listing(self, folder: str, *, fresh: bool = False) -> Mapping[str, os.stat_result]:
        """The files in a folder, at most a few seconds old; none if it does not exist."""
        at, files = self.listed.get(folder, (-MOMENT, {}))
        if (now := time.monotonic()) - at > MOMENT or fresh:
            files = self._look(folder)
            self.listed[folder] = now, files
        return files

    def _look(self, folder: str) -> Mapping[str, os.stat_result]:
        from pyarrow.fs import FileSelector

        if self.objects is not None:
            with _said(self.root):
                return dict(self.objects.listed(self.under(folder)))
        with _said(self.root):
            found = self.open_handler().get_file_info_selector(
                FileSelector(self.under(folder), allow_not_found=True, recursive=False)
            )
        files = {}
        for one in found:  # what distinguishes a file from one that replaced it
            moment = one.mtime.timestamp() if isinstance(one.mtime, dt.datetime) else 0
            status = os.stat_result((0, 0, 0, 1, 0, 0, one.size or 0, 0, int(moment), 0))
            files[one.path.rpartition("/")[2]] = status
        return files

    def open(self, path: str) -> Any:
        """A file with random access.

        Raises:
            FileNotFoundError: there is none.
            StoreError: the store does not let us.
        """
        with _said(self.root):
            if self.objects is not None:
                return self.objects.open(self.under(path), SMALL)
            return self.open_handler().open_input_file(self.under(path))


@dataclass(slots=True)
class _said:  # noqa: N801 - a context
    """Turn an error of a store's client, which may contain names of keys, into one sentence."""

    root: str
    done: str = "read"

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, FileNotFoundError | KeyboardInterrupt | StoreError):
            return
        raise StoreError(
            f"{self.root} cannot be {self.done} ({_reason(error)}): the environment says who may read and write "
            "it and where it is (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL), or the "
            f"{_HADOOP}... settings under `spark:`."
        ) from None


def _reason(error: BaseException) -> str:
    """The status that a store has answered with."""
    if found := getattr(error, "response", None):  # botocore's
        code = found["ResponseMetadata"].get("HTTPStatusCode", 0)
        return _named(f"{code} {responses.get(code, '')}".strip(), found.get("Error", {}).get("Code", ""))
    if type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"):
        return "there are no credentials"
    status, name = _STATUS.search(str(error)), _CODE.search(str(error))
    return _named(status[0] if status else "the store does not answer", name[1] if name else "")


def _named(status: str, name: str) -> str:
    """A status with the store's own name for it, if that is a word and not the number again."""
    return f"{status}: {name}" if name.isalpha() else status


def _encoded(place: str) -> str:
    """A path as a URL: delta-rs would decode percent signs in names."""
    scheme, _, rest = place.partition("://")
    return f"{scheme}://{quote(rest)}"


_stores: dict[str, _Store] = {}
_lock = threading.Lock()


def _of(path: str) -> _Store:
    found = [root for root in list(_stores) if path == root or path.startswith(f"{root}/")]
    if not found:
        raise StoreError(f"{path} is read with Spark alone.")
    return _stores[max(found, key=len)]


def options_at(path: str) -> dict[str, str]:
    """delta-rs' options for a table; empty for a folder."""
    return dict(_of(path).options) if "://" in path else {}


def address(path: str) -> str:
    """A table's address for delta-rs."""
    return _encoded(path) if "://" in path else path


def root_of(path: str) -> str:
    """The prefix of delta-rs' names of a table's files; in a store, without the scheme."""
    return f"{path.partition('://')[2]}/" if "://" in path else f"{Path(path).resolve()}/"


@dataclass(frozen=True, slots=True)
class StoredPath:
    """A file or folder in a store, with the part of a path's interface that the log's reader needs."""

    text: str

    def __truediv__(self, name: str) -> StoredPath:
        return StoredPath(f"{self.text}/{name}")

    def __str__(self) -> str:
        return self.text

    @property
    def name(self) -> str:
        """Its last part."""
        return self.text.rpartition("/")[2]

    def names(self) -> list[str]:
        """The names of the files in the folder."""
        store = _of(self.text)
        return list(store.listing(self.text, fresh=store.fresh))

    @property
    def is_settled(self) -> bool:
        """True for the log of one of the lake's own tables that this process has just looked at, and not written since."""
        return time.monotonic() - _of(self.text).settled.get(self.text, -MOMENT) < MOMENT

    def since(self, name: str) -> dict[str, os.stat_result] | None:
        """For a process that writes: the files of the folder from a name on; None if all have to be listed."""
        store = _of(self.text)
        if store.objects is None or not store.fresh:
            return None
        at = time.monotonic()
        with _said(store.root):
            found = dict(store.objects.listed(store.under(self.text), name))
        if store.under(self.text).count("/") == 1:
            store.settled[self.text] = at
        return found

    def stat(self) -> os.stat_result:
        """The file's entry in its folder's listing."""
        folder, _, name = self.text.rpartition("/")
        found = _of(self.text).listing(folder).get(name)
        if found is None:
            raise FileNotFoundError(self.text)
        return found

    def read_bytes(self) -> bytes:
        return contents(self.text)


Place = Path | StoredPath


def place(folder: str) -> Place:
    """A table's folder, in the file system or in a store."""
    return StoredPath(folder.rstrip("/")) if "://" in folder else Path(folder)


def names(folder: Place) -> list[str]:
    """The names in a folder.

    Raises:
        FileNotFoundError: it does not exist.
    """
    return folder.names() if isinstance(folder, StoredPath) else os.listdir(folder)  # noqa: PTH208 - hundreds of logs are read at once


# --- files ---


class _Contents:
    """A cache of recently used small files of stores; a file of a lake never changes."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, path: str) -> bytes | None:
        with self._lock:
            if (found := self._kept.get(path)) is not None:
                self._kept.move_to_end(path)
            return found

    def put(self, path: str, data: bytes) -> None:
        with self._lock:
            self._size += len(data) - len(self._kept.pop(path, b""))
            self._kept[path] = data
            while self._size > KEPT:
                self._size -= len(self._kept.popitem(last=False)[1])


_contents = _Contents()


def contents(path: str) -> bytes:
    """A file whole.

    Raises:
        FileNotFoundError: there is none.
        StoreError: the store does not let us.
    """
    store = _of(path)
    with _said(store.root):
        file = store.open(path)
        return bytes(file.read())


def opened(path: str) -> Any:
    """A data file for reading anywhere in it: small ones from memory."""
    if (data := _contents.get(path)) is not None:
        return io.BytesIO(data)
    file = _of(path).open(path)
    if not isinstance(file, io.BytesIO) and file.size() > SMALL:
        return file
    with _said(_of(path).root):
        data = bytes(file.read())
    _contents.put(path, data)
    return io.BytesIO(data)


def are_used() -> bool:
    """True if this process reads a lake in a store."""
    return bool(_stores)


# --- writing ---

PROBE = "_ingest.probe"
_Task = Callable[["Iterator[pa.RecordBatch]"], "Iterator[pa.RecordBatch]"]


def why_no_commits(lake: str, *, writes: bool = True) -> str:
    """Why a store's lake takes no commits without Spark, as the end of a sentence; empty if it does.

    A store must refuse a second writer of one file. It is asked once, by a file that stays in the lake; without
    ``writes`` only if this file is there already, and else a store is trusted.
    """
    store = _stores.get(lake.rstrip("/"))
    if store is None:
        return "only Spark reaches this store"
    if store.objects is None:
        return "the package s3fs is not installed: pip install 'ingest[s3]'"
    if store.why_not is None:
        try:
            if not writes and store.objects.content(PROBE) is None:
                return ""
            store.why_not = _probed(store, store.objects)
        except Exception as error:
            with contextlib.suppress(StoreError), _said(store.root):
                raise
            store.why_not = f"the store says {_reason(error)}"
    return store.why_not


def _probed(store: _Store, objects: Objects) -> str:
    """Whether the store refuses a second file of one name, and delta-rs reaches it."""
    text = uuid.uuid4().hex.encode()
    if objects.put_new(PROBE, text) and objects.put_new(PROBE, text[::-1]):
        return "the store lets a second writer replace a new file (it ignores If-None-Match)"
    return "" if store.open(f"{store.root}/{PROBE}").read() else "delta-rs does not reach the store"


def put_new(path: str, data: bytes) -> bool:
    """Write a file of a store, unless there is one.

    Returns:
        False if there is another. A file that the store has taken although its answer was lost is this one.

    Raises:
        StoreError: the store does not let us, or does not answer.
    """
    store = _of(path)
    assert store.objects is not None
    try:
        with _said(store.root, "written"):
            return _put_new(store.objects, store.under(path), data)
    finally:
        unsettle(path.partition("/_delta_log/")[0])


def _put_new(objects: Objects, key: str, data: bytes) -> bool:
    error = None
    for wait in (*_WAITS, None):
        try:
            if objects.put_new(key, data):
                return True
            there = objects.content(key)
        except Exception as raised:
            error, there = raised, None
            with contextlib.suppress(Exception):
                there = None if objects.is_final(raised) else objects.content(key)
        if there is not None:
            return there == data
        if wait is None or (error is not None and objects.is_final(error)):
            break
        time.sleep(wait)
    raise error or OSError("another writer's file comes and goes")


def unsettle(path: str) -> None:
    """Look at the log of a table, or at all of a lake, again: it may have been written to."""
    for store in list(_stores.values()):
        for log in [one for one in store.settled if one.startswith(f"{path}/")]:
            store.settled.pop(log, None)


def age(path: str) -> float | None:
    """Seconds since a file of a store was written, by the store's clock; None if there is none."""
    store = _of(path)
    assert store.objects is not None
    with _said(store.root):
        return store.objects.age(store.under(path))


def created(path: str) -> Any:
    """A new file for Arrow to write to: its path, or an upload. `finished` ends it."""
    if "://" not in path:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return path
    return _Upload(_of(path), path)


def finished(path: str, file: Any) -> int:
    """End a new file, and return its size in bytes."""
    if not isinstance(file, _Upload):
        return Path(path).stat().st_size
    file.close()
    return file.size


def write(path: str, data: bytes) -> None:
    """Write a small file whole."""
    if "://" not in path:
        Path(path).write_bytes(data)
        return
    file = created(path)
    file.write(data)
    file.close()


def remove(path: str) -> None:
    """Delete a file, if there is one."""
    if "://" not in path:
        Path(path).unlink(missing_ok=True)
        return
    store = _of(path)
    with _said(store.root, "written"), contextlib.suppress(FileNotFoundError):
        store.open_handler().delete_file(store.under(path))


def remove_folder(path: str) -> None:
    """Delete a folder with all its files, if there is one."""
    if "://" not in path:
        shutil.rmtree(path, ignore_errors=True)
        return
    store = _of(path)
    with _said(store.root, "written"), contextlib.suppress(FileNotFoundError):
        store.open_handler().delete_dir(store.under(path))


def link(path: str, other: str) -> None:
    """Give a file a second name in the same lake; in a store, copy it there."""
    if "://" not in path:
        with contextlib.suppress(FileExistsError):
            os.link(path, other)
        return
    store = _of(path)
    with _said(store.root, "written"):
        store.open_handler().copy_file(store.under(path), store.under(other))


def size(path: str) -> int:
    """A file's size in bytes."""
    if "://" not in path:
        return Path(path).stat().st_size
    with _said(_of(path).root):
        return int(opened(path).seek(0, 2))


def written_at(path: str) -> int:
    """When a file was written, in milliseconds."""
    if "://" not in path:
        return Path(path).stat().st_mtime_ns // 1_000_000
    store = _of(path)
    with _said(store.root):
        [found] = store.open_handler().get_file_info([store.under(path)])
    return int(found.mtime.timestamp() * 1000)


def dataset_of(paths: Sequence[str], **how: Any) -> Any:
    """Some data files of one lake as Arrow's dataset."""
    import pyarrow as pa
    import pyarrow.dataset as ds
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import FileInfo, FileType, PyFileSystem

    if not paths or "://" not in paths[0]:
        return ds.dataset(list(paths), **how)
    store = _of(paths[0])

    class Files(DeltaStorageHandler):
        """The lake's files, which are known to exist."""

        def open_input_file(self, path: str) -> pa.PythonFile:
            return pa.PythonFile(opened(f"{store.root}/{path}"), mode="r")

        def get_file_info(self, paths: list[str]) -> list[FileInfo]:
            return [FileInfo(path, FileType.File) for path in paths]

    with _said(store.root):
        files = PyFileSystem(Files(_encoded(store.root), dict(store.options)))
        return ds.dataset([store.under(path) for path in paths], filesystem=files, **how)


def carried(task: _Task, lake: str) -> _Task:
    """The same task for ``mapInArrow``, which reaches the lake wherever Spark runs it.

    What opens the store is part of the task's code: no plan, log or page of Spark shows that.
    """
    if (store := _stores.get(lake.rstrip("/"))) is None:
        return task
    return _carrying(task, store.root, dict(store.options))


def _carrying(task: _Task, root: str, options: Mapping[str, str]) -> _Task:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        know(root, options)
        return task(batches)

    return run


def know(root: str, options: Mapping[str, str]) -> None:
    """Remember how a lake is reached."""
    with _lock:
        if (known := _stores.get(root)) is None or known.options != options:
            _stores[root] = _Store(root, options)


class _Upload:
    """A new file of a store, with what Arrow needs of a file that it writes to; it is there once it is closed.

    A small one is sent whole, a large one in parts while it is written.
    """

    def __init__(self, store: _Store, path: str) -> None:
        self._store, self._path = store, store.under(path)
        self._held: list[bytes] = []
        self._stream: Any = None
        self.size, self.closed = 0, False

    def write(self, data: Any) -> int:
        """Write Arrow's buffers, or bytes."""
        self._held.append(bytes(data))
        self.size += len(self._held[-1])
        if self.size > SMALL:
            self._send()
        return len(data)

    def tell(self) -> int:
        """The number of bytes so far."""
        return self.size

    def flush(self) -> None:
        """Nothing can be read before the end."""

    def close(self) -> None:
        """End the file."""
        if self.closed:
            return
        self.closed = True
        with _said(self._store.root, "written"):
            if self._stream is None and self._store.objects is not None:
                self._store.objects.put(self._path, b"".join(self._held))
                return
            self._send()
            self._stream.close()

    def _send(self) -> None:
        from deltalake._internal import DeltaFileSystemHandler  # its public class takes no buffers of Arrow

        with _said(self._store.root, "written"):
            if self._stream is None:
                handler = DeltaFileSystemHandler(_encoded(self._store.root), dict(self._store.options))
                self._stream = handler.open_output_stream(self._path, {})
            self._stream.write(b"".join(self._held))
        self._held.clear()


def register(base: DuckDBPyConnection) -> None:
    """Let a database open the files of stores, if this process uses any."""
    if not _stores:
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
            return opened(path)

        def info(self, path: str, **_options: object) -> dict[str, Any]:
            file = opened(path)
            return {"name": path, "size": file.seek(0, 2), "type": "file"}

        def modified(self, path: str) -> dt.datetime:  # noqa: ARG002 - the library's signature
            return dt.datetime(2000, 1, 1, tzinfo=dt.UTC)  # never: a file of a lake does not change

    base.register_filesystem(Files())
