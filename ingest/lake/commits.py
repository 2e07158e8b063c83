"""Commits into the product's own tables without Spark: one entry in the log, or none.

An entry is written under the next version's number, if that is free. The writer's identifier is checked before each
attempt, also after another commit was faster: a writer's batch is committed once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import orjson

from ingest.errors import IngestError
from ingest.lake import delta

if TYPE_CHECKING:
    from ingest.lake.datafiles import Added  # Arrow, which not all callers need

_ODD = re.compile(r"%[0-9A-Fa-f]{2}|[\\\x00-\x1f]")  # in a folder's name
_TRIES = 20
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_CHECKPOINT = 10  # commits, as in Spark


class TakenError(IngestError):
    """A batch was committed under the same identifier before."""


def within_reach(path: str) -> bool:
    """True for a table that can be written here; on other stores Spark does it.

    The library reads %20 in a folder's name as a space, and opens another folder for a backslash: such a lake is left
    to Spark, too.
    """
    return "://" not in path and not _ODD.search(path)


@lru_cache
def takes_commits(folder: str) -> bool:
    """True for a lake whose file system has hard links: only they give a name to exactly one of two writers.

    Some mounts of object stores have none. For a folder that does not exist yet, its parent decides.
    """
    place = Path(folder)
    while not place.is_dir():
        place = place.parent
    one, other = (place / f".{uuid.uuid4()}.tmp" for _ in range(2))
    try:
        one.touch()
        os.link(one, other)
    except OSError as error:
        return error.errno not in _NO_LINKS  # the writer reports a folder that cannot be written
    finally:
        for file in (one, other):
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)
    return True


def create(
    path: str, schema: str, partition_by: Sequence[str], properties: Mapping[str, str], metadata: str
) -> None:
    """Create an empty table, if there is none. ``schema`` is the JSON that Spark writes for it."""
    from deltalake import CommitProperties, DeltaTable, Schema
    from deltalake.exceptions import CommitFailedError

    with contextlib.suppress(CommitFailedError):  # another run was faster: the table exists
        DeltaTable.create(
            path,
            schema=Schema.from_json(schema),
            mode="ignore",
            partition_by=list(partition_by),
            configuration=dict(properties),
            commit_properties=CommitProperties({"userMetadata": metadata}, max_commit_retries=0),
        )


def append(path: str, files: Sequence[Added], metadata: str, writer: str = "", batch: int = -1) -> None:
    """Add files to a table, under the writer's identifier if there is one.

    Raises:
        TakenError: the writer has committed this batch, or a later one, already.
        IngestError: other commits were faster each time.
    """
    for attempt in range(_TRIES):
        state = delta.snapshot(path)
        if writer and state.transactions.get(writer, -1) >= batch:
            raise TakenError(f"{path} holds batch {batch} of {writer} already.")
        if not state.is_plain:
            raise IngestError(f"{path} is gone, or has a feature that only Spark writes: run again.")
        if _put(path, state.version + 1, _entry(state, files, metadata, writer, batch)):
            _checkpoint(path, state.version + 1)
            return
        time.sleep(0.01 * attempt)
    raise IngestError(f"{path} takes no commit, for others were faster {_TRIES} times: run again.")


def mark(path: str, metadata: str) -> int:
    """Add a commit that changes nothing, and give its version.

    Raises:
        IngestError: another commit was faster.
    """
    version = delta.snapshot(path).version + 1
    about = {"timestamp": int(time.time() * 1000), "operation": "MARK", "operationParameters": {}}
    if not _put(path, version, [{"commitInfo": about | {"userMetadata": metadata, "engineInfo": "ingest"}}]):
        raise IngestError(f"{path} takes no commit, for another one was faster: run again.")
    return version


def forget(path: str, version: int) -> None:
    """Delete the log's entries before a version, of which there is a checkpoint: nothing older can be read then."""
    log = Path(path, "_delta_log")
    if not any(log.glob(f"{version:020d}.checkpoint*.parquet")):
        raise IngestError(f"{path} has no checkpoint of version {version}, without which its log is needed.")
    for one in log.iterdir():
        number = one.name.lstrip(".")[:20]
        if number.isdigit() and len(number) == 20 and int(number) < version:
            one.unlink(missing_ok=True)


def _entry(
    state: delta.Snapshot, files: Sequence[Added], metadata: str, writer: str, batch: int
) -> Iterator[dict[str, Any]]:
    """The actions of a commit that adds files."""
    now = int(time.time() * 1000)
    about = {"mode": "Append", "partitionBy": orjson.dumps(state.partition_by).decode()}
    yield {
        "commitInfo": {
            "timestamp": now,
            "operation": "WRITE",
            "operationParameters": about,
            "isBlindAppend": True,
            "userMetadata": metadata,
            "engineInfo": "ingest",
            "txnId": str(uuid.uuid4()),
        }
    }
    if writer:
        yield {"txn": {"appId": writer, "version": batch, "lastUpdated": now}}
    for one in files:
        yield {
            "add": {
                "path": quote(one.path, safe="/="),
                "partitionValues": one.partition,
                "size": one.size,
                "modificationTime": one.written_at,
                "dataChange": True,
                "stats": one.stats,
            }
        }


def _put(path: str, version: int, actions: Iterable[dict[str, Any]]) -> bool:
    """Write a log entry atomically, unless it exists; what a killed process leaves does not have an entry's name."""
    log = Path(path, "_delta_log")
    whole = log / f".{uuid.uuid4()}.tmp"
    try:
        whole.write_bytes(b"".join(orjson.dumps(one, option=orjson.OPT_APPEND_NEWLINE) for one in actions))
        os.link(whole, log / f"{version:020d}.json")
    except FileExistsError:
        return False
    finally:
        whole.unlink(missing_ok=True)
    return True


def _checkpoint(path: str, version: int) -> None:
    """Write a checkpoint as often as Spark does; old log entries stay until `ingest maintain`, which keeps the promised
    versions.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if version % _CHECKPOINT == 0:
        # the checksum that Hadoop's client keeps for a file it wrote: it would report another writer's file as damaged
        Path(path, "_delta_log", "._last_checkpoint.crc").unlink(missing_ok=True)
        with contextlib.suppress(DeltaError, OSError):  # the commit is written, and the next one tries again
            DeltaTable(path).create_checkpoint()


def clean(path: str) -> None:
    """Drop log entries older than the retention, except those that a newer version needs."""
    from deltalake import DeltaTable

    DeltaTable(path).cleanup_metadata()
