"""Join a table's small files, and write those with many deleted rows again, by Arrow: the table holds the same rows.

What is to be joined is read from the log, the files are written by Spark's tasks or in this process, and the commit replaces
those files, and no others, if each of them is still as it was read. Whoever else has changed one meanwhile wins: its bundle is
left as it is. Nothing but the commit needs the lake's lock.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import orjson
import pyarrow as pa
from deltalake.exceptions import DeltaError

from ingest.errors import StoreError, counted
from ingest.spark.deferred import cores, has_started
from ingest.spark.tasks import Load, Work, dealt
from ingest.store import faults, stores
from ingest.tables import commits, delta, records
from ingest.tables.datafiles import Added, Layout, arrow_schema, in_partition
from ingest.tables.delta import DataFile, Snapshot, UnreadableError
from ingest.tables.lake import Lake
from ingest.tables.row_files import RowFile, kept_rows
from ingest.tables.schemas import BY_NAME

STAGE = "maintain"
SMALL_FILE, JOINED_FILE = 32 << 20, 128 << 20  # bytes: smaller files are joined, up to this size
DELETED = 20  # a file is written again when one of so many rows is deleted
_ROUNDS = 3  # of files that others have changed meanwhile
_REPORT = "number INT, files STRING, failed STRING, full BOOLEAN"
_REPORTED = pa.schema(
    [("number", pa.int32()), ("files", pa.string()), ("failed", pa.string()), ("full", pa.bool_())]
)
Turn = Callable[[], AbstractContextManager[None]]
"""Holds the lake's lock for a moment."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Files of one partition of a table that become one.

    Attributes:
        number: among the bundles of a job.
        table: its name under the lake.
        layout: where and how a product table's file is written; of others only the folder and the columns matter.
        keys: of other tables, the columns that each file has the least and the greatest value of.
        files: of the table.
        kept: which rows deletion vectors leave, by the file's place.
    """

    number: int
    table: str
    layout: Layout
    keys: tuple[str, ...]
    files: tuple[DataFile, ...]
    kept: Mapping[str, pa.BooleanArray] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes to read."""
        return sum(file.size for file in self.files)

    def write(self) -> list[Added]:
        """Write its rows as one file, in their order; none if no row is left."""
        layout = self.layout
        pages = (
            page
            for file in self.files
            for page in kept_rows(f"{layout.folder}/{file.place}", layout.stored, self.kept.get(file.place))
        )
        if self.table in BY_NAME:
            return in_partition(layout, dict(self.files[0].partition), pages)
        with RowFile(layout.folder, list(self.keys)) as rows:
            for page in pages:
                rows.add(page)
            end = rows.finish()
        if end is None:
            return []
        return [Added(end.name, end.size, {}, end.stats, int(time.time() * 1000))]


class JoinedBundle(NamedTuple):
    """A bundle with the files that hold its rows now, which no commit names yet."""

    bundle: Bundle
    files: list[Added]


class Joined(NamedTuple):
    """What became of tables that Arrow may write; one that is in neither is Spark's.

    Attributes:
        done: how many files of each are gone, and how many replace them; not of those that are left to Spark.
        met: what has kept Arrow from joining a table, as a sentence without its full stop.
        full: those of them for which a disk has no space left, which Spark would not find either.
    """

    done: dict[str, tuple[int, int]]
    met: dict[str, str]
    full: set[str]

    def leave(self, name: str, why: str, *, full: bool) -> None:
        """Leave a table as it is."""
        self.met[name] = why
        if full:
            self.full.add(name)


def join(lake: Lake, names: Iterable[str], turn: Turn, tell: Callable[[str, str], None]) -> Joined:
    """Join the files of tables.

    Args:
        lake: the lake.
        names: the tables, by their names under the lake.
        turn: holds the lake's lock; a commit takes a few milliseconds.
        tell: called with the table and the step that begins.
    """
    result = Joined({name: (0, 0) for name in names if _is_written(lake, name)}, {}, set())
    left: Iterable[str] = list(result.done)
    for _ in range(_ROUNDS):
        bundles = [bundle for name in left for bundle in _planned(lake, name, result)]
        load = Load(sum(len(bundle.files) for bundle in bundles), sum(bundle.size for bundle in bundles))
        changed = dict[str, None]()
        for job in _jobs(bundles, cores(lake.spark)):
            unread = [bundle for bundle in job if bundle.table not in result.met]
            for name in dict.fromkeys(bundle.table for bundle in unread):
                tell(name, "joining small files")
            made = _written(lake, unread, load, result)
            try:
                for name in [name for name in made if name not in result.met]:
                    if _put(lake, name, made.pop(name), turn, result):
                        changed[name] = None
            finally:
                for name, same in made.items():
                    _discard(lake.path(name), same)
        left = [name for name in changed if name not in result.met]
    for name in result.met.keys() - result.full:
        del result.done[name]
    return result


def _planned(lake: Lake, name: str, result: Joined) -> list[Bundle]:
    """As `planned`; none if that is not known without Spark, and the result gets why."""
    try:
        return planned(lake, name)
    except (UnreadableError, DeltaError, pa.ArrowException, OSError, StoreError) as error:
        result.leave(name, faults.said(error), full=False)
        return []


def _written(
    lake: Lake, bundles: Sequence[Bundle], load: Load, result: Joined
) -> dict[str, list[JoinedBundle]]:
    """The new files of each table; the result gets why Arrow cannot join others.

    Whether tasks write them depends on the load of the whole round, of which these may be a part.
    """
    bundles = [replace(bundle, number=number) for number, bundle in enumerate(bundles)]
    made: dict[str, list[JoinedBundle]] = {bundle.table: [] for bundle in bundles}
    deal = partial(dealt, weight=lambda bundle: bundle.size, count=cores(lake.spark))
    files = counted(sum(len(bundle.files) for bundle in bundles), "file")
    about = f"{files} of {counted(len(made), 'table')}"
    work = Work(STAGE, bundles, _write, _REPORT, deal, load, about=about)
    for row in lake.runner.rows(work):
        bundle = bundles[row["number"]]
        if row["failed"]:
            result.leave(bundle.table, row["failed"], full=row["full"])
        else:
            made[bundle.table].append(
                JoinedBundle(bundle, [Added(**file) for file in orjson.loads(row["files"])])
            )
    return made


def _write(bundles: Sequence[Bundle]) -> Iterator[pa.RecordBatch]:
    """Write the rows of some bundles; what Arrow meets is said in the report."""
    for bundle in bundles:
        files, failed, full = list[Added](), "", False
        try:
            files = bundle.write()
        except (pa.ArrowException, OSError, StoreError) as error:
            failed, full = faults.said(error), faults.is_full(error)
        report = {
            "number": bundle.number,
            "files": orjson.dumps([file._asdict() for file in files]).decode(),
            "failed": failed,
            "full": full,
        }
        yield pa.RecordBatch.from_pylist([report], _REPORTED)


def _put(lake: Lake, name: str, made: Sequence[JoinedBundle], turn: Turn, result: Joined) -> bool:
    """Commit the new files of a table, and count them; True if others have changed some of the old ones meanwhile."""
    try:
        taken = _commit(lake, name, made, turn)
    except OSError as error:
        if not faults.is_full(error):
            raise
        result.leave(name, faults.said(error), full=True)
        return False
    gone, new = result.done[name]
    gone += sum(len(each.bundle.files) for each in taken)
    result.done[name] = gone, new + sum(len(each.files) for each in taken)
    return len(taken) < len(made)


def _commit(lake: Lake, name: str, made: Sequence[JoinedBundle], turn: Turn) -> list[JoinedBundle]:
    """Put the new files of a table in the place of the old ones; returns those bundles that no other commit has changed."""
    folder, engine = lake.path(name), commits.engine(by_spark=has_started(lake.spark))
    taken = list[JoinedBundle]()
    try:
        for _ in range(_ROUNDS):
            with turn():
                stores.unsettle(folder)
                state = lake.snapshot(name)
                now = {file.content for file in state.files}
                taken = [
                    each
                    for each in made
                    if all(file.content in now for file in each.bundle.files)
                    and _are_there(folder, each.files)
                ]
                gone = [file for each in taken for file in each.bundle.files]
                new = [file for each in taken for file in each.files]
                # after an error in the middle of it, the log may name the files
                try:
                    if not taken or commits.join(folder, state, gone, new, lake.metadata(), engine):
                        break
                except OSError as error:
                    if faults.is_full(error) and _is_still(lake, name, state.version):
                        taken = []
                    raise
                taken = []
    finally:
        _discard(folder, [each for each in made if each not in taken])
    return taken


def _is_still(lake: Lake, name: str, version: int) -> bool:
    """True if the newest version of a table is surely this one."""
    with contextlib.suppress(UnreadableError, DeltaError, OSError):
        stores.unsettle(lake.path(name))
        return lake.snapshot(name).version == version
    return False


def _discard(folder: str, made: Iterable[JoinedBundle]) -> None:
    """Remove files that no commit will name."""
    for file in (file for each in made for file in each.files):
        with contextlib.suppress(StoreError, OSError):  # `ingest maintain` deletes what is left
            stores.at(folder).remove(f"{folder}/{file.path}")


def _are_there(folder: str, files: Iterable[Added]) -> bool:
    """False if files are gone that no commit names yet: VACUUM without a retention does."""
    try:
        return all(stores.at(folder).size(f"{folder}/{file.path}") == file.size for file in files)
    except (OSError, StoreError):
        return False


def _is_written(lake: Lake, name: str) -> bool:
    """True for a table whose files Arrow reads and writes."""
    state = lake.snapshot(name)
    if not lake.takes_commits or not state.is_plain or state.physical:
        return False
    if state.partition_by and name not in BY_NAME:
        return False
    with contextlib.suppress(UnreadableError):
        arrow_schema(state.types)
        return not any("://" in file.path or file.path.startswith("/") for file in state.files)
    return False


def planned(lake: Lake, name: str) -> list[Bundle]:
    """The files of a table that are joined, and those with many deleted rows."""
    state, folder = lake.snapshot(name), lake.path(name)
    bundles = [_of(lake, name, state, files) for files in _together(state.files)]
    if not any(file.vector for bundle in bundles for file in bundle.files):
        return bundles
    kept = delta.kept_rows(folder, state.version)
    for file in (file for bundle in bundles for file in bundle.files):
        if file.vector and file.place not in kept:  # all of its rows would be back
            raise UnreadableError(f"{folder}/{file.place}: its deleted rows are not known")
    return [
        replace(bundle, kept={file.place: kept[file.place] for file in bundle.files if file.vector})
        for bundle in bundles
    ]


def _of(lake: Lake, name: str, state: Snapshot, files: tuple[DataFile, ...]) -> Bundle:
    if name in BY_NAME:
        return Bundle(0, name, records.layout_of(lake, BY_NAME[name]), (), files)
    keys = tuple(column for column in state.columns if all(file.is_bounded(column) for file in files))
    return Bundle(0, name, Layout(lake.path(name), arrow_schema(state.types)), keys, files)


def _together(files: Iterable[DataFile]) -> Iterator[tuple[DataFile, ...]]:
    """The files that become one, in the order of the log."""
    by_partition: dict[tuple[str | None, ...], list[DataFile]] = defaultdict(list)
    for file in files:
        if file.size < SMALL_FILE or _is_hollow(file):
            by_partition[tuple(file.partition.values())].append(file)
    for same in by_partition.values():
        for together in dealt(same, _left, max(1, -(-sum(map(_left, same)) // JOINED_FILE))):
            if len(together) > 1 or any(map(_is_hollow, together)):
                yield tuple(together)


def _left(file: DataFile) -> int:
    """Bytes of a file's rows that are not deleted, about."""
    rows = file.rows
    return file.size if rows is None else file.size * rows // max(1, rows + file.deleted)


def _is_hollow(file: DataFile) -> bool:
    return bool(file.deleted) and file.deleted * DELETED > (file.rows or 0) + file.deleted


def _jobs(bundles: Iterable[Bundle], tasks: int) -> Iterator[list[Bundle]]:
    """The bundles of one job after the other: what is read long before it is committed may have been changed by then."""
    group, filled = list[Bundle](), 0
    for bundle in bundles:
        group.append(bundle)
        filled += bundle.size
        if filled >= JOINED_FILE * tasks:
            yield group
            group, filled = [], 0
    if group:
        yield group
