"""Run queries by name with DuckDB, over the files of the lake and nothing else.

The database has views of the tables in the query, may open only their files, and is locked before it gets the query: it
can write nothing, read no other file and load no extension.
"""

from __future__ import annotations

import datetime as dt
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ingest.change import TableId
from ingest.config import is_stored
from ingest.errors import IngestError
from ingest.inspect import asof
from ingest.inspect.status import histories_of
from ingest.lake import delta, duck, feeds
from ingest.lake import mirrors as known_mirrors
from ingest.lake.query import rewrite
from ingest.lake.schemas import ALL, BRONZE
from ingest.lake.tables import Tables, scan
from ingest.values import shortened

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_VIEW = re.compile(r"_table_(\d+)_")
_SPARKS = (
    "CREATE MACRO get_json_object(document, place) AS "
    "json_extract_string(document, replace(replace(place, '[''', '.\"'), ''']', '\"'))"
)
"""The one function of Spark in the queries of checks (`ingest.quality.queries`), which both engines run."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a query in a process with many users."""

    seconds: float
    memory: str  # as DuckDB writes it
    cells: int = 100_000
    size: int = 8 << 20  # bytes of all cells as Python has them, roughly


@dataclass(frozen=True, slots=True)
class Named:
    """A table that a query may name: its path, and the version to read."""

    folder: str
    version: int | None = None


def query(
    lake: Tables, text: str, limit: int = 0, batch: int | None = None, bounds: Bounds | None = None
) -> tuple[list[str], list[list[Any]], list[str]]:
    """Run one query by names; every cell comes back as a JSON value without loss.

    With a batch the mirrors are as they were after it, and the last list names those that lack some of it.

    Raises:
        IngestError: it is not a query, names no table, DuckDB refuses it, the log no longer holds a version, or it
            takes too long.
    """
    mirrors, lagging = places(lake, batch)
    products = {one.name: Named(lake.path(one.name)) for one in ALL if lake.exists(one.name)}
    tables = [*mirrors.values(), *products.values()]
    views = {place: f"_table_{number}_" for number, place in enumerate(tables)}
    try:
        given = rewrite(
            text,
            {table: views[place] for table, place in mirrors.items()},
            {name: views[place] for name, place in products.items()},
            lake.pipeline.lake,
            "duckdb",
        )
        used = {f"_table_{number}_": tables[int(number)] for number in set(_VIEW.findall(given))}
        if bounds and lake.pipeline.masks:
            _refuse(products.get(BRONZE.name), used)
        names, rows = _run(given, used, limit, bounds)
    except IngestError as error:
        raise IngestError(" ".join([str(error), *lagging])) from None
    return names, rows, lagging


def _refuse(bronze: Named | None, used: dict[str, Named]) -> None:
    """Refuse masked data to users who can only query, and cannot read the lake's files themselves."""
    if bronze in used.values():
        raise IngestError(
            "bronze holds what `mask:` hides, so it is not shown here: `ingest sql` reads it where the lake is."
        )


def places(lake: Tables, batch: int | None) -> tuple[dict[TableId, Named], list[str]]:
    """Every mirror and history table, now or after a batch, and the mirrors that lack a part of the batch.

    Later names win: a mirror keeps its name even if a history table has it, too.
    """
    if batch is None:
        known = known_mirrors.known(lake).values()
        there = [*histories_of(lake, known).values(), *feeds.existing(lake, known), *known]
        return {one.table: Named(lake.path(one.path)) for one in there}, []
    pinned = asof.mirrors(lake, batch)
    histories = histories_of(lake, [one.mirror for one in pinned.values()])
    found = asof.accompanying(lake, batch, pinned.values(), histories) | pinned
    newest = lake.decoded()
    ahead = [f"There is no batch {batch} yet: the newest is {newest}."] if batch > newest else []
    return {
        table: Named(lake.path(one.mirror.path), one.version)
        for table, one in found.items()
        if one.version is not None
    }, [*ahead, *asof.complaints(pinned, batch)]


def _run(
    text: str, views: dict[str, Named], limit: int, bounds: Bounds | None = None
) -> tuple[list[str], list[list[Any]]]:
    import duckdb

    base = duck.opened()
    done = threading.Event()
    if bounds:
        base.execute(f"SET memory_limit = {duck.text(bounds.memory)}")
        base.execute("SET temp_directory = ''")
        base.execute("SET threads = 1")
    ender = threading.Thread(target=_end_late, args=(base, bounds, done), daemon=True)
    ender.start()
    files: list[str] = []
    try:
        for name, place in views.items():
            state = _state(place)
            if not state.exists:
                raise IngestError(f"There is no table at {place.folder} yet.")
            base.execute(f"CREATE VIEW {name} AS SELECT * FROM {scan(place.folder, state, zones=True)}")
            files += [f"{place.folder}/{one.place}" for one in state.files]
        base.execute(_SPARKS)
        if files:  # queries can open these files and no others, and cannot change that
            base.execute(f"SET allowed_paths = {duck.texts(files)}")
        base.execute("SET enable_external_access = false")
        base.execute("SET lock_configuration = true")
        described = base.execute(f"DESCRIBE {text}").fetchall()
        columns = [f"c{number}" for number in range(len(described))]
        made = [_reader(kind) for _, kind, *_ in described]
        cells = ", ".join(sql.format(column) for column, (sql, _) in zip(columns, made, strict=True))
        most = f" LIMIT {limit}" if limit else ""
        result = base.execute(f"SELECT {cells} FROM ({text}) AS q({', '.join(columns)}){most}")
        found = result.fetchall() if bounds is None else list(_within(result, bounds))
    except duckdb.InterruptException:
        raise IngestError(
            f"The query was stopped after {bounds.seconds if bounds else 0:.0f} seconds: ask for less, or with `ingest sql`."
        ) from None
    except duckdb.Error as error:
        raise IngestError(f"DuckDB refuses the query: {_said(error)}") from None
    finally:
        done.set()
        ender.join()
        with suppress(duckdb.Error):
            base.close()
    rows = [
        [None if cell is None else read(cell) for cell, (_, read) in zip(row, made, strict=True)]
        for row in found
    ]
    return [name for name, *_ in described], rows


def _state(place: Named) -> delta.Snapshot:
    """A table's state; an `IngestError` if what an old version needs was deleted."""
    try:
        state = delta.snapshot(place.folder, place.version)
        # a store would be asked for each file
        here = place.version is not None and not is_stored(place.folder)
        there = not here or all(Path(place.folder, one.place).exists() for one in state.files)
    except delta.UnreadableError:
        if place.version is None:
            raise
        there = False
    if not there:
        raise IngestError(
            f"Version {place.version} of {place.folder}, which that batch needs, can no longer be read: `ingest maintain` "
            "deletes files after horizon_days:, and `ingest erase --now` at once."
        )
    return state


def _within(result: DuckDBPyConnection, bounds: Bounds) -> Iterator[tuple[Any, ...]]:
    """The rows of a result; an `IngestError` if they are more than a process with many users can hold and draw."""
    cells = size = 0
    while (row := result.fetchone()) is not None:
        cells, size = cells + len(row), size + sum(map(_size, row))
        if cells > bounds.cells or size > bounds.size:
            raise IngestError(
                f"The result has more than {bounds.cells:,} cells or {bounds.size >> 20} MB: ask for less, or with `ingest sql`."
            )
        yield row


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return sum(len(str(name)) + _size(item) for name, item in value.items())
    if isinstance(value, list | tuple):
        return sum(map(_size, value))
    return len(value) if isinstance(value, str | bytes) else 8


def _end_late(base: DuckDBPyConnection, bounds: Bounds | None, done: threading.Event) -> None:
    """Interrupt a query after its timeout, repeatedly: an interruption between two statements is lost."""
    if bounds is None or done.wait(bounds.seconds):
        return
    while not done.wait(0.05):
        base.interrupt()


def _said(error: Exception) -> str:
    """DuckDB's error in one line, with the tables' names instead of the views'."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    kept = [line for line in lines if not line.startswith(("LINE ", "^"))]
    return _VIEW.sub("the table", " ".join(kept))[:500]


# --- values ---

Read = Callable[[Any], Any]


def _reader(kind: str) -> tuple[str, Read]:
    """How a column of a type is selected, and the function that converts its cells to JSON values."""
    if kind in ("FLOAT", "DOUBLE"):
        return "CAST({} AS VARCHAR)", lambda text: _WORDS.get(text) or msgspec.Raw(text.encode())
    if kind.startswith("DECIMAL("):
        return "CAST({} AS VARCHAR)", Decimal
    if kind == "TIMESTAMP WITH TIME ZONE":
        return (
            "CAST({} AT TIME ZONE 'UTC' AS VARCHAR)",
            lambda text: shortened(text).replace(" ", "T", 1) + "Z",
        )
    if kind.startswith("TIMESTAMP"):
        return "CAST({} AS VARCHAR)", shortened
    if kind in _PLAIN or kind.endswith("]") or kind.startswith(("STRUCT(", "MAP(")):
        return "{}", _nested
    return "CAST({} AS VARCHAR)", _nested


_PLAIN = frozenset(
    "BOOLEAN TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT UHUGEINT VARCHAR BLOB".split()
)
_WORDS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _nested(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _nested(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_nested(item) for item in value]
    if isinstance(value, dt.datetime):
        return shortened(value.replace(tzinfo=None).isoformat("T"))
    return value
