"""Commits into the product's own tables without Spark: one entry in the log, or none.

An entry is written under the next version's number, if that is free. The writer's identifier is checked before each
attempt, also after another commit was faster: a writer's batch is committed once.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import re
import tempfile
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import orjson

from ingest.config import is_stored
from ingest.errors import IngestError, StoreError
from ingest.store import stores
from ingest.tables import delta

if TYPE_CHECKING:
    from ingest.tables.datafiles import Added, Layout  # Arrow, which not all callers need

_ODD = re.compile(r"%[0-9A-Fa-f]{2}|[\\\x00-\x1f]")  # in a folder's name
_TRIES = 20
FILES_AT_MOST, SMALL_FILE = 64, 256 << 10  # files of fewer bytes, before they are joined
_CHECKPOINT, _MIRROR_CHECKPOINT = 10, 100  # commits, as in Spark and in delta-rs: there are many mirrors
_ZONELESS, _FEATURE = "timestamp_ntz", "timestampNtz"
IMPLIED = ("appendOnly", "invariants")  # features of each table that names none


class TakenError(IngestError):
    """A batch was committed under the same identifier before."""


def within_reach(path: str) -> bool:
    """True for a table that can be written here, as far as that is known without writing; on others Spark does it.

    delta-rs reads %20 in a folder's name as a space, and opens another folder for a backslash: such a lake is left to
    Spark, too.
    """
    return not _ODD.search(path) and not stores.why_no_commits(path, writes=False)


def takes_commits(lake: str) -> bool:
    """True for a lake where exactly one of two writers can create a file."""
    return not stores.why_no_commits(lake)


def why_no_commits(lake: str) -> str:
    """Why a lake takes no commits without Spark, as the end of a sentence; empty if it does."""
    if within_reach(lake) and takes_commits(lake):
        return ""
    return stores.why_no_commits(lake) or "delta-rs takes the lake's name for another"


def create(
    path: str, schema: str, partition_by: Sequence[str], properties: Mapping[str, str], metadata: str
) -> None:
    """Create an empty table, if there is none. ``schema`` is the JSON that Spark writes for it."""
    if delta.snapshot(path).exists:
        return
    stores.at(path).begin(path)
    told = {"isManaged": "false", "description": None}
    told |= {
        name: orjson.dumps(given).decode()
        for name, given in (("partitionBy", partition_by), ("properties", properties))
    }
    about = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema,
        "partitionColumns": partition_by,
        "configuration": properties,
        "createdTime": _now(),
    }
    protocol = _protocol({"minReaderVersion": 1, "minWriterVersion": 2}, schema)
    info = _info(metadata, "CREATE TABLE", told, isBlindAppend=True)
    _put(
        path, 0, [info, {"protocol": protocol}, {"metaData": about}]
    )  # else another run was faster: the table exists


def append(
    path: str,
    files: Sequence[Added],
    metadata: str,
    writer: str = "",
    batch: int = -1,
    joined: Layout | None = None,
) -> None:
    """Add files to a table, under the writer's identifier if there is one.

    If the table's layout is given, its small files become one when there are many: each batch adds a file, and
    each reader of the table reads them all.

    Raises:
        TakenError: the writer has committed this batch, or a later one, already.
        IngestError: other commits were faster each time.
    """
    for state in _attempts(path, writer, batch):
        if not state.is_plain:
            raise IngestError(f"{path} is gone, or has a feature that only Spark writes: run again.")
        small = [file for file in state.files if file.size < SMALL_FILE] if joined else []
        moved = [*_moved(joined, small)] if joined and len(small) >= FILES_AT_MOST else []
        parameters = {"mode": "Append", "partitionBy": orjson.dumps(state.partition_by).decode()}
        actions = [_info(metadata, "WRITE", parameters, isBlindAppend=not moved)]
        if writer:
            actions.append({"txn": {"appId": writer, "version": batch, "lastUpdated": _now()}})
        if _put(path, state.version + 1, [*actions, *map(_add, files), *moved]):
            _checkpoint(path, state.version + 1)
            return


def _moved(layout: Layout, small: Sequence[delta.DataFile]) -> Iterator[dict[str, Any]]:
    """The actions that replace files by one with the same rows."""
    from ingest.tables.datafiles import joined

    actions = [_remove(file, _now()) for file in small]
    actions += map(_add, joined(layout, [file.place for file in small]))
    yield from map(_unchanging, actions)


def add_columns(path: str, fields: Sequence[Mapping[str, Any]], metadata: str) -> None:
    """Add those of some columns, as a log describes them, that a table does not have yet.

    Raises:
        IngestError: other commits were faster each time.
    """
    for state in _attempts(path, "", -1):
        schema = orjson.loads(state.meta["schemaString"])
        present = {field["name"] for field in schema["fields"]}
        schema["fields"] += [field for field in fields if field["name"] not in present]
        about = {**state.meta, "schemaString": orjson.dumps(schema).decode()}
        if _put(path, state.version + 1, [_info(metadata, "ADD COLUMNS"), {"metaData": about}]):
            _checkpoint(path, state.version + 1)
            return


def _attempts(path: str, writer: str, batch: int) -> Iterator[delta.Snapshot]:
    """The table's state before each attempt to commit, until one is successful; errors as in `append`."""
    for attempt in range(_TRIES):
        state = delta.snapshot(path)
        if writer and state.transactions.get(writer, -1) >= batch:
            raise TakenError(f"{path} holds batch {batch} of {writer} already.")
        yield state
        time.sleep(0.01 * attempt)
    raise IngestError(
        f"{path} cannot be committed to, because other writers were faster {_TRIES} times: run again."
    )


class Staged(NamedTuple):
    """A table in a staging folder of the same lake, whose files another table gets."""

    folder: str
    state: delta.Snapshot

    def fits(self, path: str) -> bool:
        """True if its files can be the rows of the table in a folder, or of a new one, without Spark."""
        present = delta.snapshot(path)
        properties = present.configuration
        return (
            self.state.is_plain
            and (present.is_plain or not present.exists)
            and not self.state.partition_by
            and not present.partition_by
            and not any(file.vector for file in self.state.files)
            and not delta.is_on(properties, "delta.appendOnly")
        )

    def link(self, path: str) -> None:
        """Give its files a second name in the folder of another table, whose commit may name them then."""
        store = stores.at(path)
        store.begin(path)
        for file in self.state.files:
            store.link(f"{self.folder}/{file.place}", f"{path}/{file.place}")


class NewRows(NamedTuple):
    """What a table gets in one commit: files, instead of its own or next to them, and other columns if there are any."""

    files: Sequence[Added]
    replaces: bool = True
    schema: str = ""  # the JSON of its columns; empty if they stay as they are
    # how the table's history describes it
    operation: str = "WRITE"
    parameters: Mapping[str, str | None] = {}
    metrics: Mapping[str, str] = {}
    engine: str = "ingest"
    marked: Collection[str] = ()  # of its files, those that are not replaced
    vectors: Mapping[str, Mapping[str, Any]] = {}  # the new deletion vectors of marked files
    meta: Mapping[str, Any] = {}  # of a new table, with its protocol
    protocol: Mapping[str, Any] = {}
    changes: bool = True  # False: the table holds the same rows as before
    plain: bool = False  # no file of it has or gets a deletion vector, and its readers need not know of any


def write(
    path: str,
    state: delta.Snapshot,
    rows: NewRows,
    metadata: str,
    writer: str = "",
    batch: int = -1,
    every: int | None = None,
) -> bool:
    """Commit to a table in the state that it was seen in, or create it, under the writer's identifier if there is one.

    Returns:
        False if another commit was faster: nothing is committed then.
    """
    stores.at(path).begin(path)
    info, *actions = _changing(path, state, rows, metadata, writer, batch)
    info["commitInfo"][delta.HOLDS] = delta.held_after(state if state.exists else delta.NO_TABLE, actions)
    if not _put(path, state.version + 1, [info, *actions]):
        return False
    _checkpoint(path, state.version + 1, every or _MIRROR_CHECKPOINT)
    return True


def join(
    path: str,
    state: delta.Snapshot,
    gone: Collection[delta.DataFile],
    new: Sequence[Added],
    metadata: str,
    engine: str,
) -> bool:
    """Replace some files of a table in the state that it was seen in by others with the same rows, as Spark's OPTIMIZE does.

    Returns:
        False if another commit was faster: nothing is committed then.

    Raises:
        IngestError: a file is named twice, or is none of the table's: its rows would be there twice.
    """
    places = {file.place for file in gone}
    if len(places) != len(gone) or not places <= {file.place for file in state.files}:
        raise IngestError(f"{path}: files that are joined must be the table's, and each of them once.")
    metrics = {
        "numRemovedFiles": len(gone),
        "numAddedFiles": len(new),
        "numRemovedBytes": sum(file.size for file in gone),
        "numAddedBytes": sum(file.size for file in new),
        "numDeletionVectorsRemoved": sum(bool(file.vector) for file in gone),
    }
    rows = NewRows(
        new,
        operation="OPTIMIZE",
        parameters={"predicate": "[]", "zOrderBy": "[]", "clusterBy": "[]", "auto": "false"},
        metrics={name: str(number) for name, number in metrics.items()},
        engine=engine,
        marked={file.place for file in state.files} - places,
        changes=False,
    )
    return write(path, state, rows, metadata, every=_CHECKPOINT)


def publish(path: str, staged: Staged, metadata: str, writer: str, batch: int) -> None:
    """Replace a table's rows and columns by those of a staged table, under the writer's identifier.

    The table keeps its properties and its identity, but for deletion vectors that the staged one does not have; if there is
    none, it is created.

    Raises:
        TakenError: the writer has committed this batch, or a later one, already.
        IngestError: other commits were faster each time.
    """
    from ingest.tables.datafiles import Added

    staged.link(path)
    new, now = staged.state, _now()
    metrics = {"numFiles": len(new.files), "numOutputRows": new.rows, "numOutputBytes": new.size}
    rows = NewRows(
        [Added(file.place, file.size, dict(file.partition), file.stats, now) for file in new.files],
        schema=new.meta["schemaString"],
        metrics={name: str(number) for name, number in metrics.items() if number is not None},
        meta=new.meta,
        protocol=new.protocol,
        plain=not new.takes_vectors,
    )
    for state in _attempts(path, writer, batch):
        if write(path, state, rows, metadata, writer, batch):
            return


def _changing(
    path: str, state: delta.Snapshot, rows: NewRows, metadata: str, writer: str, batch: int
) -> Iterator[dict[str, Any]]:
    """The actions of a commit that may replace all files, and columns."""
    now = _now()
    parameters = rows.parameters or {
        "mode": "Overwrite" if rows.replaces else "Append",
        "partitionBy": "[]",
    }
    read = {"readVersion": state.version} if state.exists else {}
    yield _info(
        metadata, rows.operation, parameters, rows.engine, **read,
        isolationLevel="Serializable" if rows.changes else "SnapshotIsolation", isBlindAppend=not state.exists,
        operationMetrics=rows.metrics,
    )  # fmt: skip
    yield from _described(state, rows, now)
    if writer:
        yield {"txn": {"appId": writer, "version": batch, "lastUpdated": now}}
    for action in _of_files(path, state, rows, now):
        yield action if rows.changes else _unchanging(action)


def _described(state: delta.Snapshot, rows: NewRows, now: int) -> Iterator[dict[str, Any]]:
    """The actions that change what the table asks of its readers and writers, and its columns."""
    schema = rows.schema or state.meta["schemaString"]
    before = state.protocol or rows.protocol
    protocol = _protocol(_without_vectors(before) if rows.plain else before, schema)
    if protocol != state.protocol:
        yield {"protocol": protocol}
    if rows.schema:
        about = state.meta or {**rows.meta, "id": str(uuid.uuid4()), "createdTime": now}
        if rows.plain and state.takes_vectors:
            about = {**about, "configuration": {**state.configuration, delta.VECTORS: "false"}}
        yield {"metaData": {**about, "schemaString": schema}}


def _of_files(path: str, state: delta.Snapshot, rows: NewRows, now: int) -> Iterator[dict[str, Any]]:
    for file in state.files if rows.replaces else ():
        if file.place not in rows.marked or file.place in rows.vectors:
            yield _remove(file, now)
        if vector := rows.vectors.get(file.place):
            yield from _with_vector(path, file, vector)
    yield from map(_add, rows.files)


def _unchanging(action: Mapping[str, Any]) -> dict[str, Any]:
    """The action on a file of a commit that leaves a table's rows as they are."""
    return {name: about | {"dataChange": False} for name, about in action.items()}


def _remove(file: delta.DataFile, now: int) -> dict[str, Any]:
    return {
        "remove": {
            "path": file.path,
            "deletionTimestamp": now,
            "dataChange": True,
            "extendedFileMetadata": True,
            "partitionValues": file.partition,
            "size": file.size,
            **({"deletionVector": file.vector} if file.vector else {}),
        }
    }


def _with_vector(path: str, file: delta.DataFile, vector: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The same file with a new deletion vector; none if no row is left."""
    from ingest.tables.datafiles import Added

    stats = orjson.loads(file.stats)
    if vector["cardinality"] < stats["numRecords"]:
        loose = orjson.dumps({**stats, "tightBounds": False}).decode()
        written_at = stores.at(path).written_at(f"{path}/{file.place}")
        added = _add(Added(file.place, file.size, dict(file.partition), loose, written_at))
        yield {"add": {**added["add"], "deletionVector": vector}}


def _protocol(now: Mapping[str, Any], schema: str) -> Mapping[str, Any]:
    """A table's protocol, with the feature that a time without a zone among its columns needs."""
    written = set(now.get("writerFeatures") or IMPLIED)
    zoneless = any(field["type"] == _ZONELESS for field in orjson.loads(schema)["fields"])
    if not zoneless or _FEATURE in written:
        return now
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": sorted({*(now.get("readerFeatures") or ()), _FEATURE}),
        "writerFeatures": sorted({*written, _FEATURE}),
    }


def _without_vectors(now: Mapping[str, Any]) -> Mapping[str, Any]:
    """A table's protocol, no higher than its features other than deletion vectors need."""
    read, written = (
        sorted({*(now.get(name) or ())} - {delta.VECTORS_FEATURE})
        for name in ("readerFeatures", "writerFeatures")
    )
    if read:
        return {**now, "readerFeatures": read, "writerFeatures": written}
    if not now.get("writerFeatures"):
        return now
    if {*written} <= {*IMPLIED}:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    return {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": written}


def engine(*, by_spark: bool) -> str:
    """Who wrote a commit: this product, and Spark if its tasks did the work."""
    from pyspark import __version__ as spark

    return f"{_product()} Apache-Spark/{spark}" if by_spark else _product()


@cache
def _product() -> str:
    """The product with its version, which is looked up once: that reads a folder of each package."""
    try:
        return f"ingest/{importlib.metadata.version('ingest')}"
    except importlib.metadata.PackageNotFoundError:  # run from its sources
        return "ingest"


def mark(path: str, metadata: str) -> int:
    """Add a commit that changes nothing, and give its version.

    Raises:
        IngestError: another commit was faster.
    """
    version = delta.snapshot(path).version + 1
    if not _put(path, version, [_info(metadata, "MARK")]):
        raise IngestError(f"{path} cannot be committed to, because another writer was faster: run again.")
    return version


def forget(path: str, version: int) -> None:
    """Delete the log's entries before a version, of which there is a checkpoint: nothing older can be read then.

    What killed writers have left of entries goes, too.
    """
    log = Path(path, "_delta_log")
    if not any(log.glob(f"{version:020d}.checkpoint*.parquet")):
        raise IngestError(f"{path} has no checkpoint of version {version}, without which its log is needed.")
    for entry in log.iterdir():
        number = entry.name.lstrip(".")[:20]
        if entry.suffix == ".tmp" or (number.isdigit() and len(number) == 20 and int(number) < version):
            entry.unlink(missing_ok=True)


def _now() -> int:
    return int(time.time() * 1000)


def _info(
    metadata: str,
    operation: str,
    parameters: Mapping[str, str | None] | None = None,
    engine: str = "ingest",
    **more: object,
) -> dict[str, Any]:
    about = {"timestamp": _now(), "operation": operation, "operationParameters": parameters or {}, **more}
    about |= {"userMetadata": metadata, "engineInfo": engine, "txnId": str(uuid.uuid4())}
    return {"commitInfo": about}


def _add(added: Added) -> dict[str, Any]:
    return {
        "add": {
            "path": quote(added.path, safe="/="),
            "partitionValues": added.partition,
            "size": added.size,
            "modificationTime": added.written_at,
            "dataChange": True,
            "stats": added.stats,
        }
    }


def _put(path: str, version: int, actions: Iterable[dict[str, Any]]) -> bool:
    """Write a log entry atomically, unless it exists; what a killed process leaves does not have an entry's name."""
    entry = b"".join(orjson.dumps(action, option=orjson.OPT_APPEND_NEWLINE) for action in actions)
    return stores.at(path).put_new(f"{path}/_delta_log/{version:020d}.json", entry)


def _checkpoint(path: str, version: int, every: int = _CHECKPOINT) -> None:
    """Write a checkpoint now and then; old log entries stay until `ingest maintain`, which keeps the promised
    versions.
    """
    from deltalake.exceptions import DeltaError

    if version and version % every == 0:
        stores.at(path).begin_checkpoint(path)
        # the commit is written, and the next one tries again
        with contextlib.suppress(DeltaError, OSError, StoreError):
            if is_stored(path):
                _checkpoint_of_copy(path, version)
            else:
                stores.table(path).create_checkpoint()


def _checkpoint_of_copy(path: str, version: int) -> None:
    """Make the checkpoint from a copy of the log on this machine: in a store, delta-rs asks for each entry four times."""
    from deltalake import DeltaTable

    store, log = stores.at(path), f"{path}/_delta_log"
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "_delta_log")
        copy.mkdir()
        for name in delta.parts(log, version):
            (copy / name).write_bytes(store.read(f"{log}/{name}"))
        DeltaTable(folder).create_checkpoint()
        for name in (f"{version:020d}.checkpoint.parquet", "_last_checkpoint"):
            store.write(f"{log}/{name}", (copy / name).read_bytes())


def clean(path: str) -> None:
    """Drop log entries older than the retention, except those that a newer version needs."""
    stores.table(path).cleanup_metadata()
