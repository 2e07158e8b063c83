"""A lake in an object store, without Spark.

delta-rs lists, opens and writes files. What it lacks is botocore's: to write a file only if there is none, which commits
need, and to list a log from a version on.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import os
import re
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from http.client import responses
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ingest.errors import StoreError

if TYPE_CHECKING:
    import pyarrow as pa

    from ingest.store.objects import Objects

KEPT = 64 << 20  # bytes of a small file: DuckDB reads each several times
MOMENT = 2.0  # seconds for which a folder's listing is cached
SMALL = 4 << 20  # bytes of a file that is read whole
PROBE = "_ingest.probe"
HADOOP = "spark.hadoop.fs.s3a."
_WAITS = (0.5, 1.0, 2.0, 4.0)  # seconds before a commit without an answer is tried again
_STATUS = re.compile(r"\b[45]\d\d [A-Z][A-Za-z ]+?(?=[:,.\n]|$)")
# what the store calls it: ExpiredToken is a 400 like any other
_CODE = re.compile(r"<Code>([A-Za-z]+)</Code>")


@dataclass
class ObjectStore:
    """One lake's root in a store, with cached listings of its files; a `Store`."""

    root: str
    options: Mapping[str, str] = field(repr=False)  # with secrets
    fresh: bool = False  # this process writes: each look at a log is a new one
    # files by folder, with the time of the look
    _listed: dict[str, tuple[float, Mapping[str, os.stat_result]]] = field(default_factory=dict)
    # logs of the lake's own tables, which only this process writes under the lake's lock, with the time of the last look
    _settled: dict[str, float] = field(default_factory=dict)
    _why_not: str | None = None  # why it takes no commits; None if that is not known yet

    @cached_property
    def _objects(self) -> Objects | None:
        """The client that delta-rs' lacks; None without its package."""
        from ingest.store.objects import Objects, is_installed

        return Objects(self.root, self.options) if is_installed() else None

    @cached_property
    def _handler(self) -> Any:
        """delta-rs' client of the store."""
        from deltalake.fs import DeltaStorageHandler

        return DeltaStorageHandler(_encoded(self.root), dict(self.options))

    def _under(self, path: str) -> str:
        """A path within the root."""
        return path[len(self.root) :].lstrip("/")

    # --- tables and their logs ---

    def address(self, path: str) -> str:
        """A table's address for delta-rs."""
        return _encoded(path)

    def prefix(self, path: str) -> str:
        """The prefix of delta-rs' names of a table's files."""
        return f"{path.partition('://')[2]}/"

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder; none if it does not exist."""
        return list(self._listing(folder, fresh=self.fresh))

    def sizes(self, folder: str) -> dict[str, int]:
        """The names of the files in a folder as it is now, each with its size in bytes; none if it does not exist."""
        return {name: file.st_size for name, file in self._listing(folder, fresh=True).items()}

    def stat(self, path: str) -> os.stat_result:
        """A file's entry in its folder's listing."""
        folder, _, name = path.rpartition("/")
        entry = self._listing(folder).get(name)
        if entry is None:
            raise FileNotFoundError(path)
        return entry

    def is_settled(self, log: str) -> bool:
        """True for the log of one of the lake's own tables that this process has just looked at, and not written since."""
        return time.monotonic() - self._settled.get(log, -MOMENT) < MOMENT

    def since(self, log: str, name: str) -> dict[str, os.stat_result] | None:
        """For a process that writes: the files of a log from a name on; None if all have to be listed."""
        if self._objects is None or not self.fresh:
            return None
        moment = time.monotonic()
        with said(self.root):
            listed = dict(self._objects.listed(self._under(log), name))
        if self._under(log).count("/") == 1:
            self._settled[log] = moment
        return listed

    def unsettle(self, path: str) -> None:
        """Look again at the logs in a folder: a table, a log, or all of the lake. They may have been written to."""
        for looks in (self._settled, self._listed):
            for folder in [folder for folder in looks if f"{folder}/".startswith(f"{path}/")]:
                looks.pop(folder, None)

    def _listing(self, folder: str, *, fresh: bool = False) -> Mapping[str, os.stat_result]:
        """The files in a folder, listed a few seconds ago at most; listing many may take longer than that."""
        listed_at, files = self._listed.get(folder, (-MOMENT, {}))
        if time.monotonic() - listed_at > MOMENT or fresh:
            files = self._look(folder)
            self._listed[folder] = time.monotonic(), files
        return files

    def _look(self, folder: str) -> Mapping[str, os.stat_result]:
        from pyarrow.fs import FileSelector

        with said(self.root):
            if self._objects is not None:
                return dict(self._objects.listed(self._under(folder)))
            listed = self._handler.get_file_info_selector(
                FileSelector(self._under(folder), allow_not_found=True, recursive=False)
            )
        files = {}
        for file in listed:  # what distinguishes a file from one that replaced it
            moment = file.mtime.timestamp() if isinstance(file.mtime, dt.datetime) else 0
            status = os.stat_result((0, 0, 0, 1, 0, 0, file.size or 0, 0, int(moment), 0))
            files[file.path.rpartition("/")[2]] = status
        return files

    # --- reading ---

    def read(self, path: str) -> bytes:
        """A file whole."""
        with said(self.root):
            return bytes(self._open(path).read())

    def source(self, path: str) -> Any:
        """A data file for reading anywhere in it: small ones from memory."""
        if (data := _contents.get(path)) is not None:
            return io.BytesIO(data)
        file = self._open(path)
        if not isinstance(file, io.BytesIO) and file.size() > SMALL:
            return file
        with said(self.root):
            data = bytes(file.read())
        _contents.put(path, data)
        return io.BytesIO(data)

    def _open(self, path: str) -> Any:
        with said(self.root):
            if self._objects is not None:
                return self._objects.open(self._under(path), SMALL)
            return self._handler.open_input_file(self._under(path))

    def refuse_irregular(self, paths: Iterable[str]) -> None:
        """Nothing: a store has whole objects alone."""

    def size(self, path: str) -> int:
        """A file's size in bytes."""
        with said(self.root):
            return int(self.source(path).seek(0, 2))

    def written_at(self, path: str) -> int:
        """When a file was written, in milliseconds."""
        with said(self.root):
            [info] = self._handler.get_file_info([self._under(path)])
        return int(info.mtime.timestamp() * 1000)

    def age(self, path: str) -> float | None:
        """Seconds since a file was written, by the store's clock; None if there is none."""
        assert self._objects is not None
        with said(self.root):
            return self._objects.age(self._under(path))

    def dataset(self, paths: Sequence[str], **how: Any) -> Any:
        """Some data files as Arrow's dataset."""
        import pyarrow as pa
        import pyarrow.dataset as ds
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import FileInfo, FileType, PyFileSystem

        store = self

        class Files(DeltaStorageHandler):
            """The lake's files, which are known to exist."""

            def open_input_file(self, path: str) -> pa.PythonFile:
                return pa.PythonFile(store.source(f"{store.root}/{path}"), mode="r")

            def get_file_info(self, paths: list[str]) -> list[FileInfo]:
                return [FileInfo(path, FileType.File) for path in paths]

        with said(self.root):
            files = PyFileSystem(Files(_encoded(self.root), dict(self.options)))
            return ds.dataset([self._under(path) for path in paths], filesystem=files, **how)

    # --- writing ---

    def why_no_commits(self, _lake: str, *, writes: bool = True) -> str:
        """Why the lake takes no commits without Spark, as the end of a sentence; empty if it does.

        A store must refuse a second writer of one file. It is asked once, by a file that stays in the lake; without
        ``writes`` only if this file is there already, and else a store is trusted.
        """
        if self._objects is None:
            return "the package s3fs is not installed: pip install 'ingest[s3]'"
        if self._why_not is None:
            try:
                if not writes and self._objects.content(PROBE) is None:
                    return ""
                self._why_not = self._probed(self._objects)
            except Exception as error:
                with contextlib.suppress(StoreError), said(self.root):
                    raise
                self._why_not = f"the store says {_reason(error)}"
        return self._why_not

    def _probed(self, objects: Objects) -> str:
        """Whether the store refuses a second file of one name, and delta-rs reaches it."""
        text = uuid.uuid4().hex.encode()
        if objects.put_new(PROBE, text) and objects.put_new(PROBE, text[::-1]):
            return "the store lets a second writer replace a new file (it ignores If-None-Match)"
        return "" if self._open(f"{self.root}/{PROBE}").read() else "delta-rs does not reach the store"

    def begin(self, path: str) -> None:
        """Nothing: a store has no folders."""

    def begin_checkpoint(self, path: str) -> None:
        """Nothing: no client keeps checksums next to files here."""

    def put_new(self, path: str, data: bytes) -> bool:
        """Write a file, unless there is one.

        Returns:
            False if there is another. A file that the store has taken although its answer was lost is this one.
        """
        assert self._objects is not None
        try:
            with said(self.root, "written"):
                return _put_new(self._objects, self._under(path), data)
        finally:
            self.unsettle(path.rpartition("/")[0])

    def admits_one(self, _path: str, _data: bytes) -> bool:
        """True: a store that lets a second writer replace a new file is left to Spark."""
        return True

    def create(self, path: str) -> Upload:
        """A new file for Arrow to write to, which `finish` ends."""
        return Upload(self, path)

    def finish(self, _path: str, file: Any) -> int:
        """End a new file, and return its size in bytes."""
        file.close()
        return int(file.size)

    def write(self, path: str, data: bytes) -> None:
        """Write a small file whole."""
        file = self.create(path)
        file.write(data)
        file.close()

    write_for_good = write

    def remove(self, path: str) -> None:
        """Delete a file, if there is one."""
        with said(self.root, "written"), contextlib.suppress(FileNotFoundError):
            self._handler.delete_file(self._under(path))

    def remove_folder(self, path: str) -> None:
        """Delete a folder with all its files, if there is one."""
        with said(self.root, "written"), contextlib.suppress(FileNotFoundError):
            self._handler.delete_dir(self._under(path))

    def link(self, path: str, other: str) -> None:
        """Copy a file."""
        with said(self.root, "written"):
            self._handler.copy_file(self._under(path), self._under(other))

    def send(self, path: str, data: bytes) -> bool:
        """Send a small file whole; False if only delta-rs can write it, in parts."""
        if self._objects is not None:
            self._objects.put(self._under(path), data)
        return self._objects is not None

    def stream(self, path: str) -> Any:
        """A new file that is sent in parts."""
        from deltalake._internal import DeltaFileSystemHandler  # its public class takes no buffers of Arrow

        handler = DeltaFileSystemHandler(_encoded(self.root), dict(self.options))
        return handler.open_output_stream(self._under(path), {})


def _put_new(objects: Objects, key: str, data: bytes) -> bool:
    error = None
    for wait in (*_WAITS, None):
        try:
            if objects.put_new(key, data):
                return True
            content = objects.content(key)
        except Exception as raised:
            error, content = raised, None
            with contextlib.suppress(Exception):
                content = None if objects.is_final(raised) else objects.content(key)
        if content is not None:
            return content == data
        if wait is None or (error is not None and objects.is_final(error)):
            break
        time.sleep(wait)
    raise error or OSError("another writer's file comes and goes")


class Upload:
    """A new file of a store, with what Arrow needs of a file that it writes to; it is there once it is closed.

    A small one is sent whole, a large one in parts while it is written.
    """

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store, self._path = store, path
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
        with said(self._store.root, "written"):
            if self._stream is None and self._store.send(self._path, b"".join(self._held)):
                return
            self._send()
            self._stream.close()

    def _send(self) -> None:
        with said(self._store.root, "written"):
            self._stream = self._stream or self._store.stream(self._path)
            self._stream.write(b"".join(self._held))
        self._held.clear()


class _Contents:
    """A cache of recently used small files of stores; a file of a lake never changes."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, path: str) -> bytes | None:
        with self._lock:
            if (content := self._kept.get(path)) is not None:
                self._kept.move_to_end(path)
            return content

    def put(self, path: str, data: bytes) -> None:
        with self._lock:
            self._size += len(data) - len(self._kept.pop(path, b""))
            self._kept[path] = data
            while self._size > KEPT:
                self._size -= len(self._kept.popitem(last=False)[1])


_contents = _Contents()


@contextlib.contextmanager
def said(root: str, done: str = "read") -> Iterator[None]:
    """Turn an error of a store's client, which may contain names of keys, into one sentence."""
    try:
        yield
    except (FileNotFoundError, StoreError):
        raise
    except Exception as error:
        raise StoreError(
            f"{root} cannot be {done} ({_reason(error)}): the environment says who may read and write "
            "it and where it is (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL), or the "
            f"{HADOOP}... settings under `spark:`."
        ) from None


def _reason(error: BaseException) -> str:
    """The status that a store has answered with."""
    if response := getattr(error, "response", None):  # botocore's
        code = response["ResponseMetadata"].get("HTTPStatusCode", 0)
        return _named(f"{code} {responses.get(code, '')}".strip(), response.get("Error", {}).get("Code", ""))
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
