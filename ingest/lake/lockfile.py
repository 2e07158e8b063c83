"""The file in which a lake's lock stands: on this machine, or where only Spark's file systems reach.

A lake that is a URI is written with Hadoop's client of the running session, so that the lock needs no
credentials and no jars but those that the tables need too.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from ingest.errors import LockedError, SetupError, first_line

NAME = "_ingest.lock"
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)  # file systems without hard links
_ONLY_IF_NEW = "fs.option.create.conditional.overwrite"  # S3A: the store itself refuses a second one


class LockFile(Protocol):
    """What the lock asks of its file."""

    lake: str

    def prepare(self) -> None:
        """Make sure that the lake can be written."""

    def create(self, holder: dict[str, Any]) -> bool:
        """Take the lock if nobody has it."""

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Take over a dead holder's lock alone, where the file system can promise that."""

    def read(self) -> dict[str, Any]:
        """The holder; empty if there is none."""

    def replace(self, holder: dict[str, Any]) -> None:
        """Write the holder over whoever was there."""

    def remove(self) -> None:
        """Let go."""


def is_local(lake: str) -> bool:
    """True for a plain path; a URI is Spark's business."""
    return "://" not in lake


def of(lake: str) -> LockFile:
    """The lock's file of a lake; for a URI a session must run."""
    return LocalFile(lake) if is_local(lake) else StoredFile(lake)


class LocalFile:
    """A file of this machine: exclusive creation, and the folder itself held while a lock is taken over."""

    def __init__(self, lake: str) -> None:
        self.lake = lake
        self.path = f"{lake.rstrip('/')}/{NAME}"

    def prepare(self) -> None:
        """Make the lake's folder, and try to write in it."""
        probe = Path(f"{self.path}.{secrets.token_hex(8)}")
        try:
            Path(self.lake).mkdir(parents=True, exist_ok=True)
            probe.write_text("{}", encoding="utf-8")
            probe.unlink()
        except OSError as error:
            with contextlib.suppress(OSError):
                probe.unlink()
            raise self._unwritable(error) from None

    def create(self, holder: dict[str, Any]) -> bool:
        """Take the lock if nobody has it."""
        try:
            self._link(holder)
        except FileExistsError:
            return False
        except OSError as error:
            raise self._unwritable(error) from None
        return True

    def _unwritable(self, error: OSError) -> SetupError:
        reason = "it is a file" if isinstance(error, FileExistsError | NotADirectoryError) else error.strerror
        return SetupError(
            f"The lake {self.lake} cannot be written ({reason or error}): "
            "mend its permissions or its disk, or name another `lake:`."
        )

    def _link(self, holder: dict[str, Any]) -> None:
        """Exclusive and whole: a reader never sees a lock without its holder."""
        temporary = Path(f"{self.path}.{holder['token']}")
        temporary.write_text(json.dumps(holder), encoding="utf-8")
        try:
            os.link(temporary, self.path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            with open(self.path, "x", encoding="utf-8") as file:
                file.write(json.dumps(holder))
        finally:
            temporary.unlink()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lake's folder itself, which the system lets go of when the process ends.

        Raises:
            LockedError: another run is taking over at this moment.
        """
        folder = os.open(self.lake, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise LockedError(f"Another run is just taking over the lake {self.lake}: run again.") from None
        finally:
            os.close(folder)

    def read(self) -> dict[str, Any]:
        """The holder; empty if there is none."""
        try:
            return _holder(Path(self.path).read_bytes())
        except OSError:
            return {}

    def replace(self, holder: dict[str, Any]) -> None:
        """Write the holder over whoever was there, at once."""
        temporary = f"{self.path}.{holder['token']}"
        Path(temporary).write_text(json.dumps(holder), encoding="utf-8")
        Path(temporary).replace(self.path)

    def remove(self) -> None:
        """Let go."""
        with contextlib.suppress(OSError):
            Path(self.path).unlink()


class StoredFile:
    """A file of an object store or a distributed file system, through the JVM of the running session.

    A second lock is refused by HDFS, and by a store that knows ``If-None-Match``; elsewhere two runs that
    start within the same moment may both begin, and Delta's identifiers keep them apart.
    """

    def __init__(self, lake: str) -> None:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.sql import SparkSession

        self.lake = lake
        spark = SparkSession.builder.getOrCreate()
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._error = Py4JError
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()
        self._path = jvm.org.apache.hadoop.fs.Path(f"{lake.rstrip('/')}/{NAME}")

    def prepare(self) -> None:
        """Reach the file system, which takes its jars, its address and its credentials."""
        with self._reached():
            self._files().exists(self._path)

    def create(self, holder: dict[str, Any]) -> bool:
        """Take the lock if nobody has it; of two at once the store lets one through, if it can."""
        if self.read():
            return False
        try:
            with self._reached():
                self._write(holder, over=False)
        except SetupError:
            if self.read():
                return False
            self.replace(holder)  # a torn lock is nobody's; a store that cannot be written says so here
        return True

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Nothing to hold: whoever writes last has the lock, and the other one notices."""
        yield

    def read(self) -> dict[str, Any]:
        """The holder; empty if there is none."""
        try:
            stream = self._files().open(self._path)
            try:
                return _holder(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()
        except (OSError, self._error):
            return {}

    def replace(self, holder: dict[str, Any]) -> None:
        """Write the holder over whoever was there."""
        with self._reached():
            self._write(holder, over=True)

    def remove(self) -> None:
        """Let go."""
        with contextlib.suppress(OSError, self._error):
            self._files().delete(self._path, False)

    def _files(self) -> Any:
        return self._path.getFileSystem(self._conf)

    def _write(self, holder: dict[str, Any], *, over: bool) -> None:
        creation = self._files().createFile(self._path).overwrite(over)
        stream = (creation if over else creation.opt(_ONLY_IF_NEW, True)).recursive().build()
        try:
            stream.write(bytearray(json.dumps(holder).encode()))
        finally:
            stream.close()

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except (OSError, self._error) as error:
            found = getattr(error, "java_exception", None)
            text = first_line(found.getMessage() if found is not None else error) or "no reason told"
            raise SetupError(
                f"The lake {self.lake} cannot be reached ({text[:300]}): docs/cluster.md says "
                "which jars and settings a store needs, and which permissions."
            ) from None


def _holder(data: bytes) -> dict[str, Any]:
    """The holder that a lock names; a torn lock is nobody's."""
    try:
        found = json.loads(bytes(data) or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
