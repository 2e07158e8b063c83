"""The rows of a lake's own small tables, kept in DuckDB's memory.

A run asks half a score of small tables two dozen questions, and opening their Parquet files costs more than answering.
A file of a Delta table never changes, so its rows are taken in once: those of a table's files together, and then, version
by version, those of its new files.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING

from ingest.config import is_stored
from ingest.lake import duck
from ingest.lake.delta import DataFile, Snapshot

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

LARGE = 1 << 20  # bytes of a table's files together: of larger ones only what a query names is read
TABLES = 64  # that are kept: those of the last lakes
_PART = '"#"'  # the column that says with which files a row was taken in; no table has one of that name
_SERIAL = count()  # no name is used twice in a process: answers are remembered by their queries
_Content = tuple[str, str, int, int]
"""What a file holds: its path and deletion vector, and on this machine, where it may be damaged, its size and time."""


@dataclass(slots=True)
class _Kept:
    """A table in DuckDB's memory, and in which part of it the rows of each file are: 1, 2, ..."""

    name: str
    columns: Mapping[str, str]
    parts: dict[_Content, int] = field(default_factory=dict)

    def whole(self, files: Collection[_Content]) -> int | None:
        """The last part with rows of some files, if all rows up to it are theirs; None if they are not."""
        last = max((self.parts.get(file, 0) for file in files), default=0)
        there = {file for file, part in self.parts.items() if part <= last}
        is_newest = len(there) == len(self.parts)
        return last if there <= set(files) and (is_newest or len(there) == len(files)) else None


class SmallTables:
    """What one database of DuckDB keeps of small tables, for any number of threads."""

    def __init__(self, base: DuckDBPyConnection) -> None:
        self.base = base
        self._kept: OrderedDict[str, _Kept] = OrderedDict()  # by folder, the last used at the end
        self._old: list[_Kept] = []  # to be dropped when no query is running
        self._asking = 0
        self._lock = threading.Lock()

    @contextmanager
    def asked(self) -> Iterator[None]:
        """While a query is written and answered: nothing is dropped."""
        with self._lock:
            if not self._asking:
                for old in self._old:
                    self.base.cursor().execute(f"DROP TABLE {old.name}")
                self._old.clear()
            self._asking += 1
        try:
            yield
        finally:
            with self._lock:
                self._asking -= 1

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

        if not state.files or state.partition_by or sum(file.size for file in state.files) > LARGE:
            return ""
        try:
            files = {_content(folder, file): file for file in state.files}
            with self._lock:
                kept, part = self._taken_in(
                    folder, columns, files, lambda new: scan(replace(state, files=new))
                )
        except (OSError, duckdb.Error):  # who reads the files says what is wrong
            return ""
        names = f"* EXCLUDE ({_PART})"
        if wanted is not None:
            names = ", ".join(duck.name(name) for name in columns if name in wanted) or _PART
        return f"(SELECT {names} FROM {kept.name} WHERE {_PART} <= {part})"

    def _taken_in(
        self,
        folder: str,
        columns: Mapping[str, str],
        files: Mapping[_Content, DataFile],
        scan: Callable[[tuple[DataFile, ...]], str],
    ) -> tuple[_Kept, int]:
        """The kept table with the rows of some files, and the last part of it that is theirs."""
        kept = self._kept.get(folder)
        part = kept.whole(files) if kept is not None and kept.columns == columns else None
        if kept is None or part is None:
            kept, part = _Kept(f"small_{next(_SERIAL)}", columns), 0
        if new := {content: file for content, file in files.items() if content not in kept.parts}:
            part += 1
            begin = f"INSERT INTO {kept.name}" if kept.parts else f"CREATE TABLE {kept.name} AS"
            self.base.cursor().execute(f"{begin} SELECT {part} AS {_PART}, * FROM {scan((*new.values(),))}")
            kept.parts |= dict.fromkeys(new, part)
        if self._kept.setdefault(folder, kept) is not kept:
            self._old.append(self._kept[folder])
            self._kept[folder] = kept
        self._kept.move_to_end(folder)
        if len(self._kept) > TABLES:
            self._old.append(self._kept.popitem(last=False)[1])
        return kept, part


def _content(folder: str, file: DataFile) -> _Content:
    if is_stored(folder):
        return *file.content, 0, 0
    there = os.stat(f"{folder}/{file.place}")  # noqa: PTH116 - asked of each file for each query
    return *file.content, there.st_size, there.st_mtime_ns


@lru_cache(1)
def of_database(base: DuckDBPyConnection) -> SmallTables:
    """What this process' database keeps."""
    return SmallTables(base)
