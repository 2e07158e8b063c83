"""Read lakes in object stores without Spark: delta-rs lists and opens files for DuckDB and the log's reader.

Addresses and credentials come from the environment (``AWS_...``), or from the settings that the pipeline file gives
Spark; neither is ever part of an error's text.
"""

from __future__ import annotations

import datetime as dt
import io
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ingest.errors import IngestError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ingest.config import Pipeline

SCHEMES = ("s3", "s3a")
KEPT = 64 << 20  # bytes of a small file: DuckDB reads each several times
MOMENT = 2.0  # seconds for which a folder's listing is cached
SMALL = 4 << 20  # bytes of a file that is read whole
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
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


class StoreError(IngestError):
    """A store that cannot be reached, or refuses access."""


def is_readable(lake: str) -> bool:
    """True for a lake that is read without Spark: a folder, or a kind of store that is tested."""
    scheme, apart, _ = lake.partition("://")
    return not apart or scheme in SCHEMES


def allow(pipeline: Pipeline) -> bool:
    """Remember how a pipeline's lake is read, if it is in a store; True for the first such lake."""
    if "://" not in pipeline.lake or not is_readable(pipeline.lake):
        return False
    root, options = pipeline.lake.rstrip("/"), options_of(pipeline.spark, os.environ)
    with _lock:
        first = not _stores
        if (known := _stores.get(root)) is None or known.options != options:
            _stores[root] = _Store(root, options)
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


@dataclass(slots=True)
class _Store:
    """One lake's root, with cached listings of its files."""

    root: str
    options: Mapping[str, str]
    # files by folder, with the time of the look
    listed: dict[str, tuple[float, Mapping[str, os.stat_result]]] = field(default_factory=dict)
    handler: Any = None

    def open_handler(self) -> Any:
        """delta-rs' client of the store, created on first use."""
        if self.handler is None:
            from deltalake.fs import DeltaStorageHandler

            self.handler = DeltaStorageHandler(_encoded(self.root), dict(self.options))
        return self.handler

    def under(self, path: str) -> str:
        """A path within the root."""
        return path[len(self.root) :].lstrip("/")

    def listing(self, folder: str) -> Mapping[str, os.stat_result]:
        """The files in a folder, at most a few seconds old; none if it does not exist."""
        at, files = self.listed.get(folder, (-MOMENT, {}))
        if (now := time.monotonic()) - at > MOMENT:
            files = self._look(folder)
            self.listed[folder] = now, files
        return files

    def _look(self, folder: str) -> Mapping[str, os.stat_result]:
        from pyarrow.fs import FileSelector

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
            return self.open_handler().open_input_file(self.under(path))


@dataclass(slots=True)
class _said:  # noqa: N801 - a context
    """Turn an error of a store's client, which may contain names of keys, into one sentence."""

    root: str

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, FileNotFoundError | KeyboardInterrupt):
            return
        status = _STATUS.search(str(error))
        raise StoreError(
            f"{self.root} cannot be read ({status[0] if status else 'the store does not answer'}): the environment says who "
            "may read it and where it is (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL), or the "
            f"{_HADOOP}... settings under `spark:`."
        ) from None


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

    def names(self) -> list[str]:
        """The names of the files in the folder."""
        return list(_of(self.text).listing(self.text))

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
    if file.size() > SMALL:
        return file
    with _said(_of(path).root):
        data = bytes(file.read())
    _contents.put(path, data)
    return io.BytesIO(data)


def are_used() -> bool:
    """True if this process reads a lake in a store."""
    return bool(_stores)


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
