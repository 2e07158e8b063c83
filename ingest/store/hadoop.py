"""Small files of a lake in a store that only Spark's clients reach.

Hadoop's client of the running session needs no credentials or jars of its own.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

from ingest.errors import SetupError, first_line
from ingest.store import stores
from ingest.store.object_store import ObjectStore

# where of two writers of one new file one is refused
_ADMIT_ONE = ("hdfs://", "viewfs://", "webhdfs://", "abfs://", "abfss://", "gs://")
_ONLY_IF_NEW = "fs.option.create.conditional.overwrite"  # S3A: the store itself refuses a second writer
_REFUSED = "RemoteFileChangedException"  # S3A's, of the store's answer 412
_admits_one: dict[str, bool] = {}  # the lakes of which it is known


def admits_two(lake: str) -> bool:
    """True for a lake whose store has let this process replace a new file."""
    return _admits_one.get(lake) is False


class HadoopStore:
    """The files of a lake, by their whole paths; what cannot be done raises `SetupError`.

    HDFS refuses a second file of one name, and so does a store that supports ``If-None-Match``; elsewhere two writers
    that start at the same moment may both succeed.
    """

    def __init__(self, lake: str) -> None:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.sql import SparkSession

        spark = SparkSession.builder.getOrCreate()
        self._jvm: Any = spark._jvm
        self._error = Py4JError
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()
        self._lake = lake

    def _at(self, path: str) -> tuple[Any, Any]:
        where = self._jvm.org.apache.hadoop.fs.Path(path)
        return where.getFileSystem(self._conf), where

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder; none if it does not exist."""
        with self._reached():
            files, where = self._at(folder)
            if not files.exists(where):
                return []
            return [str(status.getPath().getName()) for status in files.listStatus(where)]

    def read(self, path: str) -> bytes:
        """The content of a file."""
        with self._reached():
            files, where = self._at(path)
            with contextlib.closing(files.open(where)) as stream:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))

    def write(self, path: str, data: bytes) -> None:
        """Write a file, or replace it."""
        self._write(path, data, over=True)

    write_for_good = write

    def put_new(self, path: str, data: bytes) -> bool:
        """Write a file unless there is one; False if there is."""
        with self._reached():
            files, where = self._at(path)
            if files.exists(where):
                return False
        try:
            self._write(path, data, over=False)
        except SetupError:
            with contextlib.suppress(SetupError):
                if self.read(path):
                    return False
            raise
        return True

    def admits_one(self, path: str, data: bytes) -> bool:
        """True if the store itself refuses a second writer of a new file.

        S3's client is no proof: once in a process, the file that this process has just written is written again as a new one.
        """
        if self._lake not in _admits_one:
            _admits_one[self._lake] = self._lake.startswith(_ADMIT_ONE) or self._refuses(path, data)
        return _admits_one[self._lake]

    def _refuses(self, path: str, data: bytes) -> bool:
        try:
            self._put(path, data, over=False)
        except (OSError, self._error) as error:
            return _REFUSED in str(getattr(error, "java_exception", ""))
        return False

    def _write(self, path: str, data: bytes, *, over: bool) -> None:
        with self._reached():
            self._put(path, data, over=over)

    def _put(self, path: str, data: bytes, *, over: bool) -> None:
        files, where = self._at(path)
        creation = files.createFile(where).overwrite(over)
        stream = (creation if over else creation.opt(_ONLY_IF_NEW, True)).recursive().build()
        with contextlib.closing(stream):
            stream.write(bytearray(data))

    def remove(self, path: str) -> None:
        """Delete a file, if there is one."""
        with self._reached():
            files, where = self._at(path)
            files.delete(where, False)
            if files.exists(where):
                raise OSError(f"{path} could not be deleted")

    def age(self, path: str) -> float | None:
        """Seconds since a file was written, by the clock of the store; None if it is gone."""
        probe = f"{path}.{uuid.uuid4().hex}"
        self.write(probe, b"{}")
        try:
            now, written = self._written(probe), self._written(path)
        finally:
            with contextlib.suppress(SetupError):
                self.remove(probe)
        return None if now is None or written is None else (now - written) / 1000

    def _written(self, path: str) -> int | None:
        with contextlib.suppress(OSError, self._error):
            files, where = self._at(path)
            return int(files.getFileStatus(where).getModificationTime())
        return None

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except (OSError, self._error) as error:
            cause = getattr(error, "java_exception", None)
            text = first_line(cause.getMessage() if cause is not None else error) or "without a reason"
            raise SetupError(
                f"The lake {self._lake} cannot be reached ({text[:300]}): docs/cluster.md says "
                "which jars and settings a store needs, and which permissions."
            ) from None


SmallFiles = ObjectStore | HadoopStore


def small_files(lake: str) -> SmallFiles:
    """How the small files of a lake in a store are reached by a run: by Spark's client, if there is no other way."""
    store = None if stores.why_no_commits(lake) else stores.at(lake)
    return store if isinstance(store, ObjectStore) else HadoopStore(lake)
