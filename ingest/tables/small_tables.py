"""The rows of a lake's own small tables, kept in DuckDB's memory.

A run asks half a score of small tables two dozen questions, and opening their Parquet files costs more than answering.
A file of a Delta table never changes, so its rows are taken in once: those of a table's files together, and then, version
by version, those of its new files.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING

from ingest.config import is_stored
from ingest.tables import duck
from ingest.tables.delta import DataFile, Snapshot

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

LARGE = 1 << 20  # bytes of a table's files together: of larger ones only what a query names is read
HEAVY = 16 << 20  # characters of its rows together: a file holds a text once that a thousand rows have
FEW = 1000  # rows are not weighed
TABLES = 64  # that are kept: those of the last lakes
_PART = '"#"'  # the column that says with which files a row was taken in; no table has one of that name
_SERIAL = count()  # no name is used twice in a process: answers are remembered by their queries
_Content = tuple[str, str, int, int]
"""What a file holds: its path and deletion vector, and on this machine, where it may be damaged, its size and time."""
_Files = Mapping[_Content, DataFile]
_Scan = Callable[[Iterable[DataFile]], str]
"""The rows of some files of a table as a subquery of DuckDB's SQL."""


@dataclass(slots=True, eq=False)
class _Kept:
    """A table in DuckDB's memory, and in which part of it the rows of each file are: 1, 2, ..."""

    columns: list[tuple[str, str]]  # in order: rows are added by position
    name: str = field(default_factory=lambda: f"small_{next(_SERIAL)}")
    parts: dict[_Content, int] = field(default_factory=dict)
    users: int = 0  # questions that are not answered yet

    def whole(self, files: Collection[_Content]) -> int | None:
        """The last part with rows of some files, if all rows up to it are theirs; None if they are not."""
        last = max((self.parts.get(file, 0) for file in files), default=0)
        kept_files = {file for file, part in self.parts.items() if part <= last}
        is_newest = len(kept_files) == len(self.parts)
        return last if kept_files <= set(files) and (is_newest or len(kept_files) == len(files)) else None


@dataclass(slots=True)
class _Folder:
    """A table's lock, and what its rows weigh."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    weighed: set[_Content] = field(default_factory=set)
    weight: int = 0  # characters

    def is_light(self, files: _Files, weigh: Callable[[Iterable[DataFile]], int]) -> bool:
        """True if the rows may be held in memory; a heavy table is not weighed again while it has the same files."""
        if not self.weighed <= files.keys():
            self.weighed, self.weight = set(), 0
        if self.weight <= HEAVY:
            new = {content: file for content, file in files.items() if content not in self.weighed}
            if sum(FEW + 1 if file.rows is None else file.rows for file in new.values()) > FEW:
                self.weight += weigh(new.values())
                self.weighed |= new.keys()
        return self.weight <= HEAVY


class SmallTables:
    """What one database of DuckDB keeps of small tables, for any number of threads."""

    def __init__(self, base: DuckDBPyConnection) -> None:
        self.base = base
        self._kept: OrderedDict[str, _Kept] = OrderedDict()  # by folder, the last used at the end
        self._aside: list[_Kept] = []  # to be dropped when no question uses them
        self._folders: dict[str, _Folder] = {}
        self._lock = threading.Lock()  # of all this; no file is read meanwhile

    @contextmanager
    def asked(self) -> Iterator[Inquiry]:
        """While a query is written and answered: the tables that it uses are not dropped."""
        question = Inquiry(self)
        try:
            yield question
        finally:
            with self._lock:
                for kept in question.used:
                    kept.users -= 1
                self._drop_unused()

    def _drop_unused(self) -> None:
        for kept in [kept for kept in self._aside if not kept.users]:
            import duckdb

            with suppress(duckdb.Error):  # the next question tries again
                self.base.cursor().execute(f"DROP TABLE IF EXISTS {kept.name}")
                self._aside.remove(kept)

    def taken_in(
        self, question: Inquiry, folder: str, columns: Mapping[str, str], files: _Files, scan: _Scan
    ) -> tuple[_Kept, int] | None:
        """The kept table with the rows of some files, and the last part of it that is theirs; None if it is heavy."""
        order = [*columns.items()]
        with self._lock:
            of_folder = self._folders.setdefault(folder, _Folder())
        with of_folder.lock:
            # aside until all its rows are there: a table at which a thread was interrupted is not used again
            kept, part = self.set_aside(folder, question), None
            if kept is not None and kept.columns == order:
                part = kept.whole(files)
            if kept is None or part is None:
                kept, part = self._begun(order, question), 0
            if new := {content: file for content, file in files.items() if content not in kept.parts}:
                if not of_folder.is_light(files, lambda few: self._weight(scan(few))):
                    return None
                part += 1
                begin = f"INSERT INTO {kept.name}" if kept.parts else f"CREATE TABLE {kept.name} AS"
                self.base.cursor().execute(f"{begin} SELECT {part} AS {_PART}, * FROM {scan(new.values())}")
                kept.parts |= dict.fromkeys(new, part)
            self._keep(folder, kept)
        return kept, part

    def _weight(self, rows: str) -> int:
        cursor = self.base.cursor().execute(f"SELECT sum(strlen(COLUMNS(*)::VARCHAR)) FROM {rows}")
        return sum(int(length or 0) for length in cursor.fetchone() or ())

    def _begun(self, columns: list[tuple[str, str]], question: Inquiry) -> _Kept:
        """A table that is not made yet."""
        kept = _Kept(columns)
        with self._lock:
            self._aside.append(kept)
            question.uses(kept)
        return kept

    def set_aside(self, folder: str, question: Inquiry | None = None) -> _Kept | None:
        """A table that is no longer kept, but for a question."""
        with self._lock:
            kept = self._kept.pop(folder, None)
            if kept is not None:
                self._aside.append(kept)
                if question is not None:
                    question.uses(kept)
        return kept

    def _keep(self, folder: str, kept: _Kept) -> None:
        with self._lock:
            self._aside.remove(kept)
            self._kept[folder] = kept
            if len(self._kept) > TABLES:
                self._aside.append(self._kept.popitem(last=False)[1])


@dataclass(slots=True)
class Inquiry:
    """A query that is being written or answered."""

    tables: SmallTables
    used: list[_Kept] = field(default_factory=list)

    def uses(self, kept: _Kept) -> None:
        """Have a table stay until this is answered."""
        kept.users += 1
        self.used.append(kept)

    def rows(
        self,
        folder: str,
        state: Snapshot,
        columns: Mapping[str, str],
        scan: Callable[[Snapshot], str],
        wanted: Collection[str] | None,
    ) -> str:
        """A table at a version as a subquery of DuckDB's SQL; empty if its files are to be read, as it is large or damaged.

        Args:
            folder: the table's folder.
            state: its log at the version.
            columns: its columns with DuckDB's types.
            scan: returns the rows of a state's files as a subquery.
            wanted: the columns to name; all if not given.
        """
        import duckdb

        if not state.files or state.partition_by:
            return ""
        if sum(file.size for file in state.files) > LARGE:
            self.tables.set_aside(folder)
            return ""
        try:
            files = {_content(folder, file): file for file in state.files}
            taken = self.tables.taken_in(
                self, folder, columns, files, lambda few: scan(replace(state, files=(*few,)))
            )
        except (OSError, duckdb.Error):  # who reads the files says what is wrong
            return ""
        if taken is None:
            return ""
        kept, part = taken
        names = f"* EXCLUDE ({_PART})"
        if wanted is not None:
            names = ", ".join(duck.name(name) for name in columns if name in wanted) or _PART
        return f"(SELECT {names} FROM {kept.name} WHERE {_PART} <= {part})"


def _content(folder: str, file: DataFile) -> _Content:
    if is_stored(folder):
        return *file.content, 0, 0
    stat = os.stat(f"{folder}/{file.place}")  # noqa: PTH116 - asked of each file for each query
    return *file.content, stat.st_size, stat.st_mtime_ns


@lru_cache(1)
def of_database(base: DuckDBPyConnection) -> SmallTables:
    """What this process' database keeps."""
    return SmallTables(base)
