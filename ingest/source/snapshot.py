"""Reading tables of a source during its stream: chunk by chunk into files that bronze lands as any other.

A snapshot is a folder under ``<lake>/snapshots/<source>/``: its plan, and a file for each chunk that was read whole.
A chunk whose file is there is not read again, so a killed snapshot continues where it was.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import orjson

from ingest import types
from ingest.change import TableId
from ingest.config import Pipeline, Source, TableRule
from ingest.config.entries import Database
from ingest.errors import IngestError, command, counted
from ingest.formats import ingest_snapshot
from ingest.source.chunks import Bound, Chunk, bounds, chunks, condition, in_threads, keys_of
from ingest.source.database import (
    HOW_IT_ENDS,
    DatabaseError,
    SourceColumn,
    SourceDialect,
    SourceTable,
    connected,
    named,
    no_table,
    primary_of,
)
from ingest.source.database import clock as clock_of
from ingest.source.place import KnownTable, SnapshotPlace, after, known, number_after
from ingest.tables.snapshots import folder

CHUNK_ROWS = 50_000
_TRIES = 4
_RESTARTS = 3
_AGAIN = "It is read again from its beginning."
_WAIT_SECONDS = 600.0
# InnoDB refreshes its list of open transactions only if it was not read for a tenth of a second
_LOOK_SECONDS = 0.25
_PLAN, _DONE = "plan.json", "done"


@dataclass(slots=True)
class SnapshotProgress:
    """How far one table is."""

    table: str
    rows: int = 0
    chunks: int = 0
    done: int = 0
    resumed: int = 0  # chunks that an earlier call had read
    seconds: float = 0.0
    folder: str = ""
    warnings: list[str] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, rows: int) -> None:
        with self._lock:
            self.rows += rows
            self.done += 1
            self.seconds = time.monotonic() - self._began

    @property
    def rate(self) -> float:
        """Rows in a second."""
        return self.rows / self.seconds if self.seconds else 0.0

    @property
    def left(self) -> float:
        """Seconds that the rest will take, as far as chunks are alike."""
        read = self.done - self.resumed
        return self.seconds / read * (self.chunks - self.done) if read else 0.0


class ChangedError(IngestError):
    """The table's columns are not what they were when the reading began."""


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """What a snapshot reads, as its folder keeps it."""

    table: TableId
    where: str
    shape: list[list[str]]
    keys: tuple[str, ...]
    place: SnapshotPlace
    bounds: list[Bound]


def source_of(pipeline: Pipeline, name: str = "") -> Source:
    """The source whose database is read; an `IngestError` unless there is one, or several and a name."""
    having = [
        source for source in pipeline.sources if source.database is not None and name in ("", source.name)
    ]
    if not having:
        which = f"source {name!r}" if name else "any source"
        raise IngestError(
            f"There is no `database:` under {which} in {pipeline.file.name}: "
            "write {url: ..., user: ..., password: ...} there."
        )
    if len(having) > 1:
        names = ", ".join(source.name for source in having)
        raise IngestError(f"Several sources have a database ({names}): name one with --source.")
    if pipeline.is_stored:
        raise IngestError(
            "Rows are read into files of the lake's folder, so the lake has to be a local folder."
        )
    return having[0]


def snapshot(
    pipeline: Pipeline,
    source: Source,
    text: str,
    *,
    where: str = "",
    parallel: int = 2,
    size: int = CHUNK_ROWS,
    alone: bool = False,
    tell: Callable[[SnapshotProgress], None] = lambda _progress: None,
) -> SnapshotProgress:
    """Read one table, by its stream's name, in chunks of ``size`` rows; or go on with what an earlier call left.

    With ``where``, a condition in the database's SQL, nothing is removed at the end. ``alone`` reads although the lake has
    decoded nothing of the stream. ``tell`` is called after each chunk.

    Raises:
        IngestError: the table is not there, or the database failed again and again; the same command goes on.
    """
    assert source.database is not None
    table = named(source.database, text)
    if not alone and not known(pipeline, source.name, table).streamed:
        raise IngestError(
            f"Nothing of source {source.name} has been decoded yet, so changes that happen from now on might be lost: "
            f"start its stream and type `{command('run', pipeline.file)}` first, or give --alone if there is no stream."
        )
    progress = SnapshotProgress(text)
    for _ in range(_RESTARTS):
        try:
            _begun(pipeline, source, table, where, size, progress).read(parallel, progress, tell)
            return progress
        except ChangedError as error:
            progress = SnapshotProgress(text, warnings=[*progress.warnings, f"{error} {_AGAIN}"])
            last = error
    raise IngestError(f"{last} It has changed {_RESTARTS} times: wait until its columns stay as they are.")


def _begun(
    pipeline: Pipeline, source: Source, wanted: TableId, where: str, size: int, progress: SnapshotProgress
) -> TableReading:
    """The reading of a table that an earlier call left, else a new one."""
    assert source.database is not None
    known_now = known(pipeline, source.name, wanted)
    with connected(source.database) as (dialect, connection):
        table = described(dialect.table(connection, wanted), pipeline, wanted, source, known_now.columns)
        progress.warnings += _unkeyed(dialect, connection, table, pipeline, known_now.keys)
        if (waiting := _waiting(pipeline, source, table, where, progress)) is not None:
            return TableReading(source, table, *waiting)
        place = place_of(pipeline, source, wanted, known_now)
        wait_for_open_transactions(source.database, dialect, connection, wanted)
        if not source.database.primary and dialect.is_replica(connection):
            progress.warnings.append(
                f"The database of source {source.name} is a replica: if it lags behind the stream, rows that are older than "
                "changes which have landed win over these. Write where its primary is under `database:` "
                "(`primary: ...`), and reading waits until the replica has what the stream has."
            )
        cut = list(bounds(dialect, connection, table, where, size))
    plan = SnapshotPlan(wanted, where, table.shape, table.keys, place, cut)
    return TableReading(source, table, plan, begin(pipeline, source, plan))


def described(
    table: SourceTable | None,
    pipeline: Pipeline,
    wanted: TableId,
    source: Source,
    streamed: Mapping[str, str],
) -> SourceTable:
    """The table as it is read: by the key and the types of the pipeline file, and in the types of its stream."""
    if table is None:
        assert source.database is not None
        raise no_table(source.database, wanted)
    rule = pipeline.rule(wanted)
    if table.hides_columns:
        _refuse_hidden(table, rule, streamed, source)
    unmasked = {name: logical for name, logical in streamed.items() if not rule.mask_of(name)}
    logical_types = {**unmasked, **rule.columns}
    declared = frozenset(rule.columns)
    left_out = tuple(
        column
        for column in table.columns
        if (column.generated and streamed and column.name not in streamed)
        or (not column.text and all(each.leaves_out(column.name) for each in (rule, *rule.also)))
    )
    columns = tuple(
        agreed(wanted, column, logical_types.get(column.name, "unknown"), is_declared=column.name in declared)
        for column in table.columns
        if column not in left_out
    )
    return replace(table, columns=columns, keys=rule.keys or table.keys, left_out=left_out)


def _unkeyed(
    dialect: Any, connection: Any, table: SourceTable, pipeline: Pipeline, keys: tuple[str, ...]
) -> Iterator[str]:
    """What a mirror will make of the rows of a table without a key; ``keys`` are those that its stream says."""
    names = {column.name for column in table.columns}
    if table.keys:
        return
    if not keys and pipeline.rule(table.id).no_key == "hold":
        yield (
            f"{table.id} has no key, so its mirror is held: write `keys: [...]` of columns that are unique and never NULL, or "
            f"`no_key: full_row`, into its entry under `tables:` of {pipeline.file.name}."
        )
    if not keys or not names.issuperset(keys):
        return
    nulls = " OR ".join(f"{key.order} IS NULL" for key in keys_of(dialect, replace(table, keys=keys)))
    [(count,)] = dialect.values(connection, f"SELECT COUNT(*) FROM {table.name} WHERE {nulls}")
    if int(count):
        yield (
            f"{counted(int(count), 'row')} of {table.id} with NULL in ({', '.join(keys)}), its mirror's key: the mirror cannot hold "
            "such a row, and it becomes a reject (key-does-not-fit): write `keys: [...]` of columns that are unique and never "
            f"NULL into its entry under `tables:` of {pipeline.file.name}, and read it again after the next run."
        )


def _refuse_hidden(table: SourceTable, rule: TableRule, streamed: Mapping[str, str], source: Source) -> None:
    """Complain of columns that this user may not read: rows without them would make them NULL, or a mirror without
    them would pass as the whole table.
    """
    assert source.database is not None
    if not (streamed or rule.without):
        raise IngestError(
            f"User {source.database.user!r} may not read all columns of {table.id}: grant SELECT on the table, or name the "
            "columns that the mirror goes without under `columns:` (`COLUMN: exclude`)."
        )
    shown = {column.name for column in table.columns}
    if hidden := sorted(name for name in streamed if name not in shown and not rule.leaves_out(name)):
        raise IngestError(
            f"User {source.database.user!r} may not read all columns of {table.id}, and the stream has {hidden[0]!r}: grant "
            f"SELECT on the table, or leave the column out with `columns: {{{hidden[0]}: exclude}}`."
        )


def agreed(table: TableId, column: SourceColumn, streamed: str, *, is_declared: bool = False) -> SourceColumn:
    """A column in the type that its stream gives it, or the pipeline file where it ``is_declared``, so that one value has
    one text.

    Raises:
        IngestError: the two types write values in forms that no rule here turns into each other.
    """
    if not column.text:
        raise IngestError(
            f"A value of {column.declared}, as in {column.name!r} of {table}, cannot be read: leave the column out with "
            f"`columns: {{{column.name}: exclude}}`."
        )
    kind, other = types.base(column.type), types.base(streamed)
    if other in (kind, "unknown") or {kind, other} <= _NUMBERS or (kind, other) == ("date", "datetime"):
        return column  # a bare date is its midnight
    if types.delta(streamed) == "STRING" and kind not in ("bit", "binary"):
        # each connector prints floating numbers in a form of its own, and the mirror keeps that text
        return column._replace(type=streamed, comparable=column.comparable and types.family(kind) != "float")
    if is_declared and kind == "string":
        # silver converts the text as it does the stream's; the database cannot, so nothing is compared
        return column._replace(type=streamed, comparable=False)
    if other == "boolean" and kind in _NUMBERS:
        text = f"CASE WHEN {column.text} = '0' THEN 'false' WHEN {column.text} IS NOT NULL THEN 'true' END"
        return column._replace(type=streamed, text=text)
    raise IngestError(
        f"The stream writes {column.name!r} of {table} as {streamed}, and the database declares {column.declared}, "
        f"which is read as {column.type}: give the column one type for both under `columns:`."
    )


_NUMBERS = frozenset(
    "int8 int16 int32 int64 uint8 uint16 uint32 uint64 year bit decimal float32 float64".split()
)


def wait_for_open_transactions(
    database: Database, dialect: SourceDialect, connection: Any, table: TableId
) -> None:
    """Wait until what was open when the place was chosen is over, and a replica has it."""
    if not is_settled(database, dialect, connection, _WAIT_SECONDS):
        lags, catch_up = (
            (
                ", or the replica under `database:` has not come in time to where its primary was",
                ", or let the replica catch up and look whether it follows `primary:`",
            )
            if database.primary
            else ("", "")
        )
        raise IngestError(
            f"A transaction in the source has been open for {_WAIT_SECONDS:.0f} seconds, and its changes may be of {table}{lags}. "
            f"End it ({HOW_IT_ENDS}){catch_up}, then run the same command again."
        )


def is_settled(database: Database, dialect: SourceDialect, connection: Any, seconds: float) -> bool:
    """Wait until all that a stream may have delivered is seen by a SELECT; False if it is not in time."""
    until = time.monotonic() + seconds
    if not database.primary:
        return _is_over(dialect, connection, until)
    with connected(primary_of(database)) as (_, primary):
        if not _is_over(dialect, primary, until):
            return False
        position = dialect.position(primary)
    while not (is_applied := dialect.has_applied(connection, position)) and time.monotonic() <= until:
        time.sleep(_LOOK_SECONDS)
    return is_applied


def _is_over(dialect: SourceDialect, connection: Any, until: float) -> bool:
    """Wait until the transactions that are open now are over; False if they are not in time."""
    mark = dialect.settled(connection, "")
    while mark and time.monotonic() <= until:
        time.sleep(_LOOK_SECONDS)
        mark = dialect.settled(connection, mark)
    return not mark


# --- the folder -----------------------------------------------------------------------------------


def place_of(pipeline: Pipeline, source: Source, table: TableId, now: KnownTable) -> SnapshotPlace:
    """The place of rows that are read from now on: also after those that were read and have not landed yet."""
    waiting = folder(pipeline, source.name).glob(f"{_name(table)}-*/{_PLAN}")
    plans = [msgspec.json.decode(file.read_bytes(), type=SnapshotPlan) for file in waiting]
    numbers = [plan.place.number + 1 for plan in plans]
    return after(now.high, now.batch, max([number_after(now.high, now.batch), *numbers]), now.epoch)


def begin(pipeline: Pipeline, source: Source, plan: SnapshotPlan) -> Path:
    """A folder of its own for a plan, there at once with it."""
    parent = folder(pipeline, source.name)
    parent.mkdir(parents=True, exist_ok=True)
    here = parent / f"{_name(plan.table)}-{plan.place.number}"
    while True:
        try:
            here.mkdir()
            break
        except FileExistsError:
            here = here.with_name(f"{here.name}a")
    write(here / _PLAN, iter([msgspec.json.encode(plan)]))
    return here


def _waiting(
    pipeline: Pipeline, source: Source, table: SourceTable, where: str, progress: SnapshotProgress
) -> tuple[SnapshotPlan, Path] | None:
    """The snapshot of a table that was not read to its end, if it can still be; one of other columns ends here."""
    parent = folder(pipeline, source.name)
    for file in sorted(parent.glob(f"{_name(table.id)}-*/{_PLAN}"), reverse=True):
        if (file.parent / _DONE).exists():
            continue
        plan = msgspec.json.decode(file.read_bytes(), type=SnapshotPlan)
        if (plan.table, plan.where) != (table.id, where):
            continue
        if (plan.shape, plan.keys) == (table.shape, table.keys):
            return plan, file.parent
        close(file.parent)  # else it would go on if the columns became what they were
        changed = f"{table.id} has changed since a part of it was read: {_change(plan, table)}."
        progress.warnings.append(f"{changed} {_AGAIN}")
    return None


def _change(plan: SnapshotPlan, table: SourceTable) -> str:
    """What has become of a table's columns and key since a plan was made."""
    was, now = ({row[0]: row[1] for row in version.shape} for version in (plan, table))
    parts = [f"{name} is new" for name in now if name not in was]
    parts += [f"{name} is gone" for name in was if name not in now]
    parts += [
        f"{name} was {was[name]} and is {now[name]}" for name in now if was.get(name, now[name]) != now[name]
    ]
    if plan.keys != table.keys:
        parts.append(f"its key was ({', '.join(plan.keys)}) and is ({', '.join(table.keys)})")
    return ", ".join(parts)


def close(here: Path) -> None:
    """Nothing more comes into a snapshot's folder."""
    (here / _DONE).touch()


def _name(table: TableId) -> str:
    """A folder's name for a table: readable, and no other table's."""
    digest = hashlib.sha256(orjson.dumps(list(table))).hexdigest()[:8]
    return f"{re.sub('[^a-z0-9_.]', '_', str(table).lower())[:60]}-{digest}"


def _file(here: Path, number: int) -> Path:
    return here / f"chunk-{number + 1:06d}{ingest_snapshot.SUFFIX}"


def write(file: Path, lines: Iterator[bytes]) -> None:
    """A file that is there whole or not at all."""
    waiting = file.with_name(f".{file.name}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        with waiting.open("wb") as out:
            for line in lines:
                out.write(line + b"\n")
            out.flush()
            os.fsync(out.fileno())
        waiting.replace(file)
    finally:
        waiting.unlink(missing_ok=True)


# --- the rows -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableReading:
    """One snapshot's table, and how its rows become messages."""

    source: Source
    table: SourceTable
    plan: SnapshotPlan
    here: Path

    def read(
        self, parallel: int, progress: SnapshotProgress, tell: Callable[[SnapshotProgress], None]
    ) -> None:
        """Read the chunks that are not there yet, and close the folder; ``tell`` is called after each."""
        progress.folder = str(self.here)
        ranges = chunks(self.plan.bounds)
        missing = [number for number in range(len(ranges)) if not _file(self.here, number).exists()]
        progress.chunks = len(ranges)
        progress.done = progress.resumed = len(ranges) - len(missing)
        stop = threading.Event()

        def read_range(number: int) -> None:
            if not stop.is_set():
                progress.add(self.chunk(number, ranges[number], stop))
                tell(progress)

        try:
            in_threads(parallel, read_range, missing, stop)
        except ChangedError:
            close(self.here)  # what was read stays: the columns were these
            raise
        if not self.plan.where:
            write(self.here / f"end{ingest_snapshot.SUFFIX}", iter([self.end()]))
        close(self.here)

    def chunk(self, number: int, chunk: Chunk, stop: threading.Event) -> int:
        """Read one chunk into its file, on a connection of its own; how many rows it has."""
        for trial in range(_TRIES):
            try:
                return self._chunk(number, chunk)
            except DatabaseError as error:
                if trial == _TRIES - 1:
                    raise IngestError(
                        f"{error} {self.table.id} was read in part: run the same command again to go on."
                    ) from None
                if stop.wait(2.0**trial):
                    break
        return 0

    def _chunk(self, number: int, chunk: Chunk) -> int:
        assert self.source.database is not None
        count = 0

        def counted(rows: Iterator[bytes]) -> Iterator[bytes]:
            nonlocal count
            for row in rows:
                count += 1
                yield row

        def lines(rows: Iterator[bytes], clock: str) -> Iterator[bytes]:
            yield from self.messages(number, counted(rows), clock)
            self._unchanged(dialect.table(connection, self.table.id))

        with connected(self.source.database) as (dialect, connection):
            rest = condition(keys_of(dialect, self.table), chunk, self.plan.where)
            try:
                self._unchanged(dialect.table(connection, self.table.id))
                texts = [column.text for column in self.table.columns]
                rows = dialect.rows(connection, texts, f"{self.table.name} {rest}")
                write(_file(self.here, number), lines(rows, clock_of(dialect, connection)))
            except dialect.ERRORS:  # also where a column is gone, which is not the database's fault
                with connected(self.source.database) as (_, another):
                    self._unchanged(dialect.table(another, self.table.id))
                raise
        return count

    def _unchanged(self, now: SourceTable | None) -> None:
        if now is None:
            raise IngestError(f"{self.table.id} vanished while it was read.")
        if now.shape != self.plan.shape:
            what = _change(self.plan, replace(now, keys=self.plan.keys))
            raise ChangedError(f"{self.table.id} changed while it was read: {what}.")

    def messages(
        self,
        chunk: int,
        rows: Iterator[bytes],
        clock: str,
        op: str = "read",
        types: Mapping[str, str] | None = None,
    ) -> Iterator[bytes]:
        """Rows as messages of a bounded size; ``types`` has their columns, if these are not all of the table."""
        named = types or {column.name: column.type for column in self.table.columns}
        for message, held in enumerate(ingest_snapshot.pages(rows)):
            yield self._message(op, chunk, message, held, clock, named)

    def _message(
        self, op: str, chunk: int, message: int, rows: list[bytes], clock: str, types: Mapping[str, str]
    ) -> bytes:
        head = {
            **self._head(op, self.plan.place.of(chunk, message), f"chunk {chunk + 1}"),
            "time": clock,
            "types": types,
        }
        return orjson.dumps(head)[:-1] + b',"rows":[' + b",".join(rows) + b"]}"

    def end(self) -> bytes:
        """The mark after which the rows go that the snapshot did not contain."""
        return orjson.dumps(self._head("end", self.plan.place.end(), "end"))

    def _head(self, op: str, place: dict[str, Any], what: str) -> dict[str, Any]:
        return {
            ingest_snapshot.MARK: 1,
            "op": op,
            "table": list(self.table.id),
            "keys": list(self.plan.keys),
            "place": place,
            "name": f"snapshot {self.plan.place.number}, {what}",
        }
