"""Read a lake's tables without Spark: their logs here, their files by DuckDB.

`Tables` is the reading interface: a `LakeReader`, or an `ingest.tables.lake.Lake`, which also writes.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ingest.config import Pipeline
from ingest.errors import pointed
from ingest.store import stores
from ingest.tables import delta, duck, small_tables
from ingest.tables.delta import DataFile, Extent, Snapshot
from ingest.tables.schemas import BOOKS, BRONZE, BY_NAME, FORMAT, FORMAT_PROPERTY, TableSchema
from ingest.tables.small_tables import Inquiry

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

_Made = TypeVar("_Made")
_TYPES = {
    "string": "VARCHAR", "long": "BIGINT", "integer": "INTEGER", "short": "SMALLINT", "byte": "TINYINT",
    "float": "FLOAT", "double": "DOUBLE", "boolean": "BOOLEAN", "binary": "BLOB", "date": "DATE",
    "timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP",
}  # fmt: skip
_NAMED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\{(\w+)(?:\.(\w+))?\}""")  # quoted text is not changed
_WORD = re.compile(r"\w+")
LOG_DAYS = 30  # retention of a log whose table does not set one
RESTORE = "restore the whole lake folder as of one time from a backup"
"""The way out where one of the lake's own tables cannot be made again."""
Row = dict[str, Any]


class Tables:
    """A pipeline's lake folder for reading: its tables' paths, logs and rows."""

    __slots__ = ()
    pipeline: Pipeline
    kept: dict[str, tuple[object, object]]  # what was made of tables, by path, with their state then

    def path(self, name: str) -> str:
        """The absolute path of a table by its name under the lake."""
        return f"{self.pipeline.lake.rstrip('/')}/{name}"

    def writer(self, stage: str, table: str, generation: int = 0) -> str:
        """The transaction identifier's application: pipeline, stage, table and generation."""
        return f"{self.pipeline.name}/{stage}/{table}/{generation}"

    def generation(self, state: Snapshot, stage: str, table: str) -> int:
        """How often a product table was rebuilt: recorded in its log, in the same commit as the rows."""
        head = self.writer(stage, table).removesuffix("0")
        ends = [writer.removeprefix(head) for writer in state.transactions if writer.startswith(head)]
        return max((int(end) for end in ends if end.isdigit()), default=0)

    def made_once(self, name: str, state: object, make: Callable[[], _Made]) -> _Made:
        """What is made of a lake in a state, once for each state; ``name`` says what it is, under the lake."""
        place = self.path(name)
        if place not in self.kept or self.kept[place][0] != state:
            self.kept[place] = state, make()
        return cast("_Made", self.kept[place][1])

    def snapshot(self, name: str) -> Snapshot:
        """A table's version and its writers' progress.

        Raises:
            UnreadableError: as `delta.snapshot`; of damage to one of the lake's own tables with the way out.
        """
        try:
            return delta.snapshot(self.path(name))
        except delta.DamagedError as error:
            if name in BY_NAME:
                raise delta.DamagedError(f"{error}; {RESTORE}.") from None
            raise

    def extent(self, name: str, writer: str) -> Extent:
        """What a table has to show, and a writer's progress."""
        return delta.extent(self.path(name), writer)

    def properties(self, schema: TableSchema) -> dict[str, str]:
        """The properties of a product table that is created: time travel lasts as the pipeline file promises."""
        days = self.pipeline.horizon_days
        properties = {**schema.properties, "delta.deletedFileRetentionDuration": f"interval {days} days"}
        if schema.name == BRONZE.name:  # the first table of a lake
            properties[FORMAT_PROPERTY] = str(FORMAT)
        return properties | (
            {"delta.logRetentionDuration": f"interval {days} days"} if days > LOG_DAYS else {}
        )

    def progress(self, stage: str, table: str) -> int:
        """The last batch that a stage has committed to a table; -1 before the first."""
        state = self.snapshot(table)
        return state.transactions.get(self.writer(stage, table, self.generation(state, stage, table)), -1)

    def decoded(self) -> int:
        """The last batch that silver has finished, whose books come last; 0 before the first."""
        return max(0, self.progress("silver", BOOKS.name))

    def exists(self, name: str) -> bool:
        """True if the table has been created."""
        return self.snapshot(name).exists

    def count(self, name: str) -> int:
        """The number of a table's rows; from its log if possible."""
        state = self.snapshot(name)
        if state.files and (rows := state.rows) is not None:
            return rows
        return int(self.ask_mirror(name, "SELECT count(*) AS n FROM {mirror} AS m")[0]["n"])

    def actions(self, name: str, version: int) -> list[dict[str, Any]]:
        """The actions of one of a table's commits; none if its log no longer has it."""
        with suppress(FileNotFoundError):
            return delta.actions(self.path(name), version)
        return []

    def landing(self, batch: int) -> list[dict[str, Any]]:
        """The actions of the commit that landed a batch, searched backwards; none if bronze's log no longer has it."""
        for version in range(self.snapshot(BRONZE.name).version, -1, -1):
            actions = self.actions(BRONZE.name, version)
            newest = delta.metadata_of(actions).get("batch", batch + 1)
            if not actions or newest <= batch:
                return actions if newest == batch else []
        return []

    def commits(self, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """A table's versions that its log still has, with the ``userMetadata`` of each, newest first."""
        return delta.commits(self.path(name))

    def last_marks(self, name: str) -> dict[str, Any]:
        """All marks of a table's newest commit; empty if there is no table."""
        state = self.snapshot(name)
        return delta.metadata_of(self.actions(name, state.version)) if state.exists else {}

    def ask(self, query: str) -> list[Row]:
        """The rows of a query in DuckDB's SQL, in which ``{books}`` is that product table as it is now.

        ``{bronze.message}`` is one kind of a table's rows. Columns missing from a table of an older version are NULL; a
        table that does not exist has no rows. Times are returned in UTC without a zone. Commands in the sentences of runs
        and checks name the pipeline file as it is called now; `recorded` has them as they are.
        """
        rows = self.recorded(query)
        if "{runs}" not in query and "{checks}" not in query:
            return rows
        file = self.pipeline.file
        return [
            row | {name: pointed(cell, file) for name in _SENTENCES if isinstance(cell := row.get(name), str)}
            for row in rows
        ]

    def recorded(self, query: str) -> list[Row]:
        """The rows of a query as in `ask`, with their texts as they were written: whatever finds rows by them needs these."""
        small = small_tables.of_database(duck.connection())
        with small.asked() as question:
            return self._rows(self._filled(query, question), small.base)

    def sql(self, query: str) -> str:
        """A query of `ask` with its tables filled in, for another connection of DuckDB."""
        return self._filled(query, None)

    def _filled(self, query: str, question: Inquiry | None) -> str:
        # the words of the query, among them each column that it names: most of a short query's time is spent on the
        # columns that its tables have; None if it may mean columns that it does not name
        wanted = None if "*" in query.replace("count(*)", "") else set(_WORD.findall(query.lower()))
        return filled(query, lambda name, kind: self._scanned(name, kind, wanted, question))

    def far_rows(self, _query: str) -> pa.Table | None:
        """The rows of a query of `ask` in a store that only Hadoop reaches; None where DuckDB reads them itself."""
        return None

    def _rows(self, query: str, base: DuckDBPyConnection) -> list[Row]:
        """The rows of a query; small answers are remembered, because the query names its files or their kept rows, which never change."""
        remembered = self.kept.get(_REMEMBERED, (None, None))[1]
        if not isinstance(remembered, _Remembered):
            remembered = _Remembered()
            self.kept[_REMEMBERED] = None, remembered
        return remembered.rows(query, base)

    def ask_mirror(self, name: str, query: str) -> list[Row]:
        """The rows of a query in which ``{mirror}`` is the table of that name under the lake."""
        folder = self.path(name)
        return duck.rows(filled(query, lambda _name, _kind: scan(folder, delta.snapshot(folder))))

    def _scanned(
        self, name: str, kind: str | None, wanted: Collection[str] | None, question: Inquiry | None
    ) -> str:
        schema, folder = BY_NAME[name], self.path(name)
        state, expected = Tables.snapshot(self, name), duck_types(schema)
        if question is not None:
            columns, whole = columns_of(state, expected), partial(scan, folder, expected=expected)
            if rows := question.rows(folder, state, columns, whole, wanted):
                return rows
        if kind:
            files = tuple(file for file in state.files if file.partition.get("kind") == kind)
            state = replace(state, files=files)
        return scan(folder, state, expected, wanted=wanted)


@dataclass(slots=True)
class LakeReader(Tables):
    """A lake without a Spark session: it is read only."""

    pipeline: Pipeline
    kept: dict[str, tuple[object, object]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        stores.remember_store(self.pipeline)


def has_landed(pipeline: Pipeline) -> bool:
    """True if the lake has landed something; a `StoreError` if it is in a store that cannot be reached so."""
    if pipeline.is_stored:
        return LakeReader(pipeline).exists(BRONZE.name)
    return Path(pipeline.lake, BRONZE.name, "_delta_log").is_dir()


_SENTENCES = ("message", "detail", "command")  # the columns of `runs` and `checks` in which commands are
_REMEMBERED = ""  # in `Tables.kept`, whose other names are paths
_MOST, _SMALL, _MOST_ROWS = 32, 64 << 10, 200  # answers that are remembered, characters and rows of each


class _Remembered:
    """The last small answers of one lake, by their queries."""

    def __init__(self) -> None:
        self._found: OrderedDict[bytes, list[Row]] = OrderedDict()
        self._lock = threading.Lock()

    def rows(self, query: str, base: DuckDBPyConnection) -> list[Row]:
        mark = hashlib.blake2b(query.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        with self._lock:
            rows = self._found.get(mark)
            if rows is not None:
                self._found.move_to_end(mark)
        if rows is None:
            rows = duck.rows(query, base)
            if _is_small(rows):
                with self._lock:
                    self._found[mark] = rows
                    if len(self._found) > _MOST:
                        self._found.popitem(last=False)
        return [row.copy() for row in rows]


def _is_small(rows: Sequence[Row]) -> bool:
    """True if an answer is remembered; of a large one only the beginning is looked at."""
    if len(rows) > _MOST_ROWS:
        return False
    cells = (cell for row in rows for cell in row.values())
    sizes = accumulate(len(cell) if isinstance(cell, str | bytes) else 8 for cell in cells)
    return all(size <= _SMALL for size in sizes)


def filled(query: str, table: Callable[[str, str | None], str]) -> str:
    """A query with its ``{name}`` and ``{name.kind}`` replaced; quoted texts and names are not changed."""
    return _NAMED.sub(lambda match: table(match[1], match[2]) if match[1] else match[0], query)


@lru_cache
def duck_types(schema: TableSchema) -> Mapping[str, str]:
    """A product table's columns with DuckDB's types."""
    return {field["name"]: duck_type(field["type"]) for field in schema.fields}


def duck_type(kind: object) -> str:
    """DuckDB's type for a type of Delta's log.

    Raises:
        UnreadableError: there is no such type.
    """
    if isinstance(kind, str):
        if duck_name := _TYPES.get(kind):
            return duck_name
        if kind.startswith("decimal("):
            return kind.upper()
    if isinstance(kind, Mapping):
        if kind["type"] == "array":
            return f"{duck_type(kind['elementType'])}[]"
        if kind["type"] == "map":
            return f"MAP({duck_type(kind['keyType'])}, {duck_type(kind['valueType'])})"
        if kind["type"] == "struct":
            fields = ", ".join(
                f"{duck.name(field['name'])} {duck_type(field['type'])}" for field in kind["fields"]
            )
            return f"STRUCT({fields})"
    raise delta.UnreadableError(f"A column of type {kind} is read with Spark alone.")


def columns_of(state: Snapshot, expected: Mapping[str, str]) -> dict[str, str]:
    """A table's columns with DuckDB's types, and after them those that are expected and it does not have."""
    columns = {name: duck_type(kind) for name, kind in state.types.items()}
    return columns | {name: kind for name, kind in expected.items() if name not in columns}


def scan(
    folder: str,
    state: Snapshot,
    expected: Mapping[str, str] | None = None,
    *,
    zones: bool = False,
    wanted: Collection[str] | None = None,
) -> str:
    """A table at a version as a subquery of DuckDB's SQL.

    Args:
        folder: the table's folder.
        state: its log at the version.
        expected: further columns with DuckDB's types, NULL where the table lacks them.
        zones: leave instants as they are; otherwise they are in UTC without a zone, as all internal queries need them.
        wanted: the columns to keep, with one that is in the files; all if not given.
    """
    columns = columns_of(state, expected or {})
    if wanted is not None:
        first = next((name for name in columns if name not in state.partition_by), None)
        kept = {first, *wanted}
        columns = {name: kind for name, kind in columns.items() if name in kept}
    # a part for the files of each partition that are whole, and one for those with deleted rows
    groups: dict[tuple[bool, tuple[tuple[str, str | None], ...]], list[DataFile]] = {}
    for file in state.files:
        partition = tuple((name, file.partition.get(name)) for name in state.partition_by)
        groups.setdefault((bool(file.deleted), partition), []).append(file)
    parts = []
    have = {name: kind for name, kind in columns.items() if name not in state.partition_by}
    for (is_holed, partition), files in groups.items():
        rows = (_holed if is_holed else _whole)(folder, files, have, state)
        parts.append(_part(columns, partition, rows, state, casts=is_holed))
    if not parts:
        nothing = ", ".join(f"NULL::{kind} AS {duck.name(name)}" for name, kind in columns.items())
        parts.append(f"SELECT {nothing} WHERE false")
    union = " UNION ALL ".join(parts)
    return f"({union})" if zones else _in_utc(union, columns)


def _in_utc(query: str, columns: Mapping[str, str]) -> str:
    """A query as a subquery with its instants in UTC without a zone."""
    instants = [duck.name(name) for name, kind in columns.items() if kind == "TIMESTAMPTZ"]
    if not instants:
        return f"({query})"
    in_utc = ", ".join(f"({instant} AT TIME ZONE 'UTC') AS {instant}" for instant in instants)
    return f"(SELECT * REPLACE ({in_utc}) FROM ({query}))"


def _part(
    columns: Mapping[str, str],
    partition: Iterable[tuple[str, str | None]],
    source: str,
    state: Snapshot,
    *,
    casts: bool,
) -> str:
    """The files of one partition, with its values, under the table's column names."""
    constants = {name: "NULL" if text is None else duck.text(text) for name, text in partition}
    cells = []
    for name, kind in columns.items():
        if name in constants:
            cells.append(f"{constants[name]}::{kind} AS {duck.name(name)}")
        else:
            physical_name = duck.name(state.physical.get(name, name))
            cells.append(f"{f'{physical_name}::{kind}' if casts else physical_name} AS {duck.name(name)}")
    return f"SELECT {', '.join(cells)} FROM {source}"


def _whole(folder: str, files: Collection[DataFile], columns: Mapping[str, str], state: Snapshot) -> str:
    fields = ", ".join(
        f"{duck.text(physical_name)}: {{name: {duck.text(physical_name)}, type: {duck.text(kind)}, default_value: NULL}}"
        for physical_name, kind in _physical(columns, state)
    )
    return f"read_parquet({_paths(folder, files)}, schema = MAP {{{fields}}})"


def _holed(folder: str, files: Collection[DataFile], columns: Mapping[str, str], state: Snapshot) -> str:
    """Files without the rows that their deletion vectors remove."""
    gone = delta.deleted_rows(folder, state.version)
    pairs = ", ".join(
        f"({duck.text(_place(folder, file))}, string_split({duck.text(','.join(map(str, gone[file.place])))}, ','))"
        for file in files
    )
    nothing = ", ".join(
        f"NULL::{kind} AS {duck.name(physical_name)}" for physical_name, kind in _physical(columns, state)
    )
    options = (
        "union_by_name = true, filename = '_file_name_', file_row_number = true"  # names that no column has
    )
    rows = f"read_parquet({_paths(folder, files)}, {options})"
    return (
        f"(SELECT {nothing}, NULL::VARCHAR AS _file_name_, NULL::BIGINT AS file_row_number WHERE false "
        f"UNION ALL BY NAME SELECT * FROM {rows}) AS f ANTI JOIN (SELECT file, unnest(rows)::BIGINT AS number "
        f"FROM (VALUES {pairs}) AS v(file, rows)) AS gone ON f._file_name_ = gone.file "
        "AND f.file_row_number = gone.number"
    )


def _physical(columns: Mapping[str, str], state: Snapshot) -> list[tuple[str, str]]:
    return [(state.physical.get(name, name), kind) for name, kind in columns.items()]


def _place(folder: str, file: DataFile) -> str:
    return f"{folder}/{file.place}"


def _paths(folder: str, files: Collection[DataFile]) -> str:
    delta.refuse_irregular(folder, files)
    return duck.texts(_place(folder, file) for file in files)
