"""Read a Delta table's log without Spark: version, identifiers, columns and the files that make up the table.

The log is small and its rules are few (https://github.com/delta-io/delta/blob/master/PROTOCOL.md): the newest
checkpoint, then the commits after it, and of two actions on one file the later one counts. Reading it takes a
millisecond, which matters for 500 mirrors; a library that also writes takes five and has no list of identifiers.
"""

from __future__ import annotations

import base64
import datetime as dt
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import orjson

from ingest.errors import IngestError
from ingest.store import stores
from ingest.tables import duck

if TYPE_CHECKING:
    import pyarrow as pa

_COMMIT = re.compile(r"(\d{20})\.json\Z")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet\Z")
_WRITABLE = frozenset({"appendOnly", "changeDataFeed", "deletionVectors", "invariants", "timestampNtz"})
_READABLE = frozenset(
    {"deletionVectors", "timestampNtz", "columnMapping", "v2Checkpoint", "vacuumProtocolCheck"}
)


_IN_LOG = {"TINYINT": "byte", "SMALLINT": "short", "INT": "integer", "BIGINT": "long"}
_OF_LOG = {name: delta for delta, name in _IN_LOG.items()}


def type_in_log(delta: str) -> str:
    """A Delta type in the form of a table's log."""
    return _IN_LOG.get(delta, delta.lower())


def type_of_log(kind: object) -> str:
    """The Delta type of a column of a table's log."""
    return _OF_LOG.get(str(kind), str(kind).upper())


CHANGE_FEED = "delta.enableChangeDataFeed"
VECTORS, VECTORS_FEATURE = "delta.enableDeletionVectors", "deletionVectors"


def is_on(properties: Mapping[str, str], name: str) -> bool:
    """True if a table's property is true, in any letter case, as Spark takes it."""
    return properties.get(name, "false").strip().lower() == "true"


class UnreadableError(IngestError):
    """The log, or the table, uses something that is not supported here: Spark must read it."""


class DamagedError(UnreadableError):
    """An entry of the log is not JSON: Spark does not read it either."""


_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85, _FROM_Z85 = bytes.maketrans(_B85, _Z85), bytes.maketrans(_Z85, _B85)
_UUID = 20  # characters of Z85


def named_by(name: uuid.UUID) -> str:
    """How a log names the file of vectors in its table's folder that has a number."""
    return base64.b85encode(name.bytes).translate(_TO_Z85).decode()


def vector_file(name: uuid.UUID) -> str:
    """The name of a file of vectors."""
    return f"deletion_vector_{name}.bin"


@lru_cache(maxsize=8192)
def _statistics(text: str) -> Mapping[str, Any]:
    statistics: dict[str, Any] = orjson.loads(text) if text else {}
    return statistics


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a table; ``vector`` is its deletion vector as in the log, without empty members."""

    path: str  # as in the log: under the table's folder, percent-encoded
    size: int
    partition: Mapping[str, str | None]
    stats: str = ""
    vector: Mapping[str, Any] = field(default_factory=dict)

    @property
    def deleted(self) -> int:
        """The number of rows that its deletion vector removes."""
        return self.vector.get("cardinality") or 0

    @property
    def content(self) -> tuple[str, str]:
        """The identity of its rows in the table: its path, and that of its deletion vector."""
        return self.path, _vector(self.vector)

    @property
    def rows(self) -> int | None:
        """The number of its rows in the table, if the log says so."""
        written = _statistics(self.stats).get("numRecords")
        return None if written is None else written - self.deleted

    def may_hold(self, column: str, low: Any, high: Any = None) -> bool:
        """False if the statistics rule out that a column has a value between two, or from one on."""
        statistics = _statistics(self.stats)
        least, most = (statistics.get(name, {}).get(column) for name in ("minValues", "maxValues"))
        return (None in (least, high) or least <= high) and (most is None or most >= low)

    def least(self, column: str) -> Any:
        """The least value of a column that is no partition, by the statistics; None if they do not say."""
        return _statistics(self.stats).get("minValues", {}).get(column)

    def is_bounded(self, column: str) -> bool:
        """True if the statistics have a column's least and greatest value, and say that none is NULL."""
        statistics = _statistics(self.stats)
        ends = (statistics.get(name, {}).get(column) for name in ("minValues", "maxValues"))
        return None not in ends and statistics.get("nullCount", {}).get(column) == 0

    @property
    def place(self) -> str:
        """Its path under the table's folder."""
        return unquote(self.path)

    @property
    def places(self) -> tuple[str, ...]:
        """Its path, and that of the file of its deletion vector, if this is neither in the log nor elsewhere."""
        if self.vector.get("storageType") != "u":
            return (self.place,)
        text = str(self.vector["pathOrInlineDv"])
        try:
            name = uuid.UUID(bytes=base64.b85decode(text[-_UUID:].encode().translate(_FROM_Z85)))
        except ValueError:
            raise UnreadableError(f"a log names no file of a deletion vector ({text[:40]!r}).") from None
        return self.place, "/".join(filter(None, (text[:-_UUID], vector_file(name))))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A Delta table at a version, according to its log."""

    version: int  # -1: no table
    transactions: dict[str, int]
    types: Mapping[str, object] = field(default_factory=dict)  # of its columns, in the log's form
    table_id: str = ""
    size: int | None = None  # bytes of its data files, if the log has the sum
    files: tuple[DataFile, ...] = ()
    partition_by: tuple[str, ...] = ()
    # a column's name in the files, where it differs
    physical: Mapping[str, str] = field(default_factory=dict)
    comments: Mapping[str, str] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)  # as in the log
    protocol: Mapping[str, Any] = field(default_factory=dict)

    @property
    def configuration(self) -> Mapping[str, str]:
        """Its properties."""
        return self.meta.get("configuration") or {}

    @property
    def known_size(self) -> int:
        """Bytes of its data files; 0 if the log does not have the sum."""
        return self.size or 0

    @property
    def delta_types(self) -> dict[str, str]:
        """Delta's type of each column, as it is written in SQL."""
        return {name: type_of_log(kind) for name, kind in self.types.items()}

    @property
    def is_plain(self) -> bool:
        """True if files can be added without Spark: no feature of the table requires more of its writers."""
        version = self.protocol.get("minWriterVersion") or 0
        features = set(self.protocol.get("writerFeatures") or ())
        return 1 <= version <= 2 or (version == 7 and features <= _WRITABLE)

    @property
    def takes_vectors(self) -> bool:
        """True if its readers must know deletion vectors."""
        return VECTORS_FEATURE in (self.protocol.get("readerFeatures") or ())

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns, in order."""
        return tuple(self.types)

    @property
    def exists(self) -> bool:
        """True if the table has been created."""
        return self.version >= 0

    @property
    def rows(self) -> int | None:
        """The number of rows; None if a file has no count."""
        counts = [file.rows for file in self.files]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def extent(self) -> Extent:
        """What it has to show."""
        counted = self.rows if self.files else None
        marked = sum(bool(file.vector) for file in self.files) if self.files else None
        return Extent(self.version, self.transactions, counted, self.size, marked)


class Extent(NamedTuple):
    """What a table has to show: all that a list of tables needs to know of each.

    ``rows`` and ``marked``, the files with a deletion vector, are None if the log does not say them in few words.
    ``is_ours`` is true if the newest commit is known to be the writer's; where it is not, the commit has to be read.
    """

    version: int  # -1: no table
    transactions: Mapping[str, int]  # of the writer that is asked for at least
    rows: int | None = None
    size: int | None = None  # bytes of its data files
    marked: int | None = None
    is_ours: bool = False

    @property
    def exists(self) -> bool:
        """True if the table has been created."""
        return self.version >= 0


NO_TABLE = Snapshot(-1, {})
HOLDS = "holds"  # in the ``commitInfo`` of a commit: rows, bytes and marked files of the table after it


def snapshot(folder: str, version: int | None = None) -> Snapshot:
    """The state of the Delta table in a local folder, now or at a version; `NO_TABLE` if there is none.

    Raises:
        UnreadableError: the log is damaged, no longer has the version, or uses something that is not supported here.
    """
    log = f"{folder}/_delta_log"
    if version is None and (remembered := _newer(folder, log)) is not None:
        return remembered
    needed = _needed(log, version)
    if needed is None:
        return NO_TABLE
    last, newest = needed.last, needed.newest
    identity = _identity(f"{log}/{newest}")
    if version is not None:
        return _read(folder, last, needed.parts, identity)
    seen = _last.get(log)
    if seen is None or (seen.version, seen.newest, seen.identity) != (last, newest, identity):
        state = _continued(log, last) or _whole(log, needed.parts)
        seen = _last[log] = _Seen(last, newest, identity, state, state.snapshot(folder, last))
    return seen.snapshot


def extent(folder: str, writer: str) -> Extent:
    """What a table has to show; where its writer's newest commit is its last, and says what the table holds, nothing else
    of the log is read: a checkpoint takes longer than all the rest, and many tables have one.

    Raises:
        UnreadableError: the log lacks a commit, or what is read of it is damaged or not supported here.
    """
    log = f"{folder}/_delta_log"
    if log in _last:
        return snapshot(folder).extent
    needed = _needed(log, None)
    if needed is None:
        return NO_TABLE.extent
    if needed.newest.endswith(".json"):
        last = _State()
        said = last.take(_actions(f"{log}/{needed.newest}"))
        if (holds := said.get(HOLDS)) and writer in last.transactions:
            return Extent(
                needed.last, last.transactions, holds["rows"], holds["bytes"], holds["marked"], is_ours=True
            )
    return snapshot(folder).extent


def held_after(state: Snapshot, actions: Iterable[Mapping[str, Any]]) -> dict[str, int | None]:
    """What a table holds after a commit of these actions, for its ``commitInfo``; `extent` reads it."""
    after = _State({file.content: file for file in state.files})
    after.take(actions)
    files = tuple(after.files.values())
    now = replace(state, files=files, size=sum(file.size for file in files))
    marked = sum(bool(file.vector) for file in files)
    return {"rows": now.rows, "bytes": now.size, "marked": marked}


class Commit(NamedTuple):
    """A table's commit; without actions if the log has it only as a checkpoint."""

    version: int
    actions: list[dict[str, Any]]


def newest_commit(folder: str) -> Commit | None:
    """A table's newest commit, by its log's list and this one file: of many tables, reading all of it takes long; None if there
    is no table.

    Raises:
        UnreadableError: the log lacks a commit, or its newest one is damaged.
    """
    log = f"{folder}/_delta_log"
    needed = _needed(log, None)
    if needed is None:
        return None
    is_readable = needed.newest.endswith(".json")
    return Commit(needed.last, list(_actions(f"{log}/{needed.newest}")) if is_readable else [])


class _Needed(NamedTuple):
    """The files of a log that tell the state at a version: the last checkpoint, and the commits after it."""

    last: int  # the version
    newest: str
    parts: tuple[str, ...]


def _needed(log: str, version: int | None) -> _Needed | None:
    """What has to be read of a log, up to a version or all of it; None if there is no table."""
    commits, checkpoints = _listed(log, version)
    if version is None and not commits and not checkpoints:
        return None
    first = max(checkpoints, default=-1)
    last = max(commits.keys() | checkpoints.keys(), default=-1)
    numbers = range(first + 1, last + 1)
    if (version is not None and last != version) or any(number not in commits for number in numbers):
        raise UnreadableError(
            f"the table's log {log} does not hold all commits up to version {last if version is None else version}"
        )
    newest = commits.get(last) or checkpoints[last][0]
    return _Needed(last, newest, (*checkpoints.get(first, ()), *(commits[number] for number in numbers)))


def _newer(folder: str, log: str) -> Snapshot | None:
    """The state of a table in a store from what was read of it before; None if its log has to be listed whole."""
    store, seen = stores.at(folder), _last.get(log)
    if seen is None:
        return None
    if store.is_settled(log):
        return seen.snapshot
    newer = store.since(log, seen.newest)
    if newer is None or _marks(newer.get(seen.newest)) != seen.identity:
        return None
    last = max((int(match[1]) for match in map(_COMMIT.match, newer) if match), default=seen.version)
    if last == seen.version:
        return seen.snapshot
    name = f"{last:020d}.json"
    try:
        state = seen.state_at(log, last)
    except FileNotFoundError:
        return None
    newest = state.snapshot(folder, last)
    _last[log] = _Seen(last, name, _marks(newer[name]), state, newest)
    return newest


def _identity(file: str) -> tuple[int, ...]:
    """A value that changes whenever the file does."""
    return _marks(stores.at(file).stat(file))


def _marks(status: os.stat_result | None) -> tuple[int, ...]:
    return () if status is None else (status.st_mtime_ns, status.st_ino, status.st_size)


@lru_cache(maxsize=256)
def _read(folder: str, version: int, parts: tuple[str, ...], _identity: tuple[int, ...]) -> Snapshot:
    """The state at a version that was asked for; cached while its newest file is the same."""
    log = f"{folder}/_delta_log"
    return (_continued(log, version) or _whole(log, parts)).snapshot(folder, version)


def _whole(log: str, parts: Iterable[str]) -> _State:
    """The state after all parts of a log."""
    state = _State()
    for name in parts:
        state.take((_actions if name.endswith(".json") else _checkpoint)(f"{log}/{name}"))
    return state


def _continued(log: str, version: int) -> _State | None:
    """The cached state plus the commits since; None if the log has to be read from its checkpoint."""
    seen = _last.get(log)
    if seen is None or seen.version > version:
        return None
    try:
        is_same = _identity(f"{log}/{seen.newest}") == seen.identity  # else another table is there now
        return seen.state_at(log, version) if is_same else None
    except FileNotFoundError:
        return None


def actions(folder: str, version: int) -> list[dict[str, Any]]:
    """The actions of one commit.

    Raises:
        FileNotFoundError: the log no longer has it.
    """
    return list(_actions(f"{folder}/_delta_log/{version:020d}.json"))


def commits(folder: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The log's versions with the ``userMetadata`` of each commit, the newest first."""
    log = f"{folder}/_delta_log"
    listed, _ = _listed(log, None)
    for number in sorted(listed, reverse=True):
        yield number, metadata_of(list(_actions(f"{log}/{listed[number]}")))


def parts(log: str, version: int) -> list[str]:
    """The names of a log's files that give a table's state at a version: those of a checkpoint, and the commits after it."""
    commits, checkpoints = _listed(log, version)
    first = max(checkpoints, default=-1)
    later = [name for number, name in sorted(commits.items()) if number > first]
    return [*checkpoints.get(first, ()), *later]


def removed_since(folder: str, version: int, since: int) -> Iterator[DataFile]:
    """The files that commits up to a version took out of a table since a moment, in milliseconds; a checkpoint keeps those
    that the table's retention protects.
    """
    log = f"{folder}/_delta_log"
    for name in parts(log, version):
        actions = _actions(f"{log}/{name}") if name.endswith(".json") else _removals(f"{log}/{name}")
        for entry in (action["remove"] for action in actions if "remove" in action):
            if (entry.get("deletionTimestamp") or 0) >= since:
                vector = _filled(entry.get("deletionVector") or {})
                yield DataFile(entry["path"], entry.get("size") or 0, {}, vector=vector)


def _removals(path: str) -> Iterator[dict[str, Any]]:
    """The actions of a checkpoint that took files out."""
    query = f"SELECT remove FROM read_parquet({duck.text(path)}) WHERE remove IS NOT NULL"
    yield from duck.rows(query)


def metadata_of(commit: list[dict[str, Any]]) -> dict[str, Any]:
    """The ``userMetadata`` among a commit's actions, as a mapping; empty if it is not one of ours."""
    for action in commit:
        info = action.get("commitInfo")
        if info is not None:
            try:
                metadata = orjson.loads(info.get("userMetadata") or "{}")
            except orjson.JSONDecodeError:
                return {}
            return metadata if isinstance(metadata, dict) else {}
    return {}


def foreign_operation(commit: list[dict[str, Any]]) -> str:
    """What a commit of others that changed rows calls itself; empty for ours, and for those that only move rows.

    OPTIMIZE, REORG and VACUUM move rows without changing them.
    """
    files = (action.get(kind, {}) for action in commit for kind in ("add", "remove"))
    if "run" in metadata_of(commit) or not any(file.get("dataChange", False) for file in files):
        return ""
    info: dict[str, Any] = next((action["commitInfo"] for action in commit if "commitInfo" in action), {})
    return str(info.get("operation") or "an unknown operation")


def committed_at(commit: Iterable[Mapping[str, Any]]) -> dt.datetime | None:
    """When a commit was made by its writer's clock, in UTC without a zone; None if it does not say."""
    for action in commit:
        if moment := action.get("commitInfo", {}).get("timestamp"):
            return dt.datetime.fromtimestamp(moment / 1000, dt.UTC).replace(tzinfo=None)
    return None


def added(commit: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """The files that a commit adds to a table, by `DataFile.content`."""
    return _files(commit, "add")


def removed(commit: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """The files that a commit takes out of a table, by `DataFile.content`."""
    return _files(commit, "remove")


def _files(commit: Iterable[Mapping[str, Any]], kind: str) -> set[tuple[str, str]]:
    files = (action[kind] for action in commit if kind in action)
    return {(file["path"], _vector(file.get("deletionVector") or {})) for file in files}


def _listed(log: str, version: int | None) -> tuple[dict[int, str], dict[int, list[str]]]:
    """The names of a log's commits and complete checkpoints, by version, up to one."""
    commits: dict[int, str] = {}
    parts: dict[int, dict[tuple[int, int], str]] = {}
    for name in stores.at(log).names(log):
        if match := _COMMIT.match(name):
            commits[int(match[1])] = name
        elif match := _CHECKPOINT.match(name):
            parts.setdefault(int(match[1]), {})[int(match[2] or 1), int(match[3] or 1)] = name
    whole: dict[int, list[str]] = {}
    for number, ones in parts.items():
        for count in {total for _, total in ones}:
            if all((i, count) in ones for i in range(1, count + 1)):
                whole[number] = [ones[i, count] for i in range(1, count + 1)]
    if version is not None:
        commits = {number: path for number, path in commits.items() if number <= version}
        whole = {number: paths for number, paths in whole.items() if number <= version}
    return commits, whole


def _actions(path: str) -> Iterator[dict[str, Any]]:
    try:
        for line in stores.at(path).read(path).split(b"\n"):  # names may contain other line breaks
            if line:
                yield orjson.loads(line)
    except orjson.JSONDecodeError:
        raise DamagedError(f"the table's log is damaged at {path}") from None


def _checkpoint(path: str) -> Iterator[dict[str, Any]]:
    """The actions of a checkpoint that describe the table's state."""
    rows = duck.rows(
        "SELECT txn.appId AS app, txn.version AS number, metaData AS meta, protocol, add.path AS path, add.size AS size, "
        'add.partitionValues AS "partitionValues", add.stats AS stats, add.deletionVector AS "deletionVector" '
        f"FROM read_parquet({duck.text(path)}) "
        "WHERE txn IS NOT NULL OR metaData IS NOT NULL OR protocol IS NOT NULL OR add IS NOT NULL"
    )
    for row in rows:
        if row["app"] is not None:
            yield {"txn": {"appId": row["app"], "version": row["number"]}}
        elif row["path"] is not None:
            yield {"add": row}
        elif row["meta"] is not None:
            yield {"metaData": row["meta"]}
        else:
            yield {"protocol": row["protocol"]}


@dataclass(slots=True)
class _State:
    """The state after the actions so far."""

    files: dict[tuple[str, str], DataFile] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    protocol: Mapping[str, Any] = field(default_factory=dict)

    def copy(self) -> _State:
        """A copy that can be changed."""
        return replace(self, files=self.files.copy(), transactions=self.transactions.copy())

    def take(self, actions: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Apply actions, and give the ``commitInfo`` among them."""
        info: Mapping[str, Any] = {}
        for action in actions:
            if entry := action.get("add"):
                _refuse_outside(entry["path"])
                vector = _filled(entry.get("deletionVector") or {})
                match vector.get("storageType"):
                    case "p":
                        _refuse_outside(vector["pathOrInlineDv"])
                    case "u":
                        _refuse_outside(vector["pathOrInlineDv"][:-_UUID])
                self.files[entry["path"], _vector(vector)] = DataFile(
                    entry["path"],
                    entry["size"],
                    entry.get("partitionValues") or {},
                    entry.get("stats") or "",
                    vector,
                )
            elif entry := action.get("remove"):
                self.files.pop((entry["path"], _vector(entry.get("deletionVector") or {})), None)
            elif entry := action.get("txn"):
                self.transactions[entry["appId"]] = int(entry["version"])
            elif entry := action.get("metaData"):
                self.meta = entry
            elif entry := action.get("protocol"):
                self.protocol = entry
            elif entry := action.get("commitInfo"):
                info = entry
        return info

    def snapshot(self, folder: str, version: int) -> Snapshot:
        unknown = set(self.protocol.get("readerFeatures") or ()) - _READABLE
        if not self.meta or unknown:
            why = f"uses {', '.join(sorted(unknown))}" if unknown else "has no columns"
            raise UnreadableError(f"The table {folder} {why}, which is read with Spark alone.")
        fields = orjson.loads(self.meta["schemaString"])["fields"]
        files = tuple(self.files.values())
        return Snapshot(
            version,
            self.transactions,
            {field["name"]: field["type"] for field in fields},
            self.meta["id"],
            sum(file.size for file in files),
            files,
            tuple(self.meta.get("partitionColumns") or ()),
            {
                field["name"]: field["metadata"]["delta.columnMapping.physicalName"]
                for field in fields
                if "delta.columnMapping.physicalName" in field["metadata"]
            },
            {
                field["name"]: field["metadata"]["comment"]
                for field in fields
                if "comment" in field["metadata"]
            },
            _filled(self.meta),
            _filled(self.protocol),
        )


@dataclass(frozen=True, slots=True)
class _Seen:
    """A log as last read; of older versions nothing is kept, for a service sees many."""

    version: int
    newest: str  # the name of its newest file
    identity: tuple[int, ...]
    state: _State
    snapshot: Snapshot

    def state_at(self, log: str, version: int) -> _State:
        """The state with the commits up to a later version.

        Raises:
            FileNotFoundError: the log lacks one of them.
        """
        state = self.state.copy()
        for number in range(self.version + 1, version + 1):
            state.take(_actions(f"{log}/{number:020d}.json"))
        return state


_last: dict[str, _Seen] = {}


def _filled(action: Mapping[str, Any]) -> dict[str, Any]:
    """An action's members; a checkpoint also has the empty ones."""
    return {name: value for name, value in action.items() if value is not None}


def _refuse_outside(path: str) -> None:
    """Refuse a data file that is not below its table: who may write a log could show any file that this user can read.

    Raises:
        UnreadableError: it is outside, as those of a shallow clone are, too.
    """
    place = unquote(path)
    if place.startswith(("/", "file:")) or "://" in place or ".." in place.split("/"):
        raise UnreadableError(
            f"a log names a data file outside of its table ({path}), which is read with Spark alone."
        )


def _vector(descriptor: Mapping[str, Any]) -> str:
    """The identity of a deletion vector; empty for none."""
    if not descriptor:
        return ""
    offset = descriptor.get("offset")
    return (
        f"{descriptor['storageType']}{descriptor['pathOrInlineDv']}{'' if offset is None else f'@{offset}'}"
    )


def refuse_irregular(folder: str, files: Iterable[DataFile]) -> None:
    """Refuse a table of which a data file or a vector is a pipe, a device, a folder or a link, before a library opens it.

    Raises:
        OSError: the first such file.
    """
    stores.at(folder).refuse_irregular(f"{folder}/{place}" for file in files for place in file.places)


def kept_rows(folder: str, version: int) -> dict[str, pa.BooleanArray]:
    """By file, as its path under the folder: which of its rows deletion vectors leave. Files without one are missing."""
    import pyarrow as pa

    refuse_irregular(folder, (file for file in snapshot(folder, version).files if file.vector))
    vectors = pa.table(stores.table(folder, version).deletion_vectors())
    prefix = stores.at(folder).prefix(folder)
    paths = (
        unquote(path.removeprefix("file://")).rpartition(prefix)[2]
        for path in vectors["filepath"].to_pylist()
    )
    return {
        path: pa.concat_arrays([vector.values])  # which is sent to a task without those of all other files
        for path, vector in zip(paths, vectors["selection_vector"], strict=True)
        if vector.is_valid
    }


def deleted_rows(folder: str, version: int) -> dict[str, list[int]]:
    """The rows that deletion vectors remove from a table's files, by the file's path under the folder."""
    import pyarrow.compute as pc

    kept = kept_rows(folder, version).items()
    return {path: pc.indices_nonzero(pc.invert(mask)).to_pylist() for path, mask in kept}
